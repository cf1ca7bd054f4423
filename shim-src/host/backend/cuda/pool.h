/*
 * Memory pools of the host's GPU. They are the driver's own. Addresses are checked to belong to this session.
 *
 * The driver keeps freed memory in its pool until a trim, or until a synchronize call if that is more than
 * the pool's release threshold (cuMemPoolSetAttribute in the CUDA driver API,
 * https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MALLOC__ASYNC.html). Until then it counts as the
 * session's.
 */
#ifndef VGPU_HOST_CUDA_POOL_H
#define VGPU_HOST_CUDA_POOL_H

#include <stdbool.h>

struct vgpu_range;
struct vgpu_worker;

/*
 * Call when memory of a pool is freed: sets freed->counted to 0, because its bytes count until the driver has
 * released them. Memory of no pool stays as it is.
 */
void vgpu_cuda_pool_freed(struct vgpu_worker *worker, struct vgpu_range *freed);

/* True if the driver holds memory of a pool that the guest does not use. */
bool vgpu_cuda_pools_keep(const struct vgpu_worker *worker);

/* Ends the counting of memory that the driver has released. */
void vgpu_cuda_settle_pools(struct vgpu_worker *worker);

#endif
