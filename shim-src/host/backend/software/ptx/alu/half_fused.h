/* Fused multiply-adds of 16-bit floats with AVX2, sixteen at a time; included by alu_half.h. */

/*
 * A fused multiply-add of bfloats, rounded to a float by the processor and then to a bfloat. The second
 * rounding is wrong only if the float lies in the middle between two bfloats and something was lost. Its sign
 * is that of `lost`, which is exact in the middle:
 * - If |x y| >= |z|, the sum of the rounded result and -x y is exact, and so is what z leaves of it.
 * - Otherwise z, a multiple of a bfloat's last bit, is at least half of such a bit away from the middle, and
 *   the product of 16 bits is so large that all of it is in the float: nothing was lost.
 * - x y below a float's last bit: if |x y| >= |z|, z is 0 or the product is a multiple of that bit.
 */
static inline __m256i bfloat_fused(__m256 x, __m256 y, __m256 z) {
  const __m256 sum = _mm256_fmadd_ps(x, y, z), lost = _mm256_add_ps(_mm256_fmsub_ps(x, y, sum), z);
  const __m256i bits = _mm256_castps_si256(sum);
  /* down: 1 where the middle is rounded towards zero, to the even one or as what was lost says */
  const __m256i even = _mm256_srli_epi32(_mm256_andnot_si256(bits, _mm256_set1_epi32(0x10000)), 16);
  const __m256i apart = _mm256_srli_epi32(_mm256_xor_si256(bits, _mm256_castps_si256(lost)), 31);
  const __m256i some = _mm256_castps_si256(_mm256_cmp_ps(lost, _mm256_setzero_ps(), _CMP_NEQ_OQ));
  const __m256i down = _mm256_blendv_epi8(even, apart, some);
  return _mm256_sub_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), down);
}
static inline __m256i bfloat_fma16(const u16 *a, const u16 *b, const u16 *c) {
  const __m256i x = load16(a), y = load16(b), z = load16(c);
  return bfloat_join(bfloat_fused(bfloat_even(x), bfloat_even(y), bfloat_even(z)),
                     bfloat_fused(bfloat_odd(x), bfloat_odd(y), bfloat_odd(z)));
}

/*
 * A fused multiply-add of halves. The product is exact in a float. The sum is rounded to odd: when something
 * was lost (two-sum), the last bit says so, and the second rounding, to a half, is right.
 */
static inline __m256 half_fused(__m256 x, __m256 y, __m256 z) {
  const __m256 product = _mm256_mul_ps(x, y), sum = _mm256_add_ps(product, z);
  const __m256 back = _mm256_sub_ps(sum, product);
  const __m256 error =
      _mm256_add_ps(_mm256_sub_ps(product, _mm256_sub_ps(sum, back)), _mm256_sub_ps(z, back));
  /* one step towards the error where there is one and the last bit does not show it */
  const __m256i bits = _mm256_castps_si256(sum);
  const __m256i lost = _mm256_castps_si256(_mm256_cmp_ps(error, _mm256_setzero_ps(), _CMP_NEQ_OQ));
  const __m256i even =
      _mm256_cmpeq_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(1)), _mm256_setzero_si256());
  const __m256i apart = _mm256_srai_epi32(_mm256_xor_si256(bits, _mm256_castps_si256(error)), 31);
  const __m256i step = _mm256_or_si256(apart, _mm256_set1_epi32(1));
  return _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_and_si256(step, _mm256_and_si256(lost, even))));
}
static inline __m256i half_fma16(const u16 *a, const u16 *b, const u16 *c) {
  const __m256 low = half_fused(half_wide8(a), half_wide8(b), half_wide8(c));
  const __m256 high = half_fused(half_wide8(a + 8), half_wide8(b + 8), half_wide8(c + 8));
  return canonical16(half_narrow16(low, high), 0x7c00);
}
/*
 * The same of `count` halves without looking at what was lost. False, and nothing is written, if that may
 * have been wrong: if a float is in the middle between two halves, or so small that a half has fewer bits.
 * Below a half's last bit, 2^-24, nothing is lost, because all is a multiple of 2^-48.
 */
static inline bool half_fma_plain(u16 *d, const u16 *a, const u16 *b, const u16 *c, const int count) {
  const __m256i part = _mm256_set1_epi32(0x1fff), middle = _mm256_set1_epi32(0x1000);
  __m256i doubt = _mm256_setzero_si256(), least = _mm256_set1_epi16(-1), r[2 * PTX_LANES / 16];
#pragma GCC unroll 4
  for (int i = 0; i < count; i += 16) {
    const __m256 low = _mm256_fmadd_ps(half_wide8(a + i), half_wide8(b + i), half_wide8(c + i));
    const __m256 high = _mm256_fmadd_ps(half_wide8(a + i + 8), half_wide8(b + i + 8), half_wide8(c + i + 8));
    const __m256i l = _mm256_and_si256(_mm256_castps_si256(low), part);
    const __m256i h = _mm256_and_si256(_mm256_castps_si256(high), part);
    doubt = _mm256_or_si256(doubt, _mm256_cmpeq_epi32(l, middle));
    doubt = _mm256_or_si256(doubt, _mm256_cmpeq_epi32(h, middle));
    const __m256i narrow = half_narrow16(low, high);
    least = _mm256_min_epu16(least, _mm256_sub_epi16(size16(narrow), _mm256_set1_epi16(1)));
    r[i / 16] = canonical16(narrow, 0x7c00);
  }
  doubt = _mm256_or_si256(doubt, _mm256_subs_epu16(_mm256_set1_epi16(0x0400), least));
  if (!_mm256_testz_si256(doubt, doubt)) return false;
#pragma GCC unroll 4
  for (int i = 0; i < count; i += 16) store16(d + i, r[i / 16]);
  return true;
}
static inline void half_fma_all(u16 *d, const u16 *a, const u16 *b, const u16 *c, const int count) {
  if (half_fma_plain(d, a, b, c, count)) return;
  for (int i = 0; i < count; i += 16) store16(d + i, half_fma16(a + i, b + i, c + i));
}
