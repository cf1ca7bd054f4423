#ifndef VGPU_HOST_SOFTWARE_DEVICE_RUNTIME_H
#define VGPU_HOST_SOFTWARE_DEVICE_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The software device replaces the archive libcudadevrt.a with a PTX text of its own. Returns true for this
 * archive, which is recognised by the name of its member.
 */
bool vgpu_is_device_runtime(const void *archive, size_t size);

/* True if a zero-terminated text uses a function that our text defines. */
bool vgpu_uses_device_runtime(const char *text);

extern const char vgpu_device_runtime[];

#endif
