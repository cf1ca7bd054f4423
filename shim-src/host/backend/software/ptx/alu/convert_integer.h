/* Floats to integers; included by alu_convert.h. */

/* A float is first rounded to an integer, as the mode says, and then clamped. */
static inline double to_integer(double x, u32 m) {
  switch (m & M_ROUND) {
    case M_RZ:
      return __builtin_trunc(x);
    case M_RM:
      return __builtin_floor(x);
    case M_RP:
      return __builtin_ceil(x);
    default:
      return __builtin_rint(x);
  }
}
static inline double load_f32(u32 x, u32 m) {
  if ((m & M_FTZ) != 0 && (x & 0x7f800000) == 0) x &= 0x80000000;
  return ptx_double(ptx_widen(x));
}
static inline double load_f16(u16 x, u32 m) {
  return (double)ptx_from_half(flush_half(x, m));
}
static inline double load_bf16(u16 x, u32 m) {
  (void)m;
  return wide_bf(x);
}
static inline double load_f64(u64 x, u32 m) {
  (void)m;
  return ptx_double(x);
}
/*
 * Loops without branches, so that compilers vectorise them. A subnormal float becomes the smallest normal one
 * of its sign, which rounds to the same integer: the processor may flush.
 */
static inline float single_f32(u32 x, u32 m) {
  u32 least = (m & M_FTZ) != 0 ? 0 : 0x00800000, sign = x & 0x80000000, rest = x & 0x7fffffff;
  return ptx_float(rest < 0x00800000 ? sign | (rest != 0 ? least : 0) : x);
}
static void singles_f32(float *x, const u32 *a, u32 m) {
  LANES x[i] = single_f32(a[i], m);
}
static void singles_bf16(float *x, const u16 *a, u32 m) {
  (void)m;
  LANES x[i] = single_f32((u32)a[i] << 16, 0);
}
#define singles_f16 floats_of_halves
#define wide_f64 load_f64
/* In the processor's mode. Compilers do not make a vector of it. */
#if defined(__AVX2__)
static void rint_floats(float *x) {
  for (int i = 0; i < PTX_LANES; i += 8) {
    const __m256 r = _mm256_round_ps(_mm256_loadu_ps(x + i), _MM_FROUND_CUR_DIRECTION | _MM_FROUND_NO_EXC);
    _mm256_storeu_ps(x + i, r);
  }
}
#else
static void rint_floats(float *x) {
  LANES x[i] = __builtin_rintf(x[i]);
}
#endif
static void rint_doubles(double *x) {
  LANES x[i] = __builtin_rint(x[i]);
}
#define TO_INTEGERS_OF(T, name, suffix, nearest)                                                             \
  static void name(T *x, u32 m) {                                                                            \
    switch (m & M_ROUND) {                                                                                   \
      case M_RZ:                                                                                             \
        LANES x[i] = __builtin_trunc##suffix(x[i]);                                                          \
        break;                                                                                               \
      case M_RM:                                                                                             \
        LANES x[i] = __builtin_floor##suffix(x[i]);                                                          \
        break;                                                                                               \
      case M_RP:                                                                                             \
        LANES x[i] = __builtin_ceil##suffix(x[i]);                                                           \
        break;                                                                                               \
      default:                                                                                               \
        nearest(x);                                                                                          \
    }                                                                                                        \
  }
TO_INTEGERS_OF(double, to_integers, , rint_doubles)
TO_INTEGERS_OF(float, to_integers_f32, f, rint_floats)

static inline double relu64(double x) {
  return x <= 0.0 ? 0.0 : x; /* of -0 the result is 0, of NaN it is NaN */
}
static inline double saturate64(double x) {
  return x > 0.0 ? (x < 1.0 ? x : 1.0) : 0.0;
}
#include "host/backend/software/ptx/alu/convert_half.h"

