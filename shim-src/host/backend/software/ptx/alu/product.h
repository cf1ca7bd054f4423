/* Products of matrices whose rows lie as bytes: what mma and wgmma have in common. */
#ifndef VGPU_PTX_PRODUCT_H
#define VGPU_PTX_PRODUCT_H

#include "host/backend/software/ptx/alu/alu.h"

#define PTX_PRODUCT_ROWS 16u
#define PTX_PRODUCT_COLUMNS 256u
#define PTX_PRODUCT_BYTES 32u /* of a row along k, at most */

struct ptx_product {
  enum ptx_type a, b, d;     /* d: T_S32, else floats */
  uint32_t rows, columns, k; /* columns: a multiple of 8 */
  bool negate_a, negate_b;   /* floats only */
  bool saturate;             /* integers only */
};

/* c (rows by columns; floats' bits, or integers) += a (rows of k) times b (columns of k). */
void ptx_multiply(const struct ptx_alu *alu, const struct ptx_product *p, const void *a, const void *b,
                  uint32_t *c);
/* The same of 1-bit elements, `bytes` a row: how many both have (and), or one of them (xor). */
void ptx_multiply_bits(const struct ptx_product *p, uint32_t bytes, bool either, const unsigned char *a,
                       const unsigned char *b, uint32_t *c);

#endif
