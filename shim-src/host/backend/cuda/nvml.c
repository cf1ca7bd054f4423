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
  int (*nvmlDeviceGetMinorNumber)(void *device, unsigned *minor);
  int (*nvmlDeviceGetCount_v2)(unsigned *count);
  int (*nvmlDeviceGetHandleByIndex_v2)(unsigned index, void **device);
  int (*nvmlDeviceGetUUID)(void *device, char *uuid, unsigned length);
  int (*nvmlDeviceGetMigMode)(void *device, unsigned *current, unsigned *pending);
  int (*nvmlDeviceGetMaxMigDeviceCount)(void *device, unsigned *count);
  int (*nvmlDeviceGetMigDeviceHandleByIndex)(void *device, unsigned index, void **part);
  int (*nvmlDeviceGetPersistenceMode)(void *device, int *mode);
  int (*nvmlDeviceGetMemoryInfo)(void *device, struct memory *memory);
  int (*nvmlDeviceGetUtilizationRates)(void *device, struct utilisation *utilisation);
  int (*nvmlDeviceGetTemperature)(void *device, int sensor, unsigned *temperature);
  int (*nvmlDeviceGetPowerUsage)(void *device, unsigned *power);
  int (*nvmlDeviceGetEnforcedPowerLimit)(void *device, unsigned *limit);
};

/* One for the process, because NVML is initialised for a process. */
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
  FIND(nvmlDeviceGetMinorNumber);
  FIND(nvmlDeviceGetCount_v2);
  FIND(nvmlDeviceGetHandleByIndex_v2);
  FIND(nvmlDeviceGetUUID);
  FIND(nvmlDeviceGetMigMode);
  FIND(nvmlDeviceGetMaxMigDeviceCount);
  FIND(nvmlDeviceGetMigDeviceHandleByIndex);
  FIND(nvmlDeviceGetPersistenceMode);
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

/* Finds a device by its PCI address; NULL: NVML has none there. */
static void *device_of(const struct functions *f, const struct vgpu_device_facts *facts) {
  char id[32];
  void *device = NULL;
  if (f == NULL || f->nvmlDeviceGetHandleByPciBusId_v2 == NULL) return NULL;
  snprintf(id, sizeof id, "%08x:%02x:%02x.0", facts->pci_domain, facts->pci_bus, facts->pci_device);
  return f->nvmlDeviceGetHandleByPciBusId_v2(id, &device) == 0 ? device : NULL;
}

static int32_t minor_of(const struct functions *f, void *device) {
  unsigned minor;
  bool told = device != NULL && f->nvmlDeviceGetMinorNumber != NULL &&
              f->nvmlDeviceGetMinorNumber(device, &minor) == 0;
  return told ? (int32_t)minor : -1;
}

int32_t vgpu_cuda_nvml_minor(const char *library, const struct vgpu_device_facts *facts) {
  const struct functions *f = functions(library);
  return minor_of(f, device_of(f, facts));
}

static bool is_divided(const struct functions *f, void *device) {
  unsigned current = 0, pending = 0;
  return f->nvmlDeviceGetMigMode(device, &current, &pending) == 0 && current == 1;
}

/* Adds a GPU or an instance of one. False: it has no UUID, or there is no room. */
static bool add_part(const struct functions *f, void *part, int32_t minor, struct vgpu_nvml_part *parts,
                     uint32_t most, uint32_t *count) {
  if (*count == most || f->nvmlDeviceGetUUID(part, parts[*count].uuid, VGPU_NVML_UUID) != 0) return false;
  parts[*count].uuid[VGPU_NVML_UUID - 1] = '\0';
  parts[(*count)++].minor = minor;
  return true;
}

uint32_t vgpu_cuda_nvml_parts(const char *library, struct vgpu_nvml_part *parts, uint32_t most) {
  const struct functions *f = functions(library);
  unsigned gpus = 0;
  uint32_t count = 0;
  bool divided = false;
  if (f == NULL || f->nvmlDeviceGetCount_v2 == NULL || f->nvmlDeviceGetHandleByIndex_v2 == NULL ||
      f->nvmlDeviceGetUUID == NULL || f->nvmlDeviceGetMigMode == NULL ||
      f->nvmlDeviceGetMaxMigDeviceCount == NULL || f->nvmlDeviceGetMigDeviceHandleByIndex == NULL ||
      f->nvmlDeviceGetCount_v2(&gpus) != 0) {
    return 0;
  }
  for (unsigned i = 0; i < gpus; i++) {
    void *device = NULL, *part = NULL;
    unsigned places = 0;
    if (f->nvmlDeviceGetHandleByIndex_v2(i, &device) != 0) continue;
    if (!is_divided(f, device)) {
      (void)add_part(f, device, minor_of(f, device), parts, most, &count);
      continue;
    }
    divided = true;
    if (f->nvmlDeviceGetMaxMigDeviceCount(device, &places) != 0) continue;
    for (unsigned k = 0; k < places; k++) { /* not every place has an instance */
      if (f->nvmlDeviceGetMigDeviceHandleByIndex(device, k, &part) == 0)
        (void)add_part(f, part, minor_of(f, device), parts, most, &count);
    }
  }
  return divided ? count : 0;
}

void vgpu_cuda_nvml_usage(const char *library, const struct vgpu_device_facts *facts,
                          struct vgpu_usage_reply *reply) {
  const struct functions *f = functions(library);
  void *device = device_of(f, facts);
  if (device == NULL) return;
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
  int mode = 0;
  if (f->nvmlDeviceGetPersistenceMode != NULL && f->nvmlDeviceGetPersistenceMode(device, &mode) == 0)
    reply->persistence = mode == 1;
  /* Each value is reported only by devices that have it; 0 means unknown. */
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
