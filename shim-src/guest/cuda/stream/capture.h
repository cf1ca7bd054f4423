/*
 * Stream capture: first the interface for files that send calls, then the interface between capture.c and
 * capture_api.c. Calls on a stream that captures become nodes. An event that is recorded on such a stream
 * keeps the nodes that it marks, and a stream that waits for the event joins the capture.
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
/* Captures a host function on a stream that captures. */
bool vgpu_capture_function(struct vgpu_driver *driver, struct vgpu_stream *stream, void (*function)(void *),
                           void *data, int *result);
/* Captures work of any other kind as a node. Out parameters are filled. */
bool vgpu_capture_node(struct vgpu_driver *driver, const struct vgpu_stream *stream,
                       struct vgpu_node_params *params, int *result);
/* True if the stream, named by its wire number, captures. */
bool vgpu_capture_on(struct vgpu_driver *driver, uint64_t stream);
/*
 * For a call that is not allowed on a stream that captures. True: the stream captures; its capture is now
 * invalid, and *result is the error.
 */
bool vgpu_capture_forbids(struct vgpu_driver *driver, const struct vgpu_stream *stream, int *result);
/*
 * Called when streams were destroyed. Captures that began on one of them end, and their graphs are destroyed.
 * Takes both locks.
 */
void vgpu_capture_streams_ended(struct vgpu_driver *driver);
int32_t vgpu_capture_status(struct vgpu_driver *driver, const struct vgpu_stream *stream);

/* ---- between capture.c and capture_api.c, with graph_lock held ---------------------------------------- */

/* CUstreamCaptureMode */
enum { VGPU_MODE_GLOBAL = 0, VGPU_MODE_THREAD_LOCAL = 1, VGPU_MODE_RELAXED = 2 };

#define VGPU_PER_THREAD 2u /* number of the per-thread default stream */

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
  pthread_t thread; /* thread of a per-thread stream */
  struct vgpu_capture *capture;
  struct vgpu_links tips; /* nodes that the next node depends on */
};

struct vgpu_captured_event {
  struct vgpu_captured_event *next;
  uint64_t event;
  struct vgpu_capture *capture;
  struct vgpu_links tips;
};

struct vgpu_captured_stream *vgpu_capture_find(struct vgpu_driver *driver, uint64_t stream);
/* Returns a stream's part in a capture, which is made if needed; NULL: no memory. */
struct vgpu_captured_stream *vgpu_capture_join(struct vgpu_driver *driver, uint64_t stream,
                                               struct vgpu_capture *capture);
/* Returns the CUstreamCaptureStatus; `stream` may be NULL. */
int32_t vgpu_capture_status_of(const struct vgpu_captured_stream *stream);
/* Removes a capture with its streams and events. Its graph remains. */
void vgpu_capture_end(struct vgpu_driver *driver, struct vgpu_capture *capture);

#endif
