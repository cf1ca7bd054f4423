/* The nodes that programs add and change by hand: each call says its parameters as CUgraphNodeParams. */
#include <string.h>

#include "cuda_api.h"
#include "guest/cuda/graph.h"

/* A structure of the API, or the beginning of one, as the parameters of a node. */
static int fill(struct vgpu_node_params *params, enum vgpu_node_kind kind, const void *given, size_t size) {
  int result = vgpu_cuda_ready();
  if (result != VGPU_CUDA_SUCCESS) return result;
  if (given == NULL) return VGPU_CUDA_INVALID_VALUE;
  *params = (struct vgpu_node_params){.type = kind};
  if (kind == VGPU_NODE_MEMCPY) memcpy(&params->of.copy.copy, given, size);
  else memcpy(params->of.bytes, given, size);
  return VGPU_CUDA_SUCCESS;
}

/* ---- adding -------------------------------------------------------------- */

static int check_place(struct vgpu_driver *driver, const struct vgpu_graph *graph,
                       const struct vgpu_links *links) {
  if (graph == NULL || (links->count > 0 && links->nodes == NULL)) return VGPU_CUDA_INVALID_VALUE;
  for (size_t i = 0; i < links->count; i++) {
    const struct vgpu_node *node = vgpu_node_find(driver, links->nodes[i]);
    if (node == NULL || node->graph != graph) return VGPU_CUDA_INVALID_VALUE;
  }
  return VGPU_CUDA_SUCCESS;
}

/* The graph of a child's node: a copy of the program's. */
static int copy_child(struct vgpu_driver *driver, const struct vgpu_graph *graph, const void *handle,
                      struct vgpu_graph **child) {
  const struct vgpu_graph *given = vgpu_graph_find(driver, handle);
  if (given == NULL || given == graph) return VGPU_CUDA_INVALID_VALUE;
  *child = vgpu_graph_clone(driver, given);
  if (*child == NULL) return VGPU_CUDA_OUT_OF_MEMORY;
  (*child)->owned = true;
  return VGPU_CUDA_SUCCESS;
}

static int add_locked(struct vgpu_driver *driver, void **made, struct vgpu_graph *graph,
                      const struct vgpu_links *links, const struct vgpu_node_params *params) {
  struct vgpu_work work;
  struct vgpu_graph *child = NULL;
  int result = check_place(driver, graph, links);
  if (result == VGPU_CUDA_SUCCESS) result = vgpu_work_make(driver, params, &work);
  if (result != VGPU_CUDA_SUCCESS) return result;
  if (params->type == VGPU_NODE_GRAPH) result = copy_child(driver, graph, params->of.child.graph, &child);
  if (result != VGPU_CUDA_SUCCESS) return result; /* a child's work has nothing to free */
  struct vgpu_node *node = vgpu_graph_add(driver, graph, links, &work);
  if (node == NULL) {
    if (child != NULL) vgpu_graph_free(driver, child);
    return VGPU_CUDA_OUT_OF_MEMORY;
  }
  node->child = child;
  *made = node;
  return VGPU_CUDA_SUCCESS;
}

static int add(void **made, void *hGraph, const void **dependencies, size_t count,
               const struct vgpu_node_params *params) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  if (made == NULL) return vgpu_graph_leave(driver, VGPU_CUDA_INVALID_VALUE);
  const struct vgpu_links links = {.nodes = (struct vgpu_node **)(uintptr_t)dependencies, .count = count};
  return vgpu_graph_leave(driver, add_locked(driver, made, vgpu_graph_find(driver, hGraph), &links, params));
}

static int add_given(void **made, void *hGraph, const void **dependencies, size_t count,
                     enum vgpu_node_kind kind, const void *given, size_t size) {
  struct vgpu_node_params params;
  int result = fill(&params, kind, given, size);
  return result == VGPU_CUDA_SUCCESS ? add(made, hGraph, dependencies, count, &params) : result;
}

int cuGraphAddKernelNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies,
                         const void *nodeParams) {
  return add_given(phGraphNode, hGraph, dependencies, numDependencies, VGPU_NODE_KERNEL, nodeParams,
                   VGPU_KERNEL_PARAMS_V1);
}

int cuGraphAddKernelNode_v2(void **phGraphNode, void *hGraph, const void **dependencies,
                            size_t numDependencies, const void *nodeParams) {
  return add_given(phGraphNode, hGraph, dependencies, numDependencies, VGPU_NODE_KERNEL, nodeParams,
                   sizeof(struct vgpu_kernel_params));
}

/* Addresses are good in every context of a device: `ctx` says nothing more. */
int cuGraphAddMemcpyNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies,
                         const void *copyParams, struct vgpu_context *ctx) {
  (void)ctx;
  return add_given(phGraphNode, hGraph, dependencies, numDependencies, VGPU_NODE_MEMCPY, copyParams,
                   sizeof(struct vgpu_copy_params));
}

int cuGraphAddMemsetNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies,
                         const void *memsetParams, struct vgpu_context *ctx) {
  (void)ctx;
  return add_given(phGraphNode, hGraph, dependencies, numDependencies, VGPU_NODE_MEMSET, memsetParams,
                   VGPU_MEMSET_PARAMS_V1);
}

int cuGraphAddHostNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies,
                       const void *nodeParams) {
  return add_given(phGraphNode, hGraph, dependencies, numDependencies, VGPU_NODE_HOST, nodeParams,
                   sizeof(struct vgpu_host_params));
}

int cuGraphAddEmptyNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies) {
  const struct vgpu_node_params params = {.type = VGPU_NODE_EMPTY};
  return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

int cuGraphAddChildGraphNode(void **phGraphNode, void *hGraph, const void **dependencies,
                             size_t numDependencies, void *childGraph) {
  const struct vgpu_node_params params = {.type = VGPU_NODE_GRAPH, .of.child.graph = childGraph};
  return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

int cuGraphAddEventRecordNode(void **phGraphNode, void *hGraph, const void **dependencies,
                              size_t numDependencies, struct vgpu_event *event) {
  const struct vgpu_node_params params = {.type = VGPU_NODE_RECORD, .of.event = event};
  return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

int cuGraphAddEventWaitNode(void **phGraphNode, void *hGraph, const void **dependencies,
                            size_t numDependencies, struct vgpu_event *event) {
  const struct vgpu_node_params params = {.type = VGPU_NODE_WAIT, .of.event = event};
  return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

/* ---- changing ------------------------------------------------------------ */

/* Of the graph's node, or (`in_exec`) of its image in an executable. */
static int set(bool in_exec, void *exec, void *hNode, const struct vgpu_node_params *params) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_work work;
  struct vgpu_node *node = vgpu_node_of_kind(driver, hNode, (enum vgpu_node_kind)params->type);
  result = node == NULL ? VGPU_CUDA_INVALID_VALUE : vgpu_work_make(driver, params, &work);
  if (result != VGPU_CUDA_SUCCESS) return vgpu_graph_leave(driver, result);
  if (in_exec) return vgpu_graph_leave(driver, vgpu_exec_set(driver, exec, node, &work));
  vgpu_work_free(&node->work);
  node->work = work;
  return vgpu_graph_leave(driver, VGPU_CUDA_SUCCESS);
}

static int set_given(bool in_exec, void *exec, void *hNode, enum vgpu_node_kind kind, const void *given,
                     size_t size) {
  struct vgpu_node_params params;
  int result = fill(&params, kind, given, size);
  return result == VGPU_CUDA_SUCCESS ? set(in_exec, exec, hNode, &params) : result;
}

int cuGraphKernelNodeSetParams(void *hNode, const void *nodeParams) {
  return set_given(false, NULL, hNode, VGPU_NODE_KERNEL, nodeParams, VGPU_KERNEL_PARAMS_V1);
}

int cuGraphKernelNodeSetParams_v2(void *hNode, const void *nodeParams) {
  return set_given(false, NULL, hNode, VGPU_NODE_KERNEL, nodeParams, sizeof(struct vgpu_kernel_params));
}

int cuGraphMemcpyNodeSetParams(void *hNode, const void *nodeParams) {
  return set_given(false, NULL, hNode, VGPU_NODE_MEMCPY, nodeParams, sizeof(struct vgpu_copy_params));
}

int cuGraphMemsetNodeSetParams(void *hNode, const void *nodeParams) {
  return set_given(false, NULL, hNode, VGPU_NODE_MEMSET, nodeParams, VGPU_MEMSET_PARAMS_V1);
}

int cuGraphHostNodeSetParams(void *hNode, const void *nodeParams) {
  return set_given(false, NULL, hNode, VGPU_NODE_HOST, nodeParams, sizeof(struct vgpu_host_params));
}

int cuGraphExecKernelNodeSetParams(void *hGraphExec, void *hNode, const void *nodeParams) {
  return set_given(true, hGraphExec, hNode, VGPU_NODE_KERNEL, nodeParams, VGPU_KERNEL_PARAMS_V1);
}

int cuGraphExecKernelNodeSetParams_v2(void *hGraphExec, void *hNode, const void *nodeParams) {
  return set_given(true, hGraphExec, hNode, VGPU_NODE_KERNEL, nodeParams, sizeof(struct vgpu_kernel_params));
}

int cuGraphExecMemcpyNodeSetParams(void *hGraphExec, void *hNode, const void *copyParams,
                                   struct vgpu_context *ctx) {
  (void)ctx;
  return set_given(true, hGraphExec, hNode, VGPU_NODE_MEMCPY, copyParams, sizeof(struct vgpu_copy_params));
}

int cuGraphExecMemsetNodeSetParams(void *hGraphExec, void *hNode, const void *memsetParams,
                                   struct vgpu_context *ctx) {
  (void)ctx;
  return set_given(true, hGraphExec, hNode, VGPU_NODE_MEMSET, memsetParams, VGPU_MEMSET_PARAMS_V1);
}

int cuGraphExecHostNodeSetParams(void *hGraphExec, void *hNode, const void *nodeParams) {
  return set_given(true, hGraphExec, hNode, VGPU_NODE_HOST, nodeParams, sizeof(struct vgpu_host_params));
}
