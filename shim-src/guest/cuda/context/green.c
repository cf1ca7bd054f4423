#include "guest/cuda/context/green.h"

#include <stdlib.h>

#include "cuda_api.h"
#include "cuda_calls.h"

#define NON_BLOCKING 1u   /* CU_STREAM_NON_BLOCKING */
#define DEFAULT_STREAM 1u /* CU_GREEN_CTX_DEFAULT_STREAM */
#define OPTIONAL_SINCE 13010

struct vgpu_context *vgpu_cuda_owner_of(struct vgpu_context *context) {
  return context->owner == NULL ? context : context->owner;
}

int vgpu_cuda_owner(struct vgpu_driver *driver, struct vgpu_context **context, uint64_t *number) {
  int result = vgpu_cuda_current(driver, context);
  if (result == CUDA_SUCCESS) result = vgpu_cuda_context_number(number);
  if (result != CUDA_SUCCESS || (*context)->owner == NULL) return result;
  *context = vgpu_cuda_owner_of(*context);
  return vgpu_cuda_context_given(driver, *context, number);
}

/* The caller holds driver->lock. */
static bool is_green(const struct vgpu_driver *driver, const struct vgpu_context *handle) {
  return vgpu_objects_has(&driver->objects, handle, VGPU_OBJECT_CONTEXT) && handle->owner != NULL;
}

/* Makes a green context that the host does not have yet. */
static struct vgpu_context *begin(struct vgpu_driver *driver, struct vgpu_context *primary, uint32_t sms) {
  struct vgpu_context *green = malloc(sizeof *green);
  if (green == NULL) return NULL;
  pthread_mutex_lock(&driver->lock);
  *green = *primary;
  green->number = vgpu_cuda_next_number(driver);
  green->references = 1;
  green->primary = false;
  green->at_host = true;
  green->covered = green->legacy_covered = 0;
  green->gates = NULL;
  green->owner = primary;
  green->sms = sms;
  green->greens = green->held = 0;
  pthread_mutex_unlock(&driver->lock);
  return green;
}

static bool publish(struct vgpu_driver *driver, struct vgpu_context *green) {
  pthread_mutex_lock(&driver->lock);
  const bool added = vgpu_objects_add(&driver->objects, green, VGPU_OBJECT_CONTEXT);
  green->owner->greens += added;
  pthread_mutex_unlock(&driver->lock);
  return added;
}

static int create(struct vgpu_driver *driver, struct vgpu_context *primary,
                  const struct vgpu_described *described, uint32_t flags, void **made) {
  struct vgpu_send_cuGreenCtxCreate send = {
      .resources = described->number, .device = driver->host_index[primary->ordinal], .flags = flags};
  int result = vgpu_cuda_context_given(driver, primary, &send.primary);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_context *green = begin(driver, primary, described->sms);
  if (green == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  send.context = green->number;
  result = vgpu_cuda_call(VGPU_OP_cuGreenCtxCreate, &send, sizeof send, NULL, 0);
  if (result == CUDA_SUCCESS && !publish(driver, green)) {
    const struct vgpu_send_cuCtxDestroy_v2 end = {.context = send.context};
    vgpu_cuda_post(VGPU_OP_cuCtxDestroy_v2, &end, sizeof end, NULL, 0);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_SUCCESS) *made = green;
  else free(green);
  return result;
}

int cuGreenCtxCreate(void **phCtx, void *desc, int32_t dev, uint32_t flags) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (dev < 0 || dev >= driver->device_count) return CUDA_ERROR_INVALID_DEVICE;
  pthread_mutex_lock(&driver->lock);
  const bool described = vgpu_objects_has(&driver->objects, desc, VGPU_OBJECT_DESCRIBED);
  pthread_mutex_unlock(&driver->lock);
  /* Headers before CUDA 13.1 say that the flag is required. */
  if (phCtx == NULL || !described || (flags & ~DEFAULT_STREAM) != 0 ||
      (flags == 0 && vgpu_cuda_driver_version() < OPTIONAL_SINCE))
    return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_context *primary = NULL;
  result = cuDevicePrimaryCtxRetain(&primary, dev);
  if (result != CUDA_SUCCESS) return result;
  result = create(driver, primary, desc, flags, phCtx);
  if (result != CUDA_SUCCESS) cuDevicePrimaryCtxRelease_v2(dev);
  return result;
}

