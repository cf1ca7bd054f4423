#include <string.h>

#include "cuda_api.h"
#include "guest/cuda/internal.h"

struct context_search {
  uint64_t number;
  struct vgpu_context *found;
};

static bool same_number(void *handle, void *with) {
  struct context_search *search = with;
  struct vgpu_context *context = handle;
  if (context->number == search->number) search->found = context;
  return false;
}

/* Returns the program's handle of the context that made a region; NULL if the context is gone. */
static struct vgpu_context *context_of(struct vgpu_driver *driver, const struct vgpu_region *region) {
  if (region->context == 0) return NULL;
  struct vgpu_context *primary = &driver->primary[region->ordinal];
  struct context_search search = {.number = region->context};
  pthread_mutex_lock(&driver->lock);
  if (primary->number == region->context) search.found = primary;
  else vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_CONTEXT, same_number, &search);
  pthread_mutex_unlock(&driver->lock);
  return search.found;
}

static int attribute_of(struct vgpu_driver *driver, const struct vgpu_region *region, uint64_t pointer,
                        int32_t attribute, void *data) {
  bool device = vgpu_region_on_device(region);
  switch (attribute) {
    case 1: { /* CONTEXT */
      struct vgpu_context *context = context_of(driver, region);
      memcpy(data, &context, sizeof context);
      return CUDA_SUCCESS;
    }
    case 2: /* MEMORY_TYPE: 1 host, 2 device */
      *(uint32_t *)data = device ? 2 : 1;
      return CUDA_SUCCESS;
    case 3: /* DEVICE_POINTER */
    case 4: /* HOST_POINTER */
      /* Memory that is not lent is not mapped at the other side. */
      if (!region->lent && (attribute == 3) != device) return CUDA_ERROR_INVALID_VALUE;
      *(uint64_t *)data = pointer;
      return CUDA_SUCCESS;
    case 6: /* SYNC_MEMOPS */
      *(int32_t *)data = region->sync_memops;
      return CUDA_SUCCESS;
    case 8: /* IS_MANAGED */
      *(int32_t *)data = region->kind == VGPU_REGION_MANAGED;
      return CUDA_SUCCESS;
    case 10: /* IS_LEGACY_CUDA_IPC_CAPABLE */
      *(int32_t *)data = region->kind == VGPU_REGION_DEVICE && region->pool == 0 && region->module == 0 &&
                         !region->opened && vgpu_ipc_possible();
      return CUDA_SUCCESS;
    case 15: /* IS_GPU_DIRECT_RDMA_CAPABLE */
    case 21: /* IS_HW_DECOMPRESS_CAPABLE */
      /* The attribute is an int: the runtime reads four bytes that it has not cleared. */
      *(int32_t *)data = 0;
      return CUDA_SUCCESS;
    case 7:  /* BUFFER_ID */
    case 20: /* MEMORY_BLOCK_ID */
      *(uint64_t *)data = region->id;
      return CUDA_SUCCESS;
    case 9: /* DEVICE_ORDINAL */
      *(int32_t *)data = region->ordinal;
      return CUDA_SUCCESS;
    case 11: /* RANGE_START_ADDR */
    case 19: /* MAPPING_BASE_ADDR */
      *(uint64_t *)data = region->start;
      return CUDA_SUCCESS;
    case 12: /* RANGE_SIZE */
    case 18: /* MAPPING_SIZE */
      *(uint64_t *)data = region->size;
      return CUDA_SUCCESS;
    case 13: /* MAPPED */
      *(int32_t *)data = 1;
      return CUDA_SUCCESS;
    case 14: /* ALLOWED_HANDLE_TYPES */
      *(uint64_t *)data = 0;
      return CUDA_SUCCESS;
    case 16: /* ACCESS_FLAGS: read and write */
      *(uint32_t *)data = 3;
      return CUDA_SUCCESS;
    case 17: { /* MEMPOOL_HANDLE: NULL if it is not from a pool */
      struct vgpu_pool *pool = vgpu_pool_numbered(driver, region->pool);
      memcpy(data, &pool, sizeof pool);
      return CUDA_SUCCESS;
    }
    case 5: /* P2P_TOKENS */
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

int cuPointerGetAttribute(void *data, int32_t attribute, uint64_t ptr) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_region region;
  if (data == NULL || !vgpu_regions_find(&driver->regions, ptr, &region)) return CUDA_ERROR_INVALID_VALUE;
  return attribute_of(driver, &region, ptr, attribute, data);
}

static size_t attribute_size(int32_t attribute) {
  switch (attribute) {
    case 2:
    case 6:
    case 8:
    case 9:
    case 10:
    case 13:
    case 15:
    case 16:
    case 21:
      return 4;
    default:
      return 8;
  }
}

/* An unknown pointer's attributes are zero, as with the real driver. */
int cuPointerGetAttributes(uint32_t numAttributes, int32_t *attributes, void **data, uint64_t ptr) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (attributes == NULL || data == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_region region;
  bool known = vgpu_regions_find(&driver->regions, ptr, &region);
  for (uint32_t i = 0; i < numAttributes; i++) {
    if (data[i] == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!known || attribute_of(driver, &region, ptr, attributes[i], data[i]) != CUDA_SUCCESS) {
      memset(data[i], 0, attribute_size(attributes[i]));
      if (attributes[i] == 9) *(int32_t *)data[i] = -2; /* not of a device */
    }
  }
  return CUDA_SUCCESS;
}

/* Only SYNC_MEMOPS can be set. */
int cuPointerSetAttribute(const void *value, int32_t attribute, uint64_t ptr) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (value == NULL || attribute != 6) return CUDA_ERROR_INVALID_VALUE;
  int32_t sync;
  memcpy(&sync, value, sizeof sync);
  return vgpu_regions_set_sync(&driver->regions, ptr, sync != 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
