/* Copies to and from memory of a PCI device: a VM sees the memory that it shares with its host as one. */
#ifndef VGPU_WIRE_DEVICE_COPY_H
#define VGPU_WIRE_DEVICE_COPY_H

#include <stddef.h>

/* `device` is `to` or `from`: the pointer whose blocks are to be aligned. */
void vgpu_device_copy(void *to, const void *from, size_t bytes, const void *device);

#endif
