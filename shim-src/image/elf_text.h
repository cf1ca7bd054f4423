/*
 * A linked image of the software device is an ELF file in the form of a cubin, without machine code. One
 * section holds the PTX text, which is compiled when the image is loaded.
 */
#ifndef VGPU_IMAGE_ELF_TEXT_H
#define VGPU_IMAGE_ELF_TEXT_H

#include <stdint.h>

#define VGPU_ELF_TEXT_SECTION ".vgpu.ptx"

/*
 * A value of EI_ABIVERSION that no GPU's code has, so that a driver refuses the file: a kernel without code
 * must not be launched.
 */
#define VGPU_ELF_TEXT_ABI 255

/*
 * Returns the text of such a file, and its length without the zero that follows it. NULL: it is another file,
 * or a part lies outside of it. The text is a part of `file`.
 */
const char *vgpu_elf_text(const void *file, uint64_t size, uint64_t *length);

#endif
