/*
 * A copy to the device is one-way, in pieces, and its bytes have been sent when the call returns. From pinned
 * memory the host reads in place, so the program must not change the bytes of an asynchronous copy before it
 * is done. A copy from the device waits, except an asynchronous one into pinned memory (readback.h).
 */
#include "guest/cuda/memory/transfer.h"

#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/stream/capture.h"

#define STAYS_BYTES (512u << 10)

int vgpu_transfer_begin(struct vgpu_transfer *transfer, struct vgpu_stream *stream, bool async) {
  int result;
  *transfer = (struct vgpu_transfer){.driver = vgpu_cuda_driver(&result), .async = async};
  if (transfer->driver == NULL) return result;
  if (async) return vgpu_cuda_stream_place(transfer->driver, stream, &transfer->stream, &transfer->context);
  result = vgpu_cuda_context_number(&transfer->context);
  if (result != CUDA_SUCCESS) return result;
  return vgpu_host_functions_pending(transfer->driver) ? vgpu_cuda_wait_legacy(transfer->driver)
                                                       : CUDA_SUCCESS;
}

static bool is_device(const struct vgpu_transfer *transfer, uint64_t address, size_t bytes) {
  return vgpu_regions_is_device(&transfer->driver->regions, address, bytes);
}

static uint32_t least(size_t left, uint32_t most) {
  return left < most ? (uint32_t)left : most;
}

static bool is_capturing(const struct vgpu_driver *driver) {
  return __atomic_load_n(&driver->capturing, __ATOMIC_ACQUIRE) != 0;
}

/* In a capture each piece becomes a node, so shorter pieces gain nothing. */
static uint32_t longest_piece(const struct vgpu_transfer *transfer, bool shared, size_t bytes) {
  if (shared) return VGPU_SPAN_MAX;
  return vgpu_session_piece(transfer->driver->session, is_capturing(transfer->driver) ? SIZE_MAX : bytes);
}

struct vgpu_host_memory vgpu_transfer_classify(const struct vgpu_transfer *transfer, uint64_t start,
                                               uint64_t bytes) {
  struct vgpu_region region;
  if (!vgpu_regions_find(&transfer->driver->regions, start, &region)) return (struct vgpu_host_memory){0};
  const uint64_t offset = start - region.start;
  const bool inside = bytes <= region.size - offset, host = !vgpu_region_on_device(&region);
  return (struct vgpu_host_memory){.known = true,
                                   .host = host,
                                   .pinned = host && inside,
                                   .lent = region.lent && !region.in_pieces && inside,
                                   .any_lent = region.lent,
                                   .span = {.shared_region = region.shared_region, .offset = offset}};
}

/* Short copies cost less in the frame than as a span. A capture needs the program's pointer. */
#define SHORTEST_SHARED (64u << 10)

static bool is_shared(const struct vgpu_transfer *transfer, const struct vgpu_host_memory *memory,
                      size_t bytes) {
  return bytes >= SHORTEST_SHARED && memory->pinned && memory->span.shared_region != 0 &&
         !is_capturing(transfer->driver);
}

/* Limit of one thread. The host queues up to 64 MiB of a session behind work that waits. */
#define MOST_AHEAD (16u << 20)

/*
 * Without room the host would wait in the driver, also for a stream that waits for a host function, and could
 * not carry out the call that ends that wait.
 */
static int await_room(const struct vgpu_transfer *transfer, uint32_t bytes) {
  struct vgpu_driver *driver = transfer->driver;
  if ((transfer->async && bytes <= VGPU_COPY_TAKEN) || !vgpu_session_has_gates(driver->session) ||
      !__atomic_load_n(&driver->holds, __ATOMIC_ACQUIRE) || is_capturing(driver))
    return CUDA_SUCCESS;
  const struct vgpu_send_upload_room send = {.context = transfer->context, .bytes = bytes};
  return vgpu_cuda_call(VGPU_OP_upload_room, &send, sizeof send, NULL, 0);
}

static int keep_pace(const struct vgpu_transfer *transfer, uint32_t bytes) {
  static _Thread_local uint64_t epoch, ahead;
  struct vgpu_driver *driver = transfer->driver;
  if (is_capturing(driver)) return CUDA_SUCCESS;
  if (epoch != driver->epoch) ahead = 0;
  epoch = driver->epoch;
  int result = CUDA_SUCCESS;
  if (ahead + bytes > MOST_AHEAD) {
    result = vgpu_cuda_wait_stream(driver, transfer->context, transfer->stream);
    ahead = 0;
  }
  ahead += bytes;
  return result;
}

