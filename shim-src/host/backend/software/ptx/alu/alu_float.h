/*
 * Floating point; included by alu.c. The processor rounds and flushes, as its mode says, which was set before
 * (fpu.h).
 */

#define CANON(x) ptx_canonical(x)

BINARY(add_f32, float, CANON(x + y))
BINARY(sub_f32, float, CANON(x - y))
BINARY(mul_f32, float, CANON(x *y))
BINARY(div_f32, float, CANON(x / y))
/* Compilers do not vectorise fma by themselves if the rounding mode can change. */
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
/* Compilers do not vectorise square roots either. */
#define ROOT_F32(name, expression)                                                                           \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    const float *a = av;                                                                                     \
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));                                   \
    for (int i = 0; i < PTX_LANES; i += 8) {                                                                 \
      const __m256 root = _mm256_sqrt_ps(_mm256_loadu_ps(a + i)), r = (expression);                          \
      _mm256_storeu_ps((float *)dv + i, _mm256_blendv_ps(r, nan, _mm256_cmp_ps(r, r, _CMP_UNORD_Q)));        \
    }                                                                                                        \
  }
#define ROOT_F64(name, expression)                                                                           \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    const double *a = av;                                                                                    \
    for (int i = 0; i < PTX_LANES; i += 4) {                                                                 \
      const __m256d root = _mm256_sqrt_pd(_mm256_loadu_pd(a + i));                                           \
      _mm256_storeu_pd((double *)dv + i, (expression));                                                      \
    }                                                                                                        \
  }
ROOT_F32(sqrt_f32, root)
ROOT_F32(rsqrt_f32, _mm256_div_ps(_mm256_set1_ps(1.0f), root))
ROOT_F64(sqrt_f64, root)
ROOT_F64(rsqrt_f64, _mm256_div_pd(_mm256_set1_pd(1.0), root))
#else
TERNARY(fma_f32, float, CANON(__builtin_fmaf(x, y, z)))
TERNARY(fma_f64, double, __builtin_fma(x, y, z))
UNARY(sqrt_f32, float, CANON(__builtin_sqrtf(x)))
UNARY(rsqrt_f32, float, CANON(1.0f / __builtin_sqrtf(x)))
UNARY(sqrt_f64, double, __builtin_sqrt(x))
UNARY(rsqrt_f64, double, 1.0 / __builtin_sqrt(x))
#endif
UNARY(rcp_f32, float, CANON(1.0f / x))
UNARY(saturate_f32, float, x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f)
UNARY(relu_f32, float, x != x ? x : x > 0.0f ? x : 0.0f)

BINARY(add_f64, double, x + y)
BINARY(sub_f64, double, x - y)
BINARY(mul_f64, double, x *y)
BINARY(div_f64, double, x / y)
UNARY(rcp_f64, double, 1.0 / x)

/* Bit operations on floats flush explicitly, because nothing is computed. */
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

/*
 * The minimum of two zeros with different signs is the negative one. The ordered keys are compared as
 * integers.
 */
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

/* Approximations that are more exact than the ISA requires. */
static inline float divide_approx(float x, float y) {
  /* the reciprocal of values beyond 2^126 would be flushed: the ISA gives 0, and NaN for infinity */
  u32 e = ptx_bits(y) >> 23 & 0xff;
  float q = x / y;
  u32 sign = (ptx_bits(x) ^ ptx_bits(y)) & 0x80000000;
  int finite = (ptx_bits(x) & 0x7fffffff) < 0x7f800000;
  float r = (e == 253 && (ptx_bits(y) & 0x7fffff) != 0) || e == 254 ? (finite ? ptx_float(sign) : NAN) : q;
  return CANON(x != x || y != y ? q : r);
}
BINARY(div_approx_f32, float, divide_approx(x, y))

/*
 * Logarithm, sine and cosine in doubles and without branches, so that compilers make vectors of them. Rounded
 * to a float the error is below 0.51 units in the last place.
 *
 * log2(x): x = 2^e * g with g in [1/sqrt 2, sqrt 2), then the series of 2 atanh(s) with s = (g - 1) / (g +
 * 1), of which |s| < 0.172; the first term left out is below 2^-29 of the sum.
 */
