/*
 * Design 3, 0.30 and later: llama-server is started twice, once to read its system_info and once
 * with
 * --list-devices, and the hidden "ollama gpu-discover" asks libcuda and NVML. Lines are those of
 * 0.32.9.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend.h"
#include "directories.h"
#include "gpu-discover.h"

const char *const design_version = "0.32.9";
const int design_number = 3;

/* ---- one pass ---- */

struct probe {
  const struct directory *directory;
  double deadline;
  char *environment[6];
  char storage[5][704];
  char extra[96]; /* as in log lines */
};

static void prepare(struct probe *probe, const struct directory *directory, const struct device *filter,
                    double deadline) {
  int count = 0;
  probe->directory = directory;
  probe->deadline = deadline;
  text(probe->extra, sizeof probe->extra, "map[]");
  text(probe->storage[count], sizeof probe->storage[0], "%s", directory->library_path);
  probe->environment[count] = probe->storage[count];
  count++;
  if (*directory->base != '\0') {
    text(probe->storage[count], sizeof probe->storage[0], "GGML_BACKEND_PATH=%s/libggml-cuda.so",
         directory->path);
    probe->environment[count] = probe->storage[count];
    count++;
  }
  if (filter != NULL) {
    text(probe->storage[count], sizeof probe->storage[0], "CUDA_VISIBLE_DEVICES=%d", filter->index);
    probe->environment[count] = probe->storage[count];
    count++;
    text(probe->storage[count], sizeof probe->storage[0], "GGML_CUDA_INIT=1");
    probe->environment[count] = probe->storage[count];
    count++;
    text(probe->extra, sizeof probe->extra, "map[CUDA_VISIBLE_DEVICES:%d GGML_CUDA_INIT:1]", filter->index);
  }
  probe->environment[count] = NULL;
}

static void log_failure(const struct probe *probe, const char *error) {
  log_line(LEVEL_INFO, "runner.go:522", "failure during llama-server GPU discovery", "OLLAMA_LIBRARY_PATH",
           probe->directory->shown, "extra_envs", probe->extra, "error", error, "detail", "", NULL);
}

static void log_late(const struct probe *probe) {
  log_line(LEVEL_WARN, "runner.go:584", "llama-server GPU discovery watchdog timed out",
           "OLLAMA_LIBRARY_PATH", probe->directory->shown, "extra_envs", probe->extra, "error",
           "context deadline exceeded", NULL);
  log_failure(probe, "context deadline exceeded");
}

/* The first llama-server: started as if to serve, ended once it has said its system_info. False
 * when it took too long. */
static bool read_system_info(const struct probe *probe, char *archs, size_t size) {
  char program[] = LIBRARY_DIRECTORY "/llama-server", port[16];
  char port_option[] = "--port", host_option[] = "--host", host[] = "127.0.0.1", no_webui[] = "--no-webui",
       offline[] = "--offline";
  text(port, sizeof port, "%d", 49152 + (int)(getpid() % 16383));
  char *arguments[] = {program, port_option, port, host_option, host, no_webui, offline, NULL};
  log_line(LEVEL_TRACE, "llama_server.go:71", "running llama-server for discovery", "cmd", program, "libDirs",
           probe->directory->shown, NULL);
  struct child child = run_child(arguments, probe->environment, probe->deadline, "system_info:");
  const char *found = strstr(child.err, "CUDA : ARCHS = ");
  bool late = child.timed_out, said = strstr(child.err, "system_info:") != NULL;
  text(archs, size, "%s", "");
  if (found != NULL) sscanf(found, "CUDA : ARCHS = %255[0-9,]", archs);
  log_line(LEVEL_DEBUG, "llama_server.go:121",
           "llama-server discovery: stopped subprocess after collecting GPU info", "exit", "unknown",
           "libDirs", probe->directory->shown, NULL);
  child_free(&child);
  if (late) {
    log_late(probe);
    log_line(LEVEL_WARN, "llama_server.go:130",
             "llama-server discovery: timed out waiting for server startup", "error",
             "context deadline exceeded", "libDirs", probe->directory->shown, "lines_captured", "0", NULL);
    return false;
  }
  if (!said) {
    log_line(LEVEL_WARN, "llama_server.go:137",
             "llama-server discovery: system_info line not found in output - CUDA architecture "
             "filtering will be disabled. "
             "If GPU inference fails, this may indicate an incompatible llama-server version.",
             "libDirs", probe->directory->shown, "lines_captured", "0", NULL);
  }
  return true;
}

