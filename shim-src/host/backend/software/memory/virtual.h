/*
 * Virtual memory of the software device. Physical memory is a part of one memory file, which the kernel maps
 * at the reservation. So memory that is mapped twice is the same memory, and adjacent mappings are
 * contiguous.
 */
#ifndef VGPU_HOST_SOFTWARE_VIRTUAL_H
#define VGPU_HOST_SOFTWARE_VIRTUAL_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_virtual;

/* True if the whole range is mapped and a device may access it. */
bool vgpu_virtual_accessible(const struct vgpu_virtual *virtual, uint64_t address, uint64_t bytes);

/* Gives the contiguous range around `address` that is mapped and that this device may access. False: none. */
bool vgpu_virtual_extent(const struct vgpu_virtual *virtual, uint64_t address, uint32_t device,
                         uint64_t *start, uint64_t *size);

struct vgpu_worker;
struct vgpu_token;

/* Share physical memory with other sessions, and open that of another session. Return CUresults. */
int32_t vgpu_virtual_share(struct vgpu_worker *worker, uint64_t handle, struct vgpu_token *token,
                           uint64_t *bytes);
int32_t vgpu_virtual_open(struct vgpu_worker *worker, uint64_t handle, uint32_t device, int descriptor,
                          uint64_t bytes);

#endif
