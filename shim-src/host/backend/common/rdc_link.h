/*
 * nvcc -rdc=true makes a PTX text for each object, linked when the program is loaded. The guest sends them in
 * one fat binary, but a driver uses only one text of it.
 */
#ifndef VGPU_HOST_RDC_LINK_H
#define VGPU_HOST_RDC_LINK_H

#include "image/container.h"

/* Returns the count of entries with the kind, architecture and specificity of `like`. */
uint32_t vgpu_rdc_count(const void *image, uint64_t size, const struct vgpu_entry *like);

/*
 * Links all of these entries to one text: *text is zero-terminated, for free(). Returns 0 or a CUresult:
 * OUT_OF_MEMORY (also beyond `limit` bytes), INVALID_IMAGE or INVALID_PTX. `why` then has a line of text.
 */
int32_t vgpu_rdc_link(const void *image, uint64_t size, const struct vgpu_entry *like, uint64_t limit,
                      char **text, uint64_t *length, char *why, size_t why_size);

/*
 * Returns the linked text, for free(), of an image that consists only of such entries. NULL: it does not, or
 * the entries cannot be linked.
 */
char *vgpu_rdc_text(const void *image, uint64_t size, uint64_t limit);

#endif
