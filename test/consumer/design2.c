/*
 * Design 2, 0.12.4 to 0.24: a child "ollama runner --ollama-engine --port N" loads libggml-cuda.so,
 * whose DT_NEEDED is libcuda.so.1, and tells its devices over HTTP. Lines are those of 0.13.5.
 */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend.h"
#include "directories.h"
#include "nvml.h"

const char *const design_version = "0.13.5";
const int design_number = 2;

/* ---- the child ---- */

static void load_backends(struct device *devices, int *count) {
  char *paths = strdup(setting("OLLAMA_LIBRARY_PATH")), file[256];
  *count = 0;
  for (char *rest = paths, *path; (path = strsep(&rest, ":")) != NULL;) {
    text(file, sizeof file, "%s/libggml-cuda.so", path);
    if (access(file, F_OK) != 0) continue;
    int found = ask_backend(file, &devices[*count], MAX_DEVICES - *count, true);
    if (found > 0) *count += found;
  }
  free(paths);
}

/* The devices, one a line, fields by tabs: the stand-in's own format between its own two ends. */
static const char *answer_info(const char *path) {
  static char answer[8192];
  struct device devices[MAX_DEVICES];
  int count = 0;
  size_t length = 0;
  if (strcmp(path, "/info") != 0) return NULL;
  load_backends(devices, &count);
  answer[0] = '\0';
  for (int index = 0; index < count; index++) {
    struct device *device = &devices[index];
    if (nvml_memory(device->uuid, &device->total, &device->available)) {
      fprintf(stderr,
              "ggml_backend_cuda_device_get_memory device %s utilizing NVML memory reporting "
              "free: %llu total: %llu\n",
              device->uuid, (unsigned long long)device->available, (unsigned long long)device->total);
    }
    length += (size_t)snprintf(answer + length, sizeof answer - length,
                               "%d\t%s\t%s\t%d\t%d\t%s\t%llu\t%llu\t%d\t%d\n", device->index, device->name,
                               device->uuid, device->major, device->minor, device->pci,
                               (unsigned long long)device->total, (unsigned long long)device->available,
                               device->driver, device->integrated);
  }
  return answer;
}

void run_subcommand(int argc, char **argv) {
  char host[32];
  const char *port = NULL;
  bool engine = false;
  if (argc < 2 || strcmp(argv[1], "runner") != 0) return;
  for (int index = 2; index < argc; index++) {
    if (strcmp(argv[index], "--ollama-engine") == 0) engine = true;
    if (strcmp(argv[index], "--port") == 0 && index + 1 < argc) port = argv[++index];
  }
  if (port == NULL) {
    fprintf(stderr, "Error: stand-in: runner wants --port\n");
    exit(1);
  }
  setenv("OLLAMA_HOST", text(host, sizeof host, "127.0.0.1:%s", port), 1);
  int listener = http_listen(host, sizeof host);
  if (!engine) { /* the runner of a "loaded model": has the backend loaded and waits */
    struct device devices[MAX_DEVICES];
    int count;
    load_backends(devices, &count);
  }
  http_serve(listener, answer_info);
}

/* ---- the server ---- */

static int free_port(void) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  socklen_t length = sizeof address;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bind(probe, (struct sockaddr *)&address, sizeof address);
  getsockname(probe, (struct sockaddr *)&address, &length);
  close(probe);
  return ntohs(address.sin_port);
}

/* The value of KEY=VALUE; NULL for NULL, which leaves the field out of a log line. */
static const char *after_equals(const char *setting) {
  return setting == NULL ? NULL : strchr(setting, '=') + 1;
}

/* Starts a runner for one directory and says so in the log; gives its PID. */
static pid_t start_runner(const struct directory *directory, const char *kind, const char *model, int port,
                          char *visible, char *deep) {
  char own[256], number[16], command[512];
  char libraries[sizeof directory->library_path], path[sizeof directory->ollama_path];
  own_path(own, sizeof own);
  text(number, sizeof number, "%d", port);
  text(libraries, sizeof libraries, "%s", directory->library_path);
  text(path, sizeof path, "%s", directory->ollama_path);
  char kind_argument[32], model_argument[64];
  text(kind_argument, sizeof kind_argument, "%s", kind);
  text(model_argument, sizeof model_argument, "%s", model);
  char port_argument[] = "--port", runner[] = "runner";
  char *with_model[] = {own, runner, kind_argument, model_argument, port_argument, number, NULL};
  char *without[] = {own, runner, kind_argument, port_argument, number, NULL};
  char *environment[] = {libraries, path, visible, deep, NULL}; /* ends at the first NULL */
  text(command, sizeof command, "%s runner %s%s%s --port %s", own, kind, *model == '\0' ? "" : " ", model,
       number);
  log_line(LEVEL_INFO, "server.go:429", "starting runner", "cmd", command, NULL);
  log_line(LEVEL_DEBUG, "server.go:430", "subprocess", "OLLAMA_MODELS", "/usr/share/ollama/.ollama/models",
           "PATH", setting("PATH"), "LD_LIBRARY_PATH", after_equals(libraries), "OLLAMA_LIBRARY_PATH",
           after_equals(path), "CUDA_VISIBLE_DEVICES", after_equals(visible), "GGML_CUDA_INIT",
           after_equals(deep), NULL);
  return start_child(*model == '\0' ? without : with_model, environment, !log_wants(LEVEL_TRACE));
}

