/* Products of matrices whose rows lie as bytes: what mma and wgmma have in common. */
#ifndef VGPU_PTX_PRODUCT_H
#define VGPU_PTX_PRODUCT_H

#include "host/backend/software/ptx/alu/alu.h"

#define PTX_PRODUCT_ROWS 16u
#define PTX_PRODUCT_COLUMNS 256u
/* Elements along k, at most: so many with all columns, more with fewer. */
#define PTX_PRODUCT_DEPTH 64u
#define PTX_PRODUCT_DEEPEST 128u

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
/*
 * A sparse matrix of 16 rows, of which every other element is there, as one with zeros between: rows of so
 * many `bytes` then. The metadata is a register of all lanes; the selector says which lanes' it is.
 */
void ptx_spread(enum ptx_type type, uint32_t rows, uint32_t bytes, const unsigned char *metadata,
                uint32_t selector, const unsigned char *from, unsigned char *to);

#endif
