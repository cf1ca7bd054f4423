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
 * Eight floats at a time, by polynomials with the least largest error, which is smaller than that of
 * rounding. The largest errors of all floats are in docs/reference/software-gpu.md.
 */
#include "host/backend/software/ptx/alu/simd8.h"

/* log2(x): x = 2^e * (1 + f), 1 + f in [1/sqrt 2, sqrt 2); even and odd powers of f apart. */
EIGHT_FUNCTION floats8 log2_normal(words8 bits, floats8 less) {
  const ints8 e = (ints8)(bits - 0x3f3504f3) >> 23;
  const floats8 f = (floats8)(bits - ((words8)e << 23)) - 1.0f, g = f * f;
  floats8 even = fused8_by(g, all8(0x1.01b6e8p-3f), 0x1.b9c91ap-3f);
  floats8 odd = fused8_by(g, all8(-0x1.a87d18p-3f), -0x1.e95be4p-3f);
  even = fused8_by(g, even, 0x1.26d384p-2f);
  odd = fused8_by(g, odd, -0x1.715c4ep-2f);
  even = fused8_by(g, even, 0x1.ec73d6p-2f);
  odd = fused8_by(g, odd, -0x1.715470p-1f);
  even = fused8_by(g, even, 0x1.715476p+0f);
  return fused8(f, fused8(f, odd, even), __builtin_convertvector(e, floats8) - less);
}
EIGHT_FUNCTION floats8 log2_of(floats8 x, bool flushes) {
  words8 bits = (words8)x;
  floats8 less = all8(0.0f);
  ints8 special = (ints8)(bits - 0x00800000 >= 0x7f000000);
  if (!any8(special)) return log2_normal(bits, less);
  const ints8 size = (ints8)(bits & 0x7fffffff), tiny = size < 0x00800000;
  floats8 result = choose8(x == INFINITY, x, all8(ptx_float(0x7fffffff)));
  if (any8(tiny)) {
    const ints8 zero = size < (flushes ? 0x00800000 : 1), small = tiny & ~zero & ((ints8)bits > 0);
    result = choose8(zero, all8(-INFINITY), result);
    if (any8(small)) {
      /* a subnormal is scaled by 2^24 with integer arithmetic, which the processor cannot flush */
      const floats8 scaled = __builtin_convertvector(size & small, floats8) * 0x1p-125f;
      bits = (words8)choose8(small, scaled, x);
      less = choose8(small, all8(24.0f), less);
      special &= ~small;
    }
  }
  if (!any8(~special)) return result;
  return choose8(special, result, log2_normal(bits, less));
}

/*
 * sin and cos: x = k * pi/2 + r, |r| < 0.79, with pi/2 in three floats, none negative, so that -0 stays. From
 * 2^16 on, where k has too many bits, one by one.
 */
EIGHT_FUNCTION floats8 circle_of(floats8 x, u32 quarter) {
  const float shift = 0x1.8p23f;
  const floats8 turned = fused8_by(x, all8(0x1.45f306p-1f), shift), k = turned - shift;
  floats8 r = fused8(k, all8(-0x1.921fb4p+0f), x);
  r = fused8(k, all8(-0x1.4442d0p-24f), r);
  r = fused8(k, all8(-0x1.84698ap-48f), r);
  const floats8 q = r * r;
  floats8 sine = fused8_by(q, all8(-0x1.9834cap-13f), 0x1.110394p-7f);
  sine = fused8(r * q, fused8_by(q, sine, -0x1.55553ap-3f), r);
  sine = (floats8)((words8)sine | ((words8)r & 0x80000000)); /* of -0 the sine is -0 */
  floats8 cosine = fused8_by(q, all8(0x1.9976fap-16f), -0x1.6c0aa2p-10f);
  cosine = fused8_by(q, cosine, 0x1.555548p-5f);
  cosine = fused8_by(q, fused8_by(q, cosine, -0.5f), 1.0f);
  const words8 turns = (words8)turned + quarter;
  const floats8 result = choose8(-(ints8)(turns & 1), cosine, sine);
  return (floats8)((words8)result ^ (turns & 2) << 30);
}
/*
 * For large numbers, in doubles: adding 1.5 * 2^52 leaves k in the last bits. Beyond 2^20, where k * pi/2 has
 * more bits than two doubles hold, the C library's.
 */