int vgpu_transfer_keep_pace(const struct vgpu_transfer *transfer, uint32_t bytes) {
  const int result = keep_pace(transfer, bytes);
  return result == CUDA_SUCCESS ? await_room(transfer, bytes) : result;
}

static int send_piece(const struct vgpu_transfer *transfer, uint64_t destination, const void *source,
                      uint32_t bytes, const struct vgpu_span *span, bool stays) {
  if (transfer->async) {
    struct vgpu_send_cuMemcpyHtoDAsync_v2 send = {
        .context = transfer->context, .stream = transfer->stream, .destination = destination};
    return span != NULL
               ? vgpu_cuda_post_shared_region(VGPU_OP_cuMemcpyHtoDAsync_v2, &send, sizeof send, span)
               : vgpu_cuda_post_bulk(VGPU_OP_cuMemcpyHtoDAsync_v2, &send, sizeof send, source, bytes, stays);
  }
  struct vgpu_send_cuMemcpyHtoD_v2 send = {.context = transfer->context, .destination = destination};
  return span != NULL
             ? vgpu_cuda_post_shared_region(VGPU_OP_cuMemcpyHtoD_v2, &send, sizeof send, span)
             : vgpu_cuda_post_bulk(VGPU_OP_cuMemcpyHtoD_v2, &send, sizeof send, source, bytes, stays);
}

int vgpu_transfer_await_functions(const struct vgpu_transfer *transfer,
                                  const struct vgpu_host_memory *source) {
  if (!transfer->async || !source->pinned || !vgpu_host_functions_pending(transfer->driver) ||
      vgpu_capture_on(transfer->driver, transfer->stream)) {
    return CUDA_SUCCESS;
  }
  return vgpu_cuda_wait_turn(transfer->driver, transfer->context, transfer->stream);
}

int vgpu_transfer_done(const struct vgpu_transfer *transfer, const struct vgpu_host_memory *source) {
  struct vgpu_driver *driver = transfer->driver;
  if (transfer->async) return CUDA_SUCCESS;
  bool waits = !vgpu_session_welcome(driver->session)->simulated && !is_capturing(driver);
  if (!waits) waits = source->host && __atomic_load_n(&driver->holds, __ATOMIC_ACQUIRE);
  return waits ? vgpu_cuda_wait_legacy(driver) : CUDA_SUCCESS;
}

/*
 * True for memory that kernels may use: such a copy must be in the stream's order. A capture needs the
 * program's pointer.
 */
static bool is_of_both(const struct vgpu_transfer *transfer, const struct vgpu_host_memory *memory) {
  bool captures =
      transfer->async ? vgpu_capture_on(transfer->driver, transfer->stream) : is_capturing(transfer->driver);
  return !captures && memory->lent;
}

static int copy_of_both(const struct vgpu_transfer *transfer, uint64_t destination, uint64_t source,
                        size_t bytes) {
  struct vgpu_transfer in_order = *transfer;
  in_order.async = true;
  int result = vgpu_transfer_on_device(&in_order, destination, source, bytes);
  return result == CUDA_SUCCESS && !transfer->async
             ? vgpu_cuda_wait_stream(transfer->driver, transfer->context, transfer->stream)
             : result;
}

/*
 * Called before a copy that is done when it returns reads pinned memory in this process: work before the copy
 * may still write to it.
 */
static int await_source(const struct vgpu_transfer *transfer, const struct vgpu_host_memory *source) {
  struct vgpu_driver *driver = transfer->driver;
  if (transfer->async || !source->known) return CUDA_SUCCESS;
  return source->any_lent || vgpu_readback_pending(driver) ? vgpu_cuda_wait_legacy(driver) : CUDA_SUCCESS;
}

int vgpu_transfer_arrive(const struct vgpu_transfer *transfer, uint64_t destination) {
  struct vgpu_region region;
  if (transfer->async || !vgpu_regions_find(&transfer->driver->regions, destination, &region) || !region.lent)
    return CUDA_SUCCESS;
  return vgpu_cuda_wait_stream(transfer->driver, transfer->context, 0);
}

