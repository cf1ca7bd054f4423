/*
 * ptx_products: products of matrices by the arithmetic of each processor that runs here, with random elements
 * and strange ones, against the plain loop that says what they are. Prints the number of products for each,
 * or the first that differs.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "host/backend/software/ptx/alu/product.h"

enum { ROUNDS = 3000, MOST_A = 2048, MOST_B = 16384, MOST_C = 16384 };

static uint64_t state = 88172645463325252ull;

static uint64_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static float as_float(uint32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

static uint32_t as_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return f != f ? 0x7fffffff : bits;
}

/* A float of so many bits of exponent and of fraction, as the IEEE has them; e4m3 has no infinity. */
static float small_float(uint32_t bits, int exponent_bits, int fraction_bits, bool infinite) {
  int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
  int exponent = (int)(bits >> fraction_bits) & top;
  uint32_t fraction = bits & ((1u << fraction_bits) - 1);
  bool negative = (bits >> (exponent_bits + fraction_bits) & 1) != 0;
  float value = exponent == 0
                    ? ldexpf((float)fraction, 1 - bias - fraction_bits)
                    : ldexpf((float)(fraction + (1u << fraction_bits)), exponent - bias - fraction_bits);
  if (infinite && exponent == top) value = fraction != 0 ? NAN : INFINITY;
  if (!infinite && exponent == top && fraction == (1u << fraction_bits) - 1) value = NAN;
  return negative ? -value : value;
}

static const struct kind {
  enum ptx_type type;
  const char *name;
  uint32_t bytes;
} kinds[] = {{T_F16, "f16", 2},   {T_BF16, "bf16", 2}, {T_TF32, "tf32", 4}, {T_E4M3, "e4m3", 1},
             {T_E5M2, "e5m2", 1}, {T_S8, "s8", 1},     {T_U8, "u8", 1}};

static uint32_t element_of(const struct kind *kind, const unsigned char *from, uint32_t i) {
  uint32_t bits = 0;
  memcpy(&bits, from + i * kind->bytes, kind->bytes);
  return bits;
}

static float float_of(const struct kind *kind, uint32_t bits) {
  switch (kind->type) {
    case T_F16:
      return small_float(bits, 5, 10, true);
    case T_BF16:
      return as_float(bits << 16);
    case T_TF32:
      return as_float(bits & 0xffffe000);
    case T_E4M3:
      return small_float(bits, 4, 3, false);
    default:
      return small_float(bits, 5, 2, true);
  }
}

static int32_t integer_of(const struct kind *kind, uint32_t bits) {
  return kind->type == T_S8 ? (int8_t)bits : (int32_t)bits;
}

struct job {
  struct ptx_product p;
  const struct kind *a_kind, *b_kind;
  bool same; /* d is c */
  _Alignas(32) unsigned char a[MOST_A * 4];
  _Alignas(32) unsigned char b[MOST_B * 4];
  uint32_t c[MOST_C], want[MOST_C], have[MOST_C];
};

/* Elements of all magnitudes in one job, of few in another: sums of the first are mostly NaN or infinite. */
static void fill(const struct kind *kind, unsigned char *to, uint32_t count, bool tame) {
  for (uint32_t i = 0; i < count; i++) {
    uint32_t bits = (uint32_t)next();
    if (tame && kind->type == T_F16) bits = (bits & 0x83ff) | (0x2c00 + (bits >> 16) % 8 * 0x400);
    if (tame && kind->type == T_BF16) bits = (bits & 0x807f) | (123 + (bits >> 16) % 8) << 7;
    if (tame && kind->type == T_TF32) bits = (bits & 0x807fffff) | (123 + (bits >> 24) % 8) << 23;
    if (tame && kind->type == T_E4M3 && (bits & 0x7f) == 0x7f) bits = 0;
    if (tame && kind->type == T_E5M2) bits &= 0xbf;
    /* among tame ones a few that are zeros, subnormal, infinite, not a number */
    if (tame && next() % 512 == 0) bits = next() % 2 == 0 ? 0x80000000 | 0x8000 | 0x80 : (uint32_t)next();
    memcpy(to + i * kind->bytes, &bits, kind->bytes);
  }
}

