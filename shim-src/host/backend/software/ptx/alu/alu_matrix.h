/* Products of small matrices, row by row; included by alu.c. And their elements, widened. */

/* Eight columns at a time: compilers do not find that by themselves. */
typedef float eight_f32 __attribute__((vector_size(32), aligned(4), may_alias));
typedef u32 eight_u32 __attribute__((vector_size(32), aligned(4), may_alias));

static void matrix_f32(float *c, const float *a, const float *b, uint32_t rows, uint32_t columns,
                       uint32_t depth) {
  for (uint32_t i = 0; i < rows; i++) {
    for (uint32_t j = 0; j < columns; j += 8) {
      eight_f32 sum = {0};
      for (uint32_t k = 0; k < depth; k++) {
        const float x = a[i * depth + k];
        sum += x * *(const eight_f32 *)(const void *)(b + k * columns + j);
      }
      *(eight_f32 *)(void *)(c + i * columns + j) += sum;
    }
  }
}

static void matrix_s32(int32_t *c, const int32_t *a, const int32_t *b, uint32_t rows, uint32_t columns,
                       uint32_t depth) {
  for (uint32_t i = 0; i < rows; i++) {
    for (uint32_t j = 0; j < columns; j += 8) {
      eight_u32 *to = (eight_u32 *)(void *)(c + i * columns + j), sum = *to;
      for (uint32_t k = 0; k < depth; k++) {
        const u32 x = (u32)a[i * depth + k];
        sum += x * *(const eight_u32 *)(const void *)(b + k * columns + j);
      }
      *to = sum;
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
