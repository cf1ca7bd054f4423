#include "directories.h"

#include <glob.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DIRECTORIES_MAX 8

const char *own_path(char *buffer, size_t size) {
  ssize_t length = readlink("/proc/self/exe", buffer, size - 1);
  buffer[length < 0 ? 0 : length] = '\0';
  return buffer;
}

static void fill(struct directory *directory, const char *path) {
  const char *inherited = setting("LD_LIBRARY_PATH"), *colon = *inherited == '\0' ? "" : ":";
  text(directory->path, sizeof directory->path, "%s", path);
  if (*path == '\0') {
    directory->base[0] = '\0';
    text(directory->library_path, sizeof directory->library_path, "LD_LIBRARY_PATH=%s%s%s", LIBRARY_DIRECTORY,
         colon, inherited);
    text(directory->ollama_path, sizeof directory->ollama_path, "OLLAMA_LIBRARY_PATH=%s", LIBRARY_DIRECTORY);
    text(directory->shown, sizeof directory->shown, "[%s]", LIBRARY_DIRECTORY);
    return;
  }
  text(directory->base, sizeof directory->base, "%s", strrchr(path, '/') + 1);
  text(directory->library_path, sizeof directory->library_path, "LD_LIBRARY_PATH=%s:%s%s%s",
       LIBRARY_DIRECTORY, path, colon, inherited);
  text(directory->ollama_path, sizeof directory->ollama_path, "OLLAMA_LIBRARY_PATH=%s:%s", LIBRARY_DIRECTORY,
       path);
  text(directory->shown, sizeof directory->shown, "[%s %s]", LIBRARY_DIRECTORY, path);
}

/* The directories with a ggml library, sorted; one entry with an empty path when there is none. */
static int find_directories(struct directory *directories) {
  glob_t matches;
  int count = 0;
  if (glob(LIBRARY_DIRECTORY "/*/*ggml-*", 0, NULL, &matches) == 0) {
    for (size_t match = 0; match < matches.gl_pathc && count < DIRECTORIES_MAX; match++) {
      char *path = dirname(matches.gl_pathv[match]);
      if (count == 0 || strcmp(directories[count - 1].path, path) != 0) fill(&directories[count++], path);
    }
    globfree(&matches);
  }
  if (count == 0) fill(&directories[count++], "");
  return count;
}

static void warn_of_overrides(const char *source) {
  static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"};
  bool any = false;
  for (size_t index = 0; index < sizeof names / sizeof *names; index++) {
    if (*setting(names[index]) == '\0') continue;
    any = true;
    log_line(LEVEL_WARN, source, "user overrode visible devices", names[index], setting(names[index]), NULL);
  }
  if (any) log_line(LEVEL_WARN, source, "if GPUs are not correctly discovered, unset and try again", NULL);
}

static const char *duration(char *buffer, size_t size, double seconds) {
  return seconds < 1 ? text(buffer, size, "%.6fms", seconds * 1000) : text(buffer, size, "%.9fs", seconds);
}

/* The second pass: looks at each device again, alone and in depth; gives how many stay. */
static int verify(const char *source, pass_fn *pass, const struct directory *directories, int directory_count,
                  struct device *devices, int count) {
  struct device again[MAX_DEVICES];
  int kept = 0;
  double deadline = now() + discovery_timeout();
  for (int index = 0; index < count; index++) {
    const struct directory *directory = NULL;
    char compute[16], id[48];
    for (int at = 0; at < directory_count; at++) {
      if (strcmp(directories[at].base, devices[index].directory) == 0) directory = &directories[at];
    }
    if (directory == NULL) continue;
    text(compute, sizeof compute, "%d.%d", devices[index].major, devices[index].minor);
    if (design_number == 2) {
      text(id, sizeof id, "%s", devices[index].uuid);
    } else {
      text(id, sizeof id, "%d", devices[index].index);
    }
    log_line(LEVEL_DEBUG, source, "verifying if device is supported", "library", directory->path,
             "description", devices[index].name, "compute", compute, "id", id, "pci_id", devices[index].pci,
             NULL);
    if (pass(directory, &devices[index], deadline, again, MAX_DEVICES) == 0) {
      log_line(LEVEL_DEBUG, source, "filtering device which didn't fully initialize", "id", id, "libdir",
               directory->path, "pci_id", devices[index].pci, "library", "CUDA", NULL);
      continue;
    }
    devices[kept++] = devices[index];
  }
  return kept;
}

