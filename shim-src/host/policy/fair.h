#ifndef VGPU_HOST_FAIR_H
#define VGPU_HOST_FAIR_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Whether a peer with `own` of `all` places may have one more, if `free` are free. Each peer gets a
 * thirty-second (at least one) while there is any, and more while more are free than it has; the last quarter
 * is for first places. One peer then fills half of a table, two fill three quarters, and eight more find
 * first places (of 128: four each).
 */
static inline bool vgpu_fair_place(uint32_t all, uint32_t free, uint32_t own) {
  const uint32_t first = all / 32 == 0 ? 1 : all / 32;
  return free > 0 && (own < first || (own < free && free > all / 4));
}

#endif
