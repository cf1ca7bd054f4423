#include "gpu-discover.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "backend.h"
#include "nvml.h"

static void *open_driver(char *why, size_t size) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library != NULL) return library;
  size_t length = (size_t)snprintf(why, size, "dlopen libcuda.so.1: %s; ", dlerror());
  library = dlopen("libcuda.so", RTLD_NOW);
  if (library == NULL && length < size)
    snprintf(why + length, size - length, "dlopen libcuda.so: %s", dlerror());
  return library;
}

/* Asks the driver by its plain entry points. Gives the number of devices, -1 with `why`. */
static int ask_driver(struct device *devices, int most, char *why, size_t size) {
  int (*init)(unsigned), (*version)(int *), (*count_devices)(int *), (*get)(int *, int),
      (*attribute)(int *, int, int);
  int (*name)(char *, int, int), (*total)(size_t *, int), (*pci)(char *, int, int);
  const struct {
    const char *name;
    void **target;
  } symbols[] = {
      {"cuInit", (void **)&init},
      {"cuDriverGetVersion", (void **)&version},
      {"cuDeviceGetCount", (void **)&count_devices},
      {"cuDeviceGet", (void **)&get},
      {"cuDeviceGetAttribute", (void **)&attribute},
      {"cuDeviceGetName", (void **)&name},
  };
  void *library = open_driver(why, size);
  if (library == NULL) return -1;
  for (size_t index = 0; index < sizeof symbols / sizeof *symbols; index++) {
    *symbols[index].target = dlsym(library, symbols[index].name);
    if (*symbols[index].target == NULL) {
      text(why, size, "dlsym %s: %s", symbols[index].name, dlerror());
      return -1;
    }
  }
  *(void **)&total = dlsym(library, "cuDeviceTotalMem_v2");
  if (total == NULL) *(void **)&total = dlsym(library, "cuDeviceTotalMem");
  *(void **)&pci = dlsym(library, "cuDeviceGetPCIBusId");
  int driver = 0, count = 0, result = init(0);
  if (result != 0) {
    text(why, size, "cuInit failed: %d", result);
    return -1;
  }
  version(&driver);
  int nvidia_driver = nvml_driver_major();
  if ((result = count_devices(&count)) != 0) {
    text(why, size, "cuDeviceGetCount failed: %d", result);
    return -1;
  }
  if (count > most) count = most;
  for (int index = 0; index < count; index++) {
    struct device *device = &devices[index];
    int handle = 0, integrated = 0;
    size_t bytes = 0;
    *device = (struct device){.index = index, .driver = driver, .nvidia_driver = nvidia_driver};
    if (get(&handle, index) != 0) continue;
    if (attribute(&device->major, 75, handle) != 0) device->major = 0;
    if (attribute(&device->minor, 76, handle) != 0) device->minor = 0;
    device->integrated = attribute(&integrated, 18, handle) == 0 && integrated == 1;
    if (name(device->name, sizeof device->name, handle) != 0) device->name[0] = '\0';
    if (total != NULL && total(&bytes, handle) == 0) device->total = bytes;
    if (pci != NULL && pci(device->pci, sizeof device->pci, handle) != 0) device->pci[0] = '\0';
    for (char *letter = device->pci; *letter != '\0'; letter++) {
      if (*letter >= 'A' && *letter <= 'F') *letter = (char)(*letter - 'A' + 'a');
    }
  }
  return count;
}

static void print_string(const char *key, const char *value) {
  printf(",\"%s\":\"", key);
  for (; *value != '\0'; value++) {
    if (*value == '"' || *value == '\\') putchar('\\');
    putchar(*value);
  }
  putchar('"');
}

static void print_number(const char *key, unsigned long long value) {
  if (value != 0) printf(",\"%s\":%llu", key, value);
}

static void print_device(const struct device *device, bool last) {
  char name[16];
  printf("{\"library\":\"CUDA\",\"index\":%d,\"index_matches_backend\":true", device->index);
  print_string("name", text(name, sizeof name, "CUDA%d", device->index));
  print_string("description", device->name);
  print_string("device_id", device->pci);
  if (device->integrated) printf(",\"integrated\":true");
  printf(",\"integrated_known\":true");
  print_number("total_memory", device->total);
  print_number("free_memory", device->available);
  print_number("compute_major", (unsigned)device->major);
  print_number("compute_minor", (unsigned)device->minor);
  print_number("cuda_driver_major", (unsigned)device->driver / 1000);
  print_number("cuda_driver_minor", (unsigned)device->driver % 1000 / 10);
  print_number("nvidia_driver_major", (unsigned)device->nvidia_driver);
  printf("}%s", last ? "" : ",");
}

int gpu_discover(int argc, char **argv) {
  struct device ggml[MAX_DEVICES], driver[MAX_DEVICES];
  int seen = 0;
  bool cuda = false;
  char file[256], why[512] = "";
  if (access(setting("STANDIN_DISCOVER_FAILS"), F_OK) == 0) return 1;
  for (int index = 0; index < argc; index++) {
    if (strcmp(argv[index], "--lib-dir") != 0 || index + 1 == argc) {
      fprintf(stderr, "Error: unknown flag: %s\n", argv[index]);
      return 1;
    }
    text(file, sizeof file, "%s/libggml-cuda.so", argv[++index]);
    if (access(file, F_OK) != 0) continue;
    cuda = true;
    int found = ask_backend(file, &ggml[seen], MAX_DEVICES - seen, true);
    if (found > 0) seen += found;
  }
  int count = cuda ? ask_driver(driver, MAX_DEVICES, why, sizeof why) : 0;
  if (count < 0 && seen == 0) {
    fprintf(stderr, "Error: %s\n", why);
    return 1;
  }
  for (int index = 0; index < seen && index < count; index++) driver[index].available = ggml[index].available;
  printf("{\"devices\":[");
  for (int index = 0; index < count; index++) print_device(&driver[index], index + 1 == count);
  for (int index = 0; count < 0 && index < seen; index++) print_device(&ggml[index], index + 1 == seen);
  printf("]}\n");
  return 0;
}

/* The number after "key": in one device's object; 0 when it is not there. */
static int number_of(const char *object, size_t length, const char *key) {
  char quoted[64];
  text(quoted, sizeof quoted, "\"%s\":", key);
  const char *found = strstr(object, quoted);
  return found == NULL || found >= object + length ? 0 : (int)strtol(found + strlen(quoted), NULL, 10);
}

void parse_discovered(const char *json, struct device *devices, int count) {
  for (const char *object = json; (object = strstr(object, "{\"library\":")) != NULL; object++) {
    const char *end = strchr(object, '}');
    size_t length = end == NULL ? strlen(object) : (size_t)(end - object);
    int index = number_of(object, length, "index");
    for (int at = 0; at < count; at++) {
      struct device *device = &devices[at];
      if (device->index != index) continue;
      device->major = number_of(object, length, "compute_major");
      device->minor = number_of(object, length, "compute_minor");
      device->driver = number_of(object, length, "cuda_driver_major") * 1000 +
                       number_of(object, length, "cuda_driver_minor") * 10;
      device->nvidia_driver = number_of(object, length, "nvidia_driver_major");
      const char *pci = strstr(object, "\"device_id\":\"");
      if (pci != NULL && pci < object + length) sscanf(pci, "\"device_id\":\"%23[^\"]", device->pci);
    }
  }
}
