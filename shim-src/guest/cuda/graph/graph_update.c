#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/graph/graph_exec.h"
#include "guest/cuda/module/launch.h"

enum { GRAPH_EXEC_UPDATE_FAILURE = 910 };

/* CUgraphExecUpdateResult. */
enum {
  UPDATE_SUCCESS = 0,
  UPDATE_ERROR = 1,
  UPDATE_TOPOLOGY_CHANGED = 2,
  UPDATE_NODE_TYPE_CHANGED = 3,
  UPDATE_PARAMETERS_CHANGED = 5,
  UPDATE_NOT_SUPPORTED = 6,
  UPDATE_FUNCTION_CHANGED = 7,
  UPDATE_ATTRIBUTES_CHANGED = 8,
};

/* CUgraphExecUpdateResultInfo. */
struct update_info {
  int32_t result;
  void *error_node;
  void *error_from;
};

static bool same_frames(const struct vgpu_work *a, const struct vgpu_work *b) {
  return a->opcode == b->opcode && a->frames == b->frames && a->body_size == b->body_size &&
         a->bulk_size == b->bulk_size && memcmp(a->bytes, b->bytes, vgpu_work_frame_bytes(a)) == 0;
}

/* Replaces a node's frames at the host. NULL: an empty frame, for a disabled node. */
static int send_frames(struct vgpu_exec *exec, const struct vgpu_exec_node *node,
                       const struct vgpu_work *work) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (!vgpu_exec_lives(driver, exec)) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_send_graph_node_set send = {.exec = node->segment, .context = exec->context};
  size_t size = work == NULL ? 0 : vgpu_exec_encoded_size(work) / work->frames;
  unsigned char *bulk = NULL;
  if (work != NULL) {
    bulk = size > VGPU_BULK_MAX ? NULL : malloc(vgpu_exec_encoded_size(work));
    if (bulk == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    vgpu_exec_encode(work, bulk);
  }
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < node->work.frames; i++) {
    send.index = node->index + i;
    result = vgpu_cuda_post(VGPU_OP_graph_node_set, &send, sizeof send, bulk == NULL ? NULL : bulk + i * size,
                            (uint32_t)size);
  }
  exec->changed = exec->conditions != NULL;
  free(bulk);
  return result;
}

/*
 * Replaces a node's work with `work`, also at the host, and takes `work` over. The caller holds graph_lock.
 */
static int replace(struct vgpu_exec *exec, struct vgpu_exec_node *node, struct vgpu_work *work) {
  int result = CUDA_SUCCESS;
  if (node->segment != 0 && node->enabled && !same_frames(work, &node->work)) {
    result = send_frames(exec, node, work);
  }
  if (result != CUDA_SUCCESS) {
    vgpu_work_free(work);
    return result;
  }
  vgpu_work_free(&node->work);
  node->work = *work;
  return CUDA_SUCCESS;
}

/* Compares all but the handle, which differs between two graphs. */
static bool same_condition(const struct vgpu_work *a, const struct vgpu_work *b) {
  return a->given.condition.type == b->given.condition.type &&
         a->given.condition.size == b->given.condition.size;
}

/* Compares all but the address, which differs between two graphs. */
static bool same_allocation(const struct vgpu_work *a, const struct vgpu_work *b) {
  return a->given.allocation.bytes == b->given.allocation.bytes &&
         a->given.allocation.location == b->given.allocation.location && a->kept_size == b->kept_size &&
         memcmp(a->bytes, b->bytes, a->kept_size) == 0;
}

/*
 * Checks whether new work may replace a node's work. The kind of its frames at the host must stay the same.
 */
static int32_t compare_work(const struct vgpu_work *old, const struct vgpu_work *new) {
  if (old->kind != new->kind) return UPDATE_NODE_TYPE_CHANGED;
  /*
   * The place where work is done decides how the list is cut into segments, and each frame has its place
   * there.
   */
  if (old->step != new->step || old->frames != new->frames) return UPDATE_PARAMETERS_CHANGED;
  if (old->kind == VGPU_NODE_ALLOCATE && !same_allocation(old, new)) return UPDATE_NOT_SUPPORTED;
  if (old->kind == VGPU_NODE_MEMORY_OPS && !vgpu_memory_ops_alike(old, new)) return UPDATE_PARAMETERS_CHANGED;
  if (old->kind == VGPU_NODE_CONDITIONAL && !same_condition(old, new)) return UPDATE_PARAMETERS_CHANGED;
  if (old->kind == VGPU_NODE_BODY && !same_frames(old, new)) return UPDATE_TOPOLOGY_CHANGED;
  if (old->kind == VGPU_NODE_KERNEL && !vgpu_work_same_context(old, new)) return UPDATE_FUNCTION_CHANGED;
  if (old->kind == VGPU_NODE_KERNEL && vgpu_work_cooperative(old) != vgpu_work_cooperative(new)) {
    return UPDATE_ATTRIBUTES_CHANGED;
  }
  return UPDATE_SUCCESS;
}

