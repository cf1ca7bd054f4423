/* A token bucket: so many a second, and as many at once after a quiet second. */
#ifndef VGPU_HOST_BUCKET_H
#define VGPU_HOST_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/clock.h"

struct vgpu_bucket {
  uint64_t last; /* nanoseconds; 0: not used yet, and full */
  double tokens;
};

/*
 * Takes one token of a bucket that fills with `rate` a second up to `burst`. 0: taken; else the nanoseconds
 * until there will be one, and nothing is taken.
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

/* Likewise; as many at once as a second gives. */
static inline uint64_t vgpu_bucket_take(struct vgpu_bucket *bucket, uint32_t rate, uint64_t now) {
  return vgpu_bucket_take_burst(bucket, rate, rate, now);
}

#endif
