#ifndef VGPU_HOST_FAIR_H
#define VGPU_HOST_FAIR_H

#include <stdbool.h>
#include <stdint.h>

/*
 * True if a peer that has `own` of `all` places may have one more, when `free` are free. Each peer gets a
 * thirty-second of the places (at least one) while any is free. It gets more while more places are free than
 * it has; the last quarter is for peers' first places. One peer then fills half of a table, two fill three
 * quarters, and at least eight more find their first places (of 128: four each).
 */
static inline bool vgpu_fair_place(uint32_t all, uint32_t free, uint32_t own) {
  const uint32_t first = all / 32 == 0 ? 1 : all / 32;
  return free > 0 && (own < first || (own < free && free > all / 4));
}

#endif
