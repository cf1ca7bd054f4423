/*
 * Stream capture, as the files that send calls see it (first part) and as its own two files share it. A
 * stream that captures makes nodes of its calls; what an event recorded on such a stream marks is kept
 * with the event, and a stream that waits for it joins the capture.
 */
#ifndef VGPU_GUEST_CUDA_CAPTURE_H
#define VGPU_GUEST_CUDA_CAPTURE_H

#include "guest/cuda/graph/graph.h"

/*
 * Captures a one-way call before it is sent. True: it was captured, and *result is its result. `bulk` of a
 * copy is the program's own memory.
 */
bool vgpu_capture_post(struct vgpu_driver *driver, uint32_t opcode, const void *body, uint32_t body_size,
                       const void *bulk, uint32_t bulk_size, int *result);
/* The same for a waiting call: a copy to `into` is captured; all other calls are not allowed. */
bool vgpu_capture_ask(struct vgpu_driver *driver, uint32_t opcode, const void *body, uint32_t body_size,
                      void *into, uint32_t into_size, int *result);
/* A host function on a stream that captures. */
bool vgpu_capture_function(struct vgpu_driver *driver, struct vgpu_stream *stream, void (*function)(void *),
                           void *data, int *result);
/* Work of any other kind on a stream that captures, as the node it becomes; out parameters are filled. */
bool vgpu_capture_node(struct vgpu_driver *driver, const struct vgpu_stream *stream,
                       struct vgpu_node_params *params, int *result);
/* True if the stream, as frames name it, captures. */
bool vgpu_capture_on(struct vgpu_driver *driver, uint64_t stream);
/* A call that a stream must not see while it captures: true then, the capture is spoilt, *result says so. */
bool vgpu_capture_forbids(struct vgpu_driver *driver, const struct vgpu_stream *stream, int *result);
/* Streams have ended: captures that began on one of them end, with the graphs that they made. Takes both
 * locks. */
void vgpu_capture_streams_ended(struct vgpu_driver *driver);
/* CUstreamCaptureStatus of a stream. */
int32_t vgpu_capture_status(struct vgpu_driver *driver, const struct vgpu_stream *stream);

/* ---- between capture.c and capture_api.c, with graph_lock held ---------------------------------------- */

/* CUstreamCaptureMode */
enum { VGPU_MODE_GLOBAL = 0, VGPU_MODE_THREAD_LOCAL = 1, VGPU_MODE_RELAXED = 2 };

#define VGPU_PER_THREAD 2u /* number of the stream that each thread has for itself */

struct vgpu_capture {
  uint64_t id;
  struct vgpu_graph *graph;
  bool into_given; /* the program's own graph */
  int32_t mode;
  uint64_t origin; /* stream */
  pthread_t thread;
  bool invalid;
};

struct vgpu_captured_stream {
  struct vgpu_captured_stream *next;
  uint64_t stream;
  pthread_t thread; /* whose per-thread stream it is */
  struct vgpu_capture *capture;
  struct vgpu_links tips; /* what the next node depends on */
};

struct vgpu_captured_event {
  struct vgpu_captured_event *next;
  uint64_t event;
  struct vgpu_capture *capture;
  struct vgpu_links tips;
};

struct vgpu_captured_stream *vgpu_capture_find(struct vgpu_driver *driver, uint64_t stream);
/* A stream's part in a capture; NULL: no memory. */
struct vgpu_captured_stream *vgpu_capture_join(struct vgpu_driver *driver, uint64_t stream,
                                               struct vgpu_capture *capture);
/* CUstreamCaptureStatus; `stream` may be NULL. */
int32_t vgpu_capture_status_of(const struct vgpu_captured_stream *stream);
/* Forgets a capture with its streams and events; its graph stays. */
void vgpu_capture_end(struct vgpu_driver *driver, struct vgpu_capture *capture);

#endif
