/* The file that a line of hostd.conf names as a VM's shared memory (vm-memory=). */
#ifndef VGPU_HOST_VM_MEMORY_FILE_H
#define VGPU_HOST_VM_MEMORY_FILE_H

#include <stddef.h>

#include "host/session/vm_memory.h"

/*
 * Opens it for one worker; with bytes 0 there is nothing to close, and *error, of `size` bytes, says why.
 * `path` may be empty: the VM has none, and nothing is said.
 */
struct vgpu_vm_memory vgpu_vm_memory_open(const char *path, char *error, size_t size);
void vgpu_vm_memory_close(const struct vgpu_vm_memory *memory);

#endif
