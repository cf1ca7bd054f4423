/* Generated, sorted by value. */
#ifndef VGPU_GUEST_CUDA_ERRORS_H
#define VGPU_GUEST_CUDA_ERRORS_H

struct vgpu_error_row {
  int value;
  const char *name;
  const char *text;
};

extern const struct vgpu_error_row vgpu_error_rows[];
extern const unsigned vgpu_error_row_count;

#endif
