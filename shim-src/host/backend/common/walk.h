/*
 * Walks an image with every bound checked, before code that trusts the image's own sizes parses it: the
 * driver reads at the offsets of an ELF header, wherever they point.
 */
#ifndef VGPU_HOST_WALK_H
#define VGPU_HOST_WALK_H

#include <stddef.h>
#include <stdint.h>

/*
 * 0 for a bare fat binary, a cubin or PTX text, all of whose parts lie inside of its `size` bytes; packed
 * parts are unpacked to be looked at, of `limit` bytes at most each. Else a CUresult (2, 200), and `why` has
 * a line for people. The wrapper that nvcc makes is refused: it is a pointer, of the guest's address space.
 */
int32_t vgpu_image_walk(const void *image, uint64_t size, uint64_t limit, char *why, size_t why_size);

#endif
