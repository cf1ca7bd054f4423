#include "guest/cuda/stream/host_function.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "guest/cuda/stream/capture.h"

#define LEGACY_STREAMS 2u    /* stream numbers 0 and 1 */
#define NO_STREAM UINT64_MAX /* the queue of jobs that belong to no stream */

typedef void (*host_function)(void *data);
typedef void (*stream_callback)(struct vgpu_stream *stream, int status, void *data);

struct job {
  struct job *next;
  host_function function; /* or */
  stream_callback callback;
  void *data;
  uint64_t context; /* of a job without a stream: context to wait for first; 0: none */
};

struct vgpu_function_queue {
  struct vgpu_function_queue *next;
  struct vgpu_driver *driver;
  struct vgpu_stream *handle;
  uint64_t stream; /* context and stream numbers for the host */
  uint64_t context;
  pthread_t caller; /* thread of a per-thread stream */
  struct job *first, *last;
};

static __thread bool running;

bool vgpu_host_function_runs(void) {
  return running;
}

void vgpu_host_functions_init(struct vgpu_host_functions *functions) {
  memset(functions, 0, sizeof *functions);
  pthread_mutex_init(&functions->lock, NULL);
  pthread_cond_init(&functions->finished, NULL);
}

static bool is_per_thread(uint64_t stream) {
  return stream == (uint64_t)(uintptr_t)VGPU_STREAM_PER_THREAD;
}

static bool same_stream(const struct vgpu_function_queue *queue, uint64_t stream) {
  return queue->stream == stream && (!is_per_thread(stream) || pthread_equal(queue->caller, pthread_self()));
}

/* The legacy default stream and all other streams wait for each other. */
static bool ordered(const struct vgpu_function_queue *queue, uint64_t stream) {
  if (queue->stream == NO_STREAM) return false;
  return stream < LEGACY_STREAMS || queue->stream < LEGACY_STREAMS || same_stream(queue, stream);
}

static void wait_for(struct vgpu_driver *driver, uint64_t stream, bool own) {
  struct vgpu_host_functions *functions = &driver->functions;
  if (__atomic_load_n(&functions->busy, __ATOMIC_ACQUIRE) == 0 || running) return;
  pthread_mutex_lock(&functions->lock);
  for (struct vgpu_function_queue *queue = functions->queues; queue != NULL;) {
    if (ordered(queue, stream) && (own || !same_stream(queue, stream))) {
      pthread_cond_wait(&functions->finished, &functions->lock);
      queue = functions->queues;
    } else {
      queue = queue->next;
    }
  }
  pthread_mutex_unlock(&functions->lock);
}

void vgpu_host_functions_wait(struct vgpu_driver *driver, uint64_t stream) {
  wait_for(driver, stream, true);
}

bool vgpu_host_functions_pending(struct vgpu_driver *driver, uint64_t stream) {
  struct vgpu_host_functions *functions = &driver->functions;
  if (__atomic_load_n(&functions->busy, __ATOMIC_ACQUIRE) == 0) return false;
  pthread_mutex_lock(&functions->lock);
  struct vgpu_function_queue *queue = functions->queues;
  while (queue != NULL && !ordered(queue, stream)) queue = queue->next;
  pthread_mutex_unlock(&functions->lock);
  return queue != NULL;
}

/*
 * Runs a job whatever the wait returns: the objects that it frees have no more use when the context is gone.
 */
static void run_detached(const struct job *job) {
  if (job->context != 0) vgpu_cuda_wait_context(job->context);
  running = true;
  job->function(job->data);
  running = false;
}

static void run(struct vgpu_function_queue *queue, const struct job *job, bool wait) {
  struct vgpu_driver *driver = queue->driver;
  int status = wait ? vgpu_cuda_wait_stream(driver, queue->context, queue->stream) : CUDA_SUCCESS;
  running = true;
  if (job->callback != NULL) job->callback(queue->handle, status, job->data);
  else if (status == CUDA_SUCCESS) job->function(job->data);
  running = false;
  /* The next thread that waits for the stream must get the error, too. */
  if (status != CUDA_SUCCESS) vgpu_session_keep_deferred(driver->session, status);
}

static void unlink_queue(struct vgpu_host_functions *functions, struct vgpu_function_queue *queue) {
  struct vgpu_function_queue **link = &functions->queues;
  while (*link != queue) link = &(*link)->next;
  *link = queue->next;
  __atomic_sub_fetch(&functions->busy, 1, __ATOMIC_RELEASE);
}

