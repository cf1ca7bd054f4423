/* As ptx_from_half and ptx_half_nearest, except the bits of a NaN. Included by alu_half.h. */
#include <immintrin.h>

static inline __m256i load16(const u16 *from) {
  return _mm256_loadu_si256((const __m256i *)(const void *)from);
}
static inline void store16(u16 *to, __m256i h) {
  _mm256_storeu_si256((__m256i *)(void *)to, h);
}
static inline __m256i size16(__m256i h) {
  return _mm256_and_si256(h, _mm256_set1_epi16(0x7fff));
}
/* Every NaN gets the bits of a GPU's. `top` is infinity. */
static inline __m256i canonical16(__m256i h, short top) {
  const __m256i nan = _mm256_cmpgt_epi16(size16(h), _mm256_set1_epi16(top));
  return _mm256_blendv_epi8(h, _mm256_set1_epi16(0x7fff), nan);
}
/* Subnormal halves become zeros of their sign. */
static inline __m256i flushed16(__m256i h) {
  const __m256i exponent = _mm256_and_si256(h, _mm256_set1_epi16(0x7c00));
  const __m256i small = _mm256_cmpeq_epi16(exponent, _mm256_setzero_si256());
  return _mm256_andnot_si256(size16(small), h);
}
static inline bool any_small(const u16 *from, const int count) {
  __m256i least = _mm256_set1_epi16(-1);
  for (int i = 0; i < count; i += 16) {
    least = _mm256_min_epu16(least, _mm256_sub_epi16(size16(load16(from + i)), _mm256_set1_epi16(1)));
  }
  const __m256i small = _mm256_subs_epu16(_mm256_set1_epi16(0x03ff), least);
  return !_mm256_testz_si256(small, small);
}
static inline void flush_halves(u16 *to, const u16 *from, const int count) {
  for (int i = 0; i < count; i += 16) store16(to + i, flushed16(load16(from + i)));
}
/*
 * Applies the modifiers of a result. Rounding keeps the order of numbers, so modifiers may follow it. A NaN
 * is 0x7fff here: .sat makes it 0, .relu keeps it.
 */
static inline __m256i modified16(__m256i h, u32 m, short one, int flushes) {
  if ((m & M_SAT) != 0) {
    const __m256i nan = _mm256_cmpeq_epi16(h, _mm256_set1_epi16(0x7fff));
    h = _mm256_min_epi16(_mm256_andnot_si256(nan, h), _mm256_set1_epi16(one));
  }
  /* as integers, all floats with a sign are negative */
  if ((m & (M_SAT | M_RELU)) != 0) h = _mm256_max_epi16(h, _mm256_setzero_si256());
  return (m & M_FTZ) != 0 && flushes ? flushed16(h) : h;
}

static inline __m256 half_wide8(const u16 *from) {
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}
static inline __m256i half_narrow16(__m256 low, __m256 high) {
  return _mm256_set_m128i(_mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                          _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/* A bfloat is the upper half of a float: even places, then odd ones. */
static inline __m256 bfloat_even(__m256i h) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(h, 16));
}
static inline __m256 bfloat_odd(__m256i h) {
  return _mm256_castsi256_ps(_mm256_and_si256(h, _mm256_set1_epi32((int)0xffff0000)));
}
static inline __m256i bfloat_join(__m256i even, __m256i odd) {
  return canonical16(_mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa), 0x7f80);
}
/*
 * Rounds floats to nearest; the upper half is the bfloat. A NaN is an operand's, whose lower half is 0, or
 * the processor's, so it stays a NaN.
 */
static inline __m256i bfloat_rounded(__m256 f) {
  const __m256i bits = _mm256_castps_si256(f);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff));
}

