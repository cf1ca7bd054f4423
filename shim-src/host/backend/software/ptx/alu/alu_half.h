/* Through floats where that rounds once, through doubles for fma. */
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
/* Halves have the sign on top; `top` is infinity. */
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

/* Scalars and pairs differ in the number of elements. */
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
#if defined(__F16C__) && defined(__AVX2__) && defined(__FMA__)
#include "host/backend/software/ptx/alu/half_vector.h"
#if defined(__AVX512F__) && defined(__AVX512BW__)
#include "host/backend/software/ptx/alu/half_wide.h"
#else
#include "host/backend/software/ptx/alu/half_fused.h"
#endif
#define HALF_MODIFIED(name, N, operands, one, flushes, operation)                                            \
  OPERATION(name) {                                                                                          \
    u16 *d = dv, x[N], y[N], z[N];                                                                           \
    const u16 *a = av, *b = bv, *c = cv;                                                                     \
    const bool flush = (m & M_FTZ) != 0 && (flushes);                                                        \
    if (flush &&                                                                                             \
        (any_small(a, N) || ((operands) > 1 && any_small(b, N)) || ((operands) > 2 && any_small(c, N)))) {   \
      flush_halves(x, a, N);                                                                                 \
      if ((operands) > 1) flush_halves(y, b, N);                                                             \
      if ((operands) > 2) flush_halves(z, c, N);                                                             \
      a = x, b = y, c = z;                                                                                   \
    }                                                                                                        \
    (void)b, (void)c;                                                                                        \
    operation;                                                                                               \
    if (m == 0) return;                                                                                      \
    for (int i = 0; i < N; i += 16) store16(d + i, modified16(load16(d + i), m, one, flushes));              \
  }
#define EACH_SIXTEEN(N, value)                                                                               \
  for (int i = 0; i < N; i += 16) store16(d + i, value)
