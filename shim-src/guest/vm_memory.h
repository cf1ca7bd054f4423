/*
 * Memory that this virtual machine has from its host: the memory of a PCI device (ivshmem-plain), which the
 * kernel shows as a file. VGPU_VM_MEMORY=PATH names another file, and "none" none.
 */
#ifndef VGPU_GUEST_VM_MEMORY_H
#define VGPU_GUEST_VM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/frame.h"

/* Whether there is any that this process may open. */
bool vgpu_vm_memory_there(void);

/*
 * Opens that in which the host has put the mark: the caller's to close, *bytes long. -1: none of them is this
 * host's.
 */
int vgpu_vm_memory_find(const struct vgpu_vm_rings *rings, uint64_t rings_bytes, uint64_t *bytes);

#endif
