/*
 * CUtensorMap (128 bytes) in the software device's own format: NVIDIA does not publish a real one, and
 * programs only pass it on or use tensormap.replace. A descriptor of zeros is valid: some programs begin with
 * it and replace every field.
 */
#ifndef VGPU_PTX_TENSOR_MAP_H
#define VGPU_PTX_TENSOR_MAP_H

#include <stdint.h>

#define PTX_TENSOR_RANK 5u

/* Types of elements, by the numbers of tensormap.replace.tile.elemtype. */
enum ptx_tensor_type {
  PTX_TENSOR_U8,
  PTX_TENSOR_U16,
  PTX_TENSOR_U32,
  PTX_TENSOR_S32,
  PTX_TENSOR_U64,
  PTX_TENSOR_S64,
  PTX_TENSOR_F16,
  PTX_TENSOR_F32,
  PTX_TENSOR_F32_FTZ,
  PTX_TENSOR_F64,
  PTX_TENSOR_BF16,
  PTX_TENSOR_TF32,
  PTX_TENSOR_TF32_FTZ,
  PTX_TENSOR_TYPES
};

enum ptx_tensor_form { PTX_TENSOR_TILED, PTX_TENSOR_IM2COL };

#define PTX_TENSOR_PIXELS 1024u /* the most in a column */

struct ptx_tensor_map {
  uint64_t address;                   /* of the element (0, 0, ...) */
  uint64_t strides[PTX_TENSOR_RANK];  /* bytes, of dimension 1 on; the last is not used */
  uint32_t dims[PTX_TENSOR_RANK];     /* elements; 0: 2^32 */
  uint16_t box[PTX_TENSOR_RANK];      /* 1 to 256 elements */
  uint8_t steps[PTX_TENSOR_RANK];     /* 1 to 8: only every nth element is used; not for dimension 0 */
  uint8_t last;                       /* the highest dimension: rank - 1 */
  uint8_t type;                       /* enum ptx_tensor_type */
  uint8_t interleave;                 /* 0: none; other values are not supported here */
  uint8_t swizzle;                    /* 0 none, 1, 2, 3: within 32, 64, 128 bytes */
  uint8_t fill;                       /* for elements outside: 0 zeros, 1 NaN */
  uint8_t atomicity;                  /* of swizzles; 0: 16 bytes, other values are not supported here */
  uint8_t form;                       /* enum ptx_tensor_form */
  uint16_t pixels;                    /* im2col: 1 to 1024 in a column; box[0] is the channels of each */
  int16_t lower[PTX_TENSOR_RANK - 2]; /* im2col: corners of the bounding box, of W, H and D, from the */
  int16_t upper[PTX_TENSOR_RANK - 2]; /* first and from the last element of the dimension */
  uint8_t reserved[24];
};
_Static_assert(sizeof(struct ptx_tensor_map) == 128, "a tensor map");

#endif