int vgpu_transfer_to_device(const struct vgpu_transfer *transfer, uint64_t destination, const void *source,
                            size_t bytes) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (source == NULL || !is_device(transfer, destination, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_host_memory memory = vgpu_transfer_classify(transfer, (uint64_t)(uintptr_t)source, bytes);
  if (is_of_both(transfer, &memory))
    return copy_of_both(transfer, destination, (uint64_t)(uintptr_t)source, bytes);
  int result = vgpu_transfer_await_functions(transfer, &memory);
  /* An earlier read may still write to `source`, and its bytes are the ones to send. */
  if (result == CUDA_SUCCESS) result = vgpu_readback_flush(transfer->driver, source, bytes);
  if (result == CUDA_SUCCESS) result = await_source(transfer, &memory);
  struct vgpu_span span = memory.span;
  bool shared = is_shared(transfer, &memory, bytes);
  if (result == CUDA_SUCCESS && !shared && !transfer->async &&
      vgpu_staging_write(transfer, destination, source, bytes, &result))
    return result;
  uint32_t most = longest_piece(transfer, shared, bytes);
  uint64_t first = destination;
  /* If sent frames are kept, waiting for the host is quicker than copying so many bytes. */
  bool stays = !shared && bytes >= STAYS_BYTES && vgpu_session_keeps(transfer->driver->session);
  for (const unsigned char *at = source; result == CUDA_SUCCESS && bytes > 0;) {
    uint32_t step = least(bytes, most);
    span.length = step;
    /* The device reads pinned memory directly: no copy at the host, no wait. */
    if (!shared) result = vgpu_transfer_keep_pace(transfer, step);
    else if (!transfer->async) result = keep_pace(transfer, step);
    if (result != CUDA_SUCCESS) break;
    result = send_piece(transfer, destination, at, step, shared ? &span : NULL, stays);
    span.offset += step;
    destination += step;
    at += step;
    bytes -= step;
  }
  /* The program may change the bytes after this call, so the host must have read them. */
  if (stays || (result == CUDA_SUCCESS && shared && !transfer->async)) {
    int taken = vgpu_cuda_ping();
    if (result == CUDA_SUCCESS) result = taken;
  }
  if (result == CUDA_SUCCESS) result = vgpu_transfer_arrive(transfer, first);
  return result == CUDA_SUCCESS ? vgpu_transfer_done(transfer, &memory) : result;
}

static int read_shared_region(const struct vgpu_transfer *transfer, uint64_t source,
                              const struct vgpu_span *span) {
  if (transfer->async) {
    struct vgpu_send_cuMemcpyDtoHAsync_v2 send = {
        .context = transfer->context, .stream = transfer->stream, .source = source, .bytes = span->length};
    return vgpu_cuda_call_shared_region(VGPU_OP_cuMemcpyDtoHAsync_v2, &send, sizeof send, span);
  }
  struct vgpu_send_cuMemcpyDtoH_v2 send = {
      .context = transfer->context, .source = source, .bytes = span->length};
  return vgpu_cuda_call_shared_region(VGPU_OP_cuMemcpyDtoH_v2, &send, sizeof send, span);
}

static int read_piece(const struct vgpu_transfer *transfer, void *destination, uint64_t source,
                      uint32_t bytes) {
  if (transfer->async) {
    struct vgpu_send_cuMemcpyDtoHAsync_v2 send = {
        .context = transfer->context, .stream = transfer->stream, .source = source, .bytes = bytes};
    return vgpu_cuda_call_bulk(VGPU_OP_cuMemcpyDtoHAsync_v2, &send, sizeof send, destination, bytes);
  }
  struct vgpu_send_cuMemcpyDtoH_v2 send = {.context = transfer->context, .source = source, .bytes = bytes};
  return vgpu_cuda_call_bulk(VGPU_OP_cuMemcpyDtoH_v2, &send, sizeof send, destination, bytes);
}

struct long_read {
  const struct vgpu_transfer *transfer;
  uint64_t source;
};

static void make_read(void *context, size_t offset, uint32_t bytes, void *body) {
  const struct long_read *read = context;
  uint64_t source = read->source + offset;
  if (read->transfer->async) {
    struct vgpu_send_cuMemcpyDtoHAsync_v2 send = {.context = read->transfer->context,
                                                  .stream = read->transfer->stream,
                                                  .source = source,
                                                  .bytes = bytes};
    memcpy(body, &send, sizeof send);
  } else {
    struct vgpu_send_cuMemcpyDtoH_v2 send = {
        .context = read->transfer->context, .source = source, .bytes = bytes};
    memcpy(body, &send, sizeof send);
  }
}

_Static_assert(sizeof(struct vgpu_send_cuMemcpyDtoHAsync_v2) <= VGPU_PIECE_BODY, "piece");

/*
 * Requests several pieces together. An older host refuses pieces that would have to wait. *done is the number
 * of bytes before the first such piece.
 */
static int read_at_once(const struct vgpu_transfer *transfer, void *destination, uint64_t source,
                        size_t bytes, size_t *done) {
  struct long_read read = {.transfer = transfer, .source = source};
  struct vgpu_pieces pieces = {.opcode =
                                   transfer->async ? VGPU_OP_cuMemcpyDtoHAsync_v2 : VGPU_OP_cuMemcpyDtoH_v2,
                               .body_size = transfer->async ? sizeof(struct vgpu_send_cuMemcpyDtoHAsync_v2)
                                                            : sizeof(struct vgpu_send_cuMemcpyDtoH_v2),
                               .destination = destination,
                               .total = bytes,
                               .make = make_read,
                               .context = &read};
  return vgpu_cuda_pieces(&pieces, done);
}

int vgpu_transfer_from_device(const struct vgpu_transfer *transfer, void *destination, uint64_t source,
                              size_t bytes) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (destination == NULL || !is_device(transfer, source, bytes)) return CUDA_ERROR_INVALID_VALUE;
  int result = vgpu_readback_flush(transfer->driver, destination, bytes);
  const struct vgpu_host_memory memory =
      vgpu_transfer_classify(transfer, (uint64_t)(uintptr_t)destination, bytes);
  if (result == CUDA_SUCCESS && is_of_both(transfer, &memory))
    return copy_of_both(transfer, (uint64_t)(uintptr_t)destination, source, bytes);
  bool captures = transfer->async && vgpu_capture_on(transfer->driver, transfer->stream);
  unsigned char *at = destination;
  struct vgpu_span span = memory.span;
  if (result == CUDA_SUCCESS && transfer->async && !captures && memory.pinned) {
    const size_t later =
        vgpu_readback_post(transfer->driver, at, transfer->context, transfer->stream, source, bytes, &result);
    if (later == bytes || result != CUDA_SUCCESS) return result;
    span.offset += later;
    source += later;
    at += later;
    bytes -= later;
  }
  bool shared = is_shared(transfer, &memory, bytes);
  if (result == CUDA_SUCCESS && !shared && vgpu_staging_read(transfer, at, source, bytes, &result))
    return result == CUDA_SUCCESS ? vgpu_transfer_settle(transfer) : result;
  uint32_t most = longest_piece(transfer, shared, bytes);
  bool at_once = !shared && bytes > most && !is_capturing(transfer->driver);
  while (result == CUDA_SUCCESS && bytes > 0) {
    size_t step = 0;
    if (at_once) result = read_at_once(transfer, at, source, bytes, &step);
    /* An older host whose stream has not reached the copy: request one piece, which waits. */
    if (result == CUDA_ERROR_NOT_READY) result = CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && step == 0) {
      step = least(bytes, most);
      span.length = step;
      result = shared ? read_shared_region(transfer, source, &span)
                      : read_piece(transfer, at, source, (uint32_t)step);
    }
    span.offset += step;
    source += step;
    at += step;
    bytes -= step;
  }
  return result == CUDA_SUCCESS ? vgpu_transfer_settle(transfer) : result;
}

