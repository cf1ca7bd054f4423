/*
 * Whether a thread is inside the library already when the program calls it.
 *
 * That is so in a signal handler which interrupted a call of its own thread. Such a handler may call exit(),
 * and the exit handlers of the program and of NVIDIA's runtime then call the library again. They would wait
 * without end for a lock that their own thread holds, or for a reply that it was about to read, and the
 * process would not end before SIGKILL. llama-server, for example, exits like that at its second SIGTERM. So
 * the entry points refuse such a call.
 */
#ifndef VGPU_GUEST_INSIDE_H
#define VGPU_GUEST_INSIDE_H

#include <stdbool.h>

/* Of the calling thread; volatile, because a signal handler of the same thread reads it. */
extern _Thread_local volatile bool vgpu_inside;

/* False: this thread is inside, and the call must be refused. Otherwise vgpu_leave() follows. */
static inline bool vgpu_enter(void) {
  volatile bool *inside = &vgpu_inside; /* found once */
  if (*inside) return false;
  *inside = true;
  return true;
}

static inline void vgpu_leave(void) {
  vgpu_inside = false;
}

/*
 * Around a function of the program that an entry point calls in the program's own thread, because that
 * function may call the library. The thread must hold no lock.
 */
static inline bool vgpu_step_out(void) {
  bool was_inside = vgpu_inside;
  vgpu_inside = false;
  return was_inside;
}

static inline void vgpu_step_in(bool was_inside) {
  vgpu_inside = was_inside;
}

#endif
