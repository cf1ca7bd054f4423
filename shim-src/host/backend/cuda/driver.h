/*
 * The host's libcuda.so.1. It is opened with dlopen, so that one vgpu-hostd serves both kinds of device and
 * starts without a driver. A symbol that this driver lacks is NULL, and VGPU_DRIVER returns an error for it.
 */
#ifndef VGPU_HOST_CUDA_DRIVER_H
#define VGPU_HOST_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

#include "api/device_attributes.h"

#define VGPU_CUDA_EXPORTED_NAMES
#include "cuda_api.h"
#include "cuda_results.h"

#define VGPU_CUDA_LIBRARY "libcuda.so.1"
#define VGPU_NVML_LIBRARY "libnvidia-ml.so.1"

/* CUDA 12.4, of driver 550: the first with cuFuncGetParamInfo. */
#define VGPU_CUDA_OLDEST 12040

/* CUcomputemode */
#define VGPU_CUDA_PROHIBITED 2u
#define VGPU_CUDA_EXCLUSIVE_PROCESS 3u

struct vgpu_driver_api {
#define X(symbol) __typeof__(symbol) *symbol;
#include "host/backend/cuda/entry_points.h"
#undef X
};

/* Calls an entry point of the real driver. CUDA_ERROR_NOT_SUPPORTED if the driver has none of that name. */
#define VGPU_DRIVER(api, symbol, ...)                                                                        \
  ((api)->symbol == NULL ? (int)CUDA_ERROR_NOT_SUPPORTED : (api)->symbol(__VA_ARGS__))

/* False: `error` has the loader's message. The library stays open. */
bool vgpu_driver_load(const char *library, struct vgpu_driver_api *api, char *error, size_t error_size);

#endif
