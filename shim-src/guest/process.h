/*
 * The state that a guest library keeps for its process: a lock and a pointer. The state is made at first use,
 * never when the library is loaded, and is new in a fork()ed child, whatever the parent's threads were doing.
 */
#ifndef VGPU_GUEST_PROCESS_H
#define VGPU_GUEST_PROCESS_H

#include <pthread.h>

struct vgpu_process {
  pthread_mutex_t lock;       /* guards making and ending of `state` */
  pthread_mutex_t connecting; /* held while a connection is made; taken before `lock`. libnvidia-ml alone */
  void *state;                /* of the library; NULL until it is made, and again in a child. Use __atomic. */
  unsigned generation;        /* 0 in the process that loaded the library, more in its children */
};

/*
 * Returns the state of this process; NULL only if there is no memory. A child starts with an empty state: it
 * cannot reach its parent's, whose descriptor vgpu_process_on_fork has closed.
 */
struct vgpu_process *vgpu_process(void);

/* Like vgpu_process, but returns NULL if the state was not made yet. */
struct vgpu_process *vgpu_process_made(void);

/*
 * Calls `in_child` with the parent's state in a fork()ed child. `in_child` may only make async-signal-safe
 * calls.
 */
int vgpu_process_on_fork(void (*in_child)(void *state));

#endif
