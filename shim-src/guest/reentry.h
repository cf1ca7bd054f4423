/*
 * Whether a thread is inside the library already when the program calls it: in a signal handler that
 * interrupted a call of its own thread. If the handler calls exit(), exit handlers call the library again and
 * would wait forever for a lock that their own thread holds (llama-server exits so at its second SIGTERM).
 * So the entry points refuse such a call.
 *
 * A handler that leaves with `longjmp` leaves locks and a request behind. Its thread is refused from then on,
 * and VGPU_LOG reports it. pthread_cancel() would do the same, so cancellation takes effect only after a
 * call.
 */
#ifndef VGPU_GUEST_REENTRY_H
#define VGPU_GUEST_REENTRY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Stack frame of the calling thread's entry point; 0: the thread is outside. Volatile, because a signal
 * handler of the same thread reads it.
 */
extern _Thread_local volatile uintptr_t vgpu_inside;

/* The program's cancellation state, while the calling thread is inside. */
extern _Thread_local int vgpu_cancellation;

/*
 * Called when a thread that is inside calls from the stack frame `frame`. Logs it if the thread has left its
 * former call.
 */
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
 * Call these two around a function of the program that an entry point calls, because that function may call
 * the library. The thread must hold no lock.
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
