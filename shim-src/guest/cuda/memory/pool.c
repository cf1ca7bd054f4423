/* A pool is at the host; the guest keeps its handle and the facts that it can return without asking. */
#include "guest/cuda/memory/managed_pool.h"

#include <stdlib.h>
#include <string.h>

#include "api/device_attributes.h"
#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/stream/capture.h"

#define PEER_ACCESS_UNSUPPORTED 217
#define PINNED 1     /* CU_MEM_ALLOCATION_TYPE_PINNED */
#define MANAGED 2    /* CU_MEM_ALLOCATION_TYPE_MANAGED */
#define ON_DEVICE 1  /* CU_MEM_LOCATION_TYPE_DEVICE */
#define POSIX_FD 1   /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
#define READ_ONLY 1  /* CU_MEM_ACCESS_FLAGS_PROT_READ */
#define READ_WRITE 3 /* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */

enum {
  REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
  REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
  RELEASE_THRESHOLD = 4,
  RESERVED_MEM_HIGH = 6,
  USED_MEM_HIGH = 8,
};

struct properties {
  int32_t allocation_type;
  int32_t handle_types;
  struct vgpu_location location;
  void *win32_security_attributes;
  size_t max_size;
  uint16_t usage;
  unsigned char reserved[54];
};

struct access {
  struct vgpu_location location;
  int32_t flags;
};

int vgpu_pool_device(int32_t ordinal) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_device_facts *facts = vgpu_cuda_device_facts(ordinal);
  if (facts == NULL) return CUDA_ERROR_INVALID_DEVICE;
  return facts->attributes[VGPU_ATTRIBUTE_MEMORY_POOLS_SUPPORTED] != 0 ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_NOT_SUPPORTED;
}

static int make_at_host(const struct vgpu_pool_origin *origin, uint64_t number, uint32_t device) {
  if (origin->kind == VGPU_POOL_OPENED) {
    struct vgpu_send_open_pool send = {
        .pool = number, .token_0 = origin->token[0], .token_1 = origin->token[1], .device = device};
    return vgpu_cuda_call(VGPU_OP_open_pool, &send, sizeof send, NULL, 0);
  }
  struct vgpu_send_cuMemPoolCreate send = {
      .pool = number, .max_size = origin->max_size, .device = device, .given = origin->kind};
  return vgpu_cuda_call(VGPU_OP_cuMemPoolCreate, &send, sizeof send, NULL, 0);
}

