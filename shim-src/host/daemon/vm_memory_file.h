/* The file that a line of hostd.conf names as a VM's shared memory (vm-memory=). */
#ifndef VGPU_HOST_VM_MEMORY_FILE_H
#define VGPU_HOST_VM_MEMORY_FILE_H

#include <stddef.h>

#include "host/session/vm_memory.h"

/*
 * Opens the file for one worker. If the result has 0 bytes, there is nothing to close, and the reason is in
 * `error`, which has `size` bytes. An empty `path` means that the VM has no such memory; `error` is empty
 * then.
 */
struct vgpu_vm_memory vgpu_vm_memory_open(const char *path, char *error, size_t size);
void vgpu_vm_memory_close(const struct vgpu_vm_memory *memory);

#endif
