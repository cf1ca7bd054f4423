#include "host/backend/cuda/pool.h"

#include <stdlib.h>
#include <unistd.h>

#include "host/backend/cuda/session.h"

#define POSIX_FD 1         /* CUmemAllocationHandleType */
#define POOL_FILE_BYTES 1u /* the exchange wants a size; a pool has none */

/* CUmemPoolProps */
struct properties {
  int32_t allocation_type; /* 1: pinned */
  int32_t handle_types;
  int32_t location_type; /* 1: device */
  int32_t location;
  void *win32_security_attributes;
  size_t max_size;
  uint16_t usage;
  unsigned char reserved[54];
};

/* `given` of the request, and the flag of a handle. */
enum { OWN_POOL, DEFAULT_POOL, EXPORTABLE_POOL }; /* the default pool of a device is not destroyed */

#define RESERVED 5 /* CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT */

struct vgpu_cuda_pool {
  struct vgpu_cuda_pool *next;
  uint64_t number; /* 0: the guest has destroyed the pool. The driver keeps it until its memory is freed. */
  struct vgpu_pool *driver;
  uint32_t device;
  uint64_t used; /* bytes that the guest has allocated and not freed */
  uint64_t kept; /* further bytes that the driver holds: freed by the guest, or the rest of a larger unit */
  bool shared;
  struct vgpu_token token; /* if it is shared */
};

static struct vgpu_cuda_pool *find_pool(const struct vgpu_worker *worker, uint64_t number) {
  struct vgpu_cuda_pool *pool = number == 0 ? NULL : cuda_of(worker)->pools;
  while (pool != NULL && pool->number != number) pool = pool->next;
  return pool;
}

static bool add_pool(struct vgpu_worker *worker, uint64_t number, uint32_t device, struct vgpu_pool *driver) {
  struct vgpu_cuda_pool *pool = malloc(sizeof *pool);
  if (pool == NULL || !vgpu_cuda_remember(worker, number, VGPU_HANDLE_POOL, 0, driver)) {
    free(pool);
    return false;
  }
  vgpu_handles_find(&worker->handles, number, VGPU_HANDLE_POOL)->device = device;
  *pool = (struct vgpu_cuda_pool){
      .next = cuda_of(worker)->pools, .number = number, .driver = driver, .device = device};
  cuda_of(worker)->pools = pool;
  return true;
}

/* Returns the bytes that the driver holds beside the guest's memory; if it fails, the bytes counted so far.
 */
static uint64_t unused_of(const struct vgpu_worker *worker, const struct vgpu_cuda_pool *pool) {
  uint64_t reserved = 0;
  if (pool->number == 0 || VGPU_DRIVER(&cuda_of(worker)->api, cuMemPoolGetAttribute, pool->driver, RESERVED,
                                       &reserved) != CUDA_SUCCESS)
    return pool->kept;
  return reserved > pool->used ? reserved - pool->used : 0;
}

static void settle(struct vgpu_worker *worker, struct vgpu_cuda_pool *pool) {
  const uint64_t unused = pool->kept == 0 ? 0 : unused_of(worker, pool);
  if (unused >= pool->kept) return;
  vgpu_accounts_give(worker->accounts, worker->slot, pool->device, pool->kept - unused);
  pool->kept = unused;
}

/* Counts further bytes that the driver has reserved for an allocation. False: a limit is exceeded. */
static bool count_unused(struct vgpu_worker *worker, struct vgpu_cuda_pool *pool) {
  const uint64_t unused = unused_of(worker, pool);
  if (unused <= pool->kept) return true;
  /* NVML has counted these bytes if it was asked meanwhile, so a correction would count them twice. */
  if (!vgpu_accounts_take_uncorrected(worker->accounts, worker->slot, pool->device, unused - pool->kept,
                                      worker->limits->session_memory))
    return false;
  pool->kept = unused;
  return true;
}

