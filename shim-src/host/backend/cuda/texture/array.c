/* Arrays of the host's GPU. The driver checks their descriptions. Addresses of memory are checked here. */
#include "host/backend/cuda/texture/texture.h"

#include <stdlib.h>
#include <string.h>

#include "api/structures.h"

/* Estimates the size of an array, because the driver reports it only after it has made the array. */
static bool estimate(const struct vgpu_send_cuArray3DCreate_v2 *send, uint64_t *bytes) {
  uint64_t texel = (uint64_t)vgpu_format_bytes(send->format) * send->channels;
  uint64_t rows = send->height == 0 ? 1 : send->height, slices = send->depth == 0 ? 1 : send->depth;
  if (texel == 0) texel = 16; /* a format that only the driver knows */
  if (__builtin_mul_overflow(send->width, texel, bytes) || __builtin_mul_overflow(*bytes, rows, bytes) ||
      __builtin_mul_overflow(*bytes, slices, bytes)) {
    return false;
  }
  /* Each level of a mipmap has at most half the size of the one before. */
  return send->levels < 2 || !__builtin_mul_overflow(*bytes, (uint64_t)2, bytes);
}

static int32_t create(const struct vgpu_driver_api *api, const struct vgpu_send_cuArray3DCreate_v2 *send,
                      void **array) {
  const struct vgpu_array_descriptor descriptor = {.width = send->width,
                                                   .height = send->height,
                                                   .depth = send->depth,
                                                   .format = send->format,
                                                   .channels = send->channels,
                                                   .flags = send->flags};
  return send->levels == 0 ? VGPU_DRIVER(api, cuArray3DCreate_v2, array, &descriptor)
                           : VGPU_DRIVER(api, cuMipmappedArrayCreate, array, &descriptor, send->levels);
}

static int32_t destroy(const struct vgpu_driver_api *api, const struct vgpu_cuda_array *array) {
  return array->level_count == 0 ? VGPU_DRIVER(api, cuArrayDestroy, array->array)
                                 : VGPU_DRIVER(api, cuMipmappedArrayDestroy, array->array);
}

static int32_t end_array(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  int32_t result = destroy(api, ending->object);
  free(ending->object);
  return result;
}

