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
 * A fused multiply-add of halves. The sum is rounded to odd: when something was lost, the last bit says so,
 * and the second rounding, to a half, is right. The product x y is exact in a float. What was lost is `first`
 * if |x y| >= |z|, and `second` if |z| >= |x y|; the other of the two has the same sign or is +0.
 *
 * Infinity must stay what it is. The processor's NaN payload is lost, and its sign is negative:
 * +infinity becomes the largest float, which is infinity as a half, and -infinity is bounded before.
 */
static inline __m256 half_fused(__m256 x, __m256 y, __m256 z) {
  const __m256 sum = _mm256_max_ps(_mm256_set1_ps(-0x1p100f), _mm256_fmadd_ps(x, y, z));
  const __m256 first = _mm256_add_ps(_mm256_fmsub_ps(x, y, sum), z);
  const __m256 second = _mm256_fmadd_ps(x, y, _mm256_sub_ps(z, sum));
  const __m256i lost = _mm256_castps_si256(_mm256_or_ps(first, second)), bits = _mm256_castps_si256(sum);
  /* one step towards what was lost, if the last bit is 0 */
  const __m256i even = _mm256_andnot_si256(bits, _mm256_set1_epi32(1));
  const __m256i step = _mm256_sign_epi32(_mm256_sign_epi32(even, lost), bits);
  return _mm256_castsi256_ps(_mm256_add_epi32(bits, step));
}
static inline __m256i half_fma16(const u16 *a, const u16 *b, const u16 *c) {
  const __m256 low = half_fused(half_wide8(a), half_wide8(b), half_wide8(c));
  const __m256 high = half_fused(half_wide8(a + 8), half_wide8(b + 8), half_wide8(c + 8));
  return canonical16(half_narrow16(low, high), 0x7c00);
}
