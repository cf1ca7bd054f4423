/* Streams: their handles are made here, and one-way calls announce them to the host. */
#include <stdlib.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/context/green.h"
#include "guest/cuda/stream/capture.h"
#include "guest/cuda/stream/host_function.h"

static bool is_default(const struct vgpu_stream *stream) {
  return stream == NULL || stream == VGPU_STREAM_LEGACY || stream == VGPU_STREAM_PER_THREAD;
}

/* A green context has no per-thread default stream. */
static int check(struct vgpu_driver *driver, const struct vgpu_stream *stream) {
  if (stream == VGPU_STREAM_PER_THREAD) {
    const struct vgpu_context *current = vgpu_cuda_current_context();
    return current != NULL && current->owner != NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  }
  if (is_default(stream)) return CUDA_SUCCESS;
  pthread_mutex_lock(&driver->lock);
  int result = CUDA_SUCCESS;
  if (!vgpu_objects_has(&driver->objects, stream, VGPU_OBJECT_STREAM)) result = CUDA_ERROR_INVALID_HANDLE;
  else if (stream->detached) result = CUDA_ERROR_STREAM_DETACHED;
  pthread_mutex_unlock(&driver->lock);
  return result;
}

int vgpu_cuda_stream_number(struct vgpu_driver *driver, struct vgpu_stream *stream, uint64_t *number) {
  const int result = check(driver, stream);
  if (result != CUDA_SUCCESS) return result;
  *number = is_default(stream) ? (uint64_t)(uintptr_t)stream : stream->number;
  vgpu_host_functions_keep_pace(driver);
  return CUDA_SUCCESS;
}

uint32_t vgpu_cuda_stream_sms(struct vgpu_driver *driver, const struct vgpu_stream *stream) {
  if (check(driver, stream) != CUDA_SUCCESS) return 0;
  const struct vgpu_context *context = is_default(stream) ? vgpu_cuda_current_context() : stream->context;
  return context == NULL ? 0 : context->sms;
}

int vgpu_cuda_stream_place(struct vgpu_driver *driver, struct vgpu_stream *stream, uint64_t *number,
                           uint64_t *context) {
  if (vgpu_host_function_runs()) return CUDA_ERROR_NOT_PERMITTED;
  vgpu_host_functions_keep_pace(driver);
  return vgpu_cuda_stream_identity(driver, stream, number, context);
}

int vgpu_cuda_stream_identity(struct vgpu_driver *driver, struct vgpu_stream *stream, uint64_t *number,
                              uint64_t *context) {
  const int result = check(driver, stream);
  if (result != CUDA_SUCCESS) return result;
  if (is_default(stream)) {
    *number = (uint64_t)(uintptr_t)stream;
    return vgpu_cuda_context_number(context);
  }
  *number = stream->number;
  *context = stream->context->number;
  return CUDA_SUCCESS;
}

int cuStreamCreateWithPriority(struct vgpu_stream **phStream, uint32_t flags, int32_t priority) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (phStream == NULL || (flags & ~1u) != 0) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_context *context = NULL;
  result = vgpu_cuda_current(driver, &context);
  struct vgpu_send_cuStreamCreate send = {.flags = flags};
  if (result == CUDA_SUCCESS) result = vgpu_cuda_context_number(&send.context);
  if (result != CUDA_SUCCESS) return result;
  /* A priority out of range is changed to the nearest valid one, as the API says. */
  send.priority = priority > 0 ? 0 : priority < VGPU_GREATEST_PRIORITY ? VGPU_GREATEST_PRIORITY : priority;
  struct vgpu_stream *stream = malloc(sizeof *stream);
  if (stream == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&driver->lock);
  send.number = vgpu_cuda_next_number(driver);
  *stream = (struct vgpu_stream){
      .number = send.number, .context = context, .flags = flags, .priority = send.priority};
  bool added = vgpu_objects_add(&driver->objects, stream, VGPU_OBJECT_STREAM);
  pthread_mutex_unlock(&driver->lock);
  if (!added) {
    free(stream);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *phStream = stream;
  return vgpu_cuda_post(VGPU_OP_cuStreamCreate, &send, sizeof send, NULL, 0);
}

int cuStreamCreate(struct vgpu_stream **phStream, uint32_t Flags) {
  return cuStreamCreateWithPriority(phStream, Flags, 0);
}

int cuStreamDestroy_v2(struct vgpu_stream *hStream) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_has(&driver->objects, hStream, VGPU_OBJECT_STREAM);
  /* The stream ended at the host with its green context. Its handle stays until the primary context ends. */
  const bool detached = live && hStream->detached;
  if (live && !detached) vgpu_objects_remove(&driver->objects, hStream, VGPU_OBJECT_STREAM);
  pthread_mutex_unlock(&driver->lock);
  if (detached) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!live) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_send_cuStreamDestroy_v2 send = {.stream = hStream->number};
  free(hStream);
  vgpu_capture_streams_ended(driver);
  return vgpu_cuda_post(VGPU_OP_cuStreamDestroy_v2, &send, sizeof send, NULL, 0);
}

