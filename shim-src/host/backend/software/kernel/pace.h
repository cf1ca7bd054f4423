/*
 * Turns for copies, fills, compilation and many short calls; kernels take their own. A session that calls
 * little takes no turn: its time is charged with a later turn. A call that compiles waits for a turn, and so
 * do calls of a session whose calls take long.
 */
#ifndef VGPU_HOST_SOFTWARE_PACE_H
#define VGPU_HOST_SOFTWARE_PACE_H

#include "host/backend/dispatch.h"

struct vgpu_pace {
  uint32_t depth;   /* levels of nested calls: those during a kernel */
  bool holds;       /* a turn is taken */
  uint64_t began;   /* nanoseconds: start of the time that is not charged yet */
  uint64_t unpaid;  /* time of calls without a turn */
  uint64_t patient; /* until then each call waits for a turn */
};

int32_t vgpu_pace_run(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row, const void *body,
                      void *reply, struct vgpu_bulk *bulk);

struct vgpu_turns vgpu_pace_turns(const struct vgpu_worker *worker);

/*
 * Ends a turn of the calling thread that took `elapsed` nanoseconds by the clock. Returns its processor time
 * in nanoseconds.
 */
uint64_t vgpu_pace_charge(struct vgpu_worker *worker, uint64_t elapsed);

/* Called around a kernel, which takes its own turns. */
void vgpu_pace_pause(struct vgpu_worker *worker);
void vgpu_pace_go_on(struct vgpu_worker *worker);

#endif
