/* Values that change, such as used memory. Each call asks the host, which counts all sessions. */
#include "guest/nvml/nvml.h"

#include <stdlib.h>
#include <time.h>

static int usage_of(nvml_device device, const void *out, struct vgpu_usage_reply *usage) {
  const struct vgpu_device_facts *facts;
  uint32_t index;
  int result;
  struct vgpu_nvml *nvml = vgpu_nvml_enter_device(device, &facts, &index, &result);

  if (!nvml) return result;
  result = out ? vgpu_nvml_usage(nvml, index, usage) : NVML_INVALID_ARGUMENT;
  vgpu_nvml_leave(nvml);
  if (result == NVML_SUCCESS && usage->used > usage->total)
    usage->used = usage->total; /* the subtraction below must not wrap, whatever the host sends */
  return result;
}

int nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory_v1 *memory) {
  struct vgpu_usage_reply usage;
  int result = usage_of(device, memory, &usage);

  if (result == NVML_SUCCESS)
    *memory = (struct nvml_memory_v1){usage.total, usage.total - usage.used, usage.used};
  return result;
}

int nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct nvml_memory_v2 *memory) {
  struct vgpu_usage_reply usage;

  if (memory && memory->version != NVML_STRUCT_VERSION(struct nvml_memory_v2, 2))
    return NVML_VERSION_MISMATCH;
  int result = usage_of(device, memory, &usage);
  if (result == NVML_SUCCESS) {
    memory->total = usage.total;
    memory->reserved = 0; /* the host's total does not contain memory that the driver keeps */
    memory->free = usage.total - usage.used;
    memory->used = usage.used;
  }
  return result;
}

int nvmlDeviceGetUtilizationRates(nvml_device device, struct nvml_utilization *rates) {
  struct vgpu_usage_reply usage;
  int result = usage_of(device, rates, &usage);

  if (result == NVML_SUCCESS)
    *rates = (struct nvml_utilization){usage.gpu_utilisation, usage.memory_utilisation};
  return result;
}

/* The host sends 0 for a value that it does not know. */
static int known(int result, unsigned value, unsigned *out) {
  if (result != NVML_SUCCESS) return result;
  if (value == 0) return NVML_NOT_SUPPORTED;
  *out = value;
  return NVML_SUCCESS;
}

int nvmlDeviceGetTemperature(nvml_device device, int sensor, unsigned *celsius) {
  struct vgpu_usage_reply usage = {0};

  if (sensor != 0) return NVML_INVALID_ARGUMENT;
  int result = usage_of(device, celsius, &usage);
  return known(result, usage.temperature, celsius);
}

int nvmlDeviceGetPowerUsage(nvml_device device, unsigned *milliwatts) {
  struct vgpu_usage_reply usage = {0};
  int result = usage_of(device, milliwatts, &usage);

  return known(result, usage.power, milliwatts);
}

int nvmlDeviceGetPowerManagementLimit(nvml_device device, unsigned *milliwatts) {
  struct vgpu_usage_reply usage = {0};
  int result = usage_of(device, milliwatts, &usage);

  return known(result, usage.power_limit, milliwatts);
}

int nvmlDeviceGetPowerManagementDefaultLimit(nvml_device device, unsigned *milliwatts) {
  return nvmlDeviceGetPowerManagementLimit(device, milliwatts);
}

int nvmlDeviceGetEnforcedPowerLimit(nvml_device device, unsigned *milliwatts) {
  return nvmlDeviceGetPowerManagementLimit(device, milliwatts);
}

/* nvidia-smi shows the limits only if power management is on. */
int nvmlDeviceGetPowerManagementMode(nvml_device device, int *mode) {
  struct vgpu_usage_reply usage = {0};
  unsigned limit = 0;
  int result = known(usage_of(device, mode, &usage), usage.power_limit, &limit);

  if (result == NVML_SUCCESS) *mode = 1;
  return result;
}

int nvmlDeviceGetPersistenceMode(nvml_device device, int *mode) {
  struct vgpu_usage_reply usage = {0};
  int result = usage_of(device, mode, &usage);

  if (result == NVML_SUCCESS) *mode = usage.persistence != 0;
  return result;
}

/* The fields that another call answers as well. */
static int field(nvml_device device, unsigned id, unsigned *value) {
  enum { ECC_CURRENT = 1, ECC_PENDING = 2 };
  enum {
    POWER_AVERAGE = 185,
    POWER_INSTANT = 186,
    DEFAULT_LIMIT = 189,
    CURRENT_LIMIT = 190,
    REQUESTED = 191
  };
  int current = 0, pending = 0, result;

  switch (id) {
    case ECC_CURRENT:
    case ECC_PENDING:
      result = nvmlDeviceGetEccMode(device, &current, &pending);
      *value = (unsigned)current;
      return result;
    case POWER_AVERAGE:
    case POWER_INSTANT:
      return nvmlDeviceGetPowerUsage(device, value);
    case DEFAULT_LIMIT:
    case CURRENT_LIMIT:
    case REQUESTED:
      return nvmlDeviceGetPowerManagementLimit(device, value);
    default:
      return NVML_NOT_SUPPORTED;
  }
}

