/* Several PTX texts joined to one: what one declares as external is what another defines. */
#ifndef VGPU_IMAGE_LINK_PTX_H
#define VGPU_IMAGE_LINK_PTX_H

#include <stdbool.h>
#include <stddef.h>

struct vgpu_ptx_text {
  const char *text; /* need not end in a zero */
  size_t size;
  const char *name; /* for what is said about it */
};

/* A text for free(), zero-terminated; NULL: `why` says what is wrong. */
char *vgpu_ptx_link(const struct vgpu_ptx_text *texts, size_t count, size_t *size, char *why,
                    size_t why_size);

#endif
