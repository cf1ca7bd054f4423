/* Executable graphs, as the files that make, launch and change them share them. */
#ifndef VGPU_GUEST_CUDA_GRAPH_EXEC_H
#define VGPU_GUEST_CUDA_GRAPH_EXEC_H

#include "guest/cuda/graph/graph.h"

struct vgpu_exec_node {
  uint64_t origin; /* id of the graph's node */
  void *node;      /* its handle, to name it: it may be gone */
  size_t children; /* as many before it in the list are its child graph's */
  struct vgpu_work work;
  size_t *before; /* places of what it depends on */
  size_t before_count;
  uint64_t segment; /* at the host; 0: done here, or nothing to do */
  uint32_t index;   /* of its first frame, in the segment */
  bool enabled;
};

/* A piece of a launch: a segment at the host, or a node's step here. */
struct vgpu_exec_step {
  uint64_t segment;
  const struct vgpu_exec_node *node;
};

struct vgpu_exec {
  struct vgpu_exec_node *nodes; /* in the order they are done */
  size_t count;
  struct vgpu_exec_step *steps;
  size_t step_count;
  uint64_t context;
  uint64_t flags;
  bool records;    /* some node records an event */
  bool has_memory; /* some node allocates or frees */
  bool launched;
  void *source; /* the graph it was made of, by handle and by id: it may be gone */
  uint64_t source_id;
  struct vgpu_holds holds;
  struct vgpu_conditions *conditions; /* those of its graph; NULL: it has no conditional node */
};

/* With graph_lock held. */
struct vgpu_exec *vgpu_exec_find(struct vgpu_driver *driver, const void *handle);

/* A graph as one list, for vgpu_exec_free_list, also when it fails. A CUresult. */
int vgpu_exec_list(struct vgpu_graph *graph, struct vgpu_exec_node **nodes, size_t *count);
void vgpu_exec_free_list(struct vgpu_exec_node *nodes, size_t count);

/* Before a launch: memory for the nodes that allocate, or why it cannot be launched (graph_memory.c). */
int vgpu_graph_memory_launch(struct vgpu_driver *driver, const struct vgpu_exec *exec);

/* A node's frame as it travels: its size, and the bytes. */
size_t vgpu_exec_encoded_size(const struct vgpu_work *work);
void vgpu_exec_encode(const struct vgpu_work *work, unsigned char *to);

#endif
