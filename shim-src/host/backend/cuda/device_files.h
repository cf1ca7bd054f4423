/* Which files of /dev a worker can open. */
#ifndef VGPU_HOST_CUDA_DEVICE_FILES_H
#define VGPU_HOST_CUDA_DEVICE_FILES_H

#include "host/backend/backend.h"

/* True if this kernel lets a process limit itself in this way. */
bool vgpu_cuda_can_limit_files(void);

/* For a worker: limits it permanently to the GPUs of the inventory. False with errno. */
bool vgpu_cuda_limit_files(const struct vgpu_inventory *inventory, const struct vgpu_peer *peer);

#endif
