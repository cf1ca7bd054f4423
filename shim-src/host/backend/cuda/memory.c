/* Memory on the host's GPU. Addresses are the driver's own; each is checked to belong to this session. */
#include "host/backend/cuda/peer.h"
#include "host/backend/cuda/pool.h"
#include "host/backend/cuda/session.h"

static int32_t allocate(const struct vgpu_driver_api *api, struct vgpu_cuda_side_call *call) {
  return VGPU_DRIVER(api, cuMemAlloc_v2, &call->address, call->bytes);
}

static void give_back(const struct vgpu_driver_api *api, const struct vgpu_cuda_side_call *call) {
  if (call->result == CUDA_SUCCESS) (void)VGPU_DRIVER(api, cuMemFree_v2, call->address);
}

int32_t vgpu_cuda_free_memory(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  return VGPU_DRIVER(api, cuMemFree_v2, ending->address);
}

int32_t vgpu_cuda_cuMemAlloc_v2(struct vgpu_worker *worker, const struct vgpu_send_cuMemAlloc_v2 *send,
                                struct vgpu_reply_cuMemAlloc_v2 *reply) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (send->bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_handle *context = vgpu_handles_find(&worker->handles, send->context, VGPU_HANDLE_CONTEXT);
  struct vgpu_range range = {.size = send->bytes,
                             .counted = send->bytes,
                             .context = send->context,
                             .device = context->device,
                             .kind = VGPU_RANGE_ALLOCATION};
  if (!vgpu_cuda_side_call_began(worker) &&
      (cuda->ranges.count + worker->handles.count >= worker->limits->session_handles ||
       !vgpu_accounts_take(worker->accounts, worker->slot, range.device, range.counted,
                           worker->limits->session_memory))) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  struct vgpu_cuda_side_call call = {.call = allocate,
                                     .context = context->driver,
                                     .bytes = send->bytes,
                                     .undo = give_back,
                                     .device = range.device,
                                     .counted = range.counted};
  result = vgpu_cuda_side_call(worker, &call);
  if (result == VGPU_WAITS) {
    if (!vgpu_cuda_side_call_began(worker))
      vgpu_accounts_give(worker->accounts, worker->slot, range.device, range.counted);
    return result;
  }
  range.address = call.address;
  if (result == CUDA_SUCCESS && vgpu_ranges_add(&cuda->ranges, &range)) {
    reply->address = range.address;
    return CUDA_SUCCESS;
  }
  if (result == CUDA_SUCCESS) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
    (void)vgpu_cuda_end(worker, &(struct vgpu_cuda_ending){.end = vgpu_cuda_free_memory,
                                                           .context = context->driver,
                                                           .address = range.address,
                                                           .device = range.device,
                                                           .counted = range.counted});
  } else {
    vgpu_accounts_give(worker->accounts, worker->slot, range.device, range.counted);
    vgpu_cuda_refused(worker, range.device, send->bytes, result);
  }
  return result;
}

int32_t vgpu_cuda_close_memory(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  return VGPU_DRIVER(api, cuIpcCloseMemHandle, ending->address);
}

int32_t vgpu_cuda_cuMemFree_v2(struct vgpu_worker *worker, const struct vgpu_send_cuMemFree_v2 *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_range freed;
  bool opened = vgpu_ranges_remove(&cuda->ranges, send->address, VGPU_RANGE_OPENED, &freed);
  if (opened) {
    /* closed below */
  } else if (vgpu_ranges_remove(&cuda->ranges, send->address, VGPU_RANGE_POOLED, &freed)) {
    freed.context = send->context; /* it belongs to none, but the driver needs a current one */
    vgpu_cuda_pool_freed(worker, &freed);
  } else if (!vgpu_ranges_remove(&cuda->ranges, send->address, VGPU_RANGE_ALLOCATION, &freed)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  vgpu_cuda_unshare(worker, send->address, 0);
  result = vgpu_cuda_enter(worker, freed.context, &cuda);
  if (result != CUDA_SUCCESS) {
    vgpu_accounts_give(worker->accounts, worker->slot, freed.device, freed.counted);
    return result;
  }
  return vgpu_cuda_end(worker, &(struct vgpu_cuda_ending){
                                   .end = opened ? vgpu_cuda_close_memory : vgpu_cuda_free_memory,
                                   .context = vgpu_cuda_object(worker, freed.context, VGPU_HANDLE_CONTEXT),
                                   .address = send->address,
                                   .device = freed.device,
                                   .counted = freed.counted});
}

int32_t vgpu_cuda_cuMemGetInfo_v2(struct vgpu_worker *worker, const struct vgpu_send_cuMemGetInfo_v2 *send,
                                  struct vgpu_reply_cuMemGetInfo_v2 *reply) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  size_t unused = 0, total = 0;
  result = VGPU_DRIVER(&cuda->api, cuMemGetInfo_v2, &unused, &total);
  vgpu_cuda_settle_pools(worker);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_handle *context = vgpu_handles_find(&worker->handles, send->context, VGPU_HANDLE_CONTEXT);
  if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  struct vgpu_room room =
      vgpu_accounts_room(worker->accounts, worker->slot, context->device, worker->limits->session_memory);
  reply->free = unused < room.free ? unused : room.free;
  reply->total = total < room.total ? total : room.total;
  return CUDA_SUCCESS;
}

