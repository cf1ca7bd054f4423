/* The file that a VM shares with the host: vm-memory= of hostd.conf. */
#ifndef VGPU_HOST_VM_MEMORY_FILE_H
#define VGPU_HOST_VM_MEMORY_FILE_H

#include <stddef.h>

#include "host/session/vm_memory.h"

/*
 * Opens the file for one worker. If the result has 0 bytes, there is nothing to close, and `error`, of `size`
 * bytes, has the reason. An empty `path` means that the VM has no such memory; `error` is then empty.
 */
struct vgpu_vm_memory vgpu_vm_memory_open(const char *path, char *error, size_t size);
void vgpu_vm_memory_close(const struct vgpu_vm_memory *memory);

#endif
