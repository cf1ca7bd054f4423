/*
 * Memory besides the rings that a session shares with its guest, where it is pinned memory. The guest can
 * change it at any time, so the host only copies from it and to it.
 */
#ifndef VGPU_HOST_SHARED_REGIONS_H
#define VGPU_HOST_SHARED_REGIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "host/session/vm_memory.h"

#define VGPU_SHARED_REGIONS_MAX 8192u

struct vgpu_shared_region {
  unsigned char *memory; /* NULL: the number is free */
  uint64_t bytes;
  bool mapped;        /* it is also device memory, and cannot be freed */
  bool in_kept_space; /* its addresses stay reserved after it is freed */
  bool leaves;        /* freed by the guest, but the driver still uses it */
  bool unpinnable;    /* --device cuda: the driver refused to register it */
  uint64_t pinned;    /* --device cuda: the context in which it is registered; 0: none */
  uint64_t offset;    /* in the memory of the guest's VM; 0: elsewhere */
};

struct vgpu_shared_regions {
  const struct vgpu_vm_memory *vm_memory; /* contains all regions; NULL: each has its own memory */
  uint64_t bytes;                         /* of all regions */
  uint64_t held;                          /* whole pages of regions that are not in a VM's memory */
  uint32_t leaving;                       /* regions with `leaves` */
  uint32_t begun;                         /* places from here on were never used */
  struct vgpu_shared_region array[VGPU_SHARED_REGIONS_MAX];
};

/*
 * Makes a region and maps it. Returns its number. The caller passes *descriptor on and closes it. 0: no room,
 * or more than `limit` with the other regions.
 */
uint32_t vgpu_shared_regions_add(struct vgpu_shared_regions *shared_regions, uint64_t bytes, uint64_t limit,
                                 int *descriptor);

/* The same in the memory of the guest's VM. 0 with *next: another session has the place up to *next. */
uint32_t vgpu_shared_regions_place(struct vgpu_shared_regions *shared_regions,
                                   const struct vgpu_vm_place *place, uint64_t limit, uint64_t *next);

/*
 * Marks a whole shared region as device memory. Returns its memory; NULL if there is no such region of
 * `bytes` bytes, or if it is device memory already.
 */
unsigned char *vgpu_shared_regions_map(struct vgpu_shared_regions *shared_regions, uint32_t shared_region,
                                       uint64_t bytes);
/* Ends the use of this memory's shared region as device memory. */
void vgpu_shared_regions_unmap(struct vgpu_shared_regions *shared_regions, const unsigned char *memory);

/* Frees a region. Returns an enum vgpu_status: a region that is device memory is not freed. */
int32_t vgpu_shared_regions_drop(struct vgpu_shared_regions *shared_regions, uint32_t shared_region);

/*
 * For a region that the guest frees while the driver uses it: calls no longer find it, but it still counts.
 * vgpu_shared_regions_left frees such regions when `is_used` returns false for them.
 */
void vgpu_shared_regions_leave(struct vgpu_shared_regions *shared_regions, uint32_t shared_region);
void vgpu_shared_regions_left(struct vgpu_shared_regions *shared_regions,
                              bool (*is_used)(void *context, const void *memory), void *context);

/* The region with this number; NULL: there is none. */
struct vgpu_shared_region *vgpu_shared_regions_find(struct vgpu_shared_regions *shared_regions,
                                                    uint32_t shared_region);

/* Rounds up to whole pages. */
uint64_t vgpu_shared_regions_pages(uint64_t bytes);

/* The memory that a span names. NULL: it is not within one shared region, or is too much for one call. */
unsigned char *vgpu_shared_regions_at(const struct vgpu_shared_regions *shared_regions,
                                      const struct vgpu_span *span);

#endif
