/*
 * Freed memory goes back to the kernel at once. The memory that a pool keeps for later is only counted, so
 * that no other allocation can take it. A program sees only how much memory a pool uses and holds.
 */
#include "host/backend/software/memory/pool.h"

#include <stdlib.h>

#include "cuda_handlers.h"
#include "host/backend/software/software.h"

#define READ_WRITE 3u /* CUmemAccess_flags */

/* CUmemPool_attribute */
enum {
  REUSE_FIRST = 1,
  REUSE_LAST = 3,
  RELEASE_THRESHOLD = 4,
  RESERVED_CURRENT = 5,
  RESERVED_HIGH = 6,
  USED_CURRENT = 7,
  USED_HIGH = 8,
};

struct pool {
  uint64_t values[USED_HIGH + 1]; /* by attribute */
  uint64_t max_size;              /* 0: limited by the device's memory only */
  uint32_t device;
  uint32_t others; /* a bit for each other device that may access its memory */
  bool given;
  bool destroyed; /* lives until the last of its memory is freed */
};

/* Finds a live pool, or a destroyed one that still has memory. */
static struct pool *any_pool(struct vgpu_worker *worker, uint64_t number) {
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, number, VGPU_HANDLE_POOL);
  return handle == NULL ? NULL : handle->object;
}

static struct pool *find_pool(struct vgpu_worker *worker, uint64_t number) {
  struct pool *pool = any_pool(worker, number);
  return pool == NULL || pool->destroyed ? NULL : pool;
}

