/*
 * The order of streams. Calls run when they arrive, except those of a stream that waits for a value in
 * memory, for an event behind such a wait, or for a long kernel. These, and calls of other streams that are
 * ordered after them, are queued.
 */
#ifndef VGPU_HOST_SOFTWARE_QUEUE_H
#define VGPU_HOST_SOFTWARE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "host/backend/dispatch.h"

/* Result of a one-way call whose stream must wait. Not a CUresult. */
#define VGPU_BLOCKED INT32_MIN

struct vgpu_place;
struct vgpu_queued;

struct vgpu_queue {
  struct vgpu_queued *first, *last; /* in order of arrival */
  size_t count;
  size_t bytes;
  uint64_t kept;    /* number of the last call that was queued, or that ran as `running` */
  uint64_t records; /* number of the last record of an event that was queued */
  bool outside;     /* a stream may wait for another session, or for a store of the program */
  bool closed;      /* no request may be carried out during a kernel */
  const struct vgpu_place
      *running;            /* place of the kernel during which requests may be carried out; NULL: none */
  uint64_t running_number; /* number of that call */
};

/*
 * Runs a call, or queues it if it is one-way and must wait. If it has an answer and must wait, returns
 * VGPU_WAITS; for a query CUDA_ERROR_NOT_READY.
 */
int32_t vgpu_queue_run(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row, const void *body,
                       void *reply, struct vgpu_bulk *bulk);

/* True if queued calls or the running kernel must run before a call of this place. */
bool vgpu_queue_holds(const struct vgpu_worker *worker, const struct vgpu_place *place);

/* True if this many more bytes may be queued: for calls, and for reads that the guest fetches later. */
bool vgpu_queue_may_wait(const struct vgpu_worker *worker, uint64_t bytes);

/* Like vgpu_queue_may_wait, with a margin of half of the limits. */
bool vgpu_queue_has_room(const struct vgpu_worker *worker, uint64_t bytes);

void vgpu_queue_drop(struct vgpu_worker *worker, uint64_t context);

#endif