static inline float log2_of(float x, int flushes) {
  u32 bits = ptx_bits(x);
  /* a subnormal is scaled by 2^24 with integer arithmetic, which the processor cannot flush */
  int subnormal = bits < 0x800000;
  u32 normal = ptx_bits((float)(s32)bits * 0x1p-125f);
  u32 y = subnormal ? normal : bits;
  s32 e = (s32)(y - 0x3f3504f3) >> 23;
  double g = (double)ptx_float(y - ((u32)e << 23));
  double s = (g - 1.0) / (g + 1.0), q = s * s;
  double series = 0.22222222222222222 + q * 0.18181818181818182;
  series = 0.28571428571428571 + q * series;
  series = 0.4 + q * series;
  series = 0.66666666666666667 + q * series;
  series = 2.0 + q * series;
  double r = (double)(e - (subnormal ? 24 : 0)) + s * series * 1.4426950408889634;
  float result = (float)r;
  result = bits == 0x7f800000 ? INFINITY : result;
  int zero = (bits & 0x7fffffff) == 0 || (flushes && (bits & 0x7f800000) == 0);
  result = zero ? -INFINITY : result;
  return bits > 0x7f800000 && !zero ? ptx_float(0x7fffffff) : result;
}
UNARY(lg2_f32, float, log2_of(x, (m & M_FTZ) != 0))

/*
 * sin and cos: x = k * pi/2 + r, |r| < 0.79, by adding and taking away 1.5 * 2^52, which leaves k in the last
 * bits. Beyond 2^20, where k * pi/2 has more bits than two doubles hold, the C library's.
 */
#define CIRCLE_MOST 1048576.0f
static inline float circle_of(float x, u32 quarter) {
  const double shift = 6755399441055744.0;
  float bounded = __builtin_fabsf(x) < CIRCLE_MOST ? x : 0.0f;
  double turned = (double)bounded * 0.63661977236758134 + shift;
  u32 k = (u32)ptx_bits64(turned) + quarter;
  double whole = turned - shift;
  double r = ((double)bounded - whole * 1.5707963267341256) - whole * 6.0771005065061922e-11;
  double q = r * r;
  double sine = -1.9841269841269841e-4 + q * 2.7557319223985893e-6;
  sine = 8.3333333333333333e-3 + q * sine;
  sine = -0.16666666666666667 + q * sine;
  sine = r * (1.0 + q * sine); /* of -0 the sine is -0 */
  double cosine = 2.4801587301587302e-5 + q * -2.7557319223985888e-7;
  cosine = -1.3888888888888889e-3 + q * cosine;
  cosine = 4.1666666666666667e-2 + q * cosine;
  cosine = -0.5 + q * cosine;
  cosine = 1.0 + q * cosine;
  float result = (float)((k & 1) != 0 ? cosine : sine);
  return ptx_float(ptx_bits(result) ^ (k & 2) << 30);
}
#define CIRCLE(name, quarter, exact)                                                                         \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    float *d = dv;                                                                                           \
    float a[PTX_LANES];                                                                                      \
    memcpy(a, av, sizeof a);                                                                                 \
    LANES d[i] = circle_of(a[i], quarter);                                                                   \
    for (int i = 0; i < PTX_LANES; i++) {                                                                    \
      if (!(__builtin_fabsf(a[i]) < CIRCLE_MOST)) d[i] = CANON(exact(a[i]));                                 \
    }                                                                                                        \
  }
CIRCLE(sin_f32, 0, sinf)
CIRCLE(cos_f32, 1, cosf)

/*
 * The hyperbolic tangent of x in doubles: (y - 1) / (y + 1), where y is e^2x, or 2^n * 2^f, f in [-0.5, 0.5].
 * The series of 2^f is taken without its first term, 1, so that little is lost where x is small. From 10 on
 * the result is 1.
 */
