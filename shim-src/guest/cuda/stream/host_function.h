/*
 * Functions of the program that run in a stream's order (cuLaunchHostFunc, cuStreamAddCallback). The stream
 * waits at a gate (gate.h) at the host, so that later work of the stream can be sent at once. A thread of
 * this library waits until the stream has reached the gate, calls the function, and opens the gate.
 */
#ifndef VGPU_GUEST_CUDA_HOST_FUNCTION_H
#define VGPU_GUEST_CUDA_HOST_FUNCTION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct vgpu_driver;
struct vgpu_function_queue;

struct vgpu_host_functions {
  pthread_mutex_t lock;
  pthread_cond_t finished;
  struct vgpu_function_queue *queues; /* one for each stream with pending functions */
  unsigned busy;                      /* count of queues; also read without the lock */
  uint64_t launched;                  /* count of all functions so far */
  uint64_t begun;                     /* calls that had been sent when `busy` was last 0 (outstanding.h) */
};

void vgpu_host_functions_init(struct vgpu_host_functions *functions);

/*
 * Waits for the functions that were launched so far in a stream, given by its context's number and its own.
 * The host would make the caller wait for them, too, but by asking again and again.
 */
void vgpu_host_functions_wait(struct vgpu_driver *driver, uint64_t context, uint64_t stream);

/* The same for all streams of a context. */
void vgpu_host_functions_wait_context(struct vgpu_driver *driver, uint64_t context);

/* True if a function has been launched and has not run. Then work that was sent may not have begun. */
bool vgpu_host_functions_pending(const struct vgpu_driver *driver);

/* Waits for all functions if very many calls have been sent since one of them was launched. */
void vgpu_host_functions_keep_pace(struct vgpu_driver *driver);

/*
 * Calls the function on a separate thread of this library when all work of a context is done. `context` is
 * its number; 0: none. False: there is no memory or no thread for it.
 */
bool vgpu_host_functions_detached(struct vgpu_driver *driver, uint64_t context, void (*function)(void *data),
                                  void *data);

/* True if the calling thread runs such a function, in which CUDA calls are not permitted. */
bool vgpu_host_function_runs(void);

#endif
