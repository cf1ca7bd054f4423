#ifndef VGPU_GUEST_OWN_MAPPINGS_H
#define VGPU_GUEST_OWN_MAPPINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgpu_mapped_file {
  uint32_t major;
  uint32_t minor;
  uint64_t inode;
};

/*
 * Returns NULL if all of [memory, memory + bytes) is private, readable and writable memory without a file,
 * and not the main thread's stack. Otherwise returns the reason, for the log.
 */
const char *vgpu_mappings_unlike_heap(const void *memory, size_t bytes);

/* Finds the file of the shared mapping at `memory`. False: there is no such mapping. */
bool vgpu_mappings_file(const void *memory, struct vgpu_mapped_file *file);

/*
 * Finds the first part of [*from, end) that still is a shared mapping of `file`, at the same offsets as the
 * mapping that began at `base`. Sets *from and *until to the part. False: there is none.
 */
bool vgpu_mappings_next(const struct vgpu_mapped_file *file, uintptr_t base, uintptr_t end, uintptr_t *from,
                        uintptr_t *until);

/* True if a part of the memory is the calling thread's stack, or if this is not known. */
bool vgpu_mappings_own_stack(const void *memory, size_t bytes);

/* True if memory of this process is pinned for other devices (RDMA, io_uring), or if this is not known. */
bool vgpu_mappings_pinned(void);

#endif
