/* Products of matrices whose rows lie as bytes. */
#include "host/backend/software/ptx/alu/product.h"

#include <string.h>

/* Rows of k elements to columns: b as the loops of the product want it. */
static void turn(uint32_t *to, const uint32_t *from, uint32_t n, uint32_t k) {
  for (uint32_t j = 0; j < k; j++) {
    for (uint32_t i = 0; i < n; i++) to[j * n + i] = from[i * k + j];
  }
}

void ptx_multiply(const struct ptx_alu *alu, const struct ptx_product *p, const void *a, const void *b,
                  uint32_t *c) {
  uint32_t x[PTX_PRODUCT_ROWS * PTX_PRODUCT_BYTES], y[PTX_PRODUCT_COLUMNS * PTX_PRODUCT_BYTES];
  uint32_t turned[PTX_PRODUCT_COLUMNS * PTX_PRODUCT_BYTES], sums[PTX_PRODUCT_ROWS * PTX_PRODUCT_COLUMNS];
  alu->widen[p->a](x, a, p->rows * p->k, p->negate_a);
  alu->widen[p->b](y, b, p->columns * p->k, p->negate_b);
  turn(turned, y, p->columns, p->k);
  if (p->d != T_S32) {
    alu->matrix_f32((float *)(void *)c, (const float *)(const void *)x, (const float *)(const void *)turned,
                    p->rows, p->columns, p->k);
    return;
  }
  if (!p->saturate) {
    alu->matrix_s32((int32_t *)c, (const int32_t *)x, (const int32_t *)turned, p->rows, p->columns, p->k);
    return;
  }
  /* Sums of one instruction fit; what they are added to may not. */
  memset(sums, 0, p->rows * p->columns * sizeof *sums);
  alu->matrix_s32((int32_t *)sums, (const int32_t *)x, (const int32_t *)turned, p->rows, p->columns, p->k);
  for (uint32_t i = 0; i < p->rows * p->columns; i++) {
    int64_t sum = (int64_t)(int32_t)c[i] + (int32_t)sums[i];
    c[i] = (uint32_t)(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
  }
}

void ptx_multiply_bits(const struct ptx_product *p, uint32_t bytes, bool either, const unsigned char *a,
                       const unsigned char *b, uint32_t *c) {
  for (uint32_t i = 0; i < p->rows; i++) {
    for (uint32_t j = 0; j < p->columns; j++) {
      uint32_t sum = 0;
      for (uint32_t w = 0; w < bytes; w += 8) {
        uint64_t x, y;
        memcpy(&x, a + i * bytes + w, 8);
        memcpy(&y, b + j * bytes + w, 8);
        sum += (uint32_t)__builtin_popcountll(either ? x ^ y : x & y);
      }
      c[i * p->columns + j] += sum;
    }
  }
}