int vgpu_transfer_settle(const struct vgpu_transfer *transfer) {
  if (!vgpu_readback_pending(transfer->driver)) return CUDA_SUCCESS;
  return vgpu_readback_settle(transfer->driver, transfer->context);
}

int vgpu_transfer_on_device(const struct vgpu_transfer *transfer, uint64_t destination, uint64_t source,
                            size_t bytes) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (!is_device(transfer, destination, bytes) || !is_device(transfer, source, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
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
  int result = vgpu_cuda_post(VGPU_OP_cuMemcpyDtoD_v2, &send, sizeof send, NULL, 0);
  return result == CUDA_SUCCESS ? vgpu_transfer_arrive(transfer, destination) : result;
}

int vgpu_transfer_catch_up(const struct vgpu_transfer *transfer) {
  return transfer->async ? vgpu_cuda_wait_stream(transfer->driver, transfer->context, transfer->stream)
                         : cuCtxSynchronize();
}

/* Unified addressing: the pointer's region decides; an unknown pointer is the program's own memory. */
static int anywhere(const struct vgpu_transfer *transfer, uint64_t destination, uint64_t source,
                    size_t bytes) {
  struct vgpu_regions *regions = &transfer->driver->regions;
  struct vgpu_region region;
  bool to = vgpu_regions_find(regions, destination, &region) && vgpu_region_on_device(&region);
  bool from = vgpu_regions_find(regions, source, &region) && vgpu_region_on_device(&region);
  if (to && from) return vgpu_transfer_on_device(transfer, destination, source, bytes);
  if (to) return vgpu_transfer_to_device(transfer, destination, vgpu_host_pointer(source), bytes);
  if (from) return vgpu_transfer_from_device(transfer, vgpu_host_pointer(destination), source, bytes);
  if (bytes == 0) return CUDA_SUCCESS;
  if (destination == 0 || source == 0) return CUDA_ERROR_INVALID_VALUE;
  int result = vgpu_transfer_catch_up(transfer);
  if (result == CUDA_SUCCESS) memmove(vgpu_host_pointer(destination), vgpu_host_pointer(source), bytes);
  return result;
}

int cuMemcpyHtoD_v2(uint64_t dstDevice, const void *srcHost, size_t ByteCount) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, NULL, false);
  if (result != CUDA_SUCCESS) return result;
  return vgpu_transfer_to_device(&transfer, dstDevice, srcHost, ByteCount);
}