int cuStreamDestroy(struct vgpu_stream *hStream) {
  return cuStreamDestroy_v2(hStream);
}

int vgpu_cuda_wait_stream(struct vgpu_driver *driver, uint64_t context, uint64_t stream) {
  struct vgpu_send_cuStreamSynchronize send = {.context = context, .stream = stream};
  return vgpu_readback_wait(driver, VGPU_OP_cuStreamSynchronize, &send, sizeof send, context, stream,
                            VGPU_WAIT_STREAM);
}

int vgpu_cuda_wait_turn(struct vgpu_driver *driver, uint64_t context, uint64_t stream) {
  pthread_mutex_lock(&driver->lock);
  uint64_t event = vgpu_cuda_next_number(driver);
  pthread_mutex_unlock(&driver->lock);
  int result = vgpu_cuda_post_event(context, event, stream);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_send_cuEventSynchronize send = {.event = event};
  result = vgpu_readback_wait(driver, VGPU_OP_cuEventSynchronize, &send, sizeof send, context, stream,
                              VGPU_WAIT_EVENT);
  const struct vgpu_send_cuEventDestroy_v2 end = {.event = event};
  int ended = vgpu_cuda_post(VGPU_OP_cuEventDestroy_v2, &end, sizeof end, NULL, 0);
  return result != CUDA_SUCCESS ? result : ended;
}

static bool is_legacy(const struct vgpu_stream *stream) {
  return stream == NULL || stream == VGPU_STREAM_LEGACY;
}

static uint64_t later(uint64_t *first, uint64_t second) {
  uint64_t value = __atomic_load_n(first, __ATOMIC_ACQUIRE);
  return value > second ? value : second;
}

/* True if no call was made on the stream since a thread last waited for it. */
static bool is_clean(struct vgpu_driver *driver, struct vgpu_stream *stream, uint64_t number,
                     struct vgpu_context *context) {
  uint64_t all = __atomic_load_n(&context->covered, __ATOMIC_ACQUIRE);
  if (is_legacy(stream))
    return vgpu_outstanding_none(&driver->outstanding, later(&context->legacy_covered, all));
  uint64_t covered = is_default(stream) ? vgpu_outstanding_thread(&driver->outstanding, context->number)
                                        : __atomic_load_n(&stream->covered, __ATOMIC_ACQUIRE);
  return vgpu_outstanding_none_on(&driver->outstanding, number, covered > all ? covered : all);
}

static void set_clean(struct vgpu_driver *driver, struct vgpu_stream *stream, struct vgpu_context *context,
                      uint64_t covered) {
  if (is_legacy(stream)) vgpu_outstanding_raise(&context->legacy_covered, covered);
  else if (is_default(stream))
    vgpu_outstanding_thread_covered(&driver->outstanding, context->number, covered);
  else vgpu_outstanding_raise(&stream->covered, covered);
}

/* Gives the stream's numbers and context. */
static int begin_wait(struct vgpu_stream *stream, struct vgpu_driver **driver, uint64_t *number,
                      uint64_t *context_number, struct vgpu_context **context) {
  int result;
  *driver = vgpu_cuda_driver(&result);
  if (*driver == NULL) return result;
  result = vgpu_cuda_stream_identity(*driver, stream, number, context_number);
  if (result != CUDA_SUCCESS) return result;
  *context = is_default(stream) ? vgpu_cuda_current_context() : stream->context;
  return *context == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

static int wait_unless_clean(struct vgpu_driver *driver, struct vgpu_stream *stream, uint64_t number,
                             struct vgpu_context *context, uint64_t context_number) {
  uint32_t changes;
  if (!vgpu_pools_await(driver, &changes) && is_clean(driver, stream, number, context)) return CUDA_SUCCESS;
  uint64_t covered = vgpu_outstanding_now(&driver->outstanding);
  int result = vgpu_cuda_wait_stream(driver, context_number, number);
  if (result != CUDA_SUCCESS) return result;
  vgpu_pools_waited(driver, changes);
  set_clean(driver, stream, context, covered);
  return result;
}

int vgpu_cuda_wait_legacy(struct vgpu_driver *driver) {
  uint64_t number = 0;
  int result = vgpu_cuda_context_number(&number);
  struct vgpu_context *context = vgpu_cuda_current_context();
  if (result != CUDA_SUCCESS || context == NULL)
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_CONTEXT;
  return wait_unless_clean(driver, NULL, 0, context, number);
}

int cuStreamSynchronize(struct vgpu_stream *hStream) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  uint64_t number = 0, context_number = 0;
  int result = begin_wait(hStream, &driver, &number, &context_number, &context);
  if (result != CUDA_SUCCESS) return result;
  if (vgpu_capture_forbids(driver, hStream, &result)) return result;
  vgpu_host_functions_wait(driver, context_number, number);
  result = wait_unless_clean(driver, hStream, number, context, context_number);
  return result != CUDA_SUCCESS ? result : vgpu_session_take_deferred(driver->session);
}

