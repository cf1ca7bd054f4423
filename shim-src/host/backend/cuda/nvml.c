#include "host/backend/cuda/nvml.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define TEMPERATURE_GPU 0

struct memory {
  unsigned long long total, free, used;
};
struct utilisation {
  unsigned gpu, memory;
};

/* The functions used, as the public header of NVML declares them. */
struct functions {
  bool ready;
  bool tried;
  int (*nvmlInit_v2)(void);
  int (*nvmlSystemGetDriverVersion)(char *version, unsigned length);
  int (*nvmlDeviceGetHandleByPciBusId_v2)(const char *id, void **device);
  int (*nvmlDeviceGetMemoryInfo)(void *device, struct memory *memory);
  int (*nvmlDeviceGetUtilizationRates)(void *device, struct utilisation *utilisation);
  int (*nvmlDeviceGetTemperature)(void *device, int sensor, unsigned *temperature);
  int (*nvmlDeviceGetPowerUsage)(void *device, unsigned *power);
  int (*nvmlDeviceGetEnforcedPowerLimit)(void *device, unsigned *limit);
};

/* One a process: NVML is initialised for a process. */
static struct functions loaded;

static void find(void *handle, const char *symbol, void *function) {
  void *found = dlsym(handle, symbol);
  memcpy(function, &found, sizeof found);
}

static const struct functions *functions(const char *library) {
  struct functions *f = &loaded;
  if (f->tried) return f->ready ? f : NULL;
  f->tried = true;
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) return NULL;
#define FIND(symbol) find(handle, #symbol, &f->symbol)
  FIND(nvmlInit_v2);
  FIND(nvmlSystemGetDriverVersion);
  FIND(nvmlDeviceGetHandleByPciBusId_v2);
  FIND(nvmlDeviceGetMemoryInfo);
  FIND(nvmlDeviceGetUtilizationRates);
  FIND(nvmlDeviceGetTemperature);
  FIND(nvmlDeviceGetPowerUsage);
  FIND(nvmlDeviceGetEnforcedPowerLimit);
#undef FIND
  f->ready = f->nvmlInit_v2 != NULL && f->nvmlInit_v2() == 0;
  return f->ready ? f : NULL;
}

void vgpu_cuda_nvml_version(const char *library, char *version, size_t size) {
  const struct functions *f = functions(library);
  version[0] = '\0';
  if (f == NULL || f->nvmlSystemGetDriverVersion == NULL) return;
  if (f->nvmlSystemGetDriverVersion(version, (unsigned)size) != 0) version[0] = '\0';
}

void vgpu_cuda_nvml_usage(const char *library, const struct vgpu_device_facts *facts,
                          struct vgpu_usage_reply *reply) {
  const struct functions *f = functions(library);
  if (f == NULL || f->nvmlDeviceGetHandleByPciBusId_v2 == NULL) return;
  char id[32];
  snprintf(id, sizeof id, "%08x:%02x:%02x.0", facts->pci_domain, facts->pci_bus, facts->pci_device);
  void *device = NULL;
  if (f->nvmlDeviceGetHandleByPciBusId_v2(id, &device) != 0) return;
  struct memory memory = {0};
  struct utilisation utilisation = {0};
  if (f->nvmlDeviceGetMemoryInfo != NULL && f->nvmlDeviceGetMemoryInfo(device, &memory) == 0) {
    reply->total = memory.total;
    reply->used = memory.used;
  }
  if (f->nvmlDeviceGetUtilizationRates != NULL &&
      f->nvmlDeviceGetUtilizationRates(device, &utilisation) == 0) {
    reply->gpu_utilisation = utilisation.gpu;
    reply->memory_utilisation = utilisation.memory;
  }
  /* Each is told only by devices that know it; 0 means not told. */
  unsigned value = 0;
  if (f->nvmlDeviceGetTemperature != NULL &&
      f->nvmlDeviceGetTemperature(device, TEMPERATURE_GPU, &value) == 0) {
    reply->temperature = value;
  }
  if (f->nvmlDeviceGetPowerUsage != NULL && f->nvmlDeviceGetPowerUsage(device, &value) == 0)
    reply->power = value;
  if (f->nvmlDeviceGetEnforcedPowerLimit != NULL && f->nvmlDeviceGetEnforcedPowerLimit(device, &value) == 0) {
    reply->power_limit = value;
  }
}
