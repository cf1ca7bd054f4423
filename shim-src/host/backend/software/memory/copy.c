#include <string.h>

#include "cuda_handlers.h"
#include "host/backend/software/software.h"

static int32_t write_memory(struct vgpu_worker *worker, uint64_t context, uint64_t stream,
                            uint64_t destination, const struct vgpu_bulk *bulk) {
  int32_t result = check_stream(worker, context, stream);
  if (result != CUDA_SUCCESS) return result;
  unsigned char *to = vgpu_memory_to_write(&software_of(worker)->memory, destination, bulk->in_size);
  if (to == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(to, bulk->in, bulk->in_size);
  return CUDA_SUCCESS;
}

static int32_t read_memory(struct vgpu_worker *worker, uint64_t context, uint64_t stream, uint64_t source,
                           uint64_t bytes, struct vgpu_bulk *bulk) {
  int32_t result = check_stream(worker, context, stream);
  if (result != CUDA_SUCCESS) return result;
  if (bytes > bulk->out_capacity) return CUDA_ERROR_INVALID_VALUE;
  unsigned char *from = vgpu_memory_at(&software_of(worker)->memory, source, bytes);
  if (from == NULL) return CUDA_ERROR_INVALID_VALUE;
  bulk->out = from; /* sent without a copy; nothing changes it before the reply is sent */
  bulk->out_size = (uint32_t)bytes;
  return CUDA_SUCCESS;
}

static int32_t move_memory(struct vgpu_worker *worker, uint64_t context, uint64_t stream,
                           uint64_t destination, uint64_t source, uint64_t bytes) {
  int32_t result = check_stream(worker, context, stream);
  if (result != CUDA_SUCCESS) return result;
  unsigned char *to = vgpu_memory_to_write(&software_of(worker)->memory, destination, bytes);
  const unsigned char *from = vgpu_memory_at(&software_of(worker)->memory, source, bytes);
  if (to == NULL || from == NULL) return CUDA_ERROR_INVALID_VALUE;
  memmove(to, from, bytes);
  return CUDA_SUCCESS;
}

static int32_t fill_memory(struct vgpu_worker *worker, uint64_t context, uint64_t stream, uint32_t width,
                           uint64_t destination, uint64_t count, uint32_t value) {
  int32_t result = check_stream(worker, context, stream);
  if (result != CUDA_SUCCESS) return result;
  uint64_t bytes;
  if (destination % width != 0 || __builtin_mul_overflow(count, width, &bytes))
    return CUDA_ERROR_INVALID_VALUE;
  unsigned char *to = vgpu_memory_to_write(&software_of(worker)->memory, destination, bytes);
  if (to == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (value == 0) {
    vgpu_memory_clear(to, bytes);
  } else if (width == 1) {
    memset(to, (int)(value & 0xff), bytes);
  } else {
    for (uint64_t i = 0; i < bytes; i += width) memcpy(to + i, &value, width);
  }
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuMemcpyHtoD_v2(struct vgpu_worker *worker,
                                      const struct vgpu_send_cuMemcpyHtoD_v2 *send, struct vgpu_bulk *bulk) {
  return write_memory(worker, send->context, 0, send->destination, bulk);
}

int32_t vgpu_software_cuMemcpyHtoDAsync_v2(struct vgpu_worker *worker,
                                           const struct vgpu_send_cuMemcpyHtoDAsync_v2 *send,
                                           struct vgpu_bulk *bulk) {
  return write_memory(worker, send->context, send->stream, send->destination, bulk);
}

int32_t vgpu_software_cuMemcpyDtoH_v2(struct vgpu_worker *worker,
                                      const struct vgpu_send_cuMemcpyDtoH_v2 *send, struct vgpu_bulk *bulk) {
  return read_memory(worker, send->context, 0, send->source, send->bytes, bulk);
}

int32_t vgpu_software_cuMemcpyDtoHAsync_v2(struct vgpu_worker *worker,
                                           const struct vgpu_send_cuMemcpyDtoHAsync_v2 *send,
                                           struct vgpu_bulk *bulk) {
  return read_memory(worker, send->context, send->stream, send->source, send->bytes, bulk);
}

int32_t vgpu_software_cuMemcpyDtoD_v2(struct vgpu_worker *worker,
                                      const struct vgpu_send_cuMemcpyDtoD_v2 *send) {
  return move_memory(worker, send->context, 0, send->destination, send->source, send->bytes);
}

int32_t vgpu_software_cuMemcpyDtoDAsync_v2(struct vgpu_worker *worker,
                                           const struct vgpu_send_cuMemcpyDtoDAsync_v2 *send) {
  return move_memory(worker, send->context, send->stream, send->destination, send->source, send->bytes);
}

#define FILL(name, width)                                                                                    \
  int32_t vgpu_software_##name(struct vgpu_worker *worker, const struct vgpu_send_##name *send) {            \
    return fill_memory(worker, send->context, 0, width, send->destination, send->count, send->value);        \
  }
#define FILL_ASYNC(name, width)                                                                              \
  int32_t vgpu_software_##name(struct vgpu_worker *worker, const struct vgpu_send_##name *send) {            \
    return fill_memory(worker, send->context, send->stream, width, send->destination, send->count,           \
                       send->value);                                                                         \
  }
FILL(cuMemsetD8_v2, 1)
FILL(cuMemsetD16_v2, 2)
FILL(cuMemsetD32_v2, 4)
FILL_ASYNC(cuMemsetD8Async, 1)
FILL_ASYNC(cuMemsetD16Async, 2)
FILL_ASYNC(cuMemsetD32Async, 4)

int32_t vgpu_software_write_rows(struct vgpu_worker *worker, const struct vgpu_send_write_rows *send,
                                 struct vgpu_bulk *bulk) {
  int32_t result = check_stream(worker, send->context, send->stream);
  if (result != CUDA_SUCCESS) return result;
  uint64_t span, bytes;
  if (!vgpu_box_span(send->width, send->pitch, send->rows, 0, 1, &span) ||
      __builtin_mul_overflow(send->width, send->rows, &bytes) || bytes != bulk->in_size) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  unsigned char *to = vgpu_memory_to_write(&software_of(worker)->memory, send->destination, span);
  if (to == NULL) return CUDA_ERROR_INVALID_VALUE;
  for (uint64_t i = 0; i < send->rows; i++) {
    memcpy(to + i * send->pitch, bulk->in + i * send->width, send->width);
  }
  return CUDA_SUCCESS;
}

int32_t vgpu_software_read_rows(struct vgpu_worker *worker, const struct vgpu_send_read_rows *send,
                                struct vgpu_bulk *bulk) {
  int32_t result = check_stream(worker, send->context, send->stream);
  if (result != CUDA_SUCCESS) return result;
  uint64_t span, bytes;
  if (!vgpu_box_span(send->width, send->pitch, send->rows, 0, 1, &span) ||
      __builtin_mul_overflow(send->width, send->rows, &bytes) || bytes > bulk->out_capacity) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const unsigned char *from = vgpu_memory_at(&software_of(worker)->memory, send->source, span);
  if (from == NULL) return CUDA_ERROR_INVALID_VALUE;
  for (uint64_t i = 0; i < send->rows; i++) {
    memcpy(bulk->out + i * send->width, from + i * send->pitch, send->width);
  }
  bulk->out_size = (uint32_t)bytes;
  return CUDA_SUCCESS;
}

int32_t vgpu_software_copy_box(struct vgpu_worker *worker, const struct vgpu_send_copy_box *send) {
  int32_t result = check_stream(worker, send->context, send->stream);
  if (result != CUDA_SUCCESS) return result;
  uint64_t to_span, from_span;
  if (!vgpu_box_span(send->width, send->destination_row, send->height, send->destination_slice, send->depth,
                     &to_span) ||
      !vgpu_box_span(send->width, send->source_row, send->height, send->source_slice, send->depth,
                     &from_span)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  unsigned char *to = vgpu_memory_to_write(&software_of(worker)->memory, send->destination, to_span);
  const unsigned char *from = vgpu_memory_at(&software_of(worker)->memory, send->source, from_span);
  if (to == NULL || from == NULL) return CUDA_ERROR_INVALID_VALUE;
  for (uint64_t z = 0; z < send->depth; z++) {
    for (uint64_t y = 0; y < send->height; y++) {
      memmove(to + z * send->destination_slice + y * send->destination_row,
              from + z * send->source_slice + y * send->source_row, send->width);
    }
  }
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuMemsetD2D8Async(struct vgpu_worker *worker,
                                        const struct vgpu_send_cuMemsetD2D8Async *send) {
  int32_t result = check_stream(worker, send->context, send->stream);
  if (result != CUDA_SUCCESS) return result;
  uint64_t row, span;
  if ((send->element != 1 && send->element != 2 && send->element != 4) ||
      __builtin_mul_overflow(send->width, (uint64_t)send->element, &row) ||
      !vgpu_box_span(row, send->pitch, send->height, 0, 1, &span) ||
      vgpu_memory_at(&software_of(worker)->memory, send->destination, span) == NULL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (uint64_t y = 0; y < send->height && result == CUDA_SUCCESS; y++) {
    result = fill_memory(worker, send->context, send->stream, send->element,
                         send->destination + y * send->pitch, send->width, send->value);
  }
  return result;
}
