/* Contexts, streams and events on the host's GPU. */
#include "host/backend/cuda/resources.h"
#include "host/backend/cuda/pool.h"
#include "host/backend/cuda/session.h"
#include "host/backend/cuda/slice.h"

#include "host/log.h"

/* Logs the reason that an administrator can change. */
static int32_t made(struct vgpu_worker *worker, uint32_t device, int32_t result) {
  if (result == CUDA_ERROR_DEVICE_UNAVAILABLE)
    vgpu_host_log("refused", worker->session,
                  "the driver makes no context on device %u (CUDA_ERROR_DEVICE_UNAVAILABLE): it is in a "
                  "compute mode for one process, and another one has it; nvidia-smi -c DEFAULT changes that",
                  device);
  return result;
}

static int32_t add_context(struct vgpu_worker *worker, uint64_t number, uint32_t device, void *context,
                           bool primary) {
  if (!vgpu_cuda_remember(worker, number, VGPU_HANDLE_CONTEXT, number, context))
    return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, number, VGPU_HANDLE_CONTEXT);
  handle->device = device;
  handle->primary = primary;
  vgpu_accounts_context(worker->accounts, worker->slot, device, 1);
  return CUDA_SUCCESS;
}

static int32_t destroy_context(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  return VGPU_DRIVER(api, cuCtxDestroy_v2, (struct vgpu_context *)ending->object);
}

static int32_t release_primary(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  int32_t device;
  int32_t result = VGPU_DRIVER(api, cuDeviceGet, &device, (int32_t)ending->device);
  return result == CUDA_SUCCESS ? VGPU_DRIVER(api, cuDevicePrimaryCtxRelease_v2, device) : result;
}

/* ---- new contexts: the driver takes up to seconds, so they do not block other threads' calls ---- */

static int32_t create(const struct vgpu_driver_api *api, struct vgpu_cuda_side_call *call) {
  struct vgpu_context *context = NULL, *popped = NULL;
  int32_t device;
  int32_t result = VGPU_DRIVER(api, cuDeviceGet, &device, (int32_t)call->device);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuCtxCreate_v2, &context, call->flags, device);
  /* The driver made the new context current. Calls here name their context themselves. */
  if (result == CUDA_SUCCESS) VGPU_DRIVER(api, cuCtxPopCurrent_v2, &popped);
  call->made = context;
  return result;
}

static int32_t retain(const struct vgpu_driver_api *api, struct vgpu_cuda_side_call *call) {
  struct vgpu_context *context = NULL;
  int32_t device;
  int32_t result = VGPU_DRIVER(api, cuDeviceGet, &device, (int32_t)call->device);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuDevicePrimaryCtxSetFlags_v2, device, call->flags);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuDevicePrimaryCtxRetain, &context, device);
  call->made = context;
  return result;
}

static void undo_create(const struct vgpu_driver_api *api, const struct vgpu_cuda_side_call *call) {
  if (call->result == CUDA_SUCCESS)
    (void)destroy_context(api, &(struct vgpu_cuda_ending){.object = call->made});
}

static void undo_retain(const struct vgpu_driver_api *api, const struct vgpu_cuda_side_call *call) {
  if (call->result == CUDA_SUCCESS)
    (void)release_primary(api, &(struct vgpu_cuda_ending){.device = call->device});
}

static int32_t begin(struct vgpu_worker *worker, uint64_t number, bool primary, uint32_t device,
                     uint32_t flags) {
  struct vgpu_cuda *cuda;
  if (device >= worker->inventory->count) return CUDA_ERROR_INVALID_DEVICE;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_cuda_side_call call = {.call = primary ? retain : create,
                                     .undo = primary ? undo_retain : undo_create,
                                     .always = true,
                                     .device = device,
                                     .flags = flags};
  result = vgpu_cuda_side_call(worker, &call);
  if (result == VGPU_WAITS) return result;
  result = made(worker, device, result);
  if (result != CUDA_SUCCESS) return result;
  result = add_context(worker, number, device, call.made, primary);
  if (result != CUDA_SUCCESS)
    (void)vgpu_cuda_end(worker, &(struct vgpu_cuda_ending){.end = primary ? release_primary : destroy_context,
                                                           .object = call.made,
                                                           .device = device});
  return result;
}

int32_t vgpu_cuda_cuCtxCreate_v2(struct vgpu_worker *worker, const struct vgpu_send_cuCtxCreate_v2 *send) {
  return begin(worker, send->context, false, send->device, send->flags);
}

