/* Monotonic time and what is left of a limit. */
#ifndef VGPU_WIRE_CLOCK_H
#define VGPU_WIRE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t vgpu_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline int64_t vgpu_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Milliseconds until `deadline`, for poll(): 0 when it has passed. */
static inline int vgpu_left_ms(int64_t deadline) {
  int64_t left = deadline - vgpu_now_ms();
  return left <= 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left;
}

#endif
