/*
 * The order of streams on a software device. Calls run when they arrive. Only a stream that waits for a value
 * in memory, or for an event behind such a wait, cannot continue. Its calls, and calls of other streams that
 * are ordered after them, are queued here until they can run. So are calls behind a kernel that runs for
 * long.
 */
#ifndef VGPU_HOST_SOFTWARE_QUEUE_H
#define VGPU_HOST_SOFTWARE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "host/backend/dispatch.h"

/* The result of a handler of a one-way call whose stream must wait. It is not a CUresult. */
#define VGPU_BLOCKED INT32_MIN

struct vgpu_place;
struct vgpu_queued;

struct vgpu_queue {
  struct vgpu_queued *first, *last; /* in order of arrival */
  size_t count;
  size_t bytes;
  uint64_t kept;                    /* the number of the last call that was queued, or ran as `running` */
  uint64_t records;                 /* count of the records of events that were queued so far */
  bool outside;                     /* a stream may wait for another session, or for a store */
  bool closed;                      /* no request may be taken while a kernel runs */
  const struct vgpu_place *running; /* of a kernel that runs while requests may be taken; NULL: none does */
  uint64_t running_number;          /* of that call */
};

/*
 * Runs a call, or queues it. A call that waits for its answer gets VGPU_WAITS instead of being queued, and a
 * query CUDA_ERROR_NOT_READY.
 */
int32_t vgpu_queue_run(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row, const void *body,
                       void *reply, struct vgpu_bulk *bulk);

/*
 * True if calls that are queued, or the kernel that is running, must run before the worker's request, which
 * is of the place.
 */
bool vgpu_queue_holds(const struct vgpu_worker *worker, const struct vgpu_place *place);

/* True if so many more bytes may be queued: calls for their stream, reads for the guest. */
bool vgpu_queue_may_wait(const struct vgpu_worker *worker, uint64_t bytes);

/* The same with a large margin, so that no call fails that could also wait. */
bool vgpu_queue_has_room(const struct vgpu_worker *worker, uint64_t bytes);

/* Drops the queued calls of a context that ends. */
void vgpu_queue_drop(struct vgpu_worker *worker, uint64_t context);

#endif
