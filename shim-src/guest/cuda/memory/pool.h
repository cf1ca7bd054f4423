#ifndef VGPU_GUEST_CUDA_POOL_H
#define VGPU_GUEST_CUDA_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/frame.h"

struct vgpu_driver;

/* CUmemoryPool. Valid while it is in the driver's list of objects. */
struct vgpu_pool {
  uint64_t number;                  /* number at the host */
  int32_t ordinal;                  /* of its visible device */
  bool exportable;                  /* made with a handle type, so it can be exported */
  bool of_driver;                   /* imported, and at the host it is a pool of the driver */
  bool imported;                    /* imported from another process: nothing can be allocated from it */
  uint8_t access[VGPU_DEVICES_MAX]; /* CUmemAccess_flags of each other device */
  bool managed;       /* of managed memory (managed_pool.h); `ordinal` is what it prefers, or below 0 */
  uint64_t values[9]; /* managed: by CUmemPool_attribute */
};

struct vgpu_device_pools {
  struct vgpu_pool *given;   /* the default pool; NULL until it is first needed */
  struct vgpu_pool *current; /* set by cuDeviceSetMemPool; NULL: the default pool */
};

/* Returns 0 if the host's device has pools, else a CUresult. */
int vgpu_pool_device(int32_t ordinal);

/* Copies the fields of a live handle, because another thread may destroy the pool. Returns a CUresult. */
int vgpu_pool_take(const struct vgpu_pool *handle, struct vgpu_driver **driver, struct vgpu_pool *pool);

enum vgpu_pool_kind { VGPU_POOL_OWN = 0, VGPU_POOL_DEFAULT = 1, VGPU_POOL_EXPORTABLE = 2, VGPU_POOL_OPENED };
struct vgpu_pool_origin {
  enum vgpu_pool_kind kind;
  uint64_t max_size; /* 0: no limit of its own */
  uint64_t token[2]; /* VGPU_POOL_OPENED */
};

/* Makes the pool at the host, too. The caller holds driver->lock. */
int vgpu_pool_make(struct vgpu_driver *driver, int32_t ordinal, const struct vgpu_pool_origin *origin,
                   struct vgpu_pool **made);

/* Returns the live pool of this number; NULL: there is none, or it was destroyed. */
struct vgpu_pool *vgpu_pool_numbered(struct vgpu_driver *driver, uint64_t number);

#endif
