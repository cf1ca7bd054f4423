/*
 * ptx_arithmetic: floats of 16 and 32 bits by the arithmetic that is compiled for each processor, against
 * that for all processors, which goes element by element: bit by bit, with random operands, special ones, and
 * sums that lie in the middle between two results or beside it. Prints the number of rounds for each, or what
 * differs. With an argument, that many rounds.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/ptx/alu/alu.h"
#include "host/backend/software/ptx/alu/fpu.h"
#include "host/backend/software/ptx/half.h"

static uint64_t state;
static uint64_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

struct lanes {
  _Alignas(64) unsigned char bytes[PTX_LANES * 8];
};
static struct lanes a, b, c, want, have;

/* The formats of 16 bits. */
struct format {
  int fraction, bias;
  uint16_t top;
};
static const struct format half = {10, 15, 0x7c00}, bfloat = {7, 127, 0x7f80};
static double wide(uint16_t x, const struct format *f) {
  return f == &half ? (double)ptx_from_half(x) : ptx_double(ptx_widen((uint32_t)x << 16));
}
static uint16_t narrow(double x, const struct format *f) {
  return f == &half ? ptx_half_of_double(x, 1) : ptx_bfloat_of_double(x, 1);
}

static uint16_t sixteen(const struct format *f) {
  static const uint16_t low[] = {0, 1, 2, 3};
  uint64_t r = next();
  uint16_t sign = (uint16_t)(r >> 32 & 0x8000), least = (uint16_t)(1 << f->fraction);
  switch (r % 12) {
    case 0:
      return sign | low[r >> 8 & 3];
    case 1:
      return sign | (uint16_t)(f->top + (uint16_t)(r >> 8 & 3) - 1);
    case 2:
      return sign | (uint16_t)(least + (uint16_t)(r >> 8 & 3) - 2);
    case 3: /* beside one */
      return sign | (uint16_t)((f->bias << f->fraction) + (int)(r >> 8 & 15) - 8);
    default:
      return (uint16_t)(r >> 16);
  }
}
/* The third operand of a multiply-add whose result lies in the middle of two, or close to it. */
static uint16_t beside(uint16_t x, uint16_t y, const struct format *f) {
  double product = wide(x, f) * wide(y, f);
  uint64_t r = next();
  if (!(fabs(product) < 1e300) || product == 0) return sixteen(f);
  int exponent = ilogb(product) + (int)(r % 24) - 12, least = -f->bias - f->fraction;
  int bit = exponent - f->fraction - 1;
  if (bit < least) bit = least;
  double step = ldexp(1, bit),
         middle = (2 * (double)(r >> 8 & 2047) + 1) * step * ((r >> 20 & 1) != 0 ? 1 : -1);
  uint16_t z = narrow(middle - product, f);
  return (uint16_t)(z + (r >> 21 & 3) - ((r >> 23 & 3) == 0 ? 1 : 0));
}

static uint32_t thirty_two(void) {
  uint64_t r = next();
  static const uint32_t strange[] = {0,          1,          0x007fffff, 0x00800000, 0x7f800000, 0x7f800001,
                                     0x7fc00000, 0x7f7fffff, 0x3f800000, 0x3f7fffff, 0x47800000, 0x4f000000,
                                     0x33000000, 0x38800000, 0x387fffff, 0x477fe000, 0x477ff000};
  uint32_t sign = (uint32_t)(r >> 32) & 0x80000000;
  if (r % 8 == 0) return sign | (strange[(r >> 8) % (sizeof strange / sizeof *strange)]);
  if (r % 8 == 1)
    return sign | (strange[(r >> 8) % (sizeof strange / sizeof *strange)] + (uint32_t)(r >> 40 & 7) - 3);
  /* of a magnitude that functions treat specially */
  if (r % 8 < 5) return sign | ((uint32_t)(100 + (r >> 16) % 50) << 23 | (uint32_t)(r >> 40 & 0x7fffff));
  /* few bits: halves and what lies in their middle */
  if (r % 8 == 5) return sign | ((uint32_t)(r >> 8) & 0x7ffff000);
  return (uint32_t)(r >> 16);
}

static const struct format *format_of(enum ptx_type type) {
  return type == T_F16 || type == T_F16X2 ? &half : type == T_BF16 || type == T_BF16X2 ? &bfloat : NULL;
}
static void fill(struct lanes *to, enum ptx_type type) {
  const struct format *f = format_of(type);
  for (uint32_t i = 0; i < PTX_LANES * 4; i++) {
    uint16_t value = f != NULL ? sixteen(f) : (uint16_t)next();
    memcpy(to->bytes + 2 * i, &value, 2);
  }
  if (type != T_F32) return;
  for (uint32_t i = 0; i < PTX_LANES * 2; i++) {
    uint32_t value = thirty_two();
    memcpy(to->bytes + 4 * i, &value, 4);
  }
}
/*
 * Factors of products that are almost in the middle of two subnormal halves, where a float loses the rest.
 * The product of the last two is the largest subnormal half.
 */
