/* Values that change: each call asks the host, which counts all sessions. */
#include "guest/nvml/query.h"

#include <stdlib.h>

#include "nvml_queries.h"

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

int nvmlDeviceGetRunningProcessDetailList(nvml_device device, struct nvml_process_details_v1 *details) {
  enum { COMPUTE, GRAPHICS, MPS, ALL };
  struct vgpu_process_facts *list = NULL;
  uint32_t found = 0;
  int result = processes_of(device, details ? &details->count : NULL, &list, &found);

  if (result != NVML_SUCCESS) return result;
  if (details->version != NVML_STRUCT_VERSION(*details, 1)) result = NVML_VERSION_MISMATCH;
  else if (details->mode > ALL) result = NVML_INVALID_ARGUMENT;
  if (details->mode == GRAPHICS || details->mode == MPS) found = 0;
  if (result == NVML_SUCCESS) result = fits(&details->count, details->processes, found);
  for (uint32_t i = 0; result == NVML_SUCCESS && i < found; i++)
    details->processes[i] = (struct nvml_process_detail){
        .pid = list[i].pid,
        .used = list[i].used,
        .gpu_instance = 0xffffffffu,
        .compute_instance = 0xffffffffu,
    };
  free(list);
  return result;
}

/* The older call's samples have no JPEG and OFA. */
int nvmlDeviceGetProcessesUtilizationInfo(nvml_device device, struct nvml_process_loads_v1 *loads) {
  struct {
    uint32_t pid;
    uint64_t time;
    uint32_t of[4];
  } samples[PROCESSES_MAX];
  uint32_t found = PROCESSES_MAX;
  int result = vgpu_nvml_ready_device(device);

  if (result != NVML_SUCCESS) return result;
  if (!loads) return NVML_INVALID_ARGUMENT;
  if (loads->version != NVML_STRUCT_VERSION(*loads, 1)) return NVML_VERSION_MISMATCH;
  result = nvmlDeviceGetProcessUtilization(device, samples, &found, loads->since);
  if (result == NVML_SUCCESS) result = fits(&loads->count, loads->processes, found);
  for (uint32_t i = 0; result == NVML_SUCCESS && i < found; i++) {
    loads->processes[i] = (struct nvml_process_load){.time = samples[i].time, .pid = samples[i].pid};
    memcpy(loads->processes[i].of, samples[i].of, sizeof samples[i].of);
  }
  return result;
}
