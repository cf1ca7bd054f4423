#ifndef VGPU_PTX_PRODUCT_H
#define VGPU_PTX_PRODUCT_H

#include "host/backend/software/ptx/alu/alu.h"

#define PTX_PRODUCT_ROWS 16u
#define PTX_PRODUCT_COLUMNS 256u
/* These depths hold for all columns; with fewer columns more are allowed. */
#define PTX_PRODUCT_DEPTH 64u
#define PTX_PRODUCT_DEEPEST 128u

struct ptx_product {
  enum ptx_type a, b, d;     /* d: T_S32, otherwise floats */
  uint32_t rows, columns, k; /* columns: a multiple of 8 */
  bool negate_a, negate_b;   /* floats only */
  bool saturate;             /* integers only */
};

/* d = c + a (rows of k) times b (columns of k). d may be c. A NaN in d is 0x7fffffff. */
void ptx_multiply(const struct ptx_alu *alu, const struct ptx_product *p, const void *a, const void *b,
                  const uint32_t *c, uint32_t *d);
/* Works in place: `bytes` bytes of two 4-bit elements. */
void ptx_unpack_fours(unsigned char *rows, uint32_t bytes, bool is_signed);
/* 1-bit elements in rows of `bytes`: adds the number of bits set in both (and), or in one (xor). */
void ptx_multiply_bits(const struct ptx_product *p, uint32_t bytes, bool either, const unsigned char *a,
                       const unsigned char *b, uint32_t *c);
/*
 * Expands a sparse matrix of 16 rows to rows of `bytes` with zeros. The metadata is a register of all lanes;
 * the selector says whose lanes' metadata is used.
 */
void ptx_spread(enum ptx_type type, uint32_t rows, uint32_t bytes, const unsigned char *metadata,
                uint32_t selector, const unsigned char *from, unsigned char *to);

#endif
