/*
 * The device memory that one session holds: addresses are the real driver's, so what a guest names is
 * checked against this before the driver sees it. Sorted by address.
 */
#ifndef VGPU_HOST_CUDA_RANGES_H
#define VGPU_HOST_CUDA_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgpu_range {
  uint64_t address;
  uint64_t size;
  uint64_t context; /* that it goes with; 0: none */
  uint64_t owner;   /* a module or library that it goes with; 0: none */
  uint64_t counted; /* bytes taken of the accounts */
  uint32_t device;
  uint32_t kind; /* of the part that made it */
};

struct vgpu_ranges {
  struct vgpu_range *array;
  size_t count;
  size_t capacity;
};

enum vgpu_range_kind {
  VGPU_RANGE_ALLOCATION = 1, /* cuMemAlloc */
  VGPU_RANGE_VARIABLE = 2,   /* of a module or library */
  VGPU_RANGE_MAPPED = 3,     /* cuMemMap */
  VGPU_RANGE_POOLED = 4,     /* cuMemAllocFromPoolAsync */
};

/* False: no memory, or it overlaps one that is there. */
bool vgpu_ranges_add(struct vgpu_ranges *ranges, const struct vgpu_range *range);

/* Takes away the one of this kind that begins exactly here. */
bool vgpu_ranges_remove(struct vgpu_ranges *ranges, uint64_t address, uint32_t kind,
                        struct vgpu_range *removed);

/* Takes away one of a context; false when it has none (any more). */
bool vgpu_ranges_remove_of(struct vgpu_ranges *ranges, uint64_t context, struct vgpu_range *removed);

/* Takes away one of a module or library; false when it has none (any more). */
bool vgpu_ranges_remove_owned(struct vgpu_ranges *ranges, uint64_t owner, struct vgpu_range *removed);

/* The one that contains `address`, valid until the next add or remove; NULL: none. */
const struct vgpu_range *vgpu_ranges_find(const struct vgpu_ranges *ranges, uint64_t address);

/* True if all of [address, address + bytes) is the session's. Ranges that touch count as one. */
bool vgpu_ranges_hold(const struct vgpu_ranges *ranges, uint64_t address, uint64_t bytes);

#endif
