/* Executable graphs: lists of frames at the host, and what must be done here between them. */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/graph.h"

enum { GRAPH_EXEC_UPDATE_FAILURE = 910 };

/* CUgraphExecUpdateResult. */
enum {
  UPDATE_SUCCESS = 0,
  UPDATE_ERROR = 1,
  UPDATE_TOPOLOGY_CHANGED = 2,
  UPDATE_NODE_TYPE_CHANGED = 3,
  UPDATE_NOT_SUPPORTED = 6,
};

struct exec_node {
  uint64_t origin; /* id of the graph's node */
  struct vgpu_work work;
  size_t *before; /* places of what it depends on */
  size_t before_count;
  uint64_t segment; /* at the host; 0: done here, or nothing to do */
  uint32_t index;   /* in the segment */
  bool enabled;
};

/* A piece of a launch: a segment at the host, or a node's step here. */
struct step {
  uint64_t segment;
  const struct exec_node *node;
};

struct vgpu_exec {
  struct exec_node *nodes; /* in the order they are done */
  size_t count;
  struct step *steps;
  size_t step_count;
  uint64_t context;
  uint64_t flags;
};

/* ---- making -------------------------------------------------------------- */

static size_t flat_count(const struct vgpu_graph *graph) {
  size_t count = 0;
  for (size_t i = 0; i < graph->count; i++) {
    count += graph->nodes[i]->child != NULL ? flat_count(graph->nodes[i]->child) + 1 : 1;
  }
  return count;
}

static void free_nodes(struct exec_node *nodes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    vgpu_work_free(&nodes[i].work);
    free(nodes[i].before);
  }
  free(nodes);
}

/*
 * A graph as one list; children stand where their node stands, which follows them as an empty one. A
 * frame's order is the list's: what a child depends on comes before it.
 */
static int flatten(struct vgpu_graph *graph, struct exec_node *nodes, size_t *count) {
  struct vgpu_node **order = vgpu_graph_order(graph);
  if (order == NULL) return VGPU_CUDA_INVALID_VALUE;
  int result = VGPU_CUDA_SUCCESS;
  size_t *place = calloc(graph->count + 1, sizeof *place);
  if (place == NULL) result = VGPU_CUDA_OUT_OF_MEMORY;
  for (size_t i = 0; result == VGPU_CUDA_SUCCESS && i < graph->count; i++) {
    struct vgpu_node *node = order[i];
    if (node->child != NULL) result = flatten(node->child, nodes, count);
    if (result != VGPU_CUDA_SUCCESS) break;
    struct exec_node *made = &nodes[*count];
    *made = (struct exec_node){.origin = node->id, .enabled = true};
    made->before = malloc((node->dependency_count + 1) * sizeof *made->before);
    if (made->before == NULL || !vgpu_work_copy(&made->work, &node->work)) {
      free(made->before);
      result = VGPU_CUDA_OUT_OF_MEMORY;
      break;
    }
    (*count)++;
    for (size_t j = 0; j < node->dependency_count; j++) {
      made->before[made->before_count++] = place[node->dependencies[j]->mark >> 1];
    }
    /* vgpu_graph_order leaves 1 in every mark; above it the place in the order. */
    node->mark = (uint32_t)(i << 1 | 1);
    place[i] = *count - 1;
  }
  free(place);
  free(order);
  return result;
}

#define ENTRY_BYTES 16u /* opcode, body, bulk, nothing */

static size_t encoded_size(const struct vgpu_work *work) {
  return ENTRY_BYTES + (((size_t)work->body_size + work->bulk_size + 7) & ~(size_t)7);
}

/* The stream is the launch's: none stands in the frame. */
static void encode(const struct vgpu_work *work, unsigned char *to) {
  const uint32_t head[4] = {work->opcode, work->body_size, work->bulk_size, 0};
  memset(to, 0, encoded_size(work));
  memcpy(to, head, sizeof head);
  memcpy(to + ENTRY_BYTES, work->bytes, (size_t)work->body_size + work->bulk_size);
  uint32_t entry = work->opcode & ~VGPU_OP_RANGE_MASK;
  uint16_t field = entry < VGPU_STREAM_FIELDS ? vgpu_stream_fields[entry] : 0;
  if (field != 0) memset(to + ENTRY_BYTES + field - 1, 0, sizeof(uint64_t));
}

