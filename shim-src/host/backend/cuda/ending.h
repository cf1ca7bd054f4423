/*
 * Objects that the driver frees only when earlier work is done: memory, arrays, code, contexts. A separate
 * thread of this process asks the driver to free them, one after the other, while the serving thread
 * continues with the guest's other calls. These are one-way calls, so a failure is reported with a later
 * answer.
 */
#ifndef VGPU_HOST_CUDA_ENDING_H
#define VGPU_HOST_CUDA_ENDING_H

#include <pthread.h>

#include "host/backend/cuda/driver.h"

struct vgpu_worker;
struct vgpu_context;

struct vgpu_cuda_ending {
  int32_t (*end)(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending);
  struct vgpu_context *context; /* current while the object is freed; NULL: it needs none */
  void *object;
  uint64_t address;
  uint64_t size;
  uint32_t device;  /* device of the memory */
  uint64_t counted; /* bytes that count as the session's until it is freed */
  uint32_t lane;    /* the guest's thread; 0: the one that calls now */
  /* Filled by vgpu_cuda_end. */
  struct vgpu_worker *worker;
  struct vgpu_cuda_ending *next;
};

struct vgpu_cuda_endings {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct vgpu_cuda_ending *first, *last; /* the first is being freed */
  uint32_t count;
  int32_t failed; /* a CUresult that was not reported yet */
  bool begun;
};

/*
 * Queues an object to be freed. It is freed at once if no thread can be started, or if the guest does not say
 * which of its threads calls. The caller has made the context current.
 */
int32_t vgpu_cuda_end(struct vgpu_worker *worker, const struct vgpu_cuda_ending *ending);

/*
 * Starts the thread, if it is not there. False: it cannot be started. A call that gets a thread of its own
 * needs this thread first: its ending waits for that thread.
 */
bool vgpu_cuda_begin_endings(struct vgpu_worker *worker);

/* Waits in this thread until all objects are freed. */
void vgpu_cuda_finish_endings(struct vgpu_worker *worker);

/*
 * For a call that needs earlier objects to be freed: VGPU_WAITS while that goes on. Objects of other threads
 * count only for a new context on a device.
 */
int32_t vgpu_cuda_await_endings(struct vgpu_worker *worker, uint32_t opcode);

/* VGPU_WAITS while the memory of `object` at these addresses is being freed. */
int32_t vgpu_cuda_await_ending_of(struct vgpu_worker *worker, const void *object, uint64_t address,
                                  uint64_t size);

/* True while the object is queued. */
bool vgpu_cuda_is_ending(struct vgpu_worker *worker, const void *object);

/* Returns the first failure since the last call of this function. */
int32_t vgpu_cuda_failed_ending(struct vgpu_worker *worker);

#endif