static float circle_far(float x, u32 quarter) {
  if (!(__builtin_fabsf(x) < 1048576.0f)) return CANON(quarter != 0 ? cosf(x) : sinf(x));
  const double shift = 6755399441055744.0;
  double turned = (double)x * 0.63661977236758134 + shift;
  u32 k = (u32)ptx_bits64(turned) + quarter;
  double whole = turned - shift;
  double r = ((double)x - whole * 1.5707963267341256) - whole * 6.0771005065061922e-11;
  double q = r * r;
  double sine = -1.9841269841269841e-4 + q * 2.7557319223985893e-6;
  sine = 8.3333333333333333e-3 + q * sine;
  sine = -0.16666666666666667 + q * sine;
  sine = r * (1.0 + q * sine);
  double cosine = 2.4801587301587302e-5 + q * -2.7557319223985888e-7;
  cosine = -1.3888888888888889e-3 + q * cosine;
  cosine = 4.1666666666666667e-2 + q * cosine;
  cosine = -0.5 + q * cosine;
  cosine = 1.0 + q * cosine;
  float result = (float)((k & 1) != 0 ? cosine : sine);
  return ptx_float(ptx_bits(result) ^ (k & 2) << 30);
}
#define CIRCLE(name, quarter)                                                                                \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    float *d = dv;                                                                                           \
    const float *a = av;                                                                                     \
    for (int i = 0; i < PTX_LANES; i += 8) {                                                                 \
      const floats8 x = load8(a + i);                                                                        \
      const ints8 size = (ints8)((words8)x & 0x7fffffff), far = size >= (s32)0x47800000;                     \
      const floats8 r = circle_of(x, quarter);                                                               \
      store8(d + i, r);                                                                                      \
      if (!any8(far)) continue;                                                                              \
      const ints8 finite = size < (s32)0x7f800000;                                                           \
      store8(d + i, choose8(finite, r, all8(ptx_float(0x7fffffff))));                                        \
      if (!any8(far & finite)) continue;                                                                     \
      for (int k = 0; k < 8; k++) {                                                                          \
        if ((far & finite)[k] != 0) d[i + k] = circle_far(x[k], quarter);                                    \
      }                                                                                                      \
    }                                                                                                        \
  }
CIRCLE(sin_f32, 0)
CIRCLE(cos_f32, 1)

/*
 * tanh is (y - 1) / (y + 1), where y = e^2x = 2^n * 2^f, f in [-0.5, 0.5]. The polynomial is 2^f without 1,
 * so that little is lost where x is small. From 10 on the result is 1.
 */
EIGHT_FUNCTION floats8 tanh_positive(floats8 x) {
  const float shift = 0x1.8p23f;
  const floats8 turned = fused8_by(x, all8(0x1.715476p+1f), shift), n = turned - shift;
  const floats8 f = fused8(x, all8(0x1.715476p+1f), -n);
  const floats8 g = f * f, two_n = (floats8)(((words8)turned << 23) + 0x3f800000);
  floats8 even = fused8_by(g, all8(0x1.00e644p-16f), 0x1.5d873ep-10f);
  floats8 odd = fused8_by(g, all8(0x1.444c98p-13f), 0x1.3b2a0ep-7f);
  even = fused8_by(g, even, 0x1.c6b08ep-5f);
  odd = fused8_by(g, odd, 0x1.ebfbe0p-3f);
  even = fused8_by(g, even, 0x1.62e430p-1f);
  const floats8 p = f * fused8(f, odd, even), less_one = fused8(two_n, p, two_n - 1.0f);
  return less_one / (less_one + 2.0f);
}
/* Below 2^-12, x itself is nearest. */
EIGHT_FUNCTION floats8 tanh_of(floats8 x) {
  const floats8 size = (floats8)((words8)x & 0x7fffffff);
  floats8 r = choose8(size < 0x1p-12f, size, tanh_positive(least8(10.0f, size)));
  r = (floats8)((words8)r | ((words8)x & 0x80000000));
  return choose8(x != x, all8(ptx_float(0x7fffffff)), r);
}

