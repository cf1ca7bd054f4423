/*
 * Calls that the driver may answer only when the device has done its work: a kernel's code that is loaded at
 * its first use ("Loading a kernel might require context synchronization", CUDA programming guide, "Lazy
 * Loading"), memory where little is left. While a gate is closed such a call gets a thread of its own,
 * because the serving thread opens the gate.
 */
#ifndef VGPU_HOST_CUDA_SIDE_CALL_H
#define VGPU_HOST_CUDA_SIDE_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "host/backend/cuda/driver.h"

struct vgpu_worker;
struct vgpu_context;

struct vgpu_cuda_side_call {
  int32_t (*call)(const struct vgpu_driver_api *api, struct vgpu_cuda_side_call *call);
  struct vgpu_context *context; /* current during the call; NULL: the call needs none */
  void *object;
  char *name; /* for free(), by vgpu_cuda_side_call */
  bool other; /* another type of object */
  size_t bytes;
  /* Results. */
  void *made;
  uint64_t address;
  /* Of a call that has a thread. */
  struct vgpu_cuda_side_call *next;
  const struct vgpu_driver_api *api;
  uint64_t note; /* of the guest's call; 0: its thread has abandoned it */
  int32_t result;
  bool done; /* written by the thread */
};

/*
 * Makes a call, or continues one. Returns VGPU_WAITS until it is done, then its CUresult. The guest's call is
 * one that is waited for. Without a thread the context must be current.
 */
int32_t vgpu_cuda_side_call(struct vgpu_worker *worker, struct vgpu_cuda_side_call *call);

/* True if the guest's call that is being carried out has a side call that runs or is done. */
bool vgpu_cuda_side_call_began(const struct vgpu_worker *worker);

/*
 * The guest's call with this note is over. If its side call still runs, nobody fetches the result, and an
 * object that it makes stays until its context ends.
 */
void vgpu_cuda_side_call_over(struct vgpu_worker *worker, uint64_t note);

#endif
