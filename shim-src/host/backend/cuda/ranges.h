/*
 * The device memory of one session. Its addresses are the real driver's, so each address from a guest is
 * checked against this list before the driver sees it. Sorted by address.
 */
#ifndef VGPU_HOST_CUDA_RANGES_H
#define VGPU_HOST_CUDA_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgpu_cuda_pool;

struct vgpu_range {
  uint64_t address;
  uint64_t size;
  uint64_t context;            /* its context; 0: none */
  uint64_t owner;              /* its module or library; 0: none */
  struct vgpu_cuda_pool *pool; /* NULL: none */
  uint64_t counted;            /* bytes that it counts as */
  uint32_t device;
  uint32_t kind; /* its kind, from the part that added it */
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
  VGPU_RANGE_GATES = 5,      /* words of this process's memory (gate.c) */
  VGPU_RANGE_LENT = 6,       /* memory that the guest shares (lent.c) */
  VGPU_RANGE_OPENED = 7,     /* memory of another session (sharing.c) */
};

/* Adds a range. False: no memory, or it overlaps another range. */
bool vgpu_ranges_add(struct vgpu_ranges *ranges, const struct vgpu_range *range);

/* Removes the range of this kind that begins exactly here. */
bool vgpu_ranges_remove(struct vgpu_ranges *ranges, uint64_t address, uint32_t kind,
                        struct vgpu_range *removed);

/* Removes one range of a context. False: it has none left. */
bool vgpu_ranges_remove_of(struct vgpu_ranges *ranges, uint64_t context, struct vgpu_range *removed);

/* Removes one range of a module or library. False: it has none left. */
bool vgpu_ranges_remove_owned(struct vgpu_ranges *ranges, uint64_t owner, struct vgpu_range *removed);

/* Returns the range that contains `address`, valid until the next add or remove. NULL: none. */
const struct vgpu_range *vgpu_ranges_find(const struct vgpu_ranges *ranges, uint64_t address);

/* True if all of [address, address + bytes) belongs to the session. Adjacent ranges count as one. */
bool vgpu_ranges_hold(const struct vgpu_ranges *ranges, uint64_t address, uint64_t bytes);

#endif
