/* Graphs and their nodes as the guest holds them. */
#include "guest/cuda/graph.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"

void vgpu_work_free(struct vgpu_work *work) {
  free(work->bytes);
  work->bytes = NULL;
}

bool vgpu_work_frame(struct vgpu_work *work, uint32_t opcode, const void *body, uint32_t body_size,
                     const void *bulk, uint32_t bulk_size) {
  unsigned char *bytes = malloc((size_t)body_size + bulk_size + 1);
  if (bytes == NULL) return false;
  memcpy(bytes, body, body_size);
  if (bulk_size > 0) memcpy(bytes + body_size, bulk, bulk_size);
  work->step = VGPU_STEP_FRAME;
  work->opcode = opcode;
  work->body_size = body_size;
  work->bulk_size = bulk_size;
  work->bytes = bytes;
  return true;
}

bool vgpu_work_copy(struct vgpu_work *to, const struct vgpu_work *from) {
  *to = *from;
  if (from->bytes == NULL) return true;
  size_t size = (size_t)from->body_size + from->bulk_size;
  to->bytes = malloc(size + 1);
  if (to->bytes != NULL) memcpy(to->bytes, from->bytes, size);
  return to->bytes != NULL;
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

static bool publish(struct vgpu_driver *driver, const void *handle, enum vgpu_object_kind kind,
                    uint64_t *number) {
  pthread_mutex_lock(&driver->lock);
  bool added = vgpu_objects_add(&driver->objects, handle, kind);
  if (number != NULL) *number = vgpu_cuda_next_number(driver);
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
  if (graph != NULL && !publish(driver, graph, VGPU_OBJECT_GRAPH, NULL)) {
    free(graph);
    graph = NULL;
  }
  return graph;
}

static void free_node(struct vgpu_driver *driver, struct vgpu_node *node) {
  withdraw(driver, node, VGPU_OBJECT_NODE);
  if (node->child != NULL) vgpu_graph_free(driver, node->child);
  vgpu_work_free(&node->work);
  free(node->dependencies);
  free(node);
}

void vgpu_graph_free(struct vgpu_driver *driver, struct vgpu_graph *graph) {
  withdraw(driver, graph, VGPU_OBJECT_GRAPH);
  for (size_t i = 0; i < graph->count; i++) free_node(driver, graph->nodes[i]);
  free(graph->nodes);
  free(graph);
}

static bool copy_dependencies(struct vgpu_node *node, struct vgpu_node *const *dependencies, size_t count) {
  node->dependencies = malloc((count + 1) * sizeof(struct vgpu_node *));
  if (node->dependencies == NULL) return false;
  for (size_t i = 0; i < count; i++) node->dependencies[i] = dependencies[i];
  node->dependency_count = count;
  return true;
}

struct vgpu_node *vgpu_graph_add(struct vgpu_driver *driver, struct vgpu_graph *graph,
                                 struct vgpu_node *const *dependencies, size_t count,
                                 struct vgpu_work *work) {
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
  if (node == NULL || !copy_dependencies(node, dependencies, count) ||
      !publish(driver, node, VGPU_OBJECT_NODE, &node->id)) {
    if (node != NULL) free(node->dependencies);
    free(node);
    vgpu_work_free(work);
    return NULL;
  }
  node->graph = graph;
  node->origin = node->id;
  node->work = *work;
  graph->nodes[graph->count++] = node;
  return node;
}

static size_t place_of(const struct vgpu_graph *graph, const struct vgpu_node *node) {
  size_t at = 0;
  while (at < graph->count && graph->nodes[at] != node) at++;
  return at;
}

struct vgpu_graph *vgpu_graph_clone(struct vgpu_driver *driver, const struct vgpu_graph *graph) {
  struct vgpu_graph *clone = vgpu_graph_make(driver);
  bool whole = clone != NULL;
  for (size_t i = 0; whole && i < graph->count; i++) graph->nodes[i]->mark = (uint32_t)i;
  for (size_t i = 0; whole && i < graph->count; i++) {
    const struct vgpu_node *node = graph->nodes[i];
    struct vgpu_work work;
    whole = vgpu_work_copy(&work, &node->work);
    struct vgpu_node *copy = whole ? vgpu_graph_add(driver, clone, NULL, 0, &work) : NULL;
    whole = copy != NULL;
    if (whole) copy->origin = node->id;
    if (whole && node->child != NULL) {
      copy->child = vgpu_graph_clone(driver, node->child);
      whole = copy->child != NULL;
      if (whole) copy->child->owned = true;
    }
  }
  /* Dependencies may point ahead, so they come when all nodes are there. */
  for (size_t i = 0; whole && i < graph->count; i++) {
    const struct vgpu_node *node = graph->nodes[i];
    free(clone->nodes[i]->dependencies);
    whole = copy_dependencies(clone->nodes[i], node->dependencies, node->dependency_count);
    for (size_t j = 0; whole && j < node->dependency_count; j++) {
      clone->nodes[i]->dependencies[j] = clone->nodes[node->dependencies[j]->mark];
    }
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
  /* Passes over the nodes as they were added: one is enough unless edges were added backwards. */
  for (bool moved = true; moved && done < graph->count;) {
    moved = false;
    for (size_t i = 0; i < graph->count; i++) {
      struct vgpu_node *node = graph->nodes[i];
      bool ready = node->mark == 0;
      for (size_t j = 0; ready && j < node->dependency_count; j++) ready = node->dependencies[j]->mark == 1;
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

/* ---- the API ------------------------------------------------------------- */

static int enter(struct vgpu_driver **driver) {
  int result;
  *driver = vgpu_cuda_driver(&result);
  if (*driver != NULL) pthread_mutex_lock(&(*driver)->graph_lock);
  return result;
}

static int leave(struct vgpu_driver *driver, int result) {
  pthread_mutex_unlock(&driver->graph_lock);
  return result;
}

int cuGraphCreate(void **phGraph, uint32_t flags) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  if (phGraph == NULL || flags != 0) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  struct vgpu_graph *graph = vgpu_graph_make(driver);
  if (graph == NULL) return leave(driver, VGPU_CUDA_OUT_OF_MEMORY);
  *phGraph = graph;
  return leave(driver, VGPU_CUDA_SUCCESS);
}

int cuGraphDestroy(void *hGraph) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (graph == NULL || graph->owned) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  vgpu_graph_free(driver, graph);
  return leave(driver, VGPU_CUDA_SUCCESS);
}

int cuGraphClone(void **phGraphClone, void *originalGraph) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, originalGraph);
  if (phGraphClone == NULL || graph == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  struct vgpu_graph *clone = vgpu_graph_clone(driver, graph);
  if (clone == NULL) return leave(driver, VGPU_CUDA_OUT_OF_MEMORY);
  *phGraphClone = clone;
  return leave(driver, VGPU_CUDA_SUCCESS);
}

int cuGraphNodeFindInClone(void **phNode, void *hOriginalNode, void *hClonedGraph) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hClonedGraph);
  struct vgpu_node *node = vgpu_node_find(driver, hOriginalNode);
  if (phNode == NULL || graph == NULL || node == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  for (size_t i = 0; i < graph->count; i++) {
    if (graph->nodes[i]->origin != node->id) continue;
    *phNode = graph->nodes[i];
    return leave(driver, VGPU_CUDA_SUCCESS);
  }
  return leave(driver, VGPU_CUDA_INVALID_VALUE);
}

int cuGraphDestroyNode(void *hNode) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_node *node = vgpu_node_find(driver, hNode);
  if (node == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  struct vgpu_graph *graph = node->graph;
  for (size_t i = 0; i < graph->count; i++) {
    struct vgpu_node *other = graph->nodes[i];
    size_t kept = 0;
    for (size_t j = 0; j < other->dependency_count; j++) {
      if (other->dependencies[j] != node) other->dependencies[kept++] = other->dependencies[j];
    }
    other->dependency_count = kept;
  }
  size_t at = place_of(graph, node);
  graph->count--;
  memmove(&graph->nodes[at], &graph->nodes[at + 1], (graph->count - at) * sizeof(struct vgpu_node *));
  /* Room is counted in powers of two: below one again, the next add asks for it anew, which does no harm. */
  free_node(driver, node);
  return leave(driver, VGPU_CUDA_SUCCESS);
}

/* Fills what the program has room for; with no array only the count. */
static int give(struct vgpu_node *const *nodes, size_t count, void **to, size_t *number) {
  if (number == NULL) return VGPU_CUDA_INVALID_VALUE;
  if (to != NULL) {
    for (size_t i = 0; i < *number; i++) to[i] = i < count ? nodes[i] : NULL;
    if (*number > count) *number = count;
  } else {
    *number = count;
  }
  return VGPU_CUDA_SUCCESS;
}

int cuGraphGetNodes(void *hGraph, void **nodes, size_t *numNodes) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  return leave(driver,
               graph == NULL ? VGPU_CUDA_INVALID_VALUE : give(graph->nodes, graph->count, nodes, numNodes));
}

