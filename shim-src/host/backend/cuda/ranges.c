#include "host/backend/cuda/ranges.h"

#include "sorted_ranges.h"

VGPU_SORTED_RANGES(struct vgpu_ranges, struct vgpu_range, address)

bool vgpu_ranges_add(struct vgpu_ranges *ranges, const struct vgpu_range *range) {
  if (range->size == 0 || range->address + range->size < range->address) return false;
  size_t at = upper_bound(ranges, range->address);
  if (at > 0 && range->address - ranges->array[at - 1].address < ranges->array[at - 1].size) return false;
  if (at < ranges->count && ranges->array[at].address - range->address < range->size) return false;
  if (!make_room(ranges)) return false;
  insert(ranges, range);
  return true;
}

static void take_out(struct vgpu_ranges *ranges, size_t at, struct vgpu_range *removed) {
  *removed = ranges->array[at];
  remove_at(ranges, at);
}

bool vgpu_ranges_remove(struct vgpu_ranges *ranges, uint64_t address, uint32_t kind,
                        struct vgpu_range *removed) {
  size_t at = upper_bound(ranges, address);
  if (at == 0 || ranges->array[at - 1].address != address || ranges->array[at - 1].kind != kind) return false;
  take_out(ranges, at - 1, removed);
  return true;
}

bool vgpu_ranges_remove_of(struct vgpu_ranges *ranges, uint64_t context, struct vgpu_range *removed) {
  for (size_t at = ranges->count; at > 0; at--) {
    if (ranges->array[at - 1].context != context) continue;
    take_out(ranges, at - 1, removed);
    return true;
  }
  return false;
}

bool vgpu_ranges_remove_owned(struct vgpu_ranges *ranges, uint64_t owner, struct vgpu_range *removed) {
  for (size_t at = ranges->count; at > 0; at--) {
    if (ranges->array[at - 1].owner != owner) continue;
    take_out(ranges, at - 1, removed);
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
