/* Shared memory that the device reads and writes at the guest's address. */
#ifndef VGPU_HOST_CUDA_LENT_H
#define VGPU_HOST_CUDA_LENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgpu_worker;
struct vgpu_shared_region;

#define VGPU_CUDA_KEPT 128u

/* Parts of this process's address space that nothing else is mapped to, in ascending order. */
struct vgpu_cuda_kept {
  struct {
    uintptr_t start, end;
  } parts[VGPU_CUDA_KEPT];
  size_t count;
};

/* Keeps the addresses free that programs usually have memory at. Called before the driver maps its own. */
void vgpu_cuda_keep_space(struct vgpu_cuda_kept *kept);

/* Ends the device's use of a region. Its registration ends with its context, or at the guest's request. */
void vgpu_cuda_end_lent(struct vgpu_worker *worker, struct vgpu_shared_region *region);

#endif