static void choose(struct job *j) {
  static const uint32_t rows[] = {8, 16, 32}, columns[] = {8, 16, 24, 32, 40, 64, 256},
                        depths[] = {4, 8, 16, 32, 64, 128};
  struct ptx_product *p = &j->p;
  do {
    p->rows = rows[next() % 3];
    p->columns = columns[next() % 7];
    p->k = depths[next() % 6];
  } while (p->rows * p->k > MOST_A || p->columns * p->k > MOST_B ||
           p->rows * p->columns > PTX_PRODUCT_ROWS * PTX_PRODUCT_COLUMNS);
  j->a_kind = &kinds[next() % 7];
  do j->b_kind = &kinds[next() % 7];
  while ((j->a_kind->type == T_S8 || j->a_kind->type == T_U8) !=
             (j->b_kind->type == T_S8 || j->b_kind->type == T_U8) ||
         j->a_kind->bytes != j->b_kind->bytes);
  bool integers = j->a_kind->type == T_S8 || j->a_kind->type == T_U8, tame = next() % 2 == 0;
  p->a = j->a_kind->type;
  p->b = j->b_kind->type;
  p->d = integers ? T_S32 : T_F32;
  p->saturate = integers && next() % 2 == 0;
  p->negate_a = !integers && next() % 4 == 0;
  p->negate_b = !integers && next() % 4 == 0;
  j->same = next() % 2 == 0;
  fill(j->a_kind, j->a, p->rows * p->k, tame);
  fill(j->b_kind, j->b, p->columns * p->k, tame);
  for (uint32_t i = 0; i < p->rows * p->columns; i++) {
    uint32_t bits = (uint32_t)next();
    j->c[i] = !tame        ? bits
              : integers   ? (bits % 4 == 0 ? 0x7fffffff - bits % 65536 : 0x80000000 + bits % 65536)
              : bits % 2   ? (bits & 0x807fffff) | (120 + (bits >> 24) % 16) << 23
              : bits % 128 ? 0
                           : bits;
  }
}

static void plainly(struct job *j) {
  const struct ptx_product *p = &j->p;
  for (uint32_t i = 0; i < p->rows * p->columns; i++) {
    uint32_t row = i / p->columns * p->k, column = i % p->columns * p->k;
    float sum = 0;
    uint32_t total = 0;
    for (uint32_t k = 0; k < p->k; k++) {
      uint32_t x = element_of(j->a_kind, j->a, row + k), y = element_of(j->b_kind, j->b, column + k);
      if (p->d == T_S32) {
        total += (uint32_t)integer_of(j->a_kind, x) * (uint32_t)integer_of(j->b_kind, y);
        continue;
      }
      float u = float_of(j->a_kind, x), v = float_of(j->b_kind, y);
      float product = (p->negate_a ? -u : u) * (p->negate_b ? -v : v);
      sum = sum + product;
    }
    if (p->d != T_S32) {
      j->want[i] = as_bits(as_float(j->c[i]) + sum);
    } else if (p->saturate) {
      int64_t all = (int64_t)(int32_t)j->c[i] + (int32_t)total;
      j->want[i] = (uint32_t)(all > INT32_MAX ? INT32_MAX : all < INT32_MIN ? INT32_MIN : all);
    } else {
      j->want[i] = j->c[i] + total;
    }
  }
}

