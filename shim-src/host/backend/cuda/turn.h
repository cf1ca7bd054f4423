/*
 * Calls that wait for the device, without this process waiting: it serves all threads of a guest, so a call
 * that has to wait is told NOT_READY and asked again. What it waits for is marked by an event when it is
 * asked for the first time, so work that other threads begin meanwhile does not prolong it.
 */
#ifndef VGPU_HOST_CUDA_TURN_H
#define VGPU_HOST_CUDA_TURN_H

#include "host/backend/cuda/asked.h"
#include "host/backend/cuda/driver.h"

struct vgpu_worker;
struct vgpu_cuda;

/* One guest thread's call that waits. */
struct vgpu_cuda_turn {
  struct vgpu_cuda_turn *next;
  struct vgpu_cuda_asked asked;
  uint64_t context;         /* that the event belongs to */
  struct vgpu_event *event; /* recorded behind what is waited for; kept for the next turn */
};

#define VGPU_CUDA_READERS 8u

struct vgpu_cuda_reader {
  uint64_t context;
  struct vgpu_stream *stream; /* NULL: free */
};

/* The guest's streams, beside their handles: each wait for a context asks all of them. */
struct vgpu_cuda_own_stream {
  struct vgpu_cuda_own_stream *next;
  uint64_t context;
  struct vgpu_stream *stream;
};

struct vgpu_cuda_turns {
  struct vgpu_cuda_own_stream *streams;
  struct vgpu_cuda_turn *list; /* as many as threads have waited at a time */
  uint32_t count;
  struct vgpu_cuda_reader readers[VGPU_CUDA_READERS];
  uint32_t next_reader;
};

/*
 * Until all work is done that the stream had when this call was asked for the first time; of the legacy
 * stream that is the work of all streams that wait for it, too. NOT_READY: the guest asks again.
 */
int32_t vgpu_cuda_await_stream(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream);

/* NOT_READY while the stream has work, or one that it waits for: of the legacy stream any of the context. */
int vgpu_cuda_query_stream(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream);

/* NOT_READY while any stream of the context has work. The context is current. */
int vgpu_cuda_query_context(struct vgpu_worker *worker, uint64_t context);

/*
 * Asks until it no longer says NOT_READY, for about a second at most, and no longer when another call of the
 * guest has come.
 */
int32_t vgpu_cuda_wait(struct vgpu_worker *worker, int (*query)(struct vgpu_worker *worker, void *what),
                       void *what);

/*
 * A stream that waits for no other one, for copies of what is known to be done; made when it is first needed.
 * NULL: there is none, and the driver's answer lies in *result.
 */
struct vgpu_stream *vgpu_cuda_reader(struct vgpu_worker *worker, uint64_t context, int32_t *result);

/* A stream of the guest is there from now on (false: no memory), or goes. */
bool vgpu_cuda_stream_begins(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream);
void vgpu_cuda_stream_ends(struct vgpu_worker *worker, const struct vgpu_stream *stream);

/* A context ends: its events and its reader go first. */
void vgpu_cuda_drop_turns(struct vgpu_worker *worker, uint64_t context);

#endif