int cuMemcpyHtoDAsync_v2(uint64_t dstDevice, const void *srcHost, size_t ByteCount,
                         struct vgpu_stream *hStream) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, hStream, true);
  if (result != CUDA_SUCCESS) return result;
  return vgpu_transfer_to_device(&transfer, dstDevice, srcHost, ByteCount);
}

int cuMemcpyDtoH_v2(void *dstHost, uint64_t srcDevice, size_t ByteCount) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, NULL, false);
  if (result != CUDA_SUCCESS) return result;
  return vgpu_transfer_from_device(&transfer, dstHost, srcDevice, ByteCount);
}

int cuMemcpyDtoHAsync_v2(void *dstHost, uint64_t srcDevice, size_t ByteCount, struct vgpu_stream *hStream) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, hStream, true);
  if (result != CUDA_SUCCESS) return result;
  return vgpu_transfer_from_device(&transfer, dstHost, srcDevice, ByteCount);
}

int cuMemcpyDtoD_v2(uint64_t dstDevice, uint64_t srcDevice, size_t ByteCount) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, NULL, false);
  if (result != CUDA_SUCCESS) return result;
  return vgpu_transfer_on_device(&transfer, dstDevice, srcDevice, ByteCount);
}

int cuMemcpyDtoDAsync_v2(uint64_t dstDevice, uint64_t srcDevice, size_t ByteCount,
                         struct vgpu_stream *hStream) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, hStream, true);
  if (result != CUDA_SUCCESS) return result;
  return vgpu_transfer_on_device(&transfer, dstDevice, srcDevice, ByteCount);
}

int cuMemcpy(uint64_t dst, uint64_t src, size_t ByteCount) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, NULL, false);
  return result == CUDA_SUCCESS ? anywhere(&transfer, dst, src, ByteCount) : result;
}

int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t ByteCount, struct vgpu_stream *hStream) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, hStream, true);
  return result == CUDA_SUCCESS ? anywhere(&transfer, dst, src, ByteCount) : result;
}

/*
 * A copy between devices. An address names its device, so the contexts only have to be valid. A copy without
 * a stream comes after all work of both contexts.
 */
static int peer(const struct vgpu_transfer *transfer, uint64_t destination, struct vgpu_context *to,
                uint64_t source, struct vgpu_context *from, size_t bytes) {
  if (!vgpu_cuda_context_live(to) || !vgpu_cuda_context_live(from)) return CUDA_ERROR_INVALID_CONTEXT;
  struct vgpu_context *const contexts[] = {to, from};
  for (size_t i = 0; i < 2 && !transfer->async; i++) {
    uint64_t context;
    int result = vgpu_cuda_context_given(transfer->driver, contexts[i], &context);
    if (result == CUDA_SUCCESS && context != transfer->context) result = vgpu_cuda_wait_context(context);
    if (result != CUDA_SUCCESS) return result;
  }
  return vgpu_transfer_on_device(transfer, destination, source, bytes);
}

int cuMemcpyPeer(uint64_t dstDevice, struct vgpu_context *dstContext, uint64_t srcDevice,
                 struct vgpu_context *srcContext, size_t ByteCount) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, NULL, false);
  if (result != CUDA_SUCCESS) return result;
  return peer(&transfer, dstDevice, dstContext, srcDevice, srcContext, ByteCount);
}

int cuMemcpyPeerAsync(uint64_t dstDevice, struct vgpu_context *dstContext, uint64_t srcDevice,
                      struct vgpu_context *srcContext, size_t ByteCount, struct vgpu_stream *hStream) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, hStream, true);
  if (result != CUDA_SUCCESS) return result;
  return peer(&transfer, dstDevice, dstContext, srcDevice, srcContext, ByteCount);
}
