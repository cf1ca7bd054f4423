#include "host/backend/cuda/ranges.h"

#include <stdlib.h>
#include <string.h>

/* Number of ranges that start at or below `address`. */
static size_t upper_bound(const struct vgpu_ranges *ranges, uint64_t address) {
  size_t low = 0, high = ranges->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (ranges->array[middle].address <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

static bool grow(struct vgpu_ranges *ranges) {
  if (ranges->count < ranges->capacity) return true;
  size_t capacity = ranges->capacity == 0 ? 64 : ranges->capacity * 2;
  struct vgpu_range *array = realloc(ranges->array, capacity * sizeof *array);
  if (array == NULL) return false;
  ranges->array = array;
  ranges->capacity = capacity;
  return true;
}

bool vgpu_ranges_add(struct vgpu_ranges *ranges, const struct vgpu_range *range) {
  if (range->size == 0 || range->address + range->size < range->address) return false;
  size_t at = upper_bound(ranges, range->address);
  if (at > 0 && range->address - ranges->array[at - 1].address < ranges->array[at - 1].size) return false;
  if (at < ranges->count && ranges->array[at].address - range->address < range->size) return false;
  if (!grow(ranges)) return false;
  memmove(&ranges->array[at + 1], &ranges->array[at], (ranges->count - at) * sizeof *ranges->array);
  ranges->array[at] = *range;
  ranges->count++;
  return true;
}

static void remove_at(struct vgpu_ranges *ranges, size_t at, struct vgpu_range *removed) {
  *removed = ranges->array[at];
  ranges->count--;
  memmove(&ranges->array[at], &ranges->array[at + 1], (ranges->count - at) * sizeof *ranges->array);
}

bool vgpu_ranges_remove(struct vgpu_ranges *ranges, uint64_t address, uint32_t kind,
                        struct vgpu_range *removed) {
  size_t at = upper_bound(ranges, address);
  if (at == 0 || ranges->array[at - 1].address != address || ranges->array[at - 1].kind != kind) return false;
  remove_at(ranges, at - 1, removed);
  return true;
}

bool vgpu_ranges_remove_of(struct vgpu_ranges *ranges, uint64_t context, struct vgpu_range *removed) {
  for (size_t at = ranges->count; at > 0; at--) {
    if (ranges->array[at - 1].context != context) continue;
    remove_at(ranges, at - 1, removed);
    return true;
  }
  return false;
}

bool vgpu_ranges_remove_owned(struct vgpu_ranges *ranges, uint64_t owner, struct vgpu_range *removed) {
  for (size_t at = ranges->count; at > 0; at--) {
    if (ranges->array[at - 1].owner != owner) continue;
    remove_at(ranges, at - 1, removed);
    return true;
  }
  return false;
}

const struct vgpu_range *vgpu_ranges_find(const struct vgpu_ranges *ranges, uint64_t address) {
  size_t at = upper_bound(ranges, address);
  if (at == 0) return NULL;
  const struct vgpu_range *range = &ranges->array[at - 1];
  return address - range->address < range->size ? range : NULL;
}

bool vgpu_ranges_hold(const struct vgpu_ranges *ranges, uint64_t address, uint64_t bytes) {
  for (;;) {
    const struct vgpu_range *range = vgpu_ranges_find(ranges, address);
    if (range == NULL) return false;
    uint64_t here = range->size - (address - range->address);
    if (bytes <= here) return true;
    bytes -= here;
    address += here;
  }
}
