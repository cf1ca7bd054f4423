/* Which files of /dev a worker can open. */
#ifndef VGPU_HOST_CUDA_DEVICE_FILES_H
#define VGPU_HOST_CUDA_DEVICE_FILES_H

#include "host/backend/backend.h"

/* Whether this kernel lets a process limit itself so. */
bool vgpu_cuda_can_limit_files(void);

/* In a worker, for good: of the GPUs, those of the inventory. False with errno. */
bool vgpu_cuda_limit_files(const struct vgpu_inventory *inventory);

#endif