/* Keeps the split of the list into segments. */
static void keep_whole(const struct vgpu_work *old, struct vgpu_work *new) {
  struct vgpu_send_graph_values before, now;
  memcpy(&before, old->bytes, sizeof before);
  memcpy(&now, new->bytes, sizeof now);
  now.whole = before.whole;
  memcpy(new->bytes, &now, sizeof now);
}

/* Compares a list with as many of the executable's nodes, from `base` on. Places in the list count from 0. */
static int32_t compare(const struct vgpu_exec *exec, size_t base, struct vgpu_exec_node *nodes, size_t count,
                       struct update_info *info) {
  for (size_t i = 0; i < count; i++) {
    struct vgpu_exec_node *a = &exec->nodes[base + i], *b = &nodes[i];
    if (a->work.kind == VGPU_NODE_VALUES && b->work.kind == VGPU_NODE_VALUES) keep_whole(&a->work, &b->work);
    info->error_node = b->node;
    if (a->before_count != b->before_count || a->children != b->children) return UPDATE_TOPOLOGY_CHANGED;
    for (size_t j = 0; j < a->before_count; j++) {
      if (a->before[j] == base + b->before[j]) continue;
      info->error_from = nodes[b->before[j]].node;
      return UPDATE_TOPOLOGY_CHANGED;
    }
    int32_t result = compare_work(&a->work, &b->work);
    if (result != UPDATE_SUCCESS) return result;
  }
  info->error_node = NULL;
  return UPDATE_SUCCESS;
}

/* Replaces the `span` nodes from `base` on by those of a graph: all of them or none. */
static int update(struct vgpu_exec *exec, size_t base, size_t span, struct vgpu_graph *graph,
                  struct update_info *info) {
  struct vgpu_exec_node *nodes;
  size_t count;
  int result = vgpu_exec_list(graph, &nodes, &count);
  if (result == CUDA_SUCCESS) {
    info->result = count != span ? UPDATE_TOPOLOGY_CHANGED : compare(exec, base, nodes, count, info);
    if (info->result != UPDATE_SUCCESS) result = GRAPH_EXEC_UPDATE_FAILURE;
  }
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
    struct vgpu_work work = nodes[i].work;
    nodes[i].work = (struct vgpu_work){0};
    result = replace(exec, &exec->nodes[base + i], &work);
  }
  if (nodes != NULL) vgpu_exec_free_list(nodes, count);
  return result;
}

/* False if another executable uses the conditions or the memory of the graph. */
static bool is_free(const struct vgpu_exec *exec, const struct vgpu_graph *graph) {
  const bool own = exec->source == graph && exec->source_id == graph->id;
  if (exec->has_memory && !own && graph->instances > 0) return false;
  return exec->conditions == NULL || graph->conditions == NULL || graph->conditions == exec->conditions ||
         !graph->conditions->used;
}

