/* The state of texture and surface references, between the calls that make, change and ask for it. */
#ifndef VGPU_GUEST_CUDA_REFERENCE_H
#define VGPU_GUEST_CUDA_REFERENCE_H

#include "guest/cuda/texture/array.h"

struct reference {
  char *name;
  uint64_t module; /* 0: made by cuTexRefCreate, of none */
  uint64_t context_number;
  bool surface;
  struct vgpu_texture_request request; /* resource VGPU_TEXTURE_NONE: nothing is bound */
  void *handle;                        /* of the array */
  uint64_t offset;                     /* bytes between what was bound and what was asked for */
};

/* A copy of the state. A CUresult. */
int vgpu_reference_read(void *handle, bool surface, struct reference *copy);

/* Keeps a changed state, and tells the host of it where something is bound. */
int vgpu_reference_change(void *handle, const struct reference *changed);

#endif