/* Several directories may see the same devices: the newest one that sees the most keeps them. */
static int drop_overlaps(const char *source, struct device *devices, int count) {
  const char *newest = NULL;
  int most = 0, kept = 0;
  for (int index = 0; index < count; index++) {
    int same = 0;
    for (int other = 0; other < count; other++) {
      same += strcmp(devices[index].directory, devices[other].directory) == 0;
    }
    if (newest == NULL || same > most || (same == most && strcmp(devices[index].directory, newest) > 0)) {
      newest = devices[index].directory;
      most = same;
    }
  }
  char keep[64];
  text(keep, sizeof keep, "%s", newest == NULL ? "" : newest);
  for (int index = 0; index < count; index++) {
    if (strcmp(devices[index].directory, keep) == 0) {
      devices[kept++] = devices[index];
    } else {
      log_line(LEVEL_DEBUG, source, "filtering device with overlapping libraries", "library",
               devices[index].directory, "kept_library", keep, NULL);
    }
  }
  return kept;
}

int discover_directories(const char *const sources[3], pass_fn *pass,
                         int (*drop)(struct device *devices, int count), struct device *devices) {
  struct directory directories[DIRECTORIES_MAX];
  const char *requested = setting("OLLAMA_LLM_LIBRARY");
  int directory_count = find_directories(directories), count = 0;
  char number[32];
  double start = now();
  log_line(LEVEL_INFO, sources[0], "discovering available GPUs...", NULL);
  warn_of_overrides(sources[0]);
  for (int index = 0; index < directory_count; index++) {
    const struct directory *directory = &directories[index];
    if (*directory->base != '\0' && *requested != '\0' && strcmp(directory->base, requested) != 0) {
      log_line(LEVEL_DEBUG, sources[0], "skipping available library at user's request", "requested",
               requested, "libDir", directory->path, NULL);
      continue;
    }
    double began = now();
    int found = pass(directory, NULL, began + discovery_timeout(), &devices[count], MAX_DEVICES - count);
    for (int device = 0; device < found; device++) {
      text(devices[count + device].directory, sizeof devices[0].directory, "%s", directory->base);
    }
    count += found;
    log_line(LEVEL_DEBUG, sources[1], "bootstrap discovery took", "duration",
             duration(number, sizeof number, now() - began), "OLLAMA_LIBRARY_PATH", directory->shown,
             "extra_envs", "map[]", NULL);
  }
  if (drop != NULL) count = drop(devices, count);
  log_line(LEVEL_DEBUG, sources[2], "evaluating which, if any, devices to filter out", "initial_count",
           text(number, sizeof number, "%d", count), NULL);
  count = verify(sources[2], pass, directories, directory_count, devices, count);
  count = drop_overlaps(sources[2], devices, count);
  log_line(LEVEL_DEBUG, sources[0], "GPU bootstrap discovery took", "duration",
           duration(number, sizeof number, now() - start), NULL);
  return count;
}

void log_device(const struct device *device, const char *id, const char *filter_id, const char *driver) {
  char name[16], compute[16], directories[96], total[32], available[32];
  const char *source = design_number == 2 ? "types.go:42" : "types.go:32",
             *fields = setting("STANDIN_FIELDS");
  const char *type = device->integrated ? "iGPU" : "discrete";
  text(name, sizeof name, "CUDA%d", device->index);
  text(compute, sizeof compute, "%d.%d", device->major, device->minor);
  text(directories, sizeof directories, "ollama%s%s", *device->directory == '\0' ? "" : ",",
       device->directory);
  human_bytes(total, sizeof total, device->total);
  human_bytes(available, sizeof available, device->available);
  if (strcmp(fields, "reordered") == 0) {
    log_line(LEVEL_INFO, source, "inference compute", "available", available, "pci_id", device->pci,
             "description", device->name, "total", total, "compute", compute, "libdirs", directories, "name",
             name, "library", "CUDA", "driver", driver, "type", type, "filter_id", filter_id, "id", id, NULL);
    return;
  }
  log_line(LEVEL_INFO, source, "inference compute", "id", id, "filter_id", filter_id, "library", "CUDA",
           "compute", compute, "name", name, "description", device->name, "libdirs", directories, "driver",
           driver, "pci_id", device->pci, "type", type, "total", total, "available", available,
           strcmp(fields, "extra") == 0 ? "future key" : NULL, "a=b \"c\"", NULL);
}

void log_cpu(void) {
  char total[32], available[32];
  uint64_t memory, rest;
  machine_memory(&memory, &rest);
  human_bytes(total, sizeof total, memory);
  human_bytes(available, sizeof available, rest);
  log_line(LEVEL_INFO, design_number == 2 ? "types.go:60" : "types.go:50", "inference compute", "id", "cpu",
           "library", "cpu", "compute", "", "name", "cpu", "description", "cpu", "libdirs", "ollama",
           "driver", "", "pci_id", "", "type", "", "total", total, "available", available,
           strcmp(setting("STANDIN_FIELDS"), "extra") == 0 ? "future key" : NULL, "a=b \"c\"", NULL);
}