/* The second: what it lists. Gives the number of devices, -1 when it failed. */
static int list_devices(const struct probe *probe, struct device *devices, int most) {
  char program[] = LIBRARY_DIRECTORY "/llama-server", list[] = "--list-devices", offline[] = "--offline";
  char *arguments[] = {program, list, offline, NULL}, why[128];
  struct child child = run_child(arguments, probe->environment, probe->deadline, NULL);
  int count = 0;
  if (child.timed_out) {
    child_free(&child);
    log_late(probe);
    return -1;
  }
  if (child.status != 0) {
    if (WIFSIGNALED(child.status)) {
      int signal = WTERMSIG(child.status);
      text(why, sizeof why, "llama-server --list-devices failed: signal: %s",
           signal == 6    ? "aborted"
           : signal == 11 ? "segmentation fault"
                          : strsignal(signal));
    } else {
      text(why, sizeof why, "llama-server --list-devices failed: exit status %d", WEXITSTATUS(child.status));
    }
    child_free(&child);
    log_failure(probe, why);
    return -1;
  }
  char *rest = child.out, *line;
  while (count < most && (line = strsep(&rest, "\n")) != NULL) {
    unsigned long long total, available;
    char *open = strrchr(line, '(');
    int index;
    if (open == NULL || sscanf(line, " CUDA%d: ", &index) != 1) continue;
    if (sscanf(open, "(%llu MiB, %llu MiB free)", &total, &available) != 2) continue;
    struct device *device = &devices[count++];
    *device = (struct device){.index = index, .total = total << 20, .available = available << 20};
    const char *name = strchr(line, ':') + 2;
    text(device->name, sizeof device->name, "%.*s", (int)(open - name - 1), name);
  }
  child_free(&child);
  return count;
}

/* "ollama gpu-discover": fills in what llama-server does not say. False when it failed. */
static bool ask_gpu_discover(const struct probe *probe, struct device *devices, int count) {
  char own[256], command[] = "gpu-discover", option[] = "--lib-dir", base[] = LIBRARY_DIRECTORY, path[128],
                 why[64];
  own_path(own, sizeof own);
  text(path, sizeof path, "%s", probe->directory->path);
  char *arguments[] = {own, command, option, base, *path == '\0' ? NULL : option, path, NULL};
  double deadline = now() + 15 < probe->deadline ? now() + 15 : probe->deadline;
  struct child child = run_child(arguments, probe->environment, deadline, NULL);
  bool good = !child.timed_out && child.status == 0;
  if (good) {
    parse_discovered(child.out, devices, count);
  } else {
    text(why, sizeof why, child.timed_out ? "context deadline exceeded" : "exit status %d",
         WIFEXITED(child.status) ? WEXITSTATUS(child.status) : 2);
    log_line(LEVEL_DEBUG, "native_probe.go:259", "native GPU discovery failed", "error", why, "stderr",
             *child.err == '\0' ? NULL : child.err, "libDirs", probe->directory->shown, NULL);
  }
  child_free(&child);
  return good;
}

/* Leaves out devices the backend was not compiled for. */
static int filter_archs(const struct probe *probe, char *archs, struct device *devices, int count) {
  int kept = 0;
  for (int index = 0; index < count; index++) {
    const struct device *device = &devices[index];
    char wanted[24], padded[288], shown[288];
    if (device->major == 0) {
      log_line(LEVEL_WARN, "llama_server.go:306",
               "llama-server discovery: could not determine compute capability for CUDA "
               "device — architecture filtering "
               "disabled for this device. If inference crashes, check that the CUDA backend "
               "supports this GPU.",
               "device", device->name, "libDirs", probe->directory->shown, NULL);
    } else {
      text(wanted, sizeof wanted, ",%d%d0,", device->major, device->minor);
      text(padded, sizeof padded, ",%s,", archs);
      if (*archs != '\0' && strstr(padded, wanted) == NULL) {
        text(shown, sizeof shown, "[%s]", archs);
        for (char *comma = shown; (comma = strchr(comma, ',')) != NULL;) *comma = ' ';
        text(wanted, sizeof wanted, "%d%d0", device->major, device->minor);
        log_line(LEVEL_INFO, "llama_server.go:299",
                 "skipping CUDA device — compute capability not in compiled architectures", "device",
                 device->name, "cc", wanted, "archs", shown, "libDirs", probe->directory->shown, NULL);
        continue;
      }
    }
    devices[kept++] = *device;
  }
  return kept;
}

