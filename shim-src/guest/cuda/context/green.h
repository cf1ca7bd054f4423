/*
 * Green contexts. A green context is a context of its own here (`view`, which cuCtxFromGreenCtx returns): its
 * streams and their work belong to it. Everything else that is made while it is current belongs to the
 * primary context.
 */
#ifndef VGPU_GUEST_CUDA_GREEN_H
#define VGPU_GUEST_CUDA_GREEN_H

#include "guest/cuda/internal.h"

struct vgpu_green {
  struct vgpu_context *view;
  struct vgpu_context *owner; /* the primary context */
  uint64_t primary;           /* number of the owner, which this one does not outlive */
};

/* CUdevResourceDesc. The API has no end for it. */
struct vgpu_described {
  uint64_t number;
  uint32_t sms; /* multiprocessors */
};

#endif
