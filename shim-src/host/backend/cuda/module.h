/* Code on the host's GPU, for the files that need its variables. */
#ifndef VGPU_HOST_CUDA_MODULE_H
#define VGPU_HOST_CUDA_MODULE_H

#include <stdint.h>

struct vgpu_bulk;
struct vgpu_worker;

/*
 * Finds the variable of a module or library whose name is in the bulk. Its bytes are the session's from then
 * on. Returns a CUresult.
 */
int32_t vgpu_cuda_variable(struct vgpu_worker *worker, uint64_t context, uint64_t code,
                           const struct vgpu_bulk *bulk, uint64_t *address, uint64_t *bytes);

#endif
