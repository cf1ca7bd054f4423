/*
 * Copies. To the device: one-way, in pieces of VGPU_BULK_MAX; the bytes are on their way when the call
 * returns, so the program may change them. From the device: waited for, except asynchronous ones into
 * pinned memory (readback.h).
 */
#include "guest/cuda/transfer.h"

#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/graph.h"

int vgpu_transfer_begin(struct vgpu_transfer *transfer, struct vgpu_stream *stream, bool async) {
  int result;
  *transfer = (struct vgpu_transfer){.driver = vgpu_cuda_driver(&result), .async = async};
  if (transfer->driver == NULL) return result;
  result = vgpu_cuda_context_number(&transfer->context);
  if (result != VGPU_CUDA_SUCCESS) return result;
  if (async) return vgpu_cuda_stream_number(transfer->driver, stream, &transfer->stream);
  vgpu_host_functions_wait(transfer->driver, 0);
  return VGPU_CUDA_SUCCESS;
}

static bool is_device(const struct vgpu_transfer *transfer, uint64_t address, size_t bytes) {
  return vgpu_regions_is_device(&transfer->driver->regions, address, bytes);
}

static uint32_t piece(size_t left) {
  return left < VGPU_BULK_MAX ? (uint32_t)left : VGPU_BULK_MAX;
}

int vgpu_transfer_to_device(const struct vgpu_transfer *transfer, uint64_t destination, const void *source,
                            size_t bytes) {
  if (bytes == 0) return VGPU_CUDA_SUCCESS;
  if (source == NULL || !is_device(transfer, destination, bytes)) return VGPU_CUDA_INVALID_VALUE;
  /* What a read before this one brings there is what must go. */
  int result = vgpu_readback_flush(transfer->driver, source, bytes);
  for (const unsigned char *at = source; result == VGPU_CUDA_SUCCESS && bytes > 0;) {
    uint32_t step = piece(bytes);
    if (transfer->async) {
      struct vgpu_send_cuMemcpyHtoDAsync_v2 send = {
          .context = transfer->context, .stream = transfer->stream, .destination = destination};
      result = vgpu_cuda_post(VGPU_OP_cuMemcpyHtoDAsync_v2, &send, sizeof send, at, step);
    } else {
      struct vgpu_send_cuMemcpyHtoD_v2 send = {.context = transfer->context, .destination = destination};
      result = vgpu_cuda_post(VGPU_OP_cuMemcpyHtoD_v2, &send, sizeof send, at, step);
    }
    destination += step;
    at += step;
    bytes -= step;
  }
  return result;
}

static bool is_pinned(const struct vgpu_transfer *transfer, const void *memory, size_t bytes) {
  struct vgpu_region region;
  uint64_t start = (uint64_t)(uintptr_t)memory;
  return vgpu_regions_find(&transfer->driver->regions, start, &region) && !vgpu_region_on_device(&region) &&
         bytes <= region.size - (start - region.start);
}

int vgpu_transfer_from_device(const struct vgpu_transfer *transfer, void *destination, uint64_t source,
                              size_t bytes) {
  if (bytes == 0) return VGPU_CUDA_SUCCESS;
  if (destination == NULL || !is_device(transfer, source, bytes)) return VGPU_CUDA_INVALID_VALUE;
  /* One that came before must not arrive later. */
  int result = vgpu_readback_flush(transfer->driver, destination, bytes);
  if (result == VGPU_CUDA_SUCCESS && transfer->async && is_pinned(transfer, destination, bytes) &&
      !vgpu_capture_on(transfer->driver, transfer->stream) &&
      vgpu_readback_post(transfer->driver, destination, transfer->context, transfer->stream, source, bytes,
                         &result)) {
    return result;
  }
  for (unsigned char *at = destination; result == VGPU_CUDA_SUCCESS && bytes > 0;) {
    uint32_t step = piece(bytes);
    if (transfer->async) {
      struct vgpu_send_cuMemcpyDtoHAsync_v2 send = {
          .context = transfer->context, .stream = transfer->stream, .source = source, .bytes = step};
      result = vgpu_cuda_call_bulk(VGPU_OP_cuMemcpyDtoHAsync_v2, &send, sizeof send, at, step);
    } else {
      struct vgpu_send_cuMemcpyDtoH_v2 send = {.context = transfer->context, .source = source, .bytes = step};
      result = vgpu_cuda_call_bulk(VGPU_OP_cuMemcpyDtoH_v2, &send, sizeof send, at, step);
    }
    source += step;
    at += step;
    bytes -= step;
  }
  return result;
}

int vgpu_transfer_on_device(const struct vgpu_transfer *transfer, uint64_t destination, uint64_t source,
                            size_t bytes) {
  if (bytes == 0) return VGPU_CUDA_SUCCESS;
  if (!is_device(transfer, destination, bytes) || !is_device(transfer, source, bytes)) {
    return VGPU_CUDA_INVALID_VALUE;
  }
  if (transfer->async) {
    struct vgpu_send_cuMemcpyDtoDAsync_v2 send = {.context = transfer->context,
                                                  .stream = transfer->stream,
                                                  .destination = destination,
                                                  .source = source,
                                                  .bytes = bytes};
    return vgpu_cuda_post(VGPU_OP_cuMemcpyDtoDAsync_v2, &send, sizeof send, NULL, 0);
  }
  struct vgpu_send_cuMemcpyDtoD_v2 send = {
      .context = transfer->context, .destination = destination, .source = source, .bytes = bytes};
  return vgpu_cuda_post(VGPU_OP_cuMemcpyDtoD_v2, &send, sizeof send, NULL, 0);
}

