/* Checks every bound of an image before other code, such as the driver, trusts its offsets and sizes. */
#ifndef VGPU_HOST_WALK_H
#define VGPU_HOST_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * 0: a bare fat binary, a cubin or PTX text, all parts within `size`. Packed parts are unpacked, up to
 * `limit` bytes each. Else a CUresult (2, 200), and `why` has a line. nvcc's wrapper is refused: it is a
 * pointer of the guest.
 */
int32_t vgpu_image_walk(const void *image, uint64_t size, uint64_t limit, char *why, size_t why_size);

/* For a relocatable object of any machine: a host's object can contain device code. */
bool vgpu_object_walk(const void *object, uint64_t size);

#endif
