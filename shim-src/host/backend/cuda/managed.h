/* Managed variables of a session, whose bytes move between guest and device. */
#ifndef VGPU_HOST_CUDA_MANAGED_H
#define VGPU_HOST_CUDA_MANAGED_H

struct vgpu_dispatch_row;
struct vgpu_shared_region;
struct vgpu_worker;

/*
 * Call vgpu_cuda_managed_before before each call of a session with managed variables, and
 * vgpu_cuda_managed_after after each call that succeeded.
 */
void vgpu_cuda_managed_before(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row);
void vgpu_cuda_managed_after(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row);

/* Ends the use of shared memory that is being freed. */
void vgpu_cuda_managed_forget(struct vgpu_worker *worker, const struct vgpu_shared_region *region);

#endif
