/*
 * Functions of the program that run in a stream's order (cuLaunchHostFunc, cuStreamAddCallback). A thread of
 * this library waits for the stream and calls them, and the launching call returns at once. Later calls on
 * the stream wait in the guest until the functions have run, because the host never calls back.
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
};

void vgpu_host_functions_init(struct vgpu_host_functions *functions);

/* Waits for the functions of a stream (named by its handle) and of the streams that it is ordered after. */
void vgpu_host_functions_wait(struct vgpu_driver *driver, uint64_t stream);

/* True if vgpu_host_functions_wait would wait. */
bool vgpu_host_functions_pending(struct vgpu_driver *driver, uint64_t stream);

/*
 * Calls the function on a separate thread of this library when all work of a context is done. `context` is
 * its number; 0: none. False: there is no memory or no thread for it.
 */
bool vgpu_host_functions_detached(struct vgpu_driver *driver, uint64_t context, void (*function)(void *data),
                                  void *data);

/* True if the calling thread runs such a function, in which CUDA calls are not permitted. */
bool vgpu_host_function_runs(void);

#endif
