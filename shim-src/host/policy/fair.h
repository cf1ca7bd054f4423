/* Shares the places of a table among peers, so that some remain for a peer that has none. */
#ifndef VGPU_HOST_FAIR_H
#define VGPU_HOST_FAIR_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Whether a peer that has `own` of `all` places may have one more, when `free` are free. Each peer has a
 * thirty-second (at least one place) as long as there is any. It may have more while more places are free
 * than it has, and the last quarter is for those first places. One peer then fills half of a table, two fill
 * three quarters, and at least eight more find their first places (of 128: four each).
 */
static inline bool vgpu_fair_place(uint32_t all, uint32_t free, uint32_t own) {
  const uint32_t first = all / 32 == 0 ? 1 : all / 32;
  return free > 0 && (own < first || (own < free && free > all / 4));
}

#endif