int32_t vgpu_cuda_cuDevicePrimaryCtxRetain(struct vgpu_worker *worker,
                                           const struct vgpu_send_cuDevicePrimaryCtxRetain *send) {
  return begin(worker, send->context, true, send->device, send->flags);
}

int32_t vgpu_cuda_cuCtxDestroy_v2(struct vgpu_worker *worker, const struct vgpu_send_cuCtxDestroy_v2 *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_handle *found = vgpu_handles_find(&worker->handles, send->context, VGPU_HANDLE_CONTEXT);
  if (found == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (found->object != NULL) return vgpu_cuda_end_green(worker, found);
  vgpu_cuda_end_greens(worker, send->context);
  found = vgpu_handles_find(&worker->handles, send->context, VGPU_HANDLE_CONTEXT);
  struct vgpu_cuda_ending ending = {.end = found->primary ? release_primary : destroy_context,
                                    .object = found->driver,
                                    .device = found->device};
  vgpu_accounts_context(worker->accounts, worker->slot, ending.device, -1);
  ending.counted = vgpu_cuda_forget_context(worker, send->context, ending.device);
  return vgpu_cuda_end(worker, &ending);
}

static int query_context(struct vgpu_worker *worker, void *context) {
  const uint64_t number = *(const uint64_t *)context;
  const int result = vgpu_cuda_query_context(worker, number);
  return result == CUDA_SUCCESS ? vgpu_cuda_query_greens(worker, number) : result;
}

int32_t vgpu_cuda_cuCtxSynchronize(struct vgpu_worker *worker,
                                   const struct vgpu_send_cuCtxSynchronize *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  uint64_t context = send->context;
  if (result == CUDA_SUCCESS) result = vgpu_cuda_wait(worker, query_context, &context);
  if (result == CUDA_SUCCESS) vgpu_cuda_no_wait(worker, context);
  /* All work is done. The answer tells the guest to fetch the output of kernels. */
  return result == CUDA_SUCCESS ? VGPU_DRIVER(&cuda->api, cuCtxSynchronize, ) : result;
}

int32_t vgpu_cuda_cuStreamCreate(struct vgpu_worker *worker, const struct vgpu_send_cuStreamCreate *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_stream *stream = NULL;
  result = VGPU_DRIVER(&cuda->api, cuStreamCreateWithPriority, &stream, send->flags, send->priority);
  if (result != CUDA_SUCCESS) return result;
  if (vgpu_cuda_stream_begins(worker, send->context, stream)) {
    if (vgpu_cuda_remember(worker, send->number, VGPU_HANDLE_STREAM, send->context, stream)) return result;
    vgpu_cuda_stream_ends(worker, stream);
  }
  VGPU_DRIVER(&cuda->api, cuStreamDestroy_v2, stream);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

int32_t vgpu_cuda_cuStreamDestroy_v2(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuStreamDestroy_v2 *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_stream *stream = vgpu_cuda_object(worker, send->stream, VGPU_HANDLE_STREAM);
  if (stream == NULL) return CUDA_ERROR_INVALID_HANDLE;
  vgpu_handles_remove(&worker->handles, send->stream, VGPU_HANDLE_STREAM);
  vgpu_cuda_slice_close(worker);
  vgpu_cuda_stream_ends(worker, stream);
  return VGPU_DRIVER(&cuda->api, cuStreamDestroy_v2, stream);
}

/*
 * Makes the driver release freed memory of pools, which queries do not do. Never waits: the stream is idle.
 */
static int32_t shrink_pools(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  if (!vgpu_cuda_pools_keep(worker) || vgpu_cuda_is_held(cuda) ||
      vgpu_cuda_query_stream(worker, context, stream) != CUDA_SUCCESS)
    return CUDA_SUCCESS;
  return VGPU_DRIVER(&cuda->api, cuStreamSynchronize, stream);
}

int32_t vgpu_cuda_cuStreamSynchronize(struct vgpu_worker *worker,
                                      const struct vgpu_send_cuStreamSynchronize *send,
                                      struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
  if (result == CUDA_SUCCESS) result = vgpu_cuda_await_stream(worker, send->context, stream);
  if (result == CUDA_SUCCESS) result = shrink_pools(worker, send->context, stream);
  return result == CUDA_SUCCESS ? vgpu_cuda_hand_out(worker, bulk) : result;
}

int32_t vgpu_cuda_cuStreamQuery(struct vgpu_worker *worker, const struct vgpu_send_cuStreamQuery *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
  return result == CUDA_SUCCESS ? VGPU_DRIVER(&cuda->api, cuStreamQuery, stream) : result;
}

static int32_t find_event(struct vgpu_worker *worker, uint64_t number, struct vgpu_cuda **cuda,
                          struct vgpu_event **event) {
  int32_t result = vgpu_cuda_open(worker, cuda);
  if (result != CUDA_SUCCESS) return result;
  *event = vgpu_cuda_object(worker, number, VGPU_HANDLE_EVENT);
  return *event == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

int32_t vgpu_cuda_cuStreamWaitEvent(struct vgpu_worker *worker,
                                    const struct vgpu_send_cuStreamWaitEvent *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_event *event;
  struct vgpu_stream *stream;
  int32_t result = find_event(worker, send->event, &cuda, &event);
  if (result != CUDA_SUCCESS) return result;
  result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
  return result == CUDA_SUCCESS ? VGPU_DRIVER(&cuda->api, cuStreamWaitEvent, stream, event, send->flags)
                                : result;
}

int32_t vgpu_cuda_cuEventCreate(struct vgpu_worker *worker, const struct vgpu_send_cuEventCreate *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_event *event = NULL;
  result = VGPU_DRIVER(&cuda->api, cuEventCreate, &event, send->flags);
  if (result != CUDA_SUCCESS) return result;
  if (vgpu_cuda_remember(worker, send->event, VGPU_HANDLE_EVENT, send->context, event)) return result;
  VGPU_DRIVER(&cuda->api, cuEventDestroy_v2, event);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

int32_t vgpu_cuda_cuEventDestroy_v2(struct vgpu_worker *worker,
                                    const struct vgpu_send_cuEventDestroy_v2 *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_event *event;
  int32_t result = find_event(worker, send->event, &cuda, &event);
  if (result != CUDA_SUCCESS) return result;
  vgpu_cuda_unshare(worker, 0, send->event);
  vgpu_handles_remove(&worker->handles, send->event, VGPU_HANDLE_EVENT);
  return VGPU_DRIVER(&cuda->api, cuEventDestroy_v2, event);
}

int32_t vgpu_cuda_cuEventRecordWithFlags(struct vgpu_worker *worker,
                                         const struct vgpu_send_cuEventRecordWithFlags *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_event *event;
  struct vgpu_stream *stream;
  int32_t result = find_event(worker, send->event, &cuda, &event);
  if (result != CUDA_SUCCESS) return result;
  result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (send->flags == 0) return VGPU_DRIVER(&cuda->api, cuEventRecord, event, stream);
  return VGPU_DRIVER(&cuda->api, cuEventRecordWithFlags, event, stream, send->flags);
}

int32_t vgpu_cuda_cuEventQuery(struct vgpu_worker *worker, const struct vgpu_send_cuEventQuery *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_event *event;
  int32_t result = find_event(worker, send->event, &cuda, &event);
  return result == CUDA_SUCCESS ? vgpu_cuda_query_event(worker, event) : result;
}

int32_t vgpu_cuda_cuEventSynchronize(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuEventSynchronize *send,
                                     struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda;
  struct vgpu_event *event;
  int32_t result = find_event(worker, send->event, &cuda, &event);
  if (result == CUDA_SUCCESS) result = vgpu_cuda_wait(worker, vgpu_cuda_query_event, event);
  /* As in shrink_pools(). The event is over, so this does not wait. */
  if (result == CUDA_SUCCESS && vgpu_cuda_pools_keep(worker))
    result = VGPU_DRIVER(&cuda->api, cuEventSynchronize, event);
  return result == CUDA_SUCCESS ? vgpu_cuda_hand_out(worker, bulk) : result;
}

int32_t vgpu_cuda_gate_reached(struct vgpu_worker *worker, const struct vgpu_send_gate_reached *send,
                               struct vgpu_bulk *bulk) {
  return vgpu_cuda_cuEventSynchronize(worker, &(struct vgpu_send_cuEventSynchronize){.event = send->event},
                                      bulk);
}

int32_t vgpu_cuda_cuEventElapsedTime_v2(struct vgpu_worker *worker,
                                        const struct vgpu_send_cuEventElapsedTime_v2 *send,
                                        struct vgpu_reply_cuEventElapsedTime_v2 *reply) {
  struct vgpu_cuda *cuda;
  struct vgpu_event *start, *end;
  int32_t result = find_event(worker, send->start, &cuda, &start);
  if (result == CUDA_SUCCESS) result = find_event(worker, send->end, &cuda, &end);
  /* The first version is in every driver and gives the same number. */
  return result == CUDA_SUCCESS
             ? VGPU_DRIVER(&cuda->api, cuEventElapsedTime, &reply->milliseconds, start, end)
             : result;
}
