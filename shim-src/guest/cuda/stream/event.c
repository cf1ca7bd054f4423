/* Events. Their handles are made in the guest, their times are measured at the host. */
#include <stdlib.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/stream/capture.h"

#define NO_TIMING 2u         /* CU_EVENT_DISABLE_TIMING */
#define BETWEEN_PROCESSES 4u /* CU_EVENT_INTERPROCESS */

static int number_of(struct vgpu_driver **driver, const struct vgpu_event *event, uint64_t *number) {
  int result;
  *driver = vgpu_cuda_driver(&result);
  if (*driver == NULL) return result;
  pthread_mutex_lock(&(*driver)->lock);
  bool live = vgpu_objects_has(&(*driver)->objects, event, VGPU_OBJECT_EVENT);
  if (live) *number = event->number;
  pthread_mutex_unlock(&(*driver)->lock);
  return live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

int vgpu_cuda_post_event(uint64_t context, uint64_t event, uint64_t stream) {
  const struct vgpu_send_cuEventCreate make = {.context = context, .event = event, .flags = NO_TIMING};
  const struct vgpu_send_cuEventRecordWithFlags record = {
      .context = context, .event = event, .stream = stream};
  int result = vgpu_cuda_post_uncaptured(VGPU_OP_cuEventCreate, &make, sizeof make);
  if (result != CUDA_SUCCESS) return result;
  return vgpu_cuda_post_uncaptured(VGPU_OP_cuEventRecordWithFlags, &record, sizeof record);
}

int cuEventCreate(struct vgpu_event **phEvent, uint32_t Flags) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  /* The flags: 1 blocking, 2 no timing, 4 between processes. */
  if (phEvent == NULL || (Flags & ~7u) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & BETWEEN_PROCESSES) != 0 && (Flags & 2u) == 0) return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & BETWEEN_PROCESSES) != 0 && !vgpu_ipc_possible()) return CUDA_ERROR_NOT_SUPPORTED;
  struct vgpu_context *context = NULL;
  struct vgpu_send_cuEventCreate send = {.flags = Flags};
  result = vgpu_cuda_owner(driver, &context, &send.context);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_event *event = malloc(sizeof *event);
  if (event == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&driver->lock);
  send.event = vgpu_cuda_next_number(driver);
  *event = (struct vgpu_event){.number = send.event, .context = context, .flags = Flags};
  bool added = vgpu_objects_add(&driver->objects, event, VGPU_OBJECT_EVENT);
  pthread_mutex_unlock(&driver->lock);
  if (!added) {
    free(event);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *phEvent = event;
  return vgpu_cuda_post(VGPU_OP_cuEventCreate, &send, sizeof send, NULL, 0);
}

int cuEventDestroy_v2(struct vgpu_event *hEvent) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_remove(&driver->objects, hEvent, VGPU_OBJECT_EVENT);
  pthread_mutex_unlock(&driver->lock);
  if (!live) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_send_cuEventDestroy_v2 send = {.event = hEvent->number};
  free(hEvent);
  return vgpu_cuda_post(VGPU_OP_cuEventDestroy_v2, &send, sizeof send, NULL, 0);
}

int cuEventDestroy(struct vgpu_event *hEvent) {
  return cuEventDestroy_v2(hEvent);
}

#define EXTERNAL 1u /* CU_EVENT_RECORD_EXTERNAL, CU_EVENT_WAIT_EXTERNAL: a node if the stream captures */

static int external(struct vgpu_driver *driver, const struct vgpu_stream *stream, struct vgpu_event *event,
                    enum vgpu_node_kind kind) {
  int result;
  struct vgpu_node_params params = {.type = (int32_t)kind, .of.event = event};
  return vgpu_capture_node(driver, stream, &params, &result) ? result : CUDA_ERROR_ILLEGAL_STATE;
}

