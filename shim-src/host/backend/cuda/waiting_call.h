/*
 * Calls that wait for the device while this process does not wait, because it serves all threads of a guest:
 * they return VGPU_WAITS and are carried out again. The first time an event is recorded after the work that
 * the call waits for, so work that other threads begin later does not make it longer.
 */
#ifndef VGPU_HOST_CUDA_WAITING_CALL_H
#define VGPU_HOST_CUDA_WAITING_CALL_H

#include "host/backend/cuda/driver.h"

struct vgpu_worker;
struct vgpu_cuda;

/* A call that waits. */
struct vgpu_cuda_waiting_call {
  struct vgpu_cuda_waiting_call *next;
  uint64_t note;            /* of the call; 0: free */
  uint64_t context;         /* context of the event */
  struct vgpu_event *event; /* recorded after the work that is waited for; kept for the next call */
};

#define VGPU_CUDA_READERS 8u

struct vgpu_cuda_reader {
  uint64_t context;
  struct vgpu_stream *stream; /* NULL: free */
};

/* The guest's streams, beside their handles, because each wait for a context queries all of them. */
struct vgpu_cuda_own_stream {
  struct vgpu_cuda_own_stream *next;
  uint64_t context;
  struct vgpu_stream *stream;
};

struct vgpu_cuda_waiting_calls {
  struct vgpu_cuda_own_stream *streams;
  struct vgpu_cuda_waiting_call *list; /* as many as calls have waited at one time */
  struct vgpu_cuda_reader readers[VGPU_CUDA_READERS];
  uint32_t next_reader;
};

/*
 * Waits until all work is done that the stream had when this call arrived; for the legacy stream that
 * includes the streams that it waits for.
 */
int32_t vgpu_cuda_await_stream(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream);

/*
 * Waits until new work of the stream could begin: also for work of the legacy stream, which a blocking stream
 * is ordered after even if it has no work of its own. Needed by a copy that does not run in the stream
 * itself.
 */
int32_t vgpu_cuda_await_turn(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream);

/*
 * NOT_READY while the stream has work, or a stream that it waits for; for the legacy stream that is any
 * stream of the context.
 */
int vgpu_cuda_query_stream(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream);

/* NOT_READY while the work before an event goes on: a query for vgpu_cuda_wait(). */
int vgpu_cuda_query_event(struct vgpu_worker *worker, void *event);

/* NOT_READY while any stream of the context has work. The context is current. */
int vgpu_cuda_query_context(struct vgpu_worker *worker, uint64_t context);

/*
 * Repeats a query while it returns NOT_READY, for a short time. Stops early if another call of the guest has
 * arrived. Returns VGPU_WAITS if the query still returns NOT_READY.
 */
int32_t vgpu_cuda_wait(struct vgpu_worker *worker, int (*query)(struct vgpu_worker *worker, void *what),
                       void *what);

/*
 * Returns a stream that waits for no other stream, to copy results of finished work; it is made when it is
 * first needed. NULL: there is none, and *result has the driver's error.
 */
struct vgpu_stream *vgpu_cuda_reader(struct vgpu_worker *worker, uint64_t context, int32_t *result);

/* The call with this note is over. */
void vgpu_cuda_waiting_call_over(struct vgpu_worker *worker, uint64_t note);

/* Adds a stream of the guest (false: no memory), or removes it. */
bool vgpu_cuda_stream_begins(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream);
void vgpu_cuda_stream_ends(struct vgpu_worker *worker, const struct vgpu_stream *stream);

/* Removes the events and the reader stream of a context that ends. Called before the context is destroyed. */
void vgpu_cuda_drop_waiting_calls(struct vgpu_worker *worker, uint64_t context);

#endif