int32_t vgpu_software_cuMemPoolCreate(struct vgpu_worker *worker,
                                      const struct vgpu_send_cuMemPoolCreate *send) {
  if (send->device >= worker->inventory->count) return CUDA_ERROR_INVALID_DEVICE;
  if (send->given > 1 || send->pool < SPECIAL_STREAMS) return CUDA_ERROR_INVALID_VALUE;
  struct pool *pool = calloc(1, sizeof *pool);
  if (pool == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  struct vgpu_handle *handle = vgpu_handles_add(&worker->handles, send->pool, VGPU_HANDLE_POOL);
  if (handle == NULL) {
    free(pool);
    return any_pool(worker, send->pool) != NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
  }
  handle->object = pool;
  handle->device = pool->device = send->device;
  pool->max_size = send->max_size;
  pool->given = send->given == 1;
  for (int attribute = REUSE_FIRST; attribute <= REUSE_LAST; attribute++) pool->values[attribute] = 1;
  return CUDA_SUCCESS;
}

static void hold(struct vgpu_worker *worker, struct pool *pool, uint64_t keep) {
  uint64_t *reserved = &pool->values[RESERVED_CURRENT];
  if (keep < pool->values[USED_CURRENT]) keep = pool->values[USED_CURRENT];
  if (keep >= *reserved) return;
  vgpu_accounts_give(worker->accounts, worker->slot, pool->device, *reserved - keep);
  *reserved = keep;
}

static void end_pool(struct vgpu_worker *worker, uint64_t number, struct pool *pool) {
  hold(worker, pool, 0);
  pool->destroyed = true;
  if (pool->values[USED_CURRENT] > 0) return;
  vgpu_handles_remove(&worker->handles, number, VGPU_HANDLE_POOL);
  free(pool);
}

int32_t vgpu_software_cuMemPoolDestroy(struct vgpu_worker *worker,
                                       const struct vgpu_send_cuMemPoolDestroy *send) {
  struct pool *pool = find_pool(worker, send->pool);
  if (pool == NULL || pool->given) return CUDA_ERROR_INVALID_VALUE;
  end_pool(worker, send->pool, pool);
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuMemPoolGetAttribute(struct vgpu_worker *worker,
                                            const struct vgpu_send_cuMemPoolGetAttribute *send,
                                            struct vgpu_reply_cuMemPoolGetAttribute *reply) {
  const struct pool *pool = find_pool(worker, send->pool);
  if (pool == NULL || send->attribute < REUSE_FIRST || send->attribute > USED_HIGH)
    return CUDA_ERROR_INVALID_VALUE;
  reply->value = pool->values[send->attribute];
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuMemPoolSetAttribute(struct vgpu_worker *worker,
                                            const struct vgpu_send_cuMemPoolSetAttribute *send) {
  struct pool *pool = find_pool(worker, send->pool);
  if (pool == NULL || send->attribute < REUSE_FIRST) return CUDA_ERROR_INVALID_VALUE;
  if (send->attribute <= REUSE_LAST) {
    if (send->value > 1) return CUDA_ERROR_INVALID_VALUE;
    pool->values[send->attribute] = send->value;
    return CUDA_SUCCESS;
  }
  switch (send->attribute) {
    case RELEASE_THRESHOLD:
      pool->values[RELEASE_THRESHOLD] = send->value;
      return CUDA_SUCCESS;
    case RESERVED_HIGH:
    case USED_HIGH:
      if (send->value != 0) return CUDA_ERROR_INVALID_VALUE;
      pool->values[send->attribute] = pool->values[send->attribute - 1]; /* highest from now on */
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

int32_t vgpu_software_cuMemPoolTrimTo(struct vgpu_worker *worker,
                                      const struct vgpu_send_cuMemPoolTrimTo *send) {
  struct pool *pool = find_pool(worker, send->pool);
  if (pool == NULL) return CUDA_ERROR_INVALID_VALUE;
  hold(worker, pool, send->keep);
  return CUDA_SUCCESS;
}

/* The guest needs a token only for the pool's memory. */
int32_t vgpu_software_share_pool(struct vgpu_worker *worker, const struct vgpu_send_share_pool *send,
                                 struct vgpu_reply_share_pool *reply) {
  (void)reply;
  return find_pool(worker, send->pool) == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

int32_t vgpu_software_open_pool(struct vgpu_worker *worker, const struct vgpu_send_open_pool *send) {
  (void)worker;
  (void)send;
  return CUDA_ERROR_NOT_SUPPORTED;
}

int32_t vgpu_software_cuMemPoolSetAccess(struct vgpu_worker *worker,
                                         const struct vgpu_send_cuMemPoolSetAccess *send) {
  struct pool *pool = find_pool(worker, send->pool);
  if (pool == NULL || send->flags > READ_WRITE || send->flags == 2) return CUDA_ERROR_INVALID_VALUE;
  if (send->device >= worker->inventory->count) return CUDA_ERROR_INVALID_DEVICE;
  if (send->flags != 0) pool->others |= 1u << send->device;
  else pool->others &= ~(1u << send->device);
  return CUDA_SUCCESS;
}

bool vgpu_pool_allows(struct vgpu_worker *worker, uint64_t number, uint32_t device) {
  const struct pool *pool = any_pool(worker, number);
  return pool != NULL && (pool->others >> device & 1) != 0;
}

static void raise_high(struct pool *pool, int current) {
  if (pool->values[current + 1] < pool->values[current]) pool->values[current + 1] = pool->values[current];
}

int32_t vgpu_software_cuMemAllocFromPoolAsync(struct vgpu_worker *worker,
                                              const struct vgpu_send_cuMemAllocFromPoolAsync *send,
                                              struct vgpu_reply_cuMemAllocFromPoolAsync *reply) {
  int32_t result = check_stream(worker, send->context, send->queue);
  if (result != CUDA_SUCCESS) return result;
  struct pool *pool = find_pool(worker, send->pool);
  uint64_t size = vgpu_memory_rounded(send->bytes);
  if (pool == NULL || send->bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t *used = &pool->values[USED_CURRENT], *reserved = &pool->values[RESERVED_CURRENT];
  if (size == 0 || (pool->max_size != 0 && (*used > pool->max_size || size > pool->max_size - *used)) ||
      software_of(worker)->memory.count + worker->handles.count >= worker->limits->session_handles) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  uint64_t more = *used + size > *reserved ? *used + size - *reserved : 0;
  if (more > 0 && !vgpu_accounts_take(worker->accounts, worker->slot, pool->device, more,
                                      worker->limits->session_memory)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  reply->address = vgpu_memory_allocate(&software_of(worker)->memory, pool->device, 0, send->pool, size);
  if (reply->address == 0) {
    if (more > 0) vgpu_accounts_give(worker->accounts, worker->slot, pool->device, more);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *used += size;
  *reserved += more;
  raise_high(pool, USED_CURRENT);
  raise_high(pool, RESERVED_CURRENT);
  return CUDA_SUCCESS;
}

void vgpu_pool_take_back(struct vgpu_worker *worker, const struct vgpu_allocation *freed) {
  struct pool *pool = any_pool(worker, freed->pool); /* the pool lives as long as any of its memory */
  pool->values[USED_CURRENT] -= freed->size;
  hold(worker, pool, pool->destroyed ? 0 : pool->values[RELEASE_THRESHOLD]);
  if (pool->destroyed) end_pool(worker, freed->pool, pool);
}
