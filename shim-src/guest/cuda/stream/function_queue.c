#include "guest/cuda/stream/function_queue.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"

#define LEGACY_STREAMS 2u /* stream numbers 0 and 1 */

/*
 * The number of calls that may be sent after a function that has not run. A GPU's full queue (about a
 * thousand launches) blocks the launching thread in the driver; at the host that thread could then not report
 * that the stream has reached the function.
 */
#define MOST_BEHIND 512u

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

uint64_t vgpu_function_stream(uint64_t stream) {
  return stream < LEGACY_STREAMS ? 0 : stream;
}

static bool same_stream(const struct vgpu_function_queue *queue, uint64_t context, uint64_t stream) {
  return queue->context == context && queue->stream == stream &&
         (!is_per_thread(stream) || pthread_equal(queue->caller, pthread_self()));
}

enum scope { OF_STREAM, OF_CONTEXT, ALL };

struct wanted {
  enum scope scope;
  uint64_t context, stream;
};

static bool concerns(const struct vgpu_function_queue *queue, const struct wanted *wanted) {
  if (queue->stream == VGPU_NO_STREAM) return false;
  if (wanted->scope == ALL) return true;
  if (wanted->scope == OF_CONTEXT) return queue->context == wanted->context;
  return same_stream(queue, wanted->context, wanted->stream);
}

/*
 * Waits for the functions that were launched before this call. Later functions may wait for the calling
 * thread.
 */
static void wait_for(struct vgpu_driver *driver, const struct wanted *wanted) {
  struct vgpu_host_functions *functions = &driver->functions;
  if (__atomic_load_n(&functions->busy, __ATOMIC_ACQUIRE) == 0 || running) return;
  pthread_mutex_lock(&functions->lock);
  uint64_t last = functions->launched;
  for (struct vgpu_function_queue *queue = functions->queues; queue != NULL;) {
    if (concerns(queue, wanted) && queue->first != NULL && queue->first->sequence <= last) {
      pthread_cond_wait(&functions->finished, &functions->lock);
      queue = functions->queues;
    } else {
      queue = queue->next;
    }
  }
  pthread_mutex_unlock(&functions->lock);
}

void vgpu_host_functions_wait(struct vgpu_driver *driver, uint64_t context, uint64_t stream) {
  wait_for(driver,
           &(struct wanted){.scope = OF_STREAM, .context = context, .stream = vgpu_function_stream(stream)});
}

void vgpu_host_functions_wait_context(struct vgpu_driver *driver, uint64_t context) {
  wait_for(driver, &(struct wanted){.scope = OF_CONTEXT, .context = context});
}

bool vgpu_host_functions_pending(const struct vgpu_driver *driver) {
  return __atomic_load_n(&driver->functions.busy, __ATOMIC_ACQUIRE) != 0;
}

void vgpu_host_functions_keep_pace(struct vgpu_driver *driver) {
  struct vgpu_host_functions *functions = &driver->functions;
  if (__atomic_load_n(&functions->busy, __ATOMIC_ACQUIRE) == 0) return;
  uint64_t now = vgpu_outstanding_now(&driver->outstanding);
  uint64_t begun = __atomic_load_n(&functions->begun, __ATOMIC_RELAXED);
  if (now - begun < MOST_BEHIND) return;
  wait_for(driver, &(struct wanted){.scope = ALL});
  __atomic_store_n(&functions->begun, now, __ATOMIC_RELAXED);
}

/* Runs a job even if the wait fails: if the context is gone, nothing uses the objects that the job frees. */
static void run_detached(const struct vgpu_job *job) {
  if (job->context != 0) vgpu_cuda_wait_context(job->context);
  running = true;
  job->function(job->data);
  running = false;
}

