/*
 * Executable graphs of the driver. The work of a graph is run once on a stream that captures, and the
 * captured graph is instantiated. If the driver cannot do that, nothing is lost: the work is then run call by
 * call at each launch.
 */
#include "host/backend/cuda/graph.h"

#include <stdlib.h>
#include <string.h>

#include "host/backend/common/graph.h"
#include "host/backend/cuda/ending.h"
#include "host/backend/cuda/session.h"
#include "host/backend/cuda/slice.h"

#define NON_BLOCKING 1u
#define NO_TIMING 2u /* CU_EVENT_DISABLE_TIMING */
#define REPLACE 1u   /* CU_STREAM_SET_CAPTURE_DEPENDENCIES */
#define RELAXED 2    /* CU_STREAM_CAPTURE_MODE_RELAXED: the capture allows this thread's other calls */

/* The nodes with which each frame of a graph ends. */
struct vgpu_cuda_branches {
  uint32_t count;
  struct branch {
    void **nodes;
    size_t count;
    bool goes_on; /* a later frame depends on it */
  } frames[];
};

static void free_branches(struct vgpu_cuda *cuda) {
  struct vgpu_cuda_branches *branches = cuda->branches;
  for (uint32_t i = 0; branches != NULL && i < branches->count; i++) free(branches->frames[i].nodes);
  free(branches);
  cuda->branches = NULL;
}

static bool make_branches(struct vgpu_cuda *cuda, uint32_t count) {
  cuda->branches = calloc(1, sizeof *cuda->branches + count * sizeof cuda->branches->frames[0]);
  if (cuda->branches != NULL) cuda->branches->count = count;
  return cuda->branches != NULL;
}

static int compare_nodes(const void *one, const void *other) {
  const uintptr_t a = (uintptr_t) * (void *const *)one, b = (uintptr_t) * (void *const *)other;
  return (a > b) - (a < b);
}

/* The next captured work depends on these nodes only. The driver accepts each node once. */
static bool depend_on(const struct vgpu_cuda *cuda, void **nodes, size_t count) {
  size_t kept = 0;
  if (count > 0) qsort(nodes, count, sizeof *nodes, compare_nodes);
  for (size_t i = 0; i < count; i++)
    if (kept == 0 || nodes[kept - 1] != nodes[i]) nodes[kept++] = nodes[i];
  return VGPU_DRIVER(&cuda->api, cuStreamUpdateCaptureDependencies, cuda->recording, nodes, kept, REPLACE) ==
         CUDA_SUCCESS;
}

static void **append(void **to, const struct branch *branch) {
  if (branch->count > 0) memcpy(to, branch->nodes, branch->count * sizeof *to);
  return to + branch->count;
}

bool vgpu_cuda_graph_before(struct vgpu_worker *worker, const struct vgpu_graph_edge *edges, uint32_t count) {
  struct branch *frames = cuda_of(worker)->branches->frames;
  size_t most = 1;
  for (uint32_t i = 0; i < count; i++) most += frames[edges[i].from].count;
  void **nodes = calloc(most, sizeof *nodes), **end = nodes;
  if (nodes == NULL) return false;
  for (uint32_t i = 0; i < count; i++) {
    end = append(end, &frames[edges[i].from]);
    frames[edges[i].from].goes_on = true;
  }
  const bool done = depend_on(cuda_of(worker), nodes, (size_t)(end - nodes));
  free(nodes);
  return done;
}

bool vgpu_cuda_graph_after(struct vgpu_worker *worker, uint32_t frame) {
  const struct vgpu_cuda *cuda = cuda_of(worker);
  struct branch *branch = &cuda->branches->frames[frame];
  int32_t status;
  uint64_t id;
  void *graph = NULL;
  const void **nodes = NULL;
  if (VGPU_DRIVER(&cuda->api, cuStreamGetCaptureInfo_v2, cuda->recording, &status, &id, &graph, &nodes,
                  &branch->count) != CUDA_SUCCESS) {
    branch->count = 0;
    return false;
  }
  branch->nodes = calloc(branch->count + 1, sizeof *branch->nodes);
  if (branch->nodes != NULL && branch->count > 0)
    memcpy(branch->nodes, nodes, branch->count * sizeof *branch->nodes);
  return branch->nodes != NULL;
}

