/*
 * Design 1, up to 0.12.3: libcuda is opened in the server itself, by absolute paths from globs, so
 * that a preloaded one is not used. The order of the globs and of the symbols is that of 0.11.11.
 */
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin.h"

const char *const design_version = "0.11.11";
const int design_number = 1;

enum { NO_DEVICE = 100, INSUFFICIENT_DRIVER = 35, DRIVER_MISMATCH = 803, UNKNOWN = 999 };

struct driver {
  void *library;
  int (*init)(unsigned);
  int (*driver_version)(int *);
  int (*count)(int *);
  int (*get)(int *, int);
  int (*attribute)(int *, int, int);
  int (*uuid)(unsigned char *, int);
  int (*name)(char *, int, int);
  int (*context_create)(void **, void *, int, unsigned, int);
  int (*memory)(size_t *, size_t *);
  int (*context_destroy)(void *);
};

#define PATHS_MAX 64
struct paths {
  char *path[PATHS_MAX];
  int count;
};

/* Follows links one by one, each relative to its directory, as Ollama does before it compares
 * paths. */
static void resolve(char path[PATH_MAX]) {
  for (int step = 0; step < 40;
       step++) { /* Ollama has no limit and hangs on a loop; tests do not want that */
    char target[PATH_MAX], joined[PATH_MAX];
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0) return;
    target[length] = '\0';
    if (*target == '/') {
      strcpy(path, target);
      continue;
    }
    char *slash = strrchr(path, '/');
    int directory = slash == NULL ? 0 : (int)(slash - path);
    if (snprintf(joined, sizeof joined, "%.*s/%s", directory, path, target) >= (int)sizeof joined) return;
    strcpy(path, joined);
  }
}

static void search(struct paths *found, const char *pattern) {
  glob_t matches;
  if (glob(pattern, 0, NULL, &matches) != 0) return;
  for (size_t match = 0; match < matches.gl_pathc && found->count < PATHS_MAX; match++) {
    char path[PATH_MAX];
    bool known = false;
    text(path, sizeof path, "%s", matches.gl_pathv[match]);
    resolve(path);
    for (int index = 0; index < found->count; index++) known = known || strcmp(found->path[index], path) == 0;
    if (!known) found->path[found->count++] = strdup(path);
  }
  globfree(&matches);
}

static void append(char *list, size_t size, const char *item) {
  size_t length = strlen(list);
  snprintf(list + length, size - length, "%s%s", length == 0 ? "" : " ", item);
}

static struct paths find_libraries(const char *name) {
  static const char *const places[] = {
      "/usr/local/cuda*/targets/*/lib",
      "/usr/lib/*-linux-gnu/nvidia/current",
      "/usr/lib/*-linux-gnu",
      "/usr/lib/wsl/lib",
      "/usr/lib/wsl/drivers/*",
      "/opt/cuda/lib*",
      "/usr/local/cuda/lib*",
      "/usr/lib*",
      "/usr/local/lib*",
  };
  struct paths found = {.count = 0};
  char globs[8192] = "", list[8192] = "", shown[8200], pattern[PATH_MAX], working[PATH_MAX];
  log_line(LEVEL_DEBUG, "gpu.go:512", "Searching for GPU library", "name", name, NULL);
  append(globs, sizeof globs, text(pattern, sizeof pattern, "%s/%s", LIBRARY_DIRECTORY, name));
  search(&found, pattern);
  char *directories = strdup(setting("LD_LIBRARY_PATH"));
  for (char *rest = directories, *directory; (directory = strsep(&rest, ":")) != NULL;) {
    if (*directory != '/') { /* an empty or relative entry is one below the working directory */
      if (getcwd(working, sizeof working) == NULL) continue;
      text(pattern, sizeof pattern, "%s/%s%s%s", strcmp(working, "/") == 0 ? "" : working, directory,
           *directory == '\0' ? "" : "/", name);
    } else {
      text(pattern, sizeof pattern, "%s/%s", directory, name);
    }
    append(globs, sizeof globs, pattern);
    search(&found, pattern);
  }
  free(directories);
  for (size_t place = 0; place < sizeof places / sizeof *places; place++) {
    append(globs, sizeof globs, text(pattern, sizeof pattern, "%s/%s", places[place], name));
    search(&found, pattern);
  }
  log_line(LEVEL_DEBUG, "gpu.go:536", "gpu library search", "globs", text(shown, sizeof shown, "[%s]", globs),
           NULL);
  for (int index = 0; index < found.count; index++) append(list, sizeof list, found.path[index]);
  log_line(LEVEL_DEBUG, "gpu.go:569", "discovered GPU libraries", "paths",
           text(shown, sizeof shown, "[%s]", list), NULL);
  return found;
}

