#ifndef VGPU_HOST_SOFTWARE_POOL_H
#define VGPU_HOST_SOFTWARE_POOL_H

#include "host/backend/software/software.h"

/* Gives freed memory back to its pool. */
void vgpu_pool_take_back(struct vgpu_worker *worker, const struct vgpu_allocation *freed);

/* True if a device that is not the pool's may access its memory. */
bool vgpu_pool_allows(struct vgpu_worker *worker, uint64_t number, uint32_t device);

#endif
