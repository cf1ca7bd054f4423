/* Shared memory that the device reads and writes at the guest's address. */
#ifndef VGPU_HOST_CUDA_LENT_H
#define VGPU_HOST_CUDA_LENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgpu_worker;
struct vgpu_shared_region;

/*
 * Keeps the addresses free that programs usually have memory at. Called before this process maps memory of
 * its session and before the driver maps its own.
 */
void vgpu_cuda_keep_addresses(void);

/* Ends the device's use of a region. Its registration ends with its context, or at the guest's request. */
void vgpu_cuda_end_lent(struct vgpu_worker *worker, struct vgpu_shared_region *region);

#endif
