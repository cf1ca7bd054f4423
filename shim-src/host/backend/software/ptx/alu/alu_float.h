/* Floating point; included by alu.c. Rounding and flushing are the processor's, set before (fpu.h). */

#define CANON(x) ptx_canonical(x)

BINARY(add_f32, float, CANON(x + y))
BINARY(sub_f32, float, CANON(x - y))
BINARY(mul_f32, float, CANON(x *y))
BINARY(div_f32, float, CANON(x / y))
/* With rounding modes that change, compilers do not make vectors of fma by themselves. */
#if defined(__FMA__) && defined(__AVX2__)
#include <immintrin.h>
OPERATION(fma_f32) {
  UNUSED;
  const float *a = av, *b = bv, *c = cv;
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  for (int i = 0; i < PTX_LANES; i += 8) {
    __m256 r = _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i), _mm256_loadu_ps(c + i));
    _mm256_storeu_ps((float *)dv + i, _mm256_blendv_ps(r, nan, _mm256_cmp_ps(r, r, _CMP_UNORD_Q)));
  }
}
OPERATION(fma_f64) {
  UNUSED;
  const double *a = av, *b = bv, *c = cv;
  for (int i = 0; i < PTX_LANES; i += 4) {
    __m256d r = _mm256_fmadd_pd(_mm256_loadu_pd(a + i), _mm256_loadu_pd(b + i), _mm256_loadu_pd(c + i));
    _mm256_storeu_pd((double *)dv + i, r);
  }
}
#else
TERNARY(fma_f32, float, CANON(__builtin_fmaf(x, y, z)))
TERNARY(fma_f64, double, __builtin_fma(x, y, z))
#endif
UNARY(sqrt_f32, float, CANON(__builtin_sqrtf(x)))
UNARY(rcp_f32, float, CANON(1.0f / x))
UNARY(saturate_f32, float, x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f)
UNARY(relu_f32, float, x != x ? x : x > 0.0f ? x : 0.0f)

BINARY(add_f64, double, x + y)
BINARY(sub_f64, double, x - y)
BINARY(mul_f64, double, x *y)
BINARY(div_f64, double, x / y)
UNARY(sqrt_f64, double, __builtin_sqrt(x))
UNARY(rcp_f64, double, 1.0 / x)
UNARY(rsqrt_f64, double, 1.0 / __builtin_sqrt(x))

/* Bit operations on floats flush by hand: nothing is computed. */
#define FLUSHED(b) ((b) & ((((b)&0x7f800000) == 0) ? keep : 0xffffffffu))
#define KEEP const u32 keep = (m & M_FTZ) != 0 ? 0x80000000u : 0xffffffffu
OPERATION(abs_f32) {
  UNUSED;
  KEEP;
  u32 *d = dv;
  const u32 *a = av;
  LANES {
    u32 x = FLUSHED(a[i]) & 0x7fffffff;
    d[i] = x > 0x7f800000 ? 0x7fffffff : x;
  }
}
OPERATION(neg_f32) {
  UNUSED;
  KEEP;
  u32 *d = dv;
  const u32 *a = av;
  LANES {
    u32 x = FLUSHED(a[i]);
    d[i] = (x & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : x ^ 0x80000000;
  }
}
UNARY(abs_f64, u64, x & 0x7fffffffffffffffull)
UNARY(neg_f64, u64, x ^ 0x8000000000000000ull)
BINARY(copysign_f32, u32, (y & 0x7fffffff) | (x & 0x80000000))
BINARY(copysign_f64, u64, (y & 0x7fffffffffffffffull) | (x & 0x8000000000000000ull))

/* Of equals, zeros of two signs: the minimum is the negative one. Integer comparison of ordered keys. */
static inline s32 key32(u32 x) {
  return (s32)(x ^ (u32)((s32)x >> 31) >> 1);
}
#define MINMAX_F32(name, compare)                                                                            \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    KEEP;                                                                                                    \
    u32 *d = dv;                                                                                             \
    const u32 *a = av, *b = bv;                                                                              \
    const u32 magnitude = (m & M_XORSIGN) != 0 ? 0x7fffffff : 0xffffffff;                                    \
    const int nan = (m & M_NAN) != 0;                                                                        \
    LANES {                                                                                                  \
      u32 x = FLUSHED(a[i]), y = FLUSHED(b[i]);                                                              \
      u32 sign = (x ^ y) & ~magnitude;                                                                       \
      x &= magnitude;                                                                                        \
      y &= magnitude;                                                                                        \
      int nx = (x & 0x7fffffff) > 0x7f800000, ny = (y & 0x7fffffff) > 0x7f800000;                            \
      u32 r = key32(x) compare key32(y) ? x : y;                                                             \
      r = nx ? y : ny ? x : r;                                                                               \
      r |= sign;                                                                                             \
      d[i] = (nx & ny) | (nan & (nx | ny)) ? 0x7fffffff : r;                                                 \
    }                                                                                                        \
  }
