#include "host/backend/cuda/side_call.h"

#include <stdlib.h>

#include "host/backend/cuda/session.h"

#define MOST_THREADS 8u

static bool is_done(const struct vgpu_cuda_side_call *call) {
  return __atomic_load_n(&call->done, __ATOMIC_ACQUIRE);
}

static void *make(void *argument) {
  struct vgpu_cuda_side_call *call = argument;
  int32_t result = CUDA_SUCCESS;
  if (call->context != NULL) result = VGPU_DRIVER(call->api, cuCtxSetCurrent, call->context);
  call->result = result == CUDA_SUCCESS ? call->call(call->api, call) : result;
  __atomic_store_n(&call->done, true, __ATOMIC_RELEASE);
  return NULL;
}

static struct vgpu_cuda_side_call *find(const struct vgpu_worker *worker) {
  struct vgpu_cuda_side_call *call = worker->note == 0 ? NULL : cuda_of(worker)->side_calls;
  while (call != NULL && call->note != worker->note) call = call->next;
  return call;
}

static int32_t undo(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  struct vgpu_cuda_side_call *call = ending->object;
  pthread_join(call->thread, NULL);
  if (call->undo != NULL) call->undo(api, call);
  free(call->name);
  free(call);
  return CUDA_SUCCESS;
}

static void drop(struct vgpu_worker *worker, struct vgpu_cuda_side_call **link) {
  struct vgpu_cuda_side_call *call = *link;
  *link = call->next;
  (void)vgpu_cuda_end(worker, &(struct vgpu_cuda_ending){.end = undo,
                                                         .context = call->context,
                                                         .object = call,
                                                         .device = call->device,
                                                         .counted = call->counted,
                                                         .lane = call->lane});
}

static void drop_abandoned(struct vgpu_worker *worker) {
  for (struct vgpu_cuda_side_call **link = &cuda_of(worker)->side_calls; *link != NULL;) {
    if ((*link)->note == 0 && is_done(*link)) drop(worker, link);
    else link = &(*link)->next;
  }
}

static int query_room(struct vgpu_worker *worker, void *what) {
  (void)what;
  uint32_t running = 0;
  for (const struct vgpu_cuda_side_call *call = cuda_of(worker)->side_calls; call != NULL; call = call->next)
    running += !is_done(call);
  return running < MOST_THREADS ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static int query_done(struct vgpu_worker *worker, void *what) {
  (void)worker;
  return is_done(what) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* Starts a thread that makes the call. Returns NULL if the thread cannot start. */
static struct vgpu_cuda_side_call *begin(struct vgpu_worker *worker,
                                         const struct vgpu_cuda_side_call *wanted) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  struct vgpu_cuda_side_call *call = vgpu_cuda_begin_endings(worker) ? malloc(sizeof *call) : NULL;
  if (call == NULL) return NULL;
  *call = *wanted;
  call->api = &cuda->api;
  call->lane = worker->request->frame.lane;
  call->note = vgpu_cuda_note(cuda);
  if (pthread_create(&call->thread, NULL, make, call) != 0) {
    free(call);
    return NULL;
  }
  vgpu_parking_end(worker);
  worker->note = call->note;
  call->next = cuda->side_calls;
  cuda->side_calls = call;
  return call;
}

/* Returns VGPU_WAITS until the thread is done, then removes the call and copies it to *to. */
static int32_t await(struct vgpu_worker *worker, struct vgpu_cuda_side_call *call,
                     struct vgpu_cuda_side_call *to) {
  if (vgpu_cuda_wait(worker, query_done, call) != CUDA_SUCCESS) return VGPU_WAITS;
  struct vgpu_cuda_side_call **link = &cuda_of(worker)->side_calls;
  while (*link != call) link = &(*link)->next;
  *link = call->next;
  pthread_join(call->thread, NULL);
  free(call->name);
  call->name = to->name; /* of this pass */
  *to = *call;
  free(call);
  return to->result;
}

int32_t vgpu_cuda_side_call(struct vgpu_worker *worker, struct vgpu_cuda_side_call *call) {
  struct vgpu_cuda_side_call *begun = find(worker);
  int32_t result = CUDA_SUCCESS;
  drop_abandoned(worker);
  if (begun == NULL && worker->request->frame.lane != 0 &&
      (call->always || vgpu_cuda_is_held(cuda_of(worker)))) {
    result = vgpu_cuda_wait(worker, query_room, NULL);
    if (result == CUDA_SUCCESS) begun = begin(worker, call);
    if (begun != NULL) call->name = NULL;
  }
  if (begun != NULL) result = await(worker, begun, call);
  else if (result == CUDA_SUCCESS) result = call->call(&cuda_of(worker)->api, call);
  free(call->name);
  call->name = NULL;
  return result;
}

bool vgpu_cuda_side_call_began(const struct vgpu_worker *worker) {
  return find(worker) != NULL;
}

void vgpu_cuda_side_call_over(struct vgpu_worker *worker, uint64_t note) {
  for (struct vgpu_cuda_side_call *call = cuda_of(worker)->side_calls; call != NULL; call = call->next)
    if (call->note == note) call->note = 0;
}

void vgpu_cuda_drop_side_calls(struct vgpu_worker *worker, const struct vgpu_context *context) {
  if (context == NULL) return;
  for (struct vgpu_cuda_side_call **link = &cuda_of(worker)->side_calls; *link != NULL;) {
    if ((*link)->context == context) drop(worker, link);
    else link = &(*link)->next;
  }
}