#define HALF_SIXTEEN(name, intrinsic)                                                                        \
  static inline __m256i half_##name##16(const u16 *a, const u16 *b) {                                        \
    const __m256 low = intrinsic(half_wide8(a), half_wide8(b));                                              \
    const __m256 high = intrinsic(half_wide8(a + 8), half_wide8(b + 8));                                     \
    return canonical16(half_narrow16(low, high), 0x7c00);                                                    \
  }                                                                                                          \
  static inline __m256i bfloat_##name##16(const u16 *a, const u16 *b) {                                      \
    const __m256i x = load16(a), y = load16(b);                                                              \
    const __m256 even = intrinsic(bfloat_even(x), bfloat_even(y));                                           \
    const __m256 odd = intrinsic(bfloat_odd(x), bfloat_odd(y));                                              \
    return bfloat_join(bfloat_rounded(even), bfloat_rounded(odd));                                           \
  }
HALF_SIXTEEN(add, _mm256_add_ps)
HALF_SIXTEEN(sub, _mm256_sub_ps)
/* On AMD a multiplication is slow with subnormals; a multiply-add is not. */
static inline __m256 product8(__m256 x, __m256 y) {
  return _mm256_fmadd_ps(x, y, _mm256_set1_ps(-0.0f));
}
HALF_SIXTEEN(mul, product8)

/*
 * For ex2 and `tanh` (alu_function.h): bounds operands as integers. Floats above the first limit, and
 * negative ones beyond the second, become the limit.
 */
static inline __m256i bounded16(__m256i h, u16 above, u16 below) {
  h = _mm256_min_epi16(h, _mm256_set1_epi16((short)above));
  return _mm256_min_epu16(h, _mm256_set1_epi16((short)below));
}
static inline __m256i with_nan16(__m256i r, __m256i h, short top) {
  const __m256i nan = _mm256_cmpgt_epi16(size16(h), _mm256_set1_epi16(top));
  return _mm256_blendv_epi8(r, _mm256_set1_epi16(0x7fff), nan);
}
static inline __m256 half_low(__m256i h) {
  return _mm256_cvtph_ps(_mm256_castsi256_si128(h));
}
static inline __m256 half_high(__m256i h) {
  return _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
}
static inline __m256i bfloat_round(__m256 even, __m256 odd) {
  return _mm256_blend_epi16(_mm256_srli_epi32(bfloat_rounded(even), 16), bfloat_rounded(odd), 0xaa);
}
static inline __m256i half_ex2_16(const u16 *a) {
  const __m256i h = load16(a), x = bounded16(h, 0x4c00, 0xd000); /* 16 and -32 */
  const __m256 low = (__m256)ex2_half((floats8)half_low(x)), high = (__m256)ex2_half((floats8)half_high(x));
  return with_nan16(half_narrow16(low, high), h, 0x7c00);
}
static inline __m256i bfloat_ex2_16(const u16 *a) {
  const __m256i h = load16(a), x = bounded16(h, 0x4300, 0xc2fe); /* 128 and -127 */
  const __m256 even = (__m256)ex2_bfloat((floats8)bfloat_even(x));
  const __m256i r = bfloat_round(even, (__m256)ex2_bfloat((floats8)bfloat_odd(x)));
  /* there is only the form that flushes */
  const __m256i small = _mm256_cmpgt_epi16(_mm256_set1_epi16(0x0080), r);
  return with_nan16(_mm256_andnot_si256(small, r), h, 0x7f80);
}
static inline __m256i half_tanh_16(const u16 *a) {
  const __m256i h = load16(a), x = bounded16(h, TANH_MOST_HALF_BITS, 0x8000 | TANH_MOST_HALF_BITS);
  const __m256 low = (__m256)tanh_half((floats8)half_low(x)), high = (__m256)tanh_half((floats8)half_high(x));
  return with_nan16(half_narrow16(low, high), h, 0x7c00);
}
static inline __m256i bfloat_tanh_16(const u16 *a) {
  const __m256i h = load16(a), x = bounded16(h, TANH_MOST_BFLOAT_BITS, 0x8000 | TANH_MOST_BFLOAT_BITS);
  const __m256 even = (__m256)tanh_bfloat((floats8)bfloat_even(x));
  return with_nan16(bfloat_round(even, (__m256)tanh_bfloat((floats8)bfloat_odd(x))), h, 0x7f80);
}
