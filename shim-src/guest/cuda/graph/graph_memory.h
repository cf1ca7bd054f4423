/*
 * Memory that graphs allocate. Its address is reserved when the node is made; there is memory behind it from
 * the first launch on, until it is trimmed or no longer used.
 */
#ifndef VGPU_GUEST_CUDA_GRAPH_MEMORY_H
#define VGPU_GUEST_CUDA_GRAPH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "guest/session.h"

struct vgpu_driver;
struct vgpu_graph;
struct vgpu_node;
struct vgpu_node_params;
struct vgpu_graph_memory;

struct vgpu_graph_memories {
  struct vgpu_graph_memory *first;
  uint64_t used_high[VGPU_DEVICES_MAX]; /* by visible device, since they were reset */
  uint64_t reserved_high[VGPU_DEVICES_MAX];
};

/* With graph_lock held. NULL is no memory and allowed. */
void vgpu_graph_memory_ref(struct vgpu_graph_memory *memory);
void vgpu_graph_memory_unref(struct vgpu_graph_memory *memory);
/* True if some node of the graph or of its children allocates or frees. */
bool vgpu_graph_has_memory(const struct vgpu_graph *graph);
/* Whether a node may be added; and that it was. */
int vgpu_graph_memory_may(struct vgpu_driver *driver, const struct vgpu_graph *graph,
                          const struct vgpu_node_params *params);
void vgpu_graph_memory_added(const struct vgpu_node *node);

/* Without it. A call that frees memory: false when it is none of a graph's, else *result is its result. */
bool vgpu_graph_memory_free(struct vgpu_driver *driver, uint64_t address, int *result);
/* Frees what is no longer used; waits for the work that may still use it. */
void vgpu_graph_memory_sweep(struct vgpu_driver *driver);

#endif
