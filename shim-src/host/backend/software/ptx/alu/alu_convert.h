/* cvt for all pairs of types; included by alu.c. 8-bit values are extended to 16 bits. */

#define CONVERT(to, from)                                                                                    \
  static void cvt_##to##_##from(void *dv, const void *av, const void *bv, const void *cv, uint32_t m)

/* Integers to integers: X(name, storage, value type, lowest, highest) */
#define SATURATED(x, low, high) ((x) < (low) ? (low) : (x) > (high) ? (high) : (x))
#define CONVERT_INTEGER(to, TS, TV, low, high, from, FS, FV)                                                 \
  CONVERT(to, from) {                                                                                        \
    UNUSED;                                                                                                  \
    TS *d = dv;                                                                                              \
    const FS *a = av;                                                                                        \
    if ((m & M_SAT) != 0) {                                                                                  \
      for (int i = 0; i < PTX_LANES; i++) {                                                                  \
        s128 x = (FV)a[i];                                                                                   \
        d[i] = (TS)(TV)SATURATED(x, (s128)(low), (s128)(high));                                              \
      }                                                                                                      \
    } else {                                                                                                 \
      LANES d[i] = (TS)(TV)(FV)a[i];                                                                         \
    }                                                                                                        \
  }

#define FROM_INTEGERS(X, ...)                                                                                \
  X(__VA_ARGS__, u8, u16, u8)                                                                                \
  X(__VA_ARGS__, s8, u16, s8)                                                                                \
  X(__VA_ARGS__, u16, u16, u16)                                                                              \
  X(__VA_ARGS__, s16, u16, s16)                                                                              \
  X(__VA_ARGS__, u32, u32, u32)                                                                              \
  X(__VA_ARGS__, s32, u32, s32) X(__VA_ARGS__, u64, u64, u64) X(__VA_ARGS__, s64, u64, s64)
FROM_INTEGERS(CONVERT_INTEGER, u8, u16, u8, 0, 255)
FROM_INTEGERS(CONVERT_INTEGER, s8, u16, s8, -128, 127)
FROM_INTEGERS(CONVERT_INTEGER, u16, u16, u16, 0, 65535)
FROM_INTEGERS(CONVERT_INTEGER, s16, u16, s16, -32768, 32767)
FROM_INTEGERS(CONVERT_INTEGER, u32, u32, u32, 0, UINT32_MAX)
FROM_INTEGERS(CONVERT_INTEGER, s32, u32, s32, INT32_MIN, INT32_MAX)
FROM_INTEGERS(CONVERT_INTEGER, u64, u64, u64, 0, UINT64_MAX)
FROM_INTEGERS(CONVERT_INTEGER, s64, u64, s64, INT64_MIN, INT64_MAX)

/* Integers to floats: the processor rounds by its mode. 16-bit floats are rounded from the exact integer. */
static inline u64 double_odd(u64 magnitude) {
  /* an integer as a double's bits, its last bit set when something was lost */
  if (magnitude == 0) return 0;
  u32 top = 63 - (u32)__builtin_clzll(magnitude);
  u64 fraction = top > 52 ? magnitude >> (top - 52) | ((magnitude & ((1ull << (top - 52)) - 1)) != 0)
                          : magnitude << (52 - top);
  return (u64)(top + 1023) << 52 | (fraction & 0xfffffffffffffull);
}
static inline u64 integer_bits(s128 x) {
  u64 magnitude = (u64)(x < 0 ? -x : x);
  return double_odd(magnitude) | (x < 0 ? 1ull << 63 : 0);
}
static inline u16 round_half(u64 d, u32 m) {
  u32 r = ptx_round_bits(d, 10, 15, 31, (m & M_ROUND) == 0 ? 1 : (int)(m & M_ROUND));
  return (u16)((r >> 16 & 0x8000) | (r & 0x7fff));
}
static inline u16 round_bfloat(u64 d, u32 m) {
  u32 r = ptx_round_bits(d, 7, 127, 255, (m & M_ROUND) == 0 ? 1 : (int)(m & M_ROUND));
  return (u16)((r >> 16 & 0x8000) | (r & 0x7fff));
}
/* .sat of an integer: the result is between 0 and 1. */
#define ZERO_OR_ONE(x) ((x) > 0)
#define CONVERT_FLOAT(to, TS, from, FS, FV)                                                                  \
  CONVERT(to, from) {                                                                                        \
    UNUSED;                                                                                                  \
    TS *d = dv;                                                                                              \
    const FS *a = av;                                                                                        \
    if ((m & M_SAT) != 0) {                                                                                  \
      LANES d[i] = (TS)ZERO_OR_ONE((FV)a[i]);                                                                \
    } else {                                                                                                 \
      LANES d[i] = (TS)(FV)a[i];                                                                             \
    }                                                                                                        \
  }