static int32_t write_memory(struct vgpu_worker *worker, uint64_t context, uint64_t number, bool async,
                            uint64_t destination, const struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result = vgpu_cuda_enter_stream(worker, context, number, &cuda, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!vgpu_ranges_hold(&cuda->ranges, destination, bulk->in_size)) return CUDA_ERROR_INVALID_VALUE;
  /*
   * A frame is pageable memory, which the driver has read when it returns, also in an asynchronous copy.
   * Shared memory that the guest calls pinned must stay until its stream has done this copy. The guest waits
   * for a copy that is not asynchronous, if it has ever closed a gate.
   */
  bool pinned = bulk->shared_region != 0 && (async || vgpu_cuda_is_held(cuda));
  if (pinned) vgpu_cuda_pin(worker, context, bulk->shared_region);
  /* The driver accepts short asynchronous copies without waiting. */
  const void *from = pinned || (async && bulk->in_size <= VGPU_COPY_TAKEN)
                         ? bulk->in
                         : vgpu_cuda_stage(worker, context, stream, bulk->in, bulk->in_size);
  if (!async && !pinned && from == bulk->in)
    return VGPU_DRIVER(&cuda->api, cuMemcpyHtoD_v2, destination, bulk->in, bulk->in_size);
  result = VGPU_DRIVER(&cuda->api, cuMemcpyHtoDAsync_v2, destination, from, bulk->in_size, stream);
  return from == bulk->in ? result : vgpu_cuda_staged(worker, stream, from, result);
}

