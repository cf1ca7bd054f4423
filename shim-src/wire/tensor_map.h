/* The request for a tensor's descriptor: the bulk of the call tensor_map. */
#ifndef VGPU_WIRE_TENSOR_MAP_H
#define VGPU_WIRE_TENSOR_MAP_H

#include <stdint.h>

#define VGPU_TENSOR_RANK_MAX 5
#define VGPU_TENSOR_MAP_BYTES 128 /* CUtensorMap */

enum vgpu_tensor_form {
  VGPU_TENSOR_TILED = 1,
  VGPU_TENSOR_IM2COL = 2,
  VGPU_TENSOR_IM2COL_WIDE = 3,
  VGPU_TENSOR_MOVED = 4, /* a new address in an existing descriptor */
};

/* The parameters of cuTensorMapEncode*, under the same names; a field that a form does not have is 0. */
struct vgpu_tensor_request {
  uint64_t dim[VGPU_TENSOR_RANK_MAX];
  uint64_t strides[VGPU_TENSOR_RANK_MAX]; /* rank - 1 of them */
  uint32_t box[VGPU_TENSOR_RANK_MAX];
  uint32_t element_strides[VGPU_TENSOR_RANK_MAX];
  int32_t lower[VGPU_TENSOR_RANK_MAX]; /* rank - 2; wide: the first, of the width */
  int32_t upper[VGPU_TENSOR_RANK_MAX];
  int32_t data_type;
  uint32_t rank;
  uint32_t channels_per_pixel;
  uint32_t pixels_per_column;
  int32_t interleave;
  int32_t mode;
  int32_t swizzle;
  int32_t promotion;
  int32_t fill;
  uint32_t reserved;
};
_Static_assert(sizeof(struct vgpu_tensor_request) == 200, "a tensor request");

#endif
