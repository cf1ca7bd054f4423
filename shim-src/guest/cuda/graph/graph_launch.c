#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/stream/capture.h"
#include "guest/cuda/graph/graph_exec.h"

static int do_here(const struct vgpu_exec_node *node, struct vgpu_stream *stream) {
  const struct vgpu_work *work = &node->work;
  if (!node->enabled) return CUDA_SUCCESS;
  switch (work->step) {
    case VGPU_STEP_TO_DEVICE:
      return cuMemcpyHtoDAsync_v2(work->device, work->host, work->size, stream);
    case VGPU_STEP_FROM_DEVICE:
      return cuMemcpyDtoHAsync_v2(work->host, work->device, work->size, stream);
    case VGPU_STEP_BOX:
      return cuMemcpy3DAsync_v2(&work->given.copy, stream);
    case VGPU_STEP_FUNCTION: {
      void *function;
      memcpy(&function, &work->function, sizeof function);
      return cuLaunchHostFunc(stream, function, work->data);
    }
    case VGPU_STEP_NONE:
    case VGPU_STEP_FRAME:
      break;
  }
  return CUDA_SUCCESS;
}

enum { NO_TIMING = 2 }; /* CU_EVENT_DISABLE_TIMING */

static bool is_per_thread(uint64_t stream) {
  return stream == (uint64_t)(uintptr_t)VGPU_STREAM_PER_THREAD;
}

/* A host whose driver has graphs orders the launches of one segment itself. */
static bool is_ordered(const struct vgpu_driver *driver, const struct vgpu_exec *exec) {
  return exec->step_count == 1 && exec->steps[0].segment != 0 && vgpu_session_has_graphs(driver->session);
}

/*
 * Launches of one executable run one after the other, also in different streams. The per-thread streams of
 * two threads have the same number.
 */
static int wait_for_last(const struct vgpu_exec *exec, const struct vgpu_send_cuGraphLaunch *launch) {
  if (exec->last_launch == 0 || (exec->last_stream == launch->stream && !is_per_thread(launch->stream)))
    return CUDA_SUCCESS;
  struct vgpu_send_cuStreamWaitEvent send = {
      .context = launch->context, .stream = launch->stream, .event = exec->last_launch};
  return vgpu_cuda_post(VGPU_OP_cuStreamWaitEvent, &send, sizeof send, NULL, 0);
}

/*
 * Records where a launch ends. The next launch may be in another stream, and by then this one may have later
 * work, which the next launch must not wait for.
 */
static int record_end(struct vgpu_driver *driver, struct vgpu_exec *exec,
                      const struct vgpu_send_cuGraphLaunch *launch) {
  int result = CUDA_SUCCESS;
  if (exec->last_launch == 0) {
    struct vgpu_send_cuEventCreate make = {.context = exec->context, .flags = NO_TIMING};
    pthread_mutex_lock(&driver->lock);
    exec->last_launch = make.event = vgpu_cuda_next_number(driver);
    pthread_mutex_unlock(&driver->lock);
    result = vgpu_cuda_post(VGPU_OP_cuEventCreate, &make, sizeof make, NULL, 0);
  }
  struct vgpu_send_cuEventRecordWithFlags send = {
      .context = launch->context, .event = exec->last_launch, .stream = launch->stream};
  exec->last_stream = launch->stream;
  if (result != CUDA_SUCCESS) return result;
  return vgpu_cuda_post(VGPU_OP_cuEventRecordWithFlags, &send, sizeof send, NULL, 0);
}

/*
 * A graph with conditions has one executable at a time in the driver, whose end waits for launches that are
 * not over. A launch is one-way and cannot wait for that. If the call fails, the launch reports why.
 */
static void make_again(struct vgpu_driver *driver, struct vgpu_exec *exec) {
  if (!exec->changed || !vgpu_session_has_graphs(driver->session)) return;
  exec->changed = false;
  for (size_t i = 0; i < exec->step_count; i++) {
    const struct vgpu_send_cuGraphInstantiateWithFlags send = {.context = exec->context,
                                                               .exec = exec->steps[i].segment};
    if (send.exec != 0)
      (void)vgpu_cuda_call(VGPU_OP_cuGraphInstantiateWithFlags, &send, sizeof send, NULL, 0);
  }
}

int cuGraphLaunch(void *hGraph, struct vgpu_stream *hStream) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_send_cuGraphLaunch send = {0};
  result = vgpu_cuda_stream_number(driver, hStream, &send.stream);
  if (result != CUDA_SUCCESS) return result;
  /* A captured launch would become a child graph, which is not carried. */
  if (vgpu_capture_status(driver, hStream) != 0) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  pthread_mutex_lock(&driver->graph_lock);
  struct vgpu_exec *exec = vgpu_exec_find(driver, hGraph);
  result = exec == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  if (exec != NULL && !vgpu_exec_lives(driver, exec)) result = CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS && exec->has_memory) result = vgpu_graph_memory_launch(driver, exec);
  if (result == CUDA_SUCCESS) exec->launched = true;
  pthread_mutex_unlock(&driver->graph_lock);
  /*
   * The lock is not held from here on, because a host function may make graphs. A program must not destroy an
   * executable while it is launched.
   */
  if (result != CUDA_SUCCESS) return result;
  make_again(driver, exec);
  send.context = exec->context;
  const struct vgpu_context *current = send.stream < VGPU_FIRST_NUMBER ? vgpu_cuda_current_context() : NULL;
  const bool green = current != NULL && current->owner != NULL;
  /* The nodes name the primary context, so its default stream stands for that of the green context. */
  if (green) result = vgpu_cuda_wait_stream(driver, current->number, send.stream);
  const bool ordered = is_ordered(driver, exec);
  if (result == CUDA_SUCCESS && !ordered) result = wait_for_last(exec, &send);
  for (size_t i = 0; result == CUDA_SUCCESS && i < exec->step_count; i++) {
    const struct vgpu_exec_step *step = &exec->steps[i];
    if (step->segment == 0) {
      result = do_here(step->node, hStream);
    } else {
      send.exec = step->segment;
      result = vgpu_cuda_post(VGPU_OP_cuGraphLaunch, &send, sizeof send, NULL, 0);
    }
  }
  if (result == CUDA_SUCCESS && !ordered) result = record_end(driver, exec, &send);
  if (result == CUDA_SUCCESS && green) result = vgpu_cuda_wait_stream(driver, send.context, send.stream);
  for (size_t i = 0; exec->records && i < exec->count; i++) {
    if (exec->nodes[i].work.kind != VGPU_NODE_RECORD) continue;
    vgpu_event_recorded(driver, exec->nodes[i].work.handle, send.stream);
  }
  return result;
}

/* Does nothing: the host has had the executable since it was made. */
int cuGraphUpload(void *hGraph, struct vgpu_stream *hStream) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  uint64_t number;
  result = vgpu_cuda_stream_number(driver, hStream, &number);
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&driver->graph_lock);
  return vgpu_graph_leave(driver,
                          vgpu_exec_find(driver, hGraph) == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}