int cuGraphExecUpdate_v2(void *hGraphExec, void *hGraph, void *resultInfo) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (resultInfo == NULL) return CUDA_ERROR_INVALID_VALUE;
  vgpu_graph_load_kernels(driver, hGraph);
  pthread_mutex_lock(&driver->graph_lock);
  struct update_info *info = resultInfo;
  *info = (struct update_info){.result = UPDATE_ERROR};
  struct vgpu_exec *exec = vgpu_exec_find(driver, hGraphExec);
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  /* A body of a conditional node is not a graph of its own: its conditions belong to the whole graph. */
  if (exec == NULL || graph == NULL || graph->outer != NULL)
    return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  if (!is_free(exec, graph)) {
    info->result = UPDATE_NOT_SUPPORTED;
    return vgpu_graph_leave(driver, GRAPH_EXEC_UPDATE_FAILURE);
  }
  struct vgpu_holds holds = {0}, before = exec->holds;
  result =
      vgpu_holds_take(&holds, graph) ? update(exec, 0, exec->count, graph, info) : CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) {
    exec->holds = holds;
    if (exec->has_memory) vgpu_exec_belongs(driver, exec, graph);
    if (exec->conditions != NULL && graph->conditions != exec->conditions) {
      vgpu_conditions_give(exec->conditions);
      exec->conditions = vgpu_conditions_take(graph->conditions) ? graph->conditions : NULL;
    }
    if (exec->launched) vgpu_holds_release_after(driver, &before, exec->context);
    else vgpu_holds_release(driver, &before);
  } else {
    vgpu_holds_release(driver, &holds);
  }
  vgpu_graph_leave(driver, result);
  if (exec->has_memory) vgpu_graph_memory_sweep(driver);
  return result;
}

int cuGraphExecUpdate(void *hGraphExec, void *hGraph, void **hErrorNode_out, int32_t *updateResult_out) {
  struct update_info info = {0};
  int result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
  if (hErrorNode_out != NULL) *hErrorNode_out = info.error_node;
  if (updateResult_out != NULL) *updateResult_out = info.result;
  return result;
}

static struct vgpu_exec_node *find_node(struct vgpu_exec *exec, const struct vgpu_node *node) {
  for (size_t i = 0; exec != NULL && node != NULL && i < exec->count; i++) {
    if (exec->nodes[i].origin == node->id) return &exec->nodes[i];
  }
  return NULL;
}

int vgpu_exec_set(struct vgpu_driver *driver, void *hGraphExec, const struct vgpu_node *node,
                  struct vgpu_work *work) {
  struct vgpu_exec *exec = vgpu_exec_find(driver, hGraphExec);
  struct vgpu_exec_node *found = find_node(exec, node);
  int result = found == NULL ? CUDA_ERROR_INVALID_VALUE : vgpu_work_keep_attributes(work, &found->work);
  if (result == CUDA_SUCCESS && compare_work(&found->work, work) != UPDATE_SUCCESS) {
    result = CUDA_ERROR_INVALID_VALUE;
  }
  if (result == CUDA_SUCCESS) return replace(exec, found, work);
  vgpu_work_free(work);
  return result;
}

int vgpu_exec_set_child(struct vgpu_driver *driver, void *hGraphExec, const struct vgpu_node *node,
                        const void *childGraph) {
  struct vgpu_exec *exec = vgpu_exec_find(driver, hGraphExec);
  const struct vgpu_exec_node *found = find_node(exec, node);
  struct vgpu_graph *graph = vgpu_graph_find(driver, childGraph);
  if (found == NULL || graph == NULL || graph->outer != NULL || vgpu_graph_has_memory(graph))
    return CUDA_ERROR_INVALID_VALUE;
  struct update_info info = {0};
  size_t place = (size_t)(found - exec->nodes);
  int result = update(exec, place - found->children, found->children, graph, &info);
  return result == GRAPH_EXEC_UPDATE_FAILURE ? CUDA_ERROR_INVALID_VALUE : result;
}

/* Only nodes that do work can be disabled: kernels, fills and copies. */
static struct vgpu_exec_node *find_switched(struct vgpu_driver *driver, void *hGraphExec, const void *hNode) {
  struct vgpu_exec_node *found = find_node(vgpu_exec_find(driver, hGraphExec), vgpu_node_find(driver, hNode));
  return found != NULL && found->work.kind <= VGPU_NODE_MEMSET ? found : NULL;
}

int cuGraphNodeSetEnabled(void *hGraphExec, void *hNode, uint32_t isEnabled) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_exec_node *found = find_switched(driver, hGraphExec, hNode);
  if (found == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  bool enabled = isEnabled != 0;
  if (found->segment != 0 && found->enabled != enabled) {
    result = send_frames(hGraphExec, found, enabled ? &found->work : NULL);
  }
  if (result == CUDA_SUCCESS) found->enabled = enabled;
  return vgpu_graph_leave(driver, result);
}

int cuGraphNodeGetEnabled(void *hGraphExec, void *hNode, uint32_t *isEnabled) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_exec_node *found = find_switched(driver, hGraphExec, hNode);
  if (found == NULL || isEnabled == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  *isEnabled = found->enabled;
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}
