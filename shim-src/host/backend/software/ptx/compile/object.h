/* An object file of LLVM as position-independent code. */
#ifndef VGPU_PTX_OBJECT_H
#define VGPU_PTX_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Places the loaded sections of a relocatable ELF file in `to`, applies its relocations, which must be
 * relative and within the file, and gives the place of the symbol. False: the file is not like that, or does
 * not fit; `why` says how.
 */
bool ptx_object_place(const unsigned char *object, size_t size, const char *symbol, unsigned char *to,
                      size_t room, size_t *used, size_t *entry, char *why, size_t why_size);

#endif
