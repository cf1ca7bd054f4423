#ifndef VGPU_PTX_MATRIX_H
#define VGPU_PTX_MATRIX_H

/*
 * K_MMA: m is type of a | of b << 8 | of c << 16 | these << 24; target is M | N << 8 | K << 16; type is 1 if
 * bits are combined by xor. For a sparse matrix type is the selector, and the metadata is last in the list.
 */
enum {
  MX_A_COLUMNS = 1,
  MX_B_ROWS = 2,
  MX_FOUR = 4,
  MX_SATURATE = 8,
  MX_WMMA = 16,
  MX_BITS = 32,
  MX_SPARSE = 64,
  MX_EITHER = 128 /* of wmma: bits are combined by xor */
};
/* Memory operations: m, beside bit 0 (ML_NARROW). */
#define MX_TRANSPOSED 2u
#define MX_BY_ROWS 4u
#define MX_OF_B 8u

#endif