static const uint16_t rare[4][2] = {{0x0f0f, 0x0fef}, {0x0dff, 0x1201}, {0x0aa9, 0x0f35}, {0x0400, 0x3bfe}};
static void fill_beside(const struct format *f) {
  for (uint32_t i = 0; i < PTX_LANES * 2; i++) {
    uint16_t x, y;
    if (f == &half && next() % 64 == 0) {
      const uint16_t *factors = rare[next() % 4];
      uint16_t z = factors == rare[3] ? 0 : (uint16_t)(0x01f0 + next() % 0x0200);
      memcpy(a.bytes + 2 * i, &factors[0], 2);
      memcpy(b.bytes + 2 * i, &factors[1], 2);
      memcpy(c.bytes + 2 * i, &z, 2);
      continue;
    }
    memcpy(&x, a.bytes + 2 * i, 2);
    memcpy(&y, b.bytes + 2 * i, 2);
    uint16_t z = beside(x, y, f);
    memcpy(c.bytes + 2 * i, &z, 2);
  }
}

static bool same(const char *name, const char *what, int op, int type, int from, uint32_t m) {
  if (memcmp(&want, &have, sizeof want) == 0) return true;
  uint32_t i = 0;
  while (memcmp(want.bytes + 2 * i, have.bytes + 2 * i, 2) == 0) i++;
  i &= ~1u;
  uint32_t w, h, x, y, z;
  memcpy(&w, want.bytes + 2 * i, 4);
  memcpy(&h, have.bytes + 2 * i, 4);
  memcpy(&x, a.bytes + 2 * i, 4);
  memcpy(&y, b.bytes + 2 * i, 4);
  memcpy(&z, c.bytes + 2 * i, 4);
  printf("%s: %s %d, types %d and %d, mode %u: of %08x %08x %08x at %u it is %08x instead of %08x\n", name,
         what, op, type, from, m, x, y, z, 2 * i, h, w);
  return false;
}

static const enum ptx_type floats[] = {T_F16, T_F16X2, T_BF16, T_BF16X2, T_F32};
enum { FLOATS = sizeof floats / sizeof *floats };

static bool operations(const char *name, const struct ptx_alu *alu, enum ptx_type type) {
  static const enum ptx_operation list[] = {OP_ADD, OP_SUB, OP_MUL,  OP_FMA,     OP_FMA, OP_FMA,
                                            OP_MIN, OP_MAX, OP_ABS,  OP_NEG,     OP_EX2, OP_LG2,
                                            OP_SIN, OP_COS, OP_TANH, OP_CVT_PAIR};
  static const uint32_t modes[] = {0,     0,        M_FTZ, M_SAT, M_RELU, M_FTZ | M_SAT, M_FTZ | M_RELU,
                                   M_NAN, M_XORSIGN};
  for (size_t k = 0; k < sizeof list / sizeof *list; k++) {
    enum ptx_operation op = list[k];
    if (alu->operation[op][type] == NULL) continue;
    uint32_t m = modes[next() % (sizeof modes / sizeof *modes)];
    enum ptx_type of = op == OP_CVT_PAIR ? T_F32 : type;
    if (op == OP_EX2 || op == OP_TANH || op == OP_LG2) m &= M_FTZ;
    if (op == OP_CVT_PAIR) m = (m & ~(uint32_t)(M_NAN | M_XORSIGN)) | (uint32_t)(next() % 3);
    /* of bfloats there is one operation that flushes */
    if (format_of(type) == &bfloat) m = op == OP_EX2 ? M_FTZ : m & ~(uint32_t)M_FTZ;
    fill(&a, of);
    fill(&b, of);
    fill(&c, of);
    if (op == OP_FMA && type != T_F32 && next() % 4 != 0) fill_beside(format_of(type));
    want = have = a;
    ptx_fpu_set(PTX_CONTROL(0, (m & M_FTZ) != 0));
    ptx_alu_base.operation[op][type](&want, &a, &b, &c, m);
    alu->operation[op][type](&have, &a, &b, &c, m);
    ptx_fpu_set(PTX_CONTROL(0, 0));
    if (!same(name, "operation", (int)op, (int)type, (int)type, m)) return false;
    /* the result may be an operand */
    struct lanes kept = a;
    ptx_fpu_set(PTX_CONTROL(0, (m & M_FTZ) != 0));
    alu->operation[op][type](&a, &a, &b, &c, m);
    ptx_fpu_set(PTX_CONTROL(0, 0));
    have = a;
    a = kept;
    if (!same(name, "operation in its place", (int)op, (int)type, (int)type, m)) return false;
  }
  return true;
}

