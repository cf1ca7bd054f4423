/*
 * The one thing a guest library keeps for the whole process: a lock and a pointer that are fresh again in
 * a fork()ed child, whatever the parent's threads were doing. Made on first use, never at load.
 */
#ifndef VGPU_GUEST_PROCESS_H
#define VGPU_GUEST_PROCESS_H

#include <pthread.h>

struct vgpu_process {
  pthread_mutex_t lock; /* guards making and ending of `state` */
  void *state;          /* the library's own; NULL until it made it, and again in a child. Use __atomic. */
  unsigned generation;  /* 0 in the process that loaded the library, more in its children */
};

/*
 * The process's slot; NULL only when there is no memory. The child's slot starts empty: what the parent
 * had is reachable no more (and its descriptor was closed at fork by vgpu_process_on_fork).
 */
struct vgpu_process *vgpu_process(void);

/* The same, if it was made. */
struct vgpu_process *vgpu_process_made(void);

/* Calls `in_child(state of the parent)` in a fork()ed child; it may only make async-signal-safe calls. */
int vgpu_process_on_fork(void (*in_child)(void *state));

#endif
