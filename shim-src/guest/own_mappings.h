/* The mappings of this process, as its kernel lists them (/proc/self/maps). */
#ifndef VGPU_GUEST_OWN_MAPPINGS_H
#define VGPU_GUEST_OWN_MAPPINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which file a mapping shows, and from where. */
struct vgpu_mapped_file {
  uint32_t major;
  uint32_t minor;
  uint64_t inode;
};

/* NULL if all of [memory, memory + bytes) is private memory without a file, readable and writable, and not
 * the main thread's stack; otherwise why not, for the log.
 */
const char *vgpu_mappings_unlike_heap(const void *memory, size_t bytes);

/* The file that is mapped, shared, at `memory`; false: none is. */
bool vgpu_mappings_file(const void *memory, struct vgpu_mapped_file *file);

/*
 * The first piece in [*from, end) that still shows `file`, shared, as a mapping of it at `base` did. Sets
 * *from and *until.
 */
bool vgpu_mappings_next(const struct vgpu_mapped_file *file, uintptr_t base, uintptr_t end, uintptr_t *from,
                        uintptr_t *until);

/* True if some of it is the calling thread's stack, or that is not known. */
bool vgpu_mappings_own_stack(const void *memory, size_t bytes);

/* True if memory of this process is pinned for other devices (RDMA, io_uring), or that is not known. */
bool vgpu_mappings_pinned(void);

#endif
