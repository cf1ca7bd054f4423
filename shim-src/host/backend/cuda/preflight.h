/*
 * --self-check: facts of the machine that decide whether sessions work well, each with what to do, and calls
 * that have failed or hung on real drivers for others who carry CUDA to another machine.
 */
#ifndef VGPU_HOST_CUDA_PREFLIGHT_H
#define VGPU_HOST_CUDA_PREFLIGHT_H

#include "host/backend/backend.h"
#include "host/backend/cuda/driver.h"

/* Prints the driver's version, nodes and modes of the devices. Calls no driver but NVML. */
void vgpu_cuda_preflight_machine(const struct vgpu_options *options, const struct vgpu_inventory *inventory);

/* These checks need a current context of the process. Each returns a CUresult. */
int vgpu_cuda_preflight_register(const struct vgpu_driver_api *api);
int vgpu_cuda_preflight_capture(const struct vgpu_driver_api *api);
/* Sixteen streams wait for words of host memory, while another thread frees memory. */
int vgpu_cuda_preflight_gates(const struct vgpu_driver_api *api, struct vgpu_context *context);

#endif
