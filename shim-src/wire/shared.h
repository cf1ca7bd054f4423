/* Sealed memory that the host makes and passes over the unix socket: shrinking it would raise SIGBUS. */
#ifndef VGPU_WIRE_SHARED_H
#define VGPU_WIRE_SHARED_H

#include <stdbool.h>
#include <stdint.h>

/* Zeroed. Returns a descriptor (close-on-exec), or -1 with errno. Pages are taken at their first use. */
int vgpu_shared_make(const char *name, uint64_t bytes);

/* True if the memory has exactly `bytes` bytes and its seals keep this size. */
bool vgpu_shared_sound(int descriptor, uint64_t bytes);

/* NULL: no room. The caller calls munmap. */
void *vgpu_shared_map(int descriptor, uint64_t bytes);

#endif
