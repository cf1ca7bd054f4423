/* LLVM by its C API, from a shared library that is found when it is needed. */
#ifndef VGPU_PTX_LLVM_H
#define VGPU_PTX_LLVM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ptx_llvm;

#define PTX_LLVM_PATH 64

/*
 * Returns the version of the library that is installed, without loading it; `path` (PTX_LLVM_PATH) is its
 * file. 0: there is none, or this is not x86-64.
 */
uint32_t ptx_llvm_version(char *path, size_t size);

/* Loads the library. NULL: this failed; `why` has the reason. */
struct ptx_llvm *ptx_llvm_open(const char *library, const char *cpu, char *why, size_t why_size);

/*
 * Compiles a text to an object file (ELF), which the caller frees. NULL: LLVM refused; `why` has its message.
 * `quick`: with fewer passes and simple allocation of registers, and so are later texts of this process.
 */
unsigned char *ptx_llvm_compile(struct ptx_llvm *llvm, const char *text, size_t length, bool quick,
                                size_t *size, char *why, size_t why_size);

#endif
