/* Inputs of a link, one after another in an image (wire/module.h). */
#ifndef VGPU_HOST_LINK_INPUTS_H
#define VGPU_HOST_LINK_INPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/module.h"

struct vgpu_linked_input {
  uint32_t type;              /* VGPU_LINK_CUBIN... */
  const char *name;           /* zero-terminated */
  const unsigned char *bytes; /* a zero follows them */
  uint64_t size;
};

/*
 * Reads the input at *offset, which is 0 at first. Returns 1: *input is filled; 0: there are no more; -1: the
 * rest is invalid.
 */
int vgpu_link_inputs_next(const unsigned char *inputs, uint64_t size, uint64_t *offset,
                          struct vgpu_linked_input *input);

/* Returns the count of the inputs; 0: there are none, too many, or they are invalid. */
uint32_t vgpu_link_inputs_count(const unsigned char *inputs, uint64_t size);

/*
 * Checks every bound in the inputs before a driver's linker parses them, as vgpu_image_check does for an
 * image. Returns a CUresult; if it is not 0, `why` has a line of text.
 */
int32_t vgpu_link_inputs_walk(const unsigned char *inputs, uint64_t size, uint64_t limit, char *why,
                              size_t why_size);

#endif