int vgpu_transfer_catch_up(const struct vgpu_transfer *transfer) {
  return transfer->async ? vgpu_cuda_wait_stream(transfer->driver, transfer->context, transfer->stream)
                         : cuCtxSynchronize();
}

/* With unified addressing a pointer tells where it points; one that nobody knows is the program's own. */
static int anywhere(const struct vgpu_transfer *transfer, uint64_t destination, uint64_t source,
                    size_t bytes) {
  struct vgpu_regions *regions = &transfer->driver->regions;
  struct vgpu_region region;
  bool to = vgpu_regions_find(regions, destination, &region) && vgpu_region_on_device(&region);
  bool from = vgpu_regions_find(regions, source, &region) && vgpu_region_on_device(&region);
  if (to && from) return vgpu_transfer_on_device(transfer, destination, source, bytes);
  if (to) return vgpu_transfer_to_device(transfer, destination, vgpu_host_pointer(source), bytes);
  if (from) return vgpu_transfer_from_device(transfer, vgpu_host_pointer(destination), source, bytes);
  if (bytes == 0) return VGPU_CUDA_SUCCESS;
  if (destination == 0 || source == 0) return VGPU_CUDA_INVALID_VALUE;
  int result = vgpu_transfer_catch_up(transfer);
  if (result == VGPU_CUDA_SUCCESS) memmove(vgpu_host_pointer(destination), vgpu_host_pointer(source), bytes);
  return result;
}

int cuMemcpyHtoD_v2(uint64_t dstDevice, const void *srcHost, size_t ByteCount) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, NULL, false);
  if (result != VGPU_CUDA_SUCCESS) return result;
  return vgpu_transfer_to_device(&transfer, dstDevice, srcHost, ByteCount);
}

int cuMemcpyHtoDAsync_v2(uint64_t dstDevice, const void *srcHost, size_t ByteCount,
                         struct vgpu_stream *hStream) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, hStream, true);
  if (result != VGPU_CUDA_SUCCESS) return result;
  return vgpu_transfer_to_device(&transfer, dstDevice, srcHost, ByteCount);
}

int cuMemcpyDtoH_v2(void *dstHost, uint64_t srcDevice, size_t ByteCount) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, NULL, false);
  if (result != VGPU_CUDA_SUCCESS) return result;
  return vgpu_transfer_from_device(&transfer, dstHost, srcDevice, ByteCount);
}

int cuMemcpyDtoHAsync_v2(void *dstHost, uint64_t srcDevice, size_t ByteCount, struct vgpu_stream *hStream) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, hStream, true);
  if (result != VGPU_CUDA_SUCCESS) return result;
  return vgpu_transfer_from_device(&transfer, dstHost, srcDevice, ByteCount);
}

int cuMemcpyDtoD_v2(uint64_t dstDevice, uint64_t srcDevice, size_t ByteCount) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, NULL, false);
  if (result != VGPU_CUDA_SUCCESS) return result;
  return vgpu_transfer_on_device(&transfer, dstDevice, srcDevice, ByteCount);
}

int cuMemcpyDtoDAsync_v2(uint64_t dstDevice, uint64_t srcDevice, size_t ByteCount,
                         struct vgpu_stream *hStream) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, hStream, true);
  if (result != VGPU_CUDA_SUCCESS) return result;
  return vgpu_transfer_on_device(&transfer, dstDevice, srcDevice, ByteCount);
}

int cuMemcpy(uint64_t dst, uint64_t src, size_t ByteCount) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, NULL, false);
  return result == VGPU_CUDA_SUCCESS ? anywhere(&transfer, dst, src, ByteCount) : result;
}

int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t ByteCount, struct vgpu_stream *hStream) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, hStream, true);
  return result == VGPU_CUDA_SUCCESS ? anywhere(&transfer, dst, src, ByteCount) : result;
}

/* Between devices: an address tells its device, so the contexts only have to be right. */
static int peer(const struct vgpu_transfer *transfer, uint64_t destination, struct vgpu_context *to,
                uint64_t source, struct vgpu_context *from, size_t bytes) {
  if (!vgpu_cuda_context_live(to) || !vgpu_cuda_context_live(from)) return VGPU_CUDA_INVALID_CONTEXT;
  return vgpu_transfer_on_device(transfer, destination, source, bytes);
}

int cuMemcpyPeer(uint64_t dstDevice, struct vgpu_context *dstContext, uint64_t srcDevice,
                 struct vgpu_context *srcContext, size_t ByteCount) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, NULL, false);
  if (result != VGPU_CUDA_SUCCESS) return result;
  return peer(&transfer, dstDevice, dstContext, srcDevice, srcContext, ByteCount);
}

int cuMemcpyPeerAsync(uint64_t dstDevice, struct vgpu_context *dstContext, uint64_t srcDevice,
                      struct vgpu_context *srcContext, size_t ByteCount, struct vgpu_stream *hStream) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, hStream, true);
  if (result != VGPU_CUDA_SUCCESS) return result;
  return peer(&transfer, dstDevice, dstContext, srcDevice, srcContext, ByteCount);
}
