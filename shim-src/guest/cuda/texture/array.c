/* Arrays are made at the host. The guest keeps their descriptions. */
#include "guest/cuda/texture/array.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/stream/capture.h"

/* CUDA_ARRAY_MEMORY_REQUIREMENTS */
struct requirements {
  size_t size, alignment;
  uint32_t reserved[4];
};

bool vgpu_array_take(struct vgpu_driver *driver, const void *handle, enum vgpu_object_kind kind,
                     struct vgpu_array *array) {
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_has(&driver->objects, handle, kind);
  if (live) *array = *(const struct vgpu_array *)handle;
  pthread_mutex_unlock(&driver->lock);
  return live;
}

struct number_search {
  uint64_t number;
  uint32_t level;
  void *found;
};

static bool same_number(void *handle, void *with) {
  struct number_search *search = with;
  const struct vgpu_array *array = handle;
  if (array->number == search->number && array->level == search->level) search->found = handle;
  return false;
}

void *vgpu_array_handle(struct vgpu_driver *driver, uint64_t number, uint32_t level, bool mipmap) {
  struct number_search search = {.number = number, .level = level};
  pthread_mutex_lock(&driver->lock);
  vgpu_objects_sweep(&driver->objects, mipmap ? VGPU_OBJECT_MIPMAP : VGPU_OBJECT_ARRAY, same_number, &search);
  pthread_mutex_unlock(&driver->lock);
  return search.found;
}

static uint32_t most_levels(const struct vgpu_array_descriptor *as) {
  size_t longest = as->width > as->height ? as->width : as->height;
  bool deep = (as->flags & (VGPU_ARRAY_LAYERED | VGPU_ARRAY_CUBEMAP)) == 0;
  if (deep && as->depth > longest) longest = as->depth;
  uint32_t levels = 64 - (uint32_t)__builtin_clzll((uint64_t)longest | 1);
  return levels < VGPU_ARRAY_LEVELS_MOST ? levels : VGPU_ARRAY_LEVELS_MOST;
}

/* Makes an array. `levels` 0: an array without levels. */
static int create(void **handle, const struct vgpu_array_descriptor *as, uint32_t levels) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (handle == NULL || as == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  struct vgpu_context *context = NULL;
  uint64_t number = 0;
  if (driver != NULL) result = vgpu_cuda_owner(driver, &context, &number);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_array *array = calloc(1, sizeof *array);
  if (array == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  uint32_t most = most_levels(as);
  array->as = *as;
  array->context = context;
  array->context_number = number;
  array->level_count = levels < most ? levels : most;
  pthread_mutex_lock(&driver->lock);
  array->number = vgpu_cuda_next_number(driver);
  pthread_mutex_unlock(&driver->lock);
  const struct vgpu_send_cuArray3DCreate_v2 send = {.context = number,
                                                    .array = array->number,
                                                    .width = as->width,
                                                    .height = as->height,
                                                    .depth = as->depth,
                                                    .format = as->format,
                                                    .channels = as->channels,
                                                    .flags = as->flags,
                                                    .levels = array->level_count};
  result = vgpu_cuda_call(VGPU_OP_cuArray3DCreate_v2, &send, sizeof send, NULL, 0);
  if (result != CUDA_SUCCESS) {
    free(array);
    return result;
  }
  pthread_mutex_lock(&driver->lock);
  bool added = vgpu_objects_add(&driver->objects, array, levels > 0 ? VGPU_OBJECT_MIPMAP : VGPU_OBJECT_ARRAY);
  pthread_mutex_unlock(&driver->lock);
  if (!added) {
    const struct vgpu_send_cuArrayDestroy back = {.context = number, .array = array->number};
    vgpu_cuda_post(VGPU_OP_cuArrayDestroy, &back, sizeof back, NULL, 0);
    free(array);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = array;
  return CUDA_SUCCESS;
}

int cuArray3DCreate_v2(void **pHandle, const void *pAllocateArray) {
  return create(pHandle, pAllocateArray, 0);
}

int cuArrayCreate_v2(void **pHandle, const void *pAllocateArray) {
  const struct vgpu_flat_array_descriptor *flat = pAllocateArray;
  if (flat == NULL) return create(pHandle, NULL, 0);
  const struct vgpu_array_descriptor as = {
      .width = flat->width, .height = flat->height, .format = flat->format, .channels = flat->channels};
  return create(pHandle, &as, 0);
}

int cuMipmappedArrayCreate(void **pHandle, const void *pMipmappedArrayDesc, uint32_t numMipmapLevels) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  return numMipmapLevels == 0 ? CUDA_ERROR_INVALID_VALUE
                              : create(pHandle, pMipmappedArrayDesc, numMipmapLevels);
}

/*
 * Removes the handle of an array, and of a mipmapped array also those of its levels. The caller holds
 * driver->lock.
 */
static void forget(struct vgpu_driver *driver, struct vgpu_array *array) {
  for (uint32_t i = 0; i < VGPU_ARRAY_LEVELS_MOST; i++) {
    if (array->levels[i] == NULL) continue;
    vgpu_objects_remove(&driver->objects, array->levels[i], VGPU_OBJECT_ARRAY);
    free(array->levels[i]);
  }
  free(array);
}

static int destroy(void *handle, enum vgpu_object_kind kind) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  struct vgpu_array array = {0};
  if (driver == NULL) return result;
  if (!vgpu_array_take(driver, handle, kind, &array)) return CUDA_ERROR_INVALID_HANDLE;
  if (array.mipmap != NULL) return CUDA_ERROR_INVALID_HANDLE; /* a level is freed with its mipmap */
  pthread_mutex_lock(&driver->lock);
  bool ours = vgpu_objects_remove(&driver->objects, handle, kind);
  if (ours) forget(driver, handle);
  pthread_mutex_unlock(&driver->lock);
  if (!ours) return CUDA_ERROR_INVALID_HANDLE;
  const struct vgpu_send_cuArrayDestroy send = {.context = array.context_number, .array = array.number};
  return vgpu_cuda_post(VGPU_OP_cuArrayDestroy, &send, sizeof send, NULL, 0);
}

