/*
 * Waits before a call is made again that the host has answered with NOT_READY: an older host does so when
 * another thread calls, a host that parks calls after VGPU_PARK_LIMIT_MS. First a short time, later at most
 * two milliseconds.
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
