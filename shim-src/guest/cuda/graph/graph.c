#include "guest/cuda/graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"

void vgpu_work_free(struct vgpu_work *work) {
  free(work->bytes);
  work->bytes = NULL;
  vgpu_graph_memory_unref(work->memory);
  work->memory = NULL;
}

size_t vgpu_work_frame_bytes(const struct vgpu_work *work) {
  return (size_t)work->frames * work->body_size + work->bulk_size;
}

size_t vgpu_work_bytes(const struct vgpu_work *work) {
  size_t frames = vgpu_work_frame_bytes(work);
  return work->kept_size == 0 ? frames : ((frames + 7) & ~(size_t)7) + work->kept_size;
}

bool vgpu_work_frame(struct vgpu_work *work, uint32_t opcode, const void *body, uint32_t body_size,
                     const void *bulk, uint32_t bulk_size) {
  unsigned char *bytes = malloc((size_t)body_size + bulk_size + 1);
  if (bytes == NULL) return false;
  memcpy(bytes, body, body_size);
  if (bulk_size > 0) memcpy(bytes + body_size, bulk, bulk_size);
  work->step = VGPU_STEP_FRAME;
  work->opcode = opcode;
  work->frames = 1;
  work->body_size = body_size;
  work->bulk_size = bulk_size;
  work->bytes = bytes;
  return true;
}

bool vgpu_work_copy(struct vgpu_work *to, const struct vgpu_work *from) {
  *to = *from;
  if (from->bytes != NULL) {
    to->bytes = malloc(vgpu_work_bytes(from) + 1);
    if (to->bytes == NULL) return false;
    memcpy(to->bytes, from->bytes, vgpu_work_bytes(from));
  }
  vgpu_graph_memory_ref(to->memory);
  return true;
}

static bool has(struct vgpu_driver *driver, const void *handle, enum vgpu_object_kind kind) {
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_has(&driver->objects, handle, kind);
  pthread_mutex_unlock(&driver->lock);
  return live;
}

struct vgpu_graph *vgpu_graph_find(struct vgpu_driver *driver, const void *handle) {
  return has(driver, handle, VGPU_OBJECT_GRAPH) ? (struct vgpu_graph *)(uintptr_t)handle : NULL;
}

struct vgpu_node *vgpu_node_find(struct vgpu_driver *driver, const void *handle) {
  return has(driver, handle, VGPU_OBJECT_NODE) ? (struct vgpu_node *)(uintptr_t)handle : NULL;
}

struct vgpu_node *vgpu_node_of_kind(struct vgpu_driver *driver, const void *handle,
                                    enum vgpu_node_kind kind) {
  struct vgpu_node *node = vgpu_node_find(driver, handle);
  return node != NULL && node->work.kind == kind ? node : NULL;
}

struct vgpu_driver *vgpu_graph_enter(int *result) {
  struct vgpu_driver *driver = vgpu_cuda_driver(result);
  if (driver != NULL) pthread_mutex_lock(&driver->graph_lock);
  return driver;
}

int vgpu_graph_leave(struct vgpu_driver *driver, int result) {
  pthread_mutex_unlock(&driver->graph_lock);
  return result;
}

static bool publish(struct vgpu_driver *driver, const void *handle, enum vgpu_object_kind kind,
                    uint64_t *number) {
  pthread_mutex_lock(&driver->lock);
  bool added = vgpu_objects_add(&driver->objects, handle, kind);
  *number = vgpu_cuda_next_number(driver);
  pthread_mutex_unlock(&driver->lock);
  return added;
}

static void withdraw(struct vgpu_driver *driver, const void *handle, enum vgpu_object_kind kind) {
  pthread_mutex_lock(&driver->lock);
  vgpu_objects_remove(&driver->objects, handle, kind);
  pthread_mutex_unlock(&driver->lock);
}

