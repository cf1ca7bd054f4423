/* What depends on what: in nodes and captures, and as programs ask for it and change it. */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "guest/cuda/graph.h"

static bool make_room(struct vgpu_links *links, size_t count) {
  struct vgpu_node **nodes = realloc(links->nodes, (count + 1) * sizeof(struct vgpu_node *));
  if (nodes != NULL) links->nodes = nodes;
  uint64_t *data = realloc(links->data, (count + 1) * sizeof *data);
  if (data != NULL) links->data = data;
  return nodes != NULL && data != NULL;
}

bool vgpu_links_join(struct vgpu_links *to, const struct vgpu_links *more) {
  if (!make_room(to, to->count + more->count)) return false;
  for (size_t i = 0; i < more->count; i++) {
    if (vgpu_links_place(to, more->nodes[i]) < to->count) continue;
    to->data[to->count] = more->data == NULL ? 0 : more->data[i];
    to->nodes[to->count++] = more->nodes[i];
  }
  return true;
}

bool vgpu_links_copy(struct vgpu_links *to, const struct vgpu_links *from) {
  if (!make_room(to, from->count)) return false;
  if (from->count > 0) memcpy(to->nodes, from->nodes, from->count * sizeof(struct vgpu_node *));
  memset(to->data, 0, from->count * sizeof *to->data);
  if (from->data != NULL) memcpy(to->data, from->data, from->count * sizeof *to->data);
  to->count = from->count;
  return true;
}

void vgpu_links_free(struct vgpu_links *links) {
  free(links->nodes);
  free(links->data);
  *links = (struct vgpu_links){0};
}

size_t vgpu_links_place(const struct vgpu_links *links, const struct vgpu_node *node) {
  size_t at = 0;
  while (at < links->count && links->nodes[at] != node) at++;
  return at;
}

bool vgpu_links_remove(struct vgpu_links *links, const struct vgpu_node *node) {
  size_t at = vgpu_links_place(links, node);
  if (at == links->count) return false;
  links->count--;
  memmove(&links->nodes[at], &links->nodes[at + 1], (links->count - at) * sizeof(struct vgpu_node *));
  memmove(&links->data[at], &links->data[at + 1], (links->count - at) * sizeof *links->data);
  return true;
}

/* ---- the API ------------------------------------------------------------- */

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
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  return vgpu_graph_leave(driver, graph == NULL ? VGPU_CUDA_INVALID_VALUE
                                                : give(graph->nodes, graph->count, nodes, numNodes));
}

int cuGraphGetRootNodes(void *hGraph, void **rootNodes, size_t *numRootNodes) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (graph == NULL) return vgpu_graph_leave(driver, VGPU_CUDA_INVALID_VALUE);
  struct vgpu_node **roots = malloc((graph->count + 1) * sizeof(struct vgpu_node *));
  if (roots == NULL) return vgpu_graph_leave(driver, VGPU_CUDA_OUT_OF_MEMORY);
  size_t count = 0;
  for (size_t i = 0; i < graph->count; i++) {
    if (graph->nodes[i]->dependencies.count == 0) roots[count++] = graph->nodes[i];
  }
  result = give(roots, count, rootNodes, numRootNodes);
  free(roots);
  return vgpu_graph_leave(driver, result);
}

int cuGraphGetEdges(void *hGraph, void **from, void **to, size_t *numEdges) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (graph == NULL || numEdges == NULL || (from == NULL) != (to == NULL)) {
    return vgpu_graph_leave(driver, VGPU_CUDA_INVALID_VALUE);
  }
  size_t count = 0, room = *numEdges;
  for (size_t i = 0; i < graph->count; i++) {
    struct vgpu_node *node = graph->nodes[i];
    for (size_t j = 0; j < node->dependencies.count; j++, count++) {
      if (from == NULL || count >= room) continue;
      from[count] = node->dependencies.nodes[j];
      to[count] = node;
    }
  }
  for (size_t i = count; from != NULL && i < room; i++) from[i] = to[i] = NULL;
  *numEdges = from != NULL && room < count ? room : count;
  return vgpu_graph_leave(driver, VGPU_CUDA_SUCCESS);
}

int cuGraphNodeGetType(void *hNode, int32_t *type) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_node *node = vgpu_node_find(driver, hNode);
  if (node == NULL || type == NULL) return vgpu_graph_leave(driver, VGPU_CUDA_INVALID_VALUE);
  *type = (int32_t)node->work.kind;
  return vgpu_graph_leave(driver, VGPU_CUDA_SUCCESS);
}

int cuGraphNodeGetDependencies(void *hNode, void **dependencies, size_t *numDependencies) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_node *node = vgpu_node_find(driver, hNode);
  return vgpu_graph_leave(driver, node == NULL ? VGPU_CUDA_INVALID_VALUE
                                               : give(node->dependencies.nodes, node->dependencies.count,
                                                      dependencies, numDependencies));
}

int cuGraphNodeGetDependentNodes(void *hNode, void **dependentNodes, size_t *numDependentNodes) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_node *node = vgpu_node_find(driver, hNode);
  if (node == NULL) return vgpu_graph_leave(driver, VGPU_CUDA_INVALID_VALUE);
  struct vgpu_graph *graph = node->graph;
  struct vgpu_node **found = malloc((graph->count + 1) * sizeof(struct vgpu_node *));
  if (found == NULL) return vgpu_graph_leave(driver, VGPU_CUDA_OUT_OF_MEMORY);
  size_t count = 0;
  for (size_t i = 0; i < graph->count; i++) {
    const struct vgpu_links *links = &graph->nodes[i]->dependencies;
    if (vgpu_links_place(links, node) < links->count) found[count++] = graph->nodes[i];
  }
  result = give(found, count, dependentNodes, numDependentNodes);
  free(found);
  return vgpu_graph_leave(driver, result);
}

static int add_edge(struct vgpu_node *from, struct vgpu_node *to) {
  const struct vgpu_links one = {.nodes = &from, .count = 1};
  if (vgpu_links_place(&to->dependencies, from) < to->dependencies.count) {
    return VGPU_CUDA_INVALID_VALUE; /* it is there already */
  }
  return vgpu_links_join(&to->dependencies, &one) ? VGPU_CUDA_SUCCESS : VGPU_CUDA_OUT_OF_MEMORY;
}

static int change_edges(void *hGraph, const void **from, const void **to, size_t count, bool add) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (graph == NULL || (count > 0 && (from == NULL || to == NULL))) result = VGPU_CUDA_INVALID_VALUE;
  for (size_t i = 0; result == VGPU_CUDA_SUCCESS && i < count; i++) {
    struct vgpu_node *a = vgpu_node_find(driver, from[i]), *b = vgpu_node_find(driver, to[i]);
    if (a == NULL || b == NULL || a == b || a->graph != graph || b->graph != graph) {
      result = VGPU_CUDA_INVALID_VALUE;
    } else {
      result = add                                      ? add_edge(a, b)
               : vgpu_links_remove(&b->dependencies, a) ? VGPU_CUDA_SUCCESS
                                                        : VGPU_CUDA_INVALID_VALUE;
    }
  }
  return vgpu_graph_leave(driver, result);
}

int cuGraphAddDependencies(void *hGraph, const void **from, const void **to, size_t numDependencies) {
  return change_edges(hGraph, from, to, numDependencies, true);
}

int cuGraphRemoveDependencies(void *hGraph, const void **from, const void **to, size_t numDependencies) {
  return change_edges(hGraph, from, to, numDependencies, false);
}
