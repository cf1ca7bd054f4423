/* Options of a load for the host's driver, and the logs that it writes. */
#ifndef VGPU_HOST_CUDA_JIT_H
#define VGPU_HOST_CUDA_JIT_H

#include "cuda_handlers.h"
#include "wire/module.h"

struct vgpu_cuda_jit {
  int32_t names[VGPU_JIT_OPTIONS_MAX + 2];
  void *values[VGPU_JIT_OPTIONS_MAX + 2];
  uint32_t count;
  char *logs[2]; /* info, error */
  uint32_t at[2];
};

/* Reads the guest's options that can be carried. False: they are invalid, or there is no memory. */
bool vgpu_cuda_jit_read(const struct vgpu_bulk *bulk, struct vgpu_cuda_jit *options);
/*
 * Sends the driver's output to the guest: the info log, then the error log. Frees both buffers. `bulk` NULL:
 * sends nothing.
 */
void vgpu_cuda_jit_tell(struct vgpu_cuda_jit *options, uint32_t *info_bytes, uint32_t *error_bytes,
                        struct vgpu_bulk *bulk);

#endif
