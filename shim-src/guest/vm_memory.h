/*
 * Memory that this VM shares with its host: a PCI device's (ivshmem-plain), which the kernel shows as a file.
 * VGPU_VM_MEMORY=PATH names another file; "none" disables it.
 *
 * To use a place, a process opens the file, locks the place (F_OFD_SETLK), maps it and closes the file. The
 * mapping keeps the lock for exactly as long as this process or a child of it maps the place.
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
 * Finds the memory that contains the host's mark. False: no memory here is this host's. The caller holds the
 * process's lock.
 */
bool vgpu_vm_memory_find(const struct vgpu_vm_mark *mark, struct vgpu_vm_memory *memory);

/*
 * Locks the first place of `bytes` bytes that is free in this VM and begins in [from, to). Sets *offset and
 * returns the opened file, which holds the lock: the caller closes it when the place is mapped or not needed.
 * -1: no place is free.
 */
int vgpu_vm_memory_lock(const struct vgpu_vm_memory *memory, uint64_t bytes, uint64_t from, uint64_t to,
                        uint64_t *offset);

#endif
