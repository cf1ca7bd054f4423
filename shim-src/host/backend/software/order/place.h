/* The stream that a call belongs to, and which calls may not overtake which. */
#ifndef VGPU_HOST_SOFTWARE_PLACE_H
#define VGPU_HOST_SOFTWARE_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "host/session/handles.h"
#include "host/backend/dispatch.h"

struct vgpu_place {
  uint64_t context;
  uint64_t stream;
  uint64_t exec;   /* the executable with conditions that the call launches, changes or destroys; 0: none */
  bool conditions; /* ends conditions; it is not known of which executables */
  bool legacy;     /* the default stream: it and all blocking streams wait for each other */
  bool blocking;   /* a blocking stream */
  bool after_all;  /* ends code that any call before it may need, and delays none */
  bool whole;      /* waits for all of the context, and delays none */
};

/* Finds the place of a call. False: it belongs to no stream, and no stream delays it. */
bool vgpu_place_find(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row, const void *body,
                     struct vgpu_place *place);

/* True if the second call may not run before the first. */
bool vgpu_place_ordered(const struct vgpu_place *first, const struct vgpu_place *second);

/* The executable that a cuGraphLaunch launches. */
uint64_t vgpu_place_launched(const void *body);

/* An event of this session alone. Of one that is shared, others see only the count of pending records. */
bool vgpu_place_owns(const struct vgpu_handle *event);

#endif
