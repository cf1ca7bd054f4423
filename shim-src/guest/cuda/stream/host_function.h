/*
 * Functions of the program that run in a stream's order (cuLaunchHostFunc, cuStreamAddCallback). A thread
 * of this library waits for the stream and calls them; the launching call returns at once. Whatever is called
 * on the stream afterwards waits here, in the guest, until they have run: the host never calls back.
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
  struct vgpu_function_queue *queues; /* one for each stream that has some waiting */
  unsigned busy;                      /* queues; read without the lock */
};

void vgpu_host_functions_init(struct vgpu_host_functions *functions);

/* Waits for those of a stream (as the program names it) and those that it is ordered after. */
void vgpu_host_functions_wait(struct vgpu_driver *driver, uint64_t stream);

/* True if there are some that vgpu_host_functions_wait would wait for. */
bool vgpu_host_functions_pending(struct vgpu_driver *driver, uint64_t stream);

/*
 * Calls the function on a thread of this library that no other thread joins, once all work of a context (its
 * number; 0: none) is done. False: there is no memory or no thread for it.
 */
bool vgpu_host_functions_detached(struct vgpu_driver *driver, uint64_t context, void (*function)(void *data),
                                  void *data);

/* The calling thread is inside such a function, where CUDA calls are not permitted. */
bool vgpu_host_function_runs(void);

#endif
