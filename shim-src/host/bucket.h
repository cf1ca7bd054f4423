/* A token bucket: limits a rate, but allows a burst after a quiet time. */
#ifndef VGPU_HOST_BUCKET_H
#define VGPU_HOST_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/clock.h"

struct vgpu_bucket {
  uint64_t last; /* nanoseconds; 0: not used yet, so full */
  double tokens;
};

/*
 * Takes one token from a bucket that gets `rate` tokens a second, up to `burst`. Returns 0, or the
 * nanoseconds until there is a token; then none is taken. `now` is in nanoseconds.
 */
static inline uint64_t vgpu_bucket_take_burst(struct vgpu_bucket *bucket, uint32_t rate, uint32_t burst,
                                              uint64_t now) {
  if (bucket->last == 0) bucket->tokens = burst;
  else bucket->tokens += (double)(now - bucket->last) * rate / 1e9;
  bucket->last = now;
  if (bucket->tokens > burst) bucket->tokens = burst;
  if (bucket->tokens < 1) return (uint64_t)((1 - bucket->tokens) * 1e9 / rate) + 1;
  bucket->tokens -= 1;
  return 0;
}

/* Like vgpu_bucket_take_burst, with the tokens of one second as burst. */
static inline uint64_t vgpu_bucket_take(struct vgpu_bucket *bucket, uint32_t rate, uint64_t now) {
  return vgpu_bucket_take_burst(bucket, rate, rate, now);
}

#endif
