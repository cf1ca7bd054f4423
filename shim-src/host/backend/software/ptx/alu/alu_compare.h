#define COMPARE(name, T, U, expression)                                                                      \
  static uint32_t name(const void *av, const void *bv) {                                                     \
    const T *a = av, *b = bv;                                                                                \
    u8 bytes[PTX_LANES];                                                                                     \
    LANES {                                                                                                  \
      const T x = a[i], y = b[i];                                                                            \
      (void)y;                                                                                               \
      bytes[i] = (expression) ? 1 : 0;                                                                       \
    }                                                                                                        \
    return ptx_gather_bits(bytes);                                                                           \
  }
#define COMPARE_INTEGER(S, T)                                                                                \
  COMPARE(eq_##S, T, u32, x == y)                                                                            \
  COMPARE(ne_##S, T, u32, x != y)                                                                            \
  COMPARE(lt_##S, T, u32, x < y)                                                                             \
  COMPARE(le_##S, T, u32, x <= y)                                                                            \
  COMPARE(gt_##S, T, u32, x > y)                                                                             \
  COMPARE(ge_##S, T, u32, x >= y)
COMPARE_INTEGER(u16, u16)
COMPARE_INTEGER(s16, s16)
COMPARE_INTEGER(u32, u32)
COMPARE_INTEGER(s32, s32)
COMPARE_INTEGER(u64, u64)
COMPARE_INTEGER(s64, s64)

#define COMPARE_FLOAT(S, T, F)                                                                               \
  COMPARE(eq_##S, T, u32, F(x) == F(y))                                                                      \
  COMPARE(ne_##S, T, u32, F(x) < F(y) || F(x) > F(y))                                                        \
  COMPARE(lt_##S, T, u32, F(x) < F(y))                                                                       \
  COMPARE(le_##S, T, u32, F(x) <= F(y))                                                                      \
  COMPARE(gt_##S, T, u32, F(x) > F(y))                                                                       \
  COMPARE(ge_##S, T, u32, F(x) >= F(y))                                                                      \
  COMPARE(equ_##S, T, u32, !(F(x) < F(y) || F(x) > F(y)))                                                    \
  COMPARE(neu_##S, T, u32, F(x) != F(y))                                                                     \
  COMPARE(ltu_##S, T, u32, !(F(x) >= F(y)))                                                                  \
  COMPARE(leu_##S, T, u32, !(F(x) > F(y)))                                                                   \
  COMPARE(gtu_##S, T, u32, !(F(x) <= F(y)))                                                                  \
  COMPARE(geu_##S, T, u32, !(F(x) < F(y)))                                                                   \
  COMPARE(num_##S, T, u32, F(x) == F(x) && F(y) == F(y))                                                     \
  COMPARE(nan_##S, T, u32, F(x) != F(x) || F(y) != F(y))
#define SAME(x) (x)
COMPARE_FLOAT(f32, float, SAME)
COMPARE_FLOAT(f64, double, SAME)
#include "host/backend/software/ptx/alu/compare_half.h"

#define TEST_FLOAT(S, T, sign, infinity, least)                                                              \
  COMPARE(finite_##S, T, u32, (x & ~(sign)) < (infinity))                                                    \
  COMPARE(infinite_##S, T, u32, (x & ~(sign)) == (infinity))                                                 \
  COMPARE(number_##S, T, u32, (x & ~(sign)) <= (infinity))                                                   \
  COMPARE(notanumber_##S, T, u32, (x & ~(sign)) > (infinity))                                                \
  COMPARE(normal_##S, T, u32, (x & ~(sign)) < (infinity) && (x & ~(sign)) >= (least))                        \
  COMPARE(subnormal_##S, T, u32, (x & ~(sign)) != 0 && (x & ~(sign)) < (least))
TEST_FLOAT(f32, u32, 0x80000000u, 0x7f800000u, 0x00800000u)
TEST_FLOAT(f64, u64, 0x8000000000000000ull, 0x7ff0000000000000ull, 0x0010000000000000ull)
