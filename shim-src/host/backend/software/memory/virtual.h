/*
 * Virtual memory of the software device. Physical memory is a part of one file in memory; mapping it makes
 * the kernel show that part at the reservation, so what is mapped twice is one memory, and what is mapped
 * side by side is one piece.
 */
#ifndef VGPU_HOST_SOFTWARE_VIRTUAL_H
#define VGPU_HOST_SOFTWARE_VIRTUAL_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_virtual;

/* True if all of the range is mapped and the device may access it. */
bool vgpu_virtual_accessible(const struct vgpu_virtual *virtual, uint64_t address, uint64_t bytes);

/* The piece without a gap around `address` that is mapped and that the device may access; false: none. */
bool vgpu_virtual_extent(const struct vgpu_virtual *virtual, uint64_t address, uint64_t *start,
                         uint64_t *size);

struct vgpu_worker;
struct vgpu_token;

/* Physical memory that another session may open, and the opening; CUresults. */
int32_t vgpu_virtual_share(struct vgpu_worker *worker, uint64_t handle, struct vgpu_token *token,
                           uint64_t *bytes);
int32_t vgpu_virtual_open(struct vgpu_worker *worker, uint64_t handle, uint32_t device, int descriptor,
                          uint64_t bytes);

#endif