FROM_INTEGERS(CONVERT_FLOAT, f32, float)
FROM_INTEGERS(CONVERT_FLOAT, f64, double)
#define CONVERT_HALF(to, rounding, from, FS, FV)                                                             \
  CONVERT(to, from) {                                                                                        \
    UNUSED;                                                                                                  \
    u16 *d = dv;                                                                                             \
    const FS *a = av;                                                                                        \
    for (int i = 0; i < PTX_LANES; i++) {                                                                    \
      s128 x = (FV)a[i];                                                                                     \
      d[i] = rounding(integer_bits((m & M_SAT) != 0 ? ZERO_OR_ONE(x) : x), m);                               \
    }                                                                                                        \
  }
CONVERT_HALF(f16, round_half, u64, u64, u64)
CONVERT_HALF(f16, round_half, s64, u64, s64)
FROM_INTEGERS(CONVERT_HALF, bf16, round_bfloat)

#include "host/backend/software/ptx/alu/convert_integer.h"

/* cvt.rzi.s32.f32 is frequent, so it has a version with floats. */
CONVERT(s32_f32_fast, rz) {
  UNUSED;
  s32 *d = dv;
  const float *a = av;
  LANES {
    float x = a[i];
    float c = x < -0x1p31f ? -0x1p31f : x >= 0x1p31f ? 0.0f : x == x ? x : 0.0f;
    s32 r = (s32)c;
    d[i] = x >= 0x1p31f ? INT32_MAX : r;
  }
}