static int await_gate(const struct vgpu_function_queue *queue, const struct vgpu_gate *gate) {
  _Static_assert(sizeof(struct vgpu_send_gate_reached) == sizeof(struct vgpu_send_cuEventSynchronize),
                 "one request");
  const struct vgpu_send_gate_reached send = {.event = gate->event};
  const uint32_t opcode =
      vgpu_session_has_gates(queue->driver->session) ? VGPU_OP_gate_reached : VGPU_OP_cuEventSynchronize;
  return vgpu_readback_wait(queue->driver, opcode, &send, sizeof send, queue->context, queue->stream,
                            VGPU_WAIT_EVENT);
}

/* After this no other job can share the gate of this job. True: this job must open the gate. */
static bool finish(struct vgpu_host_functions *functions, struct vgpu_job *job) {
  pthread_mutex_lock(&functions->lock);
  job->over = true;
  bool opens = job->opens;
  pthread_mutex_unlock(&functions->lock);
  return opens;
}

static void run(struct vgpu_function_queue *queue, struct vgpu_job *job) {
  struct vgpu_driver *driver = queue->driver;
  if (!job->follows) queue->status = job->gated ? await_gate(queue, &job->gate) : job->status;
  int status = queue->status;
  running = true;
  if (job->callback != NULL) job->callback(queue->handle, status, job->data);
  else if (status == CUDA_SUCCESS) job->function(job->data);
  running = false;
  if (!finish(&driver->functions, job)) return;
  bool lives = !job->gated || vgpu_gate_open(driver, &job->gate);
  /* The next thread that waits for the stream must get the error, too. */
  if (status != CUDA_SUCCESS && lives) vgpu_session_keep_deferred(driver->session, status);
}

static void unlink_queue(struct vgpu_host_functions *functions, struct vgpu_function_queue *queue) {
  struct vgpu_function_queue **link = &functions->queues;
  while (*link != queue) link = &(*link)->next;
  *link = queue->next;
  __atomic_sub_fetch(&functions->busy, 1, __ATOMIC_RELEASE);
}

/* Runs the jobs of a queue until it is empty, then removes it. */
static void *serve(void *argument) {
  struct vgpu_function_queue *queue = argument;
  struct vgpu_host_functions *functions = &queue->driver->functions;
  pthread_mutex_lock(&functions->lock);
  while (queue->first != NULL) {
    struct vgpu_job *job = queue->first;
    pthread_mutex_unlock(&functions->lock);
    if (queue->stream == VGPU_NO_STREAM) run_detached(job);
    else run(queue, job);
    pthread_mutex_lock(&functions->lock);
    queue->first = job->next;
    free(job);
    pthread_cond_broadcast(&functions->finished);
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

struct vgpu_function_queue *vgpu_function_queue_find(struct vgpu_host_functions *functions,
                                                     const struct vgpu_function_queue *like) {
  struct vgpu_function_queue *queue = functions->queues;
  while (queue != NULL && !same_stream(queue, like->context, like->stream)) queue = queue->next;
  return queue;
}

int vgpu_function_enqueue(struct vgpu_host_functions *functions, const struct vgpu_function_queue *like,
                          const struct vgpu_job *wanted) {
  struct vgpu_job *job = malloc(sizeof *job);
  if (job == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *job = *wanted;
  job->sequence = ++functions->launched;
  struct vgpu_function_queue *queue = vgpu_function_queue_find(functions, like);
  if (queue != NULL) {
    queue->last->next = job;
    queue->last = job;
    return CUDA_SUCCESS;
  }
  queue = malloc(sizeof *queue);
  if (queue != NULL) {
    *queue = *like;
    queue->next = functions->queues;
    queue->first = queue->last = job;
    functions->queues = queue;
    if (__atomic_fetch_add(&functions->busy, 1, __ATOMIC_RELEASE) == 0)
      __atomic_store_n(&functions->begun, vgpu_outstanding_now(&like->driver->outstanding), __ATOMIC_RELAXED);
    if (start(queue)) return CUDA_SUCCESS;
    unlink_queue(functions, queue);
    free(queue);
  }
  free(job);
  return CUDA_ERROR_OUT_OF_MEMORY;
}
