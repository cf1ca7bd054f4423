/* Changing executable graphs. */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/graph_exec.h"

enum { GRAPH_EXEC_UPDATE_FAILURE = 910 };

/* CUgraphExecUpdateResult. */
enum {
  UPDATE_SUCCESS = 0,
  UPDATE_ERROR = 1,
  UPDATE_TOPOLOGY_CHANGED = 2,
  UPDATE_NODE_TYPE_CHANGED = 3,
  UPDATE_NOT_SUPPORTED = 6,
};

static bool same_bytes(const struct vgpu_work *a, const struct vgpu_work *b) {
  return a->body_size == b->body_size && a->bulk_size == b->bulk_size &&
         memcmp(a->bytes, b->bytes, (size_t)a->body_size + a->bulk_size) == 0;
}

/* Puts `work` in a node's place, at the host too; takes it over. With graph_lock held. */
static int replace(struct vgpu_exec *exec, struct vgpu_exec_node *node, struct vgpu_work *work) {
  int result = VGPU_CUDA_SUCCESS;
  if (work->step == VGPU_STEP_FRAME && !same_bytes(work, &node->work)) {
    size_t size = vgpu_exec_encoded_size(work);
    unsigned char *bulk = size > VGPU_BULK_MAX ? NULL : malloc(size);
    if (bulk == NULL) {
      vgpu_work_free(work);
      return VGPU_CUDA_OUT_OF_MEMORY;
    }
    vgpu_exec_encode(work, bulk);
    struct vgpu_send_graph_node_set send = {
        .exec = node->segment, .context = exec->context, .index = node->index};
    result = vgpu_cuda_post(VGPU_OP_graph_node_set, &send, sizeof send, bulk, (uint32_t)size);
    free(bulk);
  }
  vgpu_work_free(&node->work);
  node->work = *work;
  return result;
}

static int32_t compare(const struct vgpu_exec *exec, const struct vgpu_exec_node *nodes, size_t count,
                       size_t *where) {
  *where = 0;
  if (count != exec->count) return UPDATE_TOPOLOGY_CHANGED;
  for (size_t i = 0; i < count; i++) {
    const struct vgpu_exec_node *a = &exec->nodes[i], *b = &nodes[i];
    *where = i;
    if (a->work.kind != b->work.kind) return UPDATE_NODE_TYPE_CHANGED;
    if (a->before_count != b->before_count ||
        memcmp(a->before, b->before, a->before_count * sizeof *a->before) != 0) {
      return UPDATE_TOPOLOGY_CHANGED;
    }
    /* Where it is done decides how the list is cut. */
    if (a->work.step != b->work.step) return UPDATE_NOT_SUPPORTED;
  }
  return UPDATE_SUCCESS;
}

/* CUgraphExecUpdateResultInfo. */
struct update_info {
  int32_t result;
  void *error_node;
  void *error_from;
};

int cuGraphExecUpdate_v2(void *hGraphExec, void *hGraph, void *resultInfo) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (resultInfo == NULL) return VGPU_CUDA_INVALID_VALUE;
  struct update_info *info = resultInfo;
  *info = (struct update_info){.result = UPDATE_ERROR};
  pthread_mutex_lock(&driver->graph_lock);
  struct vgpu_exec *exec = vgpu_exec_find(driver, hGraphExec);
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (exec == NULL || graph == NULL) return vgpu_graph_leave(driver, VGPU_CUDA_INVALID_VALUE);
  struct vgpu_exec_node *nodes;
  size_t count, where = 0;
  result = vgpu_exec_list(graph, &nodes, &count);
  if (result == VGPU_CUDA_SUCCESS) {
    info->result = compare(exec, nodes, count, &where);
    if (info->result != UPDATE_SUCCESS) result = GRAPH_EXEC_UPDATE_FAILURE;
  }
  for (size_t i = 0; result == VGPU_CUDA_SUCCESS && i < count; i++) {
    struct vgpu_work work = nodes[i].work;
    nodes[i].work.bytes = NULL;
    result = replace(exec, &exec->nodes[i], &work);
  }
  if (nodes != NULL) vgpu_exec_free_list(nodes, count);
  return vgpu_graph_leave(driver, result);
}

int cuGraphExecUpdate(void *hGraphExec, void *hGraph, void **hErrorNode_out, int32_t *updateResult_out) {
  struct update_info info = {0};
  int result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
  if (hErrorNode_out != NULL) *hErrorNode_out = info.error_node;
  if (updateResult_out != NULL) *updateResult_out = info.result;
  return result;
}

int vgpu_exec_set(struct vgpu_driver *driver, void *hGraphExec, const struct vgpu_node *node,
                  struct vgpu_work *work) {
  struct vgpu_exec *exec = vgpu_exec_find(driver, hGraphExec);
  for (size_t i = 0; exec != NULL && i < exec->count; i++) {
    if (exec->nodes[i].origin != node->id) continue;
    if (exec->nodes[i].work.step != work->step || exec->nodes[i].work.kind != work->kind) break;
    return replace(exec, &exec->nodes[i], work);
  }
  vgpu_work_free(work);
  return VGPU_CUDA_INVALID_VALUE;
}