void vgpu_event_recorded(struct vgpu_driver *driver, struct vgpu_event *event, uint64_t stream) {
  pthread_mutex_lock(&driver->lock);
  if (vgpu_objects_has(&driver->objects, event, VGPU_OBJECT_EVENT)) {
    __atomic_store_n(&event->stream, stream, __ATOMIC_RELAXED);
    __atomic_add_fetch(&event->records, 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&driver->lock);
}

int cuEventRecordWithFlags(struct vgpu_event *hEvent, struct vgpu_stream *hStream, uint32_t flags) {
  struct vgpu_driver *driver;
  struct vgpu_send_cuEventRecordWithFlags send = {.flags = flags};
  int result = number_of(&driver, hEvent, &send.event);
  if (result == CUDA_SUCCESS) result = vgpu_cuda_stream_place(driver, hStream, &send.stream, &send.context);
  if (result != CUDA_SUCCESS) return result;
  if (flags == EXTERNAL) return external(driver, hStream, hEvent, VGPU_NODE_RECORD);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  result = vgpu_cuda_post(VGPU_OP_cuEventRecordWithFlags, &send, sizeof send, NULL, 0);
  __atomic_store_n(&hEvent->stream, send.stream, __ATOMIC_RELAXED);
  __atomic_add_fetch(&hEvent->records, 1, __ATOMIC_RELEASE);
  /*
   * Another process may learn from this one that the event was recorded. It must then find the event recorded
   * at the host, so this process waits for the host.
   */
  if (result == CUDA_SUCCESS && (hEvent->flags & BETWEEN_PROCESSES) != 0) {
    struct vgpu_send_cuEventQuery query = {.event = send.event};
    int complete = vgpu_cuda_call(VGPU_OP_cuEventQuery, &query, sizeof query, NULL, 0);
    if (complete != CUDA_ERROR_NOT_READY) result = complete;
  }
  return result;
}

int cuEventRecord(struct vgpu_event *hEvent, struct vgpu_stream *hStream) {
  return cuEventRecordWithFlags(hEvent, hStream, 0);
}

int cuStreamWaitEvent(struct vgpu_stream *hStream, struct vgpu_event *hEvent, uint32_t Flags) {
  struct vgpu_driver *driver;
  struct vgpu_send_cuStreamWaitEvent send = {.flags = Flags};
  int result = number_of(&driver, hEvent, &send.event);
  if (result == CUDA_SUCCESS) result = vgpu_cuda_stream_place(driver, hStream, &send.stream, &send.context);
  if (result != CUDA_SUCCESS) return result;
  if (Flags == EXTERNAL) return external(driver, hStream, hEvent, VGPU_NODE_WAIT);
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return vgpu_cuda_post(VGPU_OP_cuStreamWaitEvent, &send, sizeof send, NULL, 0);
}

/* NULL does not stand for the current context here: driver 580 refuses it. */
static int context_of_events(struct vgpu_driver *driver, struct vgpu_context *context, uint64_t *number) {
  return context == NULL ? CUDA_ERROR_INVALID_CONTEXT : vgpu_cuda_context_given(driver, context, number);
}

/* Records an event for a whole context: for all calls that were made in it. */
int cuCtxRecordEvent(struct vgpu_context *hCtx, struct vgpu_event *hEvent) {
  struct vgpu_driver *driver;
  struct vgpu_send_cuCtxRecordEvent send = {0};
  int result = number_of(&driver, hEvent, &send.event);
  if (result == CUDA_SUCCESS) result = context_of_events(driver, hCtx, &send.context);
  if (result != CUDA_SUCCESS) return result;
  if (hEvent->context != vgpu_cuda_owner_of(hCtx)) return CUDA_ERROR_INVALID_HANDLE;
  vgpu_host_functions_wait_context(driver, send.context);
  result = vgpu_cuda_post(VGPU_OP_cuCtxRecordEvent, &send, sizeof send, NULL, 0);
  __atomic_store_n(&hEvent->stream, 0, __ATOMIC_RELAXED);
  __atomic_add_fetch(&hEvent->records, 1, __ATOMIC_RELEASE);
  return result;
}

int cuCtxWaitEvent(struct vgpu_context *hCtx, struct vgpu_event *hEvent) {
  struct vgpu_driver *driver;
  struct vgpu_send_cuCtxWaitEvent send = {0};
  int result = number_of(&driver, hEvent, &send.event);
  if (result == CUDA_SUCCESS) result = context_of_events(driver, hCtx, &send.context);
  if (result != CUDA_SUCCESS) return result;
  return vgpu_cuda_post(VGPU_OP_cuCtxWaitEvent, &send, sizeof send, NULL, 0);
}

/*
 * An event that was never recorded, or is known to be complete since its last record, needs no request to the
 * host.
 */
static bool is_complete(const struct vgpu_event *event, uint32_t *records) {
  *records = __atomic_load_n(&event->records, __ATOMIC_ACQUIRE);
  if ((event->flags & BETWEEN_PROCESSES) != 0) return false; /* another process may have recorded it */
  return *records == __atomic_load_n(&event->completed, __ATOMIC_ACQUIRE);
}

int cuEventQuery(struct vgpu_event *hEvent) {
  struct vgpu_driver *driver;
  struct vgpu_send_cuEventQuery send = {0};
  int result = number_of(&driver, hEvent, &send.event);
  if (result != CUDA_SUCCESS) return result;
  uint32_t records;
  if (is_complete(hEvent, &records)) return vgpu_session_take_deferred(driver->session);
  result = vgpu_cuda_call(VGPU_OP_cuEventQuery, &send, sizeof send, NULL, 0);
  if (result == CUDA_SUCCESS) result = vgpu_readback_settle(driver, hEvent->context->number);
  if (result != CUDA_SUCCESS) return result;
  vgpu_pools_queried(driver);
  __atomic_store_n(&hEvent->completed, records, __ATOMIC_RELEASE);
  return vgpu_session_take_deferred(driver->session);
}

int cuEventSynchronize(struct vgpu_event *hEvent) {
  struct vgpu_driver *driver;
  struct vgpu_send_cuEventSynchronize send = {0};
  int result = number_of(&driver, hEvent, &send.event);
  if (result != CUDA_SUCCESS) return result;
  uint32_t records, changes;
  const bool await_pools = vgpu_pools_await(driver, &changes);
  if (is_complete(hEvent, &records) && !await_pools) return vgpu_session_take_deferred(driver->session);
  result = vgpu_readback_wait(driver, VGPU_OP_cuEventSynchronize, &send, sizeof send, hEvent->context->number,
                              __atomic_load_n(&hEvent->stream, __ATOMIC_RELAXED), VGPU_WAIT_EVENT);
  if (result != CUDA_SUCCESS) return result;
  vgpu_pools_waited(driver, changes);
  __atomic_store_n(&hEvent->completed, records, __ATOMIC_RELEASE);
  return result;
}

int cuEventElapsedTime_v2(float *pMilliseconds, struct vgpu_event *hStart, struct vgpu_event *hEnd) {
  struct vgpu_driver *driver;
  struct vgpu_send_cuEventElapsedTime_v2 send = {0};
  int result = number_of(&driver, hStart, &send.start);
  if (result == CUDA_SUCCESS) result = number_of(&driver, hEnd, &send.end);
  if (result != CUDA_SUCCESS) return result;
  if (pMilliseconds == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_reply_cuEventElapsedTime_v2 reply;
  result = vgpu_cuda_call(VGPU_OP_cuEventElapsedTime_v2, &send, sizeof send, &reply, sizeof reply);
  if (result == CUDA_SUCCESS) *pMilliseconds = reply.milliseconds;
  return result;
}

int cuEventElapsedTime(float *pMilliseconds, struct vgpu_event *hStart, struct vgpu_event *hEnd) {
  return cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}