static bool conversions(const char *name, const struct ptx_alu *alu, enum ptx_type from) {
  static const uint32_t modes[] = {0, M_SAT, M_RELU, M_FTZ, M_FTZ | M_SAT, M_INTEGRAL, M_INTEGRAL | M_FTZ};
  for (enum ptx_type to = T_NONE; to < T_TYPES; to++) {
    if (alu->convert[to][from] == NULL) continue;
    uint32_t m = modes[next() % (sizeof modes / sizeof *modes)] | (uint32_t)(next() % 5);
    if ((m & M_INTEGRAL) != 0 && (m & M_ROUND) == 0) m |= M_RN;
    fill(&a, from);
    want = have = a;
    ptx_fpu_set(PTX_CONTROL(0, (m & M_FTZ) != 0));
    ptx_alu_base.convert[to][from](&want, &a, &a, &a, m);
    alu->convert[to][from](&have, &a, &a, &a, m);
    ptx_fpu_set(PTX_CONTROL(0, 0));
    if (!same(name, "conversion", 0, (int)to, (int)from, m)) return false;
  }
  return true;
}

static bool comparisons(const char *name, const struct ptx_alu *alu, enum ptx_type type) {
  fill(&a, type);
  fill(&b, type);
  if (next() % 2 == 0) memcpy(b.bytes, a.bytes, 48);
  for (int k = 0; k < C_COMPARISONS; k++) {
    uint64_t w = 0, h = 0;
    if (alu->compare[k][type] != NULL) {
      w = ptx_alu_base.compare[k][type](&a, &b);
      h = alu->compare[k][type](&a, &b);
    } else if (alu->compare_pair[k][type] != NULL) {
      w = ptx_alu_base.compare_pair[k][type](&a, &b);
      h = alu->compare_pair[k][type](&a, &b);
    }
    if (w == h) continue;
    printf("%s: comparison %d of type %d is %016llx instead of %016llx\n", name, k, (int)type,
           (unsigned long long)h, (unsigned long long)w);
    return false;
  }
  uint64_t t = next(), yes = next();
  for (int k = 1; k < 5; k++) {
    memset(&want, 0, sizeof want);
    memset(&have, 0, sizeof have);
    (k < 4 ? ptx_alu_base.spread[k] : ptx_alu_base.spread_pair)(&want, t, k < 4 ? yes : yes & 0xffff);
    (k < 4 ? alu->spread[k] : alu->spread_pair)(&have, t, k < 4 ? yes : yes & 0xffff);
    if (!same(name, "spreading", k, 0, 0, 0)) return false;
  }
  return true;
}

/* One result of the warp is the largest subnormal half, and all others are 1. */
static bool one_small(const char *name, const struct ptx_alu *alu, enum ptx_type type) {
  const uint16_t one = 0x3c00, zero = 0;
  for (uint32_t i = 0; i < PTX_LANES * 2; i++) {
    memcpy(a.bytes + 2 * i, i == 6 ? &rare[3][0] : &one, 2);
    memcpy(b.bytes + 2 * i, i == 6 ? &rare[3][1] : &one, 2);
    memcpy(c.bytes + 2 * i, &zero, 2);
  }
  want = have = a;
  ptx_fpu_set(PTX_CONTROL(0, true));
  ptx_alu_base.operation[OP_FMA][type](&want, &a, &b, &c, M_FTZ);
  alu->operation[OP_FMA][type](&have, &a, &b, &c, M_FTZ);
  ptx_fpu_set(PTX_CONTROL(0, 0));
  return same(name, "operation", OP_FMA, (int)type, (int)type, M_FTZ);
}

static int compare(const char *name, const struct ptx_alu *alu, uint32_t rounds) {
  state = 88172645463325252ull;
  if (!one_small(name, alu, T_F16) || !one_small(name, alu, T_F16X2)) return 1;
  for (uint32_t round = 0; round < rounds; round++) {
    for (int k = 0; k < FLOATS; k++) {
      if (!operations(name, alu, floats[k]) || !comparisons(name, alu, floats[k])) return 1;
      if (!conversions(name, alu, floats[k])) return 1;
    }
    static const enum ptx_type integers[] = {T_U8, T_S8, T_U16, T_S16, T_U32, T_S32, T_U64, T_S64};
    if (!conversions(name, alu, integers[round % 8])) return 1;
  }
  printf("%s: %u rounds\n", name, rounds);
  return 0;
}

int main(int count, char **arguments) {
  uint32_t rounds = count > 1 ? (uint32_t)strtoul(arguments[1], NULL, 10) : 4000;
  int status = compare("base", &ptx_alu_base, rounds < 100 ? rounds : 100);
#if defined(__x86_64__) && !defined(VGPU_ONE_ALU)
  const struct ptx_alu *best = ptx_alu_best();
  if (status == 0 && best != &ptx_alu_base) status = compare("v3", &ptx_alu_v3, rounds);
  if (status == 0 && best == &ptx_alu_v4) status = compare("v4", &ptx_alu_v4, rounds);
#endif
  return status;
}