static bool products_of_doubles(const struct ptx_alu *alu) {
  static double a[32 * 16], b[16 * 32], turned[16 * 32], c[32 * 32], d[32 * 32];
  uint32_t rows = (uint32_t)(1 + next() % 4) * 8, columns = (uint32_t)(1 + next() % 4) * 8,
           depth = (uint32_t)(1 + next() % 4) * 4;
  for (uint32_t i = 0; i < 32 * 16; i++) {
    uint64_t x = next(), y = next();
    /* all bits, or a magnitude about 1 */
    if (rows != 32)
      x = (x & 0x803fffffffffffff) | 0x3fc0000000000000, y = (y & 0x803fffffffffffff) | 0x3fc0000000000000;
    memcpy(&a[i], &x, 8);
    memcpy(&b[i], &y, 8);
  }
  for (uint32_t i = 0; i < rows * columns; i++) c[i] = (double)(int64_t)next() * 0x1p-60;
  alu->turn_u64((uint64_t *)(void *)turned, (const uint64_t *)(const void *)b, columns, depth);
  alu->matrix_f64(d, c, a, turned, rows, columns, depth);
  for (uint32_t i = 0; i < rows * columns; i++) {
    double sum = c[i];
    for (uint32_t k = 0; k < depth; k++)
      sum = fma(a[i / columns * depth + k], b[i % columns * depth + k], sum);
    if (memcmp(&sum, &d[i], 8) != 0 && !(sum != sum && d[i] != d[i])) return false;
  }
  return true;
}

/* To halves: of a float that is half way between two, the even one; NaN is 0x7fff. */
static bool halves(const struct ptx_alu *alu) {
  uint32_t from[64];
  uint16_t to[64];
  for (uint32_t i = 0; i < 64; i++)
    from[i] = next() % 4 == 0 ? (uint32_t)next()
                              : (uint32_t)(next() & 0x80001fff) | (90 + (uint32_t)next() % 56) << 23;
  alu->narrow_f16(to, from, 64);
  for (uint32_t i = 0; i < 64; i++) {
    double value = fabs((double)as_float(from[i]));
    uint16_t want = (uint16_t)(from[i] >> 16 & 0x8000);
    if (value != value) {
      want = 0x7fff;
    } else if (value >= 65520) {
      want |= 0x7c00;
    } else {
      /* the distance of halves of this magnitude */
      double step = value < 0x1p-14 ? 0x1p-24 : ldexp(1, ilogb(value) - 10);
      double rounded = nearbyint(value / step) * step;
      if (rounded < 0x1p-14) want |= (uint16_t)(rounded * 0x1p24);
      else want |= (uint16_t)((ilogb(rounded) + 14) * 1024 + (int)(rounded / ldexp(1, ilogb(rounded) - 10)));
    }
    if (to[i] != want) return false;
  }
  return true;
}

static struct job job;

static int compare(const char *name, const struct ptx_alu *alu) {
  state = 88172645463325252ull;
  uint32_t numbers = 0, all = 0;
  for (uint32_t round = 0; round < ROUNDS; round++) {
    const struct ptx_product *p = &job.p;
    choose(&job);
    plainly(&job);
    uint32_t count = p->rows * p->columns;
    memcpy(job.have, job.c, count * 4);
    ptx_multiply(alu, p, job.a, job.b, job.same ? job.have : job.c, job.have);
    for (uint32_t i = 0; i < count; i++) {
      all++;
      numbers += (job.want[i] & 0x7f800000) != 0x7f800000;
      if (job.want[i] == job.have[i]) continue;
      printf("%s: round %u: %s by %s, %u by %u by %u, element %u is 0x%08x instead of 0x%08x\n", name, round,
             job.a_kind->name, job.b_kind->name, p->rows, p->columns, p->k, i, job.have[i], job.want[i]);
      return 1;
    }
    if (!products_of_doubles(alu)) {
      printf("%s: round %u: a product of doubles differs\n", name, round);
      return 1;
    }
    if (!halves(alu)) {
      printf("%s: round %u: a half differs\n", name, round);
      return 1;
    }
  }
  printf("%s: %d products, %s\n", name, ROUNDS,
         numbers * 2 > all ? "most elements finite" : "few elements finite");
  return 0;
}

int main(void) {
  int status = compare("base", &ptx_alu_base);
#if defined(__x86_64__) && !defined(VGPU_ONE_ALU)
  const struct ptx_alu *best = ptx_alu_best();
  if (status == 0 && best != &ptx_alu_base) status = compare("v3", &ptx_alu_v3);
  if (status == 0 && best == &ptx_alu_v4) status = compare("v4", &ptx_alu_v4);
#endif
  return status;
}
