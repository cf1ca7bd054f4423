/* Compilers do not vectorise these loops by themselves. */
typedef float eight_f32 __attribute__((vector_size(32), aligned(4), may_alias));
typedef u32 eight_u32 __attribute__((vector_size(32), aligned(4), may_alias));
typedef u32 four_u32 __attribute__((vector_size(16), aligned(4), may_alias));
typedef u64 four_u64 __attribute__((vector_size(32), aligned(8), may_alias));

/* All NaN are the same on a GPU. (Vectors in parameters would change the ABI.) */
static inline void one_nan_f32(eight_f32 *x) {
  eight_u32 same = (eight_u32)(*x == *x);
  *x = (eight_f32)(((eight_u32)*x & same) | (0x7fffffff & ~same));
}
static inline void one_nan_u32(eight_u32 *x) {
  (void)x;
}

/*
 * d = c + a b. Each sum is made in order of k, from 0, before c is added. An addition waits for the one
 * before: four rows of as many columns as there are registers for make enough independent sums.
 */
#define BLOCK(T, V, one_nan, wide)                                                                           \
  {                                                                                                          \
    V sum[4][wide] = {{{0}}};                                                                                \
    for (uint32_t k = 0; k < depth; k++) {                                                                   \
      const T *y = b + k * columns + j;                                                                      \
      for (uint32_t v = 0; v < (wide); v++) {                                                                \
        const V part = *(const V *)(const void *)(y + v * 8);                                                \
        for (uint32_t r = 0; r < 4; r++) sum[r][v] += row[r * depth + k] * part;                             \
      }                                                                                                      \
    }                                                                                                        \
    for (uint32_t r = 0; r < 4; r++) {                                                                       \
      for (uint32_t v = 0; v < (wide); v++) {                                                                \
        uint32_t place = (i + r) * columns + j + v * 8;                                                      \
        sum[r][v] += *(const V *)(const void *)(c + place);                                                  \
        one_nan(&sum[r][v]);                                                                                 \
        *(V *)(void *)(d + place) = sum[r][v];                                                               \
      }                                                                                                      \
    }                                                                                                        \
  }
#if defined(__AVX2__) || defined(__aarch64__)
#define WIDE 2u
#else
#define WIDE 1u
#endif
#define MATRIX(name, T, V, one_nan)                                                                          \
  static void name(T *d, const T *c, const T *a, const T *b, uint32_t rows, uint32_t columns,                \
                   uint32_t depth) {                                                                         \
    for (uint32_t i = 0; i < rows; i += 4) {                                                                 \
      const T *row = a + i * depth;                                                                          \
      uint32_t j = 0;                                                                                        \
      for (; j + WIDE * 8 <= columns; j += WIDE * 8) BLOCK(T, V, one_nan, WIDE)                              \
      for (; j < columns; j += 8) BLOCK(T, V, one_nan, 1)                                                    \
    }                                                                                                        \
  }
MATRIX(matrix_f32, float, eight_f32, one_nan_f32)
MATRIX(matrix_u32, u32, eight_u32, one_nan_u32)
#undef MATRIX
#undef BLOCK
#undef WIDE

#if defined(__FMA__) && defined(__AVX2__)
static void matrix_f64(double *d, const double *c, const double *a, const double *b, uint32_t rows,
                       uint32_t columns, uint32_t depth) {
  for (uint32_t i = 0; i < rows; i += 4) {
    const double *row = a + i * depth;
    for (uint32_t j = 0; j < columns; j += 8) {
      __m256d sum[4][2];
      for (uint32_t r = 0; r < 4; r++) {
        for (uint32_t v = 0; v < 2; v++) sum[r][v] = _mm256_loadu_pd(c + (i + r) * columns + j + v * 4);
      }
      for (uint32_t k = 0; k < depth; k++) {
        const double *y = b + k * columns + j;
        const __m256d left = _mm256_loadu_pd(y), right = _mm256_loadu_pd(y + 4);
        for (uint32_t r = 0; r < 4; r++) {
          const __m256d x = _mm256_set1_pd(row[r * depth + k]);
          sum[r][0] = _mm256_fmadd_pd(x, left, sum[r][0]);
          sum[r][1] = _mm256_fmadd_pd(x, right, sum[r][1]);
        }
      }
      for (uint32_t r = 0; r < 4; r++) {
        for (uint32_t v = 0; v < 2; v++) _mm256_storeu_pd(d + (i + r) * columns + j + v * 4, sum[r][v]);
      }
    }
  }
}
#else
static void matrix_f64(double *d, const double *c, const double *a, const double *b, uint32_t rows,
                       uint32_t columns, uint32_t depth) {
  for (uint32_t i = 0; i < rows; i++) {
    for (uint32_t j = 0; j < columns; j++) {
      double sum = c[i * columns + j];
      for (uint32_t k = 0; k < depth; k++) sum = __builtin_fma(a[i * depth + k], b[k * columns + j], sum);
      d[i * columns + j] = sum;
    }
  }
}
#endif

