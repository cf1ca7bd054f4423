/* X(suffix, type, unsigned type, wide type, bits) */
#define INTEGER_OPERATIONS(S, T, U, W, B)                                                                    \
  BINARY(add_##S, T, (U)x + (U)y)                                                                            \
  BINARY(sub_##S, T, (U)x - (U)y)                                                                            \
  BINARY(mul_##S, T, (U)((u64)(U)x * (u64)(U)y))                                                             \
  BINARY(mul_hi_##S, T, (W)x *(W)y >> B)                                                                     \
  TERNARY(mad_##S, T, (U)((u64)(U)x * (u64)(U)y + (u64)(U)z))                                                \
  TERNARY(mad_hi_##S, T, (U)((W)x * (W)y >> B) + (U)z)                                                       \
  BINARY(min_##S, T, x < y ? x : y)                                                                          \
  BINARY(max_##S, T, x > y ? x : y)                                                                          \
  TERNARY(sad_##S, T, (U)z + (x > y ? (U)x - (U)y : (U)y - (U)x))

INTEGER_OPERATIONS(u16, u16, u16, u32, 16)
INTEGER_OPERATIONS(s16, s16, u16, s32, 16)
INTEGER_OPERATIONS(u32, u32, u32, u64, 32)
INTEGER_OPERATIONS(s32, s32, u32, s64, 32)
INTEGER_OPERATIONS(u64, u64, u64, u128, 64)
INTEGER_OPERATIONS(s64, s64, u64, s128, 64)

/* On a GPU a division by zero gives all ones, and the dividend as remainder. The lowest value / -1 wraps. */
BINARY(div_u16, u16, y == 0 ? 0xffff : x / y)
/*
 * Four at a time, through doubles: a quotient that is no integer is further from the next one (2^-32 of it)
 * than rounding goes, whatever the mode. Adding 1.5 * 2^52 leaves an integer in the low half.
 */
#if defined(__AVX2__)
#include <immintrin.h>
static inline __m256d doubles_of_s32(__m128i x) {
  return _mm256_cvtepi32_pd(x);
}
static inline __m256d doubles_of_u32(__m128i x) {
  __m128i shifted = _mm_xor_si128(x, _mm_set1_epi32((int)0x80000000u));
  return _mm256_add_pd(_mm256_cvtepi32_pd(shifted), _mm256_set1_pd(2147483648.0));
}
static inline __m128i quotient4(__m256d x, __m256d y) {
  __m256d q = _mm256_round_pd(_mm256_div_pd(x, y), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  __m256i bits = _mm256_castpd_si256(_mm256_add_pd(q, _mm256_set1_pd(6755399441055744.0)));
  return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(bits, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6)));
}
#define DIVIDE32(S)                                                                                          \
  OPERATION(div_##S) {                                                                                       \
    UNUSED;                                                                                                  \
    for (int i = 0; i < PTX_LANES; i += 4) {                                                                 \
      __m128i x = _mm_loadu_si128((const __m128i *)(const void *)((const u32 *)av + i));                     \
      __m128i y = _mm_loadu_si128((const __m128i *)(const void *)((const u32 *)bv + i));                     \
      __m128i zero = _mm_cmpeq_epi32(y, _mm_setzero_si128());                                                \
      __m128i q = _mm_or_si128(quotient4(doubles_of_##S(x), doubles_of_##S(y)), zero);                       \
      _mm_storeu_si128((__m128i *)(void *)((u32 *)dv + i), q);                                               \
    }                                                                                                        \
  }                                                                                                          \
  OPERATION(rem_##S) {                                                                                       \
    UNUSED;                                                                                                  \
    for (int i = 0; i < PTX_LANES; i += 4) {                                                                 \
      __m128i x = _mm_loadu_si128((const __m128i *)(const void *)((const u32 *)av + i));                     \
      __m128i y = _mm_loadu_si128((const __m128i *)(const void *)((const u32 *)bv + i));                     \
      __m128i q = quotient4(doubles_of_##S(x), doubles_of_##S(y));                                           \
      _mm_storeu_si128((__m128i *)(void *)((u32 *)dv + i), _mm_sub_epi32(x, _mm_mullo_epi32(q, y)));         \
    }                                                                                                        \
  }
DIVIDE32(u32)
DIVIDE32(s32)
#else
BINARY(div_u32, u32, y == 0 ? 0xffffffffu : x / y)
BINARY(div_s32, s32, y == 0 ? -1 : y == -1 ? (s32)(0u - (u32)x) : x / y)
BINARY(rem_u32, u32, y == 0 ? x : x % y)
BINARY(rem_s32, s32, y == 0 ? x : y == -1 ? 0 : x % y)
#endif
BINARY(div_u64, u64, y == 0 ? ~0ull : x / y)
BINARY(div_s16, s16, y == 0 ? -1 : x / y)
BINARY(div_s64, s64, y == 0 ? -1 : y == -1 ? (s64)(0ull - (u64)x) : x / y)
BINARY(rem_u16, u16, y == 0 ? x : x % y)
BINARY(rem_u64, u64, y == 0 ? x : x % y)
BINARY(rem_s16, s16, y == 0 ? x : x % y)
BINARY(rem_s64, s64, y == 0 ? x : y == -1 ? 0 : x % y)

UNARY(abs_s16, s16, x < 0 ? (u16)0 - (u16)x : (u16)x)
UNARY(abs_s32, s32, x < 0 ? 0u - (u32)x : (u32)x)
UNARY(abs_s64, s64, x < 0 ? 0ull - (u64)x : (u64)x)
UNARY(neg_s16, u16, 0u - x)
UNARY(neg_s32, u32, 0u - x)
UNARY(neg_s64, u64, 0ull - x)

static inline s32 clamp32(s64 x) {
  return x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : (s32)x;
}
BINARY(add_sat_s32, s32, clamp32((s64)x + y))
BINARY(sub_sat_s32, s32, clamp32((s64)x - y))
TERNARY(mad_hi_sat_s32, s32, clamp32(((s64)x * y >> 32) + z))

#define LOGIC(S, T)                                                                                          \
  UNARY(mov_##S, T, x)                                                                                       \
  BINARY(and_##S, T, x &y)                                                                                   \
  BINARY(or_##S, T, x | y)                                                                                   \
  BINARY(xor_##S, T, x ^ y)                                                                                  \
  UNARY(not_##S, T, ~x)                                                                                      \
  UNARY(cnot_##S, T, x == 0 ? 1 : 0)
LOGIC(b16, u16)
LOGIC(b32, u32)
LOGIC(b64, u64)

/* Shift amounts have 32 bits. Amounts above the width count as the width. */
#define SHIFTS(B, U, S)                                                                                      \
  MIXED(shl_b##B, U, U, u32, u32, b[i] > B - 1 ? 0 : (U)((u64)a[i] << (b[i] & (B - 1))))                     \
  MIXED(shr_u##B, U, U, u32, u32, b[i] > B - 1 ? 0 : a[i] >> (b[i] & (B - 1)))                               \
  MIXED(shr_s##B, S, S, u32, u32, a[i] >> (b[i] > B - 1 ? B - 1 : b[i]))
SHIFTS(16, u16, s16)
SHIFTS(32, u32, s32)
SHIFTS(64, u64, s64)

/* Sources of half the result's width. */
MIXED(mul_wide_u16, u32, u16, u16, u16, (u32)a[i] * b[i])
MIXED(mul_wide_s16, s32, s16, s16, s16, (s32)a[i] * b[i])
MIXED(mul_wide_u32, u64, u32, u32, u32, (u64)a[i] * b[i])
MIXED(mul_wide_s32, s64, s32, s32, s32, (s64)a[i] * b[i])
MIXED(mad_wide_u16, u32, u16, u16, u32, (u32)a[i] * b[i] + c[i])
MIXED(mad_wide_s16, u32, s16, s16, u32, (u32)((s32)a[i] * b[i]) + c[i])
MIXED(mad_wide_u32, u64, u32, u32, u64, (u64)a[i] * b[i] + c[i])
MIXED(mad_wide_s32, u64, s32, s32, u64, (u64)((s64)a[i] * b[i]) + c[i])

#define LOW24U(x) ((u64)((x)&0xffffff))
#define LOW24S(x) ((s64)((s32)((u32)(x) << 8) >> 8))
BINARY(mul24_u32, u32, LOW24U(x) * LOW24U(y))
BINARY(mul24_s32, s32, LOW24S(x) * LOW24S(y))
BINARY(mul24_hi_u32, u32, LOW24U(x) * LOW24U(y) >> 16)
BINARY(mul24_hi_s32, s32, LOW24S(x) * LOW24S(y) >> 16)
TERNARY(mad24_u32, u32, (u32)(LOW24U(x) * LOW24U(y)) + z)
TERNARY(mad24_s32, s32, (u32)(LOW24S(x) * LOW24S(y)) + (u32)z)
TERNARY(mad24_hi_u32, u32, (u32)(LOW24U(x) * LOW24U(y) >> 16) + z)
TERNARY(mad24_hi_s32, s32, (u32)(LOW24S(x) * LOW24S(y) >> 16) + (u32)z)
TERNARY(mad24_hi_sat_s32, s32, clamp32((LOW24S(x) * LOW24S(y) >> 16) + z))

MIXED(popc_b32, u32, u32, u32, u32, __builtin_popcount(a[i]))
MIXED(popc_b64, u32, u64, u32, u32, __builtin_popcountll(a[i]))
MIXED(clz_b32, u32, u32, u32, u32, a[i] == 0 ? 32 : __builtin_clz(a[i]))
MIXED(clz_b64, u32, u64, u32, u32, a[i] == 0 ? 64 : __builtin_clzll(a[i]))

static inline u32 reverse32(u32 x) {
  x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
  x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
  x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
  return __builtin_bswap32(x);
}
static inline u64 reverse64(u64 x) {
  return (u64)reverse32((u32)x) << 32 | reverse32((u32)(x >> 32));
}
UNARY(brev_b32, u32, reverse32(x))
UNARY(brev_b64, u64, reverse64(x))

/* Returns the position of the most significant bit that differs from the sign. */
static inline u32 find_bit(u64 x, u32 shift) {
  if (x == 0) return 0xffffffffu;
  u32 at = 63 - (u32)__builtin_clzll(x);
  return shift == 0 ? at : shift - 1 - at;
}
MIXED(bfind_u32, u32, u32, u32, u32, find_bit(a[i], (m & M_SHIFTAMT) != 0 ? 32 : 0))
MIXED(bfind_s32, u32, s32, u32, u32, find_bit((u32)(a[i] < 0 ? ~a[i] : a[i]), (m & M_SHIFTAMT) != 0 ? 32 : 0))
MIXED(bfind_u64, u32, u64, u32, u32, find_bit(a[i], (m & M_SHIFTAMT) != 0 ? 64 : 0))
MIXED(bfind_s64, u32, s64, u32, u32, find_bit((u64)(a[i] < 0 ? ~a[i] : a[i]), (m & M_SHIFTAMT) != 0 ? 64 : 0))

/*
 * Bit fields: position and length are the low 8 bits. Beyond the top, signed fields are filled with the sign.
 */
static inline u64 field(u64 x, u32 position, u32 length, u32 bits, int is_signed) {
  position &= 0xff;
  length &= 0xff;
  if (length == 0) return 0;
  u32 top = position + length - 1;
  if (top > bits - 1) top = bits - 1;
  u64 sign = is_signed ? x >> top & 1 : 0;
  u64 fill = sign != 0 ? ~0ull : 0;
  u64 value = position > bits - 1 ? 0 : x >> position;
  u32 have = position > top ? 0 : top - position + 1;
  u64 mask = have >= 64 ? ~0ull : (1ull << have) - 1;
  if (have == 0) return fill;
  return (value & mask) | (fill & ~mask);
}
/* Like field() for 32 bits, without branches, so that compilers vectorise it. */
static inline u32 field32(u32 x, u32 position, u32 length, int is_signed) {
  position &= 0xff;
  length &= 0xff;
  u32 top = position + length - 1;
  top = top > 31 ? 31 : top;
  u32 fill = is_signed ? 0u - (x >> top & 1) : 0;
  u32 value = position > 31 ? 0 : x >> (position & 31);
  u32 have = position > top ? 0 : top - position + 1;
  u32 mask = have > 31 ? 0xffffffffu : (1u << (have & 31)) - 1;
  return length == 0 ? 0 : (value & mask) | (fill & ~mask);
}
MIXED(bfe_u32, u32, u32, u32, u32, field32(a[i], b[i], c[i], 0))
MIXED(bfe_s32, u32, u32, u32, u32, field32(a[i], b[i], c[i], 1))
MIXED(bfe_u64, u64, u64, u32, u32, field(a[i], b[i], c[i], 64, 0))
MIXED(bfe_s64, u64, u64, u32, u32, field(a[i], b[i], c[i], 64, 1))

/* When this is called, d has the fourth operand, the length: see the decoder. */
static inline u64 insert(u64 a, u64 b, u32 position, u32 length, u32 bits) {
  position &= 0xff;
  length &= 0xff;
  if (length == 0 || position > bits - 1) return b;
  u64 mask = length >= 64 ? ~0ull : (1ull << length) - 1;
  mask <<= position;
  return (b & ~mask) | (a << position & mask);
}
static inline u32 insert32(u32 a, u32 b, u32 position, u32 length) {
  length &= 0xff;
  u32 mask = (length > 31 ? 0xffffffffu : (1u << (length & 31)) - 1) << (position & 31);
  u32 r = (b & ~mask) | (a << (position & 31) & mask);
  return position > 31 ? b : r; /* and of no length: mask is 0 */
}
MIXED(bfi_b32, u32, u32, u32, u32, insert32(a[i], b[i], c[i] & 0xff, c[i] >> 8))
MIXED(bfi_b64, u64, u64, u64, u32, insert(a[i], b[i], c[i] & 0xff, c[i] >> 8, 64))

static inline u32 pick(u64 bytes, u32 selector) {
  u32 byte = (u32)(bytes >> (selector & 7) * 8) & 0xff;
  return (selector & 8) != 0 ? ((byte & 0x80) != 0 ? 0xff : 0) : byte;
}
static inline u32 permute(u32 a, u32 b, u32 c, u32 mode) {
  u64 bytes = (u64)b << 32 | a;
  u32 s = c & 3;
  switch (mode) {
    case 1:
      return (u32)(s == 0 ? bytes : bytes >> s * 8); /* f4e */
    case 2:                                          /* b4e: downwards */
      return pick(bytes, s) | pick(bytes, (s - 1) & 7) << 8 | pick(bytes, (s - 2) & 7) << 16 |
             pick(bytes, (s - 3) & 7) << 24;
    case 3:
      return pick(bytes, s) * 0x01010101u; /* rc8 */
    case 4:                                /* ecl */
      return pick(bytes, s > 0 ? s : 0) | pick(bytes, s > 1 ? s : 1) << 8 | pick(bytes, s > 2 ? s : 2) << 16 |
             pick(bytes, 3) << 24;
    case 5: /* ecr */
      return pick(bytes, 0) | pick(bytes, s < 1 ? s : 1) << 8 | pick(bytes, s < 2 ? s : 2) << 16 |
             pick(bytes, s < 3 ? s : 3) << 24;
    case 6:
      s = (c & 1) * 2;
      return (pick(bytes, s) | pick(bytes, s + 1) << 8) * 0x00010001u; /* rc16 */
    default:
      return pick(bytes, c) | pick(bytes, c >> 4) << 8 | pick(bytes, c >> 8) << 16 |
             pick(bytes, c >> 12) << 24;
  }
}
OPERATION(prmt_b32) {
  u32 *d = dv;
  const u32 *a = av, *b = bv, *c = cv;
  if (m == 0) {
    LANES {
      u64 bytes = (u64)b[i] << 32 | a[i];
      u32 r = 0;
      for (int k = 0; k < 4; k++) {
        u32 s = c[i] >> (k * 4) & 15;
        u32 byte = (u32)(bytes >> ((s & 7) * 8)) & 0xff;
        u32 sign = (0u - (byte >> 7)) & 0xff;
        r |= ((s & 8) != 0 ? sign : byte) << (k * 8);
      }
      d[i] = r;
    }
  } else {
    for (int i = 0; i < PTX_LANES; i++) d[i] = permute(a[i], b[i], c[i], m);
  }
}

/* m: bits of each, and whether they have a sign */
OPERATION(cvt_pack_b32) {
  u32 *d = dv;
  const s32 *a = av, *b = bv;
  const u32 *c = cv;
  const u32 bits = m & 31;
  const int with_sign = (m & M_SIGNED_A) != 0;
  const s32 most = (s32)((1u << (with_sign ? bits - 1 : bits)) - 1), least = with_sign ? -most - 1 : 0;
  const u32 mask = (1u << bits) - 1;
  LANES {
    u32 x = (u32)(a[i] > most ? most : a[i] < least ? least : a[i]) & mask;
    u32 y = (u32)(b[i] > most ? most : b[i] < least ? least : b[i]) & mask;
    d[i] = (u32)((u64)c[i] << 2 * bits) | x << bits | y;
  }
}

OPERATION(lop3_b32) {
  u32 *d = dv;
  const u32 *a = av, *b = bv, *c = cv;
  /* each bit of the table is a minterm */
  u32 t[8];
  for (int k = 0; k < 8; k++) t[k] = (m >> k & 1) != 0 ? ~0u : 0;
  LANES {
    u32 x = a[i], y = b[i], z = c[i];
    u32 low = (~z & ((~y & t[0]) | (y & t[2]))) | (z & ((~y & t[1]) | (y & t[3])));
    u32 high = (~z & ((~y & t[4]) | (y & t[6]))) | (z & ((~y & t[5]) | (y & t[7])));
    d[i] = (~x & low) | (x & high);
  }
}

static inline u32 funnel(u32 low, u32 high, u32 n, int left, int wrap) {
  n = wrap ? n & 31 : n > 32 ? 32 : n;
  u64 both = (u64)high << 32 | low;
  if (left) return n == 32 ? low : (u32)(both << n >> 32);
  return (u32)(n == 32 ? high : both >> n);
}
MIXED(shf_l_b32, u32, u32, u32, u32, funnel(a[i], b[i], c[i], 1, (m & M_WRAP) != 0))
MIXED(shf_r_b32, u32, u32, u32, u32, funnel(a[i], b[i], c[i], 0, (m & M_WRAP) != 0))

OPERATION(dp4a_b32) {
  u32 *d = dv;
  const u32 *a = av, *b = bv, *c = cv;
#define DOT4(X, Y)                                                                                           \
  LANES {                                                                                                    \
    u32 x = a[i], y = b[i];                                                                                  \
    s32 r = (s32)(X)x * (Y)y + (s32)(X)(x >> 8) * (Y)(y >> 8) + (s32)(X)(x >> 16) * (Y)(y >> 16) +           \
            (s32)(X)(x >> 24) * (Y)(y >> 24);                                                                \
    d[i] = c[i] + (u32)r;                                                                                    \
  }
  switch (m & (M_SIGNED_A | M_SIGNED_B)) {
    case M_SIGNED_A | M_SIGNED_B:
      DOT4(s8, s8)
      break;
    case M_SIGNED_A:
      DOT4(s8, u8)
      break;
    case M_SIGNED_B:
      DOT4(u8, s8)
      break;
    default:
      DOT4(u8, u8)
  }
}
OPERATION(dp2a_b32) {
  u32 *d = dv;
  const u32 *a = av, *b = bv, *c = cv;
  const int sa = (m & M_SIGNED_A) != 0, sb = (m & M_SIGNED_B) != 0, high = (m & M_HIGH) != 0 ? 16 : 0;
  LANES {
    u32 r = c[i];
    for (int k = 0; k < 2; k++) {
      s32 x = sa ? (s16)(a[i] >> k * 16) : (s32)(u16)(a[i] >> k * 16);
      s32 y = sb ? (s8)(b[i] >> (high + k * 8)) : (s32)(u8)(b[i] >> (high + k * 8));
      r += (u32)(x * y);
    }
    d[i] = r;
  }
}

/* Finds the nth set bit of a from position b on. c is n: negative goes to the right, 0 is b itself. */
static inline u32 nth_set(u32 mask, u32 base, s32 offset) {
  if (base > 31) return 0xffffffffu;
  if (offset == 0) return (mask >> base & 1) != 0 ? base : 0xffffffffu;
  s32 step = offset > 0 ? 1 : -1;
  u32 left = (u32)(offset > 0 ? (s64)offset : -(s64)offset);
  for (s32 at = (s32)base; at >= 0 && at < 32; at += step) {
    if ((mask >> at & 1) != 0 && --left == 0) return (u32)at;
  }
  return 0xffffffffu;
}
MIXED(fns_b32, u32, u32, u32, s32, nth_set(a[i], b[i], c[i]))

static inline u32 extend(u32 x, u32 n, int is_signed, int wrap) {
  n = wrap ? n & 31 : n > 32 ? 32 : n;
  if (n == 0) return 0;
  if (n == 32) return x;
  return is_signed ? (u32)((s32)(x << (32 - n)) >> (32 - n)) : x & ((1u << n) - 1);
}
MIXED(szext_u32, u32, u32, u32, u32, extend(a[i], b[i], 0, (m & M_WRAP) != 0))
MIXED(szext_s32, u32, u32, u32, u32, extend(a[i], b[i], 1, (m & M_WRAP) != 0))
static inline u32 bit_mask(u32 position, u32 length, int wrap) {
  position = wrap ? position & 31 : position;
  length = wrap ? length & 31 : length > 32 ? 32 : length;
  u64 mask = (1ull << length) - 1;
  return position > 31 ? 0 : (u32)(mask << position);
}
MIXED(bmsk_b32, u32, u32, u32, u32, bit_mask(a[i], b[i], (m & M_WRAP) != 0))

/* c is a predicate: a bit a lane. */
#define SELECTIONS(S, T, I)                                                                                  \
  OPERATION(selp_##S) {                                                                                      \
    UNUSED;                                                                                                  \
    T *d = dv;                                                                                               \
    const T *a = av, *b = bv;                                                                                \
    u32 p;                                                                                                   \
    memcpy(&p, cv, 4);                                                                                       \
    LANES d[i] = (p >> i & 1) != 0 ? a[i] : b[i];                                                            \
  }                                                                                                          \
  MIXED(slct_s_##S, T, T, T, s32, c[i] >= 0 ? a[i] : b[i])                                                   \
  MIXED(slct_f_##S, T, T, T, float, c[i] >= 0.0f ? a[i] : b[i])
SELECTIONS(b16, u16, s16)
SELECTIONS(b32, u32, s32)
SELECTIONS(b64, u64, s64)

MIXED(pack_b32, u32, u16, u16, u16, a[i] | (u32)b[i] << 16)
MIXED(pack_b64, u64, u32, u32, u32, a[i] | (u64)b[i] << 32)
MIXED(pack_b16, u32, u32, u32, u32, (a[i] & 0xff) | (b[i] & 0xff) << 8)
MIXED(low_b32, u16, u32, u32, u32, a[i])
MIXED(high_b32, u16, u32, u32, u32, a[i] >> 16)
MIXED(low_b64, u32, u64, u32, u32, a[i])
MIXED(high_b64, u32, u64, u32, u32, a[i] >> 32)

#define PACKED16(name, T, expression)                                                                        \
  OPERATION(name) {                                                                                          \
    UNUSED;                                                                                                  \
    T *d = dv;                                                                                               \
    const T *a = av, *b = bv;                                                                                \
    for (int i = 0; i < 2 * PTX_LANES; i++) {                                                                \
      const T x = a[i], y = b[i];                                                                            \
      d[i] = (T)(expression);                                                                                \
    }                                                                                                        \
  }
PACKED16(add_u16x2, u16, x + y)
PACKED16(min_u16x2, u16, x < y ? x : y)
PACKED16(max_u16x2, u16, x > y ? x : y)
PACKED16(min_s16x2, s16, x < y ? x : y)
PACKED16(max_s16x2, s16, x > y ? x : y)

/* m = op | a's part << 4 | b's << 8 | d's << 12 | signs << 16 | second op << 20 (decode_video.c) */
static inline s64 video_part(u32 x, u32 part, int is_signed) {
  switch (part) {
    case 1:
    case 2:
    case 3:
    case 4:
      x >>= (part - 1) * 8;
      return is_signed ? (s64)(s8)x : (s64)(u8)x;
    case 5:
    case 6:
      x >>= (part - 5) * 16;
      return is_signed ? (s64)(s16)x : (s64)(u16)x;
    default:
      return is_signed ? (s64)(s32)x : (s64)x;
  }
}
/* vmad, as the ISA's pseudocode: scale at bit 20; one is added, product or c negated: bits 24 to 26. */
static inline u32 video_mad(s64 a, s64 b, u32 xc, u32 m) {
  int less = m >> 25 & 1, minus = m >> 26 & 1, sat = m >> 19 & 1,
      is_signed = (m >> 16 & 3) != 0 || less || minus;
  u32 scale = m >> 20 & 3, one = (m >> 24 & 7) != 0;
  __int128 sum = (__int128)a * b;
  if (less) sum = ~sum;
  if (minus) xc = ~xc;
  sum += (is_signed ? (s64)(s32)xc : (s64)xc) + (s64)one;
  u64 bits = (u64)(sum >> (scale == 0 ? 0 : scale == 1 ? 7 : 15));
  if (!sat) return (u32)bits;
  if (!is_signed) return bits > UINT32_MAX ? UINT32_MAX : (u32)bits;
  s64 r = (s64)bits;
  return (u32)(r < INT32_MIN ? INT32_MIN : r > INT32_MAX ? INT32_MAX : r);
}

static inline u32 video(u32 xa, u32 xb, u32 xc, u32 m) {
  u32 op = m & 15;
  int sa = m >> 16 & 1, sb = m >> 17 & 1, sd = m >> 18 & 1, sat = m >> 19 & 1;
  u32 second = m >> 20 & 7, dpart = m >> 12 & 15;
  int wrap = m >> 23 & 1;
  s64 a = video_part(xa, m >> 4 & 15, sa), b = video_part(xb, m >> 8 & 15, sb), r;
  if (op == 13) return video_mad(a, b, xc, m);
  switch (op) {
    case 0:
      r = a + b;
      break;
    case 1:
      r = a - b;
      break;
    case 2:
      r = a > b ? a - b : b - a;
      break;
    case 3:
      r = a < b ? a : b;
      break;
    case 4:
      r = a > b ? a : b;
      break;
    case 5:
    case 6: {
      u32 n = (u32)b;
      n = wrap ? n & 31 : n > 32 ? 32 : n;
      r = op == 5 ? (s64)((u64)a << n) : a >> n;
      break;
    }
    default: { /* vset: comparison op - 7 */
      u32 compare = op - 7;
      r = compare == 0   ? a == b
          : compare == 1 ? a != b
          : compare == 2 ? a < b
          : compare == 3 ? a <= b
          : compare == 4 ? a > b
                         : a >= b;
    }
  }
  u32 width = dpart >= 1 && dpart <= 4 ? 8 : dpart >= 5 && dpart <= 6 ? 16 : 32;
  if (sat) {
    s64 low = sd ? -(1ll << (width - 1)) : 0, high = sd ? (1ll << (width - 1)) - 1 : (1ll << width) - 1;
    r = r < low ? low : r > high ? high : r;
  }
  u32 value = (u32)r;
  if (dpart != 0) {
    u32 shift = dpart <= 4 ? (dpart - 1) * 8 : (dpart - 5) * 16;
    u32 mask = (width == 8 ? 0xffu : 0xffffu) << shift;
    return (xc & ~mask) | (value << shift & mask);
  }
  switch (second) {
    case 1:
      return value + xc;
    case 2:
      return sd ? ((s32)value < (s32)xc ? value : xc) : value < xc ? value : xc;
    case 3:
      return sd ? ((s32)value > (s32)xc ? value : xc) : value > xc ? value : xc;
    default:
      return value;
  }
}
MIXED(video_b32, u32, u32, u32, u32, video(a[i], b[i], c[i], m))

/* vadd2, vset4 and similar: m = operation (V_*) | V_QUAD and so on | mask << V_MASK (decode_video.c). */
static inline s64 video_lane(u32 x, int i, int width, int is_signed) {
  const u32 bits = x >> (i * width);
  return width == 8 ? (is_signed ? (s64)(s8)bits : (s64)(u8)bits)
                    : (is_signed ? (s64)(s16)bits : (s64)(u16)bits);
}
static inline s64 video_clamp(s64 t, int width, int is_signed) {
  const s64 low = is_signed ? -(1ll << (width - 1)) : 0;
  const s64 high = is_signed ? (1ll << (width - 1)) - 1 : (1ll << width) - 1;
  return t < low ? low : t > high ? high : t;
}
static inline s64 video_operation(s64 a, s64 b, u32 op) {
  switch (op) {
    case V_ADD:
      return a + b;
    case V_SUB:
      return a - b;
    case V_AVRG: /* to the nearest, halves away from zero */
      return a + b >= 0 ? (a + b + 1) >> 1 : (a + b) >> 1;
    case V_ABSDIFF:
      return a > b ? a - b : b - a;
    case V_MIN:
      return a < b ? a : b;
    case V_MAX:
      return a > b ? a : b;
    case V_EQ:
      return a == b;
    case V_NE:
      return a != b;
    case V_LT:
      return a < b;
    case V_LE:
      return a <= b;
    case V_GT:
      return a > b;
    default:
      return a >= b;
  }
}
static inline u32 video_simd(u32 a, u32 b, u32 c, u32 m) {
  const int width = (m & V_QUAD) != 0 ? 8 : 16;
  u32 d = c;
  for (int i = 0; i < 32 / width; i++) {
    if ((m >> (V_MASK + i) & 1) == 0) continue;
    s64 t = video_operation(video_lane(a, i, width, (m & V_SIGNED_A) != 0),
                            video_lane(b, i, width, (m & V_SIGNED_B) != 0), m & V_OPERATION);
    if ((m & V_SAT) != 0) t = video_clamp(t, width, (m & V_SIGNED_D) != 0);
    if ((m & V_SUM) != 0) {
      d += (u32)t;
    } else {
      const u32 field = ((1u << width) - 1) << (i * width);
      d = (d & ~field) | ((u32)t << (i * width) & field);
    }
  }
  return d;
}
MIXED(video_simd_b32, u32, u32, u32, u32, video_simd(a[i], b[i], c[i], m))