MINMAX_F32(min_f32, <)
MINMAX_F32(max_f32, >)

static inline s64 key64(u64 x) {
  return (s64)(x ^ (u64)((s64)x >> 63) >> 1);
}
BINARY(min_f64, u64,
       (x & 0x7fffffffffffffffull) > 0x7ff0000000000000ull   ? y
       : (y & 0x7fffffffffffffffull) > 0x7ff0000000000000ull ? x
       : key64(x) < key64(y)                                 ? x
                                                             : y)
BINARY(max_f64, u64,
       (x & 0x7fffffffffffffffull) > 0x7ff0000000000000ull   ? y
       : (y & 0x7fffffffffffffffull) > 0x7ff0000000000000ull ? x
       : key64(x) > key64(y)                                 ? x
                                                             : y)

/* Approximations: better than the ISA asks for. */
static inline float divide_approx(float x, float y) {
  /* beyond 2^126 the reciprocal would be flushed: the ISA gives 0, and NaN for infinity */
  u32 e = ptx_bits(y) >> 23 & 0xff;
  float q = x / y;
  u32 sign = (ptx_bits(x) ^ ptx_bits(y)) & 0x80000000;
  int finite = (ptx_bits(x) & 0x7fffffff) < 0x7f800000;
  float r = (e == 253 && (ptx_bits(y) & 0x7fffff) != 0) || e == 254 ? (finite ? ptx_float(sign) : NAN) : q;
  return CANON(x != x || y != y ? q : r);
}
BINARY(div_approx_f32, float, divide_approx(x, y))
UNARY(rsqrt_f32, float, CANON(1.0f / __builtin_sqrtf(x)))

static inline float log2_of(float x) {
  return x < 0.0f ? NAN : log2f(x);
}
UNARY(lg2_f32, float, CANON(log2_of(x)))
UNARY(sin_f32, float, CANON(sinf(x)))
UNARY(cos_f32, float, CANON(cosf(x)))
UNARY(tanh_f32, float, CANON(tanhf(x)))

/* 2^x = 2^n * 2^f, f in [-0.5, 0.5]: a polynomial of degree 7, error below 2^-24; subnormal results are made
 * by two multiplications. */
OPERATION(ex2_f32) {
  UNUSED;
  float *d = dv;
  const float *a = av;
  LANES {
    float x = a[i];
    float c = x < -160.0f ? -160.0f : x > 129.0f ? 129.0f : x;
    c = x != x ? 0.0f : c;
    /* to the nearest integer, by the float's own end */
    float shifted = c + 0x1.8p23f;
    s32 n = (s32)(ptx_bits(shifted) - 0x4b400000u);
    float f = c - (shifted - 0x1.8p23f);
    float p = 1.5252733804059841e-5f;
    p = p * f + 1.5403530393381606e-4f;
    p = p * f + 1.3333558146428443e-3f;
    p = p * f + 9.6181291076284772e-3f;
    p = p * f + 5.5504108664821580e-2f;
    p = p * f + 2.4022650695910072e-1f;
    p = p * f + 6.9314718055994531e-1f;
    p = p * f + 1.0f;
    s32 half = n >> 1;
    float first = ptx_float((u32)(half + 127) << 23), second = ptx_float((u32)(n - half + 127) << 23);
    float r = p * first * second;
    d[i] = x != x ? ptx_float(0x7fffffff) : r;
  }
}

