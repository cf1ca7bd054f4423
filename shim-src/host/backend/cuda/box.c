/* Copies and fills in two and three dimensions on the host's GPU. */
#include "api/structures.h"
#include "host/backend/common/box.h"
#include "host/backend/cuda/session.h"

bool vgpu_cuda_box_span(uint64_t width, uint64_t row, uint64_t rows, uint64_t slice, uint64_t slices,
                        uint64_t *span) {
  return vgpu_box_span(width, row, rows, slice, slices, span) &&
         (slices == 1 || (row != 0 && slice % row == 0));
}

static int32_t check_rows(const struct vgpu_cuda *cuda, uint64_t address, uint64_t pitch, uint64_t width,
                          uint64_t rows, uint64_t *bytes) {
  uint64_t span;
  return vgpu_cuda_box_span(width, pitch, rows, 0, 1, &span) && !__builtin_mul_overflow(width, rows, bytes) &&
                 vgpu_ranges_hold(&cuda->ranges, address, span)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

int32_t vgpu_cuda_write_rows(struct vgpu_worker *worker, const struct vgpu_send_write_rows *send,
                             struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  uint64_t bytes = 0;
  int32_t result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
  if (result == CUDA_SUCCESS) {
    result = check_rows(cuda, send->destination, send->pitch, send->width, send->rows, &bytes);
  }
  if (result != CUDA_SUCCESS) return result;
  if (bytes != bulk->in_size) return CUDA_ERROR_INVALID_VALUE;
  /* A frame is not pinned memory, so the driver has read the bytes when this returns. */
  const void *from = vgpu_cuda_stage(worker, send->context, stream, bulk->in, bulk->in_size);
  struct vgpu_flat_box copy = {.source = {.type = VGPU_MEMORY_HOST, .host = from, .pitch = send->width},
                               .destination = {.type = VGPU_MEMORY_DEVICE,
                                               .device = send->destination,
                                               .pitch = send->rows == 1 ? send->width : send->pitch},
                               .width = send->width,
                               .height = send->rows};
  result = VGPU_DRIVER(&cuda->api, cuMemcpy2DAsync_v2, &copy, stream);
  return vgpu_cuda_staged(worker, stream, from, result);
}

int32_t vgpu_cuda_read_rows(struct vgpu_worker *worker, const struct vgpu_send_read_rows *send,
                            struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  uint64_t bytes = 0;
  int32_t result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
  if (result == CUDA_SUCCESS) {
    result = check_rows(cuda, send->source, send->pitch, send->width, send->rows, &bytes);
  }
  if (result != CUDA_SUCCESS) return result;
  if (bytes > bulk->out_capacity) return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_box box = {.source = {.type = VGPU_MEMORY_DEVICE,
                                          .device = send->source,
                                          .pitch = send->rows == 1 ? send->width : send->pitch,
                                          .height = send->rows},
                               .width = send->width,
                               .height = send->rows,
                               .depth = 1};
  return vgpu_cuda_copy_out(worker, send->context, stream, &box, bulk);
}

int32_t vgpu_cuda_copy_box(struct vgpu_worker *worker, const struct vgpu_send_copy_box *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
  if (result != CUDA_SUCCESS) return result;
  uint64_t to, from;
  if (!vgpu_cuda_box_span(send->width, send->destination_row, send->height, send->destination_slice,
                          send->depth, &to) ||
      !vgpu_cuda_box_span(send->width, send->source_row, send->height, send->source_slice, send->depth,
                          &from) ||
      !vgpu_ranges_hold(&cuda->ranges, send->destination, to) ||
      !vgpu_ranges_hold(&cuda->ranges, send->source, from)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  bool flat = send->depth == 1, line = flat && send->height == 1;
  struct vgpu_box copy = {
      .source = {.type = VGPU_MEMORY_DEVICE,
                 .device = send->source,
                 .pitch = line ? send->width : send->source_row,
                 .height = flat ? send->height : send->source_slice / send->source_row},
      .destination = {.type = VGPU_MEMORY_DEVICE,
                      .device = send->destination,
                      .pitch = line ? send->width : send->destination_row,
                      .height = flat ? send->height : send->destination_slice / send->destination_row},
      .width = send->width,
      .height = send->height,
      .depth = send->depth};
  return VGPU_DRIVER(&cuda->api, cuMemcpy3DAsync_v2, &copy, stream);
}

int32_t vgpu_cuda_cuMemsetD2D8Async(struct vgpu_worker *worker,
                                    const struct vgpu_send_cuMemsetD2D8Async *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
  if (result != CUDA_SUCCESS) return result;
  uint64_t row, bytes;
  if ((send->element != 1 && send->element != 2 && send->element != 4) ||
      send->destination % send->element != 0 || __builtin_mul_overflow(send->width, send->element, &row)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  result = check_rows(cuda, send->destination, send->pitch, row, send->height, &bytes);
  if (result != CUDA_SUCCESS) return result;
  uint64_t pitch = send->height == 1 ? row : send->pitch;
  switch (send->element) {
    case 1:
      return VGPU_DRIVER(&cuda->api, cuMemsetD2D8Async, send->destination, pitch, (uint8_t)send->value,
                         send->width, send->height, stream);
    case 2:
      return VGPU_DRIVER(&cuda->api, cuMemsetD2D16Async, send->destination, pitch, (uint16_t)send->value,
                         send->width, send->height, stream);
    default:
      return VGPU_DRIVER(&cuda->api, cuMemsetD2D32Async, send->destination, pitch, send->value, send->width,
                         send->height, stream);
  }
}