int cuStreamQuery(struct vgpu_stream *hStream) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  struct vgpu_send_cuStreamQuery send = {0};
  int result = begin_wait(hStream, &driver, &send.stream, &send.context, &context);
  if (result != CUDA_SUCCESS) return result;
  if (vgpu_capture_forbids(driver, hStream, &result)) return result;
  if (is_clean(driver, hStream, send.stream, context)) return vgpu_session_take_deferred(driver->session);
  uint64_t covered = vgpu_outstanding_now(&driver->outstanding);
  result = vgpu_cuda_call(VGPU_OP_cuStreamQuery, &send, sizeof send, NULL, 0);
  if (result == CUDA_SUCCESS) result = vgpu_readback_settle(driver, send.context);
  if (result != CUDA_SUCCESS) return result;
  vgpu_pools_queried(driver);
  set_clean(driver, hStream, context, covered);
  return vgpu_session_take_deferred(driver->session);
}

int cuCtxSynchronize(void) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_send_cuCtxSynchronize send = {0};
  result = vgpu_cuda_context_number(&send.context);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_context *context = vgpu_cuda_current_context();
  if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  vgpu_host_functions_wait_context(driver, send.context);
  uint32_t changes;
  if (!vgpu_pools_await(driver, &changes) &&
      vgpu_outstanding_none(&driver->outstanding, __atomic_load_n(&context->covered, __ATOMIC_ACQUIRE))) {
    return vgpu_session_take_deferred(driver->session);
  }
  uint64_t covered = vgpu_outstanding_now(&driver->outstanding);
  result = vgpu_readback_wait(driver, VGPU_OP_cuCtxSynchronize, &send, sizeof send, send.context, 0,
                              VGPU_WAIT_CONTEXT);
  if (result != CUDA_SUCCESS) return result;
  vgpu_pools_waited(driver, changes);
  vgpu_outstanding_raise(&context->covered, covered);
  return result;
}

static int describe(struct vgpu_stream *stream, struct vgpu_driver **driver, struct vgpu_context **context) {
  int result;
  *driver = vgpu_cuda_driver(&result);
  if (*driver == NULL) return result;
  result = check(*driver, stream);
  if (result != CUDA_SUCCESS) return result;
  if (is_default(stream)) return vgpu_cuda_current(*driver, context);
  *context = stream->context;
  return CUDA_SUCCESS;
}

int cuStreamGetFlags(struct vgpu_stream *hStream, uint32_t *flags) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = describe(hStream, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
  *flags = is_default(hStream) ? 0 : hStream->flags;
  return CUDA_SUCCESS;
}

int cuStreamGetPriority(struct vgpu_stream *hStream, int32_t *priority) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = describe(hStream, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (priority == NULL) return CUDA_ERROR_INVALID_VALUE;
  *priority = is_default(hStream) ? 0 : hStream->priority;
  return CUDA_SUCCESS;
}

int cuStreamGetCtx(struct vgpu_stream *hStream, struct vgpu_context **pctx) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = describe(hStream, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (pctx == NULL) return CUDA_ERROR_INVALID_VALUE;
  *pctx = context;
  return CUDA_SUCCESS;
}

int cuStreamGetGreenCtx(struct vgpu_stream *hStream, void **phCtx) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = describe(hStream, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (phCtx == NULL) return CUDA_ERROR_INVALID_VALUE;
  *phCtx = context->owner == NULL ? NULL : context;
  return CUDA_SUCCESS;
}

int cuStreamGetCtx_v2(struct vgpu_stream *hStream, struct vgpu_context **pCtx, void **pGreenCtx) {
  int result = cuStreamGetCtx(hStream, pCtx);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_context *green = (*pCtx)->owner == NULL ? NULL : *pCtx;
  if (green != NULL) *pCtx = green->owner;
  if (pGreenCtx != NULL) *pGreenCtx = green;
  return CUDA_SUCCESS;
}

int cuStreamGetDevice(struct vgpu_stream *hStream, int32_t *device) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = describe(hStream, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
  *device = context->ordinal;
  return CUDA_SUCCESS;
}

int cuStreamGetId(struct vgpu_stream *hStream, uint64_t *streamId) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = describe(hStream, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (streamId == NULL) return CUDA_ERROR_INVALID_VALUE;
  *streamId = is_default(hStream) ? (uint64_t)(uintptr_t)hStream : hStream->number;
  return CUDA_SUCCESS;
}

int cuStreamIsCapturing(struct vgpu_stream *hStream, int32_t *captureStatus) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = describe(hStream, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (captureStatus == NULL) return CUDA_ERROR_INVALID_VALUE;
  *captureStatus = vgpu_capture_status(driver, hStream);
  return CUDA_SUCCESS;
}
