/*
 * Programs in several parts: nvcc -rdc=true leaves a PTX text for each object, to be linked when the program
 * is loaded. The guest sends them in one fat binary; a driver takes one text of it.
 */
#ifndef VGPU_HOST_PARTS_H
#define VGPU_HOST_PARTS_H

#include "image/container.h"

/* Entries of the kind, architecture and specificity of `like`. */
uint32_t vgpu_parts_count(const void *image, uint64_t size, const struct vgpu_entry *like);

/*
 * All of them as one text, zero-terminated, for free(). A CUresult: 0, OUT_OF_MEMORY (also beyond `limit`
 * bytes), INVALID_IMAGE or INVALID_PTX, and then `why` has a line for people.
 */
int32_t vgpu_parts_link(const void *image, uint64_t size, const struct vgpu_entry *like, uint64_t limit,
                        char **text, uint64_t *length, char *why, size_t why_size);

/* The text of an image that is nothing but such parts, for free(); NULL: it is something else, or cannot be
 * linked. */
char *vgpu_parts_text(const void *image, uint64_t size, uint64_t limit);

#endif