int vgpu_pool_make(struct vgpu_driver *driver, int32_t ordinal, const struct vgpu_pool_origin *origin,
                   struct vgpu_pool **made) {
  struct vgpu_pool *pool = malloc(sizeof *pool);
  if (pool == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *pool = (struct vgpu_pool){.number = vgpu_cuda_next_number(driver),
                             .ordinal = ordinal,
                             .of_driver = origin->kind == VGPU_POOL_OPENED};
  if (!vgpu_objects_add(&driver->objects, pool, VGPU_OBJECT_POOL)) {
    free(pool);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  int result = make_at_host(origin, pool->number, driver->host_index[ordinal]);
  if (result != CUDA_SUCCESS) {
    vgpu_objects_remove(&driver->objects, pool, VGPU_OBJECT_POOL);
    free(pool);
    return result;
  }
  *made = pool;
  return CUDA_SUCCESS;
}

/* Makes the default pool of a device when it is first needed. The caller holds driver->lock. */
static int default_pool(struct vgpu_driver *driver, int32_t ordinal, struct vgpu_pool **pool) {
  struct vgpu_device_pools *pools = &driver->pools[ordinal];
  if (pools->given == NULL) {
    const struct vgpu_pool_origin origin = {.kind = VGPU_POOL_DEFAULT};
    int result = vgpu_pool_make(driver, ordinal, &origin, &pools->given);
    if (result != CUDA_SUCCESS) return result;
  }
  *pool = pools->given;
  return CUDA_SUCCESS;
}

int vgpu_pool_take(const struct vgpu_pool *handle, struct vgpu_driver **driver, struct vgpu_pool *pool) {
  int result;
  *pool = (struct vgpu_pool){0};
  *driver = vgpu_cuda_driver(&result);
  if (*driver == NULL) return result;
  pthread_mutex_lock(&(*driver)->lock);
  bool live = vgpu_objects_has(&(*driver)->objects, handle, VGPU_OBJECT_POOL);
  if (live) *pool = *handle;
  pthread_mutex_unlock(&(*driver)->lock);
  return live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct number_search {
  uint64_t number;
  struct vgpu_pool *found;
};

static bool same_number(void *handle, void *with) {
  struct number_search *search = with;
  struct vgpu_pool *pool = handle;
  if (pool->number == search->number) search->found = pool;
  return false;
}

struct vgpu_pool *vgpu_pool_numbered(struct vgpu_driver *driver, uint64_t number) {
  struct number_search search = {.number = number};
  if (number == 0) return NULL;
  pthread_mutex_lock(&driver->lock);
  vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_POOL, same_number, &search);
  pthread_mutex_unlock(&driver->lock);
  return search.found;
}

int cuDeviceGetDefaultMemPool(struct vgpu_pool **pool_out, int32_t dev) {
  int result = vgpu_pool_device(dev);
  if (result != CUDA_SUCCESS) return result;
  if (pool_out == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  pthread_mutex_lock(&driver->lock);
  result = default_pool(driver, dev, pool_out);
  pthread_mutex_unlock(&driver->lock);
  return result;
}

int cuDeviceGetMemPool(struct vgpu_pool **pool, int32_t dev) {
  int result = vgpu_pool_device(dev);
  if (result != CUDA_SUCCESS) return result;
  if (pool == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  pthread_mutex_lock(&driver->lock);
  if (driver->pools[dev].current != NULL) *pool = driver->pools[dev].current;
  else result = default_pool(driver, dev, pool);
  pthread_mutex_unlock(&driver->lock);
  return result;
}

int cuDeviceSetMemPool(int32_t dev, struct vgpu_pool *pool) {
  int result = vgpu_pool_device(dev);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  pthread_mutex_lock(&driver->lock);
  bool fits =
      vgpu_objects_has(&driver->objects, pool, VGPU_OBJECT_POOL) && !pool->managed && pool->ordinal == dev;
  if (fits) driver->pools[dev].current = pool;
  pthread_mutex_unlock(&driver->lock);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* CUDA 13 names a location and a kind of memory. Unmanaged memory can be pooled only on a device. */
static int check_place(const void *location, int32_t type) {
  if (location == NULL) return CUDA_ERROR_INVALID_VALUE;
  return ((const struct vgpu_location *)location)->type == ON_DEVICE && type == PINNED
             ? CUDA_SUCCESS
             : CUDA_ERROR_NOT_SUPPORTED;
}

int cuMemGetDefaultMemPool(struct vgpu_pool **pool_out, void *location, int32_t type) {
  if (type == MANAGED && location != NULL) return vgpu_managed_pool_default(location, pool_out);
  int result = check_place(location, type);
  if (result != CUDA_SUCCESS) return result;
  return cuDeviceGetDefaultMemPool(pool_out, ((const struct vgpu_location *)location)->id);
}

int cuMemGetMemPool(struct vgpu_pool **pool, void *location, int32_t type) {
  if (type == MANAGED && location != NULL) return vgpu_managed_pool_current(location, pool);
  int result = check_place(location, type);
  return result == CUDA_SUCCESS ? cuDeviceGetMemPool(pool, ((const struct vgpu_location *)location)->id)
                                : result;
}

int cuMemSetMemPool(void *location, int32_t type, struct vgpu_pool *pool) {
  if (type == MANAGED && location != NULL) return vgpu_managed_pool_set(location, pool);
  int result = check_place(location, type);
  return result == CUDA_SUCCESS ? cuDeviceSetMemPool(((const struct vgpu_location *)location)->id, pool)
                                : result;
}

int cuMemPoolCreate(struct vgpu_pool **pool, const void *poolProps) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (pool == NULL || poolProps == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct properties properties;
  memcpy(&properties, poolProps, sizeof properties);
  if (properties.allocation_type == MANAGED) {
    /* No other process can use them, and they have no limit. */
    if (properties.handle_types != 0 || properties.max_size != 0 || properties.usage != 0)
      return CUDA_ERROR_INVALID_VALUE;
    return vgpu_managed_pool_create(driver, &properties.location, pool);
  }
  if (properties.allocation_type != PINNED) return CUDA_ERROR_INVALID_VALUE;
  /* Only file descriptors can be shared, and there are no pools of host memory. */
  if ((properties.handle_types & ~POSIX_FD) != 0 || properties.location.type != ON_DEVICE)
    return CUDA_ERROR_NOT_SUPPORTED;
  result = vgpu_pool_device(properties.location.id);
  if (result != CUDA_SUCCESS) return result;
  if (properties.handle_types != 0 && !vgpu_pool_shares_possible(properties.location.id))
    return CUDA_ERROR_NOT_SUPPORTED;
  /* Only a pool of the driver must be created as exportable. */
  bool told = properties.handle_types != 0 && !vgpu_session_exchanges(driver->session);
  const struct vgpu_pool_origin origin = {.kind = told ? VGPU_POOL_EXPORTABLE : VGPU_POOL_OWN,
                                          .max_size = properties.max_size};
  pthread_mutex_lock(&driver->lock);
  result = vgpu_pool_make(driver, properties.location.id, &origin, pool);
  if (result == CUDA_SUCCESS) (*pool)->exportable = properties.handle_types != 0;
  pthread_mutex_unlock(&driver->lock);
  return result;
}

int cuMemPoolDestroy(struct vgpu_pool *pool) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_pool taken;
  struct vgpu_send_cuMemPoolDestroy send = {0};
  if (vgpu_pool_take(pool, &driver, &taken) == CUDA_SUCCESS && taken.managed)
    return vgpu_managed_pool_destroy(driver, pool);
  pthread_mutex_lock(&driver->lock);
  bool ours = vgpu_objects_has(&driver->objects, pool, VGPU_OBJECT_POOL);
  struct vgpu_device_pools *pools = ours ? &driver->pools[pool->ordinal] : NULL;
  ours = ours && pools->given != pool; /* the default pool cannot be destroyed */
  if (ours) {
    if (pools->current == pool) pools->current = NULL;
    vgpu_objects_remove(&driver->objects, pool, VGPU_OBJECT_POOL);
    send.pool = pool->number;
    free(pool);
  }
  pthread_mutex_unlock(&driver->lock);
  if (!ours) return CUDA_ERROR_INVALID_VALUE;
  return vgpu_cuda_post(VGPU_OP_cuMemPoolDestroy, &send, sizeof send, NULL, 0);
}

static bool is_flag(int32_t attribute) {
  return attribute >= REUSE_FOLLOW_EVENT_DEPENDENCIES && attribute <= REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

int cuMemPoolGetAttribute(struct vgpu_pool *handle, int32_t attr, void *value) {
  struct vgpu_driver *driver;
  struct vgpu_pool pool;
  int result = vgpu_pool_take(handle, &driver, &pool);
  if (result != CUDA_SUCCESS) return result;
  if (value == NULL || attr < REUSE_FOLLOW_EVENT_DEPENDENCIES || attr > USED_MEM_HIGH) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct vgpu_send_cuMemPoolGetAttribute send = {.pool = pool.number, .attribute = (uint32_t)attr};
  struct vgpu_reply_cuMemPoolGetAttribute reply;
  result = pool.managed
               ? vgpu_managed_pool_get(driver, &pool, attr, &reply.value)
               : vgpu_cuda_call(VGPU_OP_cuMemPoolGetAttribute, &send, sizeof send, &reply, sizeof reply);
  if (result != CUDA_SUCCESS) return result;
  if (is_flag(attr)) *(int32_t *)value = reply.value != 0;
  else *(uint64_t *)value = reply.value;
  return CUDA_SUCCESS;
}

int cuMemPoolSetAttribute(struct vgpu_pool *handle, int32_t attr, void *value) {
  struct vgpu_driver *driver;
  struct vgpu_pool pool;
  int result = vgpu_pool_take(handle, &driver, &pool);
  if (result != CUDA_SUCCESS) return result;
  if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_send_cuMemPoolSetAttribute send = {.pool = pool.number, .attribute = (uint32_t)attr};
  if (is_flag(attr)) send.value = *(int32_t *)value != 0;
  else if (attr == RELEASE_THRESHOLD || attr == RESERVED_MEM_HIGH || attr == USED_MEM_HIGH) {
    send.value = *(uint64_t *)value;
  } else return CUDA_ERROR_INVALID_VALUE;
  if (attr > RELEASE_THRESHOLD && send.value != 0) return CUDA_ERROR_INVALID_VALUE; /* only reset */
  if (pool.managed) return vgpu_managed_pool_set_value(driver, handle, attr, send.value);
  result = vgpu_cuda_call(VGPU_OP_cuMemPoolSetAttribute, &send, sizeof send, NULL, 0);
  vgpu_pools_queried(driver); /* no effect unless memory was freed to a pool before */
  return result;
}

int cuMemPoolTrimTo(struct vgpu_pool *handle, size_t minBytesToKeep) {
  struct vgpu_driver *driver;
  struct vgpu_pool pool;
  int result = vgpu_pool_take(handle, &driver, &pool);
  if (result != CUDA_SUCCESS) return result;
  if (pool.managed) return CUDA_SUCCESS; /* it keeps nothing */
  struct vgpu_send_cuMemPoolTrimTo send = {.pool = pool.number, .keep = minBytesToKeep};
  return vgpu_cuda_call(VGPU_OP_cuMemPoolTrimTo, &send, sizeof send, NULL, 0);
}

static int check_pool_access(const struct vgpu_driver *driver, const struct vgpu_pool *pool,
                             const struct access *access) {
  if (access->location.type != ON_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  int32_t ordinal = access->location.id;
  if (ordinal < 0 || ordinal >= driver->device_count) return CUDA_ERROR_INVALID_DEVICE;
  if (pool->managed || ordinal == pool->ordinal)
    return access->flags == READ_WRITE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (access->flags != 0 && access->flags != READ_ONLY && access->flags != READ_WRITE)
    return CUDA_ERROR_INVALID_VALUE;
  return access->flags == 0 || vgpu_peer_possible(ordinal, pool->ordinal) ? CUDA_SUCCESS
                                                                          : PEER_ACCESS_UNSUPPORTED;
}

int cuMemPoolSetAccess(struct vgpu_pool *handle, const void *map, size_t count) {
  struct vgpu_driver *driver;
  struct vgpu_pool pool;
  int result = vgpu_pool_take(handle, &driver, &pool);
  if (result != CUDA_SUCCESS) return result;
  if (map == NULL || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const struct access *accesses = map;
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
    result = check_pool_access(driver, &pool, &accesses[i]);
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
    int32_t ordinal = accesses[i].location.id;
    if (pool.access[ordinal] == accesses[i].flags || ordinal == pool.ordinal || pool.managed) continue;
    struct vgpu_send_cuMemPoolSetAccess send = {
        .pool = pool.number, .device = driver->host_index[ordinal], .flags = (uint32_t)accesses[i].flags};
    result = vgpu_cuda_call(VGPU_OP_cuMemPoolSetAccess, &send, sizeof send, NULL, 0);
    if (result != CUDA_SUCCESS) break;
    pthread_mutex_lock(&driver->lock);
    bool live = vgpu_objects_has(&driver->objects, handle, VGPU_OBJECT_POOL);
    if (live) handle->access[ordinal] = pool.access[ordinal] = (uint8_t)accesses[i].flags;
    pthread_mutex_unlock(&driver->lock);
  }
  return result;
}

int cuMemPoolGetAccess(int32_t *flags, struct vgpu_pool *memPool, void *location) {
  struct vgpu_driver *driver;
  struct vgpu_pool pool;
  int result = vgpu_pool_take(memPool, &driver, &pool);
  if (result != CUDA_SUCCESS) return result;
  if (flags == NULL || location == NULL) return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_location *where = location;
  if (where->type != ON_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (where->id < 0 || where->id >= driver->device_count) return CUDA_ERROR_INVALID_DEVICE;
  *flags = pool.managed || where->id == pool.ordinal ? READ_WRITE : pool.access[where->id];
  return CUDA_SUCCESS;
}

/*
 * Returns the address at once. The memory may be used only after this call in the order of the stream. In a
 * capture the call becomes a node with graph memory.
 */
int cuMemAllocFromPoolAsync(uint64_t *dptr, size_t bytesize, struct vgpu_pool *handle,
                            struct vgpu_stream *hStream) {
  struct vgpu_driver *driver;
  struct vgpu_pool pool;
  int result = vgpu_pool_take(handle, &driver, &pool);
  if (result != CUDA_SUCCESS) return result;
  if (dptr == NULL || bytesize == 0 || pool.imported) return CUDA_ERROR_INVALID_VALUE;
  if (pool.managed) return vgpu_managed_pool_allocate(driver, handle, bytesize, hStream, dptr);
  struct vgpu_memory_access others[VGPU_DEVICES_MAX];
  size_t count = 0;
  for (int32_t i = 0; i < driver->device_count; i++) {
    if (pool.access[i] == READ_WRITE)
      others[count++] =
          (struct vgpu_memory_access){.location_type = ON_DEVICE, .location = i, .flags = READ_WRITE};
  }
  struct vgpu_node_params node = {.type = VGPU_NODE_ALLOCATE,
                                  .of.allocation = {.allocation_type = PINNED,
                                                    .location_type = ON_DEVICE,
                                                    .location = pool.ordinal,
                                                    .accesses = others,
                                                    .access_count = count,
                                                    .bytes = bytesize}};
  if (vgpu_capture_node(driver, hStream, &node, &result)) {
    if (result == CUDA_SUCCESS) *dptr = node.of.allocation.address;
    return result;
  }
  struct vgpu_send_cuMemAllocFromPoolAsync send = {.pool = pool.number, .bytes = bytesize};
  result = vgpu_cuda_stream_identity(driver, hStream, &send.queue, &send.context);
  if (result != CUDA_SUCCESS) return result;
  *dptr = 0; /* programs look at the address instead of the result */
  struct vgpu_reply_cuMemAllocFromPoolAsync reply;
  result = vgpu_cuda_call(VGPU_OP_cuMemAllocFromPoolAsync, &send, sizeof send, &reply, sizeof reply);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_region region = {.start = reply.address,
                               .size = bytesize,
                               .kind = VGPU_REGION_DEVICE,
                               .pool = pool.number,
                               .ordinal = pool.ordinal};
  if (vgpu_regions_add(&driver->regions, &region) != VGPU_REGIONS_OK) {
    struct vgpu_send_cuMemFreeAsync back = {
        .context = send.context, .stream = send.queue, .address = reply.address};
    vgpu_cuda_post(VGPU_OP_cuMemFreeAsync, &back, sizeof back, NULL, 0);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *dptr = reply.address;
  return CUDA_SUCCESS;
}

int cuMemAllocAsync(uint64_t *dptr, size_t bytesize, struct vgpu_stream *hStream) {
  int32_t device;
  int result = cuStreamGetDevice(hStream, &device);
  struct vgpu_pool *pool = NULL;
  if (result == CUDA_SUCCESS) result = cuDeviceGetMemPool(&pool, device);
  return result == CUDA_SUCCESS ? cuMemAllocFromPoolAsync(dptr, bytesize, pool, hStream) : result;
}

int cuMemFreeAsync(uint64_t dptr, struct vgpu_stream *hStream) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_node_params node = {.type = VGPU_NODE_FREE, .of.freed = dptr};
  if (vgpu_capture_node(driver, hStream, &node, &result)) return result;
  struct vgpu_send_cuMemFreeAsync send = {.address = dptr};
  result = vgpu_cuda_stream_identity(driver, hStream, &send.stream, &send.context);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_region region;
  if (dptr == 0)
    return CUDA_SUCCESS; /* as cuMemFree; Warp frees its workspace before the first allocation of it */
  if (vgpu_graph_memory_free(driver, dptr, &result)) return result;
  if (vgpu_managed_pool_free(driver, dptr, send.context, &result)) return result;
  if ((vgpu_regions_find(&driver->regions, dptr, &region) && region.module != 0) ||
      !vgpu_regions_remove(&driver->regions, dptr, VGPU_REGION_DEVICE, &region)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (region.pool != 0) vgpu_pools_changed(driver);
  return vgpu_cuda_post(VGPU_OP_cuMemFreeAsync, &send, sizeof send, NULL, 0);
}
