#ifndef VGPU_GUEST_CUDA_BOX_H
#define VGPU_GUEST_CUDA_BOX_H

#include "api/structures.h"
#include "guest/cuda/internal.h"

/* One side of a copy: its first byte, and the distances between rows and slices. */
struct vgpu_box_plain {
  uint64_t start; /* address, or of an array its number */
  size_t row, slice;
  uint64_t span; /* from its first byte to its last, unless it is an array */
  bool device;
  bool array;
  uint32_t level;
  uint64_t x, y, z; /* position within the array */
};

struct vgpu_transfer;
int vgpu_array_plain(const struct vgpu_transfer *transfer, const struct vgpu_box_side *side,
                     const struct vgpu_box *box, struct vgpu_box_plain *plain);
int vgpu_array_box(const struct vgpu_transfer *transfer, const struct vgpu_box_plain *destination,
                   const struct vgpu_box_plain *source, const struct vgpu_box *box);

int vgpu_copy_box(const struct vgpu_box *box, struct vgpu_stream *stream, bool async);

#endif
