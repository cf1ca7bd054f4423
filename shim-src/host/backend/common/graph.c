/* Executable graphs, for both backends: frames are checked on arrival and run by the calls' own handlers. */
#include <stdlib.h>
#include <string.h>

#include "cuda_handlers.h"
#include "host/backend/common/code.h"
#include "host/backend/common/graph.h"
#include "host/session/worker.h"
#include "cuda_results.h"

#define ENTRY_BYTES 16u
#define NODES_MAX (1u << 20)

/*
 * Reads one entry: opcode, sizes, bytes. Accepts only calls that leave work on a stream, but not the launch
 * of a graph.
 */
static int32_t read_entry(struct vgpu_worker *worker, const struct vgpu_bulk *bulk, uint32_t *at,
                          struct vgpu_graph_frame *frame) {
  uint32_t head[4];
  if (bulk->in_size - *at < ENTRY_BYTES) return CUDA_ERROR_INVALID_VALUE;
  memcpy(head, bulk->in + *at, sizeof head);
  *at += ENTRY_BYTES;
  const struct vgpu_dispatch_row *row = vgpu_dispatch_cuda(head[0]);
  uint64_t size = (uint64_t)head[1] + head[2];
  if (row == NULL || !row->oneway || row->stream < 0 || row->opcode == VGPU_OP_cuGraphLaunch ||
      row->send_size != head[1] || head[1] > VGPU_BODY_MAX || (!row->bulk_in && head[2] != 0) ||
      size > bulk->in_size - *at || ((size + 7) & ~7ull) > bulk->in_size - *at) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!vgpu_code_take(worker, size + sizeof *frame)) return CUDA_ERROR_OUT_OF_MEMORY;
  frame->bytes = malloc(size + 1);
  if (frame->bytes == NULL) {
    vgpu_code_give(worker, size + sizeof *frame);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memcpy(frame->bytes, bulk->in + *at, size);
  frame->row = row;
  frame->bulk_size = head[2];
  *at += (uint32_t)((size + 7) & ~7ull);
  return CUDA_SUCCESS;
}

static void free_frame(struct vgpu_worker *worker, struct vgpu_graph_frame *frame) {
  if (frame->row == NULL) return;
  vgpu_code_give(worker, (uint64_t)frame->row->send_size + frame->bulk_size + sizeof *frame);
  free(frame->bytes);
}

static struct vgpu_exec_object *find(struct vgpu_worker *worker, uint64_t number) {
  struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, number, VGPU_HANDLE_EXEC);
  return handle == NULL ? NULL : handle->object;
}

/* Puts a mark behind the last launch, if the device does not order the next launch after it. */
static void mark_end(struct vgpu_worker *worker, struct vgpu_exec_object *exec) {
  const struct vgpu_backend_graphs *graphs = worker->backend->graphs;
  if (graphs == NULL || !exec->launched || exec->marked) return;
  exec->marked = graphs->mark(worker, &exec->mark, exec->context, exec->last_stream) == CUDA_SUCCESS;
}

static void drop_graph(struct vgpu_worker *worker, struct vgpu_exec_object *exec) {
  if (exec->graph != NULL) worker->backend->graphs->destroy(worker, exec);
  exec->graph = NULL;
  exec->launches = 0;
}

static uint64_t edge_bytes(uint32_t count) {
  return (uint64_t)count * sizeof(struct vgpu_graph_edge) + 1;
}

static void end_exec(struct vgpu_worker *worker, struct vgpu_exec_object **link) {
  struct vgpu_exec_object *exec = *link;
  *link = exec->next;
  drop_graph(worker, exec);
  if (exec->mark != NULL) worker->backend->graphs->drop_mark(worker, exec->mark);
  if (exec->has_edges) vgpu_code_give(worker, edge_bytes(exec->edge_count));
  free(exec->edges);
  for (uint32_t i = 0; i < exec->count; i++) free_frame(worker, &exec->frames[i]);
  vgpu_handles_remove(&worker->handles, exec->number, VGPU_HANDLE_EXEC);
  free(exec->frames);
  free(exec);
}

