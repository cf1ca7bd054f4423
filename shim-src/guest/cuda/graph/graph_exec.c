/* Makes executable graphs: lists of frames at the host, and the work that the guest does between them. */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/graph/graph_exec.h"
#include "guest/cuda/module/launch.h"

static size_t flat_count(const struct vgpu_graph *graph) {
  size_t count = 0;
  for (size_t i = 0; i < graph->count; i++) {
    const struct vgpu_node *node = graph->nodes[i];
    count += node->child != NULL ? flat_count(node->child) + 1 : 1;
    if (node->bodies == NULL) continue;
    count++; /* the entry that names the graph of the conditions */
    for (uint32_t j = 0; j < node->work.given.condition.size; j++) count += flat_count(node->bodies[j]) + 1;
  }
  return count;
}

void vgpu_exec_free_list(struct vgpu_exec_node *nodes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    vgpu_work_free(&nodes[i].work);
    free(nodes[i].before);
  }
  free(nodes);
}

static int flatten(struct vgpu_graph *graph, struct vgpu_exec_node *nodes, size_t *count);

/* Adds an entry that is not a node of the graph. */
static int add_frame(struct vgpu_exec_node *nodes, size_t *count, enum vgpu_node_kind kind, uint32_t opcode,
                     const void *body, uint32_t body_size) {
  struct vgpu_exec_node *made = &nodes[*count];
  *made = (struct vgpu_exec_node){.work.kind = kind, .enabled = true};
  if (!vgpu_work_frame(&made->work, opcode, body, body_size, NULL, 0)) return CUDA_ERROR_OUT_OF_MEMORY;
  (*count)++;
  return CUDA_SUCCESS;
}

/*
 * Adds an entry that names the graph of the conditions that follow. At this entry they get their initial
 * values.
 */
static int add_values(const struct vgpu_graph *graph, struct vgpu_exec_node *nodes, size_t *count,
                      bool assign) {
  const struct vgpu_send_graph_values send = {.graph = graph->conditions->graph, .assign = assign};
  return add_frame(nodes, count, VGPU_NODE_VALUES, VGPU_OP_graph_values, &send, sizeof send);
}

/* Adds the bodies of a conditional node, each behind the number of its frames. */
static int flatten_bodies(const struct vgpu_node *node, struct vgpu_exec_node *nodes, size_t *count) {
  int result = CUDA_SUCCESS;
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < node->work.given.condition.size; i++) {
    struct vgpu_send_graph_body send = {0};
    size_t head = *count;
    result = add_frame(nodes, count, VGPU_NODE_BODY, VGPU_OP_graph_body, &send, sizeof send);
    if (result == CUDA_SUCCESS) result = flatten(node->bodies[i], nodes, count);
    for (size_t j = head + 1; result == CUDA_SUCCESS && j < *count; j++) {
      send.nodes += nodes[j].work.frames;
      result = vgpu_condition_may(node->bodies[i], &nodes[j].work);
    }
    if (result == CUDA_SUCCESS) memcpy(nodes[head].work.bytes, &send, sizeof send);
  }
  return result;
}

/*
 * Makes one list of a graph. The nodes of a child graph are in place of their node, which follows them as an
 * empty entry. Frames run in the order of the list, so the nodes that a child graph depends on come before
 * it.
 */
static int flatten(struct vgpu_graph *graph, struct vgpu_exec_node *nodes, size_t *count) {
  struct vgpu_node **order = vgpu_graph_order(graph);
  if (order == NULL) return CUDA_ERROR_INVALID_VALUE;
  int result = CUDA_SUCCESS;
  size_t *place = calloc(graph->count + 1, sizeof *place);
  if (place == NULL) result = CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++) {
    struct vgpu_node *node = order[i];
    size_t first = *count;
    if (node->bodies != NULL && graph->outer == NULL) result = add_values(graph, nodes, count, false);
    if (node->child != NULL) result = flatten(node->child, nodes, count);
    if (result != CUDA_SUCCESS) break;
    struct vgpu_exec_node *made = &nodes[*count];
    *made = (struct vgpu_exec_node){.origin = node->id,
                                    .node = node,
                                    .children = node->child == NULL ? 0 : *count - first,
                                    .enabled = true};
    const struct vgpu_links *links = &node->dependencies;
    made->before = malloc((links->count + 1) * sizeof *made->before);
    if (made->before == NULL || !vgpu_work_copy(&made->work, &node->work)) {
      free(made->before);
      result = CUDA_ERROR_OUT_OF_MEMORY;
      break;
    }
    (*count)++;
    for (size_t j = 0; j < links->count; j++) {
      made->before[made->before_count++] = place[links->nodes[j]->mark >> 1];
    }
    /* vgpu_graph_order leaves 1 in every mark; the bits above it hold the place in the order. */
    node->mark = (uint32_t)(i << 1 | 1);
    place[i] = *count - 1;
    if (node->bodies != NULL) result = flatten_bodies(node, nodes, count);
  }
  free(place);
  free(order);
  return result;
}

