/* Integers of up to 32 bits go through floats: those that a float does not hold are beyond all halves. */
#if defined(__F16C__) && defined(__AVX2__) && defined(__FMA__)
#define NARROW_AS(way)                                                                                       \
  for (int i = 0; i < PTX_LANES; i += 16) {                                                                  \
    const __m128i low = _mm256_cvtps_ph(_mm256_loadu_ps(a + i), (way) | _MM_FROUND_NO_EXC);                  \
    const __m128i high = _mm256_cvtps_ph(_mm256_loadu_ps(a + i + 8), (way) | _MM_FROUND_NO_EXC);             \
    store16(d + i, modified16(canonical16(_mm256_set_m128i(high, low), 0x7c00), m, 0x3c00, 0));              \
  }
/* Rounds and modifies as m says, without .ftz, which concerns only numbers that no half holds. */
static void halves_of_floats(u16 *d, const float *a, u32 m) {
  switch (m & M_ROUND) {
    case M_RZ:
      NARROW_AS(_MM_FROUND_TO_ZERO)
      return;
    case M_RM:
      NARROW_AS(_MM_FROUND_TO_NEG_INF)
      return;
    case M_RP:
      NARROW_AS(_MM_FROUND_TO_POS_INF)
      return;
    default:
      NARROW_AS(_MM_FROUND_TO_NEAREST_INT)
  }
}
static void floats_of_halves(float *d, const u16 *a, u32 m) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  for (int i = 0; i < PTX_LANES; i += 16) {
    __m256i h = load16(a + i);
    if ((m & M_FTZ) != 0) h = flushed16(h);
    const __m256 low = half_low(h), high = half_high(h);
    _mm256_storeu_ps(d + i, _mm256_blendv_ps(low, nan, _mm256_cmp_ps(low, low, _CMP_UNORD_Q)));
    _mm256_storeu_ps(d + i + 8, _mm256_blendv_ps(high, nan, _mm256_cmp_ps(high, high, _CMP_UNORD_Q)));
  }
}
#else
static void halves_of_floats(u16 *d, const float *a, u32 m) {
  if ((m & (M_SAT | M_RELU)) == 0 && (m & M_ROUND) <= M_RN) {
    LANES d[i] = ptx_half_nearest(ptx_bits(a[i]));
    return;
  }
  for (int i = 0; i < PTX_LANES; i++) {
    double x = load_f32(ptx_bits(a[i]), 0);
    if ((m & M_SAT) != 0) x = saturate64(x);
    if ((m & M_RELU) != 0) x = relu64(x);
    d[i] = round_half(ptx_bits64(x), m);
  }
}
static void floats_of_halves(float *d, const u16 *a, u32 m) {
  LANES {
    u16 h = flush_half(a[i], m);
    u32 r = ptx_bits(ptx_from_half(h));
    d[i] = ptx_float((h & 0x7fff) > 0x7c00 ? 0x7fffffff : r);
  }
}
#endif

CONVERT(f32, f16) {
  UNUSED;
  floats_of_halves(dv, av, 0);
  if ((m & M_SAT) != 0) saturate_f32(dv, dv, dv, dv, 0);
}
CONVERT(f16, f32) {
  UNUSED;
  KEEP;
  const u32 *a = av;
  float x[PTX_LANES];
  LANES x[i] = ptx_float(FLUSHED(a[i]));
  halves_of_floats(dv, x, m);
}
CONVERT(f16, f16) {
  UNUSED;
  float x[PTX_LANES];
  floats_of_halves(x, av, m);
  if ((m & M_INTEGRAL) != 0) to_integers_f32(x, m);
  halves_of_floats(dv, x, (m & (M_SAT | M_RELU)) | M_RN);
}
#define INTEGERS_TO_HALVES(from, FS, FV)                                                                     \
  CONVERT(f16, from) {                                                                                       \
    UNUSED;                                                                                                  \
    const FS *a = av;                                                                                        \
    float x[PTX_LANES];                                                                                      \
    LANES x[i] = (float)(FV)a[i];                                                                            \
    halves_of_floats(dv, x, m &(M_ROUND | M_SAT));                                                           \
  }
INTEGERS_TO_HALVES(u8, u16, u8)
INTEGERS_TO_HALVES(s8, u16, s8)
INTEGERS_TO_HALVES(u16, u16, u16)
INTEGERS_TO_HALVES(s16, u16, s16)
INTEGERS_TO_HALVES(u32, u32, u32)
INTEGERS_TO_HALVES(s32, u32, s32)
