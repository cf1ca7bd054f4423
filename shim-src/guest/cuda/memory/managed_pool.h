/*
 * Pools of managed memory (CUDA 13). Only this library knows them: an allocation is managed memory
 * (managed.c) with the number of its pool. Freed memory is not kept for the next allocation, because the host
 * would count it.
 */
#ifndef VGPU_GUEST_CUDA_MANAGED_POOL_H
#define VGPU_GUEST_CUDA_MANAGED_POOL_H

#include <stddef.h>

#include "guest/cuda/internal.h"

struct vgpu_location {
  int32_t type;
  int32_t id;
};

/* Makes a pool whose memory prefers a location. NOT_SUPPORTED where there is no managed memory. */
int vgpu_managed_pool_create(struct vgpu_driver *driver, const struct vgpu_location *preferred,
                             struct vgpu_pool **pool);

int vgpu_managed_pool_default(const struct vgpu_location *location, struct vgpu_pool **pool);
int vgpu_managed_pool_current(const struct vgpu_location *location, struct vgpu_pool **pool);
int vgpu_managed_pool_set(const struct vgpu_location *location, struct vgpu_pool *pool);

int vgpu_managed_pool_destroy(struct vgpu_driver *driver, struct vgpu_pool *pool);
int vgpu_managed_pool_get(struct vgpu_driver *driver, const struct vgpu_pool *pool, int32_t attribute,
                          uint64_t *value);
int vgpu_managed_pool_set_value(struct vgpu_driver *driver, struct vgpu_pool *pool, int32_t attribute,
                                uint64_t value);
int vgpu_managed_pool_allocate(struct vgpu_driver *driver, struct vgpu_pool *pool, size_t bytes,
                               struct vgpu_stream *stream, uint64_t *address);

/*
 * Frees the memory when the stream's context has done what was queued before. False: the memory is not of
 * such a pool.
 */
bool vgpu_managed_pool_free(struct vgpu_driver *driver, uint64_t address, uint64_t context, int *result);

#endif
