/*
 * Queues of host functions, one for each stream that has some. A thread runs the functions of a queue in
 * their order, and ends when the queue is empty.
 */
#ifndef VGPU_GUEST_CUDA_FUNCTION_QUEUE_H
#define VGPU_GUEST_CUDA_FUNCTION_QUEUE_H

#include "guest/cuda/internal.h"
#include "guest/cuda/stream/gate.h"

#define VGPU_NO_STREAM UINT64_MAX /* the queue of jobs that belong to no stream */

struct vgpu_job {
  struct vgpu_job *next;
  uint64_t sequence;            /* jobs are counted in the order in which they were launched */
  void (*function)(void *data); /* or */
  void (*callback)(struct vgpu_stream *stream, int status, void *data);
  void *data;
  uint64_t context; /* of a job without a stream: context to wait for first; 0: none */
  bool gated;       /* the gate reports that the stream has reached it; or the launch has waited for that: */
  int status;       /* the result of that wait */
  struct vgpu_gate gate;
  bool follows; /* the job before it has the same gate */
  bool opens;   /* the last one with its gate */
  bool over;
};

struct vgpu_function_queue {
  struct vgpu_function_queue *next;
  struct vgpu_driver *driver;
  struct vgpu_stream *handle;
  uint64_t stream; /* context and stream numbers for the host */
  uint64_t context;
  pthread_t caller; /* thread of a per-thread stream */
  int status;       /* of the wait for the gate of the job that runs */
  uint64_t sent;    /* calls sent when the last gate was closed; 0: others have been sent since */
  struct vgpu_job *first, *last;
};

/* The number that the queue of a stream has: the legacy default stream has two numbers. */
uint64_t vgpu_function_stream(uint64_t stream);

/* Finds the queue of the stream that `like` describes; NULL: it has none. The caller holds the lock. */
struct vgpu_function_queue *vgpu_function_queue_find(struct vgpu_host_functions *functions,
                                                     const struct vgpu_function_queue *like);

/*
 * Puts a copy of a job into the queue of the stream that `like` describes, and makes the queue and its thread
 * if needed. The caller holds the lock. Returns a CUresult.
 */
int vgpu_function_enqueue(struct vgpu_host_functions *functions, const struct vgpu_function_queue *like,
                          const struct vgpu_job *job);

#endif