static int32_t read_memory(struct vgpu_worker *worker, uint64_t context, uint64_t number, uint64_t source,
                           uint64_t bytes, struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result = vgpu_cuda_enter_stream(worker, context, number, &cuda, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (bytes > bulk->out_capacity || !vgpu_ranges_hold(&cuda->ranges, source, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const struct vgpu_box box = {
      .source = {.type = VGPU_MEMORY_DEVICE, .device = source}, .width = bytes, .height = 1, .depth = 1};
  return vgpu_cuda_copy_out(worker, context, stream, &box, bulk);
}

int32_t vgpu_cuda_cuMemcpyHtoD_v2(struct vgpu_worker *worker, const struct vgpu_send_cuMemcpyHtoD_v2 *send,
                                  struct vgpu_bulk *bulk) {
  return write_memory(worker, send->context, 0, false, send->destination, bulk);
}

int32_t vgpu_cuda_cuMemcpyHtoDAsync_v2(struct vgpu_worker *worker,
                                       const struct vgpu_send_cuMemcpyHtoDAsync_v2 *send,
                                       struct vgpu_bulk *bulk) {
  return write_memory(worker, send->context, send->stream, true, send->destination, bulk);
}

int32_t vgpu_cuda_cuMemcpyDtoH_v2(struct vgpu_worker *worker, const struct vgpu_send_cuMemcpyDtoH_v2 *send,
                                  struct vgpu_bulk *bulk) {
  return read_memory(worker, send->context, 0, send->source, send->bytes, bulk);
}

int32_t vgpu_cuda_cuMemcpyDtoHAsync_v2(struct vgpu_worker *worker,
                                       const struct vgpu_send_cuMemcpyDtoHAsync_v2 *send,
                                       struct vgpu_bulk *bulk) {
  return read_memory(worker, send->context, send->stream, send->source, send->bytes, bulk);
}

/* Enters the context, and checks both ends of a copy on the device. */
static int32_t check_copy(struct vgpu_worker *worker, uint64_t context, uint64_t number, uint64_t destination,
                          uint64_t source, uint64_t bytes, struct vgpu_cuda **cuda,
                          struct vgpu_stream **stream) {
  int32_t result = vgpu_cuda_enter_stream(worker, context, number, cuda, stream);
  if (result != CUDA_SUCCESS) return result;
  bool ours = vgpu_ranges_hold(&(*cuda)->ranges, destination, bytes) &&
              vgpu_ranges_hold(&(*cuda)->ranges, source, bytes);
  return ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int32_t vgpu_cuda_cuMemcpyDtoD_v2(struct vgpu_worker *worker, const struct vgpu_send_cuMemcpyDtoD_v2 *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result =
      check_copy(worker, send->context, 0, send->destination, send->source, send->bytes, &cuda, &stream);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_cuda_peer_copy copy = {send->destination, send->source, send->bytes, stream};
  if (vgpu_cuda_between_devices(worker, &copy, &result)) return result;
  return VGPU_DRIVER(&cuda->api, cuMemcpyDtoDAsync_v2, send->destination, send->source, send->bytes, stream);
}

int32_t vgpu_cuda_cuMemcpyDtoDAsync_v2(struct vgpu_worker *worker,
                                       const struct vgpu_send_cuMemcpyDtoDAsync_v2 *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result = check_copy(worker, send->context, send->stream, send->destination, send->source,
                              send->bytes, &cuda, &stream);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_cuda_peer_copy copy = {send->destination, send->source, send->bytes, stream};
  if (vgpu_cuda_between_devices(worker, &copy, &result)) return result;
  return VGPU_DRIVER(&cuda->api, cuMemcpyDtoDAsync_v2, send->destination, send->source, send->bytes, stream);
}

static int32_t check_fill(struct vgpu_worker *worker, uint64_t context, uint64_t number, uint32_t width,
                          uint64_t destination, uint64_t count, struct vgpu_cuda **cuda,
                          struct vgpu_stream **stream) {
  int32_t result = vgpu_cuda_enter_stream(worker, context, number, cuda, stream);
  if (result != CUDA_SUCCESS) return result;
  uint64_t bytes;
  bool sound = destination % width == 0 && !__builtin_mul_overflow(count, width, &bytes) &&
               vgpu_ranges_hold(&(*cuda)->ranges, destination, bytes);
  return sound ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The synchronous calls would wait for memory of the host. The guest waits itself. */
#define FILL(name, async, type, width)                                                                       \
  int32_t vgpu_cuda_##name(struct vgpu_worker *worker, const struct vgpu_send_##name *send) {                \
    struct vgpu_cuda *cuda;                                                                                  \
    struct vgpu_stream *stream;                                                                              \
    int32_t result =                                                                                         \
        check_fill(worker, send->context, 0, width, send->destination, send->count, &cuda, &stream);         \
    if (result != CUDA_SUCCESS) return result;                                                               \
    return VGPU_DRIVER(&cuda->api, async, send->destination, (type)send->value, send->count, stream);        \
  }
#define FILL_ASYNC(name, type, width)                                                                        \
  int32_t vgpu_cuda_##name(struct vgpu_worker *worker, const struct vgpu_send_##name *send) {                \
    struct vgpu_cuda *cuda;                                                                                  \
    struct vgpu_stream *stream;                                                                              \
    int32_t result = check_fill(worker, send->context, send->stream, width, send->destination, send->count,  \
                                &cuda, &stream);                                                             \
    if (result != CUDA_SUCCESS) return result;                                                               \
    return VGPU_DRIVER(&cuda->api, name, send->destination, (type)send->value, send->count, stream);         \
  }
FILL(cuMemsetD8_v2, cuMemsetD8Async, uint8_t, 1)
FILL(cuMemsetD16_v2, cuMemsetD16Async, uint16_t, 2)
FILL(cuMemsetD32_v2, cuMemsetD32Async, uint32_t, 4)
FILL_ASYNC(cuMemsetD8Async, uint8_t, 1)
FILL_ASYNC(cuMemsetD16Async, uint16_t, 2)
FILL_ASYNC(cuMemsetD32Async, uint32_t, 4)