static int pass(const struct directory *directory, const struct device *filter, double deadline,
                struct device *devices, int most) {
  struct probe probe;
  char archs[256], took[32];
  double start = now();
  int count = 0;
  prepare(&probe, directory, filter, deadline);
  if (read_system_info(&probe, archs, sizeof archs)) {
    count = list_devices(&probe, devices, most);
    if (count >= 0 && now() < deadline) ask_gpu_discover(&probe, devices, count);
    if (count > 0) count = filter_archs(&probe, archs, devices, count);
  }
  log_line(LEVEL_DEBUG, "llama_server.go:52", "llama-server device discovery took", "duration",
           text(took, sizeof took, "%.6fms", (now() - start) * 1000), "libDirs", directory->shown, NULL);
  return count < 0 ? 0 : count;
}

/* cuda_v12 wants a driver of 550 or newer, 570 for GPUs before compute capability 7.0. */
static int drop_old_drivers(struct device *devices, int count) {
  int kept = 0;
  bool warned = false;
  for (int index = 0; index < count; index++) {
    const struct device *device = &devices[index];
    int required = device->major > 0 && device->major < 7 ? 570 : 550;
    char compute[16], driver[16], wanted[32];
    bool concerned = strcmp(device->directory, "cuda_v12") == 0;
    if (concerned && device->nvidia_driver == 0 && !warned) {
      log_line(LEVEL_WARN, "cuda_compat.go:39", "could not verify NVIDIA driver compatibility for CUDA",
               NULL);
      warned = true;
    }
    if (concerned && device->nvidia_driver != 0 && device->nvidia_driver < required) {
      log_line(LEVEL_WARN, "cuda_compat.go:65", "NVIDIA driver too old", "device", device->name, "compute",
               text(compute, sizeof compute, "%d.%d", device->major, device->minor), "driver",
               text(driver, sizeof driver, "%d", device->nvidia_driver), "required_driver",
               text(wanted, sizeof wanted, "%d or newer", required), NULL);
      continue;
    }
    devices[kept++] = *device;
  }
  return kept;
}

int discover(struct device *devices) {
  static const char *const sources[3] = {"runner.go:60", "runner.go:494", "runner.go:131"};
  int count = discover_directories(sources, pass, drop_old_drivers, devices);
  unlink(setting("STANDIN_DISCOVER_FAILS"));
  uint64_t total = 0;
  char memory[32], driver[16], id[16];
  extra_lines(false);
  if (count == 0) log_cpu();
  for (int index = 0; index < count; index++) {
    struct device *device = &devices[index];
    if (device->driver > 0) {
      text(driver, sizeof driver, "%d.%d", device->driver / 1000, device->driver % 1000 / 10);
    } else { /* the probe failed: real Ollama writes the version that the directory stands for
              */
      text(driver, sizeof driver, "%s.0", strlen(device->directory) > 6 ? device->directory + 6 : "0");
    }
    text(id, sizeof id, "%d", device->index);
    log_device(device, id, id, driver);
    total += device->total;
  }
  log_line(LEVEL_INFO, "routes.go:2040", "vram-based default context", "total_vram",
           human_bytes(memory, sizeof memory, total), "default_num_ctx", total == 0 ? "4096" : "262144",
           NULL);
  return count;
}

void run_subcommand(int argc, char **argv) {
  if (argc >= 2 && strcmp(argv[1], "gpu-discover") == 0) exit(gpu_discover(argc - 2, argv + 2));
}

void keep_runner(const struct device *devices, int count) {
  char program[] = LIBRARY_DIRECTORY "/llama-server", option[] = "--model",
       model[] = "stand-in-without-a-model";
  char *arguments[] = {program, option, model, NULL}, libraries[704], backend[256];
  const char *inherited = setting("LD_LIBRARY_PATH"), *base = count > 0 ? devices[0].directory : "";
  text(libraries, sizeof libraries, "LD_LIBRARY_PATH=%s:%s/%s%s%s", LIBRARY_DIRECTORY, LIBRARY_DIRECTORY,
       base, *inherited == '\0' ? "" : ":", inherited);
  text(backend, sizeof backend, "GGML_BACKEND_PATH=%s/%s/libggml-cuda.so", LIBRARY_DIRECTORY, base);
  char *environment[] = {libraries, count > 0 ? backend : NULL, NULL};
  log_line(LEVEL_INFO, "llama_server.go:431", "starting llama-server", "cmd",
           LIBRARY_DIRECTORY "/llama-server --model stand-in-without-a-model", NULL);
  bool loads = *setting("STANDIN_MODEL_BYTES") != '\0'; /* what a load says is logged at every level */
  start_child(arguments, environment, !loads && !log_wants(LEVEL_TRACE));
}
