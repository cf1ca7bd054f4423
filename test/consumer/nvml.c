#include "nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

struct nvml {
  void *library;
  int (*init)(void);
  int (*shutdown)(void);
  int (*driver_version)(char *, unsigned);
  int (*by_uuid)(const char *, void **);
  int (*memory)(void *, unsigned long long *);
};

static bool open_nvml(struct nvml *nvml) {
  nvml->library = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
  if (nvml->library == NULL) nvml->library = dlopen("libnvidia-ml.so", RTLD_LAZY);
  if (nvml->library == NULL) return false;
  *(void **)&nvml->init = dlsym(nvml->library, "nvmlInit_v2");
  *(void **)&nvml->shutdown = dlsym(nvml->library, "nvmlShutdown");
  *(void **)&nvml->driver_version = dlsym(nvml->library, "nvmlSystemGetDriverVersion");
  *(void **)&nvml->by_uuid = dlsym(nvml->library, "nvmlDeviceGetHandleByUUID");
  *(void **)&nvml->memory = dlsym(nvml->library, "nvmlDeviceGetMemoryInfo");
  bool whole = nvml->init != NULL && nvml->shutdown != NULL && nvml->driver_version != NULL;
  if (!whole || nvml->init() != 0) {
    dlclose(nvml->library);
    return false;
  }
  return true;
}

int nvml_driver_major(void) {
  struct nvml nvml;
  char version[80] = "";
  if (!open_nvml(&nvml)) return 0;
  int result = nvml.driver_version(version, sizeof version);
  nvml.shutdown();
  return result == 0 ? (int)strtol(version, NULL, 10) : 0;
}

bool nvml_memory(const char *uuid, uint64_t *total, uint64_t *available) {
  struct nvml nvml;
  void *device = NULL;
  unsigned long long memory[3] = {0}; /* total, free, used */
  if (!open_nvml(&nvml)) return false;
  bool known = nvml.by_uuid != NULL && nvml.memory != NULL && nvml.by_uuid(uuid, &device) == 0 &&
               nvml.memory(device, memory) == 0;
  nvml.shutdown();
  if (!known) return false;
  *total = memory[0];
  *available = memory[1];
  return true;
}