/* Sends nodes [first, end) of one segment, as many at a time as a frame holds. */
static int send_nodes(const struct vgpu_exec *exec, uint64_t segment, size_t first, size_t end,
                      unsigned char *bulk) {
  struct vgpu_send_graph_nodes send = {.exec = segment, .context = exec->context};
  uint32_t used = 0;
  int result = VGPU_CUDA_SUCCESS;
  for (size_t i = first; result == VGPU_CUDA_SUCCESS && i < end; i++) {
    const struct exec_node *node = &exec->nodes[i];
    if (node->segment != segment) continue;
    size_t size = encoded_size(&node->work);
    if (size > VGPU_BULK_MAX) return VGPU_CUDA_NOT_SUPPORTED;
    if (used + size > VGPU_BULK_MAX) {
      result = vgpu_cuda_post(VGPU_OP_graph_nodes, &send, sizeof send, bulk, used);
      used = 0;
    }
    encode(&node->work, bulk + used);
    used += (uint32_t)size;
  }
  if (result == VGPU_CUDA_SUCCESS && used > 0) {
    result = vgpu_cuda_post(VGPU_OP_graph_nodes, &send, sizeof send, bulk, used);
  }
  return result;
}

static uint64_t next_number(struct vgpu_driver *driver) {
  pthread_mutex_lock(&driver->lock);
  uint64_t number = vgpu_cuda_next_number(driver);
  pthread_mutex_unlock(&driver->lock);
  return number;
}

/* Splits the list into steps and sends the segments. */
static int build(struct vgpu_driver *driver, struct vgpu_exec *exec) {
  unsigned char *bulk = malloc(VGPU_BULK_MAX);
  exec->steps = calloc(exec->count + 1, sizeof *exec->steps);
  int result = bulk == NULL || exec->steps == NULL ? VGPU_CUDA_OUT_OF_MEMORY : VGPU_CUDA_SUCCESS;
  for (size_t i = 0; result == VGPU_CUDA_SUCCESS && i < exec->count;) {
    struct exec_node *node = &exec->nodes[i];
    if (node->work.step == VGPU_STEP_NONE) {
      i++;
      continue;
    }
    struct step *step = &exec->steps[exec->step_count++];
    if (node->work.step != VGPU_STEP_FRAME) {
      step->node = node;
      i++;
      continue;
    }
    size_t end = i;
    uint32_t index = 0;
    step->segment = next_number(driver);
    for (; end < exec->count && exec->nodes[end].work.step <= VGPU_STEP_FRAME; end++) {
      if (exec->nodes[end].work.step == VGPU_STEP_NONE) continue;
      exec->nodes[end].segment = step->segment;
      exec->nodes[end].index = index++;
    }
    result = send_nodes(exec, step->segment, i, end, bulk);
    struct vgpu_send_cuGraphInstantiateWithFlags send = {
        .context = exec->context, .exec = step->segment, .flags = exec->flags, .nodes = index};
    if (result == VGPU_CUDA_SUCCESS) {
      result = vgpu_cuda_call(VGPU_OP_cuGraphInstantiateWithFlags, &send, sizeof send, NULL, 0);
    }
    i = end;
  }
  free(bulk);
  return result;
}

static void free_exec(struct vgpu_exec *exec) {
  for (size_t i = 0; i < exec->step_count; i++) {
    if (exec->steps[i].segment == 0) continue;
    struct vgpu_send_cuGraphExecDestroy send = {.exec = exec->steps[i].segment};
    vgpu_cuda_post(VGPU_OP_cuGraphExecDestroy, &send, sizeof send, NULL, 0);
  }
  free_nodes(exec->nodes, exec->count);
  free(exec->steps);
  free(exec);
}

static int list_of(struct vgpu_graph *graph, struct exec_node **nodes, size_t *count) {
  *count = 0;
  *nodes = calloc(flat_count(graph) + 1, sizeof **nodes);
  return *nodes == NULL ? VGPU_CUDA_OUT_OF_MEMORY : flatten(graph, *nodes, count);
}

static int leave(struct vgpu_driver *driver, int result) {
  pthread_mutex_unlock(&driver->graph_lock);
  return result;
}

enum { FLAG_DEVICE_LAUNCH = 4, FLAGS_KNOWN = 15 };

