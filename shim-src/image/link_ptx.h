/* Joins several PTX texts to one. A name that one text declares as external is defined by another. */
#ifndef VGPU_IMAGE_LINK_PTX_H
#define VGPU_IMAGE_LINK_PTX_H

#include <stdbool.h>
#include <stddef.h>

struct vgpu_ptx_text {
  const char *text; /* need not end in a zero */
  size_t size;
  const char *name; /* name for messages */
};

/* Returns a zero-terminated text, for free(). NULL: `why` has the error. */
char *vgpu_ptx_link(const struct vgpu_ptx_text *texts, size_t count, size_t *size, char *why,
                    size_t why_size);

#endif
