/*
 * Graphs with conditional nodes. The driver's condition handles belong to a graph of the driver, so the
 * guest's graph has such a graph here from its first handle on. The graph gets its nodes when the guest
 * instantiates: the frames run on a stream that captures into the graph, and the bodies of a condition on a
 * stream that captures into the body.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_handlers.h"
#include "host/backend/common/graph.h"
#include "host/backend/cuda/graph.h"
#include "host/backend/cuda/session.h"

#define NON_BLOCKING 1u
#define RELAXED 2
#define REPLACE 1u /* CU_STREAM_SET_CAPTURE_DEPENDENCIES */
#define CONDITIONAL 13

struct vgpu_cuda_condition {
  struct vgpu_cuda_condition *next;
  uint64_t handle; /* the driver's */
};

struct vgpu_cuda_shell {
  struct vgpu_cuda_shell *next;
  uint64_t number;
  void *graph;
  void *exec; /* the last executable that was made of it; NULL: none */
  struct vgpu_cuda_condition *conditions;
};

/* CUgraphNodeParams, of a conditional node. */
struct node_params {
  int32_t type;
  int32_t reserved[3];
  uint64_t handle;
  int32_t kind;
  uint32_t size;
  void **bodies;
  void *context;
  unsigned char unused[200];
  int64_t reserved_too;
};
_Static_assert(sizeof(struct node_params) == 256, "CUgraphNodeParams");

static struct vgpu_cuda_shell *find(const struct vgpu_cuda *cuda, uint64_t number) {
  struct vgpu_cuda_shell *shell = cuda->shells;
  while (shell != NULL && shell->number != number) shell = shell->next;
  return shell;
}

/* Conditions count as handles: the driver keeps memory for each until its graph is destroyed. */
static bool has_room(const struct vgpu_worker *worker, const struct vgpu_cuda *cuda) {
  return worker->handles.count + cuda->condition_count < worker->limits->session_handles;
}

static int32_t make(struct vgpu_cuda *cuda, uint64_t number, struct vgpu_cuda_shell **made) {
  struct vgpu_cuda_shell *shell = calloc(1, sizeof *shell);
  if (shell == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  int32_t result = VGPU_DRIVER(&cuda->api, cuGraphCreate, &shell->graph, 0);
  if (result != CUDA_SUCCESS) {
    free(shell);
    return result;
  }
  shell->number = number;
  shell->next = cuda->shells;
  cuda->shells = shell;
  *made = shell;
  return CUDA_SUCCESS;
}

/* Handles come from the guest. The driver gets only handles that it made for this graph. */
static bool has_condition(const struct vgpu_cuda_shell *shell, uint64_t handle) {
  const struct vgpu_cuda_condition *condition = shell->conditions;
  while (condition != NULL && condition->handle != handle) condition = condition->next;
  return condition != NULL;
}

static int32_t end_shell(struct vgpu_cuda *cuda, uint64_t number) {
  struct vgpu_cuda_shell **link = &cuda->shells;
  while (*link != NULL && (*link)->number != number) link = &(*link)->next;
  struct vgpu_cuda_shell *shell = *link;
  /* If the first handle failed, nothing was made, and an error here would be reported to a later call. */
  if (shell == NULL) return CUDA_SUCCESS;
  *link = shell->next;
  while (shell->conditions != NULL) {
    struct vgpu_cuda_condition *condition = shell->conditions;
    shell->conditions = condition->next;
    cuda->condition_count--;
    free(condition);
  }
  int32_t result = VGPU_DRIVER(&cuda->api, cuGraphDestroy, shell->graph);
  free(shell);
  return result;
}

int32_t vgpu_cuda_cuGraphConditionalHandleCreate(struct vgpu_worker *worker,
                                                 const struct vgpu_send_cuGraphConditionalHandleCreate *send,
                                                 struct vgpu_reply_cuGraphConditionalHandleCreate *reply) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (!has_room(worker, cuda)) return CUDA_ERROR_OUT_OF_MEMORY;
  struct vgpu_cuda_condition *condition = calloc(1, sizeof *condition);
  if (condition == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  struct vgpu_cuda_shell *shell = find(cuda, send->graph);
  if (shell == NULL) result = make(cuda, send->graph, &shell);
  /* NULL means the context that was just entered. */
  if (result == CUDA_SUCCESS)
    result = VGPU_DRIVER(&cuda->api, cuGraphConditionalHandleCreate, &condition->handle, shell->graph, NULL,
                         send->value, send->flags);
  if (result != CUDA_SUCCESS) {
    if (shell != NULL && shell->conditions == NULL) end_shell(cuda, send->graph);
    free(condition);
    return result;
  }
  condition->next = shell->conditions;
  shell->conditions = condition;
  cuda->condition_count++;
  reply->handle = condition->handle;
  return CUDA_SUCCESS;
}

int32_t vgpu_cuda_graph_conditions_drop(struct vgpu_worker *worker,
                                        const struct vgpu_send_graph_conditions_drop *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  return end_shell(cuda, send->graph);
}

/* The driver sets the values itself. */
int32_t vgpu_cuda_graph_values(struct vgpu_worker *worker, const struct vgpu_send_graph_values *send) {
  (void)worker, (void)send;
  return CUDA_SUCCESS;
}

/* ---- building -------------------------------------------------------------- */

static int32_t record(struct vgpu_worker *worker, const struct vgpu_exec_object *exec, uint32_t at,
                      uint32_t end, void *graph);

/* Adds a condition as a node after the captured work, and its bodies. *at moves to the place after them. */
static int32_t add_condition(struct vgpu_worker *worker, const struct vgpu_exec_object *exec, uint32_t *at,
                             struct vgpu_stream *stream) {
  const struct vgpu_driver_api *api = &cuda_of(worker)->api;
  const struct vgpu_condition condition = vgpu_frame_condition(&exec->frames[*at]);
  (*at)++;
  struct node_params params = {.type = CONDITIONAL,
                               .handle = condition.handle,
                               .kind = (int32_t)condition.kind,
                               .size = condition.bodies};
  int32_t status;
  uint64_t id;
  void *graph = NULL, *node = NULL;
  const void **before = NULL;
  size_t count = 0;
  int32_t result = VGPU_DRIVER(api, cuStreamGetCaptureInfo_v2, stream, &status, &id, &graph, &before, &count);
  if (result == CUDA_SUCCESS)
    result = VGPU_DRIVER(api, cuCtxGetCurrent, (struct vgpu_context **)&params.context);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuGraphAddNode, &node, graph, before, count, &params);
  if (result == CUDA_SUCCESS)
    result = VGPU_DRIVER(api, cuStreamUpdateCaptureDependencies, stream, &node, 1, REPLACE);
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < condition.bodies; i++) {
    uint32_t nodes = vgpu_frame_body(&exec->frames[(*at)++]);
    result = record(worker, exec, *at, *at + nodes, params.bodies[i]);
    *at += nodes;
  }
  return result;
}

