/* The host's libnvidia-ml.so.1: how a device is used. Opened in the process that asks, on first use. */
#ifndef VGPU_HOST_CUDA_NVML_H
#define VGPU_HOST_CUDA_NVML_H

#include <stddef.h>

#include "wire/frame.h"

/* "580.65.06"; leaves an empty text where there is no such library. */
void vgpu_cuda_nvml_version(const char *library, char *version, size_t size);

/* Overwrites what it can tell of this device (found by its PCI address) and leaves the rest alone. */
void vgpu_cuda_nvml_usage(const char *library, const struct vgpu_device_facts *facts,
                          struct vgpu_usage_reply *reply);

#endif