int cuGraphInstantiateWithFlags(void **phGraphExec, void *hGraph, uint64_t flags) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (phGraphExec == NULL || (flags & ~(uint64_t)FLAGS_KNOWN) != 0) return VGPU_CUDA_INVALID_VALUE;
  if ((flags & FLAG_DEVICE_LAUNCH) != 0) return VGPU_CUDA_NOT_SUPPORTED;
  struct vgpu_exec *exec = calloc(1, sizeof *exec);
  if (exec == NULL) return VGPU_CUDA_OUT_OF_MEMORY;
  exec->flags = flags;
  result = vgpu_cuda_context_number(&exec->context);
  pthread_mutex_lock(&driver->graph_lock);
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (result == VGPU_CUDA_SUCCESS && graph == NULL) result = VGPU_CUDA_INVALID_VALUE;
  if (result == VGPU_CUDA_SUCCESS) result = list_of(graph, &exec->nodes, &exec->count);
  if (result == VGPU_CUDA_SUCCESS) result = build(driver, exec);
  if (result == VGPU_CUDA_SUCCESS) {
    pthread_mutex_lock(&driver->lock);
    if (!vgpu_objects_add(&driver->objects, exec, VGPU_OBJECT_EXEC)) result = VGPU_CUDA_OUT_OF_MEMORY;
    pthread_mutex_unlock(&driver->lock);
  }
  if (result == VGPU_CUDA_SUCCESS) *phGraphExec = exec;
  else free_exec(exec);
  return leave(driver, result);
}

int cuGraphInstantiate_v2(void **phGraphExec, void *hGraph, void **phErrorNode, char *logBuffer,
                          size_t bufferSize) {
  if (phErrorNode != NULL) *phErrorNode = NULL;
  if (logBuffer != NULL && bufferSize > 0) logBuffer[0] = '\0';
  return cuGraphInstantiateWithFlags(phGraphExec, hGraph, 0);
}

int cuGraphInstantiate(void **phGraphExec, void *hGraph, void **phErrorNode, char *logBuffer,
                       size_t bufferSize) {
  return cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

/* CUDA_GRAPH_INSTANTIATE_PARAMS. */
struct instantiate_params {
  uint64_t flags;
  struct vgpu_stream *upload;
  void *error_node;
  int32_t result; /* CUgraphInstantiateResult: 0 success, 1 error */
};

int cuGraphInstantiateWithParams(void **phGraphExec, void *hGraph, void *instantiateParams) {
  struct instantiate_params *params = instantiateParams;
  if (params == NULL) return VGPU_CUDA_INVALID_VALUE;
  int result = cuGraphInstantiateWithFlags(phGraphExec, hGraph, params->flags);
  params->error_node = NULL;
  params->result = result == VGPU_CUDA_SUCCESS ? 0 : 1;
  return result;
}

/* ---- using --------------------------------------------------------------- */

/* With graph_lock held. */
static struct vgpu_exec *find(struct vgpu_driver *driver, const void *handle) {
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_has(&driver->objects, handle, VGPU_OBJECT_EXEC);
  pthread_mutex_unlock(&driver->lock);
  return live ? (struct vgpu_exec *)(uintptr_t)handle : NULL;
}

static int do_here(const struct exec_node *node, struct vgpu_stream *stream) {
  const struct vgpu_work *work = &node->work;
  if (!node->enabled) return VGPU_CUDA_SUCCESS;
  switch (work->step) {
    case VGPU_STEP_TO_DEVICE:
      return cuMemcpyHtoDAsync_v2(work->device, work->host, work->size, stream);
    case VGPU_STEP_FROM_DEVICE:
      return cuMemcpyDtoHAsync_v2(work->host, work->device, work->size, stream);
    case VGPU_STEP_BOX:
      return cuMemcpy3DAsync_v2(work->params, stream);
    case VGPU_STEP_FUNCTION: {
      void *function;
      memcpy(&function, &work->function, sizeof function);
      return cuLaunchHostFunc(stream, function, work->data);
    }
    case VGPU_STEP_NONE:
    case VGPU_STEP_FRAME:
      break;
  }
  return VGPU_CUDA_SUCCESS;
}

int cuGraphLaunch(void *hGraph, struct vgpu_stream *hStream) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_send_cuGraphLaunch send = {0};
  result = vgpu_cuda_stream_number(driver, hStream, &send.stream);
  if (result != VGPU_CUDA_SUCCESS) return result;
  /* A launch that is captured would be a child; that is not carried. */
  if (vgpu_capture_status(driver, hStream) != 0) return 900; /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
  pthread_mutex_lock(&driver->graph_lock);
  struct vgpu_exec *exec = find(driver, hGraph);
  pthread_mutex_unlock(&driver->graph_lock);
  /* Not locked from here: a host function may make graphs. An exec that is launched must not be destroyed. */
  if (exec == NULL) return VGPU_CUDA_INVALID_VALUE;
  send.context = exec->context;
  for (size_t i = 0; result == VGPU_CUDA_SUCCESS && i < exec->step_count; i++) {
    const struct step *step = &exec->steps[i];
    if (step->segment == 0) {
      result = do_here(step->node, hStream);
    } else {
      send.exec = step->segment;
      result = vgpu_cuda_post(VGPU_OP_cuGraphLaunch, &send, sizeof send, NULL, 0);
    }
  }
  return result;
}