CONVERT(f32, bf16) {
  UNUSED;
  u32 *d = dv;
  const u16 *a = av;
  KEEP;
  LANES {
    u32 x = (u32)a[i] << 16;
    x = FLUSHED(x);
    d[i] = (x & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : x;
  }
  if ((m & M_SAT) != 0) saturate_f32(dv, dv, dv, dv, 0);
}
/* The modifiers of a rounded bfloat: its rounding keeps the order of numbers. */
static void modify_bfloats(u16 *d, u32 m) {
  if ((m & M_SAT) != 0) LANES d[i] = (s16)d[i] <= 0 || d[i] == 0x7fff ? 0 : d[i] > 0x3f80 ? 0x3f80 : d[i];
  if ((m & M_RELU) != 0) LANES d[i] = (s16)d[i] < 0 ? 0 : d[i];
}
CONVERT(bf16, f32) {
  UNUSED;
  KEEP;
  u16 *d = dv;
  const u32 *a = av;
  const u32 rounding = m & M_ROUND;
  if (rounding <= M_RN && (m & M_FTZ) == 0) {
    LANES d[i] = ptx_bfloat_nearest(a[i]);
    modify_bfloats(d, m);
  } else if (rounding <= M_RN) {
    LANES d[i] = ptx_bfloat_nearest(FLUSHED(a[i]));
    modify_bfloats(d, m);
  } else if (rounding == M_RZ) {
    LANES {
      const u32 x = FLUSHED(a[i]);
      d[i] = (u16)((x & 0x7fffffff) > 0x7f800000 ? 0x7fff : x >> 16);
    }
    modify_bfloats(d, m);
  } else {
    for (int i = 0; i < PTX_LANES; i++) {
      double x = load_f32(a[i], m);
      if ((m & M_SAT) != 0) x = saturate64(x);
      if ((m & M_RELU) != 0) x = relu64(x);
      d[i] = round_bfloat(ptx_bits64(x), m);
    }
  }
}
/* fraction of 10 bits in a float's place; rounded to nearest away, or by m */
CONVERT(tf32, f32) {
  UNUSED;
  u32 *d = dv;
  const u32 *a = av;
  for (int i = 0; i < PTX_LANES; i++) {
    u32 x = a[i], rest = x & 0x7fffffff;
    if (rest > 0x7f800000) {
      d[i] = 0x7fffffff;
      continue;
    }
    u32 lost = x & 0x1fff, up = 0;
    if ((m & M_ROUND) == M_RNA) up = lost >= 0x1000;
    else if ((m & M_ROUND) == M_RN) up = lost > 0x1000 || (lost == 0x1000 && (x & 0x2000) != 0);
    x = (x & ~0x1fffu) + (up << 13); /* an infinity has no bits to lose */
    if ((m & M_RELU) != 0 && (x >> 31) != 0) x = 0;
    d[i] = x;
  }
}
#define CONVERT_NARROW(to, from, FS, rounding)                                                               \
  CONVERT(to, from) {                                                                                        \
    UNUSED;                                                                                                  \
    u16 *d = dv;                                                                                             \
    const FS *a = av;                                                                                        \
    for (int i = 0; i < PTX_LANES; i++) {                                                                    \
      double x = load_##from(a[i], m);                                                                       \
      if ((m & M_INTEGRAL) != 0) x = to_integer(x, m);                                                       \
      if ((m & M_SAT) != 0) x = saturate64(x);                                                               \
      if ((m & M_RELU) != 0) x = relu64(x);                                                                  \
      d[i] = rounding(ptx_bits64(x), (m & M_INTEGRAL) != 0 ? M_RN : m);                                      \
    }                                                                                                        \
  }
CONVERT_NARROW(f16, f64, u64, round_half)
CONVERT_NARROW(bf16, f64, u64, round_bfloat)
CONVERT_NARROW(f16, bf16, u16, round_half)
CONVERT_NARROW(bf16, f16, u16, round_bfloat)
CONVERT_NARROW(bf16, bf16, u16, round_bfloat)
CONVERT(f64, f16) {
  UNUSED;
  double *d = dv;
  const u16 *a = av;
  for (int i = 0; i < PTX_LANES; i++) {
    double x = load_f16(a[i], m);
    d[i] = (m & M_SAT) != 0 ? saturate64(x) : x;
  }
}
CONVERT(f64, bf16) {
  UNUSED;
  double *d = dv;
  const u16 *a = av;
  for (int i = 0; i < PTX_LANES; i++) {
    double x = load_bf16(a[i], m);
    d[i] = (m & M_SAT) != 0 ? saturate64(x) : x;
  }
}
CONVERT(f64, f32) {
  UNUSED;
  double *d = dv;
  const u32 *a = av;
  for (int i = 0; i < PTX_LANES; i++) {
    double x = load_f32(a[i], m);
    d[i] = (m & M_SAT) != 0 ? saturate64(x) : x;
  }
}
CONVERT(f32, f64) {
  UNUSED;
  float *d = dv;
  const double *a = av;
  LANES d[i] = CANON((float)a[i]);
  if ((m & M_SAT) != 0) saturate_f32(dv, dv, dv, dv, 0);
}
CONVERT(f32, f32) {
  UNUSED;
  KEEP;
  u32 *d = dv;
  const u32 *a = av;
  if ((m & M_INTEGRAL) == 0) {
    LANES d[i] = FLUSHED(a[i]);
  } else {
    float x[PTX_LANES];
    LANES x[i] = ptx_float(FLUSHED(a[i]));
    to_integers_f32(x, m);
    LANES d[i] = ptx_bits(CANON(x[i]));
  }
  if ((m & M_SAT) != 0) saturate_f32(dv, dv, dv, dv, 0);
}
CONVERT(f64, f64) {
  UNUSED;
  double *d = dv;
  const double *a = av;
  for (int i = 0; i < PTX_LANES; i++) {
    double x = (m & M_INTEGRAL) != 0 ? to_integer(a[i], m) : a[i];
    d[i] = (m & M_SAT) != 0 ? saturate64(x) : x;
  }
}

/* Two floats to a pair; a is the upper half. */
OPERATION(cvt_pair_f16x2) {
  UNUSED;
  u16 low[PTX_LANES], high[PTX_LANES];
  cvt_f16_f32(high, av, av, av, m);
  cvt_f16_f32(low, bv, bv, bv, m);
  u32 *d = dv;
  LANES d[i] = low[i] | (u32)high[i] << 16;
}
OPERATION(cvt_pair_bf16x2) {
  UNUSED;
  u16 low[PTX_LANES], high[PTX_LANES];
  cvt_bf16_f32(high, av, av, av, m);
  cvt_bf16_f32(low, bv, bv, bv, m);
  u32 *d = dv;
  LANES d[i] = low[i] | (u32)high[i] << 16;
}

/* 8-bit floats: e4m3 has no infinity, its NaN is 0x7f; conversions to them saturate (.satfinite). */
static inline u32 eight_of(u64 d, int fraction, int bias, u32 top, u32 nan) {
  if ((d & 0x7fffffffffffffffull) > 0x7ff0000000000000ull) return nan;
  u32 r = ptx_round_bits(d, fraction, bias, fraction == 3 ? 16 : 31, 1);
  u32 magnitude = r & 0x7fffffff;
  return (r >> 24 & 0x80) | (magnitude > top ? top : magnitude);
}
static inline u16 half_of_e4m3(u32 x) {
  u32 sign = (x & 0x80) << 8, rest = x & 0x7f;
  if (rest == 0x7f) return 0x7fff;
  double v = rest < 8 ? (double)rest * 0x1p-9 : ldexp(1.0 + (double)(rest & 7) / 8.0, (int)(rest >> 3) - 7);
  return (u16)(sign | ptx_half_of_double(v, 1));
}
#define PAIR_TO_EIGHT(name, load, FS, shift, fraction, bias, top, nan)                                       \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    u16 *d = dv;                                                                                             \
    const FS *a = av, *b = bv;                                                                               \
    for (int i = 0; i < PTX_LANES; i++) {                                                                    \
      double x = load(a[i], m), y = load(b[i], m);                                                           \
      if ((m & M_RELU) != 0) {                                                                               \
        x = relu64(x);                                                                                       \
        y = relu64(y);                                                                                       \
      }                                                                                                      \
      d[i] = (u16)(eight_of(ptx_bits64(y), fraction, bias, top, nan) |                                       \
                   eight_of(ptx_bits64(x), fraction, bias, top, nan) << 8);                                  \
    }                                                                                                        \
  }