static inline float tanh_of(float x) {
  const double shift = 6755399441055744.0;
  float size = __builtin_fabsf(x);
  double t = (double)(size < 10.0f ? size : 10.0f) * 2.8853900817779268, turned = t + shift;
  double f = t - (turned - shift);
  double two_n = ptx_double((u64)((u32)ptx_bits64(turned) + 1023) << 52);
  double p = 1.3215486790144310e-6 + f * 1.0178086009239700e-7;
  p = 1.5252733804059841e-5 + f * p;
  p = 1.5403530393381609e-4 + f * p;
  p = 1.3333558146428443e-3 + f * p;
  p = 9.6181291076284772e-3 + f * p;
  p = 5.5504108664821580e-2 + f * p;
  p = 2.4022650695910072e-1 + f * p;
  p = f * (6.9314718055994531e-1 + f * p);
  double less_one = two_n * p + (two_n - 1.0);
  float result = __builtin_copysignf((float)(less_one / (less_one + 2.0)), x);
  return x != x ? ptx_float(0x7fffffff) : result;
}
UNARY(tanh_f32, float, tanh_of(x))

/* 2^x = 2^n * 2^f, f in [-0.5, 0.5]: a polynomial of degree 7, error below 2^-24; subnormal results are made
 * by two multiplications. */
static inline float ex2_of(float x) {
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
  return x != x ? ptx_float(0x7fffffff) : r;
}
UNARY(ex2_f32, float, ex2_of(x))

/* Half precision: through floats where that rounds once, through doubles for fma. */
static inline u16 flush_half(u16 x, u32 m) {
  return (m & M_FTZ) != 0 && (x & 0x7c00) == 0 ? x & 0x8000 : x;
}
static inline float hf(u16 x, u32 m) {
  return ptx_from_half(flush_half(x, m));
}
static inline u16 fh(float x, u32 m) {
  if ((m & M_SAT) != 0) x = x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
  if ((m & M_RELU) != 0) x = x <= 0.0f ? 0.0f : x;
  u16 r = ptx_half_nearest(ptx_bits(x));
  return flush_half(r, m);
}
static inline float bf(u16 x, u32 m) {
  (void)m;
  return ptx_from_bfloat(x);
}
static inline u16 fb(float x, u32 m) {
  if ((m & M_SAT) != 0) x = x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
  if ((m & M_RELU) != 0) x = x <= 0.0f ? 0.0f : x;
  return ptx_bfloat_nearest(ptx_bits(x));
}
static inline u16 half_fma(u16 x, u16 y, u16 z, u32 m) {
  double r = ptx_fma_odd((double)hf(x, m), (double)hf(y, m), (double)hf(z, m));
  if ((m & M_SAT) != 0) r = r > 0.0 ? (r < 1.0 ? r : 1.0) : 0.0;
  if ((m & M_RELU) != 0) r = r <= 0.0 ? 0.0 : r;
  return flush_half(ptx_half_of_double(r, 1), m);
}
static inline double wide_bf(u16 x) {
  return ptx_double(ptx_widen((u32)x << 16));
}
static inline u16 bfloat_fma(u16 x, u16 y, u16 z, u32 m) {
  double r = ptx_fma_odd(wide_bf(x), wide_bf(y), wide_bf(z));
  if ((m & M_SAT) != 0) r = r > 0.0 ? (r < 1.0 ? r : 1.0) : 0.0;
  if ((m & M_RELU) != 0) r = r <= 0.0 ? 0.0 : r;
  return ptx_bfloat_of_double(r, 1);
}
/* Of 16-bit floats with the sign on top; `top` is infinity. */
static inline u16 half_minmax(u16 x, u16 y, u32 m, u16 top, int larger) {
  const u16 magnitude = (m & M_XORSIGN) != 0 ? 0x7fff : 0xffff;
  const int nan = (m & M_NAN) != 0;
  u16 sign = (u16)((x ^ y) & (u16)~magnitude);
  x &= magnitude;
  y &= magnitude;
  int nx = (x & 0x7fff) > top, ny = (y & 0x7fff) > top;
  s16 kx = (s16)(x ^ (u16)((u16)((s16)x >> 15) >> 1)), ky = (s16)(y ^ (u16)((u16)((s16)y >> 15) >> 1));
  u16 greater = kx > ky ? x : y, lesser = kx < ky ? x : y;
  u16 r = larger ? greater : lesser;
  r = ny ? x : r;
  r = nx ? y : r;
  r |= sign;
  return (nx & ny) | (nan & (nx | ny)) ? 0x7fff : r;
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
    ELEMENTS(count) {                                                                                        \
      const u16 x = a[i];                                                                                    \
      d[i] = (u16)(expression);                                                                              \
    }                                                                                                        \
  }
