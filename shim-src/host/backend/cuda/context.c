/* Contexts, streams and events on the host's GPU. */
#include "host/backend/cuda/real.h"

static int32_t add_context(struct vgpu_worker *worker, uint64_t number, uint32_t device, void *context,
                           bool primary) {
  if (!vgpu_real_remember(worker, number, VGPU_HANDLE_CONTEXT, number, context))
    return VGPU_REAL_INVALID_VALUE;
  struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, number, VGPU_HANDLE_CONTEXT);
  handle->device = device;
  handle->primary = primary;
  __atomic_add_fetch(&worker->accounts->slots[worker->slot].contexts[device], 1, __ATOMIC_RELAXED);
  return VGPU_REAL_SUCCESS;
}

static int32_t find_device(struct vgpu_worker *worker, uint32_t index, struct vgpu_real **real,
                           int32_t *device) {
  if (index >= worker->inventory->count) return VGPU_REAL_INVALID_DEVICE;
  int32_t result = vgpu_real_open(worker, real);
  if (result != VGPU_REAL_SUCCESS) return result;
  return VGPU_REAL(&(*real)->api, cuDeviceGet, device, (int32_t)index);
}

int32_t vgpu_real_cuCtxCreate_v2(struct vgpu_worker *worker, const struct vgpu_send_cuCtxCreate_v2 *send) {
  struct vgpu_real *real;
  int32_t device;
  int32_t result = find_device(worker, send->device, &real, &device);
  if (result != VGPU_REAL_SUCCESS) return result;
  struct vgpu_context *context = NULL, *popped = NULL;
  result = VGPU_REAL(&real->api, cuCtxCreate_v2, &context, send->flags, device);
  if (result != VGPU_REAL_SUCCESS) return result;
  /* It came on top of this thread's stack; calls name their context themselves. */
  VGPU_REAL(&real->api, cuCtxPopCurrent_v2, &popped);
  result = add_context(worker, send->context, send->device, context, false);
  if (result != VGPU_REAL_SUCCESS) VGPU_REAL(&real->api, cuCtxDestroy_v2, context);
  return result;
}

int32_t vgpu_real_cuDevicePrimaryCtxRetain(struct vgpu_worker *worker,
                                           const struct vgpu_send_cuDevicePrimaryCtxRetain *send) {
  struct vgpu_real *real;
  int32_t device;
  int32_t result = find_device(worker, send->device, &real, &device);
  if (result != VGPU_REAL_SUCCESS) return result;
  struct vgpu_context *context = NULL;
  result = VGPU_REAL(&real->api, cuDevicePrimaryCtxSetFlags_v2, device, send->flags);
  if (result == VGPU_REAL_SUCCESS) result = VGPU_REAL(&real->api, cuDevicePrimaryCtxRetain, &context, device);
  if (result != VGPU_REAL_SUCCESS) return result;
  result = add_context(worker, send->context, send->device, context, true);
  if (result != VGPU_REAL_SUCCESS) VGPU_REAL(&real->api, cuDevicePrimaryCtxRelease_v2, device);
  return result;
}

int32_t vgpu_real_cuCtxDestroy_v2(struct vgpu_worker *worker, const struct vgpu_send_cuCtxDestroy_v2 *send) {
  struct vgpu_real *real;
  int32_t result = vgpu_real_open(worker, &real);
  if (result != VGPU_REAL_SUCCESS) return result;
  const struct vgpu_handle *found = vgpu_handles_find(&worker->handles, send->context, VGPU_HANDLE_CONTEXT);
  if (found == NULL) return VGPU_REAL_INVALID_CONTEXT;
  const struct vgpu_handle handle = *found;
  __atomic_sub_fetch(&worker->accounts->slots[worker->slot].contexts[handle.device], 1, __ATOMIC_RELAXED);
  vgpu_real_forget_context(worker, send->context);
  if (!handle.primary) return VGPU_REAL(&real->api, cuCtxDestroy_v2, handle.real);
  int32_t device;
  result = VGPU_REAL(&real->api, cuDeviceGet, &device, (int32_t)handle.device);
  return result == VGPU_REAL_SUCCESS ? VGPU_REAL(&real->api, cuDevicePrimaryCtxRelease_v2, device) : result;
}

