/*
 * Graphs. A node keeps the frames that its calls would have sent. The graph itself is in the guest. An
 * executable graph is at the host as the list of its frames, in an order that keeps the dependencies, so that
 * a launch is one frame. Work that touches the program's own memory or functions stays in the guest: it
 * splits the list into segments, and each segment is an executable of its own at the host.
 */
#ifndef VGPU_GUEST_CUDA_GRAPH_H
#define VGPU_GUEST_CUDA_GRAPH_H

#include "guest/cuda/graph/node_params.h"

enum vgpu_node_step {
  VGPU_STEP_NONE = 0,        /* no work, only an order */
  VGPU_STEP_FRAME = 1,       /* frames, done at the host */
  VGPU_STEP_TO_DEVICE = 2,   /* a copy that reads the program's memory when it is launched */
  VGPU_STEP_FROM_DEVICE = 3, /* a copy that writes the program's memory when it is launched */
  VGPU_STEP_FUNCTION = 4,
  VGPU_STEP_BOX = 5, /* a copy in two or three dimensions, as CUDA_MEMCPY3D says */
};

/* The work of a node. It belongs to the node and is copied with it. */
struct vgpu_work {
  enum vgpu_node_kind kind;
  enum vgpu_node_step step;
  uint32_t opcode; /* frame */
  uint32_t body_size;
  uint32_t bulk_size;
  uint32_t frames;      /* count of bodies in `bytes`; a node of several calls has several */
  uint32_t kept_size;   /* bytes after the frames, at a multiple of 8: the node's description */
  unsigned char *bytes; /* body, then bulk, then the kept description */
  void *host;           /* copies: the program's memory */
  uint64_t device;
  size_t size;
  void (*function)(void *data); /* of a host node */
  void *data;
  struct vgpu_graph_memory *memory; /* of nodes that allocate and free: each such work holds a reference */
  void *handle;                     /* of a kernel node: its function; of an event node: its event */
  union {                           /* as the program gave it; all zero when the node was captured */
    struct vgpu_box copy;
    struct vgpu_memset_params memset;
    struct vgpu_host_params host;
    struct vgpu_memory_ops_params memory_ops;
    struct vgpu_allocation_params allocation;
    struct vgpu_condition_params condition;
  } given;
};

/* The nodes at the other end of a node's edges, each with the CUgraphEdgeData of the edge. */
struct vgpu_links {
  struct vgpu_node **nodes;
  uint64_t *data; /* NULL in links that are only read: all data are zero */
  size_t count;
};

struct vgpu_node {
  uint64_t id;     /* each id is used once */
  uint32_t local;  /* each is used once in a graph */
  uint64_t origin; /* of a clone: id of the node that it was cloned from */
  struct vgpu_graph *graph;
  struct vgpu_work work;
  struct vgpu_graph *child;
  struct vgpu_graph **bodies; /* of a conditional node, as many as its parameters say */
  struct vgpu_links dependencies;
  uint32_t mark;
};

/* The conditions of a graph, as the host has them. They live as long as the graph or an executable of it. */
struct vgpu_conditions {
  uint64_t graph; /* number of these conditions at the host */
  uint32_t references;
  bool used; /* by an executable; only one may use them, because the host keeps each value once */
  size_t count;
  struct vgpu_condition {
    uint64_t handle;
    uint64_t context;
    const struct vgpu_node *node; /* the node that uses it; NULL: none yet */
  } * list;
};

struct vgpu_holds {
  struct vgpu_hold *list;
  size_t count;
};

struct vgpu_graph {
  uint64_t id;        /* each id is used once */
  uint32_t number;    /* as a program and a DOT file see it; executables have numbers of the same series */
  uint32_t next_node; /* `local` of the next node */
  struct vgpu_node **nodes;
  size_t count;
  bool owned;                         /* belongs to a node as its child graph */
  struct vgpu_graph *outer;           /* of a body of a conditional node: the graph that has that node */
  struct vgpu_conditions *conditions; /* NULL: none were asked for */
  uint32_t instances;                 /* count of live executables that were made of it */
  struct vgpu_holds holds;
};

