/*
 * Memory that two processes share. The host makes it and passes it over the unix socket. It is sealed,
 * because an end that shrinks the memory would cause a SIGBUS at the other.
 */
#ifndef VGPU_WIRE_SHARED_H
#define VGPU_WIRE_SHARED_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Makes zeroed memory. Returns a descriptor (close-on-exec), or -1 with errno. The kernel provides each page
 * at its first use.
 */
int vgpu_shared_make(const char *name, uint64_t bytes);

/* True if the memory has exactly `bytes` bytes and its seals keep this size. */
bool vgpu_shared_sound(int descriptor, uint64_t bytes);

/* Maps the memory for reading and writing. NULL: no room. The caller ends the mapping with munmap. */
void *vgpu_shared_map(int descriptor, uint64_t bytes);

#endif
