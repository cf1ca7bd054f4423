/*
 * A library's state for its process: a lock and a pointer. Made at first use, never when the library is
 * loaded; empty in a fork()ed child, whatever the parent's threads were doing.
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

/* NULL: no memory. Empty in a child, whose parent's descriptor vgpu_process_on_fork has closed. */
struct vgpu_process *vgpu_process(void);

struct vgpu_process *vgpu_process_made(void);

/* Calls `in_child(state of the parent)` in a fork()ed child; async-signal-safe calls only. */
int vgpu_process_on_fork(void (*in_child)(void *state));

#endif