int cuGraphGetRootNodes(void *hGraph, void **rootNodes, size_t *numRootNodes) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (graph == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  struct vgpu_node **roots = malloc((graph->count + 1) * sizeof(struct vgpu_node *));
  if (roots == NULL) return leave(driver, VGPU_CUDA_OUT_OF_MEMORY);
  size_t count = 0;
  for (size_t i = 0; i < graph->count; i++) {
    if (graph->nodes[i]->dependency_count == 0) roots[count++] = graph->nodes[i];
  }
  result = give(roots, count, rootNodes, numRootNodes);
  free(roots);
  return leave(driver, result);
}

int cuGraphGetEdges(void *hGraph, void **from, void **to, size_t *numEdges) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (graph == NULL || numEdges == NULL || (from == NULL) != (to == NULL)) {
    return leave(driver, VGPU_CUDA_INVALID_VALUE);
  }
  size_t count = 0, room = *numEdges;
  for (size_t i = 0; i < graph->count; i++) {
    struct vgpu_node *node = graph->nodes[i];
    for (size_t j = 0; j < node->dependency_count; j++, count++) {
      if (from == NULL || count >= room) continue;
      from[count] = node->dependencies[j];
      to[count] = node;
    }
  }
  for (size_t i = count; from != NULL && i < room; i++) from[i] = to[i] = NULL;
  *numEdges = from != NULL && room < count ? room : count;
  return leave(driver, VGPU_CUDA_SUCCESS);
}