/* Through floats, a step at a time, so that compilers make vectors of each. */
#define HALF_THROUGH(name, count, to, from, function)                                                        \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    u16 *d = dv;                                                                                             \
    const u16 *a = av;                                                                                       \
    float wide[count];                                                                                       \
    ELEMENTS(count) wide[i] = to(a[i], m);                                                                   \
    ELEMENTS(count) wide[i] = function(wide[i]);                                                             \
    ELEMENTS(count) d[i] = from(wide[i], m);                                                                 \
  }
#define HALF_BINARY(name, count, expression)                                                                 \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    u16 *d = dv;                                                                                             \
    const u16 *a = av, *b = bv;                                                                              \
    ELEMENTS(count) {                                                                                        \
      const u16 x = a[i], y = b[i];                                                                          \
      d[i] = (u16)(expression);                                                                              \
    }                                                                                                        \
  }
#define HALF_TERNARY(name, count, expression)                                                                \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    u16 *d = dv;                                                                                             \
    const u16 *a = av, *b = bv, *c = cv;                                                                     \
    ELEMENTS(count) {                                                                                        \
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
#if defined(__AVX512F__) && defined(__AVX512BW__)
/*
 * Fused multiply-add of sixteen 16-bit floats at a time, without modifiers. It is rounded down and up to
 * floats: where these differ, they are neighbours, and the one with an odd last bit shows that something was
 * lost, so that the second rounding, to 16 bits, is right.
 */
static inline __m512 fma_odd16(__m512 x, __m512 y, __m512 z) {
  __m512 low = _mm512_fmadd_round_ps(x, y, z, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 high = _mm512_fmadd_round_ps(x, y, z, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
  return _mm512_mask_blend_ps(_mm512_test_epi32_mask(_mm512_castps_si512(low), _mm512_set1_epi32(1)), high,
                              low);
}
static inline __m512 half_wide16(const u16 *from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
}
static inline __m256i half_fma16(const u16 *a, const u16 *b, const u16 *c) {
  __m512 f = fma_odd16(half_wide16(a), half_wide16(b), half_wide16(c));
  __m256i h = _mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256i size = _mm256_and_si256(h, _mm256_set1_epi16(0x7fff));
  __m256i nan = _mm256_cmpgt_epi16(size, _mm256_set1_epi16(0x7c00));
  return _mm256_blendv_epi8(h, _mm256_set1_epi16(0x7fff), nan);
}
static inline __m512 bfloat_wide16(const u16 *from) {
  __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)from);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
static inline __m256i bfloat_fma16(const u16 *a, const u16 *b, const u16 *c) {
  __m512 f = fma_odd16(bfloat_wide16(a), bfloat_wide16(b), bfloat_wide16(c));
  __m512i bits = _mm512_castps_si512(f);
  __m512i up = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  bits = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, up), _mm512_set1_epi32(0x7fff)), 16);
  bits = _mm512_mask_mov_epi32(bits, _mm512_cmp_ps_mask(f, f, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fff));
  return _mm512_cvtepi32_epi16(bits);
}
#define FMA16(name, N, kind)                                                                                 \
  HALF_TERNARY(name##_each, N, kind##_fma(x, y, z, m))                                                       \
  OPERATION(name) {                                                                                          \
    if (m != 0) {                                                                                            \
      name##_each(dv, av, bv, cv, m);                                                                        \
      return;                                                                                                \
    }                                                                                                        \
    const u16 *a = av, *b = bv, *c = cv;                                                                     \
    for (int i = 0; i < N; i += 16) {                                                                        \
      __m256i r = kind##_fma16(a + i, b + i, c + i);                                                         \
      _mm256_storeu_si256((__m256i *)(void *)((u16 *)dv + i), r);                                            \
    }                                                                                                        \
  }
#elif defined(__F16C__) && defined(__AVX2__)
/*
 * The same of eight at a time, where a rounding is the processor's, not an instruction's. The product of two
 * halves is exact in a float, that of two bfloats most often, and always in a double. The sum is rounded to
 * odd: when something was lost (two-sum), the last bit says so, and the second rounding, to 16 bits, is
 * right.
 */
/* One step towards `error` where there is one and the last bit does not show it. */
static inline __m256 odd_ps(__m256 sum, __m256 error) {
  __m256i bits = _mm256_castps_si256(sum);
  __m256i lost = _mm256_castps_si256(_mm256_cmp_ps(error, _mm256_setzero_ps(), _CMP_NEQ_OQ));
  __m256i even = _mm256_cmpeq_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(1)), _mm256_setzero_si256());
  __m256i apart = _mm256_srai_epi32(_mm256_xor_si256(bits, _mm256_castps_si256(error)), 31);
  __m256i step = _mm256_or_si256(apart, _mm256_set1_epi32(1));
  step = _mm256_and_si256(step, _mm256_and_si256(lost, even));
  return _mm256_castsi256_ps(_mm256_add_epi32(bits, step));
}
static inline __m256d odd_pd(__m256d sum, __m256d error) {
  __m256i bits = _mm256_castpd_si256(sum);
  __m256i lost = _mm256_castpd_si256(_mm256_cmp_pd(error, _mm256_setzero_pd(), _CMP_NEQ_OQ));
  __m256i even = _mm256_cmpeq_epi64(_mm256_and_si256(bits, _mm256_set1_epi64x(1)), _mm256_setzero_si256());
  __m256i apart =
      _mm256_cmpgt_epi64(_mm256_setzero_si256(), _mm256_xor_si256(bits, _mm256_castpd_si256(error)));
  __m256i step = _mm256_or_si256(apart, _mm256_set1_epi64x(1));
  step = _mm256_and_si256(step, _mm256_and_si256(lost, even));
  return _mm256_castsi256_pd(_mm256_add_epi64(bits, step));
}
static inline __m128i half_fma8(const u16 *a, const u16 *b, const u16 *c) {
  __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)a));
  __m256 y = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)b));
  __m256 z = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)c));
  __m256 product = _mm256_mul_ps(x, y), sum = _mm256_add_ps(product, z), back = _mm256_sub_ps(sum, product);
  __m256 error = _mm256_add_ps(_mm256_sub_ps(product, _mm256_sub_ps(sum, back)), _mm256_sub_ps(z, back));
  __m128i h = _mm256_cvtps_ph(odd_ps(sum, error), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m128i size = _mm_and_si128(h, _mm_set1_epi16(0x7fff));
  __m128i nan = _mm_cmpgt_epi16(size, _mm_set1_epi16(0x7c00));
  return _mm_blendv_epi8(h, _mm_set1_epi16(0x7fff), nan);
}
static inline __m256d bfloat_wide4(const u16 *from) {
  __m128i h = _mm_loadl_epi64((const __m128i *)(const void *)from);
  return _mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(h), 16)));
}
/* To floats rounded to odd; what is beyond them is infinity, as it is for a bfloat. */
static inline __m128 bfloat_fma4(const u16 *a, const u16 *b, const u16 *c) {
  __m256d product = _mm256_mul_pd(bfloat_wide4(a), bfloat_wide4(b)), z = bfloat_wide4(c);
  __m256d sum = _mm256_add_pd(product, z), back = _mm256_sub_pd(sum, product);
  __m256d error = _mm256_add_pd(_mm256_sub_pd(product, _mm256_sub_pd(sum, back)), _mm256_sub_pd(z, back));
  sum = odd_pd(sum, error);
  __m128 narrow = _mm256_cvtpd_ps(sum);
  __m256d lost = _mm256_sub_pd(sum, _mm256_cvtps_pd(narrow));
  /* the sign and the being of what was lost are all that counts, and a float may be too narrow for it */
  __m256d one = _mm256_or_pd(_mm256_and_pd(lost, _mm256_set1_pd(-0.0)), _mm256_set1_pd(1.0));
  __m256d some = _mm256_and_pd(one, _mm256_cmp_pd(lost, _mm256_setzero_pd(), _CMP_NEQ_OQ));
  __m128 error4 = _mm256_cvtpd_ps(some);
  __m128 finite = _mm_cmplt_ps(_mm_andnot_ps(_mm_set1_ps(-0.0f), narrow), _mm_set1_ps(INFINITY));
  __m256 odd = odd_ps(_mm256_castps128_ps256(narrow), _mm256_castps128_ps256(_mm_and_ps(error4, finite)));
  return _mm256_castps256_ps128(odd);
}
static inline __m256 bfloat_wide8(const u16 *from) {
  __m128i h = _mm_loadu_si128((const __m128i *)(const void *)from);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
static inline __m128i bfloat_fma8(const u16 *a, const u16 *b, const u16 *c) {
  /* Where no product is near the ends of a float's range (or one factor is 0) it is exact in a float. */
  const __m256 zero = _mm256_setzero_ps();
  __m256 x = bfloat_wide8(a), y = bfloat_wide8(b), z = bfloat_wide8(c), product = _mm256_mul_ps(x, y);
  __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), product);
  __m256 exact = _mm256_and_ps(_mm256_cmp_ps(size, _mm256_set1_ps(0x1p-100f), _CMP_GE_OQ),
                               _mm256_cmp_ps(size, _mm256_set1_ps(0x1p127f), _CMP_LT_OQ));
  exact = _mm256_or_ps(exact, _mm256_cmp_ps(x, zero, _CMP_EQ_OQ));
  exact = _mm256_or_ps(exact, _mm256_cmp_ps(y, zero, _CMP_EQ_OQ));
  __m256 f;
  if (_mm256_movemask_ps(exact) == 0xff) {
    __m256 sum = _mm256_add_ps(product, z), back = _mm256_sub_ps(sum, product);
    __m256 error = _mm256_add_ps(_mm256_sub_ps(product, _mm256_sub_ps(sum, back)), _mm256_sub_ps(z, back));
    f = odd_ps(sum, error);
  } else {
    f = _mm256_set_m128(bfloat_fma4(a + 4, b + 4, c + 4), bfloat_fma4(a, b, c));
  }
  __m256i bits = _mm256_castps_si256(f);
  __m256i up = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i r = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, up), _mm256_set1_epi32(0x7fff)), 16);
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q));
  r = _mm256_blendv_epi8(r, _mm256_set1_epi32(0x7fff), nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}