/* Frees a destroyed pool whose memory is freed. */
static void drop_unused(struct vgpu_worker *worker, struct vgpu_cuda_pool *pool) {
  struct vgpu_cuda_pool **link = &cuda_of(worker)->pools;
  if (pool->number != 0 || pool->used > 0) return;
  while (*link != pool) link = &(*link)->next;
  *link = pool->next;
  vgpu_accounts_give(worker->accounts, worker->slot, pool->device, pool->kept);
  free(pool);
}

void vgpu_cuda_settle_pools(struct vgpu_worker *worker) {
  if (cuda_of(worker) == NULL) return;
  for (struct vgpu_cuda_pool *pool = cuda_of(worker)->pools; pool != NULL; pool = pool->next)
    settle(worker, pool);
}

void vgpu_cuda_pool_freed(struct vgpu_worker *worker, struct vgpu_range *freed) {
  struct vgpu_cuda_pool *pool = freed->pool;
  if (pool == NULL) return;
  pool->used -= freed->counted;
  pool->kept += freed->counted;
  freed->counted = 0;
  drop_unused(worker, pool);
}

bool vgpu_cuda_pools_keep(const struct vgpu_worker *worker) {
  const struct vgpu_cuda_pool *pool = cuda_of(worker)->pools;
  while (pool != NULL && pool->kept == 0) pool = pool->next;
  return pool != NULL;
}

static int32_t destroy_pool(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  return VGPU_DRIVER(api, cuMemPoolDestroy, ending->object);
}

int32_t vgpu_cuda_cuMemPoolCreate(struct vgpu_worker *worker, const struct vgpu_send_cuMemPoolCreate *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (send->device >= worker->inventory->count) return CUDA_ERROR_INVALID_DEVICE;
  if (send->given > EXPORTABLE_POOL) return CUDA_ERROR_INVALID_VALUE;
  int32_t device;
  struct vgpu_pool *pool = NULL;
  result = VGPU_DRIVER(&cuda->api, cuDeviceGet, &device, (int32_t)send->device);
  if (result != CUDA_SUCCESS) return result;
  if (send->given == DEFAULT_POOL) {
    result = VGPU_DRIVER(&cuda->api, cuDeviceGetDefaultMemPool, &pool, device);
  } else {
    struct properties properties = {.allocation_type = 1,
                                    .handle_types = send->given == EXPORTABLE_POOL ? POSIX_FD : 0,
                                    .location_type = 1,
                                    .location = device,
                                    .max_size = send->max_size};
    result = VGPU_DRIVER(&cuda->api, cuMemPoolCreate, &pool, &properties);
  }
  if (result != CUDA_SUCCESS) return result;
  if (!add_pool(worker, send->pool, send->device, pool)) {
    if (send->given != DEFAULT_POOL)
      (void)vgpu_cuda_end(worker, &(struct vgpu_cuda_ending){.end = destroy_pool, .object = pool});
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  vgpu_handles_find(&worker->handles, send->pool, VGPU_HANDLE_POOL)->flags = send->given;
  return CUDA_SUCCESS;
}

/* The driver waits for work that still uses freed memory. */
static int32_t trim_pool(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  return VGPU_DRIVER(api, cuMemPoolTrimTo, ending->object, ending->size);
}

int32_t vgpu_cuda_cuMemPoolDestroy(struct vgpu_worker *worker,
                                   const struct vgpu_send_cuMemPoolDestroy *send) {
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, send->pool, VGPU_HANDLE_POOL);
  if (handle == NULL || handle->flags == DEFAULT_POOL) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_cuda_pool *pool = find_pool(worker, send->pool);
  /* Runs after a trim of it that is in progress. */
  const struct vgpu_cuda_ending ending = {.end = destroy_pool,
                                          .object = pool->driver,
                                          .device = pool->device,
                                          .counted = pool->used == 0 ? pool->kept : 0};
  if (pool->shared) vgpu_exchange_withdraw(worker, &pool->token);
  pool->number = 0;
  pool->kept -= ending.counted;
  drop_unused(worker, pool);
  vgpu_handles_remove(&worker->handles, send->pool, VGPU_HANDLE_POOL);
  return vgpu_cuda_end(worker, &ending);
}