void vgpu_graph_drop_context(struct vgpu_worker *worker, uint64_t context) {
  for (struct vgpu_exec_object **link = &worker->code.execs; *link != NULL;) {
    if ((*link)->context == context) end_exec(worker, link);
    else link = &(*link)->next;
  }
}

static struct vgpu_exec_object *begin(struct vgpu_worker *worker, uint64_t number, uint64_t context) {
  if (number < VGPU_FIRST_HANDLE) return NULL;
  struct vgpu_exec_object *exec = calloc(1, sizeof *exec);
  struct vgpu_handle *handle =
      exec == NULL ? NULL : vgpu_handles_add(&worker->handles, number, VGPU_HANDLE_EXEC);
  if (handle == NULL) {
    free(exec);
    return NULL;
  }
  handle->context = context;
  handle->object = exec;
  *exec = (struct vgpu_exec_object){.next = worker->code.execs, .number = number, .context = context};
  worker->code.execs = exec;
  return exec;
}

static int32_t append(struct vgpu_exec_object *exec, const struct vgpu_graph_frame *frame) {
  if (exec->count == NODES_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
  if ((exec->count & (exec->count - 1)) == 0) {
    size_t room = exec->count == 0 ? 1 : (size_t)exec->count * 2;
    struct vgpu_graph_frame *frames = realloc(exec->frames, room * sizeof *frames);
    if (frames == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    exec->frames = frames;
  }
  exec->frames[exec->count++] = *frame;
  return CUDA_SUCCESS;
}

int32_t vgpu_common_graph_nodes(struct vgpu_worker *worker, const struct vgpu_send_graph_nodes *send,
                                struct vgpu_bulk *bulk) {
  if (vgpu_handles_find(&worker->handles, send->context, VGPU_HANDLE_CONTEXT) == NULL)
    return CUDA_ERROR_INVALID_CONTEXT;
  struct vgpu_exec_object *exec = find(worker, send->exec);
  if (exec == NULL) exec = begin(worker, send->exec, send->context);
  if (exec == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  if (exec->ready) return CUDA_ERROR_INVALID_VALUE;
  int32_t result = CUDA_SUCCESS;
  for (uint32_t at = 0; result == CUDA_SUCCESS && at < bulk->in_size;) {
    struct vgpu_graph_frame frame;
    result = read_entry(worker, bulk, &at, &frame);
    if (result != CUDA_SUCCESS) break;
    result = append(exec, &frame);
    if (result != CUDA_SUCCESS) free_frame(worker, &frame);
  }
  return result;
}

int32_t vgpu_common_graph_edges(struct vgpu_worker *worker, const struct vgpu_send_graph_edges *send,
                                struct vgpu_bulk *bulk) {
  struct vgpu_exec_object *exec = find(worker, send->exec);
  if (exec == NULL) return CUDA_ERROR_INVALID_HANDLE;
  const uint32_t count = bulk->in_size / sizeof(struct vgpu_graph_edge);
  if (exec->ready || exec->has_edges || bulk->in_size % sizeof(struct vgpu_graph_edge) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_graph_edge *edges = malloc(bulk->in_size + 1);
  if (edges == NULL || !vgpu_code_take(worker, edge_bytes(count))) {
    free(edges);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memcpy(edges, bulk->in, bulk->in_size);
  exec->edges = edges;
  exec->edge_count = count;
  exec->has_edges = true;
  return CUDA_SUCCESS;
}

/* The frames' order keeps the dependencies: an edge leads to a later frame. */
static bool edges_fit(const struct vgpu_exec_object *exec) {
  bool fit = !exec->has_edges || !exec->has_conditions;
  for (uint32_t i = 0; fit && i < exec->edge_count; i++)
    fit = exec->edges[i].from < exec->edges[i].to && exec->edges[i].to < exec->count &&
          (i == 0 || exec->edges[i - 1].to <= exec->edges[i].to);
  return fit;
}

int32_t vgpu_common_graph_node_set(struct vgpu_worker *worker, const struct vgpu_send_graph_node_set *send,
                                   struct vgpu_bulk *bulk) {
  struct vgpu_exec_object *exec = find(worker, send->exec);
  if (exec == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (!exec->ready || send->index >= exec->count) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_graph_frame frame = {0};
  uint32_t at = 0;
  int32_t result = bulk->in_size == 0 ? CUDA_SUCCESS : read_entry(worker, bulk, &at, &frame);
  if (result != CUDA_SUCCESS) return result;
  if (exec->has_conditions && !vgpu_conditions_fit(&exec->frames[send->index], &frame)) {
    free_frame(worker, &frame);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (exec->graph != NULL) mark_end(worker, exec);
  drop_graph(worker, exec);
  free_frame(worker, &exec->frames[send->index]);
  exec->frames[send->index] = frame;
  return CUDA_SUCCESS;
}

static int32_t build(struct vgpu_worker *worker, struct vgpu_exec_object *exec) {
  uint64_t *launches = &worker->accounts->slots[worker->slot].launches, before = *launches;
  int32_t result = worker->backend->graphs->build(worker, exec);
  exec->kernels = *launches - before;
  __atomic_store_n(launches, before, __ATOMIC_RELAXED);
  return result;
}

bool vgpu_graph_is_conditional(struct vgpu_worker *worker, uint64_t number) {
  const struct vgpu_exec_object *exec = find(worker, number);
  return exec != NULL && exec->has_conditions;
}

int32_t vgpu_common_cuGraphInstantiateWithFlags(struct vgpu_worker *worker,
                                                const struct vgpu_send_cuGraphInstantiateWithFlags *send) {
  struct vgpu_exec_object *exec = find(worker, send->exec);
  if (exec == NULL) return CUDA_ERROR_INVALID_HANDLE;
  /* A graph of the device that has changed is made again before its next launch, because this call can wait.
   */
  if (exec->ready && exec->has_conditions && exec->graph == NULL && worker->backend->graphs != NULL)
    return build(worker, exec);
  if (exec->ready || exec->count != send->nodes || exec->context != send->context)
    return CUDA_ERROR_INVALID_VALUE;
  int32_t result = vgpu_conditions_check(exec);
  if (result == CUDA_SUCCESS && !edges_fit(exec)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && exec->has_conditions && worker->backend->graphs != NULL)
    result = build(worker, exec);
  exec->ready = result == CUDA_SUCCESS;
  return result;
}

int32_t vgpu_common_cuGraphExecDestroy(struct vgpu_worker *worker,
                                       const struct vgpu_send_cuGraphExecDestroy *send) {
  struct vgpu_exec_object *exec = find(worker, send->exec);
  if (exec == NULL) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_exec_object **link = &worker->code.execs;
  while (*link != exec) link = &(*link)->next;
  end_exec(worker, link);
  return CUDA_SUCCESS;
}

bool vgpu_graph_recordable(const struct vgpu_graph_frame *frame) {
  if (frame->row == NULL) return true;
  switch (frame->row->opcode) {
    case VGPU_OP_cuLaunchKernelEx:
    case VGPU_OP_cuMemsetD8Async:
    case VGPU_OP_cuMemsetD16Async:
    case VGPU_OP_cuMemsetD32Async:
    case VGPU_OP_cuMemsetD2D8Async:
    case VGPU_OP_cuMemcpyDtoDAsync_v2:
    case VGPU_OP_copy_box:
      return true;
    default:
      return false;
  }
}

static int32_t run_frame(struct vgpu_worker *worker, const struct vgpu_graph_frame *frame, uint64_t stream) {
  if (frame->row == NULL) return CUDA_SUCCESS;
  _Alignas(8) unsigned char body[VGPU_BODY_MAX];
  memcpy(body, frame->bytes, frame->row->send_size);
  memcpy(body + frame->row->stream, &stream, sizeof stream);
  struct vgpu_bulk bulk = {.in = frame->bytes + frame->row->send_size, .in_size = frame->bulk_size};
  return worker->backend->run(worker, frame->row, body, NULL, &bulk);
}

/*
 * Runs all frames in order and returns the first failure. The frames after it run in any case, as separate
 * calls would.
 */
static int32_t carry_out(struct vgpu_worker *worker, const struct vgpu_exec_object *exec, uint64_t stream) {
  int32_t result = CUDA_SUCCESS;
  for (uint32_t i = 0; i < exec->count; i++) {
    const int32_t status = run_frame(worker, &exec->frames[i], stream);
    if (result == CUDA_SUCCESS) result = status;
  }
  return result;
}

static bool record_frames(struct vgpu_worker *worker, const struct vgpu_exec_object *exec) {
  const struct vgpu_backend_graphs *graphs = worker->backend->graphs;
  uint32_t edge = 0;
  for (uint32_t i = 0; i < exec->count; i++) {
    const uint32_t first = edge;
    while (edge < exec->edge_count && exec->edges[edge].to == i) edge++;
    if (exec->has_edges && !graphs->before(worker, exec->edges + first, edge - first)) return false;
    if (run_frame(worker, &exec->frames[i], VGPU_RECORDING_STREAM) != CUDA_SUCCESS) return false;
    if (exec->has_edges && !graphs->after(worker, i)) return false;
  }
  return true;
}

/* Recorded kernels do not run, so they do not count as launches. */
static void record(struct vgpu_worker *worker, struct vgpu_exec_object *exec) {
  const struct vgpu_backend_graphs *graphs = worker->backend->graphs;
  for (uint32_t i = 0; i < exec->count; i++) {
    if (!vgpu_graph_recordable(&exec->frames[i])) return;
  }
  uint64_t *launches = &worker->accounts->slots[worker->slot].launches, before = *launches;
  if (!graphs->begin(worker, exec)) return;
  const bool recorded = record_frames(worker, exec);
  exec->kernels = *launches - before;
  __atomic_store_n(launches, before, __ATOMIC_RELAXED);
  exec->graph = graphs->end(worker, recorded);
}

/* Launches before an executable becomes a graph of the device: some programs change it before each launch. */
#define WORTH_RECORDING 1u

/* Launches of one executable run one after the other, also in different streams. */
static int32_t await_last(struct vgpu_worker *worker, const struct vgpu_exec_object *exec, uint64_t stream) {
  if (!exec->marked || exec->last_stream == stream) return CUDA_SUCCESS;
  return worker->backend->graphs->await_mark(worker, exec->mark, exec->context, stream);
}

static int32_t launch(struct vgpu_worker *worker, struct vgpu_exec_object *exec, uint64_t stream) {
  if (exec->graph == NULL) return carry_out(worker, exec, stream);
  const int32_t result = worker->backend->graphs->launch(worker, exec->graph, exec->context, stream);
  if (result != CUDA_SUCCESS) return result;
  uint64_t *launches = &worker->accounts->slots[worker->slot].launches;
  __atomic_store_n(launches, *launches + exec->kernels, __ATOMIC_RELAXED);
  return CUDA_SUCCESS;
}

int32_t vgpu_common_cuGraphLaunch(struct vgpu_worker *worker, const struct vgpu_send_cuGraphLaunch *send) {
  struct vgpu_exec_object *exec = find(worker, send->exec);
  if (exec == NULL || !exec->ready || exec->context != send->context) return CUDA_ERROR_INVALID_HANDLE;
  if (exec->has_conditions && worker->backend->graphs == NULL)
    return vgpu_conditions_launch(worker, exec, send->stream);
  if (exec->has_conditions && exec->graph == NULL) { /* changed since it was made */
    int32_t built = build(worker, exec);
    if (built != CUDA_SUCCESS) return built;
  }
  if (!exec->has_conditions && exec->launches <= WORTH_RECORDING && exec->launches++ == WORTH_RECORDING &&
      worker->backend->graphs != NULL)
    record(worker, exec);
  int32_t result = await_last(worker, exec, send->stream);
  if (result != CUDA_SUCCESS) return result;
  result = launch(worker, exec, send->stream);
  exec->launched = true;
  exec->marked = false;
  exec->last_stream = send->stream;
  if (exec->graph == NULL) mark_end(worker, exec);
  return result;
}
