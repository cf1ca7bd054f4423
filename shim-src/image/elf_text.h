/* A linked image of the software device: a cubin with a section of PTX text, but no machine code. */
#ifndef VGPU_IMAGE_ELF_TEXT_H
#define VGPU_IMAGE_ELF_TEXT_H

#include <stdint.h>

#define VGPU_ELF_TEXT_SECTION ".vgpu.ptx"

/* EI_ABIVERSION of no GPU's code: drivers refuse the file, so no kernel without code is launched. */
#define VGPU_ELF_TEXT_ABI 255

/* `length`: without the zero that follows. NULL: another file, or a part lies outside of it. */
const char *vgpu_elf_text(const void *file, uint64_t size, uint64_t *length);

#endif
