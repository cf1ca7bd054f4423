/*
 * Memory that this virtual machine has from its host: the memory of a PCI device (ivshmem-plain), which the
 * kernel shows as a file. VGPU_VM_MEMORY=PATH names another file, and "none" none.
 *
 * Which places of it processes of this VM use is kept by this VM's kernel. To use one, a process opens the
 * file, locks the place (F_OFD_SETLK), maps it and closes the file: the mapping keeps the open file, and with
 * it the lock, for exactly as long as this process or a child of it still maps the place, with or without a
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
  uint64_t start; /* where to look for a place first: behind the last one */
};

/* Whether there is any that this process may open. The caller holds the process's lock. */
bool vgpu_vm_memory_there(void);

/* The one in which the host has put the mark; false: none of them is this host's. Likewise. */
bool vgpu_vm_memory_find(const struct vgpu_vm_mark *mark, struct vgpu_vm_memory *memory);

/*
 * The first free place from `from` on in this VM, beginning before `to`: the file opened with the lock of the
 * place, to be closed once it is mapped (or not needed), and *offset. -1: there is none.
 */
int vgpu_vm_memory_lock(const struct vgpu_vm_memory *memory, uint64_t bytes, uint64_t from, uint64_t to,
                        uint64_t *offset);

#endif
