/* The dependencies between nodes, in graphs and in captures: reading, adding and removing them. */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "guest/cuda/graph/graph.h"

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

/* CUgraphEdgeData */
struct edge_data {
  uint8_t from_port; /* of a kernel: 1: the kernel triggers the edge; 2: all blocks have begun */
  uint8_t to_port;
  uint8_t type; /* 1: programmatic, between kernels; weaker than waiting for the whole kernel */
  uint8_t reserved[5];
};
_Static_assert(sizeof(struct edge_data) == sizeof(uint64_t), "CUgraphEdgeData");

/* A launch runs its nodes one after the other on one stream, so every edge holds, also a programmatic one. */
int vgpu_edge_check(uint64_t data, enum vgpu_node_kind from, enum vgpu_node_kind to) {
  struct edge_data edge;
  if (data == 0) return CUDA_SUCCESS;
  memcpy(&edge, &data, sizeof edge);
  bool clean = edge.to_port == 0 && edge.type == 1 && (edge.from_port == 1 || edge.from_port == 2);
  for (size_t i = 0; i < sizeof edge.reserved; i++) clean = clean && edge.reserved[i] == 0;
  return clean && from == VGPU_NODE_KERNEL && to == VGPU_NODE_KERNEL ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_VALUE;
}

int vgpu_links_check(struct vgpu_driver *driver, const struct vgpu_graph *graph,
                     const struct vgpu_links *links) {
  if (graph == NULL || (links->count > 0 && links->nodes == NULL)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < links->count; i++) {
    const struct vgpu_node *node = vgpu_node_find(driver, links->nodes[i]);
    if (node == NULL || node->graph != graph || vgpu_links_place(links, node) != i) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

/*
 * The arrays of a query for links. They get as many links as the program has room for; without arrays only
 * the count is returned.
 */
struct answer {
  void **nodes;
  uint64_t *data;
  size_t *number;
};

static int give(const struct vgpu_links *links, const struct answer *to) {
  if (to->number == NULL || (to->data != NULL && to->nodes == NULL)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; links->data != NULL && to->nodes != NULL && to->data == NULL && i < links->count; i++) {
    if (links->data[i] != 0) return CUDA_ERROR_LOSSY_QUERY;
  }
  for (size_t i = 0; to->nodes != NULL && i < *to->number; i++) {
    to->nodes[i] = i < links->count ? links->nodes[i] : NULL;
    if (to->data != NULL) to->data[i] = i < links->count ? links->data[i] : 0;
  }
  if (to->nodes == NULL || *to->number > links->count) *to->number = links->count;
  return CUDA_SUCCESS;
}

int cuGraphGetNodes(void *hGraph, void **nodes, size_t *numNodes) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (graph == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  const struct vgpu_links all = {.nodes = graph->nodes, .count = graph->count};
  return vgpu_graph_leave(driver, give(&all, &(struct answer){.nodes = nodes, .number = numNodes}));
}

int cuGraphGetRootNodes(void *hGraph, void **rootNodes, size_t *numRootNodes) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (graph == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  struct vgpu_links roots = {0};
  bool enough = make_room(&roots, graph->count);
  for (size_t i = 0; enough && i < graph->count; i++) {
    if (graph->nodes[i]->dependencies.count > 0) continue;
    roots.data[roots.count] = 0;
    roots.nodes[roots.count++] = graph->nodes[i];
  }
  const struct answer answer = {.nodes = rootNodes, .number = numRootNodes};
  result = enough ? give(&roots, &answer) : CUDA_ERROR_OUT_OF_MEMORY;
  vgpu_links_free(&roots);
  return vgpu_graph_leave(driver, result);
}

static bool is_plain(const struct vgpu_graph *graph) {
  for (size_t i = 0; i < graph->count; i++) {
    const struct vgpu_links *links = &graph->nodes[i]->dependencies;
    for (size_t j = 0; j < links->count; j++) {
      if (links->data[j] != 0) return false;
    }
  }
  return true;
}

int cuGraphGetEdges_v2(void *hGraph, void **from, void **to, void *edgeData, size_t *numEdges) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (graph == NULL || numEdges == NULL || (from == NULL) != (to == NULL) ||
      (edgeData != NULL && from == NULL)) {
    return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  }
  if (from != NULL && edgeData == NULL && !is_plain(graph)) {
    return vgpu_graph_leave(driver, CUDA_ERROR_LOSSY_QUERY);
  }
  uint64_t *data = edgeData;
  size_t count = 0, room = *numEdges;
  for (size_t i = 0; i < graph->count; i++) {
    const struct vgpu_links *links = &graph->nodes[i]->dependencies;
    for (size_t j = 0; j < links->count; j++, count++) {
      if (from == NULL || count >= room) continue;
      from[count] = links->nodes[j];
      to[count] = graph->nodes[i];
      if (data != NULL) data[count] = links->data[j];
    }
  }
  for (size_t i = count; from != NULL && i < room; i++) from[i] = to[i] = NULL;
  *numEdges = from != NULL && room < count ? room : count;
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuGraphGetEdges(void *hGraph, void **from, void **to, size_t *numEdges) {
  return cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

int cuGraphNodeGetDependencies_v2(void *hNode, void **dependencies, void *edgeData, size_t *numDependencies) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_node *node = vgpu_node_find(driver, hNode);
  const struct answer answer = {.nodes = dependencies, .data = edgeData, .number = numDependencies};
  return vgpu_graph_leave(driver,
                          node == NULL ? CUDA_ERROR_INVALID_VALUE : give(&node->dependencies, &answer));
}

int cuGraphNodeGetDependencies(void *hNode, void **dependencies, size_t *numDependencies) {
  return cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

int cuGraphNodeGetDependentNodes_v2(void *hNode, void **dependentNodes, void *edgeData,
                                    size_t *numDependentNodes) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_node *node = vgpu_node_find(driver, hNode);
  if (node == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  const struct vgpu_graph *graph = node->graph;
  struct vgpu_links found = {0};
  bool enough = make_room(&found, graph->count);
  for (size_t i = 0; enough && i < graph->count; i++) {
    const struct vgpu_links *links = &graph->nodes[i]->dependencies;
    size_t place = vgpu_links_place(links, node);
    if (place == links->count) continue;
    found.data[found.count] = links->data[place];
    found.nodes[found.count++] = graph->nodes[i];
  }
  const struct answer answer = {.nodes = dependentNodes, .data = edgeData, .number = numDependentNodes};
  result = enough ? give(&found, &answer) : CUDA_ERROR_OUT_OF_MEMORY;
  vgpu_links_free(&found);
  return vgpu_graph_leave(driver, result);
}

int cuGraphNodeGetDependentNodes(void *hNode, void **dependentNodes, size_t *numDependentNodes) {
  return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, NULL, numDependentNodes);
}

int cuGraphNodeGetType(void *hNode, int32_t *type) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_node *node = vgpu_node_find(driver, hNode);
  if (node == NULL || type == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  *type = (int32_t)node->work.kind;
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

static int add_edge(struct vgpu_node *from, struct vgpu_node *to, uint64_t data) {
  const struct vgpu_links one = {.nodes = &from, .data = &data, .count = 1};
  int result = vgpu_edge_check(data, from->work.kind, to->work.kind);
  if (result != CUDA_SUCCESS) return result;
  if (vgpu_links_place(&to->dependencies, from) < to->dependencies.count) {
    return CUDA_ERROR_INVALID_VALUE; /* the edge exists already */
  }
  return vgpu_links_join(&to->dependencies, &one) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Removes only the edge that has these data. */
static int remove_edge(struct vgpu_node *from, struct vgpu_node *to, uint64_t data) {
  size_t place = vgpu_links_place(&to->dependencies, from);
  if (place == to->dependencies.count || to->dependencies.data[place] != data)
    return CUDA_ERROR_INVALID_VALUE;
  vgpu_links_remove(&to->dependencies, from);
  return CUDA_SUCCESS;
}

static int change_edges(void *hGraph, const void **from, const void **to, const uint64_t *data, size_t count,
                        bool add) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (graph == NULL || (count > 0 && (from == NULL || to == NULL))) result = CUDA_ERROR_INVALID_VALUE;
  else if (!add && count > 0 && vgpu_graph_has_memory(graph)) result = CUDA_ERROR_NOT_SUPPORTED;
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
    struct vgpu_node *a = vgpu_node_find(driver, from[i]), *b = vgpu_node_find(driver, to[i]);
    uint64_t edge = data == NULL ? 0 : data[i];
    if (a == NULL || b == NULL || a == b || a->graph != graph || b->graph != graph) {
      result = CUDA_ERROR_INVALID_VALUE;
    } else {
      result = add ? add_edge(a, b, edge) : remove_edge(a, b, edge);
    }
  }
  return vgpu_graph_leave(driver, result);
}

int cuGraphAddDependencies_v2(void *hGraph, const void **from, const void **to, const void *edgeData,
                              size_t numDependencies) {
  return change_edges(hGraph, from, to, edgeData, numDependencies, true);
}

int cuGraphAddDependencies(void *hGraph, const void **from, const void **to, size_t numDependencies) {
  return change_edges(hGraph, from, to, NULL, numDependencies, true);
}

int cuGraphRemoveDependencies_v2(void *hGraph, const void **from, const void **to, const void *edgeData,
                                 size_t numDependencies) {
  return change_edges(hGraph, from, to, edgeData, numDependencies, false);
}

int cuGraphRemoveDependencies(void *hGraph, const void **from, const void **to, size_t numDependencies) {
  return change_edges(hGraph, from, to, NULL, numDependencies, false);
}
