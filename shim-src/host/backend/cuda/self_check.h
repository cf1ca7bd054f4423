/* --self-check: whether a confined worker can use the host's driver. */
#ifndef VGPU_HOST_CUDA_SELF_CHECK_H
#define VGPU_HOST_CUDA_SELF_CHECK_H

#include "host/backend/backend.h"

/* Prints a line for each step. Returns 0, or 1 if a worker could not use the driver. */
int vgpu_cuda_self_check(const struct vgpu_options *options, const struct vgpu_inventory *inventory);

#endif