#define CONVERT_TO_NARROW(from, FS, to, TS, TV, low, high, nan)                                              \
  CONVERT(to, from) {                                                                                        \
    UNUSED;                                                                                                  \
    TS *d = dv;                                                                                              \
    const FS *a = av;                                                                                        \
    double x[PTX_LANES];                                                                                     \
    LANES x[i] = wide_##from(a[i], m);                                                                       \
    to_integers(x, m);                                                                                       \
    LANES {                                                                                                  \
      double c = x[i] < (double)(low) ? (double)(low) : x[i];                                                \
      c = c > (double)(high) ? (double)(high) : c;                                                           \
      c = x[i] != x[i] ? 0.0 : c;                                                                            \
      TS r = (TS)(TV)(NARROW_##to)c;                                                                         \
      d[i] = x[i] != x[i] ? (TS)(nan) : r;                                                                   \
    }                                                                                                        \
  }
/* Through floats, which hold the integers between the limits; NaN becomes 0. */
#define FLOATS_TO_NARROW(from, FS, to, TS, TV, low, high)                                                    \
  CONVERT(to, from) {                                                                                        \
    UNUSED;                                                                                                  \
    TS *d = dv;                                                                                              \
    const FS *a = av;                                                                                        \
    float x[PTX_LANES];                                                                                      \
    singles_##from(x, a, m);                                                                                 \
    to_integers_f32(x, m);                                                                                   \
    LANES {                                                                                                  \
      float c = x[i] < (float)(low) ? (float)(low) : x[i];                                                   \
      c = c > (float)(high) ? (float)(high) : c;                                                             \
      d[i] = (TS)(TV)(s32)(c == c ? c : 0.0f);                                                               \
    }                                                                                                        \
  }
#define FLOATS_TO_S32(from, FS, to)                                                                          \
  CONVERT(to, from) {                                                                                        \
    UNUSED;                                                                                                  \
    s32 *d = dv;                                                                                             \
    const FS *a = av;                                                                                        \
    float x[PTX_LANES];                                                                                      \
    singles_##from(x, a, m);                                                                                 \
    to_integers_f32(x, m);                                                                                   \
    LANES {                                                                                                  \
      float c = x[i] < -0x1p31f ? -0x1p31f : x[i] < 0x1p31f ? x[i] : 0.0f;                                   \
      s32 r = (s32)c;                                                                                        \
      d[i] = x[i] >= 0x1p31f ? INT32_MAX : r;                                                                \
    }                                                                                                        \
  }
#define FLOATS_TO_U32(from, FS, to)                                                                          \
  CONVERT(to, from) {                                                                                        \
    UNUSED;                                                                                                  \
    u32 *d = dv;                                                                                             \
    const FS *a = av;                                                                                        \
    float x[PTX_LANES];                                                                                      \
    singles_##from(x, a, m);                                                                                 \
    to_integers_f32(x, m);                                                                                   \
    LANES {                                                                                                  \
      float c = x[i] > 0.0f ? x[i] : 0.0f, less = c >= 0x1p31f ? 0x1p31f : 0.0f;                             \
      u32 r = (u32)(s32)(c < 0x1p32f ? c - less : 0.0f);                                                     \
      r |= less > 0.0f ? 0x80000000u : 0;                                                                    \
      d[i] = c >= 0x1p32f ? UINT32_MAX : r;                                                                  \
    }                                                                                                        \
  }
#define NARROW_u8 s32
#define NARROW_s8 s32
#define NARROW_u16 s32
#define NARROW_s16 s32
#define NARROW_u32 u32
#define NARROW_s32 s32
#define CONVERT_TO_INTEGER(from, FS, to, TS, TV, low, high, nan)                                             \
  CONVERT(to, from) {                                                                                        \
    UNUSED;                                                                                                  \
    TS *d = dv;                                                                                              \
    const FS *a = av;                                                                                        \
    for (int i = 0; i < PTX_LANES; i++) {                                                                    \
      double x = load_##from(a[i], m);                                                                       \
      if (x != x) {                                                                                          \
        d[i] = (TS)(nan);                                                                                    \
        continue;                                                                                            \
      }                                                                                                      \
      x = to_integer(x, m);                                                                                  \
      d[i] = (TS)(x <= (double)(low) ? (TV)(low) : x >= (double)(high) ? (TV)(high) : (TV)x);                \
    }                                                                                                        \
  }
#define TO_LONGS(from, FS)                                                                                   \
  CONVERT_TO_INTEGER(from, FS, u64, u64, u64, 0, UINT64_MAX, 1ull << 63)                                     \
  CONVERT_TO_INTEGER(from, FS, s64, u64, s64, INT64_MIN, INT64_MAX, 1ull << 63)
/* of NaN: 0, but 1 << (bits - 1) if one of the types has 64 bits */
#define FLOATS_TO_INTEGERS(from, FS)                                                                         \
  FLOATS_TO_NARROW(from, FS, u8, u16, u8, 0, 255)                                                            \
  FLOATS_TO_NARROW(from, FS, s8, u16, s8, -128, 127)                                                         \
  FLOATS_TO_NARROW(from, FS, u16, u16, u16, 0, 65535)                                                        \
  FLOATS_TO_NARROW(from, FS, s16, u16, s16, -32768, 32767)                                                   \
  FLOATS_TO_U32(from, FS, u32)                                                                               \
  FLOATS_TO_S32(from, FS, s32)                                                                               \
  TO_LONGS(from, FS)
FLOATS_TO_INTEGERS(f16, u16)
FLOATS_TO_INTEGERS(bf16, u16)
FLOATS_TO_INTEGERS(f32, u32)
CONVERT_TO_NARROW(f64, u64, u8, u16, u8, 0, 255, 0x80)
CONVERT_TO_NARROW(f64, u64, s8, u16, s8, -128, 127, (s8)(0x80))
CONVERT_TO_NARROW(f64, u64, u16, u16, u16, 0, 65535, 0x8000)
CONVERT_TO_NARROW(f64, u64, s16, u16, s16, -32768, 32767, 0x8000)
CONVERT_TO_NARROW(f64, u64, u32, u32, u32, 0, UINT32_MAX, 0x80000000u)
CONVERT_TO_NARROW(f64, u64, s32, u32, s32, INT32_MIN, INT32_MAX, 0x80000000u)
TO_LONGS(f64, u64)
