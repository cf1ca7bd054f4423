#include "host/backend/common/link_inputs.h"

#include <ar.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_results.h"
#include "host/backend/common/image_check.h"

int vgpu_link_inputs_next(const unsigned char *inputs, uint64_t size, uint64_t *offset,
                          struct vgpu_linked_input *input) {
  struct vgpu_link_input head;
  if (*offset == size) return 0;
  uint64_t left = size - *offset;
  if (left < sizeof head) return -1;
  memcpy(&head, inputs + *offset, sizeof head);
  const unsigned char *name = inputs + *offset + sizeof head;
  if (head.name_bytes == 0 || head.bytes == 0 || head.name_bytes > left || head.bytes > left) return -1;
  uint64_t whole = vgpu_link_input_size(head.name_bytes, head.bytes);
  if (whole > left || memchr(name, '\0', head.name_bytes) != name + head.name_bytes - 1 ||
      name[head.name_bytes + head.bytes] != '\0') {
    return -1;
  }
  *input = (struct vgpu_linked_input){
      .type = head.type, .name = (const char *)name, .bytes = name + head.name_bytes, .size = head.bytes};
  *offset += whole;
  return 1;
}

uint32_t vgpu_link_inputs_count(const unsigned char *inputs, uint64_t size) {
  struct vgpu_linked_input input;
  uint64_t offset = 0;
  uint32_t count = 0;
  int more;
  while ((more = vgpu_link_inputs_next(inputs, size, &offset, &input)) == 1) {
    if (input.type > VGPU_LINK_NVVM || ++count > VGPU_LINK_INPUTS_MAX) return 0;
  }
  return more == 0 ? count : 0;
}

/* Reads the size in a member's header: decimal digits and spaces. -1: not valid. */
static int64_t member_size(const struct ar_hdr *header) {
  int64_t size = 0;
  size_t i = 0;
  for (; i < sizeof header->ar_size && header->ar_size[i] != ' '; i++) {
    if (header->ar_size[i] < '0' || header->ar_size[i] > '9') return -1;
    size = size * 10 + header->ar_size[i] - '0';
  }
  return i == 0 ? -1 : size;
}

static int32_t fail(int32_t result, char *why, size_t why_size, const char *name, const char *text) {
  snprintf(why, why_size, "'%s': %s", name, text);
  return result;
}

/* Checks that each member of an archive is inside of it, and each ELF member with elf_sound(). */
static int32_t walk_archive(const struct vgpu_linked_input *input, char *why, size_t why_size) {
  if (input->size < SARMAG || memcmp(input->bytes, ARMAG, SARMAG) != 0)
    return fail(CUDA_ERROR_INVALID_IMAGE, why, why_size, input->name, "a library that is not an archive");
  uint64_t at = SARMAG;
  while (at < input->size) {
    struct ar_hdr header;
    if (input->size - at < sizeof header) break;
    memcpy(&header, input->bytes + at, sizeof header);
    at += sizeof header;
    int64_t size = member_size(&header);
    if (size < 0 || memcmp(header.ar_fmag, ARFMAG, sizeof header.ar_fmag) != 0 ||
        (uint64_t)size > input->size - at)
      break;
    if (size >= 4 && memcmp(input->bytes + at, "\177ELF", 4) == 0 &&
        !vgpu_object_check(input->bytes + at, (uint64_t)size))
      return fail(CUDA_ERROR_INVALID_IMAGE, why, why_size, input->name,
                  "a library with an object whose parts lie outside of it");
    at += (uint64_t)size + (size & 1);
  }
  return at >= input->size ? CUDA_SUCCESS
                           : fail(CUDA_ERROR_INVALID_IMAGE, why, why_size, input->name,
                                  "a library whose members do not agree with its size");
}

static int32_t walk_input(const struct vgpu_linked_input *input, uint64_t limit, char *why, size_t why_size) {
  char inner[160];
  int32_t result;
  switch (input->type) {
    case VGPU_LINK_NVVM:
      return fail(CUDA_ERROR_NOT_SUPPORTED, why, why_size, input->name,
                  "NVVM code is not linked by the driver; nvJitLink links it");
    case VGPU_LINK_LIBRARY:
      return walk_archive(input, why, why_size);
    case VGPU_LINK_OBJECT:
      return vgpu_object_check(input->bytes, input->size)
                 ? CUDA_SUCCESS
                 : fail(CUDA_ERROR_INVALID_IMAGE, why, why_size, input->name,
                        "an object whose parts lie outside of it");
    default:
      result = vgpu_image_check(input->bytes, input->size, limit, inner, sizeof inner);
      return result == CUDA_SUCCESS ? result : fail(result, why, why_size, input->name, inner);
  }
}

int32_t vgpu_link_inputs_walk(const unsigned char *inputs, uint64_t size, uint64_t limit, char *why,
                              size_t why_size) {
  if (vgpu_link_inputs_count(inputs, size) == 0) {
    snprintf(why, why_size, "the inputs of a link do not agree with their size");
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct vgpu_linked_input input;
  uint64_t offset = 0;
  int32_t result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && vgpu_link_inputs_next(inputs, size, &offset, &input) == 1)
    result = walk_input(&input, limit, why, why_size);
  return result;
}
