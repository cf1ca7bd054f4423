/*
 * Calls that may wait in the driver for the device: they load code at its first use ("Loading a kernel might
 * require context synchronization", CUDA programming guide, "Lazy Loading") or allocate when little memory is
 * left. While a gate is closed each of them runs in its own thread, because the serving thread opens the
 * gate. A call that takes long (a new context) always does.
 */
#ifndef VGPU_HOST_CUDA_SIDE_CALL_H
#define VGPU_HOST_CUDA_SIDE_CALL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "host/backend/cuda/driver.h"

struct vgpu_worker;
struct vgpu_context;

struct vgpu_cuda_side_call {
  int32_t (*call)(const struct vgpu_driver_api *api, struct vgpu_cuda_side_call *call);
  struct vgpu_context *context; /* current during the call; NULL if the call needs none */
  void *object;
  char *name;  /* allocated; vgpu_cuda_side_call frees it */
  bool other;  /* another type of object */
  bool always; /* has a thread also while no gate is closed */
  size_t bytes;
  /* Frees what the call made, if nobody receives it; NULL: nothing is to be freed. */
  void (*undo)(const struct vgpu_driver_api *api, const struct vgpu_cuda_side_call *call);
  uint32_t device;  /* device of the memory or context */
  uint32_t flags;   /* of a context */
  uint64_t counted; /* bytes that count as the session's already, and no longer after `undo` */
  /* Results. */
  void *made;
  uint64_t address;
  /* Used only with a thread. */
  struct vgpu_cuda_side_call *next;
  const struct vgpu_driver_api *api;
  pthread_t thread;
  uint32_t lane; /* the guest's thread */
  uint64_t note; /* of the guest's call; 0 if the guest's thread has abandoned it */
  int32_t result;
  bool done; /* written by the thread */
};

/*
 * Makes or continues a call. Returns VGPU_WAITS until it is done, then its CUresult. The guest must wait for
 * the answer to its call. If no thread is used, the context must be current.
 */
int32_t vgpu_cuda_side_call(struct vgpu_worker *worker, struct vgpu_cuda_side_call *call);

/* True if the guest's current call has a side call, running or done. */
bool vgpu_cuda_side_call_began(const struct vgpu_worker *worker);

/*
 * Call when the guest's call with this note is over. If its side call still runs, its result is undone by the
 * next side call, or when the context is destroyed.
 */
void vgpu_cuda_side_call_over(struct vgpu_worker *worker, uint64_t note);

/* Undoes the side calls in a context, each after its thread. The caller destroys the context with a later
 * ending. */
void vgpu_cuda_drop_side_calls(struct vgpu_worker *worker, const struct vgpu_context *context);

#endif
