/*
 * The order of streams on a software device. Everything is done as it comes; only a stream that waits for
 * a value in memory, or for an event behind such a wait, cannot go on. Its calls, and those that streams
 * order after them, are kept here until they can run.
 */
#ifndef VGPU_HOST_SOFTWARE_QUEUE_H
#define VGPU_HOST_SOFTWARE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "host/backend/dispatch.h"

/* The result of a handler of a one-way call whose stream must wait. It is no CUresult. */
#define VGPU_BLOCKED INT32_MIN

struct vgpu_queued;

struct vgpu_queue {
  struct vgpu_queued *first, *last; /* in the order they came */
  size_t count;
  size_t bytes;
  bool outside; /* an event of another session may be what a stream waits for */
};

/* Runs a call, or keeps it for later. One that waits for its answer gets CUDA_ERROR_NOT_READY instead. */
int32_t vgpu_queue_run(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row, const void *body,
                       void *reply, struct vgpu_bulk *bulk);

/* Whether so many bytes more may wait: calls for their stream, reads for the guest. */
bool vgpu_queue_may_wait(const struct vgpu_worker *worker, uint64_t bytes);

/* True if something of the context is kept. */
bool vgpu_queue_holds(const struct vgpu_queue *queue, uint64_t context);

/* Forgets what is kept of a context that ends. */
void vgpu_queue_drop(struct vgpu_worker *worker, uint64_t context);

#endif