int32_t vgpu_cuda_cuArray3DCreate_v2(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuArray3DCreate_v2 *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  uint64_t bytes;
  if (!estimate(send, &bytes) || bytes == 0 || send->levels > 64) return CUDA_ERROR_INVALID_VALUE;
  if ((send->flags & ~(uint32_t)VGPU_ARRAY_KNOWN) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const struct vgpu_handle *context = vgpu_handles_find(&worker->handles, send->context, VGPU_HANDLE_CONTEXT);
  struct vgpu_cuda_array *array = calloc(1, sizeof *array);
  if (array == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  array->device = context->device;
  array->counted = bytes;
  array->level_count = send->levels < VGPU_ARRAY_LEVELS_MOST ? send->levels : VGPU_ARRAY_LEVELS_MOST;
  if (cuda->ranges.count + worker->handles.count >= worker->limits->session_handles ||
      !vgpu_accounts_take(worker->accounts, worker->slot, array->device, bytes,
                          worker->limits->session_memory)) {
    free(array);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  result = create(&cuda->api, send, &array->array);
  if (result == CUDA_SUCCESS &&
      !vgpu_cuda_remember(worker, send->array, VGPU_HANDLE_ARRAY, send->context, array->array)) {
    (void)vgpu_cuda_end(worker, &(struct vgpu_cuda_ending){.end = end_array,
                                                           .context = context->driver,
                                                           .object = array,
                                                           .device = array->device,
                                                           .counted = bytes});
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_SUCCESS) {
    vgpu_handles_find(&worker->handles, send->array, VGPU_HANDLE_ARRAY)->object = array;
  } else {
    vgpu_accounts_give(worker->accounts, worker->slot, array->device, bytes);
    free(array);
  }
  return result;
}

struct vgpu_cuda_array *vgpu_cuda_array_find(struct vgpu_worker *worker, uint64_t number) {
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, number, VGPU_HANDLE_ARRAY);
  return handle == NULL ? NULL : handle->object;
}

void *vgpu_cuda_array_level(struct vgpu_worker *worker, uint64_t number, uint32_t level) {
  struct vgpu_cuda_array *array = vgpu_cuda_array_find(worker, number);
  if (array == NULL) return NULL;
  if (array->level_count == 0) return level == 0 ? array->array : NULL;
  if (level >= array->level_count) return NULL;
  if (array->levels[level] == NULL) {
    void *made = NULL;
    int32_t result = VGPU_DRIVER(&cuda_of(worker)->api, cuMipmappedArrayGetLevel, &made, array->array, level);
    if (result == CUDA_SUCCESS) array->levels[level] = made;
  }
  return array->levels[level];
}

int32_t vgpu_cuda_cuArrayDestroy(struct vgpu_worker *worker, const struct vgpu_send_cuArrayDestroy *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_cuda_array *array = vgpu_cuda_array_find(worker, send->array);
  if (array == NULL) return CUDA_ERROR_INVALID_HANDLE;
  vgpu_handles_remove(&worker->handles, send->array, VGPU_HANDLE_ARRAY);
  return vgpu_cuda_end(worker, &(struct vgpu_cuda_ending){
                                   .end = end_array,
                                   .context = vgpu_cuda_object(worker, send->context, VGPU_HANDLE_CONTEXT),
                                   .object = array,
                                   .device = array->device,
                                   .counted = array->counted});
}

void vgpu_cuda_arrays_drop(struct vgpu_worker *worker, uint64_t context) {
  for (size_t i = 0; i < worker->handles.capacity; i++) {
    struct vgpu_handle *handle = &worker->handles.places[i];
    if (handle->number == 0 || handle->type != VGPU_HANDLE_ARRAY || handle->context != context) continue;
    struct vgpu_cuda_array *array = handle->object;
    vgpu_accounts_give(worker->accounts, worker->slot, array->device, array->counted);
    free(array);
    handle->object = NULL; /* the handle is removed with its context, right after this */
  }
}

/* ---- copies -------------------------------------------------------------- */

static bool box_bytes(uint64_t width, uint64_t height, uint64_t depth, uint64_t *bytes) {
  return width != 0 && height != 0 && depth != 0 && !__builtin_mul_overflow(width, height, bytes) &&
         !__builtin_mul_overflow(*bytes, depth, bytes);
}

static int32_t in_array(struct vgpu_worker *worker, uint64_t number, uint32_t level, uint64_t x, uint64_t y,
                        uint64_t z, struct vgpu_box_side *side) {
  void *array = vgpu_cuda_array_level(worker, number, level);
  if (array == NULL) return CUDA_ERROR_INVALID_HANDLE;
  *side = (struct vgpu_box_side){.x = x, .y = y, .z = z, .type = VGPU_MEMORY_ARRAY, .array = array};
  return CUDA_SUCCESS;
}

int32_t vgpu_cuda_array_write(struct vgpu_worker *worker, const struct vgpu_send_array_write *send,
                              struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  uint64_t bytes;
  struct vgpu_box copy = {.width = send->width, .height = send->height, .depth = send->depth};
  int32_t result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!box_bytes(send->width, send->height, send->depth, &bytes) || bytes != bulk->in_size)
    return CUDA_ERROR_INVALID_VALUE;
  result = in_array(worker, send->array, send->level, send->x, send->y, send->z, &copy.destination);
  if (result != CUDA_SUCCESS) return result;
  /* A frame is not pinned memory, so the driver has read the bytes when this returns. */
  const void *from = vgpu_cuda_stage(worker, send->context, stream, bulk->in, bulk->in_size);
  copy.source = (struct vgpu_box_side){
      .type = VGPU_MEMORY_HOST, .host = from, .pitch = send->width, .height = send->height};
  result = VGPU_DRIVER(&cuda->api, cuMemcpy3DAsync_v2, &copy, stream);
  return vgpu_cuda_staged(worker, stream, from, result);
}

int32_t vgpu_cuda_array_read(struct vgpu_worker *worker, const struct vgpu_send_array_read *send,
                             struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  uint64_t bytes;
  struct vgpu_box copy = {.width = send->width, .height = send->height, .depth = send->depth};
  int32_t result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!box_bytes(send->width, send->height, send->depth, &bytes) || bytes > bulk->out_capacity)
    return CUDA_ERROR_INVALID_VALUE;
  result = in_array(worker, send->array, send->level, send->x, send->y, send->z, &copy.source);
  return result == CUDA_SUCCESS ? vgpu_cuda_copy_out(worker, send->context, stream, &copy, bulk) : result;
}

/* Makes memory at an address a side of a box. */
static int32_t in_memory(const struct vgpu_cuda *cuda, uint64_t address, uint64_t row, uint64_t slice,
                         const struct vgpu_send_array_box *send, struct vgpu_box_side *side) {
  uint64_t span;
  if (!vgpu_cuda_box_span(send->width, row, send->height, slice, send->depth, &span) ||
      !vgpu_ranges_hold(&cuda->ranges, address, span)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  bool flat = send->depth == 1, line = flat && send->height == 1;
  *side = (struct vgpu_box_side){.type = VGPU_MEMORY_DEVICE,
                                 .device = address,
                                 .pitch = line ? send->width : row,
                                 .height = flat ? send->height : slice / row};
  return CUDA_SUCCESS;
}

int32_t vgpu_cuda_array_box(struct vgpu_worker *worker, const struct vgpu_send_array_box *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  struct vgpu_box copy = {.width = send->width, .height = send->height, .depth = send->depth};
  int32_t result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
  if (result == CUDA_SUCCESS) {
    result = send->destination_level < 0
                 ? in_memory(cuda, send->destination, send->destination_row, send->destination_slice, send,
                             &copy.destination)
                 : in_array(worker, send->destination, (uint32_t)send->destination_level, send->destination_x,
                            send->destination_y, send->destination_z, &copy.destination);
  }
  if (result == CUDA_SUCCESS) {
    result = send->source_level < 0
                 ? in_memory(cuda, send->source, send->source_row, send->source_slice, send, &copy.source)
                 : in_array(worker, send->source, (uint32_t)send->source_level, send->source_x,
                            send->source_y, send->source_z, &copy.source);
  }
  return result == CUDA_SUCCESS ? VGPU_DRIVER(&cuda->api, cuMemcpy3DAsync_v2, &copy, stream) : result;
}