static bool parse_device(char *line, struct device *device) {
  char *field[10];
  int count = 0;
  for (char *rest = line; count < 10 && (field[count] = strsep(&rest, "\t")) != NULL;) count++;
  if (count != 10) return false;
  *device = (struct device){.index = atoi(field[0]), .major = atoi(field[3]), .minor = atoi(field[4])};
  text(device->name, sizeof device->name, "%s", field[1]);
  text(device->uuid, sizeof device->uuid, "%s", field[2]);
  text(device->pci, sizeof device->pci, "%s", field[5]);
  device->total = strtoull(field[6], NULL, 10);
  device->available = strtoull(field[7], NULL, 10);
  device->driver = atoi(field[8]);
  device->integrated = atoi(field[9]) != 0;
  return true;
}

static int ask_runner(const struct directory *directory, const struct device *filter, double deadline,
                      struct device *devices, int most) {
  char visible[96], deep[] = "GGML_CUDA_INIT=1", extra[128] = "map[]", *answer = NULL;
  int port = free_port(), count = 0;
  bool died = false;
  if (filter != NULL) {
    text(visible, sizeof visible, "CUDA_VISIBLE_DEVICES=%s", filter->uuid);
    text(extra, sizeof extra, "map[CUDA_VISIBLE_DEVICES:%s GGML_CUDA_INIT:1]", filter->uuid);
  }
  pid_t pid = start_runner(directory, "--ollama-engine", "", port, filter == NULL ? NULL : visible,
                           filter == NULL ? NULL : deep);
  while (pid > 0 && answer == NULL && now() < deadline) {
    answer = http_get(port, "/info", deadline);
    if (answer != NULL) break;
    if (waitpid(pid, NULL, WNOHANG) == pid) {
      died = true; /* a crash is only told at TRACE: it is expected with libraries for other
                      GPUs */
      pid = -1;
      break;
    }
    usleep(5000);
  }
  if (pid > 0) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
  }
  if (answer == NULL && !died) {
    log_line(LEVEL_INFO, "runner.go:464", "failure during GPU discovery", "OLLAMA_LIBRARY_PATH",
             directory->shown, "extra_envs", extra, "error", "failed to finish discovery before timeout",
             NULL);
  }
  if (died)
    log_line(LEVEL_TRACE, "runner.go:461", "runner exited", "OLLAMA_LIBRARY_PATH", directory->shown, NULL);
  for (char *rest = answer, *line; rest != NULL && count < most && (line = strsep(&rest, "\n")) != NULL;) {
    if (parse_device(line, &devices[count])) count++;
  }
  free(answer);
  return count;
}

int discover(struct device *devices) {
  static const char *const sources[3] = {"runner.go:67", "runner.go:437", "runner.go:124"};
  int count = discover_directories(sources, ask_runner, NULL, devices);
  uint64_t total = 0;
  char memory[32], driver[16];
  extra_lines(false);
  if (count == 0) log_cpu();
  for (int index = 0; index < count; index++) {
    text(driver, sizeof driver, "%d.%d", devices[index].driver / 1000, devices[index].driver % 1000 / 10);
    log_device(&devices[index], devices[index].uuid, "", driver);
    total += devices[index].total;
  }
  if (total < 20ull << 30) {
    log_line(LEVEL_INFO, "routes.go:1648", "entering low vram mode", "total vram",
             human_bytes(memory, sizeof memory, total), "threshold", "20.0 GiB", NULL);
  }
  return count;
}

void keep_runner(const struct device *devices, int count) {
  struct directory directory = {.path = ""};
  const char *inherited = setting("LD_LIBRARY_PATH"), *base = count > 0 ? devices[0].directory : "";
  text(directory.library_path, sizeof directory.library_path, "LD_LIBRARY_PATH=%s:%s/%s%s%s",
       LIBRARY_DIRECTORY, LIBRARY_DIRECTORY, base, *inherited == '\0' ? "" : ":", inherited);
  text(directory.ollama_path, sizeof directory.ollama_path, "OLLAMA_LIBRARY_PATH=%s:%s/%s", LIBRARY_DIRECTORY,
       LIBRARY_DIRECTORY, base);
  start_runner(&directory, "--model", "stand-in-without-a-model", free_port(), NULL, NULL);
}
