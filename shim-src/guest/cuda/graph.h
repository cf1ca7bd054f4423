/*
 * Graphs. A node keeps the very frame that its call would have sent; the guest holds the graph, and an
 * executable graph is at the host as the list of its frames in an order that keeps the dependencies, so
 * that a launch is one frame. What touches the program's own memory or functions stays in the guest: it
 * splits the list in segments, each an executable of its own at the host.
 */
#ifndef VGPU_GUEST_CUDA_GRAPH_H
#define VGPU_GUEST_CUDA_GRAPH_H

#include "guest/cuda/code.h"

/* CUgraphNodeType. */
enum vgpu_node_kind {
  VGPU_NODE_KERNEL = 0,
  VGPU_NODE_MEMCPY = 1,
  VGPU_NODE_MEMSET = 2,
  VGPU_NODE_HOST = 3,
  VGPU_NODE_GRAPH = 4,
  VGPU_NODE_EMPTY = 5,
  VGPU_NODE_WAIT = 6,
  VGPU_NODE_RECORD = 7,
};

enum vgpu_node_step {
  VGPU_STEP_NONE = 0,        /* only an order */
  VGPU_STEP_FRAME = 1,       /* at the host */
  VGPU_STEP_TO_DEVICE = 2,   /* a copy that reads the program's memory when it is launched */
  VGPU_STEP_FROM_DEVICE = 3, /* likewise, one that writes it */
  VGPU_STEP_FUNCTION = 4,
  VGPU_STEP_BOX = 5, /* a copy in two or three dimensions, as CUDA_MEMCPY3D says */
};

/* What a node does; belongs to the node and is copied with it. */
struct vgpu_work {
  enum vgpu_node_kind kind;
  enum vgpu_node_step step;
  uint32_t opcode; /* frame */
  uint32_t body_size;
  uint32_t bulk_size;
  unsigned char *bytes; /* body, then bulk */
  void *host;           /* copies: the program's memory */
  uint64_t device;
  size_t size;
  void (*function)(void *data); /* host node */
  void *data;
  void *handle;              /* of a kernel node its function, of an event node its event */
  unsigned char params[200]; /* CUDA_MEMCPY3D or CUDA_MEMSET_NODE_PARAMS as the program gave it */
};

struct vgpu_node {
  uint64_t id;     /* never given twice */
  uint64_t origin; /* of a clone: the id it was cloned from */
  struct vgpu_graph *graph;
  struct vgpu_work work;
  struct vgpu_graph *child;
  struct vgpu_node **dependencies;
  size_t dependency_count;
  uint32_t mark;
};

struct vgpu_graph {
  struct vgpu_node **nodes;
  size_t count;
  bool owned; /* belongs to a node, as its child */
};

/* All of it under driver->graph_lock. */

struct vgpu_graph *vgpu_graph_make(struct vgpu_driver *driver);
void vgpu_graph_free(struct vgpu_driver *driver, struct vgpu_graph *graph);
struct vgpu_graph *vgpu_graph_clone(struct vgpu_driver *driver, const struct vgpu_graph *graph);

/* A new node; takes `work` over (also when it fails). NULL: no memory. */
struct vgpu_node *vgpu_graph_add(struct vgpu_driver *driver, struct vgpu_graph *graph,
                                 struct vgpu_node *const *dependencies, size_t count, struct vgpu_work *work);

bool vgpu_work_copy(struct vgpu_work *to, const struct vgpu_work *from);
void vgpu_work_free(struct vgpu_work *work);
/* A frame; false: no memory. */
bool vgpu_work_frame(struct vgpu_work *work, uint32_t opcode, const void *body, uint32_t body_size,
                     const void *bulk, uint32_t bulk_size);

/* Nodes in an order that keeps the dependencies, for free(); NULL: no memory, or a circle. */
struct vgpu_node **vgpu_graph_order(struct vgpu_graph *graph);

struct vgpu_graph *vgpu_graph_find(struct vgpu_driver *driver, const void *handle);
struct vgpu_node *vgpu_node_find(struct vgpu_driver *driver, const void *handle);

/* New work for an executable's node; takes it over. A CUresult. */
int vgpu_exec_set(struct vgpu_driver *driver, void *exec, const struct vgpu_node *node,
                  struct vgpu_work *work);

/* ---- capture ------------------------------------------------------------- */

/*
 * A call that is about to be sent. True: it was captured, *result is its result. `bulk` of a copy is the
 * program's own memory.
 */
bool vgpu_capture_post(struct vgpu_driver *driver, uint32_t opcode, const void *body, uint32_t body_size,
                       const void *bulk, uint32_t bulk_size, int *result);
/* Likewise for one that waits: a copy to `into` is captured, anything else is not allowed. */
bool vgpu_capture_ask(struct vgpu_driver *driver, uint32_t opcode, const void *body, uint32_t body_size,
                      void *into, uint32_t into_size, int *result);
/* A host function on a stream that captures. */
bool vgpu_capture_function(struct vgpu_driver *driver, struct vgpu_stream *stream, void (*function)(void *),
                           void *data, int *result);
/* True if the stream, as frames name it, captures. */
bool vgpu_capture_on(struct vgpu_driver *driver, uint64_t stream);
/* A call that a stream must not see while it captures: true then, the capture is spoilt, *result says so. */
bool vgpu_capture_forbids(struct vgpu_driver *driver, const struct vgpu_stream *stream, int *result);
/* CUstreamCaptureStatus of a stream. */
int32_t vgpu_capture_status(struct vgpu_driver *driver, const struct vgpu_stream *stream);

#endif