/*
 * Runs the jobs of a queue until it is empty, then removes it. For a per-thread stream, the thread that owns
 * it has waited already.
 */
static void *serve(void *argument) {
  struct vgpu_function_queue *queue = argument;
  struct vgpu_host_functions *functions = &queue->driver->functions;
  bool wait = !is_per_thread(queue->stream);
  pthread_mutex_lock(&functions->lock);
  while (queue->first != NULL) {
    struct job *job = queue->first;
    pthread_mutex_unlock(&functions->lock);
    if (queue->stream == NO_STREAM) run_detached(job);
    else run(queue, job, wait);
    pthread_mutex_lock(&functions->lock);
    queue->first = job->next;
    free(job);
  }
  unlink_queue(functions, queue);
  free(queue);
  pthread_cond_broadcast(&functions->finished);
  pthread_mutex_unlock(&functions->lock);
  return NULL;
}

/* Starts a thread that receives none of the program's signals. */
static bool start(struct vgpu_function_queue *queue) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  int result = pthread_create(&thread, &attributes, serve, queue);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return result == 0;
}

static int enqueue(struct vgpu_driver *driver, struct vgpu_stream *handle, uint64_t stream, uint64_t context,
                   const struct job *wanted) {
  struct vgpu_host_functions *functions = &driver->functions;
  struct job *job = malloc(sizeof *job);
  if (job == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *job = *wanted;
  pthread_mutex_lock(&functions->lock);
  struct vgpu_function_queue *queue = functions->queues;
  while (queue != NULL && !same_stream(queue, stream)) queue = queue->next;
  if (queue != NULL) {
    queue->last->next = job;
    queue->last = job;
    pthread_mutex_unlock(&functions->lock);
    return CUDA_SUCCESS;
  }
  queue = malloc(sizeof *queue);
  bool made = queue != NULL;
  if (made) {
    *queue = (struct vgpu_function_queue){.next = functions->queues,
                                          .driver = driver,
                                          .handle = handle,
                                          .stream = stream,
                                          .context = context,
                                          .caller = pthread_self(),
                                          .first = job,
                                          .last = job};
    functions->queues = queue;
    __atomic_add_fetch(&functions->busy, 1, __ATOMIC_RELEASE);
    if (!start(queue)) {
      unlink_queue(functions, queue);
      free(queue);
      made = false;
    }
  }
  pthread_mutex_unlock(&functions->lock);
  if (!made) free(job);
  return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static int launch(struct vgpu_stream *handle, const struct job *job) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (running) return CUDA_ERROR_NOT_PERMITTED;
  uint64_t stream = 0, context = 0;
  result = vgpu_cuda_stream_identity(driver, handle, &stream, &context);
  if (result != CUDA_SUCCESS) return result;
  if (stream < LEGACY_STREAMS) stream = 0;
  /* The functions of one stream have one thread, those of two streams that are ordered do not. */
  wait_for(driver, stream, false);
  /* Another thread cannot wait for this thread's stream, so this thread waits. */
  if (is_per_thread(stream)) result = vgpu_cuda_wait_stream(driver, context, stream);
  return result == CUDA_SUCCESS ? enqueue(driver, handle, stream, context, job) : result;
}

bool vgpu_host_functions_detached(struct vgpu_driver *driver, uint64_t context, void (*function)(void *data),
                                  void *data) {
  const struct job job = {.function = function, .data = data, .context = context};
  return enqueue(driver, NULL, NO_STREAM, 0, &job) == CUDA_SUCCESS;
}

int cuLaunchHostFunc(struct vgpu_stream *hStream, void *fn, void *userData) {
  if (fn == NULL) return vgpu_cuda_ready() != CUDA_SUCCESS ? vgpu_cuda_ready() : CUDA_ERROR_INVALID_VALUE;
  struct job job = {.data = userData};
  memcpy(&job.function, &fn, sizeof fn); /* C has no conversion from a pointer to a function */
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (vgpu_capture_function(driver, hStream, job.function, userData, &result)) return result;
  return launch(hStream, &job);
}

int cuStreamAddCallback(struct vgpu_stream *hStream, void *callback, void *userData, uint32_t flags) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (callback == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  struct job job = {.data = userData};
  memcpy(&job.callback, &callback, sizeof callback);
  if (vgpu_capture_forbids(vgpu_cuda_driver(&result), hStream, &result)) return result;
  return launch(hStream, &job);
}