/*
 * For calls of the API. Enter returns the driver with its graph_lock held; leave unlocks it. NULL: *result
 * has the error.
 */
struct vgpu_driver *vgpu_graph_enter(int *result);
int vgpu_graph_leave(struct vgpu_driver *driver, int result);

/*
 * The host cannot wait for code when it launches nodes, so their code is loaded before an executable has
 * them. An error is the launch's. The caller does not hold graph_lock: the driver may wait for work that
 * another thread releases with a call that needs it.
 */
void vgpu_graph_load_kernels(struct vgpu_driver *driver, const void *handle);
void vgpu_work_load_kernel(struct vgpu_driver *driver, const struct vgpu_kernel_params *params);

/* The caller of every function below holds driver->graph_lock. */

struct vgpu_graph *vgpu_graph_make(struct vgpu_driver *driver);
void vgpu_graph_free(struct vgpu_driver *driver, struct vgpu_graph *graph);
struct vgpu_graph *vgpu_graph_clone(struct vgpu_driver *driver, const struct vgpu_graph *graph);

/* Adds a node and takes `work` over, also when it fails. NULL: no memory. */
struct vgpu_node *vgpu_graph_add(struct vgpu_driver *driver, struct vgpu_graph *graph,
                                 const struct vgpu_links *dependencies, struct vgpu_work *work);

/* Removes a node that no other node depends on. */
void vgpu_graph_remove(struct vgpu_driver *driver, struct vgpu_node *node);

/*
 * vgpu_links_copy makes `to` a copy, vgpu_links_join adds only the links that `to` lacks, vgpu_links_free
 * frees the memory of `links`. False: no memory.
 */
bool vgpu_links_copy(struct vgpu_links *to, const struct vgpu_links *from);
bool vgpu_links_join(struct vgpu_links *to, const struct vgpu_links *more);
void vgpu_links_free(struct vgpu_links *links);
/* Removes a node from links that are not only read. False: it was not there. */
bool vgpu_links_remove(struct vgpu_links *links, const struct vgpu_node *node);
/* Returns the place of a node in links, or their count if it is not there. */
size_t vgpu_links_place(const struct vgpu_links *links, const struct vgpu_node *node);

bool vgpu_work_copy(struct vgpu_work *to, const struct vgpu_work *from);
void vgpu_work_free(struct vgpu_work *work);
/* Makes the work of one frame. False: no memory. */
bool vgpu_work_frame(struct vgpu_work *work, uint32_t opcode, const void *body, uint32_t body_size,
                     const void *bulk, uint32_t bulk_size);
/* The size of all frames, and the size with the description after them. */
size_t vgpu_work_frame_bytes(const struct vgpu_work *work);
size_t vgpu_work_bytes(const struct vgpu_work *work);
/*
 * Gives new work what it must keep of the old: for a launch, the attributes (graph_attribute.c). Returns a
 * CUresult.
 */
int vgpu_work_keep_attributes(struct vgpu_work *work, const struct vgpu_work *before);
bool vgpu_work_cooperative(const struct vgpu_work *work);
bool vgpu_work_same_context(const struct vgpu_work *a, const struct vgpu_work *b);
/* Makes work from the program's parameters. Returns a CUresult; on failure there is nothing to free. */
int vgpu_work_make(struct vgpu_driver *driver, const struct vgpu_node_params *params, struct vgpu_work *work);

/*
 * The same for a node that allocates memory, with an address for it, and for a node that frees it
 * (graph_memory.c).
 */
int vgpu_work_allocation(struct vgpu_driver *driver, const struct vgpu_allocation_params *params,
                         struct vgpu_work *work);
int vgpu_work_release(struct vgpu_driver *driver, uint64_t address, struct vgpu_work *work);
/* The same for memory operations, with one frame for each (memory_op.c). */
int vgpu_work_memory_ops(struct vgpu_driver *driver, const struct vgpu_memory_ops_params *params,
                         struct vgpu_work *work);

/* The same for a node that has a condition of this graph or of one that contains it (graph_condition.c). */
int vgpu_work_condition(struct vgpu_driver *driver, const struct vgpu_graph *graph,
                        const struct vgpu_condition_params *params, struct vgpu_work *work);
