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

/* *offset is 0 at first. 1: *input is filled; 0: no more; -1: the rest is invalid. */
int vgpu_link_inputs_next(const unsigned char *inputs, uint64_t size, uint64_t *offset,
                          struct vgpu_linked_input *input);

/* 0: none, too many, or invalid. */
uint32_t vgpu_link_inputs_count(const unsigned char *inputs, uint64_t size);

/*
 * Every bound, before a driver's linker parses them (as vgpu_image_walk). A CUresult; unless 0, `why` has a
 * line.
 */
int32_t vgpu_link_inputs_walk(const unsigned char *inputs, uint64_t size, uint64_t limit, char *why,
                              size_t why_size);

#endif