static void verbose(const char *format, const char *a, const char *b) {
  if (log_wants(LEVEL_DEBUG)) fprintf(stderr, format, a, b);
}

/* Opens one library; gives 0, or a CUDA error, or -1, and then why. */
static int open_driver(struct driver *driver, const char *path, int *count, char *why, size_t size) {
  const struct {
    const char *name;
    void **target;
  } symbols[] = {
      {"cuInit", (void **)&driver->init},
      {"cuDriverGetVersion", (void **)&driver->driver_version},
      {"cuDeviceGetCount", (void **)&driver->count},
      {"cuDeviceGet", (void **)&driver->get},
      {"cuDeviceGetAttribute", (void **)&driver->attribute},
      {"cuDeviceGetUuid", (void **)&driver->uuid},
      {"cuDeviceGetName", (void **)&driver->name},
      {"cuCtxCreate_v3", (void **)&driver->context_create},
      {"cuMemGetInfo_v2", (void **)&driver->memory},
      {"cuCtxDestroy", (void **)&driver->context_destroy},
  };
  verbose("initializing %s%s\n", path, "");
  driver->library = dlopen(path, RTLD_LAZY);
  if (driver->library == NULL) {
    const char *error = dlerror();
    verbose("library %s load err: %s\n", path, error);
    text(why, size, "Unable to load %s library to query for Nvidia GPUs: %s", path, error);
    return -1;
  }
  for (size_t index = 0; index < sizeof symbols / sizeof *symbols; index++) {
    *symbols[index].target = dlsym(driver->library, symbols[index].name);
    if (*symbols[index].target == NULL) {
      const char *error = dlerror();
      verbose("dlerr: %s%s\n", error, "");
      text(why, size, "symbol lookup for %s failed: %s", symbols[index].name, error);
      dlclose(driver->library);
      return -1;
    }
    char address[32];
    verbose("dlsym: %s - %s\n", symbols[index].name,
            text(address, sizeof address, "%p", *symbols[index].target));
  }
  verbose("calling cuInit%s%s\n", "", "");
  int result = driver->init(0);
  if (result != 0) {
    char number[16];
    verbose("cuInit err: %s%s\n", text(number, sizeof number, "%d", result), "");
    text(why, size, "cuda driver library init failure: %d", result);
    dlclose(driver->library);
    return result;
  }
  verbose("calling cuDeviceGetCount%s%s\n", "", "");
  result = driver->count(count);
  if (result != 0) {
    text(why, size, "unable to get device count: %d", result);
    dlclose(driver->library);
    return -1;
  }
  return 0;
}

