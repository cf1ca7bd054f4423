/* Launches host functions: at a gate, or, if no gate is available, by waiting. */
#include "guest/cuda/stream/host_function.h"

#include <string.h>

#include "cuda_api.h"
#include "guest/cuda/stream/capture.h"
#include "guest/cuda/stream/function_queue.h"

/* A function directly after another one shares its gate. The caller holds the lock. */
static bool share_gate(struct vgpu_function_queue *queue, struct vgpu_job *job) {
  if (queue == NULL || !queue->last->gated || queue->last->over ||
      queue->sent != vgpu_outstanding_now(&queue->driver->outstanding)) {
    return false;
  }
  job->gate = queue->last->gate;
  job->gated = job->follows = true;
  return true;
}

static void close_gate(const struct vgpu_function_queue *like, struct vgpu_context *owner,
                       struct vgpu_job *job, uint64_t *sent) {
  struct vgpu_driver *driver = like->driver;
  uint64_t before = vgpu_outstanding_now(&driver->outstanding);
  int result = vgpu_gate_close(driver, owner, like->context, like->stream, &job->gate);
  job->gated = result == CUDA_SUCCESS;
  *sent = vgpu_outstanding_now(&driver->outstanding);
  if (*sent - before != job->gate.calls) *sent = 0;
}

/* The stream waits at a gate for the function, and the caller for nothing. */
static int launch_behind_gate(const struct vgpu_function_queue *like, struct vgpu_context *owner,
                              struct vgpu_job *job) {
  struct vgpu_driver *driver = like->driver;
  struct vgpu_host_functions *functions = &driver->functions;
  int result = CUDA_SUCCESS;
  uint64_t sent = 0;
  pthread_mutex_lock(&functions->lock); /* one stream's gates and jobs have one order */
  struct vgpu_function_queue *queue = vgpu_function_queue_find(functions, like);
  struct vgpu_job *last = queue == NULL ? NULL : queue->last;
  job->opens = true;
  bool shared = share_gate(queue, job);
  if (!shared) close_gate(like, owner, job, &sent);
  if (job->gated) result = vgpu_function_enqueue(functions, like, job);
  if (job->gated && !shared && result != CUDA_SUCCESS) vgpu_gate_open(driver, &job->gate);
  if (result == CUDA_SUCCESS && shared) last->opens = false;
  if (result == CUDA_SUCCESS && job->gated && !shared) vgpu_function_queue_find(functions, like)->sent = sent;
  pthread_mutex_unlock(&functions->lock);
  return result;
}

/* Without a gate the caller waits for the work before the function, and for the function. */
static int launch_and_wait(const struct vgpu_function_queue *like, struct vgpu_job *job) {
  struct vgpu_driver *driver = like->driver;
  vgpu_host_functions_wait(driver, like->context, like->stream);
  job->status = vgpu_cuda_wait_stream(driver, like->context, like->stream);
  job->opens = true;
  pthread_mutex_lock(&driver->functions.lock);
  int result = vgpu_function_enqueue(&driver->functions, like, job);
  pthread_mutex_unlock(&driver->functions.lock);
  if (result == CUDA_SUCCESS) vgpu_host_functions_wait(driver, like->context, like->stream);
  return result;
}

static int launch(struct vgpu_stream *handle, struct vgpu_job *job) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (vgpu_host_function_runs()) return CUDA_ERROR_NOT_PERMITTED;
  struct vgpu_function_queue like = {.driver = driver, .handle = handle, .caller = pthread_self()};
  result = vgpu_cuda_stream_identity(driver, handle, &like.stream, &like.context);
  if (result != CUDA_SUCCESS) return result;
  bool made = like.stream >= VGPU_FIRST_NUMBER;
  like.stream = vgpu_function_stream(like.stream);
  struct vgpu_context *owner = made ? handle->context : vgpu_cuda_current_context();
  result = launch_behind_gate(&like, owner, job);
  return result != CUDA_SUCCESS || job->gated ? result : launch_and_wait(&like, job);
}

bool vgpu_host_functions_detached(struct vgpu_driver *driver, uint64_t context, void (*function)(void *data),
                                  void *data) {
  const struct vgpu_job job = {.function = function, .data = data, .context = context};
  const struct vgpu_function_queue like = {.driver = driver, .stream = VGPU_NO_STREAM};
  pthread_mutex_lock(&driver->functions.lock);
  int result = vgpu_function_enqueue(&driver->functions, &like, &job);
  pthread_mutex_unlock(&driver->functions.lock);
  return result == CUDA_SUCCESS;
}

int cuLaunchHostFunc(struct vgpu_stream *hStream, void *fn, void *userData) {
  if (fn == NULL) return vgpu_cuda_ready() != CUDA_SUCCESS ? vgpu_cuda_ready() : CUDA_ERROR_INVALID_VALUE;
  struct vgpu_job job = {.data = userData};
  memcpy(&job.function, &fn, sizeof fn); /* C has no conversion from a pointer to a function */
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (vgpu_capture_function(driver, hStream, job.function, userData, &result)) return result;
  return launch(hStream, &job);
}

/* syncMode (0 or 1) says how the driver's thread waits for the next function; our thread sleeps. */
int cuLaunchHostFunc_v2(struct vgpu_stream *hStream, void *fn, void *userData, uint32_t syncMode) {
  if (syncMode > 1) return vgpu_cuda_ready() != CUDA_SUCCESS ? vgpu_cuda_ready() : CUDA_ERROR_INVALID_VALUE;
  return cuLaunchHostFunc(hStream, fn, userData);
}

int cuStreamAddCallback(struct vgpu_stream *hStream, void *callback, void *userData, uint32_t flags) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (callback == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_job job = {.data = userData};
  memcpy(&job.callback, &callback, sizeof callback);
  if (vgpu_capture_forbids(vgpu_cuda_driver(&result), hStream, &result)) return result;
  return launch(hStream, &job);
}
