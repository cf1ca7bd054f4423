/*
 * Writes a program as an ELF file in the form of a cubin, with its PTX text instead of machine code
 * (image/elf_text.h). Tools that read cubins find kernels, parameters and variables; a disassembler finds no
 * instructions.
 */
#ifndef VGPU_HOST_SOFTWARE_CUBIN_WRITE_H
#define VGPU_HOST_SOFTWARE_CUBIN_WRITE_H

#include "host/backend/software/code/program.h"

/*
 * Returns the file, for free(). NULL: there is no memory, or the program has more kernels than the file can
 * have sections (about 21,000); `why` then has a line of text. `program` must have a text.
 */
unsigned char *vgpu_cubin_write(const struct vgpu_program *program, const struct vgpu_program_target *target,
                                uint64_t *size, char *why, size_t why_size);

#endif
