#include "guest/reentry.h"

#include <signal.h>

#include "guest/log.h"

_Thread_local volatile uintptr_t vgpu_inside;
_Thread_local int vgpu_cancellation;

/* A signal handler that interrupted the earlier call has a lower frame, or runs on a stack of its own. */
void vgpu_inside_again(uintptr_t frame) {
  static _Thread_local bool told;
  stack_t own;
  if (told || frame < vgpu_inside || (sigaltstack(NULL, &own) == 0 && (own.ss_flags & SS_ONSTACK) != 0))
    return;
  told = true;
  vgpu_log("a thread left a call by longjmp: all its later calls are refused");
}
