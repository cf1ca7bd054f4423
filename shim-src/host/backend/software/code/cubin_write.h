/* An ELF file like a cubin, but with PTX text instead of machine code (image/elf_text.h). */
#ifndef VGPU_HOST_SOFTWARE_CUBIN_WRITE_H
#define VGPU_HOST_SOFTWARE_CUBIN_WRITE_H

#include "host/backend/software/code/program.h"

/* For free(). NULL: no memory, or more kernels than sections (about 21,000); `why` has a line. */
unsigned char *vgpu_cubin_write(const struct vgpu_program *program, const struct vgpu_program_target *target,
                                uint64_t *size, char *why, size_t why_size);

#endif