/* 2^x = 2^n * 2^f, f in [-0.5, 0.5], n at the end of a float. The last step makes subnormals. */
EIGHT_FUNCTION floats8 ex2_fraction(floats8 f) {
  const floats8 g = f * f;
  floats8 even = fused8_by(g, all8(0x1.41fbc4p-13f), 0x1.3b2d4cp-7f);
  floats8 odd = fused8_by(g, all8(0x1.5f3e52p-10f), 0x1.c6aee8p-5f);
  even = fused8_by(g, even, 0x1.ebfbdcp-3f);
  odd = fused8_by(g, odd, 0x1.62e430p-1f);
  return fused8_by(f, fused8(f, even, odd), 1.0f);
}
EIGHT_FUNCTION floats8 ex2_of(floats8 x) {
  const float shift = 0x1.8p23f;
  const floats8 bounded = most8(-160.0f, least8(129.0f, x)), turned = bounded + shift;
  const floats8 p = ex2_fraction(bounded - (turned - shift));
  const words8 n = (words8)turned << 23, half = (words8)turned >> 1 << 23;
  /* adding -0 changes nothing, but on AMD a multiplication alone is slow with subnormals */
  const floats8 r = fused8_by((floats8)((words8)p + half), (floats8)(n - half + 0x3f800000), -0.0f);
  return choose8(x != x, all8(ptx_float(0x7fffffff)), r);
}

#define BY_EIGHTS(name, expression)                                                                          \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    float *d = dv;                                                                                           \
    const float *a = av;                                                                                     \
    for (int i = 0; i < PTX_LANES; i += 8) {                                                                 \
      const floats8 x = load8(a + i);                                                                        \
      store8(d + i, expression);                                                                             \
    }                                                                                                        \
  }
BY_EIGHTS(lg2_f32, log2_of(x, (m & M_FTZ) != 0))
BY_EIGHTS(tanh_f32, tanh_of(x))
BY_EIGHTS(ex2_f32, ex2_of(x))

/*
 * The functions for operands of 16 bits, with shorter polynomials: every result is the exact one, rounded.
 * `ex2` is for numbers from -127 to 128.
 */
EIGHT_FUNCTION floats8 ex2_half(floats8 x) {
  const float shift = 0x1.8p23f;
  const floats8 turned = x + shift, f = x - (turned - shift);
  floats8 p = fused8_by(f, all8(0x1.5bba12p-10f), 0x1.3cea88p-7f);
  p = fused8_by(f, p, 0x1.c6b752p-5f);
  p = fused8_by(f, p, 0x1.ebf9bcp-3f);
  p = fused8_by(f, p, 0x1.62e42ap-1f);
  p = fused8_by(f, p, 1.0f);
  return (floats8)((words8)p + ((words8)turned << 23));
}
EIGHT_FUNCTION floats8 ex2_bfloat(floats8 x) {
  const float shift = 0x1.8p23f;
  const floats8 turned = x + shift, f = x - (turned - shift), g = f * f;
  floats8 p = fused8_by(f, all8(0x1.c9fc46p-5f), 0x1.ec0378p-3f);
  p = fused8(g, fused8(g, all8(0x1.3a02cep-7f), p), fused8_by(f, all8(0x1.62e12cp-1f), 1.0f));
  return (floats8)((words8)p + ((words8)turned << 23));
}
/*
 * tanh(x) = x (1 - q a / b), q = x^2, a and b polynomials in q, up to the least number whose result is 1:
 * TANH_MOST. The sign of zero stays.
 */
#define TANH_MOST_HALF 4.5078125f
#define TANH_MOST_HALF_BITS 0x4482
EIGHT_FUNCTION floats8 tanh_half(floats8 x) {
  const floats8 q = x * x;
  floats8 a = fused8_by(q, all8(-0x1.efe86ep-1f), -0x1.c2fdfcp+6f);
  floats8 b = fused8_by(q, q + 0x1.fd6206p+6f, 0x1.475dbp+11f);
  a = fused8_by(q, a, -0x1.db24bcp+10f);
  b = fused8_by(q, b, 0x1.645b9ap+12f);
  return x * fused8_by(q, a / b, 1.0f);
}
#define TANH_MOST_BFLOAT 3.5f
#define TANH_MOST_BFLOAT_BITS 0x4060
EIGHT_FUNCTION floats8 tanh_bfloat(floats8 x) {
  const floats8 q = x * x;
  const floats8 a = fused8_by(q, all8(-0x1.e24628p-1f), -0x1.76bdfep+4f);
  const floats8 b = fused8_by(q, q + 0x1.eec1bp+4f, 0x1.1915bp+6f);
  return x * fused8_by(q, a / b, 1.0f);
}
