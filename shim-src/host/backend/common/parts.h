/*
 * nvcc -rdc=true makes a PTX text for each object, linked when the program is loaded. The guest sends them in
 * one fat binary, but a driver uses only one text of it.
 */
#ifndef VGPU_HOST_PARTS_H
#define VGPU_HOST_PARTS_H

#include "image/container.h"

/* Entries with the kind, architecture and specificity of `like`. */
uint32_t vgpu_parts_count(const void *image, uint64_t size, const struct vgpu_entry *like);

/*
 * Zero-terminated, for free(). OUT_OF_MEMORY (also beyond `limit` bytes), INVALID_IMAGE or INVALID_PTX: `why`
 * has a line.
 */
int32_t vgpu_parts_link(const void *image, uint64_t size, const struct vgpu_entry *like, uint64_t limit,
                        char **text, uint64_t *length, char *why, size_t why_size);

/* The linked text of an image of such parts only, for free(). NULL: it is not one, or cannot be linked. */
char *vgpu_parts_text(const void *image, uint64_t size, uint64_t limit);

#endif