static bool load_driver(struct driver *driver, int *count) {
  struct paths paths = find_libraries("libcuda.so*");
  char why[PATH_MAX * 2], message[PATH_MAX * 3];
  for (int index = 0; index < paths.count; index++) {
    const char *path = paths.path[index], *seen = path;
    int result = open_driver(driver, path, count, why, sizeof why);
    char number[16];
    switch (result) {
      case 0:
        log_line(LEVEL_DEBUG, "gpu.go:125", "detected GPUs", "count",
                 text(number, sizeof number, "%d", *count), "library", path, NULL);
        return true;
      case INSUFFICIENT_DRIVER:
      case DRIVER_MISMATCH:
        text(message, sizeof message,
             "version mismatch between driver and cuda driver library - reboot or upgrade may "
             "be required: library %s",
             seen);
        log_line(LEVEL_WARN, "gpu.go:610", message, NULL);
        break;
      case NO_DEVICE:
        log_line(LEVEL_INFO, "gpu.go:613",
                 text(message, sizeof message, "no nvidia devices detected by library %s", seen), NULL);
        break;
      case UNKNOWN:
        text(message, sizeof message,
             "unknown error initializing cuda driver library %s: %s. see "
             "https://github.com/ollama/ollama/blob/main/docs/troubleshooting.md for more "
             "information",
             seen, why);
        log_line(LEVEL_WARN, "gpu.go:616", message, NULL);
        break;
      default:
        if (strstr(why, "wrong ELF class") != NULL) {
          log_line(LEVEL_DEBUG, "gpu.go:620", "skipping 32bit library", "library", seen, NULL);
        } else {
          text(message, sizeof message, "Unable to load cudart library %s: %s", seen, why);
          log_line(LEVEL_INFO, "gpu.go:623", message, NULL);
        }
    }
  }
  return false;
}

/* Reads one device's facts; false, and a line that says why, when it cannot be used. */
static bool read_device(const struct driver *driver, int index, struct device *device) {
  int handle = 0, result;
  unsigned char uuid[16];
  void *context = NULL;
  size_t available = 0, total = 0;
  char why[128] = "", message[192];
  *device = (struct device){.index = index};
  driver->driver_version(&device->driver);
  if (driver->get(&handle, index) != 0) {
    log_line(LEVEL_INFO, "gpu.go:298", "error looking up nvidia GPU memory", "error",
             "nvcuda device failed to initialize", NULL);
    return false;
  }
  if ((result = driver->attribute(&device->major, 75, handle)) != 0) {
    device->major = 0;
    if (log_wants(LEVEL_DEBUG)) fprintf(stderr, "[%d] device major lookup failure: %d\n", index, result);
  } else if ((result = driver->attribute(&device->minor, 76, handle)) != 0) {
    device->minor = 0;
    if (log_wants(LEVEL_DEBUG)) fprintf(stderr, "[%d] device minor lookup failure: %d\n", index, result);
  }
  if (driver->uuid(uuid, handle) != 0) {
    text(device->uuid, sizeof device->uuid, "%d", index);
  } else {
    text(device->uuid, sizeof device->uuid,
         "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", uuid[0], uuid[1],
         uuid[2], uuid[3], uuid[4], uuid[5], uuid[6], uuid[7], uuid[8], uuid[9], uuid[10], uuid[11], uuid[12],
         uuid[13], uuid[14], uuid[15]);
  }
  if (driver->name(device->name, sizeof device->name, handle) != 0) device->name[0] = '\0';
  /* memory can only be asked for in a context */
  if ((result = driver->context_create(&context, NULL, 0, 0, handle)) != 0) {
    text(why, sizeof why, "nvcuda failed to get device context %d", result);
  } else if ((result = driver->memory(&available, &total)) != 0) {
    text(why, sizeof why, "nvcuda device memory info lookup failure %d", result);
  }
  if (context != NULL && (result = driver->context_destroy(context)) != 0) {
    fprintf(stderr, "nvcuda failed to release device context %d\n", result);
  }
  if (*why != '\0') {
    log_line(LEVEL_INFO, "gpu.go:298", "error looking up nvidia GPU memory", "error", why, NULL);
    return false;
  }
  device->total = total;
  device->available = available;
  if (log_wants(LEVEL_DEBUG)) {
    fprintf(stderr, "[%s] CUDA totalMem %zumb\n[%s] CUDA freeMem %zumb\n[%s] Compute Capability %d.%d\n",
            device->uuid, total >> 20, device->uuid, available >> 20, device->uuid, device->major,
            device->minor);
  }
  if (device->major < 5) {
    log_line(LEVEL_INFO, "gpu.go:305",
             text(message, sizeof message, "[%d] CUDA GPU is too old. Compute Capability detected: %d.%d",
                  index, device->major, device->minor),
             NULL);
    return false;
  }
  return true;
}

