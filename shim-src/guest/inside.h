/*
 * Whether a thread is inside the library already when the program calls it.
 *
 * That is so in a signal handler which interrupted a call of its own thread. Such a handler may call exit(),
 * and the exit handlers of the program and of NVIDIA's runtime then call the library again. They would wait
 * without end for a lock that their own thread holds, or for a reply that it was about to read, and the
 * process would not end before SIGKILL. llama-server, for example, exits like that at its second SIGTERM. So
 * the entry points refuse such a call.
 *
 * A handler that leaves with `longjmp` leaves locks and a request behind that nobody gives back: its thread
 * is refused from then on, where it would hang otherwise. VGPU_LOG says so.
 *
 * pthread_cancel() would do the same at the first cancellation point of a call, so a thread inside cannot be
 * cancelled: the cancellation takes effect after the call.
 */
#ifndef VGPU_GUEST_INSIDE_H
#define VGPU_GUEST_INSIDE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * The stack frame of the calling thread's entry point; 0: it is outside. Volatile, because a signal handler
 * of the same thread reads it.
 */
extern _Thread_local volatile uintptr_t vgpu_inside;

/* The program's cancellation state, while the calling thread is inside. */
extern _Thread_local int vgpu_cancellation;

/* A call of a thread that is inside comes from this frame. Logs it if the thread has left its former call. */
void vgpu_inside_again(uintptr_t frame);

/* False: this thread is inside, and the call must be refused. Otherwise vgpu_leave() follows. */
static inline bool vgpu_enter(void) {
  volatile uintptr_t *inside = &vgpu_inside; /* found once */
  const uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
  if (*inside == 0) {
    *inside = frame;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &vgpu_cancellation);
    return true;
  }
  vgpu_inside_again(frame);
  return false;
}

static inline void vgpu_leave(void) {
  pthread_setcancelstate(vgpu_cancellation, NULL);
  vgpu_inside = 0;
}

/*
 * Around a function of the program that an entry point calls in the program's own thread, because that
 * function may call the library. The thread must hold no lock.
 */
static inline uintptr_t vgpu_step_out(void) {
  uintptr_t was_inside = vgpu_inside;
  vgpu_leave();
  return was_inside;
}

static inline void vgpu_step_in(uintptr_t was_inside) {
  vgpu_inside = was_inside;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &vgpu_cancellation);
}

#endif
