#include "host/backend/common/box.h"

bool vgpu_box_span(uint64_t width, uint64_t row, uint64_t rows, uint64_t slice, uint64_t slices,
                   uint64_t *span) {
  uint64_t down, deep;
  return width != 0 && rows != 0 && slices != 0 && (rows == 1 || row >= width) &&
         !__builtin_mul_overflow(row, rows - 1, &down) && !__builtin_add_overflow(width, down, span) &&
         (slices == 1 || slice >= *span) && !__builtin_mul_overflow(slice, slices - 1, &deep) &&
         !__builtin_add_overflow(*span, deep, span);
}
