/* Executable graphs, for the files that make, launch and change them. */
#ifndef VGPU_GUEST_CUDA_GRAPH_EXEC_H
#define VGPU_GUEST_CUDA_GRAPH_EXEC_H

#include "guest/cuda/graph/graph.h"

struct vgpu_exec_node {
  uint64_t origin; /* id of the graph's node */
  void *node;      /* its handle, only to name it: the node may be gone */
  size_t children; /* this many entries before it belong to its child graph */
  struct vgpu_work work;
  size_t *before; /* places of the nodes that it depends on */
  size_t before_count;
  uint64_t segment; /* at the host; 0: done in the guest, or nothing to do */
  uint32_t index;   /* of its first frame in the segment */
  bool enabled;
};

/* A step of a launch: a segment at the host, or a node's work in the guest. */
struct vgpu_exec_step {
  uint64_t segment;
  const struct vgpu_exec_node *node;
};

struct vgpu_exec {
  struct vgpu_exec_node *nodes; /* in the order in which they run */
  size_t count;
  struct vgpu_exec_step *steps;
  size_t step_count;
  struct vgpu_context *owner; /* the context that it was made in, never freed */
  uint64_t context;           /* the number that `owner` had; another one, or 0: that context has ended */
  uint64_t flags;
  uint32_t number; /* cuGraphExecGetId */
  bool records;    /* at least one node records an event */
  bool has_memory; /* at least one node allocates or frees */
  bool launched;
  bool changed;         /* it has conditions, and the host makes its graph again */
  uint64_t last_stream; /* of the last launch */
  uint64_t last_launch; /* event recorded after each launch; 0: no launch so far */
  void *source;         /* handle and id of the graph that it was made of, which may be gone */
  uint64_t source_id;
  struct vgpu_holds holds;
  struct vgpu_conditions *conditions; /* the conditions of its graph; NULL: it has no conditional node */
};

/* Finds a live executable. The caller holds graph_lock. */
struct vgpu_exec *vgpu_exec_find(struct vgpu_driver *driver, const void *handle);

/* False: its context has ended, and with it all that the executable had at the host. */
bool vgpu_exec_lives(struct vgpu_driver *driver, const struct vgpu_exec *exec);

/*
 * Makes one list of a graph. The caller frees it with vgpu_exec_free_list, also after a failure. Returns a
 * CUresult.
 */
int vgpu_exec_list(struct vgpu_graph *graph, struct vgpu_exec_node **nodes, size_t *count);
void vgpu_exec_free_list(struct vgpu_exec_node *nodes, size_t count);

/*
 * Counts `exec` as an executable of `graph`, from which its nodes come, and no longer as one of an earlier
 * graph. `graph` may be NULL.
 */
void vgpu_exec_belongs(struct vgpu_driver *driver, struct vgpu_exec *exec, struct vgpu_graph *graph);

/*
 * Before a launch: maps memory for the nodes that allocate. Returns 0, or the CUresult of the launch
 * (graph_memory.c).
 */
int vgpu_graph_memory_launch(struct vgpu_driver *driver, const struct vgpu_exec *exec);

/*
 * Sends the dependencies between the frames of a segment, which has entries [first, end) of the list, unless
 * each frame depends on the one before it (exec_edges.c). Returns a CUresult.
 */
int vgpu_exec_send_edges(const struct vgpu_exec *exec, uint64_t segment, size_t first, size_t end,
                         uint32_t frames);

/* The size of a node's frame as it is sent, and a function that writes its bytes. */
size_t vgpu_exec_encoded_size(const struct vgpu_work *work);
void vgpu_exec_encode(const struct vgpu_work *work, unsigned char *to);

#endif
