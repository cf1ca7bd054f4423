#include "guest/cuda/memory/managed_pool.h"

#include <stdlib.h>

#include "cuda_api.h"
#include "guest/cuda/stream/capture.h"

enum { NO_LOCATION = 0, ON_DEVICE = 1, ON_HOST = 2, ON_HOST_NODE = 3 }; /* CUmemLocationType */
#define PROCESSOR (-1)
#define NOWHERE (-2)
#define SINCE 13000

enum { RESERVED_NOW = 5, RESERVED_HIGH = 6, USED_NOW = 7, USED_HIGH = 8 };

static int place_of(const struct vgpu_driver *driver, const struct vgpu_location *location, int32_t *place) {
  switch (location->type) {
    case NO_LOCATION:
      *place = NOWHERE;
      return CUDA_SUCCESS;
    case ON_DEVICE:
      *place = location->id;
      return location->id >= 0 && location->id < driver->device_count ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_DEVICE;
    case ON_HOST:
    case ON_HOST_NODE:
      *place = PROCESSOR;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

/* The caller holds driver->lock. */
static int make(struct vgpu_driver *driver, int32_t place, struct vgpu_pool **made) {
  struct vgpu_pool *pool = malloc(sizeof *pool);
  if (pool == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *pool = (struct vgpu_pool){
      .number = vgpu_cuda_next_number(driver), .ordinal = place, .managed = true, .values = {0, 1, 1, 1}};
  if (!vgpu_objects_add(&driver->objects, pool, VGPU_OBJECT_POOL)) {
    free(pool);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *made = pool;
  return CUDA_SUCCESS;
}

static int find_place(struct vgpu_driver *driver, const struct vgpu_location *location, int32_t *place) {
  if (vgpu_cuda_driver_version() < SINCE || !vgpu_session_maps(driver->session))
    return CUDA_ERROR_NOT_SUPPORTED;
  return place_of(driver, location, place);
}

int vgpu_managed_pool_create(struct vgpu_driver *driver, const struct vgpu_location *preferred,
                             struct vgpu_pool **pool) {
  int32_t place = NOWHERE;
  int result = find_place(driver, preferred, &place);
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&driver->lock);
  result = make(driver, place, pool);
  pthread_mutex_unlock(&driver->lock);
  return result;
}

/* Gives the pools of a location. On success the caller holds driver->lock. */
static int begin(const struct vgpu_location *location, struct vgpu_driver **driver,
                 struct vgpu_device_pools **pools, int32_t *place) {
  int result;
  *driver = vgpu_cuda_driver(&result);
  if (*driver == NULL) return result;
  result = find_place(*driver, location, place);
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&(*driver)->lock);
  *pools = &(*driver)->managed_pools[*place - NOWHERE];
  return CUDA_SUCCESS;
}

static int pool_of(const struct vgpu_location *location, bool current, struct vgpu_pool **pool) {
  struct vgpu_driver *driver;
  struct vgpu_device_pools *pools = NULL;
  int32_t place = NOWHERE;
  if (pool == NULL) return CUDA_ERROR_INVALID_VALUE;
  int result = begin(location, &driver, &pools, &place);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_pool *chosen = current ? pools->current : NULL;
  if (chosen == NULL && pools->given == NULL) result = make(driver, place, &pools->given);
  if (result == CUDA_SUCCESS) *pool = chosen != NULL ? chosen : pools->given;
  pthread_mutex_unlock(&driver->lock);
  return result;
}

int vgpu_managed_pool_default(const struct vgpu_location *location, struct vgpu_pool **pool) {
  return pool_of(location, false, pool);
}

int vgpu_managed_pool_current(const struct vgpu_location *location, struct vgpu_pool **pool) {
  return pool_of(location, true, pool);
}

int vgpu_managed_pool_set(const struct vgpu_location *location, struct vgpu_pool *pool) {
  struct vgpu_driver *driver;
  struct vgpu_device_pools *pools = NULL;
  int32_t place = NOWHERE;
  const int result = begin(location, &driver, &pools, &place);
  if (result != CUDA_SUCCESS) return result;
  const bool fits =
      vgpu_objects_has(&driver->objects, pool, VGPU_OBJECT_POOL) && pool->managed && pool->ordinal == place;
  if (fits) pools->current = pool;
  pthread_mutex_unlock(&driver->lock);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int vgpu_managed_pool_destroy(struct vgpu_driver *driver, struct vgpu_pool *pool) {
  pthread_mutex_lock(&driver->lock);
  struct vgpu_device_pools *pools = &driver->managed_pools[pool->ordinal - NOWHERE];
  const bool ours = pools->given != pool && vgpu_objects_remove(&driver->objects, pool, VGPU_OBJECT_POOL);
  if (ours && pools->current == pool) pools->current = NULL;
  if (ours) free(pool);
  pthread_mutex_unlock(&driver->lock);
  return ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int vgpu_managed_pool_get(struct vgpu_driver *driver, const struct vgpu_pool *pool, int32_t attribute,
                          uint64_t *value) {
  const bool now = attribute == RESERVED_NOW || attribute == USED_NOW;
  *value = now ? vgpu_regions_pool_bytes(&driver->regions, pool->number)
               : pool->values[attribute == RESERVED_HIGH ? USED_HIGH : attribute];
  return CUDA_SUCCESS;
}

int vgpu_managed_pool_set_value(struct vgpu_driver *driver, struct vgpu_pool *pool, int32_t attribute,
                                uint64_t value) {
  pthread_mutex_lock(&driver->lock);
  const bool live = vgpu_objects_has(&driver->objects, pool, VGPU_OBJECT_POOL);
  if (live) pool->values[attribute == RESERVED_HIGH ? USED_HIGH : attribute] = value;
  pthread_mutex_unlock(&driver->lock);
  return live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int vgpu_managed_pool_allocate(struct vgpu_driver *driver, struct vgpu_pool *pool, size_t bytes,
                               struct vgpu_stream *stream, uint64_t *address) {
  struct vgpu_context *context = NULL;
  struct vgpu_region like = {.flags = 1};
  if (bytes > SIZE_MAX / 2) return CUDA_ERROR_OUT_OF_MEMORY;
  int result = cuStreamGetCtx(stream, &context);
  if (result != CUDA_SUCCESS) return result;
  if (vgpu_capture_forbids(driver, stream, &result)) return result;
  context = vgpu_cuda_owner_of(context);
  result = vgpu_cuda_context_given(driver, context, &like.context);
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&driver->lock);
  const bool live = vgpu_objects_has(&driver->objects, pool, VGPU_OBJECT_POOL);
  like.pool = live ? pool->number : 0;
  const int32_t place = live ? pool->ordinal : NOWHERE;
  pthread_mutex_unlock(&driver->lock);
  if (!live) return CUDA_ERROR_INVALID_VALUE;
  like.ordinal = context->ordinal;
  result = vgpu_managed_make(driver, &like, bytes, place, address);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t used = vgpu_regions_pool_bytes(&driver->regions, like.pool);
  pthread_mutex_lock(&driver->lock);
  if (vgpu_objects_has(&driver->objects, pool, VGPU_OBJECT_POOL) && pool->values[USED_HIGH] < used)
    pool->values[USED_HIGH] = used;
  pthread_mutex_unlock(&driver->lock);
  return CUDA_SUCCESS;
}

struct freed {
  struct vgpu_driver *driver;
  struct vgpu_region region;
};

static void end(void *data) {
  struct freed *freed = data;
  vgpu_managed_give(freed->driver, &freed->region);
  free(freed);
}

bool vgpu_managed_pool_free(struct vgpu_driver *driver, uint64_t address, uint64_t context, int *result) {
  struct vgpu_region region;
  if (!vgpu_regions_find(&driver->regions, address, &region) || region.kind != VGPU_REGION_MANAGED ||
      region.pool == 0)
    return false;
  struct freed *freed = malloc(sizeof *freed);
  *result = freed == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  if (freed == NULL) return true;
  if (!vgpu_regions_remove(&driver->regions, address, VGPU_REGION_MANAGED, &region)) {
    free(freed);
    return true;
  }
  *freed = (struct freed){.driver = driver, .region = region};
  *result = CUDA_SUCCESS;
  if (vgpu_host_functions_detached(driver, context, end, freed)) return true;
  vgpu_cuda_wait_context(context); /* there is no thread for it */
  end(freed);
  return true;
}
