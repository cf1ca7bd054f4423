/* A multiply-add is rounded once on every processor, so that results have the same bits. */
#ifndef VGPU_PTX_SIMD8_H
#define VGPU_PTX_SIMD8_H

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

typedef float floats8 __attribute__((vector_size(32)));
typedef u32 words8 __attribute__((vector_size(32)));
typedef s32 ints8 __attribute__((vector_size(32)));

/* A vector is never passed between functions, because the way depends on the processor. */
#define EIGHT_FUNCTION static inline __attribute__((always_inline))

EIGHT_FUNCTION floats8 load8(const float *from) {
  floats8 x;
  memcpy(&x, from, sizeof x);
  return x;
}
EIGHT_FUNCTION void store8(float *to, floats8 x) {
  memcpy(to, &x, sizeof x);
}
EIGHT_FUNCTION floats8 all8(float x) {
  return (floats8){x, x, x, x, x, x, x, x};
}

#if defined(__AVX2__) && defined(__FMA__)
EIGHT_FUNCTION floats8 fused8(floats8 x, floats8 y, floats8 z) {
  return (floats8)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
}
/* `a` where the mask is all ones, `b` where it is 0 */
EIGHT_FUNCTION floats8 choose8(ints8 mask, floats8 a, floats8 b) {
  return (floats8)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)mask);
}
EIGHT_FUNCTION bool any8(ints8 mask) {
  return _mm256_movemask_ps((__m256)mask) != 0;
}
/* If one is NaN: x */
EIGHT_FUNCTION floats8 least8(float limit, floats8 x) {
  return (floats8)_mm256_min_ps((__m256)all8(limit), (__m256)x);
}
EIGHT_FUNCTION floats8 most8(float limit, floats8 x) {
  return (floats8)_mm256_max_ps((__m256)all8(limit), (__m256)x);
}
#else
static inline float fused(float x, float y, float z) {
#if defined(__x86_64__)
  /* Rounds to a double and then to a float: wrong only if the double is in the middle of two floats, or if
   * the result is subnormal. Slow, but only old processors need it. */
  const double sum = (double)x * (double)y + (double)z;
  const u64 rest = ptx_bits64(sum) & 0x1fffffff, size = ptx_bits64(sum) & 0x7fffffffffffffffull;
  const bool normal = size - 0x3820000000000000ull < 0x7ff0000000000000ull - 0x3820000000000000ull;
  if (rest != 0x10000000 && normal) return (float)sum;
  return (float)ptx_fma_odd((double)x, (double)y, (double)z);
#else
  return __builtin_fmaf(x, y, z);
#endif
}
EIGHT_FUNCTION floats8 fused8(floats8 x, floats8 y, floats8 z) {
  floats8 r;
  for (int i = 0; i < 8; i++) r[i] = fused(x[i], y[i], z[i]);
  return r;
}
EIGHT_FUNCTION bool any8(ints8 mask) {
  s32 any = 0;
  for (int i = 0; i < 8; i++) any |= mask[i];
  return any != 0;
}
EIGHT_FUNCTION floats8 choose8(ints8 mask, floats8 a, floats8 b) {
  return (floats8)(((ints8)a & mask) | ((ints8)b & ~mask));
}
EIGHT_FUNCTION floats8 least8(float limit, floats8 x) {
  return choose8(all8(limit) < x, all8(limit), x);
}
EIGHT_FUNCTION floats8 most8(float limit, floats8 x) {
  return choose8(all8(limit) > x, all8(limit), x);
}
#endif

EIGHT_FUNCTION floats8 fused8_by(floats8 x, floats8 y, float z) {
  return fused8(x, y, all8(z));
}
#endif