int cuArrayDestroy(void *hArray) {
  return destroy(hArray, VGPU_OBJECT_ARRAY);
}

int cuMipmappedArrayDestroy(void *hMipmappedArray) {
  return destroy(hMipmappedArray, VGPU_OBJECT_MIPMAP);
}

/* Gives the handle of a level. The caller holds driver->lock. */
static int level_of(struct vgpu_driver *driver, struct vgpu_array *mipmap, uint32_t level, void **handle) {
  if (level >= mipmap->level_count) return CUDA_ERROR_INVALID_VALUE;
  if (mipmap->levels[level] == NULL) {
    struct vgpu_array *array = calloc(1, sizeof *array);
    if (array == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    bool deep = (mipmap->as.flags & (VGPU_ARRAY_LAYERED | VGPU_ARRAY_CUBEMAP)) == 0;
    array->number = mipmap->number;
    array->level = level;
    array->mipmap = mipmap;
    array->context = mipmap->context;
    array->context_number = mipmap->context_number;
    array->as = mipmap->as;
    array->as.width = vgpu_level_size(mipmap->as.width, level);
    array->as.height = vgpu_level_size(mipmap->as.height, level);
    if (deep) array->as.depth = vgpu_level_size(mipmap->as.depth, level);
    if (!vgpu_objects_add(&driver->objects, array, VGPU_OBJECT_ARRAY)) {
      free(array);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    mipmap->levels[level] = array;
  }
  *handle = mipmap->levels[level];
  return CUDA_SUCCESS;
}

int cuMipmappedArrayGetLevel(void **pLevelArray, void *hMipmappedArray, uint32_t level) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (pLevelArray == NULL) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&driver->lock);
  result = vgpu_objects_has(&driver->objects, hMipmappedArray, VGPU_OBJECT_MIPMAP)
               ? level_of(driver, hMipmappedArray, level, pLevelArray)
               : CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_unlock(&driver->lock);
  return result;
}

static int describe(void *handle, enum vgpu_object_kind kind, struct vgpu_array *array) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  return vgpu_array_take(driver, handle, kind, array) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

int cuArray3DGetDescriptor_v2(void *pArrayDescriptor, void *hArray) {
  struct vgpu_array array = {0};
  int result = describe(hArray, VGPU_OBJECT_ARRAY, &array);
  if (result != CUDA_SUCCESS) return result;
  if (pArrayDescriptor == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(pArrayDescriptor, &array.as, sizeof array.as);
  return CUDA_SUCCESS;
}

int cuArrayGetDescriptor_v2(void *pArrayDescriptor, void *hArray) {
  struct vgpu_array array = {0};
  int result = describe(hArray, VGPU_OBJECT_ARRAY, &array);
  if (result != CUDA_SUCCESS) return result;
  if (pArrayDescriptor == NULL) return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_flat_array_descriptor flat = {.width = array.as.width,
                                                  .height = array.as.height,
                                                  .format = array.as.format,
                                                  .channels = array.as.channels};
  memcpy(pArrayDescriptor, &flat, sizeof flat);
  return CUDA_SUCCESS;
}

/* Only arrays that are mapped later have memory requirements, and those are not carried. */
static int requirements_of(void *memoryRequirements, void *handle, enum vgpu_object_kind kind,
                           int32_t device) {
  struct vgpu_array array = {0};
  int result = describe(handle, kind, &array);
  if (result != CUDA_SUCCESS) return result;
  if (vgpu_cuda_device_facts(device) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  return memoryRequirements == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

int cuArrayGetMemoryRequirements(void *memoryRequirements, void *array, int32_t device) {
  return requirements_of(memoryRequirements, array, VGPU_OBJECT_ARRAY, device);
}

int cuMipmappedArrayGetMemoryRequirements(void *memoryRequirements, void *mipmap, int32_t device) {
  return requirements_of(memoryRequirements, mipmap, VGPU_OBJECT_MIPMAP, device);
}

int cuDeviceGetTexture1DLinearMaxWidth(size_t *maxWidthInElements, int32_t format, uint32_t numChannels,
                                       int32_t dev) {
  enum { MAXIMUM_TEXTURE1D_LINEAR_WIDTH = 69 };
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_device_facts *facts = vgpu_cuda_device_facts(dev);
  if (facts == NULL) return CUDA_ERROR_INVALID_DEVICE;
  bool known = vgpu_format_bytes(format) != 0 && (numChannels == 1 || numChannels == 2 || numChannels == 4);
  if (maxWidthInElements == NULL || !known) return CUDA_ERROR_INVALID_VALUE;
  *maxWidthInElements = (size_t)facts->attributes[MAXIMUM_TEXTURE1D_LINEAR_WIDTH];
  return CUDA_SUCCESS;
}

static bool of_context(void *handle, void *with) {
  struct vgpu_array *array = handle;
  if (array->context != (const struct vgpu_context *)with) return false;
  free(array);
  return true;
}

void vgpu_arrays_context_ended(struct vgpu_driver *driver, struct vgpu_context *context) {
  vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_ARRAY, of_context, context);
  vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_MIPMAP, of_context, context);
}
