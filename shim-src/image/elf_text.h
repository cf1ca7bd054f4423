/*
 * A linked image of the software device is an ELF file of the form that cubins have, without machine code. A
 * section of it holds the PTX text that is compiled when the image is loaded.
 */
#ifndef VGPU_IMAGE_ELF_TEXT_H
#define VGPU_IMAGE_ELF_TEXT_H

#include <stdint.h>

#define VGPU_ELF_TEXT_SECTION ".vgpu.ptx"

/*
 * A number that no GPU's code has (EI_ABIVERSION), so that a driver that is given such a file refuses it: a
 * kernel without code must not be launched.
 */
#define VGPU_ELF_TEXT_ABI 255

/*
 * Returns the text of such a file and its length without the zero that follows it; NULL: it is another file,
 * or a part lies outside of it.
 */
const char *vgpu_elf_text(const void *file, uint64_t size, uint64_t *length);

#endif
