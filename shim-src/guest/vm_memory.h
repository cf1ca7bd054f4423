/*
 * Memory that this virtual machine shares with its host: the memory of a PCI device (ivshmem-plain), which
 * the kernel shows as a file. VGPU_VM_MEMORY=PATH names another file, and "none" disables it.
 *
 * The kernel of this VM knows which places of the memory its processes use. To use a place, a process opens
 * the file, locks the place (F_OFD_SETLK), maps it and closes the file. The mapping keeps the open file, and
 * with it the lock, for exactly as long as this process or a child of it maps the place, with or without a
 * session.
 */
#ifndef VGPU_GUEST_VM_MEMORY_H
#define VGPU_GUEST_VM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/frame.h"

#define VGPU_VM_PATH_MAX 160u

struct vgpu_vm_memory {
  char path[VGPU_VM_PATH_MAX]; /* empty: none */
  uint64_t bytes;
  uint64_t start; /* the offset to search first: behind the last place */
};

/* True if there is such memory and this process may open it. The caller holds the process's lock. */
bool vgpu_vm_memory_there(void);

/*
 * Finds the memory that contains the host's mark; false: no memory here is this host's. The caller holds the
 * process's lock.
 */
bool vgpu_vm_memory_find(const struct vgpu_vm_mark *mark, struct vgpu_vm_memory *memory);

/*
 * Locks the first place that is free in this VM and begins in [from, to). Returns the opened file with the
 * lock, which the caller closes when the place is mapped or not needed, and sets *offset. -1: no place is
 * free.
 */
int vgpu_vm_memory_lock(const struct vgpu_vm_memory *memory, uint64_t bytes, uint64_t from, uint64_t to,
                        uint64_t *offset);

#endif