/* The call succeeds, and each field has a result of its own, which callers read without looking further. */
int nvmlDeviceGetFieldValues(nvml_device device, int count, struct nvml_field_value *values) {
  struct vgpu_device_facts facts;
  struct timespec now;
  int result = vgpu_nvml_facts(device, values, &facts, NULL);

  if (result != NVML_SUCCESS) return result;
  if (count < 1) return NVML_INVALID_ARGUMENT;
  clock_gettime(CLOCK_REALTIME, &now);
  for (int i = 0; i < count; i++) {
    unsigned value = 0;
    int of_field = field(device, values[i].id, &value);
    values[i].timestamp = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    values[i].latency = 0;
    values[i].type = NVML_FIELD_UNSIGNED_INT;
    values[i].result = (uint32_t)of_field;
    values[i].value = of_field == NVML_SUCCESS ? value : 0;
  }
  return NVML_SUCCESS;
}

enum { PROCESSES_MAX = 256 };

/* Gives this guest's processes on the device in a new array, which the caller frees. */
static int processes_of(nvml_device device, unsigned *count, struct vgpu_process_facts **processes,
                        uint32_t *found) {
  const struct vgpu_device_facts *facts;
  uint32_t index;
  int32_t status = 0;
  int result;
  struct vgpu_nvml *nvml = vgpu_nvml_enter_device(device, &facts, &index, &result);

  if (!nvml) return result;
  *processes = count ? calloc(PROCESSES_MAX, sizeof **processes) : NULL;
  if (!count) {
    result = NVML_INVALID_ARGUMENT;
  } else if (!*processes) {
    result = NVML_MEMORY;
  } else {
    enum vgpu_outcome outcome =
        vgpu_session_device_processes(nvml->session, index, *processes, PROCESSES_MAX, found, &status);
    result = vgpu_nvml_outcome(outcome, status);
  }
  vgpu_nvml_leave(nvml);
  if (result != NVML_SUCCESS) {
    free(*processes);
    *processes = NULL;
  }
  return result;
}

/* Checks whether the caller's array is large enough. *count becomes the number of processes in any case. */
static int fits(unsigned *count, const void *array, uint32_t found) {
  unsigned capacity = *count;

  *count = found;
  if (found == 0) return NVML_SUCCESS;
  if (capacity < found) return NVML_INSUFFICIENT_SIZE;
  return array ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

int nvmlDeviceGetComputeRunningProcesses(nvml_device device, unsigned *count,
                                         struct nvml_process_v1 *processes) {
  struct vgpu_process_facts *list = NULL;
  uint32_t found = 0;
  int result = processes_of(device, count, &list, &found);

  if (result == NVML_SUCCESS) result = fits(count, processes, found);
  for (uint32_t i = 0; result == NVML_SUCCESS && i < found; i++)
    processes[i] = (struct nvml_process_v1){.pid = list[i].pid, .used = list[i].used};
  free(list);
  return result;
}

int nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned *count,
                                            struct nvml_process_v2 *processes) {
  struct vgpu_process_facts *list = NULL;
  uint32_t found = 0;
  int result = processes_of(device, count, &list, &found);

  if (result == NVML_SUCCESS) result = fits(count, processes, found);
  for (uint32_t i = 0; result == NVML_SUCCESS && i < found; i++)
    processes[i] = (struct nvml_process_v2){
        .pid = list[i].pid,
        .used = list[i].used,
        .gpu_instance = 0xffffffffu, /* not a MIG instance */
        .compute_instance = 0xffffffffu,
    };
  free(list);
  return result;
}

int nvmlDeviceGetComputeRunningProcesses_v2(nvml_device device, unsigned *count,
                                            struct nvml_process_v2 *processes) {
  return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);
}

/* The list of graphics processes is empty, because no process here draws. */
static int no_processes(nvml_device device, unsigned *count) {
  const struct vgpu_device_facts *facts;
  uint32_t index;
  int result;

  struct vgpu_nvml *nvml = vgpu_nvml_enter_device(device, &facts, &index, &result);
  if (!nvml) return result;
  vgpu_nvml_leave(nvml);
  if (!count) return NVML_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses(nvml_device device, unsigned *count,
                                          struct nvml_process_v1 *processes) {
  (void)processes;
  return no_processes(device, count);
}

int nvmlDeviceGetGraphicsRunningProcesses_v2(nvml_device device, unsigned *count,
                                             struct nvml_process_v2 *processes) {
  (void)processes;
  return no_processes(device, count);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(nvml_device device, unsigned *count,
                                             struct nvml_process_v2 *processes) {
  (void)processes;
  return no_processes(device, count);
}
