/* LLVM by its C API, from a shared library that is found when it is needed. */
#ifndef VGPU_PTX_LLVM_H
#define VGPU_PTX_LLVM_H

#include <stdbool.h>
#include <stddef.h>

struct ptx_llvm;

/* Returns the path of the library, without loading it. NULL: none is installed, or this is not x86-64. */
const char *ptx_llvm_library(void);

/* Loads the library. NULL: this failed; `why` has the reason. */
struct ptx_llvm *ptx_llvm_open(const char *library, const char *cpu, char *why, size_t why_size);

/*
 * Compiles a text to an object file (ELF), which the caller frees. NULL: LLVM refused; `why` has its message.
 * `quick`: with fewer passes and simple allocation of registers, and so are later texts of this process.
 */
unsigned char *ptx_llvm_compile(struct ptx_llvm *llvm, const char *text, size_t length, bool quick,
                                size_t *size, char *why, size_t why_size);

#endif