struct vgpu_graph *vgpu_graph_make(struct vgpu_driver *driver) {
  struct vgpu_graph *graph = calloc(1, sizeof *graph);
  if (graph != NULL && !publish(driver, graph, VGPU_OBJECT_GRAPH, &graph->id)) {
    free(graph);
    graph = NULL;
  }
  if (graph != NULL) graph->number = ++driver->graph_numbers;
  return graph;
}

static void free_node(struct vgpu_driver *driver, struct vgpu_node *node) {
  withdraw(driver, node, VGPU_OBJECT_NODE);
  if (node->child != NULL) vgpu_graph_free(driver, node->child);
  if (node->bodies != NULL) vgpu_condition_removed(driver, node);
  vgpu_work_free(&node->work);
  vgpu_links_free(&node->dependencies);
  free(node);
}

void vgpu_graph_free(struct vgpu_driver *driver, struct vgpu_graph *graph) {
  withdraw(driver, graph, VGPU_OBJECT_GRAPH);
  for (size_t i = 0; i < graph->count; i++) free_node(driver, graph->nodes[i]);
  vgpu_holds_release(driver, &graph->holds);
  vgpu_conditions_drop(graph->conditions);
  free(graph->nodes);
  free(graph);
}

struct vgpu_node *vgpu_graph_add(struct vgpu_driver *driver, struct vgpu_graph *graph,
                                 const struct vgpu_links *dependencies, struct vgpu_work *work) {
  struct vgpu_node *node = calloc(1, sizeof *node);
  if ((graph->count & (graph->count - 1)) == 0) {
    size_t room = graph->count == 0 ? 1 : graph->count * 2;
    struct vgpu_node **nodes = realloc(graph->nodes, room * sizeof(struct vgpu_node *));
    if (nodes != NULL) graph->nodes = nodes;
    else {
      free(node);
      node = NULL;
    }
  }
  if (node == NULL || !vgpu_links_copy(&node->dependencies, dependencies) ||
      !publish(driver, node, VGPU_OBJECT_NODE, &node->id)) {
    if (node != NULL) vgpu_links_free(&node->dependencies);
    free(node);
    vgpu_work_free(work);
    return NULL;
  }
  node->graph = graph;
  node->origin = node->id;
  node->local = graph->next_node++;
  node->work = *work;
  graph->nodes[graph->count++] = node;
  return node;
}

static size_t place_of(const struct vgpu_graph *graph, const struct vgpu_node *node) {
  size_t at = 0;
  while (at < graph->count && graph->nodes[at] != node) at++;
  return at;
}

void vgpu_graph_remove(struct vgpu_driver *driver, struct vgpu_node *node) {
  struct vgpu_graph *graph = node->graph;
  size_t at = place_of(graph, node);
  graph->count--;
  memmove(&graph->nodes[at], &graph->nodes[at + 1], (graph->count - at) * sizeof(struct vgpu_node *));
  /*
   * Capacity grows at powers of two. If the count falls below one, the next add reallocates to the same size,
   * which does no harm.
   */
  free_node(driver, node);
}

struct vgpu_graph *vgpu_graph_clone(struct vgpu_driver *driver, const struct vgpu_graph *graph) {
  const struct vgpu_links none = {0};
  struct vgpu_graph *clone = vgpu_graph_make(driver);
  bool whole = clone != NULL && vgpu_holds_join(&clone->holds, &graph->holds);
  for (size_t i = 0; whole && i < graph->count; i++) graph->nodes[i]->mark = (uint32_t)i;
  for (size_t i = 0; whole && i < graph->count; i++) {
    const struct vgpu_node *node = graph->nodes[i];
    struct vgpu_work work;
    whole = vgpu_work_copy(&work, &node->work);
    struct vgpu_node *copy = whole ? vgpu_graph_add(driver, clone, &none, &work) : NULL;
    whole = copy != NULL;
    if (whole) copy->origin = node->id;
    if (whole && node->child != NULL) {
      copy->child = vgpu_graph_clone(driver, node->child);
      whole = copy->child != NULL;
      if (whole) copy->child->owned = true;
    }
  }
  /* Dependencies may name nodes that come later in the list, so they are copied when all nodes are there. */
  for (size_t i = 0; whole && i < graph->count; i++) {
    const struct vgpu_node *node = graph->nodes[i];
    struct vgpu_links *links = &clone->nodes[i]->dependencies;
    whole = vgpu_links_copy(links, &node->dependencies);
    for (size_t j = 0; whole && j < links->count; j++) links->nodes[j] = clone->nodes[links->nodes[j]->mark];
  }
  if (!whole && clone != NULL) {
    vgpu_graph_free(driver, clone);
    clone = NULL;
  }
  return clone;
}

