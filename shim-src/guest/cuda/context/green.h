/*
 * Green contexts. A green context and its CUcontext are one handle, as with driver 580: a context of its own,
 * to which its streams and their work belong. Everything else that is made while it is current belongs to the
 * primary context.
 */
#ifndef VGPU_GUEST_CUDA_GREEN_H
#define VGPU_GUEST_CUDA_GREEN_H

#include "guest/cuda/internal.h"

/* CUdevResourceDesc. The API has no end for it. */
struct vgpu_described {
  uint64_t number;
  uint32_t sms; /* multiprocessors */
};

#endif
