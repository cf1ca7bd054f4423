#include <stdlib.h>
#include <string.h>

#include "api/device_attributes.h"
#include "cuda_handlers.h"
#include "host/backend/software/software.h"
#include "host/log.h"
#include "host/backend/software/texture/texture.h"

#define ROW_ALIGNMENT 64u

bool vgpu_format_texel(int32_t format, enum ptx_texel *texel, bool *normalized) {
  *normalized = format >= 0xc0;
  switch (vgpu_format_bytes(format)) {
    case 1:
      *texel = format == 0x01 || (format >= 0xc0 && format <= 0xc2) ? TEXEL_U8 : TEXEL_S8;
      return true;
    case 2:
      *texel = format == 0x10                                         ? TEXEL_F16
               : format == 0x02 || (format >= 0xc3 && format <= 0xc5) ? TEXEL_U16
                                                                      : TEXEL_S16;
      return true;
    case 4:
      *texel = format == 0x03 ? TEXEL_U32 : format == 0x0a ? TEXEL_S32 : TEXEL_F32;
      return true;
    default:
      return false;
  }
}

/* UNORM and SNORM formats define the number of channels. */
static bool channels_fit(int32_t format, uint32_t channels) {
  static const uint8_t counts[] = {1, 2, 4};
  if (channels != 1 && channels != 2 && channels != 4) return false;
  return format < 0xc0 || counts[(format - 0xc0) % 3] == channels;
}

/* True if `size` is within an attribute. An attribute that the profile does not have is no limit. */
static bool at_most(const struct vgpu_device_profile *device, int attribute, uint64_t size) {
  return device->attributes[attribute] <= 0 || size <= (uint64_t)device->attributes[attribute];
}

static bool fits_device(const struct vgpu_device_profile *device,
                        const struct vgpu_send_cuArray3DCreate_v2 *send) {
  bool layered = (send->flags & VGPU_ARRAY_LAYERED) != 0, mipmapped = send->levels > 0;
  uint64_t w = send->width, h = send->height, d = send->depth;
  if ((send->flags & VGPU_ARRAY_CUBEMAP) != 0) {
    if (w != h || d % 6 != 0 || d == 0 || (!layered && d != 6)) return false;
    return layered ? at_most(device, VGPU_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, w) &&
                         at_most(device, VGPU_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS, d)
                   : at_most(device, VGPU_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH, w);
  }
  if (layered && h == 0) {
    return d > 0 && at_most(device, VGPU_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, w) &&
           at_most(device, VGPU_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS, d);
  }
  if (layered) {
    return d > 0 && at_most(device, VGPU_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH, w) &&
           at_most(device, VGPU_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH + 1, h) &&
           at_most(device, VGPU_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH + 2, d);
  }
  if (d > 0) {
    if (h == 0) return false;
    bool first = true, other = true;
    const uint64_t sizes[] = {w, h, d};
    for (int i = 0; i < 3; i++) {
      first = first && at_most(device, VGPU_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH + i, sizes[i]);
      other = other && at_most(device, VGPU_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE + i, sizes[i]);
    }
    return first || other;
  }
  if (h == 0)
    return at_most(device,
                   mipmapped ? VGPU_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH
                             : VGPU_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH,
                   w);
  int limit = mipmapped                                ? VGPU_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH
              : (send->flags & VGPU_ARRAY_GATHER) != 0 ? VGPU_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH
                                                       : VGPU_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH;
  return at_most(device, limit, w) && at_most(device, limit + 1, h);
}

/* Lays the levels out one after the other. False: they are too large. */
static bool lay_out(struct vgpu_array *array, const struct vgpu_send_cuArray3DCreate_v2 *send) {
  uint64_t end = 0;
  for (uint32_t i = 0; i < array->level_count; i++) {
    struct ptx_level *level = &array->levels[i];
    uint64_t width = vgpu_level_size(send->width, i), height = vgpu_level_size(send->height, i);
    uint64_t depth = array->deep ? vgpu_level_size(send->depth, i) : send->depth, bytes;
    level->width = (uint32_t)width;
    level->height = height == 0 ? 1 : (uint32_t)height;
    level->depth = depth == 0 ? 1 : (uint32_t)depth;
    uint64_t row = width * array->channels * ptx_texel_bytes((enum ptx_texel)array->texel);
    level->row = (row + ROW_ALIGNMENT - 1) / ROW_ALIGNMENT * ROW_ALIGNMENT;
    /* A row has at most 33 bits, and a slice 53. */
    level->slice = level->row * level->height;
    if (__builtin_mul_overflow(level->slice, (uint64_t)level->depth, &bytes) ||
        __builtin_add_overflow(end, bytes, &end)) {
      return false;
    }
  }
  array->counted = vgpu_memory_rounded(end);
  return array->counted != 0;
}

