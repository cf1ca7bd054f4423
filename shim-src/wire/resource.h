/*
 * A resource of a device (CUdevResource) between guest and host. The program sees a number; the host keeps
 * the resource itself.
 */
#ifndef VGPU_WIRE_RESOURCE_H
#define VGPU_WIRE_RESOURCE_H

#include "api/structures.h"

#define VGPU_RESOURCE_GROUPS_MAX 1024u /* of one split; more than any device has multiprocessors */

struct vgpu_resource {
  uint64_t number; /* of this session; 0: the program made it itself */
  int32_t type;
  uint32_t reserved;
  unsigned char visible[VGPU_RESOURCE_VISIBLE];
};
_Static_assert(sizeof(struct vgpu_resource) == 56, "no padding");

#endif
