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

/*
 * Like vgpu_now_ms in a fifth of the time, but up to one tick of the kernel (some milliseconds) late. For
 * limits of seconds.
 */
static inline int64_t vgpu_about_now_ms(void) {
#ifdef CLOCK_MONOTONIC_COARSE
  struct timespec now;
  if (clock_gettime(CLOCK_MONOTONIC_COARSE, &now) == 0) {
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
  }
#endif
  return vgpu_now_ms();
}

/* Milliseconds until `deadline`, for poll(): 0 when it has passed. */
static inline int vgpu_left_ms(int64_t deadline) {
  int64_t left = deadline - vgpu_now_ms();
  return left <= 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left;
}

#endif