/* Everything is at the host already. */
int cuGraphUpload(void *hGraph, struct vgpu_stream *hStream) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  uint64_t number;
  result = vgpu_cuda_stream_number(driver, hStream, &number);
  if (result != VGPU_CUDA_SUCCESS) return result;
  pthread_mutex_lock(&driver->graph_lock);
  return leave(driver, find(driver, hGraph) == NULL ? VGPU_CUDA_INVALID_VALUE : VGPU_CUDA_SUCCESS);
}

int cuGraphExecDestroy(void *hGraphExec) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  pthread_mutex_lock(&driver->graph_lock);
  struct vgpu_exec *exec = find(driver, hGraphExec);
  if (exec == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  pthread_mutex_lock(&driver->lock);
  vgpu_objects_remove(&driver->objects, exec, VGPU_OBJECT_EXEC);
  pthread_mutex_unlock(&driver->lock);
  free_exec(exec);
  return leave(driver, VGPU_CUDA_SUCCESS);
}

int cuGraphExecGetFlags(void *hGraphExec, uint64_t *flags) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  pthread_mutex_lock(&driver->graph_lock);
  const struct vgpu_exec *exec = find(driver, hGraphExec);
  if (exec == NULL || flags == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  *flags = exec->flags;
  return leave(driver, VGPU_CUDA_SUCCESS);
}

/* ---- changing ------------------------------------------------------------ */

static bool same_bytes(const struct vgpu_work *a, const struct vgpu_work *b) {
  return a->body_size == b->body_size && a->bulk_size == b->bulk_size &&
         memcmp(a->bytes, b->bytes, (size_t)a->body_size + a->bulk_size) == 0;
}

/* Puts `work` in a node's place, at the host too; takes it over. With graph_lock held. */
static int replace(struct vgpu_exec *exec, struct exec_node *node, struct vgpu_work *work) {
  int result = VGPU_CUDA_SUCCESS;
  if (work->step == VGPU_STEP_FRAME && !same_bytes(work, &node->work)) {
    size_t size = encoded_size(work);
    unsigned char *bulk = size > VGPU_BULK_MAX ? NULL : malloc(size);
    if (bulk == NULL) {
      vgpu_work_free(work);
      return VGPU_CUDA_OUT_OF_MEMORY;
    }
    encode(work, bulk);
    struct vgpu_send_graph_node_set send = {
        .exec = node->segment, .context = exec->context, .index = node->index};
    result = vgpu_cuda_post(VGPU_OP_graph_node_set, &send, sizeof send, bulk, (uint32_t)size);
    free(bulk);
  }
  vgpu_work_free(&node->work);
  node->work = *work;
  return result;
}

static int32_t compare(const struct vgpu_exec *exec, const struct exec_node *nodes, size_t count,
                       size_t *where) {
  *where = 0;
  if (count != exec->count) return UPDATE_TOPOLOGY_CHANGED;
  for (size_t i = 0; i < count; i++) {
    const struct exec_node *a = &exec->nodes[i], *b = &nodes[i];
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
  struct vgpu_exec *exec = find(driver, hGraphExec);
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (exec == NULL || graph == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  struct exec_node *nodes;
  size_t count, where = 0;
  result = list_of(graph, &nodes, &count);
  if (result == VGPU_CUDA_SUCCESS) {
    info->result = compare(exec, nodes, count, &where);
    if (info->result != UPDATE_SUCCESS) result = GRAPH_EXEC_UPDATE_FAILURE;
  }
  for (size_t i = 0; result == VGPU_CUDA_SUCCESS && i < count; i++) {
    struct vgpu_work work = nodes[i].work;
    nodes[i].work.bytes = NULL;
    result = replace(exec, &exec->nodes[i], &work);
  }
  if (nodes != NULL) free_nodes(nodes, count);
  return leave(driver, result);
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
  struct vgpu_exec *exec = find(driver, hGraphExec);
  for (size_t i = 0; exec != NULL && i < exec->count; i++) {
    if (exec->nodes[i].origin != node->id) continue;
    if (exec->nodes[i].work.step != work->step || exec->nodes[i].work.kind != work->kind) break;
    return replace(exec, &exec->nodes[i], work);
  }
  vgpu_work_free(work);
  return VGPU_CUDA_INVALID_VALUE;
}