/* Half precision: through floats where that rounds once, through doubles for fma. */
static inline u16 flush_half(u16 x, u32 m) {
  return (m & M_FTZ) != 0 && (x & 0x7c00) == 0 ? x & 0x8000 : x;
}
static inline float hf(u16 x, u32 m) {
  return ptx_from_half(flush_half(x, m));
}
static inline u16 fh(float x, u32 m) {
  if ((m & M_SAT) != 0) x = x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
  if ((m & M_RELU) != 0) x = x < 0.0f ? 0.0f : x;
  u16 r = ptx_half_nearest(ptx_bits(x));
  return flush_half(r, m);
}
static inline float bf(u16 x, u32 m) {
  (void)m;
  return ptx_from_bfloat(x);
}
static inline u16 fb(float x, u32 m) {
  if ((m & M_SAT) != 0) x = x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
  if ((m & M_RELU) != 0) x = x < 0.0f ? 0.0f : x;
  return ptx_bfloat_nearest(ptx_bits(x));
}
static inline u16 half_fma(u16 x, u16 y, u16 z, u32 m) {
  double r = ptx_fma_odd((double)hf(x, m), (double)hf(y, m), (double)hf(z, m));
  if ((m & M_SAT) != 0) r = r > 0.0 ? (r < 1.0 ? r : 1.0) : 0.0;
  if ((m & M_RELU) != 0) r = r < 0.0 ? 0.0 : r;
  return flush_half(ptx_half_of_double(r, 1), m);
}
static inline double wide_bf(u16 x) {
  return ptx_double(ptx_widen((u32)x << 16));
}
static inline u16 bfloat_fma(u16 x, u16 y, u16 z, u32 m) {
  double r = ptx_fma_odd(wide_bf(x), wide_bf(y), wide_bf(z));
  if ((m & M_SAT) != 0) r = r > 0.0 ? (r < 1.0 ? r : 1.0) : 0.0;
  if ((m & M_RELU) != 0) r = r < 0.0 ? 0.0 : r;
  return ptx_bfloat_of_double(r, 1);
}
/* Of 16-bit floats with the sign on top; `top` is infinity. */
static inline u16 half_minmax(u16 x, u16 y, u32 m, u16 top, int larger) {
  u16 sign = 0;
  if ((m & M_XORSIGN) != 0) {
    sign = (x ^ y) & 0x8000;
    x &= 0x7fff;
    y &= 0x7fff;
  }
  int nx = (x & 0x7fff) > top, ny = (y & 0x7fff) > top;
  s16 kx = (s16)(x ^ (u16)((u16)((s16)x >> 15) >> 1)), ky = (s16)(y ^ (u16)((u16)((s16)y >> 15) >> 1));
  u16 r = (larger ? kx > ky : kx < ky) ? x : y;
  r = nx ? y : ny ? x : r;
  return (nx && ny) || ((m & M_NAN) != 0 && (nx || ny)) ? 0x7fff : r | sign;
}
static inline u16 sixteen(u16 x, u16 top, u16 flip, u16 mask) {
  return (x & 0x7fff) > top ? 0x7fff : (x ^ flip) & mask;
}

/* Scalars and pairs are the same but for the number of elements. */
#define HALF_UNARY(name, count, expression)                                                                  \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    u16 *d = dv;                                                                                             \
    const u16 *a = av;                                                                                       \
    for (int i = 0; i < count; i++) {                                                                        \
      const u16 x = a[i];                                                                                    \
      d[i] = (u16)(expression);                                                                              \
    }                                                                                                        \
  }
#define HALF_BINARY(name, count, expression)                                                                 \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    u16 *d = dv;                                                                                             \
    const u16 *a = av, *b = bv;                                                                              \
    for (int i = 0; i < count; i++) {                                                                        \
      const u16 x = a[i], y = b[i];                                                                          \
      d[i] = (u16)(expression);                                                                              \
    }                                                                                                        \
  }
#define HALF_TERNARY(name, count, expression)                                                                \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    u16 *d = dv;                                                                                             \
    const u16 *a = av, *b = bv, *c = cv;                                                                     \
    for (int i = 0; i < count; i++) {                                                                        \
      const u16 x = a[i], y = b[i], z = c[i];                                                                \
      d[i] = (u16)(expression);                                                                              \
    }                                                                                                        \
  }
/*
 * Sums and products of halves, eight at a time: what the processor converts is what ptx_from_half and
 * ptx_half_nearest do, but for the bits of a NaN. With modifiers, one by one.
 */
