#ifndef VGPU_GUEST_CUDA_REFERENCE_H
#define VGPU_GUEST_CUDA_REFERENCE_H

#include "guest/cuda/texture/array.h"

struct reference {
  char *name;
  uint64_t module; /* number of its module; 0: made by cuTexRefCreate */
  uint64_t context_number;
  bool surface;
  struct vgpu_texture_request request; /* with resource VGPU_TEXTURE_NONE nothing is bound */
  void *handle;                        /* handle of the array */
  uint64_t offset;                     /* bytes between the bound address and the requested one */
};

int vgpu_reference_read(void *handle, bool surface, struct reference *copy);

/* Stores a changed state, and sends it to the host if something is bound. Returns a CUresult. */
int vgpu_reference_change(void *handle, const struct reference *changed);

#endif