#define ARITHMETIC(S, N, kind, one, flushes)                                                                 \
  HALF_MODIFIED(add_##S, N, 2, one, flushes, EACH_SIXTEEN(N, kind##_add16(a + i, b + i)))                    \
  HALF_MODIFIED(sub_##S, N, 2, one, flushes, EACH_SIXTEEN(N, kind##_sub16(a + i, b + i)))                    \
  HALF_MODIFIED(mul_##S, N, 2, one, flushes, EACH_SIXTEEN(N, kind##_mul16(a + i, b + i)))
#define FUNCTIONS(S, N, kind, flushes)                                                                       \
  HALF_MODIFIED(ex2_##S, N, 1, 0, flushes, EACH_SIXTEEN(N, kind##_ex2_16(a + i)))                            \
  HALF_MODIFIED(tanh_##S, N, 1, 0, flushes, EACH_SIXTEEN(N, kind##_tanh_16(a + i)))
#define FUSED_BFLOAT(S, N)                                                                                   \
  HALF_MODIFIED(fma_##S, N, 3, 0x3f80, 0, EACH_SIXTEEN(N, bfloat_fma16(a + i, b + i, c + i)))
#define FUSED_HALF(S, N)                                                                                     \
  HALF_MODIFIED(fma_##S, N, 3, 0x3c00, 1, EACH_SIXTEEN(N, half_fma16(a + i, b + i, c + i)))
ARITHMETIC(f16, PTX_LANES, half, 0x3c00, 1)
ARITHMETIC(f16x2, 2 * PTX_LANES, half, 0x3c00, 1)
ARITHMETIC(bf16, PTX_LANES, bfloat, 0x3f80, 0)
ARITHMETIC(bf16x2, 2 * PTX_LANES, bfloat, 0x3f80, 0)
FUSED_HALF(f16, PTX_LANES)
FUSED_HALF(f16x2, 2 * PTX_LANES)
FUSED_BFLOAT(bf16, PTX_LANES)
FUSED_BFLOAT(bf16x2, 2 * PTX_LANES)
FUNCTIONS(f16, PTX_LANES, half, 1)
FUNCTIONS(f16x2, 2 * PTX_LANES, half, 1)
FUNCTIONS(bf16, PTX_LANES, bfloat, 0)
FUNCTIONS(bf16x2, 2 * PTX_LANES, bfloat, 0)
#else
/* Through floats. Of bfloats there is only the ex2 that flushes. */
#define SIXTEEN(format, tanh_most)                                                                           \
  EIGHT_FUNCTION floats8 ex2_as_##format(floats8 x) {                                                        \
    return choose8(x != x, x, ex2_##format(most8(-127.0f, least8(128.0f, x))));                              \
  }                                                                                                          \
  EIGHT_FUNCTION floats8 tanh_as_##format(floats8 x) {                                                       \
    return choose8(x != x, x, tanh_##format(most8(-(tanh_most), least8(tanh_most, x))));                     \
  }
SIXTEEN(half, TANH_MOST_HALF)
SIXTEEN(bfloat, TANH_MOST_BFLOAT)
static inline u16 fh_flushed(float x, u32 m) {
  return fh(x, m);
}
static inline u16 fb_flushed(float x, u32 m) {
  const u16 r = fb(x, m);
  return (r & 0x7f80) == 0 ? 0 : r;
}
#define HALF_THROUGH(name, count, to, from, function)                                                        \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    u16 *d = dv;                                                                                             \
    const u16 *a = av;                                                                                       \
    float wide[count];                                                                                       \
    ELEMENTS(count) wide[i] = to(a[i], m);                                                                   \
    for (int i = 0; i < (count); i += 8) {                                                                   \
      const floats8 x = load8(wide + i);                                                                     \
      store8(wide + i, function(x));                                                                         \
    }                                                                                                        \
    ELEMENTS(count) d[i] = from(wide[i], m);                                                                 \
  }
#define ARITHMETIC(S, N, to, from, format)                                                                   \
  HALF_BINARY(add_##S, N, from(to(x, m) + to(y, m), m))                                                      \
  HALF_BINARY(sub_##S, N, from(to(x, m) - to(y, m), m))                                                      \
  HALF_BINARY(mul_##S, N, from(to(x, m) * to(y, m), m))                                                      \
  HALF_TERNARY(fma_##S, N, format##_fma(x, y, z, m))                                                         \
  HALF_THROUGH(ex2_##S, N, to, from##_flushed, ex2_as_##format)                                              \
  HALF_THROUGH(tanh_##S, N, to, from, tanh_as_##format)
ARITHMETIC(f16, PTX_LANES, hf, fh, half)
ARITHMETIC(f16x2, 2 * PTX_LANES, hf, fh, half)
ARITHMETIC(bf16, PTX_LANES, bf, fb, bfloat)
ARITHMETIC(bf16x2, 2 * PTX_LANES, bf, fb, bfloat)
#endif

#define HALF_OPERATIONS(S, N, top)                                                                           \
  HALF_BINARY(min_##S, N, half_minmax(flush_##S(x, m), flush_##S(y, m), m, top, 0))                          \
  HALF_BINARY(max_##S, N, half_minmax(flush_##S(x, m), flush_##S(y, m), m, top, 1))                          \
  HALF_UNARY(abs_##S, N, sixteen(flush_##S(x, m), top, 0, 0x7fff))                                           \
  HALF_UNARY(neg_##S, N, sixteen(flush_##S(x, m), top, 0x8000, 0xffff))
#define flush_f16(x, m) flush_half(x, m)
#define flush_f16x2(x, m) flush_half(x, m)
#define flush_bf16(x, m) (x)
#define flush_bf16x2(x, m) (x)
HALF_OPERATIONS(f16, PTX_LANES, 0x7c00)
HALF_OPERATIONS(f16x2, 2 * PTX_LANES, 0x7c00)
HALF_OPERATIONS(bf16, PTX_LANES, 0x7f80)
HALF_OPERATIONS(bf16x2, 2 * PTX_LANES, 0x7f80)