/* Makes the bodies of a conditional node. Its condition is in use from then on. Returns a CUresult. */
int vgpu_condition_added(struct vgpu_driver *driver, struct vgpu_node *node);
/* Releases the condition of a node that is removed. */
void vgpu_condition_removed(struct vgpu_driver *driver, struct vgpu_node *node);
/*
 * Checks whether a graph may have a node of this kind: a body of a conditional node may not have all kinds.
 * Returns a CUresult.
 */
int vgpu_condition_may(const struct vgpu_graph *graph, const struct vgpu_work *work);
bool vgpu_graph_has_conditions(const struct vgpu_graph *graph);
/*
 * Takes the conditions for one executable, which must be the only one that uses them. False: another
 * executable uses them.
 */
bool vgpu_conditions_take(struct vgpu_conditions *conditions);
/* Ends the use of the conditions by their executable. NULL is allowed. */
void vgpu_conditions_give(struct vgpu_conditions *conditions);
/* Drops a reference; the last one informs the host. NULL is allowed. */
void vgpu_conditions_drop(struct vgpu_conditions *conditions);

/* True if both do the same operations, possibly on other addresses and values. */
bool vgpu_memory_ops_alike(const struct vgpu_work *a, const struct vgpu_work *b);

/* Describes a fill or copy as the API does, also a captured one. False: it cannot be described. */
bool vgpu_work_filled(const struct vgpu_work *work, struct vgpu_memset_params *params);
bool vgpu_work_copied(const struct vgpu_work *work, struct vgpu_box *params);
/* Returns the function of a kernel's node. NULL: its module was unloaded. */
struct vgpu_callable *vgpu_work_callable(struct vgpu_driver *driver, struct vgpu_work *work);

/*
 * Add references to `to`: those of other holds, or those of a graph with all its child graphs. False: no
 * memory.
 */
bool vgpu_holds_join(struct vgpu_holds *to, const struct vgpu_holds *more);
bool vgpu_holds_take(struct vgpu_holds *to, const struct vgpu_graph *graph);
/* Release the references: at once, or when all work of a context, named by its number, is done. */
void vgpu_holds_release(struct vgpu_driver *driver, struct vgpu_holds *holds);
void vgpu_holds_release_after(struct vgpu_driver *driver, struct vgpu_holds *holds, uint64_t context);

/* Returns the nodes in an order that keeps the dependencies, for free(). NULL: no memory, or a circle. */
struct vgpu_node **vgpu_graph_order(struct vgpu_graph *graph);

struct vgpu_graph *vgpu_graph_find(struct vgpu_driver *driver, const void *handle);
struct vgpu_node *vgpu_node_find(struct vgpu_driver *driver, const void *handle);
struct vgpu_node *vgpu_node_of_kind(struct vgpu_driver *driver, const void *handle, enum vgpu_node_kind kind);

/* Adds a node as the API asks for it, with the dependencies `links`. Returns a CUresult. */
int vgpu_node_add(struct vgpu_driver *driver, struct vgpu_graph *graph, const struct vgpu_links *links,
                  struct vgpu_node_params *params, struct vgpu_node **made);

/*
 * Checks links of an API call: live nodes of the graph, none twice, edges that are allowed. Returns a
 * CUresult.
 */
int vgpu_links_check(struct vgpu_driver *driver, const struct vgpu_graph *graph,
                     const struct vgpu_links *links);
/* Checks an edge's data, a CUgraphEdgeData, for a node of kind `to`. */
int vgpu_edge_check(uint64_t data, enum vgpu_node_kind from, enum vgpu_node_kind to);

/* Replaces the work of an executable's node and takes `work` over. Returns a CUresult. */
int vgpu_exec_set(struct vgpu_driver *driver, void *exec, const struct vgpu_node *node,
                  struct vgpu_work *work);
/*
 * The same for the node of a child graph: the work of each of its nodes is replaced by that of `graph`, which
 * has the same shape.
 */
int vgpu_exec_set_child(struct vgpu_driver *driver, void *exec, const struct vgpu_node *node,
                        const void *graph);

#endif