static void place_levels(struct vgpu_array *array) {
  unsigned char *at = array->memory;
  for (uint32_t i = 0; i < array->level_count; i++) {
    array->levels[i].bytes = at;
    at += array->levels[i].slice * array->levels[i].depth;
  }
}

static int32_t check_request(const struct vgpu_worker *worker, const struct vgpu_device_profile *device,
                             const struct vgpu_send_cuArray3DCreate_v2 *send) {
  if (send->width == 0 || send->width > 1u << 28 || send->height > 1u << 20 || send->depth > 1u << 20)
    return CUDA_ERROR_INVALID_VALUE;
  if ((send->flags & ~(uint32_t)VGPU_ARRAY_KNOWN) != 0 || vgpu_format_bytes(send->format) == 0) {
    vgpu_host_log("refused", worker->session,
                  "an array of format 0x%x with flags 0x%x: compressed and planar formats, sparse and "
                  "deferred-mapping arrays are not supported",
                  (unsigned)send->format, send->flags);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!channels_fit(send->format, send->channels)) return CUDA_ERROR_INVALID_VALUE;
  return fits_device(device, send) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int32_t vgpu_software_cuArray3DCreate_v2(struct vgpu_worker *worker,
                                         const struct vgpu_send_cuArray3DCreate_v2 *send) {
  const struct vgpu_handle *context = find_context(worker, send->context);
  if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  uint32_t device = context->device;
  int32_t result = check_request(worker, &worker->inventory->profiles->devices[device], send);
  if (result != CUDA_SUCCESS) return result;
  if (send->array < SPECIAL_STREAMS) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_array *array = calloc(1, sizeof *array);
  if (array == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  enum ptx_texel texel;
  vgpu_format_texel(send->format, &texel, &array->normalized);
  uint64_t longest = send->width > send->height ? send->width : send->height;
  array->users = 1;
  array->device = device;
  array->texel = (uint8_t)texel;
  array->channels = (uint8_t)send->channels;
  array->cube = (send->flags & VGPU_ARRAY_CUBEMAP) != 0;
  array->layered = (send->flags & VGPU_ARRAY_LAYERED) != 0;
  array->writable = (send->flags & VGPU_ARRAY_SURFACE) != 0;
  array->deep = send->depth > 0 && !array->cube && !array->layered;
  if (array->deep && send->depth > longest) longest = send->depth;
  uint32_t most = 64 - (uint32_t)__builtin_clzll(longest);
  if (most > VGPU_ARRAY_LEVELS_MOST) most = VGPU_ARRAY_LEVELS_MOST;
  array->mipmapped = send->levels > 0;
  array->level_count = send->levels == 0 ? 1 : send->levels < most ? send->levels : most;
  bool counted =
      lay_out(array, send) &&
      software_of(worker)->memory.count + worker->handles.count < worker->limits->session_handles &&
      vgpu_accounts_take(worker->accounts, worker->slot, device, array->counted,
                         worker->limits->session_memory);
  array->memory = counted ? vgpu_memory_take(array->counted) : NULL;
  struct vgpu_handle *handle =
      array->memory == NULL ? NULL : vgpu_handles_add(&worker->handles, send->array, VGPU_HANDLE_ARRAY);
  if (handle == NULL) {
    if (array->memory != NULL) vgpu_memory_give(array->memory, array->counted);
    if (counted) vgpu_accounts_give(worker->accounts, worker->slot, device, array->counted);
    free(array);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  place_levels(array);
  handle->context = send->context;
  handle->device = device;
  handle->object = array;
  return CUDA_SUCCESS;
}

struct vgpu_array *vgpu_array_find(struct vgpu_worker *worker, uint64_t number) {
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, number, VGPU_HANDLE_ARRAY);
  return handle == NULL ? NULL : handle->object;
}

void vgpu_array_release(struct vgpu_worker *worker, struct vgpu_array *array) {
  if (array == NULL || --array->users > 0) return;
  vgpu_accounts_give(worker->accounts, worker->slot, array->device, array->counted);
  vgpu_memory_give(array->memory, array->counted);
  free(array);
}

int32_t vgpu_software_cuArrayDestroy(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuArrayDestroy *send) {
  struct vgpu_array *array = vgpu_array_find(worker, send->array);
  if (array == NULL) return CUDA_ERROR_INVALID_HANDLE;
  vgpu_handles_remove(&worker->handles, send->array, VGPU_HANDLE_ARRAY);
  vgpu_array_release(worker, array);
  return CUDA_SUCCESS;
}

/* A box within a level or within memory. */
struct side {
  unsigned char *at;
  uint64_t row, slice;
};

struct box {
  uint64_t x, y, z, width, height, depth;
};

static bool along(uint64_t from, uint64_t count, uint64_t size) {
  return count > 0 && from <= size && count <= size - from;
}

static int32_t in_array(struct vgpu_worker *worker, uint64_t number, uint32_t level, const struct box *box,
                        struct side *side) {
  const struct vgpu_array *array = vgpu_array_find(worker, number);
  if (array == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (level >= array->level_count) return CUDA_ERROR_INVALID_VALUE;
  const struct ptx_level *l = &array->levels[level];
  uint64_t row = (uint64_t)l->width * array->channels * ptx_texel_bytes((enum ptx_texel)array->texel);
  if (!along(box->x, box->width, row) || !along(box->y, box->height, l->height) ||
      !along(box->z, box->depth, l->depth)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *side = (struct side){
      .at = l->bytes + box->z * l->slice + box->y * l->row + box->x, .row = l->row, .slice = l->slice};
  return CUDA_SUCCESS;
}

static int32_t in_memory(struct vgpu_worker *worker, uint64_t address, uint64_t row, uint64_t slice,
                         const struct box *box, bool writes, struct side *side) {
  uint64_t span;
  if (!vgpu_box_span(box->width, row, box->height, slice, box->depth, &span)) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_memory *memory = &software_of(worker)->memory;
  *side = (struct side){.at = writes ? vgpu_memory_to_write(memory, address, span)
                                     : vgpu_memory_at(memory, address, span),
                        .row = row,
                        .slice = slice};
  return side->at == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static void copy(const struct side *to, const struct side *from, const struct box *box) {
  for (uint64_t z = 0; z < box->depth; z++) {
    for (uint64_t y = 0; y < box->height; y++) {
      memmove(to->at + z * to->slice + y * to->row, from->at + z * from->slice + y * from->row, box->width);
    }
  }
}

static bool packed_bytes(const struct box *box, uint64_t *bytes) {
  return !__builtin_mul_overflow(box->width, box->height, bytes) &&
         !__builtin_mul_overflow(*bytes, box->depth, bytes);
}

int32_t vgpu_software_array_write(struct vgpu_worker *worker, const struct vgpu_send_array_write *send,
                                  struct vgpu_bulk *bulk) {
  const struct box box = {send->x, send->y, send->z, send->width, send->height, send->depth};
  struct side to;
  uint64_t bytes;
  int32_t result = check_stream(worker, send->context, send->stream);
  if (result == CUDA_SUCCESS) result = in_array(worker, send->array, send->level, &box, &to);
  if (result != CUDA_SUCCESS) return result;
  if (!packed_bytes(&box, &bytes) || bytes != bulk->in_size) return CUDA_ERROR_INVALID_VALUE;
  const struct side from = {(unsigned char *)(uintptr_t)bulk->in, box.width, box.width * box.height};
  copy(&to, &from, &box);
  return CUDA_SUCCESS;
}

int32_t vgpu_software_array_read(struct vgpu_worker *worker, const struct vgpu_send_array_read *send,
                                 struct vgpu_bulk *bulk) {
  const struct box box = {send->x, send->y, send->z, send->width, send->height, send->depth};
  struct side from;
  uint64_t bytes;
  int32_t result = check_stream(worker, send->context, send->stream);
  if (result == CUDA_SUCCESS) result = in_array(worker, send->array, send->level, &box, &from);
  if (result != CUDA_SUCCESS) return result;
  if (!packed_bytes(&box, &bytes) || bytes > bulk->out_capacity) return CUDA_ERROR_INVALID_VALUE;
  const struct side to = {bulk->out, box.width, box.width * box.height};
  copy(&to, &from, &box);
  bulk->out_size = (uint32_t)bytes;
  return CUDA_SUCCESS;
}

int32_t vgpu_software_array_box(struct vgpu_worker *worker, const struct vgpu_send_array_box *send) {
  const struct box to_box = {send->destination_x, send->destination_y, send->destination_z,
                             send->width,         send->height,        send->depth};
  const struct box from_box = {send->source_x, send->source_y, send->source_z,
                               send->width,    send->height,   send->depth};
  struct side to, from;
  int32_t result = check_stream(worker, send->context, send->stream);
  if (result == CUDA_SUCCESS) {
    result = send->destination_level < 0
                 ? in_memory(worker, send->destination, send->destination_row, send->destination_slice,
                             &to_box, true, &to)
                 : in_array(worker, send->destination, (uint32_t)send->destination_level, &to_box, &to);
  }
  if (result == CUDA_SUCCESS) {
    result =
        send->source_level < 0
            ? in_memory(worker, send->source, send->source_row, send->source_slice, &from_box, false, &from)
            : in_array(worker, send->source, (uint32_t)send->source_level, &from_box, &from);
  }
  if (result == CUDA_SUCCESS) copy(&to, &from, &to_box);
  return result;
}
