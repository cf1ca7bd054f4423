/* Managed variables of a session, whose bytes move between guest and device. */
#ifndef VGPU_HOST_CUDA_MANAGED_H
#define VGPU_HOST_CUDA_MANAGED_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_bulk;
struct vgpu_dispatch_row;
struct vgpu_shared_region;
struct vgpu_worker;

/*
 * Call this before each call of a session with managed variables. Returns a CUresult: if it is an error, the
 * call must not be carried out.
 */
int32_t vgpu_cuda_managed_before(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row,
                                 const void *body);

/*
 * Call this after each call that succeeded. If it returns VGPU_WAITS, vgpu_cuda_managed_reads is true when
 * the call is carried out again, and only vgpu_cuda_managed_after is to be called.
 */
int32_t vgpu_cuda_managed_after(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row,
                                struct vgpu_bulk *bulk);
bool vgpu_cuda_managed_reads(const struct vgpu_worker *worker);

/* Call when the guest's call with this note is over. */
void vgpu_cuda_managed_over(struct vgpu_worker *worker, uint64_t note);

/* Drops the variables of a context, which still exists. */
void vgpu_cuda_managed_drop(struct vgpu_worker *worker, uint64_t context);

/* Ends the use of shared memory that is being freed. */
void vgpu_cuda_managed_forget(struct vgpu_worker *worker, const struct vgpu_shared_region *region);

#endif
