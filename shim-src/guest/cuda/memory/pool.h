/* Memory pools and the stream-ordered allocator. */
#ifndef VGPU_GUEST_CUDA_POOL_H
#define VGPU_GUEST_CUDA_POOL_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_driver;

/* The object behind a CUmemoryPool. It is valid while it is among the driver's objects. */
struct vgpu_pool {
  uint64_t number; /* what the host knows it by */
  int32_t ordinal; /* visible device */
  bool exportable; /* made with a handle type */
  bool imported;   /* another process's: nothing can be taken from it */
};

struct vgpu_device_pools {
  struct vgpu_pool *given;   /* the default pool, made when it is first asked for; NULL before */
  struct vgpu_pool *current; /* what cuDeviceSetMemPool set; NULL: the default one */
};

/* Whether the host's device has pools at all; else a CUresult. */
int vgpu_pool_device(int32_t ordinal);

/* Copies what a live handle says, so that nothing is read of one that another thread destroys. */
int vgpu_pool_take(const struct vgpu_pool *handle, struct vgpu_driver **driver, struct vgpu_pool *pool);

/* A new pool, also at the host. Under driver->lock. */
int vgpu_pool_make(struct vgpu_driver *driver, int32_t ordinal, uint64_t max_size, bool given,
                   struct vgpu_pool **made);

/* The live pool of this number; NULL: there is none (any more). */
struct vgpu_pool *vgpu_pool_numbered(struct vgpu_driver *driver, uint64_t number);

#endif