struct vgpu_node **vgpu_graph_order(struct vgpu_graph *graph) {
  struct vgpu_node **order = malloc((graph->count + 1) * sizeof(struct vgpu_node *));
  if (order == NULL) return NULL;
  for (size_t i = 0; i < graph->count; i++) graph->nodes[i]->mark = 0;
  size_t done = 0;
  /*
   * Passes over the nodes in the order in which they were added. One pass is enough unless edges were added
   * backwards.
   */
  for (bool moved = true; moved && done < graph->count;) {
    moved = false;
    for (size_t i = 0; i < graph->count; i++) {
      struct vgpu_node *node = graph->nodes[i];
      bool ready = node->mark == 0;
      const struct vgpu_links *links = &node->dependencies;
      for (size_t j = 0; ready && j < links->count; j++) ready = links->nodes[j]->mark == 1;
      if (!ready) continue;
      node->mark = 1;
      order[done++] = node;
      moved = true;
    }
  }
  if (done < graph->count) {
    free(order);
    return NULL;
  }
  return order;
}

int cuGraphCreate(void **phGraph, uint32_t flags) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  if (phGraph == NULL || flags != 0) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  struct vgpu_graph *graph = vgpu_graph_make(driver);
  if (graph == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_OUT_OF_MEMORY);
  *phGraph = graph;
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuGraphDestroy(void *hGraph) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (graph == NULL || graph->owned) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  vgpu_graph_free(driver, graph);
  vgpu_graph_leave(driver, CUDA_SUCCESS);
  vgpu_graph_memory_sweep(driver);
  return CUDA_SUCCESS;
}

int cuGraphClone(void **phGraphClone, void *originalGraph) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, originalGraph);
  if (phGraphClone == NULL || graph == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  if (vgpu_graph_has_memory(graph) || vgpu_graph_has_conditions(graph))
    return vgpu_graph_leave(driver, CUDA_ERROR_NOT_SUPPORTED);
  struct vgpu_graph *clone = vgpu_graph_clone(driver, graph);
  if (clone == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_OUT_OF_MEMORY);
  *phGraphClone = clone;
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuGraphNodeFindInClone(void **phNode, void *hOriginalNode, void *hClonedGraph) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hClonedGraph);
  struct vgpu_node *node = vgpu_node_find(driver, hOriginalNode);
  if (phNode == NULL || graph == NULL || node == NULL)
    return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  for (size_t i = 0; i < graph->count; i++) {
    if (graph->nodes[i]->origin != node->id) continue;
    *phNode = graph->nodes[i];
    return vgpu_graph_leave(driver, CUDA_SUCCESS);
  }
  return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
}

int cuGraphDestroyNode(void *hNode) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_node *node = vgpu_node_find(driver, hNode);
  if (node == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  struct vgpu_graph *graph = node->graph;
  if (vgpu_graph_has_memory(graph)) return vgpu_graph_leave(driver, CUDA_ERROR_NOT_SUPPORTED);
  for (size_t i = 0; i < graph->count; i++) vgpu_links_remove(&graph->nodes[i]->dependencies, node);
  vgpu_graph_remove(driver, node);
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}
