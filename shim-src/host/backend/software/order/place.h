#ifndef VGPU_HOST_SOFTWARE_PLACE_H
#define VGPU_HOST_SOFTWARE_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "host/session/handles.h"
#include "host/backend/dispatch.h"

struct vgpu_place {
  uint64_t context;
  uint64_t primary; /* of a green context: its primary context, whose waits include it; else `context` */
  uint64_t stream;
  uint64_t exec;   /* the executable with conditions that the call launches, changes or destroys; 0: none */
  bool conditions; /* frees conditions of executables that are not known */
  bool legacy;     /* the default stream: it and all blocking streams wait for each other */
  bool blocking;   /* a blocking stream */
  bool after_all;  /* unloads code that any earlier call may need; delays no call */
  bool whole;      /* waits for the whole context; delays no call */
  bool first;      /* all later calls of the context come after it */
};

/*
 * Finds the place of a call: its stream, and the calls that it may not overtake. False: no stream delays the
 * call.
 */
bool vgpu_place_find(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row, const void *body,
                     struct vgpu_place *place);

/* True if `second` may not run before `first`. */
bool vgpu_place_ordered(const struct vgpu_place *first, const struct vgpu_place *second);

uint64_t vgpu_place_launched(const void *body);

/* True if only this session has the event. Other sessions see only the count of a shared event. */
bool vgpu_place_owns(const struct vgpu_handle *event);

#endif