#define FMA16(name, N, kind)                                                                                 \
  HALF_TERNARY(name##_each, N, kind##_fma(x, y, z, m))                                                       \
  OPERATION(name) {                                                                                          \
    if (m != 0) {                                                                                            \
      name##_each(dv, av, bv, cv, m);                                                                        \
      return;                                                                                                \
    }                                                                                                        \
    const u16 *a = av, *b = bv, *c = cv;                                                                     \
    for (int i = 0; i < N; i += 8) {                                                                         \
      __m128i r = kind##_fma8(a + i, b + i, c + i);                                                          \
      _mm_storeu_si128((__m128i *)(void *)((u16 *)dv + i), r);                                               \
    }                                                                                                        \
  }
#else
#define FMA16(name, N, kind) HALF_TERNARY(name, N, kind##_fma(x, y, z, m))
#endif
FMA16(fma_f16, PTX_LANES, half)
FMA16(fma_f16x2, 2 * PTX_LANES, half)
FMA16(fma_bf16, PTX_LANES, bfloat)
FMA16(fma_bf16x2, 2 * PTX_LANES, bfloat)

#define HALF_OPERATIONS(S, N, to, from, top)                                                                 \
  HALF_BINARY(min_##S, N, half_minmax(flush_##S(x, m), flush_##S(y, m), m, top, 0))                          \
  HALF_BINARY(max_##S, N, half_minmax(flush_##S(x, m), flush_##S(y, m), m, top, 1))                          \
  HALF_UNARY(abs_##S, N, sixteen(flush_##S(x, m), top, 0, 0x7fff))                                           \
  HALF_UNARY(neg_##S, N, sixteen(flush_##S(x, m), top, 0x8000, 0xffff))                                      \
  HALF_THROUGH(ex2_##S, N, to, from, ex2_of)                                                                 \
  HALF_THROUGH(tanh_##S, N, to, from, tanh_of)
#define flush_f16(x, m) flush_half(x, m)
#define flush_f16x2(x, m) flush_half(x, m)
#define flush_bf16(x, m) (x)
#define flush_bf16x2(x, m) (x)
HALF_OPERATIONS(f16, PTX_LANES, hf, fh, 0x7c00)
HALF_OPERATIONS(f16x2, 2 * PTX_LANES, hf, fh, 0x7c00)
HALF_OPERATIONS(bf16, PTX_LANES, bf, fb, 0x7f80)
HALF_OPERATIONS(bf16x2, 2 * PTX_LANES, bf, fb, 0x7f80)