static void turn_u32(uint32_t *to, const uint32_t *from, uint32_t n, uint32_t k) {
  for (uint32_t i = 0; i < n; i += 8) {
    for (uint32_t j = 0; j < k; j += 4) {
      eight_u32 x[4]; /* row r, and row r + 4 */
      for (uint32_t r = 0; r < 4; r++) {
        const uint32_t *row = from + (i + r) * k + j;
        x[r] =
            __builtin_shufflevector(*(const four_u32 *)(const void *)row,
                                    *(const four_u32 *)(const void *)(row + 4 * k), 0, 1, 2, 3, 4, 5, 6, 7);
      }
      const eight_u32 low01 = __builtin_shufflevector(x[0], x[1], 0, 8, 1, 9, 4, 12, 5, 13),
                      low23 = __builtin_shufflevector(x[2], x[3], 0, 8, 1, 9, 4, 12, 5, 13),
                      high01 = __builtin_shufflevector(x[0], x[1], 2, 10, 3, 11, 6, 14, 7, 15),
                      high23 = __builtin_shufflevector(x[2], x[3], 2, 10, 3, 11, 6, 14, 7, 15);
      uint32_t *out = to + j * n + i;
      *(eight_u32 *)(void *)out = __builtin_shufflevector(low01, low23, 0, 1, 8, 9, 4, 5, 12, 13);
      *(eight_u32 *)(void *)(out + n) = __builtin_shufflevector(low01, low23, 2, 3, 10, 11, 6, 7, 14, 15);
      *(eight_u32 *)(void *)(out + 2 * n) = __builtin_shufflevector(high01, high23, 0, 1, 8, 9, 4, 5, 12, 13);
      *(eight_u32 *)(void *)(out + 3 * n) =
          __builtin_shufflevector(high01, high23, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
}

static void turn_u64(uint64_t *to, const uint64_t *from, uint32_t n, uint32_t k) {
  for (uint32_t i = 0; i < n; i += 4) {
    for (uint32_t j = 0; j < k; j += 4) {
      four_u64 x[4];
      for (uint32_t r = 0; r < 4; r++) x[r] = *(const four_u64 *)(const void *)(from + (i + r) * k + j);
      const four_u64 even01 = __builtin_shufflevector(x[0], x[1], 0, 4, 2, 6),
                     odd01 = __builtin_shufflevector(x[0], x[1], 1, 5, 3, 7),
                     even23 = __builtin_shufflevector(x[2], x[3], 0, 4, 2, 6),
                     odd23 = __builtin_shufflevector(x[2], x[3], 1, 5, 3, 7);
      uint64_t *out = to + j * n + i;
      *(four_u64 *)(void *)out = __builtin_shufflevector(even01, even23, 0, 1, 4, 5);
      *(four_u64 *)(void *)(out + n) = __builtin_shufflevector(odd01, odd23, 0, 1, 4, 5);
      *(four_u64 *)(void *)(out + 2 * n) = __builtin_shufflevector(even01, even23, 2, 3, 6, 7);
      *(four_u64 *)(void *)(out + 3 * n) = __builtin_shufflevector(odd01, odd23, 2, 3, 6, 7);
    }
  }
}

static void narrow_f16(uint16_t *to, const uint32_t *from, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) to[i] = ptx_half_nearest(from[i]);
}

#define WIDEN(name, T, expression)                                                                           \
  static void widen_##name(uint32_t *to, const void *from, uint32_t count, bool negate) {                    \
    const T *a = from;                                                                                       \
    uint32_t sign = negate ? 0x80000000u : 0;                                                                \
    (void)sign;                                                                                              \
    for (uint32_t i = 0; i < count; i++) {                                                                   \
      const T x = a[i];                                                                                      \
      to[i] = (expression);                                                                                  \
    }                                                                                                        \
  }
static inline u32 from_e4m3(u32 x) {
  u32 rest = x & 0x7f, normal = (rest << 20) + 0x3c000000;
  u32 small = ptx_bits((float)(int32_t)rest * 0x1p-9f);
  u32 r = rest < 8 ? small : rest == 0x7f ? 0x7fffffff : normal;
  return r | (x & 0x80) << 24;
}
#if defined(__F16C__)
/* As ptx_from_half: the instruction does not flush subnormals, and sets the first bit of a NaN. */
static void widen_f16(uint32_t *to, const void *from, uint32_t count, bool negate) {
  const __m256i sign = _mm256_set1_epi32(negate ? INT32_MIN : 0);
  for (uint32_t i = 0; i < count; i += 8) {
    const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)((const u16 *)from + i));
    const __m256i floats = _mm256_castps_si256(_mm256_cvtph_ps(halves));
    _mm256_storeu_si256((__m256i *)(void *)(to + i), _mm256_xor_si256(floats, sign));
  }
}
#else
WIDEN(f16, u16, ptx_bits(ptx_from_half(x)) ^ sign)
#endif
WIDEN(bf16, u16, ((u32)x << 16) ^ sign)
WIDEN(tf32, u32, (x & 0xffffe000u) ^ sign)
WIDEN(e4m3, u8, from_e4m3(x) ^ sign)
WIDEN(e5m2, u8, ptx_bits(ptx_from_half((u16)(x << 8))) ^ sign)
WIDEN(s8, s8, (u32)(s32)x)
WIDEN(u8, u8, x)
