/*
 * Memory that a session shares with its guest beside the rings: what the guest calls pinned. The guest can
 * change it at any time, so a call gets it only for data that it copies and never looks into.
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
  bool mapped;     /* device memory, too: stays while it is */
  bool leaves;     /* given back by the guest, and the driver is not done with it */
  bool unpinnable; /* --device cuda: the driver did not take it */
  uint64_t pinned; /* --device cuda: the context in which the driver has it registered; 0: none */
  uint64_t offset; /* in the memory of the guest's VM; 0: it is not in there */
};

struct vgpu_shared_regions {
  const struct vgpu_vm_memory *vm_memory; /* where all of them lie; NULL: each is memory of its own */
  uint64_t bytes;                         /* of all */
  uint32_t leaving;                       /* how many do */
  uint32_t begun;                         /* the places from here on were never used */
  struct vgpu_shared_region array[VGPU_SHARED_REGIONS_MAX];
};

/*
 * Makes one, mapped. Its *descriptor is to be passed on and closed. 0: no room, or over `limit` with the
 * rest.
 */
uint32_t vgpu_shared_regions_add(struct vgpu_shared_regions *shared_regions, uint64_t bytes, uint64_t limit,
                                 int *descriptor);

/* The same in the memory of the guest's VM. 0 with *next: another session has the place up to there. */
uint32_t vgpu_shared_regions_place(struct vgpu_shared_regions *shared_regions,
                                   const struct vgpu_vm_place *place, uint64_t limit, uint64_t *next);

/* Marks all of a shared region as device memory; its memory, or NULL if it is none of so many bytes or is so
 * already.
 */
unsigned char *vgpu_shared_regions_map(struct vgpu_shared_regions *shared_regions, uint32_t shared_region,
                                       uint64_t bytes);
/* The shared region whose memory this is no longer device memory. */
void vgpu_shared_regions_unmap(struct vgpu_shared_regions *shared_regions, const unsigned char *memory);

/* An enum vgpu_status; one that is device memory is not dropped. */
int32_t vgpu_shared_regions_drop(struct vgpu_shared_regions *shared_regions, uint32_t shared_region);

/*
 * For one that is dropped while the driver uses it: no call finds it, and it counts, until
 * vgpu_shared_regions_left has dropped it, once `is_used` no longer says so.
 */
void vgpu_shared_regions_leave(struct vgpu_shared_regions *shared_regions, uint32_t shared_region);
void vgpu_shared_regions_left(struct vgpu_shared_regions *shared_regions,
                              bool (*is_used)(void *context, const void *memory), void *context);

/* The place of a number; NULL: there is none. */
struct vgpu_shared_region *vgpu_shared_regions_find(struct vgpu_shared_regions *shared_regions,
                                                    uint32_t shared_region);

/* The memory that a span names; NULL when it is not all in one shared region, or too much for one call. */
unsigned char *vgpu_shared_regions_at(const struct vgpu_shared_regions *shared_regions,
                                      const struct vgpu_span *span);

#endif
