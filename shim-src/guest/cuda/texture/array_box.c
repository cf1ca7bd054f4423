/* Boxes between arrays and memory of this process: rows are packed for the transfer. */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/memory/box.h"
#include "guest/cuda/memory/transfer.h"
#include "guest/cuda/texture/array.h"

static bool within(uint64_t from, uint64_t count, uint64_t size) {
  return from <= size && count <= size - from;
}

int vgpu_array_plain(const struct vgpu_transfer *transfer, const struct vgpu_box_side *side,
                     const struct vgpu_box *box, struct vgpu_box_plain *plain) {
  struct vgpu_array array;
  if (!vgpu_array_take(transfer->driver, side->array, VGPU_OBJECT_ARRAY, &array))
    return CUDA_ERROR_INVALID_HANDLE;
  const struct vgpu_array_descriptor *as = &array.as;
  uint64_t texel = (uint64_t)vgpu_format_bytes(as->format) * as->channels;
  /* A texel size of 0: only the host knows the format, and checks the width. */
  bool fits = (texel == 0 || within(side->x, box->width, as->width * texel)) &&
              within(side->y, box->height, as->height == 0 ? 1 : as->height) &&
              within(side->z, box->depth, as->depth == 0 ? 1 : as->depth);
  if (!fits || side->level != 0) return CUDA_ERROR_INVALID_VALUE;
  *plain = (struct vgpu_box_plain){.start = array.number,
                                   .device = true,
                                   .array = true,
                                   .level = array.level,
                                   .x = side->x,
                                   .y = side->y,
                                   .z = side->z};
  return CUDA_SUCCESS;
}

/* Copies some rows of one slice, or a piece of one row. `packed` has room for them. */
static int carry_piece(const struct vgpu_transfer *transfer, const struct vgpu_box_plain *array,
                       const struct vgpu_box_plain *memory, bool to_array, const uint64_t at[3], size_t width,
                       size_t rows, unsigned char *packed) {
  uint64_t start = memory->start + at[2] * memory->slice + at[1] * memory->row + at[0];
  uint32_t bytes = (uint32_t)(width * rows);
  struct vgpu_send_array_write send = {.context = transfer->context,
                                       .stream = transfer->stream,
                                       .array = array->start,
                                       .x = array->x + at[0],
                                       .y = array->y + at[1],
                                       .z = array->z + at[2],
                                       .width = width,
                                       .height = rows,
                                       .depth = 1,
                                       .level = array->level};
  if (!to_array) {
    _Static_assert(sizeof send == sizeof(struct vgpu_send_array_read), "one request");
    int result = vgpu_cuda_call_bulk(VGPU_OP_array_read, &send, sizeof send, packed, bytes);
    for (size_t i = 0; result == CUDA_SUCCESS && i < rows; i++)
      memcpy(vgpu_host_pointer(start + i * memory->row), packed + i * width, width);
    return result;
  }
  for (size_t i = 0; i < rows; i++)
    memcpy(packed + i * width, vgpu_host_pointer(start + i * memory->row), width);
  int result = vgpu_transfer_keep_pace(transfer, bytes);
  return result == CUDA_SUCCESS ? vgpu_cuda_post(VGPU_OP_array_write, &send, sizeof send, packed, bytes)
                                : result;
}

static int carry(const struct vgpu_transfer *transfer, const struct vgpu_box_plain *array,
                 const struct vgpu_box_plain *memory, bool to_array, const struct vgpu_box *box) {
  size_t width = box->width < VGPU_BULK_MAX ? box->width : VGPU_BULK_MAX;
  size_t most = VGPU_BULK_MAX / width, rows = box->height < most ? box->height : most;
  unsigned char *packed = malloc(width * rows);
  if (packed == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  int result = CUDA_SUCCESS;
  for (uint64_t z = 0; z < box->depth; z++) {
    for (uint64_t y = 0; y < box->height; y += rows) {
      size_t count = box->height - y < rows ? box->height - y : rows;
      for (uint64_t x = 0; x < box->width && result == CUDA_SUCCESS; x += width) {
        const uint64_t at[3] = {x, y, z};
        size_t step = box->width - x < width ? box->width - x : width;
        result = carry_piece(transfer, array, memory, to_array, at, step, count, packed);
      }
    }
  }
  free(packed);
  return result;
}

int vgpu_array_box(const struct vgpu_transfer *transfer, const struct vgpu_box_plain *destination,
                   const struct vgpu_box_plain *source, const struct vgpu_box *box) {
  if (!source->device) return carry(transfer, destination, source, true, box);
  if (!destination->device) return carry(transfer, source, destination, false, box);
  const struct vgpu_send_array_box send = {.context = transfer->context,
                                           .stream = transfer->stream,
                                           .destination = destination->start,
                                           .destination_row = destination->row,
                                           .destination_slice = destination->slice,
                                           .destination_x = destination->x,
                                           .destination_y = destination->y,
                                           .destination_z = destination->z,
                                           .source = source->start,
                                           .source_row = source->row,
                                           .source_slice = source->slice,
                                           .source_x = source->x,
                                           .source_y = source->y,
                                           .source_z = source->z,
                                           .width = box->width,
                                           .height = box->height,
                                           .depth = box->depth,
                                           .destination_level =
                                               destination->array ? (int32_t)destination->level : -1,
                                           .source_level = source->array ? (int32_t)source->level : -1};
  return vgpu_cuda_post(VGPU_OP_array_box, &send, sizeof send, NULL, 0);
}
