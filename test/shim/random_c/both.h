/* Helpers for random kernels, on the device and on the host. C and CUDA define the same results for them. */
#ifndef VGPU_RANDOM_BOTH_H
#define VGPU_RANDOM_BOTH_H

typedef unsigned int u32;
typedef unsigned long long u64;

#define LANE (threadIdx.x & 31u)

/* Floats to bits: every NaN is the same one. */
HELPER u32 bits_of(float f) {
  union {
    float f;
    u32 u;
  } x;
  x.f = f;
  return f == f ? x.u : 0x7fc00000u;
}
HELPER u64 bits_of_double(double f) {
  union {
    double f;
    u64 u;
  } x;
  x.f = f;
  return f == f ? x.u : 0x7ff8000000000000ull;
}
/* A finite float of moderate size from any bits, and an integer from any float. */
HELPER float float_of(u32 u) {
  return (float)(int)u * 0.001f;
}
HELPER int int_of(float f) {
  return f > -1.0e9f && f < 1.0e9f ? (int)f : -7;
}

/* Of the lanes of `mask`, the one asked for if it is among them, else the own lane. */
HELPER u32 from_xor(u32 mask, u32 value, u32 by) {
  u32 r = __shfl_xor_sync(mask, value, (int)(by & 31u), 32);
  return (mask >> ((LANE ^ by) & 31u) & 1u) != 0 ? r : value;
}
HELPER u32 from_up(u32 mask, u32 value, u32 by) {
  u32 r = __shfl_up_sync(mask, value, by & 31u, 32), n = by & 31u;
  return LANE >= n && (mask >> (LANE - n) & 1u) == 0 ? value : r;
}
HELPER u32 from_down(u32 mask, u32 value, u32 by) {
  u32 r = __shfl_down_sync(mask, value, by & 31u, 32), n = by & 31u;
  return LANE + n < 32u && (mask >> (LANE + n) & 1u) == 0 ? value : r;
}
HELPER u32 from_lane(u32 mask, u32 value, u32 lane) {
  u32 r = __shfl_sync(mask, value, (int)(lane & 31u), 32);
  return (mask >> (lane & 31u) & 1u) != 0 ? r : value;
}
/* The same through shared memory. */
HELPER u32 exchange(u32 *s, u32 mask, u32 value, u32 by) {
  u32 lane = (LANE ^ by) & 31u, r;
  s[threadIdx.x] = value;
  __syncwarp(mask);
  r = s[(threadIdx.x & ~31u) + lane];
  __syncwarp(mask);
  return (mask >> lane & 1u) != 0 ? r : value;
}
#endif
