#ifndef VGPU_PTX_SHUFFLE_H
#define VGPU_PTX_SHUFFLE_H

#include "host/backend/software/ptx/modes.h"
#include "host/backend/software/ptx/program.h"

/*
 * Sets from[] to the lane that each lane reads. Returns a bit for each lane whose source is within its
 * segment.
 */
static inline uint32_t ptx_shuffle_sources(uint32_t how, const uint32_t *b, const uint32_t *c,
                                           uint32_t from[PTX_LANES]) {
  uint32_t inside[PTX_LANES];
  for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
    uint32_t clamp = c[lane] & 31, segment = c[lane] >> 8 & 31, n = b[lane] & 31;
    int32_t most = (int32_t)((lane & segment) | (clamp & ~segment));
    int32_t up = (int32_t)lane - (int32_t)n, down = (int32_t)(lane + n), across = (int32_t)(lane ^ n);
    int32_t straight = (int32_t)((lane & segment) | (n & ~segment));
    int32_t j = how == SHFL_UP ? up : how == SHFL_DOWN ? down : how == SHFL_BFLY ? across : straight;
    bool good = how == SHFL_UP ? j >= most : j <= most;
    inside[lane] = good;
    from[lane] = good ? (uint32_t)j & 31 : lane;
  }
  uint32_t bits = 0;
  for (uint32_t lane = 0; lane < PTX_LANES; lane++) bits |= inside[lane] << lane;
  return bits;
}

#endif