/* Joins the branches, because a capture ends in its stream. */
static bool join(const struct vgpu_cuda *cuda) {
  const struct vgpu_cuda_branches *branches = cuda->branches;
  size_t most = 1;
  for (uint32_t i = 0; i < branches->count; i++) most += branches->frames[i].count;
  void **nodes = calloc(most, sizeof *nodes), **end = nodes;
  if (nodes == NULL) return false;
  for (uint32_t i = 0; i < branches->count; i++)
    if (!branches->frames[i].goes_on) end = append(end, &branches->frames[i]);
  const bool done = depend_on(cuda, nodes, (size_t)(end - nodes));
  free(nodes);
  return done;
}

bool vgpu_cuda_graph_begin(struct vgpu_worker *worker, const struct vgpu_exec_object *exec) {
  struct vgpu_cuda *cuda;
  if (vgpu_cuda_enter(worker, exec->context, &cuda) != CUDA_SUCCESS || cuda->recording != NULL) return false;
  if (exec->has_edges && !make_branches(cuda, exec->count)) return false;
  struct vgpu_stream *stream = NULL;
  int result = VGPU_DRIVER(&cuda->api, cuStreamCreate, &stream, NON_BLOCKING);
  if (result == CUDA_SUCCESS) {
    result = VGPU_DRIVER(&cuda->api, cuStreamBeginCapture_v2, stream, RELAXED);
    if (result == CUDA_SUCCESS) cuda->recording = stream;
    else VGPU_DRIVER(&cuda->api, cuStreamDestroy_v2, stream);
  }
  if (result != CUDA_SUCCESS) free_branches(cuda);
  return result == CUDA_SUCCESS;
}

void *vgpu_cuda_graph_end(struct vgpu_worker *worker, bool keep) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  void *graph = NULL, *exec = NULL;
  struct vgpu_stream *stream = cuda->recording;
  if (cuda->branches != NULL && keep) keep = join(cuda);
  free_branches(cuda);
  cuda->recording = NULL;
  int result = VGPU_DRIVER(&cuda->api, cuStreamEndCapture, stream, &graph);
  if (result == CUDA_SUCCESS && keep)
    result = VGPU_DRIVER(&cuda->api, cuGraphInstantiateWithFlags, &exec, graph, 0);
  if (graph != NULL) VGPU_DRIVER(&cuda->api, cuGraphDestroy, graph);
  VGPU_DRIVER(&cuda->api, cuStreamDestroy_v2, stream);
  return result == CUDA_SUCCESS ? exec : NULL;
}

int32_t vgpu_cuda_graph_launch(struct vgpu_worker *worker, void *graph, uint64_t context, uint64_t number) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  (void)vgpu_cuda_slice_begin(worker, context);
  int32_t result = vgpu_cuda_enter_stream(worker, context, number, &cuda, &stream);
  if (result == CUDA_SUCCESS) vgpu_cuda_slice_launch(context, stream);
  return result == CUDA_SUCCESS ? VGPU_DRIVER(&cuda->api, cuGraphLaunch, graph, stream) : result;
}

static int32_t destroy(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  return VGPU_DRIVER(api, cuGraphExecDestroy, ending->object);
}

/* The driver waits for a launch of the graph that is not over. */
void vgpu_cuda_graph_destroy(struct vgpu_worker *worker, const struct vgpu_exec_object *exec) {
  const struct vgpu_cuda_ending ending = {.end = destroy,
                                          .context =
                                              vgpu_cuda_object(worker, exec->context, VGPU_HANDLE_CONTEXT),
                                          .object = exec->graph};
  (void)vgpu_cuda_end(worker, &ending);
}

int32_t vgpu_cuda_graph_mark(struct vgpu_worker *worker, void **mark, uint64_t context, uint64_t number) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result = vgpu_cuda_enter_stream(worker, context, number, &cuda, &stream);
  if (result == CUDA_SUCCESS && *mark == NULL)
    result = VGPU_DRIVER(&cuda->api, cuEventCreate, (struct vgpu_event **)mark, NO_TIMING);
  return result == CUDA_SUCCESS ? VGPU_DRIVER(&cuda->api, cuEventRecord, *mark, stream) : result;
}

int32_t vgpu_cuda_graph_await_mark(struct vgpu_worker *worker, void *mark, uint64_t context,
                                   uint64_t number) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result = vgpu_cuda_enter_stream(worker, context, number, &cuda, &stream);
  return result == CUDA_SUCCESS ? VGPU_DRIVER(&cuda->api, cuStreamWaitEvent, stream, mark, 0) : result;
}

void vgpu_cuda_graph_drop_mark(struct vgpu_worker *worker, void *mark) {
  VGPU_DRIVER(&cuda_of(worker)->api, cuEventDestroy_v2, mark);
}
