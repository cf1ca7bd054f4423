/* The calls that add and change nodes. Each call converts its parameters to CUgraphNodeParams. */
#include <string.h>

#include "cuda_api.h"
#include "guest/cuda/graph/graph.h"

/* CUgraphChildGraphNodeOwnership */
enum { OWNERSHIP_CLONE = 0, OWNERSHIP_MOVE = 1 };

/* Copies a structure of the API, or its beginning, to the parameters of a node. */
static int fill(struct vgpu_node_params *params, enum vgpu_node_kind kind, const void *given, size_t size,
                struct vgpu_context *context) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (given == NULL) return CUDA_ERROR_INVALID_VALUE;
  *params = (struct vgpu_node_params){.type = kind};
  if (kind == VGPU_NODE_MEMCPY) memcpy(&params->of.copy.copy, given, size);
  else memcpy(params->of.bytes, given, size);
  if (kind == VGPU_NODE_MEMCPY) params->of.copy.context = context;
  if (kind == VGPU_NODE_MEMSET) params->of.memset.context = context;
  return CUDA_SUCCESS;
}

/* True if `graph` is `whole` or a part of it. */
static bool within(const struct vgpu_graph *graph, const struct vgpu_graph *whole) {
  if (graph == whole) return true;
  for (size_t i = 0; i < whole->count; i++) {
    if (whole->nodes[i]->child != NULL && within(graph, whole->nodes[i]->child)) return true;
  }
  return false;
}

/* Gives the graph for a child node: a copy of the program's graph, or that graph itself. */
static int take_child(struct vgpu_driver *driver, const struct vgpu_graph *graph,
                      const struct vgpu_child_params *params, struct vgpu_graph **child) {
  struct vgpu_graph *given = vgpu_graph_find(driver, params->graph);
  if (given == NULL || given == graph || given->owned || params->ownership < OWNERSHIP_CLONE ||
      params->ownership > OWNERSHIP_MOVE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  bool moved = params->ownership == OWNERSHIP_MOVE;
  if (moved && within(graph, given)) return CUDA_ERROR_INVALID_VALUE; /* a circle */
  if ((!moved && vgpu_graph_has_memory(given)) || vgpu_graph_has_conditions(given))
    return CUDA_ERROR_NOT_SUPPORTED;
  *child = moved ? given : vgpu_graph_clone(driver, given);
  if (*child == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  (*child)->owned = true;
  return CUDA_SUCCESS;
}

int vgpu_node_add(struct vgpu_driver *driver, struct vgpu_graph *graph, const struct vgpu_links *links,
                  struct vgpu_node_params *params, struct vgpu_node **made) {
  struct vgpu_work work;
  struct vgpu_graph *child = NULL;
  int result = vgpu_links_check(driver, graph, links);
  for (size_t i = 0; result == CUDA_SUCCESS && links->data != NULL && i < links->count; i++) {
    result = vgpu_edge_check(links->data[i], links->nodes[i]->work.kind, (enum vgpu_node_kind)params->type);
  }
  if (result == CUDA_SUCCESS) result = vgpu_graph_memory_may(driver, graph, params);
  if (result == CUDA_SUCCESS) {
    result = params->type == VGPU_NODE_CONDITIONAL
                 ? vgpu_work_condition(driver, graph, &params->of.condition, &work)
                 : vgpu_work_make(driver, params, &work);
  }
  if (result != CUDA_SUCCESS) return result;
  result = vgpu_condition_may(graph, &work);
  if (result != CUDA_SUCCESS) {
    vgpu_work_free(&work);
    return result;
  }
  if (params->type == VGPU_NODE_GRAPH) result = take_child(driver, graph, &params->of.child, &child);
  if (result != CUDA_SUCCESS) return result; /* the work of a child graph has nothing to free */
  *made = vgpu_graph_add(driver, graph, links, &work);
  if (*made == NULL) {
    if (child != NULL && params->of.child.ownership == OWNERSHIP_CLONE) vgpu_graph_free(driver, child);
    else if (child != NULL) child->owned = false;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  (*made)->child = child;
  if (params->type == VGPU_NODE_CONDITIONAL) {
    result = vgpu_condition_added(driver, *made);
    if (result != CUDA_SUCCESS) {
      vgpu_graph_remove(driver, *made);
      return result;
    }
    params->of.condition.bodies = (*made)->bodies;
  }
  vgpu_graph_memory_added(*made);
  if (params->type == VGPU_NODE_ALLOCATE) params->of.allocation.address = work.device;
  return CUDA_SUCCESS;
}

static int add_linked(void **made, void *hGraph, const struct vgpu_links *links,
                      struct vgpu_node_params *params) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_node *node = NULL;
  result = made == NULL ? CUDA_ERROR_INVALID_VALUE
                        : vgpu_node_add(driver, vgpu_graph_find(driver, hGraph), links, params, &node);
  if (result == CUDA_SUCCESS) *made = node;
  return vgpu_graph_leave(driver, result);
}

static int add(void **made, void *hGraph, const void **dependencies, size_t count,
               struct vgpu_node_params *params) {
  const struct vgpu_links links = {.nodes = (struct vgpu_node **)(uintptr_t)dependencies, .count = count};
  return add_linked(made, hGraph, &links, params);
}

static int add_given(void **made, void *hGraph, const void **dependencies, size_t count,
                     enum vgpu_node_kind kind, const void *given, size_t size, struct vgpu_context *context) {
  struct vgpu_node_params params;
  int result = fill(&params, kind, given, size, context);
  return result == CUDA_SUCCESS ? add(made, hGraph, dependencies, count, &params) : result;
}

int cuGraphAddKernelNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies,
                         const void *nodeParams) {
  return add_given(phGraphNode, hGraph, dependencies, numDependencies, VGPU_NODE_KERNEL, nodeParams,
                   VGPU_KERNEL_PARAMS_V1, NULL);
}

int cuGraphAddKernelNode_v2(void **phGraphNode, void *hGraph, const void **dependencies,
                            size_t numDependencies, const void *nodeParams) {
  return add_given(phGraphNode, hGraph, dependencies, numDependencies, VGPU_NODE_KERNEL, nodeParams,
                   sizeof(struct vgpu_kernel_params), NULL);
}

int cuGraphAddMemcpyNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies,
                         const void *copyParams, struct vgpu_context *ctx) {
  return add_given(phGraphNode, hGraph, dependencies, numDependencies, VGPU_NODE_MEMCPY, copyParams,
                   sizeof(struct vgpu_box), ctx);
}

int cuGraphAddMemsetNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies,
                         const void *memsetParams, struct vgpu_context *ctx) {
  return add_given(phGraphNode, hGraph, dependencies, numDependencies, VGPU_NODE_MEMSET, memsetParams,
                   VGPU_MEMSET_PARAMS_V1, ctx);
}

int cuGraphAddHostNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies,
                       const void *nodeParams) {
  return add_given(phGraphNode, hGraph, dependencies, numDependencies, VGPU_NODE_HOST, nodeParams,
                   VGPU_HOST_PARAMS_V1, NULL);
}

int cuGraphAddEmptyNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies) {
  struct vgpu_node_params params = {.type = VGPU_NODE_EMPTY};
  return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

int cuGraphAddChildGraphNode(void **phGraphNode, void *hGraph, const void **dependencies,
                             size_t numDependencies, void *childGraph) {
  struct vgpu_node_params params = {.type = VGPU_NODE_GRAPH, .of.child.graph = childGraph};
  return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

int cuGraphAddBatchMemOpNode(void **phGraphNode, void *hGraph, const void **dependencies,
                             size_t numDependencies, const void *nodeParams) {
  return add_given(phGraphNode, hGraph, dependencies, numDependencies, VGPU_NODE_MEMORY_OPS, nodeParams,
                   sizeof(struct vgpu_memory_ops_params), NULL);
}

int cuGraphAddEventRecordNode(void **phGraphNode, void *hGraph, const void **dependencies,
                              size_t numDependencies, struct vgpu_event *event) {
  struct vgpu_node_params params = {.type = VGPU_NODE_RECORD, .of.event = event};
  return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

int cuGraphAddEventWaitNode(void **phGraphNode, void *hGraph, const void **dependencies,
                            size_t numDependencies, struct vgpu_event *event) {
  struct vgpu_node_params params = {.type = VGPU_NODE_WAIT, .of.event = event};
  return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

int cuGraphAddMemAllocNode(void **phGraphNode, void *hGraph, const void **dependencies,
                           size_t numDependencies, void *nodeParams) {
  struct vgpu_node_params params;
  int result = fill(&params, VGPU_NODE_ALLOCATE, nodeParams, sizeof params.of.allocation, NULL);
  if (result == CUDA_SUCCESS) result = add(phGraphNode, hGraph, dependencies, numDependencies, &params);
  if (result != CUDA_SUCCESS) return result;
  ((struct vgpu_allocation_params *)nodeParams)->address = params.of.allocation.address;
  return CUDA_SUCCESS;
}

int cuGraphAddMemFreeNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies,
                          uint64_t dptr) {
  struct vgpu_node_params params = {.type = VGPU_NODE_FREE, .of.freed = dptr};
  return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

/* The parameters of a graph's node, or (`exec`) of the same node in an executable. */
struct target {
  bool in_exec;
  void *exec;
  void *node;
};

/* Replaces the graph of a child node. Handles of nodes of the old graph become invalid. */
static int set_child(struct vgpu_driver *driver, struct vgpu_node *node,
                     const struct vgpu_child_params *params) {
  struct vgpu_graph *child = NULL;
  int result = take_child(driver, node->graph, params, &child);
  if (result != CUDA_SUCCESS) return result;
  vgpu_graph_free(driver, node->child);
  node->child = child;
  return CUDA_SUCCESS;
}

static int set_locked(struct vgpu_driver *driver, const struct target *target,
                      const struct vgpu_node_params *params) {
  struct vgpu_work work;
  struct vgpu_node *node = vgpu_node_of_kind(driver, target->node, (enum vgpu_node_kind)params->type);
  if (node == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (params->type == VGPU_NODE_ALLOCATE || params->type == VGPU_NODE_FREE ||
      params->type == VGPU_NODE_CONDITIONAL) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (params->type == VGPU_NODE_GRAPH) {
    return target->in_exec ? vgpu_exec_set_child(driver, target->exec, node, params->of.child.graph)
                           : set_child(driver, node, &params->of.child);
  }
  int result = vgpu_work_make(driver, params, &work);
  if (result != CUDA_SUCCESS) return result;
  if (target->in_exec) return vgpu_exec_set(driver, target->exec, node, &work);
  result = vgpu_condition_may(node->graph, &work);
  if (result == CUDA_SUCCESS) result = vgpu_work_keep_attributes(&work, &node->work);
  if (result == CUDA_SUCCESS) {
    vgpu_work_free(&node->work);
    node->work = work;
  } else {
    vgpu_work_free(&work);
  }
  return result;
}

static int set(const struct target *target, const struct vgpu_node_params *params) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (target->in_exec && params->type == VGPU_NODE_KERNEL) vgpu_work_load_kernel(driver, &params->of.kernel);
  if (target->in_exec && params->type == VGPU_NODE_GRAPH)
    vgpu_graph_load_kernels(driver, params->of.child.graph);
  pthread_mutex_lock(&driver->graph_lock);
  return vgpu_graph_leave(driver, set_locked(driver, target, params));
}

static int set_given(const struct target *target, enum vgpu_node_kind kind, const void *given, size_t size,
                     struct vgpu_context *context) {
  struct vgpu_node_params params;
  int result = fill(&params, kind, given, size, context);
  return result == CUDA_SUCCESS ? set(target, &params) : result;
}

static int set_node(void *node, enum vgpu_node_kind kind, const void *given, size_t size) {
  return set_given(&(struct target){.node = node}, kind, given, size, NULL);
}

static int set_exec(void *exec, void *node, enum vgpu_node_kind kind, const void *given, size_t size,
                    struct vgpu_context *context) {
  return set_given(&(struct target){.in_exec = true, .exec = exec, .node = node}, kind, given, size, context);
}

int cuGraphKernelNodeSetParams(void *hNode, const void *nodeParams) {
  return set_node(hNode, VGPU_NODE_KERNEL, nodeParams, VGPU_KERNEL_PARAMS_V1);
}

int cuGraphKernelNodeSetParams_v2(void *hNode, const void *nodeParams) {
  return set_node(hNode, VGPU_NODE_KERNEL, nodeParams, sizeof(struct vgpu_kernel_params));
}

int cuGraphMemcpyNodeSetParams(void *hNode, const void *nodeParams) {
  return set_node(hNode, VGPU_NODE_MEMCPY, nodeParams, sizeof(struct vgpu_box));
}

int cuGraphMemsetNodeSetParams(void *hNode, const void *nodeParams) {
  return set_node(hNode, VGPU_NODE_MEMSET, nodeParams, VGPU_MEMSET_PARAMS_V1);
}

int cuGraphHostNodeSetParams(void *hNode, const void *nodeParams) {
  return set_node(hNode, VGPU_NODE_HOST, nodeParams, VGPU_HOST_PARAMS_V1);
}

int cuGraphEventRecordNodeSetEvent(void *hNode, struct vgpu_event *event) {
  return set_node(hNode, VGPU_NODE_RECORD, &event, sizeof event);
}

int cuGraphEventWaitNodeSetEvent(void *hNode, struct vgpu_event *event) {
  return set_node(hNode, VGPU_NODE_WAIT, &event, sizeof event);
}

int cuGraphBatchMemOpNodeSetParams(void *hNode, const void *nodeParams) {
  return set_node(hNode, VGPU_NODE_MEMORY_OPS, nodeParams, sizeof(struct vgpu_memory_ops_params));
}

int cuGraphExecKernelNodeSetParams(void *hGraphExec, void *hNode, const void *nodeParams) {
  return set_exec(hGraphExec, hNode, VGPU_NODE_KERNEL, nodeParams, VGPU_KERNEL_PARAMS_V1, NULL);
}

int cuGraphExecKernelNodeSetParams_v2(void *hGraphExec, void *hNode, const void *nodeParams) {
  return set_exec(hGraphExec, hNode, VGPU_NODE_KERNEL, nodeParams, sizeof(struct vgpu_kernel_params), NULL);
}

int cuGraphExecMemcpyNodeSetParams(void *hGraphExec, void *hNode, const void *copyParams,
                                   struct vgpu_context *ctx) {
  return set_exec(hGraphExec, hNode, VGPU_NODE_MEMCPY, copyParams, sizeof(struct vgpu_box), ctx);
}

int cuGraphExecMemsetNodeSetParams(void *hGraphExec, void *hNode, const void *memsetParams,
                                   struct vgpu_context *ctx) {
  return set_exec(hGraphExec, hNode, VGPU_NODE_MEMSET, memsetParams, VGPU_MEMSET_PARAMS_V1, ctx);
}

int cuGraphExecHostNodeSetParams(void *hGraphExec, void *hNode, const void *nodeParams) {
  return set_exec(hGraphExec, hNode, VGPU_NODE_HOST, nodeParams, VGPU_HOST_PARAMS_V1, NULL);
}

int cuGraphExecEventRecordNodeSetEvent(void *hGraphExec, void *hNode, struct vgpu_event *event) {
  return set_exec(hGraphExec, hNode, VGPU_NODE_RECORD, &event, sizeof event, NULL);
}

int cuGraphExecEventWaitNodeSetEvent(void *hGraphExec, void *hNode, struct vgpu_event *event) {
  return set_exec(hGraphExec, hNode, VGPU_NODE_WAIT, &event, sizeof event, NULL);
}

int cuGraphExecBatchMemOpNodeSetParams(void *hGraphExec, void *hNode, const void *nodeParams) {
  return set_exec(hGraphExec, hNode, VGPU_NODE_MEMORY_OPS, nodeParams, sizeof(struct vgpu_memory_ops_params),
                  NULL);
}

int cuGraphExecChildGraphNodeSetParams(void *hGraphExec, void *hNode, void *childGraph) {
  return set_exec(hGraphExec, hNode, VGPU_NODE_GRAPH, &childGraph, sizeof childGraph, NULL);
}

/* The size of the parameters of a node type, in bytes. All bytes behind them must be zero. */
static size_t params_size(int32_t type) {
  switch (type) {
    case VGPU_NODE_KERNEL:
      return sizeof(struct vgpu_kernel_params);
    case VGPU_NODE_MEMCPY:
      return sizeof(struct vgpu_copy_node_params);
    case VGPU_NODE_MEMSET:
      return sizeof(struct vgpu_memset_params);
    case VGPU_NODE_HOST:
      return sizeof(struct vgpu_host_params);
    case VGPU_NODE_GRAPH:
      return sizeof(struct vgpu_child_params);
    case VGPU_NODE_EMPTY:
      return 0;
    case VGPU_NODE_WAIT:
    case VGPU_NODE_RECORD:
      return sizeof(struct vgpu_event *);
    case VGPU_NODE_ALLOCATE:
      return sizeof(struct vgpu_allocation_params);
    case VGPU_NODE_FREE:
      return sizeof(uint64_t);
    case VGPU_NODE_MEMORY_OPS:
      return sizeof(struct vgpu_memory_ops_params);
    case VGPU_NODE_CONDITIONAL:
      return sizeof(struct vgpu_condition_params);
    default:
      return sizeof(((struct vgpu_node_params *)0)->of);
  }
}

static int check_params(const struct vgpu_node_params *params) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  bool clean = params->reserved_too == 0;
  for (size_t i = 0; i < 3; i++) clean = clean && params->reserved[i] == 0;
  for (size_t i = params_size(params->type); i < sizeof params->of; i++)
    clean = clean && params->of.bytes[i] == 0;
  return clean ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuGraphAddNode_v2(void **phGraphNode, void *hGraph, const void **dependencies, const void *dependencyData,
                      size_t numDependencies, void *nodeParams) {
  int result = check_params(nodeParams);
  const struct vgpu_links links = {.nodes = (struct vgpu_node **)(uintptr_t)dependencies,
                                   .data = (uint64_t *)(uintptr_t)dependencyData,
                                   .count = numDependencies};
  return result == CUDA_SUCCESS ? add_linked(phGraphNode, hGraph, &links, nodeParams) : result;
}

/* Since 13.4 the context of a kernel node's function and the context in its parameters must belong together.
 */
static int check_place(const struct vgpu_node_params *params) {
  int result = check_params(params);
  if (result != CUDA_SUCCESS || params->type != VGPU_NODE_KERNEL || params->of.kernel.function == NULL ||
      params->of.kernel.context == NULL)
    return result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  const struct vgpu_callable *callable = vgpu_callable_find(driver, params->of.kernel.function);
  if (callable == NULL) return CUDA_ERROR_INVALID_HANDLE;
  uint64_t number;
  result = vgpu_cuda_context_given(driver, params->of.kernel.context, &number);
  if (result != CUDA_SUCCESS || callable->module == NULL) return result;
  pthread_mutex_lock(&driver->lock);
  bool same = vgpu_cuda_owner_of(params->of.kernel.context) == callable->module->context;
  pthread_mutex_unlock(&driver->lock);
  return same ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

int cuGraphAddNode_v3(void **phGraphNode, void *hGraph, const void **dependencies, const void *dependencyData,
                      size_t numDependencies, void *nodeParams) {
  int result = check_place(nodeParams);
  return result == CUDA_SUCCESS ? cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, dependencyData,
                                                    numDependencies, nodeParams)
                                : result;
}

int cuGraphAddNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies,
                   void *nodeParams) {
  return cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, NULL, numDependencies, nodeParams);
}

int cuGraphNodeSetParams(void *hNode, void *nodeParams) {
  int result = check_params(nodeParams);
  return result == CUDA_SUCCESS ? set(&(struct target){.node = hNode}, nodeParams) : result;
}

int cuGraphNodeSetParams_v2(void *hNode, void *nodeParams) {
  int result = check_place(nodeParams);
  return result == CUDA_SUCCESS ? cuGraphNodeSetParams(hNode, nodeParams) : result;
}

int cuGraphExecNodeSetParams(void *hGraphExec, void *hNode, void *nodeParams) {
  int result = check_params(nodeParams);
  const struct target target = {.in_exec = true, .exec = hGraphExec, .node = hNode};
  return result == CUDA_SUCCESS ? set(&target, nodeParams) : result;
}
