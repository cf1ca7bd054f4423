/*
 * The state that a guest library keeps for its whole process: a lock and a pointer. Both are new in a
 * fork()ed child, whatever the parent's threads were doing. They are made at first use, never when the
 * library is loaded.
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
 * The state of this process; NULL only when there is no memory. In a child it starts empty: the parent's
 * state cannot be reached any more (vgpu_process_on_fork has closed its descriptor).
 */
struct vgpu_process *vgpu_process(void);

/* The same, but NULL if it was not made yet. */
struct vgpu_process *vgpu_process_made(void);

/* Calls `in_child(state of the parent)` in a fork()ed child; it may only make async-signal-safe calls. */
int vgpu_process_on_fork(void (*in_child)(void *state));

#endif
