/* Green contexts of the host's GPU: a handle of a context whose `object` is the driver's green context. */
#ifndef VGPU_HOST_CUDA_RESOURCES_H
#define VGPU_HOST_CUDA_RESOURCES_H

#include "host/backend/cuda/session.h"

extern const struct vgpu_backend_resources vgpu_cuda_resources;

/* Ends the green contexts of a primary context that ends. */
void vgpu_cuda_end_greens(struct vgpu_worker *worker, uint64_t primary);

/* Ends a green context. Its streams are the driver's until they are destroyed, so they are destroyed here. */
int32_t vgpu_cuda_end_green(struct vgpu_worker *worker, const struct vgpu_handle *green);

/* NOT_READY while a green context of a primary context has work. The primary context is current. */
int vgpu_cuda_query_greens(struct vgpu_worker *worker, uint64_t primary);

#endif
