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

/* NULL: private, readable and writable memory without a file, not the main thread's stack. Else why not. */
const char *vgpu_mappings_unlike_heap(const void *memory, size_t bytes);

/* False: no shared mapping at `memory`. */
bool vgpu_mappings_file(const void *memory, struct vgpu_mapped_file *file);

/* The first part of [*from, end) that still maps `file` as the mapping from `base` on did. */
bool vgpu_mappings_next(const struct vgpu_mapped_file *file, uintptr_t base, uintptr_t end, uintptr_t *from,
                        uintptr_t *until);

/* True also if this is not known. */
bool vgpu_mappings_own_stack(const void *memory, size_t bytes);

/* True if memory of this process is pinned for other devices (RDMA, io_uring), or if this is not known. */
bool vgpu_mappings_pinned(void);

#endif
