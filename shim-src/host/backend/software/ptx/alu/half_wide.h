/*
 * Rounds the sum down and up to floats. If these differ, the one with an odd last bit shows that bits were
 * lost, so that the second rounding, to 16 bits, is right.
 */
static inline __m512 fma_odd16(__m512 x, __m512 y, __m512 z) {
  __m512 low = _mm512_fmadd_round_ps(x, y, z, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 high = _mm512_fmadd_round_ps(x, y, z, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
  return _mm512_mask_blend_ps(_mm512_test_epi32_mask(_mm512_castps_si512(low), _mm512_set1_epi32(1)), high,
                              low);
}
static inline __m512 half_wide16(const u16 *from) {
  return _mm512_cvtph_ps(load16(from));
}
static inline __m256i half_fma16(const u16 *a, const u16 *b, const u16 *c) {
  __m512 f = fma_odd16(half_wide16(a), half_wide16(b), half_wide16(c));
  __m256i h = _mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return canonical16(h, 0x7c00);
}
static inline __m512 bfloat_wide16(const u16 *from) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load16(from)), 16));
}
static inline __m256i bfloat_fma16(const u16 *a, const u16 *b, const u16 *c) {
  __m512 f = fma_odd16(bfloat_wide16(a), bfloat_wide16(b), bfloat_wide16(c));
  __m512i bits = _mm512_castps_si512(f);
  __m512i up = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  bits = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, up), _mm512_set1_epi32(0x7fff)), 16);
  bits = _mm512_mask_mov_epi32(bits, _mm512_cmp_ps_mask(f, f, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fff));
  return _mm512_cvtepi32_epi16(bits);
}