static void log_result(const struct device *device) {
  char total[32], available[32], compute[16] = "", driver[16] = "0.0", variant[8] = "";
  uint64_t memory = 0, rest = 0;
  if (device == NULL) {
    machine_memory(&memory, &rest);
  } else {
    memory = device->total;
    rest = device->available;
    text(compute, sizeof compute, "%d.%d", device->major, device->minor);
    text(driver, sizeof driver, "%d.%d", device->driver / 1000, device->driver % 1000 / 10);
    text(variant, sizeof variant, "%s",
         device->driver >= 13000  ? "v13"
         : device->driver > 12000 ? "v12"
                                  : "v11");
  }
  human_bytes(total, sizeof total, memory);
  human_bytes(available, sizeof available, rest);
  const char *id = device == NULL ? "0" : device->uuid, *name = device == NULL ? "" : device->name;
  const char *library = device == NULL ? "cpu" : "cuda", *fields = setting("STANDIN_FIELDS");
  if (strcmp(fields, "reordered") == 0) {
    log_line(LEVEL_INFO, "types.go:131", "inference compute", "available", available, "name", name, "driver",
             driver, "total", total, "compute", compute, "library", library, "variant", variant, "id", id,
             NULL);
  } else {
    log_line(LEVEL_INFO, "types.go:131", "inference compute", "id", id, "library", library, "variant",
             variant, "compute", compute, "driver", driver, "name", name, "total", total, "available",
             available, strcmp(fields, "extra") == 0 ? "future key" : NULL, "a=b \"c\"", NULL);
  }
}

int discover(struct device *devices) {
  struct driver driver = {.library = NULL};
  int present = 0, usable = 0;
  log_line(LEVEL_INFO, "gpu.go:217", "looking for compatible GPUs", NULL);
  if (*setting("CUDA_VISIBLE_DEVICES") != '\0') {
    log_line(LEVEL_WARN, "gpu.go:644", "user overrode visible devices", "CUDA_VISIBLE_DEVICES",
             setting("CUDA_VISIBLE_DEVICES"), NULL);
    log_line(LEVEL_WARN, "gpu.go:648", "if GPUs are not correctly discovered, unset and try again", NULL);
  }
  log_line(LEVEL_DEBUG, "gpu.go:98", "searching for GPU discovery libraries for NVIDIA", NULL);
  if (load_driver(&driver, &present)) {
    for (int index = 0; index < present && index < MAX_DEVICES; index++) {
      if (read_device(&driver, index, &devices[usable])) usable++;
    }
  }
  /* real 0.11 goes on to the libcudart it bundles; the stand-in bundles none */
  log_line(LEVEL_DEBUG, "amd_linux.go:423", "amdgpu driver not detected /sys/module/amdgpu", NULL);
  if (usable == 0) log_line(LEVEL_INFO, "gpu.go:388", "no compatible GPUs were discovered", NULL);
  if (driver.library != NULL && present > 0) verbose("releasing cuda driver library%s%s\n", "", "");
  extra_lines(false);
  if (usable == 0) log_result(NULL);
  for (int index = 0; index < usable; index++) log_result(&devices[index]);
  /* the library stays open: real 0.11 unloads it but asks again before each model, and a server
   * in use has it mapped */
  return usable;
}

void run_subcommand(int argc, char **argv) {
  (void)argc;
  (void)argv;
}

void keep_runner(const struct device *devices, int count) {
  (void)devices;
  (void)count;
}
