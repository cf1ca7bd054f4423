/* Checks every bound of an image before other code, such as the driver, trusts its offsets and sizes. */
#ifndef VGPU_HOST_IMAGE_CHECK_H
#define VGPU_HOST_IMAGE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Returns 0 for a bare fat binary, a cubin or PTX text whose parts are all within its `size` bytes. Packed
 * parts are unpacked to be checked, up to `limit` bytes each. Else returns a CUresult (2, 200), and `why` has
 * a line of text. nvcc's wrapper is refused, because it is a pointer of the guest's address space.
 */
int32_t vgpu_image_check(const void *image, uint64_t size, uint64_t limit, char *why, size_t why_size);

/* Like vgpu_image_check, for a relocatable object of any machine: a host's object can contain device code. */
bool vgpu_object_check(const void *object, uint64_t size);

#endif
