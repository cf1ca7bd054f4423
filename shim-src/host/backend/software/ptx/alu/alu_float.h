/* Included by alu.c. The processor rounds and flushes by its mode, which was set before (fpu.h). */

#define CANON(x) ptx_canonical(x)

BINARY(add_f32, float, CANON(x + y))
BINARY(sub_f32, float, CANON(x - y))
BINARY(mul_f32, float, CANON(x *y))
BINARY(div_f32, float, CANON(x / y))
/* Compilers do not vectorise fma if the rounding mode can change. */
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

/* Bit operations on floats flush explicitly. */
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

/* The minimum of zeros with different signs is the negative one: ordered keys, as integers. */
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
