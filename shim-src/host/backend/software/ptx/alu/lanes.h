#ifndef VGPU_PTX_LANES_H
#define VGPU_PTX_LANES_H

#include <math.h>

#include "host/backend/software/ptx/alu/alu.h"
#include "host/backend/software/ptx/half.h"

/* Operands may be the same register, but never overlap otherwise. */
#if defined(__clang__)
#define ELEMENTS(count) _Pragma("clang loop vectorize(assume_safety)") for (int i = 0; i < (count); i++)
#else
#define ELEMENTS(count) _Pragma("GCC ivdep") for (int i = 0; i < (count); i++)
#endif
#define LANES ELEMENTS(PTX_LANES)

#define OPERATION(name) static void name(void *dv, const void *av, const void *bv, const void *cv, uint32_t m)
#define UNUSED (void)av, (void)bv, (void)cv, (void)m

#define UNARY(name, T, expression)                                                                           \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    T *d = dv;                                                                                               \
    const T *a = av;                                                                                         \
    LANES {                                                                                                  \
      const T x = a[i];                                                                                      \
      d[i] = (T)(expression);                                                                                \
    }                                                                                                        \
  }

#define BINARY(name, T, expression)                                                                          \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    T *d = dv;                                                                                               \
    const T *a = av, *b = bv;                                                                                \
    LANES {                                                                                                  \
      const T x = a[i], y = b[i];                                                                            \
      d[i] = (T)(expression);                                                                                \
    }                                                                                                        \
  }

#define TERNARY(name, T, expression)                                                                         \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    T *d = dv;                                                                                               \
    const T *a = av, *b = bv, *c = cv;                                                                       \
    LANES {                                                                                                  \
      const T x = a[i], y = b[i], z = c[i];                                                                  \
      d[i] = (T)(expression);                                                                                \
    }                                                                                                        \
  }

#define MIXED(name, D, A, B, C, expression)                                                                  \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    D *d = dv;                                                                                               \
    const A *a = av;                                                                                         \
    const B *b = bv;                                                                                         \
    const C *c = cv;                                                                                         \
    (void)b;                                                                                                 \
    (void)c;                                                                                                 \
    LANES {                                                                                                  \
      d[i] = (D)(expression);                                                                                \
    }                                                                                                        \
  }

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef unsigned __int128 u128;
typedef __int128 s128;

/* Packs the results of a comparison, one byte for each lane, into a mask with one bit for each lane. */
static inline uint32_t ptx_gather_bits(const u8 *bytes) {
  u32 r = 0;
  for (int i = 0; i < 4; i++) {
    u64 eight;
    memcpy(&eight, bytes + i * 8, 8);
    r |= (u32)((eight & 0x0101010101010101ull) * 0x0102040810204080ull >> 56) << (i * 8);
  }
  return r;
}

/* NaN results of 32-bit float operations have these bits on a GPU. */
static inline float ptx_canonical(float x) {
  return x == x ? x : ptx_float(0x7fffffff);
}

#define PTX_PASTE_(a, b) a##b
#define PTX_PASTE(a, b) PTX_PASTE_(a, b)
#define PTX_VARIANT_NAME(name) PTX_PASTE(name, PTX_VARIANT)

#endif
