/* Parts of one memory file: what is mapped twice is the same, and adjacent mappings are contiguous. */
#ifndef VGPU_HOST_SOFTWARE_VIRTUAL_H
#define VGPU_HOST_SOFTWARE_VIRTUAL_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_virtual;

bool vgpu_virtual_accessible(const struct vgpu_virtual *virtual, uint64_t address, uint64_t bytes);

/* Contiguous, mapped and accessible for this device around `address`. False: none. */
bool vgpu_virtual_extent(const struct vgpu_virtual *virtual, uint64_t address, uint32_t device,
                         uint64_t *start, uint64_t *size);

struct vgpu_worker;
struct vgpu_token;

/* Shares physical memory between sessions. Returns a CUresult. */
int32_t vgpu_virtual_share(struct vgpu_worker *worker, uint64_t handle, struct vgpu_token *token,
                           uint64_t *bytes);
int32_t vgpu_virtual_open(struct vgpu_worker *worker, uint64_t handle, uint32_t device, int descriptor,
                          uint64_t bytes);

#endif
