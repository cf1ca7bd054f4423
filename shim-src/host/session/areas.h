/*
 * Memory that a session shares with its guest beside the rings: what the guest calls pinned. The guest can
 * change it at any time, so a call gets it only for data that it copies and never looks into.
 */
#ifndef VGPU_HOST_AREAS_H
#define VGPU_HOST_AREAS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/frame.h"

#define VGPU_AREAS_MAX 8192u

struct vgpu_area {
  unsigned char *memory; /* NULL: the number is free */
  uint64_t bytes;
  bool mapped; /* device memory, too: stays while it is */
};

struct vgpu_areas {
  uint64_t bytes; /* of all */
  struct vgpu_area array[VGPU_AREAS_MAX];
};

/* Makes one, mapped; *descriptor is to be passed on and closed. 0: no room, or over `limit` with the rest. */
uint32_t vgpu_areas_add(struct vgpu_areas *areas, uint64_t bytes, uint64_t limit, int *descriptor);

/* Marks all of an area as device memory; its memory, or NULL if it is none of so many bytes or is so already.
 */
unsigned char *vgpu_areas_map(struct vgpu_areas *areas, uint32_t area, uint64_t bytes);
/* The area whose memory this is no longer device memory. */
void vgpu_areas_unmap(struct vgpu_areas *areas, const unsigned char *memory);

/* An enum vgpu_status; one that is device memory is not dropped. */
int32_t vgpu_areas_drop(struct vgpu_areas *areas, uint32_t area);

/* The memory that a span names; NULL when it is not all in one area, or too much for one call. */
unsigned char *vgpu_areas_at(const struct vgpu_areas *areas, const struct vgpu_span *span);

#endif