/* A stream outlives its green context, and every call that names it fails. */
static bool detach(void *handle, void *green) {
  struct vgpu_stream *stream = handle;
  if (stream->context != green) return false;
  stream->detached = true;
  stream->context = stream->context->owner;
  return false;
}

int cuGreenCtxDestroy(void *hCtx) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  struct vgpu_context *green = hCtx;
  if (driver == NULL) return result;
  pthread_mutex_lock(&driver->lock);
  const bool live = is_green(driver, green);
  if (live) {
    vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_STREAM, detach, green);
    green->owner->greens--;
    green->owner = NULL;
  }
  pthread_mutex_unlock(&driver->lock);
  if (!live) return CUDA_ERROR_INVALID_CONTEXT;
  const int32_t ordinal = green->ordinal;
  cuCtxDestroy_v2(green);
  return cuDevicePrimaryCtxRelease_v2(ordinal);
}

int cuCtxFromGreenCtx(struct vgpu_context **pContext, void *hCtx) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  pthread_mutex_lock(&driver->lock);
  const bool live = is_green(driver, hCtx);
  pthread_mutex_unlock(&driver->lock);
  if (!live) return CUDA_ERROR_INVALID_CONTEXT;
  if (pContext == NULL) return CUDA_ERROR_INVALID_VALUE;
  *pContext = hCtx;
  return CUDA_SUCCESS;
}

int cuGreenCtxGetDevResource(void *hCtx, void *resource, int32_t type) {
  struct vgpu_context *view = NULL;
  const int result = cuCtxFromGreenCtx(&view, hCtx);
  return result == CUDA_SUCCESS ? cuCtxGetDevResource(view, resource, type) : result;
}

int cuGreenCtxGetId(void *greenCtx, uint64_t *greenCtxId) {
  struct vgpu_context *view = NULL;
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  result = greenCtx == NULL ? vgpu_cuda_current(driver, &view) : cuCtxFromGreenCtx(&view, greenCtx);
  if (result != CUDA_SUCCESS) return result;
  if (view->owner == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (greenCtxId == NULL) return CUDA_ERROR_INVALID_VALUE;
  *greenCtxId = view->number;
  return CUDA_SUCCESS;
}

int cuGreenCtxRecordEvent(void *hCtx, struct vgpu_event *hEvent) {
  struct vgpu_context *view = NULL;
  const int result = cuCtxFromGreenCtx(&view, hCtx);
  return result == CUDA_SUCCESS ? cuCtxRecordEvent(view, hEvent) : result;
}

int cuGreenCtxWaitEvent(void *hCtx, struct vgpu_event *hEvent) {
  struct vgpu_context *view = NULL;
  const int result = cuCtxFromGreenCtx(&view, hCtx);
  return result == CUDA_SUCCESS ? cuCtxWaitEvent(view, hEvent) : result;
}

int cuGreenCtxStreamCreate(struct vgpu_stream **phStream, void *greenCtx, uint32_t flags, int32_t priority) {
  struct vgpu_context *view = NULL;
  int result = cuCtxFromGreenCtx(&view, greenCtx);
  if (result != CUDA_SUCCESS) return result;
  if (phStream == NULL || flags != NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  result = cuCtxPushCurrent_v2(view);
  if (result != CUDA_SUCCESS) return result;
  result = cuStreamCreateWithPriority(phStream, flags, priority);
  cuCtxPopCurrent_v2(NULL);
  return result;
}
