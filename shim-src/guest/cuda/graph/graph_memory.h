/*
 * Memory that graphs allocate. Its address is reserved when the node is made. Memory is mapped there from the
 * first launch until it is trimmed or no longer used.
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
  uint64_t used_high[VGPU_DEVICES_MAX]; /* by visible device, since the last reset */
  uint64_t reserved_high[VGPU_DEVICES_MAX];
};

/* Take and drop a reference. The caller holds graph_lock. NULL is allowed. */
void vgpu_graph_memory_ref(struct vgpu_graph_memory *memory);
void vgpu_graph_memory_unref(struct vgpu_graph_memory *memory);
/* True if a node of the graph or of its child graphs allocates or frees memory. */
bool vgpu_graph_has_memory(const struct vgpu_graph *graph);
/* Checks whether a node may be added; notes that it was added. */
int vgpu_graph_memory_may(struct vgpu_driver *driver, const struct vgpu_graph *graph,
                          const struct vgpu_node_params *params);
void vgpu_graph_memory_added(const struct vgpu_node *node);

/*
 * A call of the program that frees memory; the caller does not hold graph_lock. False: the address is not
 * graph memory. True: *result is the call's result.
 */
bool vgpu_graph_memory_free(struct vgpu_driver *driver, uint64_t address, int *result);
/* Frees memory that is no longer used. Waits for the work that may still use it. */
void vgpu_graph_memory_sweep(struct vgpu_driver *driver);

#endif