/* The driver has no query for a whole context: its streams are asked one after the other. */
static int query_context(const struct vgpu_real *real, void *what) {
  struct vgpu_worker *worker = what;
  int result = VGPU_REAL(&real->api, cuStreamQuery, NULL);
  for (size_t i = 0; result == VGPU_REAL_SUCCESS && i < worker->handles.capacity; i++) {
    const struct vgpu_handle *handle = &worker->handles.places[i];
    if (handle->number != 0 && handle->type == VGPU_HANDLE_STREAM) {
      result = VGPU_REAL(&real->api, cuStreamQuery, handle->real);
    }
  }
  return result;
}

int32_t vgpu_real_cuCtxSynchronize(struct vgpu_worker *worker,
                                   const struct vgpu_send_cuCtxSynchronize *send) {
  struct vgpu_real *real;
  int32_t result = vgpu_real_enter(worker, send->context, &real);
  if (result == VGPU_REAL_SUCCESS) result = vgpu_real_wait(query_context, real, worker);
  return result == VGPU_REAL_SUCCESS ? VGPU_REAL(&real->api, cuCtxSynchronize, ) : result;
}

int32_t vgpu_real_cuStreamCreate(struct vgpu_worker *worker, const struct vgpu_send_cuStreamCreate *send) {
  struct vgpu_real *real;
  int32_t result = vgpu_real_enter(worker, send->context, &real);
  if (result != VGPU_REAL_SUCCESS) return result;
  struct vgpu_stream *stream = NULL;
  result = VGPU_REAL(&real->api, cuStreamCreateWithPriority, &stream, send->flags, send->priority);
  if (result != VGPU_REAL_SUCCESS) return result;
  if (vgpu_real_remember(worker, send->number, VGPU_HANDLE_STREAM, send->context, stream)) return result;
  VGPU_REAL(&real->api, cuStreamDestroy_v2, stream);
  return VGPU_REAL_OUT_OF_MEMORY;
}

int32_t vgpu_real_cuStreamDestroy_v2(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuStreamDestroy_v2 *send) {
  struct vgpu_real *real;
  int32_t result = vgpu_real_open(worker, &real);
  if (result != VGPU_REAL_SUCCESS) return result;
  struct vgpu_stream *stream = vgpu_real_object(worker, send->stream, VGPU_HANDLE_STREAM);
  if (stream == NULL) return VGPU_REAL_INVALID_HANDLE;
  vgpu_handles_remove(&worker->handles, send->stream, VGPU_HANDLE_STREAM);
  return VGPU_REAL(&real->api, cuStreamDestroy_v2, stream);
}

int32_t vgpu_real_cuStreamSynchronize(struct vgpu_worker *worker,
                                      const struct vgpu_send_cuStreamSynchronize *send,
                                      struct vgpu_bulk *bulk) {
  struct vgpu_real *real;
  struct vgpu_stream *stream;
  int32_t result = vgpu_real_enter_stream(worker, send->context, send->stream, &real, &stream);
  if (result == VGPU_REAL_SUCCESS) result = vgpu_real_wait(vgpu_real_query_stream, real, stream);
  return result == VGPU_REAL_SUCCESS ? vgpu_real_hand_out(worker, bulk) : result;
}

int32_t vgpu_real_cuStreamQuery(struct vgpu_worker *worker, const struct vgpu_send_cuStreamQuery *send) {
  struct vgpu_real *real;
  struct vgpu_stream *stream;
  int32_t result = vgpu_real_enter_stream(worker, send->context, send->stream, &real, &stream);
  return result == VGPU_REAL_SUCCESS ? vgpu_real_query_stream(real, stream) : result;
}

static int32_t find_event(struct vgpu_worker *worker, uint64_t number, struct vgpu_real **real,
                          struct vgpu_event **event) {
  int32_t result = vgpu_real_open(worker, real);
  if (result != VGPU_REAL_SUCCESS) return result;
  *event = vgpu_real_object(worker, number, VGPU_HANDLE_EVENT);
  return *event == NULL ? VGPU_REAL_INVALID_HANDLE : VGPU_REAL_SUCCESS;
}