PAIR_TO_EIGHT(cvt_pair_e4m3x2, load_f32, u32, 8, 3, 7, 0x7e, 0x7f)
PAIR_TO_EIGHT(cvt_pair_e5m2x2, load_f32, u32, 8, 2, 15, 0x7b, 0x7f)
#define HALVES_TO_EIGHT(to, fraction, bias, top)                                                             \
  CONVERT(to, f16x2) {                                                                                       \
    UNUSED;                                                                                                  \
    u16 *d = dv;                                                                                             \
    const u32 *a = av;                                                                                       \
    for (int i = 0; i < PTX_LANES; i++) {                                                                    \
      double x = load_f16((u16)a[i], 0), y = load_f16((u16)(a[i] >> 16), 0);                                 \
      if ((m & M_RELU) != 0) {                                                                               \
        x = relu64(x);                                                                                       \
        y = relu64(y);                                                                                       \
      }                                                                                                      \
      d[i] = (u16)(eight_of(ptx_bits64(x), fraction, bias, top, 0x7f) |                                      \
                   eight_of(ptx_bits64(y), fraction, bias, top, 0x7f) << 8);                                 \
    }                                                                                                        \
  }
HALVES_TO_EIGHT(e4m3x2, 3, 7, 0x7e)
HALVES_TO_EIGHT(e5m2x2, 2, 15, 0x7b)
static inline u16 relu_half(u16 x, u32 m) {
  return (m & M_RELU) != 0 && (x & 0x8000) != 0 && (x & 0x7fff) <= 0x7c00 ? 0 : x;
}
CONVERT(f16x2, e4m3x2) {
  UNUSED;
  u32 *d = dv;
  const u16 *a = av;
  for (int i = 0; i < PTX_LANES; i++) {
    d[i] = relu_half(half_of_e4m3(a[i] & 0xff), m) | (u32)relu_half(half_of_e4m3(a[i] >> 8), m) << 16;
  }
}
static inline u16 half_of_e5m2(u32 x) {
  return (x & 0x7f) > 0x7c ? 0x7fff : (u16)(x << 8);
}
CONVERT(f16x2, e5m2x2) {
  UNUSED;
  u32 *d = dv;
  const u16 *a = av;
  for (int i = 0; i < PTX_LANES; i++) {
    d[i] = relu_half(half_of_e5m2(a[i] & 0xff), m) | (u32)relu_half(half_of_e5m2(a[i] >> 8), m) << 16;
  }
}
