#ifndef VGPU_HOST_SOFTWARE_DEVICE_RUNTIME_H
#define VGPU_HOST_SOFTWARE_DEVICE_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>

/* True for libcudadevrt.a, by the name of its member. */
bool vgpu_is_device_runtime(const void *archive, size_t size);

bool vgpu_uses_device_runtime(const char *text);

extern const char vgpu_device_runtime[];

#endif