#if defined(__F16C__) && defined(__AVX2__)
#define HALF_ARITHMETIC(name, N, operator, intrinsic)                                                        \
  HALF_BINARY(name##_each, N, fh(hf(x, m) operator hf(y, m), m))                                             \
  OPERATION(name) {                                                                                          \
    if (m != 0) {                                                                                            \
      name##_each(dv, av, bv, cv, m);                                                                        \
      return;                                                                                                \
    }                                                                                                        \
    const u16 *a = av, *b = bv;                                                                              \
    for (int i = 0; i < N; i += 8) {                                                                         \
      __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(a + i)));                   \
      __m256 y = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(b + i)));                   \
      __m256 r = intrinsic(x, y);                                                                            \
      __m128i h = _mm256_cvtps_ph(r, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);                         \
      __m128i size = _mm_and_si128(h, _mm_set1_epi16(0x7fff));                                               \
      __m128i nan = _mm_cmpgt_epi16(size, _mm_set1_epi16(0x7c00));                                           \
      h = _mm_blendv_epi8(h, _mm_set1_epi16(0x7fff), nan);                                                   \
      _mm_storeu_si128((__m128i *)(void *)((u16 *)dv + i), h);                                               \
    }                                                                                                        \
  }
#else
#define HALF_ARITHMETIC(name, N, operator, intrinsic) HALF_BINARY(name, N, fh(hf(x, m) operator hf(y, m), m))
#endif
HALF_ARITHMETIC(add_f16, PTX_LANES, +, _mm256_add_ps)
HALF_ARITHMETIC(sub_f16, PTX_LANES, -, _mm256_sub_ps)
HALF_ARITHMETIC(mul_f16, PTX_LANES, *, _mm256_mul_ps)
HALF_ARITHMETIC(add_f16x2, 2 * PTX_LANES, +, _mm256_add_ps)
HALF_ARITHMETIC(sub_f16x2, 2 * PTX_LANES, -, _mm256_sub_ps)
HALF_ARITHMETIC(mul_f16x2, 2 * PTX_LANES, *, _mm256_mul_ps)
#define BFLOAT_ARITHMETIC(S, N)                                                                              \
  HALF_BINARY(add_##S, N, fb(bf(x, m) + bf(y, m), m))                                                        \
  HALF_BINARY(sub_##S, N, fb(bf(x, m) - bf(y, m), m))                                                        \
  HALF_BINARY(mul_##S, N, fb(bf(x, m) * bf(y, m), m))
BFLOAT_ARITHMETIC(bf16, PTX_LANES)
BFLOAT_ARITHMETIC(bf16x2, 2 * PTX_LANES)
#define HALF_OPERATIONS(S, N, to, from, fma3, top)                                                           \
  HALF_TERNARY(fma_##S, N, fma3(x, y, z, m))                                                                 \
  HALF_BINARY(min_##S, N, half_minmax(flush_##S(x, m), flush_##S(y, m), m, top, 0))                          \
  HALF_BINARY(max_##S, N, half_minmax(flush_##S(x, m), flush_##S(y, m), m, top, 1))                          \
  HALF_UNARY(abs_##S, N, sixteen(flush_##S(x, m), top, 0, 0x7fff))                                           \
  HALF_UNARY(neg_##S, N, sixteen(flush_##S(x, m), top, 0x8000, 0xffff))                                      \
  HALF_UNARY(ex2_##S, N, from(exp2f(to(x, m)), m))                                                           \
  HALF_UNARY(tanh_##S, N, from(tanhf(to(x, m)), m))
#define flush_f16(x, m) flush_half(x, m)
#define flush_f16x2(x, m) flush_half(x, m)
#define flush_bf16(x, m) (x)
#define flush_bf16x2(x, m) (x)
HALF_OPERATIONS(f16, PTX_LANES, hf, fh, half_fma, 0x7c00)
HALF_OPERATIONS(f16x2, 2 * PTX_LANES, hf, fh, half_fma, 0x7c00)
HALF_OPERATIONS(bf16, PTX_LANES, bf, fb, bfloat_fma, 0x7f80)
HALF_OPERATIONS(bf16x2, 2 * PTX_LANES, bf, fb, bfloat_fma, 0x7f80)