int32_t vgpu_real_cuStreamWaitEvent(struct vgpu_worker *worker,
                                    const struct vgpu_send_cuStreamWaitEvent *send) {
  struct vgpu_real *real;
  struct vgpu_event *event;
  struct vgpu_stream *stream;
  int32_t result = find_event(worker, send->event, &real, &event);
  if (result != VGPU_REAL_SUCCESS) return result;
  result = vgpu_real_enter_stream(worker, send->context, send->stream, &real, &stream);
  return result == VGPU_REAL_SUCCESS ? VGPU_REAL(&real->api, cuStreamWaitEvent, stream, event, send->flags)
                                     : result;
}

int32_t vgpu_real_cuEventCreate(struct vgpu_worker *worker, const struct vgpu_send_cuEventCreate *send) {
  struct vgpu_real *real;
  int32_t result = vgpu_real_enter(worker, send->context, &real);
  if (result != VGPU_REAL_SUCCESS) return result;
  struct vgpu_event *event = NULL;
  result = VGPU_REAL(&real->api, cuEventCreate, &event, send->flags);
  if (result != VGPU_REAL_SUCCESS) return result;
  if (vgpu_real_remember(worker, send->event, VGPU_HANDLE_EVENT, send->context, event)) return result;
  VGPU_REAL(&real->api, cuEventDestroy_v2, event);
  return VGPU_REAL_OUT_OF_MEMORY;
}

int32_t vgpu_real_cuEventDestroy_v2(struct vgpu_worker *worker,
                                    const struct vgpu_send_cuEventDestroy_v2 *send) {
  struct vgpu_real *real;
  struct vgpu_event *event;
  int32_t result = find_event(worker, send->event, &real, &event);
  if (result != VGPU_REAL_SUCCESS) return result;
  vgpu_handles_remove(&worker->handles, send->event, VGPU_HANDLE_EVENT);
  return VGPU_REAL(&real->api, cuEventDestroy_v2, event);
}

int32_t vgpu_real_cuEventRecordWithFlags(struct vgpu_worker *worker,
                                         const struct vgpu_send_cuEventRecordWithFlags *send) {
  struct vgpu_real *real;
  struct vgpu_event *event;
  struct vgpu_stream *stream;
  int32_t result = find_event(worker, send->event, &real, &event);
  if (result != VGPU_REAL_SUCCESS) return result;
  result = vgpu_real_enter_stream(worker, send->context, send->stream, &real, &stream);
  if (result != VGPU_REAL_SUCCESS) return result;
  if (send->flags == 0) return VGPU_REAL(&real->api, cuEventRecord, event, stream);
  return VGPU_REAL(&real->api, cuEventRecordWithFlags, event, stream, send->flags);
}

static int query_event(const struct vgpu_real *real, void *event) {
  return VGPU_REAL(&real->api, cuEventQuery, event);
}

int32_t vgpu_real_cuEventQuery(struct vgpu_worker *worker, const struct vgpu_send_cuEventQuery *send) {
  struct vgpu_real *real;
  struct vgpu_event *event;
  int32_t result = find_event(worker, send->event, &real, &event);
  return result == VGPU_REAL_SUCCESS ? query_event(real, event) : result;
}

int32_t vgpu_real_cuEventSynchronize(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuEventSynchronize *send,
                                     struct vgpu_bulk *bulk) {
  struct vgpu_real *real;
  struct vgpu_event *event;
  int32_t result = find_event(worker, send->event, &real, &event);
  if (result == VGPU_REAL_SUCCESS) result = vgpu_real_wait(query_event, real, event);
  return result == VGPU_REAL_SUCCESS ? vgpu_real_hand_out(worker, bulk) : result;
}

int32_t vgpu_real_cuEventElapsedTime_v2(struct vgpu_worker *worker,
                                        const struct vgpu_send_cuEventElapsedTime_v2 *send,
                                        struct vgpu_reply_cuEventElapsedTime_v2 *reply) {
  struct vgpu_real *real;
  struct vgpu_event *start, *end;
  int32_t result = find_event(worker, send->start, &real, &start);
  if (result == VGPU_REAL_SUCCESS) result = find_event(worker, send->end, &real, &end);
  /* The first version is in every driver and gives the same number. */
  return result == VGPU_REAL_SUCCESS
             ? VGPU_REAL(&real->api, cuEventElapsedTime, &reply->milliseconds, start, end)
             : result;
}
