#ifndef VGPU_HOST_BOX_H
#define VGPU_HOST_BOX_H

#include <stdbool.h>
#include <stdint.h>

/* False: overflow, or rows or slices overlap, which could request endless work. */
bool vgpu_box_span(uint64_t width, uint64_t row, uint64_t rows, uint64_t slice, uint64_t slices,
                   uint64_t *span);

#endif
