#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/memory/transfer.h"

static int fill(uint32_t opcode, uint32_t width, uint64_t destination, uint32_t value, size_t count) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, NULL, false);
  size_t bytes;
  if (result != CUDA_SUCCESS || count == 0) return result;
  if (destination % width != 0 || __builtin_mul_overflow(count, (size_t)width, &bytes) ||
      !vgpu_regions_is_device(&transfer.driver->regions, destination, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct vgpu_send_cuMemsetD8_v2 send = {
      .context = transfer.context, .destination = destination, .count = count, .value = value};
  result = vgpu_cuda_post(opcode, &send, sizeof send, NULL, 0);
  return result == CUDA_SUCCESS ? vgpu_transfer_arrive(&transfer, destination) : result;
}

static int fill_async(uint32_t opcode, uint32_t width, uint64_t destination, uint32_t value, size_t count,
                      struct vgpu_stream *stream) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, stream, true);
  size_t bytes;
  if (result != CUDA_SUCCESS || count == 0) return result;
  if (destination % width != 0 || __builtin_mul_overflow(count, (size_t)width, &bytes) ||
      !vgpu_regions_is_device(&transfer.driver->regions, destination, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct vgpu_send_cuMemsetD8Async send = {.context = transfer.context,
                                           .stream = transfer.stream,
                                           .destination = destination,
                                           .count = count,
                                           .value = value};
  return vgpu_cuda_post(opcode, &send, sizeof send, NULL, 0);
}

/*
 * Fills rows of `width` elements. Each row begins `pitch` bytes after the one before. Used for all widths,
 * also for asynchronous calls.
 */
static int fill_rows(uint32_t element, uint64_t destination, size_t pitch, uint32_t value, size_t width,
                     size_t height, struct vgpu_stream *stream, bool async) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, stream, async);
  if (result != CUDA_SUCCESS || width == 0 || height == 0) return result;
  size_t row, bytes;
  if (destination % element != 0 || __builtin_mul_overflow(width, (size_t)element, &row) ||
      (height > 1 && (pitch < row || pitch % element != 0)) ||
      __builtin_mul_overflow(height - 1, pitch, &bytes) || __builtin_add_overflow(bytes, row, &bytes) ||
      !vgpu_regions_is_device(&transfer.driver->regions, destination, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct vgpu_send_cuMemsetD2D8Async send = {.context = transfer.context,
                                             .stream = transfer.stream,
                                             .destination = destination,
                                             .pitch = pitch,
                                             .width = width,
                                             .height = height,
                                             .value = value,
                                             .element = element};
  result = vgpu_cuda_post(VGPU_OP_cuMemsetD2D8Async, &send, sizeof send, NULL, 0);
  return result == CUDA_SUCCESS ? vgpu_transfer_arrive(&transfer, destination) : result;
}

int cuMemsetD8_v2(uint64_t dstDevice, uint8_t uc, size_t N) {
  return fill(VGPU_OP_cuMemsetD8_v2, 1, dstDevice, uc, N);
}

int cuMemsetD16_v2(uint64_t dstDevice, uint16_t us, size_t N) {
  return fill(VGPU_OP_cuMemsetD16_v2, 2, dstDevice, us, N);
}

int cuMemsetD32_v2(uint64_t dstDevice, uint32_t ui, size_t N) {
  return fill(VGPU_OP_cuMemsetD32_v2, 4, dstDevice, ui, N);
}

int cuMemsetD8Async(uint64_t dstDevice, uint8_t uc, size_t N, struct vgpu_stream *hStream) {
  return fill_async(VGPU_OP_cuMemsetD8Async, 1, dstDevice, uc, N, hStream);
}

int cuMemsetD16Async(uint64_t dstDevice, uint16_t us, size_t N, struct vgpu_stream *hStream) {
  return fill_async(VGPU_OP_cuMemsetD16Async, 2, dstDevice, us, N, hStream);
}

int cuMemsetD32Async(uint64_t dstDevice, uint32_t ui, size_t N, struct vgpu_stream *hStream) {
  return fill_async(VGPU_OP_cuMemsetD32Async, 4, dstDevice, ui, N, hStream);
}

int cuMemsetD2D8_v2(uint64_t dstDevice, size_t dstPitch, uint8_t uc, size_t Width, size_t Height) {
  return fill_rows(1, dstDevice, dstPitch, uc, Width, Height, NULL, false);
}

int cuMemsetD2D16_v2(uint64_t dstDevice, size_t dstPitch, uint16_t us, size_t Width, size_t Height) {
  return fill_rows(2, dstDevice, dstPitch, us, Width, Height, NULL, false);
}

int cuMemsetD2D32_v2(uint64_t dstDevice, size_t dstPitch, uint32_t ui, size_t Width, size_t Height) {
  return fill_rows(4, dstDevice, dstPitch, ui, Width, Height, NULL, false);
}

int cuMemsetD2D8Async(uint64_t dstDevice, size_t dstPitch, uint8_t uc, size_t Width, size_t Height,
                      struct vgpu_stream *hStream) {
  return fill_rows(1, dstDevice, dstPitch, uc, Width, Height, hStream, true);
}

int cuMemsetD2D16Async(uint64_t dstDevice, size_t dstPitch, uint16_t us, size_t Width, size_t Height,
                       struct vgpu_stream *hStream) {
  return fill_rows(2, dstDevice, dstPitch, us, Width, Height, hStream, true);
}

int cuMemsetD2D32Async(uint64_t dstDevice, size_t dstPitch, uint32_t ui, size_t Width, size_t Height,
                       struct vgpu_stream *hStream) {
  return fill_rows(4, dstDevice, dstPitch, ui, Width, Height, hStream, true);
}