/* Makes frames [at, end) nodes of a graph, one after the other. */
static int32_t record(struct vgpu_worker *worker, const struct vgpu_exec_object *exec, uint32_t at,
                      uint32_t end, void *graph) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  struct vgpu_stream *stream = NULL, *around = cuda->recording;
  int32_t result = VGPU_DRIVER(&cuda->api, cuStreamCreate, &stream, NON_BLOCKING);
  if (result != CUDA_SUCCESS) return result;
  result = VGPU_DRIVER(&cuda->api, cuStreamBeginCaptureToGraph, stream, graph, NULL, NULL, 0, RELAXED);
  bool begun = result == CUDA_SUCCESS;
  if (begun) cuda->recording = stream;
  while (result == CUDA_SUCCESS && at < end) {
    const struct vgpu_graph_frame *frame = &exec->frames[at];
    uint32_t opcode = vgpu_frame_opcode(frame);
    if (opcode == VGPU_OP_graph_condition) {
      result = add_condition(worker, exec, &at, stream);
      continue;
    }
    if (opcode != 0 && opcode != VGPU_OP_graph_values)
      result = vgpu_frame_run(worker, frame, VGPU_RECORDING_STREAM);
    at++;
  }
  cuda->recording = around;
  void *same = NULL;
  int32_t ended = begun ? VGPU_DRIVER(&cuda->api, cuStreamEndCapture, stream, &same) : CUDA_SUCCESS;
  VGPU_DRIVER(&cuda->api, cuStreamDestroy_v2, stream);
  return result == CUDA_SUCCESS ? ended : result;
}

/* Empties a body: removes the nodes from an earlier instantiation by the guest. */
static int32_t empty(const struct vgpu_driver_api *api, void *graph) {
  size_t count = 0;
  int32_t result = VGPU_DRIVER(api, cuGraphGetNodes, graph, NULL, &count);
  if (result != CUDA_SUCCESS || count == 0) return result;
  void **nodes = calloc(count, sizeof(void *));
  if (nodes == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  result = VGPU_DRIVER(api, cuGraphGetNodes, graph, nodes, &count);
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
    result = VGPU_DRIVER(api, cuGraphDestroyNode, nodes[i]);
  free(nodes);
  return result;
}

int32_t vgpu_cuda_graph_build(struct vgpu_worker *worker, struct vgpu_exec_object *exec) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, exec->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  /* The first frame names the graph that has the conditions. */
  struct vgpu_send_graph_values values;
  if (vgpu_frame_opcode(&exec->frames[0]) != VGPU_OP_graph_values) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&values, exec->frames[0].bytes, sizeof values);
  if (values.whole == 0) return CUDA_ERROR_NOT_SUPPORTED;
  struct vgpu_cuda_shell *shell = find(cuda, values.graph);
  if (shell == NULL) return CUDA_ERROR_INVALID_HANDLE;
  for (uint32_t i = 0; i < exec->count; i++) {
    if (vgpu_frame_opcode(&exec->frames[i]) == VGPU_OP_graph_condition &&
        !has_condition(shell, vgpu_frame_condition(&exec->frames[i]).handle))
      return CUDA_ERROR_INVALID_HANDLE;
  }
  /* A graph with conditions has one executable at a time. A launch by an older guest cannot be parked. */
  if (worker->request->row->oneway && shell->exec != NULL && vgpu_cuda_is_ending(worker, shell->exec))
    vgpu_cuda_finish_endings(worker);
  else if (shell->exec != NULL) result = vgpu_cuda_await_ending_of(worker, shell->exec, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  result = empty(&cuda->api, shell->graph);
  if (result == CUDA_SUCCESS) result = record(worker, exec, 0, exec->count, shell->graph);
  if (result == CUDA_SUCCESS)
    result = VGPU_DRIVER(&cuda->api, cuGraphInstantiateWithFlags, &exec->graph, shell->graph, 0);
  shell->exec = exec->graph;
  return result;
}
