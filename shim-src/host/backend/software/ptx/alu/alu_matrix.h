/* Products of small matrices, row by row, and the conversion of their elements; included by alu.c. */

/* Eight columns at a time: compilers do not vectorise this by themselves. */
typedef float eight_f32 __attribute__((vector_size(32), aligned(4), may_alias));
typedef u32 eight_u32 __attribute__((vector_size(32), aligned(4), may_alias));

static void matrix_f32(float *c, const float *a, const float *b, uint32_t rows, uint32_t columns,
                       uint32_t depth) {
  /*
   * Four rows at a time, because each addition to a sum waits for the one before, and four sums can wait at
   * once.
   */
  for (uint32_t i = 0; i < rows; i += 4) {
    const float *row = a + i * depth;
    for (uint32_t j = 0; j < columns; j += 8) {
      eight_f32 sum0 = {0}, sum1 = {0}, sum2 = {0}, sum3 = {0};
      for (uint32_t k = 0; k < depth; k++) {
        const eight_f32 y = *(const eight_f32 *)(const void *)(b + k * columns + j);
        sum0 += row[k] * y;
        sum1 += row[depth + k] * y;
        sum2 += row[2 * depth + k] * y;
        sum3 += row[3 * depth + k] * y;
      }
      float *to = c + i * columns + j;
      *(eight_f32 *)(void *)to += sum0;
      *(eight_f32 *)(void *)(to + columns) += sum1;
      *(eight_f32 *)(void *)(to + 2 * columns) += sum2;
      *(eight_f32 *)(void *)(to + 3 * columns) += sum3;
    }
  }
}

#if defined(__FMA__) && defined(__AVX2__)
static void matrix_f64(double *c, const double *a, const double *b, uint32_t rows, uint32_t columns,
                       uint32_t depth) {
  for (uint32_t i = 0; i < rows; i++) {
    for (uint32_t j = 0; j < columns; j += 4) {
      double *to = c + i * columns + j;
      __m256d sum = _mm256_loadu_pd(to);
      for (uint32_t k = 0; k < depth; k++)
        sum = _mm256_fmadd_pd(_mm256_set1_pd(a[i * depth + k]), _mm256_loadu_pd(b + k * columns + j), sum);
      _mm256_storeu_pd(to, sum);
    }
  }
}
#else
static void matrix_f64(double *c, const double *a, const double *b, uint32_t rows, uint32_t columns,
                       uint32_t depth) {
  for (uint32_t i = 0; i < rows; i++) {
    for (uint32_t j = 0; j < columns; j++) {
      double sum = c[i * columns + j];
      for (uint32_t k = 0; k < depth; k++) sum = __builtin_fma(a[i * depth + k], b[k * columns + j], sum);
      c[i * columns + j] = sum;
    }
  }
}
#endif

static void matrix_s32(int32_t *c, const int32_t *a, const int32_t *b, uint32_t rows, uint32_t columns,
                       uint32_t depth) {
  for (uint32_t i = 0; i < rows; i += 4) {
    const u32 *row = (const u32 *)a + i * depth;
    for (uint32_t j = 0; j < columns; j += 8) {
      eight_u32 sum0 = {0}, sum1 = {0}, sum2 = {0}, sum3 = {0};
      for (uint32_t k = 0; k < depth; k++) {
        const eight_u32 y = *(const eight_u32 *)(const void *)(b + k * columns + j);
        sum0 += row[k] * y;
        sum1 += row[depth + k] * y;
        sum2 += row[2 * depth + k] * y;
        sum3 += row[3 * depth + k] * y;
      }
      int32_t *to = c + i * columns + j;
      *(eight_u32 *)(void *)to += sum0;
      *(eight_u32 *)(void *)(to + columns) += sum1;
      *(eight_u32 *)(void *)(to + 2 * columns) += sum2;
      *(eight_u32 *)(void *)(to + 3 * columns) += sum3;
    }
  }
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
WIDEN(f16, u16, ptx_bits(ptx_from_half(x)) ^ sign)
WIDEN(bf16, u16, ((u32)x << 16) ^ sign)
WIDEN(tf32, u32, (x & 0xffffe000u) ^ sign)
WIDEN(e4m3, u8, from_e4m3(x) ^ sign)
WIDEN(e5m2, u8, ptx_bits(ptx_from_half((u16)(x << 8))) ^ sign)
WIDEN(s8, s8, (u32)(s32)x)
WIDEN(u8, u8, x)
