/* vm-memory= of hostd.conf: the file that a VM shares. */
#ifndef VGPU_HOST_VM_MEMORY_FILE_H
#define VGPU_HOST_VM_MEMORY_FILE_H

#include <stddef.h>

#include "host/session/vm_memory.h"

/* 0 bytes: nothing to close; `error` (`size` bytes) has the reason, or is empty if `path` is. */
struct vgpu_vm_memory vgpu_vm_memory_open(const char *path, char *error, size_t size);
void vgpu_vm_memory_close(const struct vgpu_vm_memory *memory);

#endif
