#ifndef VGPU_HOST_BOX_H
#define VGPU_HOST_BOX_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Sets *span to the bytes from the first to the last of a box. False: the number overflows, or rows or slices
 * overlap, because such a box could request endless work with little memory.
 */
bool vgpu_box_span(uint64_t width, uint64_t row, uint64_t rows, uint64_t slice, uint64_t slices,
                   uint64_t *span);

#endif
