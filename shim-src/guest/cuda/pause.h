/*
 * Before a call is repeated that got NOT_READY (an older host for another thread's call; a parked call after
 * VGPU_PARK_LIMIT_MS). Short at first, then up to 2 ms.
 */
#ifndef VGPU_GUEST_CUDA_PAUSE_H
#define VGPU_GUEST_CUDA_PAUSE_H

#include <time.h>

struct vgpu_pause {
  long nanoseconds; /* length of the last pause; begin with 0 */
};

static inline void vgpu_pause(struct vgpu_pause *pause) {
  pause->nanoseconds = pause->nanoseconds == 0 ? 10000 : pause->nanoseconds * 2;
  if (pause->nanoseconds > 2000000) pause->nanoseconds = 2000000;
  struct timespec time = {.tv_nsec = pause->nanoseconds};
  nanosleep(&time, NULL);
}

#endif