#define ENTRY_BYTES 16u /* opcode, body size, bulk size, zero */

static size_t entry_size(const struct vgpu_work *work) {
  return ENTRY_BYTES + (((size_t)work->body_size + work->bulk_size + 7) & ~(size_t)7);
}

size_t vgpu_exec_encoded_size(const struct vgpu_work *work) {
  return work->frames * entry_size(work);
}

/* Encodes a node's frame, without a stream: the launch names the stream. */
void vgpu_exec_encode(const struct vgpu_work *work, unsigned char *to) {
  const uint32_t head[4] = {work->opcode, work->body_size, work->bulk_size, 0};
  uint32_t entry = work->opcode & ~VGPU_OP_RANGE_MASK;
  uint16_t field = entry < VGPU_STREAM_FIELDS ? vgpu_stream_fields[entry] : 0;
  memset(to, 0, vgpu_exec_encoded_size(work));
  for (uint32_t i = 0; i < work->frames; i++, to += entry_size(work)) {
    memcpy(to, head, sizeof head);
    memcpy(to + ENTRY_BYTES, work->bytes + (size_t)i * work->body_size,
           (size_t)work->body_size + work->bulk_size);
    if (field != 0) memset(to + ENTRY_BYTES + field - 1, 0, sizeof(uint64_t));
  }
}

