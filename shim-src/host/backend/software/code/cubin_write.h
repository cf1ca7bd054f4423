/*
 * Writes a program as an ELF file like a cubin: for each kernel a section, a symbol, parameters and resources
 * in .nv.info, shared memory; the variables with initial values; and PTX text instead of machine code
 * (image/elf_text.h).
 */
#ifndef VGPU_HOST_SOFTWARE_CUBIN_WRITE_H
#define VGPU_HOST_SOFTWARE_CUBIN_WRITE_H

#include "host/backend/software/code/program.h"

/*
 * For free(). `program` has a text. NULL: no memory, or more kernels than sections (about 21,000); `why` has
 * a line.
 */
unsigned char *vgpu_cubin_write(const struct vgpu_program *program, const struct vgpu_program_target *target,
                                uint64_t *size, char *why, size_t why_size);

#endif
