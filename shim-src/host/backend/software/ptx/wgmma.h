#ifndef VGPU_PTX_WGMMA_H
#define VGPU_PTX_WGMMA_H

/*
 * K_WGMMA: target is N; m is the type of a | of b << 8 | of d << 16 | these << 24. Its list has the registers
 * of d, then those of a or its descriptor, then for a sparse a the metadata, then the descriptor of b. in->a
 * is the predicate scale-d, in->size the number of d's registers, in->type the selector.
 */
enum {
  WG_A_REGISTERS = 1,
  WG_NEGATE_A = 2,
  WG_NEGATE_B = 4,
  WG_TRANSPOSE_A = 8,
  WG_TRANSPOSE_B = 16,
  WG_SATURATE = 32,
  WG_BITS = 64, /* b1, and.popc */
  WG_SPARSE = 128,
};
#define WG_N_MOST 256u
#define WG_ROW_BYTES 32u /* of a and b along k, for every type; twice that for b if a is sparse */

#endif