int32_t vgpu_cuda_cuMemPoolGetAttribute(struct vgpu_worker *worker,
                                        const struct vgpu_send_cuMemPoolGetAttribute *send,
                                        struct vgpu_reply_cuMemPoolGetAttribute *reply) {
  struct vgpu_pool *pool = vgpu_cuda_object(worker, send->pool, VGPU_HANDLE_POOL);
  if (pool == NULL) return CUDA_ERROR_INVALID_VALUE;
  uint64_t value = 0; /* the first three are ints; on a little-endian machine the value is the same */
  int32_t result =
      VGPU_DRIVER(&cuda_of(worker)->api, cuMemPoolGetAttribute, pool, (int32_t)send->attribute, &value);
  reply->value = value;
  return result;
}

int32_t vgpu_cuda_cuMemPoolSetAttribute(struct vgpu_worker *worker,
                                        const struct vgpu_send_cuMemPoolSetAttribute *send) {
  struct vgpu_pool *pool = vgpu_cuda_object(worker, send->pool, VGPU_HANDLE_POOL);
  if (pool == NULL) return CUDA_ERROR_INVALID_VALUE;
  uint64_t value = send->value;
  return VGPU_DRIVER(&cuda_of(worker)->api, cuMemPoolSetAttribute, pool, (int32_t)send->attribute, &value);
}

int32_t vgpu_cuda_cuMemPoolSetAccess(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuMemPoolSetAccess *send) {
  struct vgpu_pool *pool = vgpu_cuda_object(worker, send->pool, VGPU_HANDLE_POOL);
  if (pool == NULL) return CUDA_ERROR_INVALID_VALUE;
  int32_t device;
  if (send->device >= worker->inventory->count) return CUDA_ERROR_INVALID_DEVICE;
  int32_t result = VGPU_DRIVER(&cuda_of(worker)->api, cuDeviceGet, &device, (int32_t)send->device);
  if (result != CUDA_SUCCESS) return result;
  const uint32_t access[3] = {1, (uint32_t)device, send->flags}; /* CUmemAccessDesc: a device, which, how */
  return VGPU_DRIVER(&cuda_of(worker)->api, cuMemPoolSetAccess, pool, access, 1);
}

int32_t vgpu_cuda_cuMemPoolTrimTo(struct vgpu_worker *worker, const struct vgpu_send_cuMemPoolTrimTo *send) {
  struct vgpu_pool *pool = vgpu_cuda_object(worker, send->pool, VGPU_HANDLE_POOL);
  if (pool == NULL) return CUDA_ERROR_INVALID_VALUE;
  return vgpu_cuda_end(worker,
                       &(struct vgpu_cuda_ending){.end = trim_pool, .object = pool, .size = send->keep});
}

