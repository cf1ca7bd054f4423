/*
 * Memory that two processes share: made by the host, passed over the unix socket, sealed so that neither
 * end can shrink it under the other (which would be a SIGBUS there).
 */
#ifndef VGPU_WIRE_SHARED_H
#define VGPU_WIRE_SHARED_H

#include <stdbool.h>
#include <stdint.h>

/* A descriptor (close-on-exec) of zeroed memory, or -1 with errno. No page is taken before it is used. */
int vgpu_shared_make(const char *name, uint64_t bytes);

/* True if it has exactly so many bytes and always will. */
bool vgpu_shared_sound(int descriptor, uint64_t bytes);

/* Read and write; NULL when there is no room. To be given back with munmap. */
void *vgpu_shared_map(int descriptor, uint64_t bytes);

#endif
