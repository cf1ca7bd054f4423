#ifndef VGPU_PTX_PRODUCT_H
#define VGPU_PTX_PRODUCT_H

#include "host/backend/software/ptx/alu/alu.h"

#define PTX_PRODUCT_ROWS 16u
#define PTX_PRODUCT_COLUMNS 256u
/* Most elements along k if all columns are used; with fewer columns more are allowed. */
#define PTX_PRODUCT_DEPTH 64u
#define PTX_PRODUCT_DEEPEST 128u

struct ptx_product {
  enum ptx_type a, b, d;     /* d: T_S32, otherwise floats */
  uint32_t rows, columns, k; /* columns: a multiple of 8 */
  bool negate_a, negate_b;   /* floats only */
  bool saturate;             /* integers only */
};

/*
 * d = c (rows by columns; bits of floats, or integers) + a (rows of k) times b (columns of k). d may be c. A
 * NaN in d is 0x7fffffff.
 */
void ptx_multiply(const struct ptx_alu *alu, const struct ptx_product *p, const void *a, const void *b,
                  const uint32_t *c, uint32_t *d);
/* Unpacks `bytes` bytes of two 4-bit elements each to bytes, in place. */
void ptx_unpack_fours(unsigned char *rows, uint32_t bytes, bool is_signed);
/*
 * Multiplies 1-bit elements in rows of `bytes`: adds to c the number of bits that are set in both rows (and),
 * or with `either` in one of them (xor).
 */
void ptx_multiply_bits(const struct ptx_product *p, uint32_t bytes, bool either, const unsigned char *a,
                       const unsigned char *b, uint32_t *c);
/*
 * Expands a sparse matrix of 16 rows, of which every other element is stored, to rows of `bytes` with zeros
 * between. The metadata is a register of all lanes; the selector says whose lanes' metadata is used.
 */
void ptx_spread(enum ptx_type type, uint32_t rows, uint32_t bytes, const unsigned char *metadata,
                uint32_t selector, const unsigned char *from, unsigned char *to);

#endif
