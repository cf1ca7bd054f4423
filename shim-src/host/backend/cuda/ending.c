#include "host/backend/cuda/ending.h"

#include <stdlib.h>

#include "cuda_calls.h"
#include "host/backend/cuda/session.h"

/* Frees one object. Its context is the calling thread's current one. */
static int32_t carry_out(const struct vgpu_cuda_ending *ending) {
  struct vgpu_worker *worker = ending->worker;
  int32_t result = ending->end(&cuda_of(worker)->api, ending);
  if (ending->counted > 0)
    vgpu_accounts_give(worker->accounts, worker->slot, ending->device, ending->counted);
  return result;
}

static void *serve(void *argument) {
  struct vgpu_worker *worker = argument;
  struct vgpu_cuda_endings *endings = &cuda_of(worker)->endings;
  pthread_mutex_lock(&endings->mutex);
  for (;;) {
    while (endings->first == NULL) pthread_cond_wait(&endings->changed, &endings->mutex);
    struct vgpu_cuda_ending *ending = endings->first;
    pthread_mutex_unlock(&endings->mutex);
    /* If this fails, the object's own call does, too, and what belongs to this process is still freed. */
    (void)VGPU_DRIVER(&cuda_of(worker)->api, cuCtxSetCurrent, ending->context);
    int32_t result = carry_out(ending);
    pthread_mutex_lock(&endings->mutex);
    endings->first = ending->next;
    if (endings->first == NULL) endings->last = NULL;
    endings->count--;
    if (endings->failed == CUDA_SUCCESS) endings->failed = result;
    free(ending);
    pthread_cond_broadcast(&endings->changed);
  }
  return NULL;
}

bool vgpu_cuda_begin_endings(struct vgpu_worker *worker) {
  struct vgpu_cuda_endings *endings = &cuda_of(worker)->endings;
  if (endings->begun) return true;
  pthread_mutex_init(&endings->mutex, NULL);
  pthread_cond_init(&endings->changed, NULL);
  endings->begun = pthread_create(&endings->thread, NULL, serve, worker) == 0;
  return endings->begun;
}

void vgpu_cuda_finish_endings(struct vgpu_worker *worker) {
  struct vgpu_cuda_endings *endings = &cuda_of(worker)->endings;
  if (!endings->begun) return;
  pthread_mutex_lock(&endings->mutex);
  while (endings->first != NULL) pthread_cond_wait(&endings->changed, &endings->mutex);
  pthread_mutex_unlock(&endings->mutex);
}

int32_t vgpu_cuda_end(struct vgpu_worker *worker, const struct vgpu_cuda_ending *ending) {
  struct vgpu_cuda_endings *endings = &cuda_of(worker)->endings;
  struct vgpu_cuda_ending *queued = NULL;
  uint32_t lane = worker->request->frame.lane;
  if (lane != 0 && vgpu_cuda_begin_endings(worker)) queued = malloc(sizeof *queued);
  if (queued == NULL) {
    vgpu_cuda_finish_endings(worker);
    struct vgpu_cuda_ending now = *ending;
    now.worker = worker;
    return carry_out(&now);
  }
  *queued = *ending;
  queued->worker = worker;
  if (ending->lane == 0) queued->lane = lane;
  queued->next = NULL;
  pthread_mutex_lock(&endings->mutex);
  /* As many as a session has objects: with a lower limit this thread would wait for work that it releases. */
  while (endings->count >= worker->limits->session_handles)
    pthread_cond_wait(&endings->changed, &endings->mutex);
  if (endings->last == NULL) endings->first = queued;
  else endings->last->next = queued;
  endings->last = queued;
  endings->count++;
  pthread_cond_broadcast(&endings->changed);
  pthread_mutex_unlock(&endings->mutex);
  return CUDA_SUCCESS;
}

struct which {
  uint32_t lane;         /* 0: of any thread */
  const void *object;    /* NULL: any object */
  uint64_t address, end; /* addresses of its memory; 0 and 0: any */
};

static bool overlaps(const struct vgpu_cuda_ending *ending, const struct which *which) {
  return which->end == 0 || (ending->address < which->end && which->address < ending->address + ending->size);
}

static bool find(const struct vgpu_cuda_endings *endings, const struct which *which) {
  for (const struct vgpu_cuda_ending *ending = endings->first; ending != NULL; ending = ending->next) {
    if ((which->lane == 0 || ending->lane == which->lane) &&
        (which->object == NULL || ending->object == which->object) && overlaps(ending, which)) {
      return true;
    }
  }
  return false;
}

static bool goes_on(struct vgpu_worker *worker, const struct which *which) {
  if (cuda_of(worker) == NULL || !cuda_of(worker)->endings.begun) return false;
  struct vgpu_cuda_endings *endings = &cuda_of(worker)->endings;
  pthread_mutex_lock(&endings->mutex);
  bool found = find(endings, which);
  pthread_mutex_unlock(&endings->mutex);
  return found;
}

static int query(struct vgpu_worker *worker, void *what) {
  return goes_on(worker, what) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

int32_t vgpu_cuda_await_endings(struct vgpu_worker *worker, uint32_t opcode) {
  struct which which = {.lane = worker->request->frame.lane};
  switch (vgpu_cuda_awaits(opcode)) {
    case VGPU_AWAITS_OWN:
      /* A guest that does not say which of its threads calls has had all its objects freed at once. */
      return which.lane == 0 ? CUDA_SUCCESS : vgpu_cuda_wait(worker, query, &which);
    case VGPU_AWAITS_ALL:
      which.lane = 0;
      return vgpu_cuda_wait(worker, query, &which);
    case VGPU_AWAITS_NOTHING:
      break;
  }
  return CUDA_SUCCESS;
}

int32_t vgpu_cuda_await_ending_of(struct vgpu_worker *worker, const void *object, uint64_t address,
                                  uint64_t size) {
  struct which which = {.object = object, .address = address, .end = address + size};
  return vgpu_cuda_wait(worker, query, &which);
}

bool vgpu_cuda_is_ending(struct vgpu_worker *worker, const void *object) {
  return goes_on(worker, &(struct which){.object = object});
}

int32_t vgpu_cuda_failed_ending(struct vgpu_worker *worker) {
  if (cuda_of(worker) == NULL || !cuda_of(worker)->endings.begun) return CUDA_SUCCESS;
  struct vgpu_cuda_endings *endings = &cuda_of(worker)->endings;
  pthread_mutex_lock(&endings->mutex);
  int32_t failed = endings->failed;
  endings->failed = CUDA_SUCCESS;
  pthread_mutex_unlock(&endings->mutex);
  return failed;
}
