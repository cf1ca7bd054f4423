/* 16-bit floats; every rounding is explicit. */
#ifndef VGPU_PTX_HALF_H
#define VGPU_PTX_HALF_H

#include <stdint.h>
#include <string.h>

static inline float ptx_float(uint32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

static inline uint32_t ptx_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return bits;
}

static inline double ptx_double(uint64_t bits) {
  double f;
  memcpy(&f, &bits, 8);
  return f;
}

static inline uint64_t ptx_bits64(double f) {
  uint64_t bits;
  memcpy(&bits, &f, 8);
  return bits;
}

/* Uses no arithmetic on subnormals, because the processor may flush them. */
static inline float ptx_from_half(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16;
  uint32_t rest = h & 0x7fff;
  if (rest >= 0x7c00)
    return ptx_float(sign | 0x7f800000 | (rest & 0x3ff) << 13 | ((rest & 0x3ff) != 0 ? 0x400000 : 0));
  uint32_t normal = (rest << 13) + 0x38000000;
  /* A subnormal is a small integer times 2^-24; both are normal floats. */
  uint32_t small = ptx_bits((float)(int32_t)rest * 0x1p-24f);
  return ptx_float(sign | (rest < 0x400 ? small : normal));
}

static inline float ptx_from_bfloat(uint16_t h) {
  return ptx_float((uint32_t)h << 16);
}

/*
 * Converts a double's bits to a smaller format with `fraction` bits of fraction and exponent bias `bias`.
 * `mode`: 1 rn, 2 rz, 3 rm, 4 rp, 5 rna (to nearest, ties away). Infinity and NaN are those of IEEE. Integer
 * arithmetic only.
 */
static inline uint32_t ptx_round_bits(uint64_t d, int fraction, int bias, int exponent_max, int mode) {
  uint32_t sign = (uint32_t)(d >> 63);
  int exponent = (int)(d >> 52 & 0x7ff);
  uint64_t mantissa = d & 0xfffffffffffffull;
  uint32_t infinity = (uint32_t)exponent_max << fraction;
  if (exponent == 0x7ff) {
    uint32_t magnitude = mantissa != 0 ? infinity | ((1u << fraction) - 1) : infinity;
    /* canonical NaN: all ones but the sign */
    if (mantissa != 0) sign = 0;
    return sign << 31 | magnitude;
  }
  if (exponent == 0 && mantissa == 0) return sign << 31;
  int e = exponent == 0 ? -1022 : exponent - 1023;
  if (exponent != 0) mantissa |= 1ull << 52;
  int target = e + bias;
  int drop = 52 - fraction + (target < 1 ? 1 - target : 0);
  uint64_t kept, rest, half;
  if (drop > 62) {
    kept = 0;
    rest = 1;
    half = 4; /* far below one half */
  } else {
    kept = mantissa >> drop;
    rest = mantissa & ((1ull << drop) - 1);
    half = 1ull << (drop - 1);
  }
  int up = 0;
  if (mode == 1) up = rest > half || (rest == half && (kept & 1) != 0);
  else if (mode == 5) up = rest >= half;
  else if (mode == 3) up = sign && rest != 0;
  else if (mode == 4) up = !sign && rest != 0;
  kept += (uint64_t)up;
  uint64_t magnitude = target < 1 ? kept : kept + ((uint64_t)(target - 1) << fraction);
  if (magnitude >= infinity) {
    int to_infinity = mode == 1 || mode == 5 || (mode == 3 && sign) || (mode == 4 && !sign);
    magnitude = to_infinity ? infinity : infinity - 1;
  }
  return sign << 31 | (uint32_t)magnitude;
}

static inline uint16_t ptx_half_of_double(double x, int mode) {
  uint32_t r = ptx_round_bits(ptx_bits64(x), 10, 15, 31, mode);
  return (uint16_t)(r >> 16 & 0x8000) | (uint16_t)(r & 0x7fff);
}

static inline uint16_t ptx_bfloat_of_double(double x, int mode) {
  uint32_t r = ptx_round_bits(ptx_bits64(x), 7, 127, 255, mode);
  return (uint16_t)(r >> 16 & 0x8000) | (uint16_t)(r & 0x7fff);
}

/* Converts a float's bits to those of a double, without the processor's arithmetic, which may flush. */
static inline uint64_t ptx_widen(uint32_t f) {
  uint64_t sign = (uint64_t)(f >> 31) << 63;
  uint32_t exponent = f >> 23 & 0xff, mantissa = f & 0x7fffff;
  if (exponent == 255) return sign | 0x7ff0000000000000ull | (uint64_t)mantissa << 29;
  if (exponent != 0) return sign | (uint64_t)(exponent + 896) << 52 | (uint64_t)mantissa << 29;
  if (mantissa == 0) return sign;
  int shift = __builtin_clz(mantissa) - 8;
  return sign | (uint64_t)(897 - shift) << 52 | ((uint64_t)(mantissa << shift & 0x7fffff) << 29);
}

/* Rounds to nearest even, without branches, so that a loop is vectorised. */
static inline uint16_t ptx_half_nearest(uint32_t f) {
  uint32_t sign = f >> 16 & 0x8000, rest = f & 0x7fffffff;
  uint32_t normal = (rest + 0xfff + (rest >> 13 & 1) - 0x38000000) >> 13;
  /* Below 2^-14: adding 0.5 leaves the wanted bits at the end, rounded by the processor. */
  uint32_t small = ptx_bits(ptx_float(rest) + 0.5f) - 0x3f000000;
  uint32_t r = rest < 0x38800000 ? small : normal;
  r = rest >= 0x47800000 ? 0x7c00 : r;
  r = rest > 0x7f800000 ? 0x7fff : r;
  sign = rest > 0x7f800000 ? 0 : sign;
  return (uint16_t)(sign | r);
}

static inline uint16_t ptx_bfloat_nearest(uint32_t f) {
  uint32_t r = (f + 0x7fff + (f >> 16 & 1)) >> 16;
  return (uint16_t)((f & 0x7fffffff) > 0x7f800000 ? 0x7fff : r);
}

/*
 * Computes a * b + c, rounded once to a double whose last bit is set if bits were lost, so that a second
 * rounding, to 16 bits, is correct. The product of two 16-bit floats is exact in a double.
 */
static inline double ptx_fma_odd(double a, double b, double c) {
  double product = a * b;
  double sum = product + c;
  double back = sum - product;
  double error = (product - (sum - back)) + (c - back);
  uint64_t bits = ptx_bits64(sum);
  if (error != 0.0 && error == error && (bits & 1) == 0 && sum == sum &&
      (bits & 0x7fffffffffffffffull) < 0x7ff0000000000000ull) {
    /* towards the error: away from zero if it has the sum's sign */
    bits += (error > 0) == (sum > 0) ? 1 : (uint64_t)-1;
  }
  return ptx_double(bits);
}

/* Adds two floats. Subnormal operands and results become zeros of their sign. */
static inline uint32_t ptx_flushed_sum(uint32_t a, uint32_t b) {
  float x = ptx_float((a & 0x7f800000) == 0 ? a & 0x80000000 : a);
  float r = x + ptx_float((b & 0x7f800000) == 0 ? b & 0x80000000 : b);
  uint32_t bits = ptx_bits(r);
  if (r != r) return 0x7fffffff;
  return (bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits;
}

#endif