/* Sends nodes [first, end) of one segment, as many at a time as fit in a frame. */
static int send_nodes(const struct vgpu_exec *exec, uint64_t segment, size_t first, size_t end,
                      unsigned char *bulk) {
  struct vgpu_send_graph_nodes send = {.exec = segment, .context = exec->context};
  uint32_t used = 0;
  int result = CUDA_SUCCESS;
  for (size_t i = first; result == CUDA_SUCCESS && i < end; i++) {
    const struct vgpu_exec_node *node = &exec->nodes[i];
    if (node->segment != segment) continue;
    size_t size = vgpu_exec_encoded_size(&node->work);
    if (size > VGPU_BULK_MAX) return CUDA_ERROR_NOT_SUPPORTED;
    if (used + size > VGPU_BULK_MAX) {
      result = vgpu_cuda_post(VGPU_OP_graph_nodes, &send, sizeof send, bulk, used);
      used = 0;
    }
    vgpu_exec_encode(&node->work, bulk + used);
    used += (uint32_t)size;
  }
  if (result == CUDA_SUCCESS && used > 0) {
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

/* True for work that never waits. An executable with conditions can have only such work at the host. */
static bool never_waits(const struct vgpu_work *work) {
  return work->step == VGPU_STEP_FRAME &&
         (work->kind <= VGPU_NODE_MEMSET || work->kind == VGPU_NODE_CONDITIONAL ||
          work->kind >= VGPU_NODE_BODY);
}

/*
 * Marks an executable that has conditions and is one segment at the host. Only then can a real driver have
 * its conditions.
 */
static void mark_whole(struct vgpu_exec *exec) {
  bool whole = true;
  for (size_t i = 0; i < exec->count; i++)
    whole = whole && (exec->nodes[i].work.step == VGPU_STEP_NONE || never_waits(&exec->nodes[i].work));
  for (size_t i = 0; i < exec->count; i++) {
    if (exec->nodes[i].work.kind != VGPU_NODE_VALUES) continue;
    struct vgpu_send_graph_values send;
    memcpy(&send, exec->nodes[i].work.bytes, sizeof send);
    send.whole = whole;
    memcpy(exec->nodes[i].work.bytes, &send, sizeof send);
  }
}

/* Splits the list into steps and sends the segments. */
static int build(struct vgpu_driver *driver, struct vgpu_exec *exec) {
  unsigned char *bulk = malloc(VGPU_BULK_MAX);
  exec->steps = calloc(exec->count + 1, sizeof *exec->steps);
  for (size_t i = 0; i < exec->count; i++) {
    exec->records = exec->records || exec->nodes[i].work.kind == VGPU_NODE_RECORD;
    exec->has_memory = exec->has_memory || exec->nodes[i].work.memory != NULL;
  }
  int result = bulk == NULL || exec->steps == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  mark_whole(exec);
  for (size_t i = 0; result == CUDA_SUCCESS && i < exec->count;) {
    struct vgpu_exec_node *node = &exec->nodes[i];
    if (node->work.step == VGPU_STEP_NONE) {
      i++;
      continue;
    }
    struct vgpu_exec_step *step = &exec->steps[exec->step_count++];
    if (node->work.step != VGPU_STEP_FRAME) {
      step->node = node;
      i++;
      continue;
    }
    size_t end = i;
    uint32_t index = 0;
    step->segment = next_number(driver);
    for (; end < exec->count && exec->nodes[end].work.step <= VGPU_STEP_FRAME; end++) {
      const struct vgpu_work *work = &exec->nodes[end].work;
      if (work->step == VGPU_STEP_NONE) continue;
      if (exec->conditions != NULL && never_waits(work) != never_waits(&node->work)) break;
      exec->nodes[end].segment = step->segment;
      exec->nodes[end].index = index;
      index += exec->nodes[end].work.frames;
    }
    result = send_nodes(exec, step->segment, i, end, bulk);
    if (result == CUDA_SUCCESS && exec->conditions == NULL && vgpu_session_has_graphs(driver->session))
      result = vgpu_exec_send_edges(exec, step->segment, i, end, index);
    struct vgpu_send_cuGraphInstantiateWithFlags send = {
        .context = exec->context, .exec = step->segment, .flags = exec->flags, .nodes = index};
    if (result == CUDA_SUCCESS) {
      result = vgpu_cuda_call(VGPU_OP_cuGraphInstantiateWithFlags, &send, sizeof send, NULL, 0);
      /* The nodes were sent one-way. An error of one of them is reported as the error of this call. */
      if (result == CUDA_SUCCESS) result = vgpu_session_take_deferred(driver->session);
    }
    i = end;
  }
  free(bulk);
  return result;
}

void vgpu_exec_belongs(struct vgpu_driver *driver, struct vgpu_exec *exec, struct vgpu_graph *graph) {
  struct vgpu_graph *before = vgpu_graph_find(driver, exec->source);
  if (before != NULL && before->id == exec->source_id) before->instances--;
  exec->source = graph;
  if (graph == NULL) return;
  exec->source_id = graph->id;
  graph->instances++;
}

/* Ties an executable to its graph: holds the objects that the graph holds, and counts the executable. */
static int belong(struct vgpu_driver *driver, struct vgpu_exec *exec, struct vgpu_graph *graph) {
  if (exec->has_memory && graph->instances > 0) return CUDA_ERROR_NOT_SUPPORTED; /* one at a time */
  if (!vgpu_holds_take(&exec->holds, graph)) return CUDA_ERROR_OUT_OF_MEMORY;
  vgpu_exec_belongs(driver, exec, graph);
  return CUDA_SUCCESS;
}

bool vgpu_exec_lives(struct vgpu_driver *driver, const struct vgpu_exec *exec) {
  pthread_mutex_lock(&driver->lock);
  bool lives = exec->owner != NULL && exec->owner->number == exec->context;
  pthread_mutex_unlock(&driver->lock);
  return lives;
}

/* Ends the parts of an executable at the host. If the context has ended, the host has ended them already. */
static void end_at_host(struct vgpu_driver *driver, const struct vgpu_exec *exec) {
  if (!vgpu_exec_lives(driver, exec)) return;
  for (size_t i = 0; i < exec->step_count; i++) {
    if (exec->steps[i].segment == 0) continue;
    struct vgpu_send_cuGraphExecDestroy send = {.exec = exec->steps[i].segment};
    vgpu_cuda_post(VGPU_OP_cuGraphExecDestroy, &send, sizeof send, NULL, 0);
  }
  if (exec->last_launch != 0) {
    struct vgpu_send_cuEventDestroy_v2 send = {.event = exec->last_launch};
    vgpu_cuda_post(VGPU_OP_cuEventDestroy_v2, &send, sizeof send, NULL, 0);
  }
}

static void free_exec(struct vgpu_driver *driver, struct vgpu_exec *exec) {
  vgpu_exec_belongs(driver, exec, NULL);
  if (exec->launched) vgpu_holds_release_after(driver, &exec->holds, exec->context);
  else vgpu_holds_release(driver, &exec->holds);
  end_at_host(driver, exec);
  vgpu_conditions_give(exec->conditions);
  vgpu_exec_free_list(exec->nodes, exec->count);
  free(exec->steps);
  free(exec);
}

int vgpu_exec_list(struct vgpu_graph *graph, struct vgpu_exec_node **nodes, size_t *count) {
  *count = 0;
  *nodes = calloc(flat_count(graph) + 2, sizeof **nodes);
  int result = *nodes == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS && vgpu_graph_has_conditions(graph))
    result = add_values(graph, *nodes, count, true);
  return result == CUDA_SUCCESS ? flatten(graph, *nodes, count) : result;
}

enum { FLAG_DEVICE_LAUNCH = 4, FLAGS_KNOWN = 15 };

struct kernels {
  struct {
    struct vgpu_callable *callable;
    uint64_t context;
  } * list;
  size_t count;
};

static void find_kernels(struct vgpu_driver *driver, const struct vgpu_graph *graph,
                         struct kernels *kernels) {
  for (size_t i = 0; i < graph->count; i++) {
    struct vgpu_node *node = graph->nodes[i];
    struct vgpu_send_cuLaunchKernelEx send;
    if (node->child != NULL) find_kernels(driver, node->child, kernels);
    for (uint32_t j = 0; node->bodies != NULL && j < node->work.given.condition.size; j++)
      find_kernels(driver, node->bodies[j], kernels);
    if (node->work.kind != VGPU_NODE_KERNEL) continue;
    memcpy(&send, node->work.bytes, sizeof send);
    kernels->list[kernels->count].callable = vgpu_work_callable(driver, &node->work);
    kernels->list[kernels->count++].context = send.context;
  }
}

void vgpu_graph_load_kernels(struct vgpu_driver *driver, const void *handle) {
  struct kernels kernels = {0};
  pthread_mutex_lock(&driver->graph_lock);
  const struct vgpu_graph *graph = vgpu_graph_find(driver, handle);
  if (graph != NULL) kernels.list = calloc(flat_count(graph) + 1, sizeof *kernels.list);
  if (kernels.list != NULL) find_kernels(driver, graph, &kernels);
  pthread_mutex_unlock(&driver->graph_lock);
  for (size_t i = 0; i < kernels.count; i++) {
    struct vgpu_callable *callable = vgpu_callable_find(driver, kernels.list[i].callable);
    if (callable != NULL) (void)vgpu_launch_load(driver, callable, kernels.list[i].context, 0);
  }
  free(kernels.list);
}

int cuGraphInstantiateWithFlags(void **phGraphExec, void *hGraph, uint64_t flags) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (phGraphExec == NULL || (flags & ~(uint64_t)FLAGS_KNOWN) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  struct vgpu_exec *exec = calloc(1, sizeof *exec);
  if (exec == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  exec->flags = flags;
  vgpu_graph_load_kernels(driver, hGraph);
  result = vgpu_cuda_owner(driver, &exec->owner, &exec->context);
  pthread_mutex_lock(&driver->graph_lock);
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (result == CUDA_SUCCESS && (graph == NULL || graph->outer != NULL)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && vgpu_graph_has_conditions(graph)) {
    if (vgpu_conditions_take(graph->conditions)) exec->conditions = graph->conditions;
    else result = CUDA_ERROR_NOT_SUPPORTED; /* only one executable at a time */
  }
  if (result == CUDA_SUCCESS) result = vgpu_exec_list(graph, &exec->nodes, &exec->count);
  if (result == CUDA_SUCCESS) result = build(driver, exec);
  if (result == CUDA_SUCCESS) result = belong(driver, exec, graph);
  if (result == CUDA_SUCCESS) {
    pthread_mutex_lock(&driver->lock);
    if (!vgpu_objects_add(&driver->objects, exec, VGPU_OBJECT_EXEC)) result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&driver->lock);
  }
  exec->number = ++driver->graph_numbers;
  if (result == CUDA_SUCCESS) *phGraphExec = exec;
  else free_exec(driver, exec);
  return vgpu_graph_leave(driver, result);
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
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  int result = cuGraphInstantiateWithFlags(phGraphExec, hGraph, params->flags);
  params->error_node = NULL;
  params->result = result == CUDA_SUCCESS ? 0 : 1;
  return result;
}

struct vgpu_exec *vgpu_exec_find(struct vgpu_driver *driver, const void *handle) {
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_has(&driver->objects, handle, VGPU_OBJECT_EXEC);
  pthread_mutex_unlock(&driver->lock);
  return live ? (struct vgpu_exec *)(uintptr_t)handle : NULL;
}

int cuGraphExecDestroy(void *hGraphExec) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  pthread_mutex_lock(&driver->graph_lock);
  struct vgpu_exec *exec = vgpu_exec_find(driver, hGraphExec);
  if (exec == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&driver->lock);
  vgpu_objects_remove(&driver->objects, exec, VGPU_OBJECT_EXEC);
  pthread_mutex_unlock(&driver->lock);
  free_exec(driver, exec);
  vgpu_graph_leave(driver, CUDA_SUCCESS);
  vgpu_graph_memory_sweep(driver);
  return CUDA_SUCCESS;
}

int cuGraphExecGetId(void *hGraphExec, uint32_t *graphId) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_exec *exec = vgpu_exec_find(driver, hGraphExec);
  if (exec == NULL || graphId == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  *graphId = exec->number;
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuGraphExecGetFlags(void *hGraphExec, uint64_t *flags) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  pthread_mutex_lock(&driver->graph_lock);
  const struct vgpu_exec *exec = vgpu_exec_find(driver, hGraphExec);
  if (exec == NULL || flags == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  *flags = exec->flags;
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}
