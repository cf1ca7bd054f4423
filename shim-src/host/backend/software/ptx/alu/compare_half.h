/* As integers, by keys that keep the order; both zeros have key 0. Included by alu_compare.h. */

/* name, where it is true of a pair of numbers, and whether it is of a NaN */
#define HALF_COMPARISONS(X, ...)                                                                             \
  X(eq, k == l, 0, __VA_ARGS__)                                                                              \
  X(ne, k != l, 0, __VA_ARGS__)                                                                              \
  X(lt, k < l, 0, __VA_ARGS__)                                                                               \
  X(le, k <= l, 0, __VA_ARGS__)                                                                              \
  X(gt, k > l, 0, __VA_ARGS__)                                                                               \
  X(ge, k >= l, 0, __VA_ARGS__)                                                                              \
  X(equ, k == l, 1, __VA_ARGS__)                                                                             \
  X(neu, k != l, 1, __VA_ARGS__)                                                                             \
  X(ltu, k < l, 1, __VA_ARGS__)                                                                              \
  X(leu, k <= l, 1, __VA_ARGS__)                                                                             \
  X(gtu, k > l, 1, __VA_ARGS__)                                                                              \
  X(geu, k >= l, 1, __VA_ARGS__)                                                                             \
  X(num, k == k, 0, __VA_ARGS__)                                                                             \
  X(nan, k != k, 1, __VA_ARGS__)

#if defined(__AVX2__)
/* All ones or 0. Operators of compiler vectors compare element by element. */
typedef s16 sixteen_keys __attribute__((vector_size(32)));
#define COMPARE_SIXTEEN(name, condition, unordered, S, top)                                                  \
  static inline __m256i name##_##S##_16(const u16 *a, const u16 *b) {                                        \
    const __m256i x = load16(a), y = load16(b);                                                              \
    const __m256i most = _mm256_max_epi16(size16(x), size16(y));                                             \
    const __m256i nan = _mm256_cmpgt_epi16(most, _mm256_set1_epi16(top));                                    \
    const sixteen_keys k = (sixteen_keys)_mm256_sign_epi16(size16(x), x);                                    \
    const sixteen_keys l = (sixteen_keys)_mm256_sign_epi16(size16(y), y);                                    \
    (void)l;                                                                                                 \
    const __m256i is = (__m256i)(condition);                                                                 \
    return (unordered) ? _mm256_or_si256(is, nan) : _mm256_andnot_si256(nan, is);                            \
  }                                                                                                          \
  static uint32_t name##_##S(const void *av, const void *bv) {                                               \
    const u16 *a = av, *b = bv;                                                                              \
    const __m256i low = name##_##S##_16(a, b), high = name##_##S##_16(a + 16, b + 16);                       \
    /* the instruction takes turns with the halves of both */                                                \
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);                     \
    return (u32)_mm256_movemask_epi8(bytes);                                                                 \
  }                                                                                                          \
  static uint64_t name##_##S##x2(const void *av, const void *bv) {                                           \
    const u16 *a = av, *b = bv;                                                                              \
    u64 low = 0, high = 0;                                                                                   \
    _Pragma("GCC unroll 4") for (int i = 0; i < 2 * PTX_LANES; i += 16) {                                    \
      const __m256i is = name##_##S##_16(a + i, b + i);                                                      \
      low |= (u64)(u32)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_slli_epi32(is, 16))) << (i / 2);        \
      high |= (u64)(u32)_mm256_movemask_ps(_mm256_castsi256_ps(is)) << (i / 2);                              \
    }                                                                                                        \
    return low | high << 32;                                                                                 \
  }
#else
static inline s32 half_key(u16 x) {
  const s32 size = x & 0x7fff;
  return (x & 0x8000) != 0 ? -size : size;
}
#define COMPARE_SIXTEEN(name, condition, unordered, S, top)                                                  \
  static inline bool name##_##S##_of(u16 x, u16 y) {                                                         \
    const s32 k = half_key(x), l = half_key(y);                                                              \
    const bool nan = (x & 0x7fff) > (top) || (y & 0x7fff) > (top);                                           \
    (void)l;                                                                                                 \
    return (unordered) ? nan || (condition) : !nan && (condition);                                           \
  }                                                                                                          \
  COMPARE(name##_##S, u16, u32, name##_##S##_of(x, y))                                                       \
  static uint64_t name##_##S##x2(const void *av, const void *bv) {                                           \
    const u32 *a = av, *b = bv;                                                                              \
    u8 low[PTX_LANES], high[PTX_LANES];                                                                      \
    LANES {                                                                                                  \
      low[i] = name##_##S##_of((u16)a[i], (u16)b[i]);                                                        \
      high[i] = name##_##S##_of((u16)(a[i] >> 16), (u16)(b[i] >> 16));                                       \
    }                                                                                                        \
    return ptx_gather_bits(low) | (u64)ptx_gather_bits(high) << 32;                                          \
  }
#endif
HALF_COMPARISONS(COMPARE_SIXTEEN, f16, 0x7c00)
HALF_COMPARISONS(COMPARE_SIXTEEN, bf16, 0x7f80)

#define SPREAD(T, U)                                                                                         \
  static void spread_##T(void *dv, uint64_t t, uint64_t yes) {                                               \
    T *d = dv;                                                                                               \
    const U bits = (U)t, value = (U)yes;                                                                     \
    LANES d[i] = (T)((bits >> i & 1) != 0 ? value : 0);                                                      \
  }
SPREAD(u16, u32)
SPREAD(u32, u32)
SPREAD(u64, u64)
static void spread_pair(void *dv, uint64_t t, uint64_t yes) {
  u32 *d = dv;
  const u32 low = (u32)t, high = (u32)(t >> 32), value = (u32)yes;
  LANES d[i] = ((low >> i & 1) != 0 ? value : 0) | ((high >> i & 1) != 0 ? value << 16 : 0);
}