int32_t vgpu_cuda_cuMemAllocFromPoolAsync(struct vgpu_worker *worker,
                                          const struct vgpu_send_cuMemAllocFromPoolAsync *send,
                                          struct vgpu_reply_cuMemAllocFromPoolAsync *reply) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result = vgpu_cuda_enter_stream(worker, send->context, send->queue, &cuda, &stream);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_cuda_pool *pool = find_pool(worker, send->pool);
  if (pool == NULL || send->bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_range range = {.size = send->bytes,
                             .counted = send->bytes,
                             .pool = pool,
                             .device = pool->device,
                             .kind = VGPU_RANGE_POOLED};
  settle(worker, pool);
  /* Memory that the pool keeps is counted already. */
  const uint64_t again = send->bytes < pool->kept ? send->bytes : pool->kept, more = send->bytes - again;
  pool->kept -= again;
  pool->used += send->bytes;
  if (cuda->ranges.count + worker->handles.count >= worker->limits->session_handles ||
      !vgpu_accounts_take(worker->accounts, worker->slot, range.device, more,
                          worker->limits->session_memory)) {
    pool->kept += again;
    pool->used -= send->bytes;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  result =
      VGPU_DRIVER(&cuda->api, cuMemAllocFromPoolAsync, &range.address, send->bytes, pool->driver, stream);
  if (result == CUDA_SUCCESS && (!count_unused(worker, pool) || !vgpu_ranges_add(&cuda->ranges, &range))) {
    /* The driver keeps the memory in the pool, so it still counts. */
    vgpu_cuda_pool_freed(worker, &range);
    VGPU_DRIVER(&cuda->api, cuMemFreeAsync, range.address, stream);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_SUCCESS) {
    reply->address = range.address;
  } else {
    pool->kept += again;
    pool->used -= send->bytes;
    vgpu_accounts_give(worker->accounts, worker->slot, range.device, more);
    vgpu_cuda_refused(worker, range.device, send->bytes, result);
  }
  return result;
}

int32_t vgpu_cuda_cuMemFreeAsync(struct vgpu_worker *worker, const struct vgpu_send_cuMemFreeAsync *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_range freed;
  if (!vgpu_ranges_remove(&cuda->ranges, send->address, VGPU_RANGE_POOLED, &freed) &&
      !vgpu_ranges_remove(&cuda->ranges, send->address, VGPU_RANGE_ALLOCATION, &freed)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  vgpu_cuda_unshare(worker, send->address, 0);
  vgpu_cuda_pool_freed(worker, &freed);
  vgpu_accounts_give(worker->accounts, worker->slot, freed.device, freed.counted);
  return VGPU_DRIVER(&cuda->api, cuMemFreeAsync, send->address, stream);
}

/* A pool that is shared again keeps its token. */
int32_t vgpu_cuda_share_pool(struct vgpu_worker *worker, const struct vgpu_send_share_pool *send,
                             struct vgpu_reply_share_pool *reply) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_cuda_pool *pool = find_pool(worker, send->pool);
  if (pool == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!pool->shared) {
    int file = -1;
    result = VGPU_DRIVER(&cuda->api, cuMemPoolExportToShareableHandle, &file, pool->driver, POSIX_FD, 0);
    if (result == CUDA_SUCCESS)
      result = vgpu_exchange_publish(worker, VGPU_EXCHANGE_DRIVER, file, POOL_FILE_BYTES, &pool->token);
    if (file >= 0) close(file);
    if (result != CUDA_SUCCESS) return result;
    pool->shared = true;
  }
  reply->token_0 = pool->token.words[0];
  reply->token_1 = pool->token.words[1];
  return CUDA_SUCCESS;
}

int32_t vgpu_cuda_open_pool(struct vgpu_worker *worker, const struct vgpu_send_open_pool *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (send->device >= worker->inventory->count) return CUDA_ERROR_INVALID_DEVICE;
  int file;
  uint64_t bytes;
  const struct vgpu_token token = {{send->token_0, send->token_1}};
  result = vgpu_exchange_fetch(worker, VGPU_EXCHANGE_DRIVER, &token, true, &file, &bytes);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_pool *pool = NULL;
  result =
      VGPU_DRIVER(&cuda->api, cuMemPoolImportFromShareableHandle, &pool, (void *)(intptr_t)file, POSIX_FD, 0);
  close(file);
  if (result != CUDA_SUCCESS) return result;
  if (add_pool(worker, send->pool, send->device, pool)) return CUDA_SUCCESS;
  (void)vgpu_cuda_end(worker, &(struct vgpu_cuda_ending){.end = destroy_pool, .object = pool});
  return CUDA_ERROR_OUT_OF_MEMORY;
}
