#include "host/backend/cuda/nvml.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/session/query.h"
#include "nvml_queries.h"
#include "wire/uuid.h"

#define TEMPERATURE_GPU 0

struct memory {
  unsigned long long total, free, used;
};
struct utilisation {
  unsigned gpu, memory;
};
struct process {
  uint32_t pid;
  uint64_t bytes; /* UINT64_MAX: not known */
  uint32_t instances[2];
};
_Static_assert(sizeof(struct process) == 24, "nvmlProcessInfo_t");
#define PROCESSES_MAX 1024u

/* The functions used, as the public header of NVML declares them. */
struct functions {
  bool ready;
  bool tried;
  void *handle;
  int (*nvmlInit_v2)(void);
  int (*nvmlSystemGetDriverVersion)(char *version, unsigned length);
  int (*nvmlDeviceGetHandleByPciBusId_v2)(const char *id, void **device);
  int (*nvmlDeviceGetHandleByUUID)(const char *uuid, void **device);
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
  int (*nvmlDeviceGetComputeRunningProcesses_v3)(void *device, unsigned *count, struct process *processes);
  int (*nvmlDeviceGetMPSComputeRunningProcesses_v3)(void *device, unsigned *count, struct process *processes);
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
  f->handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (f->handle == NULL) return NULL;
#define FIND(symbol) find(f->handle, #symbol, &f->symbol)
  FIND(nvmlInit_v2);
  FIND(nvmlSystemGetDriverVersion);
  FIND(nvmlDeviceGetHandleByPciBusId_v2);
  FIND(nvmlDeviceGetHandleByUUID);
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
  FIND(nvmlDeviceGetComputeRunningProcesses_v3);
  FIND(nvmlDeviceGetMPSComputeRunningProcesses_v3);
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

/* The handle of a device of the session. For an instance of a GPU it is that of the instance. */
static void *handle_of(const struct functions *f, const struct vgpu_inventory *inventory, uint32_t device) {
  char uuid[VGPU_UUID_TEXT];
  void *handle = NULL;
  if (!inventory->is_part[device]) return device_of(f, &inventory->devices[device]);
  if (f->nvmlDeviceGetHandleByUUID == NULL) return NULL;
  vgpu_uuid_text("MIG-", inventory->devices[device].uuid, uuid);
  return f->nvmlDeviceGetHandleByUUID(uuid, &handle) == 0 ? handle : NULL;
}

/* Finds this process in a list of NVML. */
static bool find_own(int (*list)(void *device, unsigned *count, struct process *processes), void *device,
                     uint64_t *bytes) {
  unsigned count = PROCESSES_MAX;
  struct process *processes = list == NULL ? NULL : calloc(count, sizeof *processes);
  bool found = false;
  if (processes != NULL && list(device, &count, processes) == 0) {
    for (unsigned i = 0; i < count && i < PROCESSES_MAX && !found; i++) {
      found = processes[i].pid == (uint32_t)getpid() && processes[i].bytes != UINT64_MAX;
      *bytes = processes[i].bytes;
    }
  }
  free(processes);
  return found;
}

bool vgpu_cuda_nvml_own_memory(const struct vgpu_inventory *inventory, uint32_t device, uint64_t *bytes) {
  const struct functions *f = functions(inventory->options->nvml_library);
  void *handle = f == NULL ? NULL : handle_of(f, inventory, device);
  return handle != NULL && (find_own(f->nvmlDeviceGetComputeRunningProcesses_v3, handle, bytes) ||
                            find_own(f->nvmlDeviceGetMPSComputeRunningProcesses_v3, handle, bytes));
}

/* nvmlProcessUtilizationSample_t */
struct sample {
  uint32_t pid;
  uint64_t time;
  uint32_t of[4]; /* multiprocessors, memory, encoder, decoder */
};
_Static_assert(sizeof(struct sample) == 32, "sample");
#define SAMPLES_MAX 4096u

/* Keeps the samples of the guest's own processes, each with the guest's number. Returns their count. */
static uint32_t own_samples(const struct vgpu_worker *worker, struct sample *samples, uint32_t count) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count; i++) {
    const struct vgpu_account_owner *owner =
        vgpu_accounts_owner(worker->accounts, &worker->peer, (int32_t)samples[i].pid);
    if (owner == NULL) continue;
    samples[kept] = samples[i];
    samples[kept++].pid = owner->guest_pid;
  }
  return kept;
}

static int32_t process_utilization(struct vgpu_worker *worker, vgpu_query_call call, void (*function)(void),
                                   void *device, const uint64_t *values) {
  struct sample *samples = calloc(SAMPLES_MAX, sizeof *samples);
  uint32_t count = SAMPLES_MAX, capacity;
  uint32_t *told = (uint32_t *)(uintptr_t)values[1];
  if (samples == NULL) return VGPU_NVML_NOT_SUPPORTED;
  const uint64_t all[] = {(uintptr_t)samples, (uintptr_t)&count, values[2]};
  int result = call(function, device, all);
  if (result == VGPU_NVML_SUCCESS) {
    capacity = *told;
    *told = count = own_samples(worker, samples, count < SAMPLES_MAX ? count : SAMPLES_MAX);
    if (count == 0) result = VGPU_NVML_NOT_FOUND;
    else if (values[0] == 0 || capacity < count) result = VGPU_NVML_INSUFFICIENT_SIZE;
    else memcpy((void *)(uintptr_t)values[0], samples, count * sizeof *samples);
  }
  free(samples);
  return result;
}

int32_t vgpu_cuda_nvml_query(struct vgpu_worker *worker, const struct vgpu_query *query, uint32_t device,
                             const uint64_t *values) {
  const struct vgpu_inventory *inventory = worker->inventory;
  const struct functions *f = functions(inventory->options->nvml_library);
  uint64_t given[VGPU_QUERY_PARAMETERS];
  void (*function)(void) = NULL;
  void *handle = f == NULL ? NULL : handle_of(f, inventory, device);
  if (handle == NULL) return VGPU_NVML_NOT_SUPPORTED;
  find(f->handle, query->symbol, &function);
  if (function == NULL) return VGPU_NVML_NOT_SUPPORTED;
  const vgpu_query_call call = vgpu_query_calls[query - vgpu_queries];
  if (query->number == VGPU_QUERY_nvmlDeviceGetProcessUtilization)
    return process_utilization(worker, call, function, handle, values);
  for (uint32_t i = 0; i < query->count; i++) {
    given[i] = values[i];
    if (query->parameters[i].kind != VGPU_QUERY_DEVICE) continue;
    void *other = handle_of(f, inventory, (uint32_t)values[i]);
    if (other == NULL) return VGPU_NVML_NOT_SUPPORTED;
    given[i] = (uintptr_t)other;
  }
  return call(function, handle, given);
}
