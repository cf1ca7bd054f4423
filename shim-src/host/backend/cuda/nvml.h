/*
 * The host's libnvidia-ml.so.1, which reports how a device is used. Each process that asks opens it at its
 * first use.
 */
#ifndef VGPU_HOST_CUDA_NVML_H
#define VGPU_HOST_CUDA_NVML_H

#include <stdbool.h>
#include <stddef.h>

#include "wire/frame.h"

struct vgpu_inventory;
struct vgpu_query;
struct vgpu_worker;

/* Writes the version, such as "580.65.06"; an empty text if there is no such library. */
void vgpu_cuda_nvml_version(const char *library, char *version, size_t size);

/* Returns N of the device's file /dev/nvidiaN, found by its PCI address; -1: unknown. */
int32_t vgpu_cuda_nvml_minor(const char *library, const struct vgpu_device_facts *facts);

/*
 * For GPUs that are divided (MIG): gives the UUIDs of all instances ("MIG-...") and of all GPUs that are not
 * divided ("GPU-..."), each with the minor number of its GPU. Returns their count; 0 if no GPU is divided.
 */
#define VGPU_NVML_UUID 96
struct vgpu_nvml_part {
  char uuid[VGPU_NVML_UUID];
  int32_t minor;
};
uint32_t vgpu_cuda_nvml_parts(const char *library, struct vgpu_nvml_part *parts, uint32_t most);

/*
 * Fills the values that NVML knows for this device (found by its PCI address), and leaves the others
 * unchanged.
 */
void vgpu_cuda_nvml_usage(const char *library, const struct vgpu_device_facts *facts,
                          struct vgpu_usage_reply *reply);

/* The bytes of a device of the session that this process uses. False: NVML does not report them. */
bool vgpu_cuda_nvml_own_memory(const struct vgpu_inventory *inventory, uint32_t device, uint64_t *bytes);

/* Answers a getter from NVML, as backend.h says. Lists of processes have those of the worker's guest only. */
int32_t vgpu_cuda_nvml_query(struct vgpu_worker *worker, const struct vgpu_query *query, uint32_t device,
                             const uint64_t *values);

#endif
