/* Conditional nodes: their conditions, which are kept at the host, and their bodies, which are graphs. */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/graph/graph.h"

enum { ASSIGN_DEFAULT = 1 };                           /* CU_GRAPH_COND_ASSIGN_DEFAULT */
enum { TYPE_IF = 0, TYPE_WHILE = 1, TYPE_SWITCH = 2 }; /* CUgraphConditionalNodeType */
enum { CONDITIONS_MAX = 1 << 16, BODIES_MAX = 1 << 12 };

/* Returns the graph that is launched: a body is a part of another graph. */
static const struct vgpu_graph *whole(const struct vgpu_graph *graph) {
  while (graph->outer != NULL) graph = graph->outer;
  return graph;
}

static struct vgpu_condition *find(const struct vgpu_graph *graph, uint64_t handle) {
  const struct vgpu_conditions *conditions = whole(graph)->conditions;
  for (size_t i = 0; conditions != NULL && i < conditions->count; i++) {
    if (conditions->list[i].handle == handle) return &conditions->list[i];
  }
  return NULL;
}

void vgpu_conditions_drop(struct vgpu_conditions *conditions) {
  if (conditions == NULL || --conditions->references > 0) return;
  const struct vgpu_send_graph_conditions_drop send = {.graph = conditions->graph};
  vgpu_cuda_post(VGPU_OP_graph_conditions_drop, &send, sizeof send, NULL, 0);
  free(conditions->list);
  free(conditions);
}

bool vgpu_conditions_take(struct vgpu_conditions *conditions) {
  if (conditions->used) return false;
  conditions->used = true;
  conditions->references++;
  return true;
}

void vgpu_conditions_give(struct vgpu_conditions *conditions) {
  if (conditions != NULL) conditions->used = false;
  vgpu_conditions_drop(conditions);
}

/* Makes room for one more condition of a graph. NULL: no memory. */
static struct vgpu_condition *room(struct vgpu_graph *graph) {
  struct vgpu_conditions *conditions = graph->conditions;
  if (conditions == NULL) {
    conditions = calloc(1, sizeof *conditions);
    if (conditions == NULL) return NULL;
    *conditions = (struct vgpu_conditions){.graph = graph->id, .references = 1};
    graph->conditions = conditions;
  }
  if (conditions->count == CONDITIONS_MAX) return NULL;
  struct vgpu_condition *list = realloc(conditions->list, (conditions->count + 1) * sizeof *list);
  if (list == NULL) return NULL;
  conditions->list = list;
  list[conditions->count] = (struct vgpu_condition){0};
  return &list[conditions->count];
}

int cuGraphConditionalHandleCreate(uint64_t *pHandle_out, void *hGraph, struct vgpu_context *ctx,
                                   uint32_t defaultLaunchValue, uint32_t flags) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (pHandle_out == NULL || graph == NULL || (flags & ~(uint32_t)ASSIGN_DEFAULT) != 0) {
    return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  }
  while (graph->outer != NULL) graph = graph->outer;
  if (graph->owned) return vgpu_graph_leave(driver, CUDA_ERROR_NOT_SUPPORTED); /* a child graph */
  struct vgpu_send_cuGraphConditionalHandleCreate send = {.value = defaultLaunchValue, .flags = flags};
  struct vgpu_reply_cuGraphConditionalHandleCreate reply = {0};
  result = vgpu_cuda_context_given(driver, ctx, &send.context);
  if (result != CUDA_SUCCESS) return vgpu_graph_leave(driver, result);
  struct vgpu_condition *made = room(graph);
  if (made == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_OUT_OF_MEMORY);
  send.graph = graph->conditions->graph;
  result = vgpu_cuda_call(VGPU_OP_cuGraphConditionalHandleCreate, &send, sizeof send, &reply, sizeof reply);
  if (result != CUDA_SUCCESS) return vgpu_graph_leave(driver, result);
  *made = (struct vgpu_condition){.handle = reply.handle, .context = send.context};
  graph->conditions->count++;
  *pHandle_out = reply.handle;
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

static bool size_fits(const struct vgpu_condition_params *params) {
  switch (params->type) {
    case TYPE_IF:
      return params->size == 1 || params->size == 2;
    case TYPE_WHILE:
      return params->size == 1;
    case TYPE_SWITCH:
      return params->size > 0;
    default:
      return false;
  }
}

int vgpu_work_condition(struct vgpu_driver *driver, const struct vgpu_graph *graph,
                        const struct vgpu_condition_params *params, struct vgpu_work *work) {
  *work = (struct vgpu_work){.kind = VGPU_NODE_CONDITIONAL};
  if (graph->owned && graph->outer == NULL) return CUDA_ERROR_NOT_SUPPORTED; /* a child graph */
  const struct vgpu_condition *condition = find(graph, params->handle);
  if (condition == NULL || condition->node != NULL || !size_fits(params)) return CUDA_ERROR_INVALID_VALUE;
  if (params->size > BODIES_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t context = 0;
  int result = vgpu_cuda_context_given(driver, params->context, &context);
  if (result != CUDA_SUCCESS) return result;
  if (context != condition->context) return CUDA_ERROR_INVALID_VALUE;
  work->given.condition = *params;
  work->given.condition.bodies = NULL;
  const struct vgpu_send_graph_condition send = {
      .context = context, .handle = params->handle, .kind = (uint32_t)params->type, .bodies = params->size};
  return vgpu_work_frame(work, VGPU_OP_graph_condition, &send, sizeof send, NULL, 0)
             ? CUDA_SUCCESS
             : CUDA_ERROR_OUT_OF_MEMORY;
}

int vgpu_condition_added(struct vgpu_driver *driver, struct vgpu_node *node) {
  uint32_t size = node->work.given.condition.size;
  node->bodies = calloc(size, sizeof(struct vgpu_graph *));
  if (node->bodies == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  for (uint32_t i = 0; i < size; i++) {
    node->bodies[i] = vgpu_graph_make(driver);
    if (node->bodies[i] == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    node->bodies[i]->owned = true;
    node->bodies[i]->outer = node->graph;
  }
  find(node->graph, node->work.given.condition.handle)->node = node;
  return CUDA_SUCCESS;
}

void vgpu_condition_removed(struct vgpu_driver *driver, struct vgpu_node *node) {
  struct vgpu_condition *condition = find(node->graph, node->work.given.condition.handle);
  if (condition != NULL && condition->node == node) condition->node = NULL;
  for (uint32_t i = 0; i < node->work.given.condition.size; i++) {
    if (node->bodies[i] != NULL) vgpu_graph_free(driver, node->bodies[i]);
  }
  free(node->bodies);
  node->bodies = NULL;
}

bool vgpu_graph_has_conditions(const struct vgpu_graph *graph) {
  for (size_t i = 0; i < graph->count; i++) {
    if (graph->nodes[i]->bodies != NULL) return true;
  }
  return false;
}

/*
 * Checks whether work may be in the body of a conditional node: only work that the host does, and that is the
 * same at each launch. A child graph in a body is checked when it is instantiated (vgpu_exec_list).
 */
int vgpu_condition_may(const struct vgpu_graph *graph, const struct vgpu_work *work) {
  if (graph->outer == NULL) return CUDA_SUCCESS;
  switch (work->kind) {
    case VGPU_NODE_KERNEL:
    case VGPU_NODE_MEMSET:
    case VGPU_NODE_MEMCPY:
    case VGPU_NODE_GRAPH:
    case VGPU_NODE_EMPTY:
    case VGPU_NODE_CONDITIONAL:
    case VGPU_NODE_BODY:
      return work->step <= VGPU_STEP_FRAME ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}
