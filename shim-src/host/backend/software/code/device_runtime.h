/* The PTX text with which the software device replaces libcudadevrt.a. */
#ifndef VGPU_HOST_SOFTWARE_DEVICE_RUNTIME_H
#define VGPU_HOST_SOFTWARE_DEVICE_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>

/* True for the archive libcudadevrt.a, which is recognised by the name of its member. */
bool vgpu_is_device_runtime(const void *archive, size_t size);

/* True if a zero-terminated text uses a function that our text defines. */
bool vgpu_uses_device_runtime(const char *text);

extern const char vgpu_device_runtime[];

#endif
