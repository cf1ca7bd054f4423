#include "host/backend/software/ptx/alu/product.h"

#include <string.h>

void ptx_multiply(const struct ptx_alu *alu, const struct ptx_product *p, const void *a, const void *b,
                  const uint32_t *c, uint32_t *d) {
  _Alignas(32) uint32_t x[PTX_PRODUCT_ROWS * PTX_PRODUCT_DEEPEST];
  _Alignas(32) uint32_t y[PTX_PRODUCT_COLUMNS * PTX_PRODUCT_DEPTH];
  _Alignas(32) uint32_t turned[PTX_PRODUCT_COLUMNS * PTX_PRODUCT_DEPTH];
  alu->widen[p->a](x, a, p->rows * p->k, p->negate_a);
  alu->widen[p->b](y, b, p->columns * p->k, p->negate_b);
  /* The product's loops need the columns of b as rows. */
  alu->turn_u32(turned, y, p->columns, p->k);
  if (p->d != T_S32) {
    alu->matrix_f32((float *)(void *)d, (const float *)(const void *)c, (const float *)(const void *)x,
                    (const float *)(const void *)turned, p->rows, p->columns, p->k);
    return;
  }
  if (!p->saturate) {
    alu->matrix_u32(d, c, x, turned, p->rows, p->columns, p->k);
    return;
  }
  /* The sums of one instruction fit; the total after the addition may not. */
  uint32_t sums[PTX_PRODUCT_ROWS * PTX_PRODUCT_COLUMNS];
  memset(sums, 0, p->rows * p->columns * sizeof *sums);
  alu->matrix_u32(sums, sums, x, turned, p->rows, p->columns, p->k);
  for (uint32_t i = 0; i < p->rows * p->columns; i++) {
    int64_t sum = (int64_t)(int32_t)c[i] + (int32_t)sums[i];
    d[i] = (uint32_t)(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
  }
}

void ptx_unpack_fours(unsigned char *rows, uint32_t bytes, bool is_signed) {
  for (uint32_t i = bytes; i-- > 0;) {
    unsigned char both = rows[i];
    for (uint32_t k = 2; k-- > 0;) {
      unsigned char value = both >> k * 4 & 15;
      rows[i * 2 + k] = is_signed && value > 7 ? value | 0xf0 : value;
    }
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

/*
 * 4 bits of metadata describe four units, two of which are present. A unit is an element, or a pair of 4-bit
 * elements; for tf32 half an element, and both halves are named. If a row takes 64 bits of metadata, all four
 * of its lanes have some: the first two lanes for the first half of the columns, the even lanes for row 0 to
 * 7, the odd lanes for the row 8 below. Otherwise a lane has 16 bits of its row, then 16 of the row 8 below.
 */
void ptx_spread(enum ptx_type type, uint32_t rows, uint32_t bytes, const unsigned char *metadata,
                uint32_t selector, const unsigned char *from, unsigned char *to) {
  uint32_t element = ptx_type_bytes(type), unit = element == 4 ? 2 : element;
  uint32_t chunks = bytes / unit / 4, lanes = chunks / 4;
  memset(to, 0, (size_t)rows * bytes);
  for (uint32_t row = 0; row < rows; row++) {
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
      bool all = lanes == 4;
      uint32_t of_row = all ? (row >> 3) + chunk / 8 * 2 : selector * lanes + chunk / 4;
      uint32_t shift = all ? chunk % 8 * 4 : ((row & 8) != 0 ? 16 : 0) + chunk % 4 * 4, bits;
      memcpy(&bits, metadata + ((row & 7) * 4 + of_row) * 4, 4);
      for (uint32_t i = 0; i < 2; i++) {
        memcpy(to + row * bytes + (chunk * 4 + (bits >> shift >> i * 2 & 3)) * unit,
               from + row * (bytes / 2) + (chunk * 2 + i) * unit, unit);
      }
    }
  }
}
