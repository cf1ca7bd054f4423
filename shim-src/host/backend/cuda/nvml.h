/* The host's libnvidia-ml.so.1: how a device is used. Opened in the process that asks, on first use. */
#ifndef VGPU_HOST_CUDA_NVML_H
#define VGPU_HOST_CUDA_NVML_H

#include <stddef.h>

#include "wire/frame.h"

/* "580.65.06"; leaves an empty text where there is no such library. */
void vgpu_cuda_nvml_version(const char *library, char *version, size_t size);

/* N of the device's file /dev/nvidiaN, found by its PCI address; -1: not known. */
int32_t vgpu_cuda_nvml_minor(const char *library, const struct vgpu_device_facts *facts);

/*
 * Where a GPU is divided (MIG): the UUIDs of all instances ("MIG-...") and of all GPUs that are not divided
 * ("GPU-..."), with the minor number of the GPU of each. How many; 0 where none is divided.
 */
#define VGPU_NVML_UUID 96
struct vgpu_nvml_part {
  char uuid[VGPU_NVML_UUID];
  int32_t minor;
};
uint32_t vgpu_cuda_nvml_parts(const char *library, struct vgpu_nvml_part *parts, uint32_t most);

/* Overwrites what it can tell of this device (found by its PCI address) and leaves the rest alone. */
void vgpu_cuda_nvml_usage(const char *library, const struct vgpu_device_facts *facts,
                          struct vgpu_usage_reply *reply);

#endif
