#ifndef VGPU_PTX_FRAGMENT_H
#define VGPU_PTX_FRAGMENT_H

#include "host/backend/software/ptx/run/warp.h"

#define PTX_MATRIX_MOST 1024 /* elements of a matrix: 16 by 64 */
enum { OF_A, OF_B, OF_C };

struct shape {
  uint32_t m, n, k;
};

struct product {
  struct shape s;
  enum ptx_type types[3], result;
  uint32_t flags;
};

/* Only for the types that matrices have, because ptx_type_bytes searches a list. */
static inline uint32_t ptx_element_bytes(enum ptx_type type) {
  switch (type) {
    case T_F64:
      return 8;
    case T_F16:
    case T_BF16:
      return 2;
    case T_S8:
    case T_U8:
    case T_E4M3:
    case T_E5M2:
      return 1;
    default:
      return 4;
  }
}

static inline unsigned char *ptx_written(const struct place *at, uint32_t reference) {
  return at->registers + (reference & ~3u);
}

/* matrix.c: returns the address that a lane gives to a memory operation. */
uint64_t ptx_matrix_address(const struct place *at, uint32_t lane);

/* wmma.c; `x` is the list of the instruction's registers; false: a fault was raised */
bool ptx_wmma_memory(const struct place *at, const uint32_t *x, bool load);
void ptx_wmma(const struct place *at, const struct product *p, const uint32_t *x);

#endif