int cuGraphNodeGetType(void *hNode, int32_t *type) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_node *node = vgpu_node_find(driver, hNode);
  if (node == NULL || type == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  *type = (int32_t)node->work.kind;
  return leave(driver, VGPU_CUDA_SUCCESS);
}

int cuGraphNodeGetDependencies(void *hNode, void **dependencies, size_t *numDependencies) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_node *node = vgpu_node_find(driver, hNode);
  return leave(driver, node == NULL
                           ? VGPU_CUDA_INVALID_VALUE
                           : give(node->dependencies, node->dependency_count, dependencies, numDependencies));
}

int cuGraphNodeGetDependentNodes(void *hNode, void **dependentNodes, size_t *numDependentNodes) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_node *node = vgpu_node_find(driver, hNode);
  if (node == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  struct vgpu_graph *graph = node->graph;
  struct vgpu_node **found = malloc((graph->count + 1) * sizeof(struct vgpu_node *));
  if (found == NULL) return leave(driver, VGPU_CUDA_OUT_OF_MEMORY);
  size_t count = 0;
  for (size_t i = 0; i < graph->count; i++) {
    for (size_t j = 0; j < graph->nodes[i]->dependency_count; j++) {
      if (graph->nodes[i]->dependencies[j] != node) continue;
      found[count++] = graph->nodes[i];
      break;
    }
  }
  result = give(found, count, dependentNodes, numDependentNodes);
  free(found);
  return leave(driver, result);
}

static int add_edge(struct vgpu_node *from, struct vgpu_node *to) {
  for (size_t i = 0; i < to->dependency_count; i++) {
    if (to->dependencies[i] == from) return VGPU_CUDA_INVALID_VALUE; /* it is there already */
  }
  struct vgpu_node **grown =
      realloc(to->dependencies, (to->dependency_count + 1) * sizeof(struct vgpu_node *));
  if (grown == NULL) return VGPU_CUDA_OUT_OF_MEMORY;
  to->dependencies = grown;
  to->dependencies[to->dependency_count++] = from;
  return VGPU_CUDA_SUCCESS;
}

static int remove_edge(const struct vgpu_node *from, struct vgpu_node *to) {
  for (size_t i = 0; i < to->dependency_count; i++) {
    if (to->dependencies[i] != from) continue;
    to->dependencies[i] = to->dependencies[--to->dependency_count];
    return VGPU_CUDA_SUCCESS;
  }
  return VGPU_CUDA_INVALID_VALUE;
}

static int change_edges(void *hGraph, const void **from, const void **to, size_t count, bool add) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (graph == NULL || (count > 0 && (from == NULL || to == NULL))) result = VGPU_CUDA_INVALID_VALUE;
  for (size_t i = 0; result == VGPU_CUDA_SUCCESS && i < count; i++) {
    struct vgpu_node *a = vgpu_node_find(driver, from[i]), *b = vgpu_node_find(driver, to[i]);
    if (a == NULL || b == NULL || a == b || a->graph != graph || b->graph != graph) {
      result = VGPU_CUDA_INVALID_VALUE;
    } else {
      result = add ? add_edge(a, b) : remove_edge(a, b);
    }
  }
  return leave(driver, result);
}

int cuGraphAddDependencies(void *hGraph, const void **from, const void **to, size_t numDependencies) {
  return change_edges(hGraph, from, to, numDependencies, true);
}

int cuGraphRemoveDependencies(void *hGraph, const void **from, const void **to, size_t numDependencies) {
  return change_edges(hGraph, from, to, numDependencies, false);
}
