#include <stdlib.h>

#include "cuda_api.h"
#include "guest/cuda/stream/capture.h"

static int enter(struct vgpu_stream *handle, struct vgpu_driver **driver, uint64_t *number) {
  int result;
  *driver = vgpu_cuda_driver(&result);
  if (*driver == NULL) return result;
  result = vgpu_cuda_stream_number(*driver, handle, number);
  if (result == CUDA_SUCCESS) pthread_mutex_lock(&(*driver)->graph_lock);
  return result;
}

static int begin(struct vgpu_driver *driver, uint64_t number, int32_t mode, struct vgpu_graph *given,
                 const struct vgpu_links *tips) {
  /* The legacy default stream waits for all others and cannot be captured. */
  if (number < VGPU_PER_THREAD) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (vgpu_capture_find(driver, number) != NULL) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_capture *capture = calloc(1, sizeof *capture);
  struct vgpu_graph *graph = given != NULL ? given : vgpu_graph_make(driver);
  struct vgpu_captured_stream *stream =
      capture == NULL || graph == NULL ? NULL : vgpu_capture_join(driver, number, capture);
  if (stream == NULL) {
    if (given == NULL && graph != NULL) vgpu_graph_free(driver, graph);
    free(capture);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *capture = (struct vgpu_capture){.id = ++driver->captures,
                                   .graph = graph,
                                   .into_given = given != NULL,
                                   .mode = mode,
                                   .origin = number,
                                   .thread = pthread_self()};
  if (tips != NULL && !vgpu_links_copy(&stream->tips, tips)) capture->invalid = true;
  __atomic_add_fetch(&driver->capturing, 1, __ATOMIC_ACQ_REL);
  return CUDA_SUCCESS;
}

int cuStreamBeginCapture_v2(struct vgpu_stream *hStream, int32_t mode) {
  struct vgpu_driver *driver;
  uint64_t number;
  int result = enter(hStream, &driver, &number);
  if (result != CUDA_SUCCESS) return result;
  if (mode < VGPU_MODE_GLOBAL || mode > VGPU_MODE_RELAXED)
    return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  return vgpu_graph_leave(driver, begin(driver, number, mode, NULL, NULL));
}

int cuStreamBeginCapture(struct vgpu_stream *hStream) {
  return cuStreamBeginCapture_v2(hStream, VGPU_MODE_GLOBAL);
}

/*
 * Checks the nodes that the next captured node depends on. The kind of that node is not known yet, so each
 * edge is checked as an edge to a kernel. Later checks use the real kind.
 */
static int check_tips(struct vgpu_driver *driver, const struct vgpu_graph *graph,
                      const struct vgpu_links *links) {
  int result = vgpu_links_check(driver, graph, links);
  for (size_t i = 0; result == CUDA_SUCCESS && links->data != NULL && i < links->count; i++) {
    result = vgpu_edge_check(links->data[i], links->nodes[i]->work.kind, VGPU_NODE_KERNEL);
  }
  return result;
}

int cuStreamBeginCaptureToGraph(struct vgpu_stream *hStream, void *hGraph, const void **dependencies,
                                const void *dependencyData, size_t numDependencies, int32_t mode) {
  struct vgpu_driver *driver;
  uint64_t number;
  int result = enter(hStream, &driver, &number);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  const struct vgpu_links tips = {.nodes = (struct vgpu_node **)(uintptr_t)dependencies,
                                  .data = (uint64_t *)(uintptr_t)dependencyData,
                                  .count = numDependencies};
  if (graph == NULL || mode < VGPU_MODE_GLOBAL || mode > VGPU_MODE_RELAXED) {
    return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  }
  result = check_tips(driver, graph, &tips);
  return vgpu_graph_leave(driver,
                          result == CUDA_SUCCESS ? begin(driver, number, mode, graph, &tips) : result);
}

/* True if every node of the capture has a path to the end of the stream on which the capture began. */
static bool is_joined(struct vgpu_driver *driver, const struct vgpu_capture *capture,
                      const struct vgpu_links *ends) {
  struct vgpu_graph *graph = capture->graph;
  for (size_t i = 0; i < graph->count; i++) graph->nodes[i]->mark = 0;
  for (size_t i = 0; i < ends->count; i++) ends->nodes[i]->mark = 1;
  /* A node of a capture depends only on earlier nodes. */
  for (size_t i = graph->count; i > 0; i--) {
    const struct vgpu_node *node = graph->nodes[i - 1];
    const struct vgpu_links *links = &node->dependencies;
    for (size_t j = 0; node->mark == 1 && j < links->count; j++) links->nodes[j]->mark = 1;
  }
  for (struct vgpu_captured_stream *stream = driver->captured_streams; stream != NULL;
       stream = stream->next) {
    for (size_t i = 0; stream->capture == capture && i < stream->tips.count; i++) {
      if (stream->tips.nodes[i]->mark == 0) return false;
    }
  }
  return true;
}

int cuStreamEndCapture(struct vgpu_stream *hStream, void **phGraph) {
  struct vgpu_driver *driver;
  uint64_t number;
  int result = enter(hStream, &driver, &number);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_captured_stream *stream = vgpu_capture_find(driver, number);
  if (phGraph != NULL) *phGraph = NULL;
  if (stream == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  struct vgpu_capture *capture = stream->capture;
  /*
   * Without phGraph the program could never free a new graph. A graph that the program gave to the capture
   * needs none.
   */
  if (phGraph == NULL && !capture->into_given) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  if (capture->origin != number) return vgpu_graph_leave(driver, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  if (capture->mode != VGPU_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self())) {
    return vgpu_graph_leave(driver, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }
  if (capture->invalid) result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (!is_joined(driver, capture, &stream->tips)) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  if (result == CUDA_SUCCESS) {
    if (phGraph != NULL) *phGraph = capture->graph;
  } else if (!capture->into_given) vgpu_graph_free(driver, capture->graph);
  vgpu_capture_end(driver, capture);
  return vgpu_graph_leave(driver, result);
}

int cuStreamGetCaptureInfo_v3(struct vgpu_stream *hStream, int32_t *captureStatus_out, uint64_t *id_out,
                              void **graph_out, const void ***dependencies_out, const void **edgeData_out,
                              size_t *numDependencies_out) {
  struct vgpu_driver *driver;
  uint64_t number;
  int result = enter(hStream, &driver, &number);
  if (result != CUDA_SUCCESS) return result;
  if (captureStatus_out == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  struct vgpu_captured_stream *stream = vgpu_capture_find(driver, number);
  *captureStatus_out = vgpu_capture_status_of(stream);
  if (stream == NULL) return vgpu_graph_leave(driver, CUDA_SUCCESS);
  for (size_t i = 0; dependencies_out != NULL && edgeData_out == NULL && i < stream->tips.count; i++) {
    if (stream->tips.data[i] != 0) return vgpu_graph_leave(driver, CUDA_ERROR_LOSSY_QUERY);
  }
  if (id_out != NULL) *id_out = stream->capture->id;
  if (graph_out != NULL) *graph_out = stream->capture->graph;
  if (dependencies_out != NULL) *dependencies_out = (const void **)(uintptr_t)stream->tips.nodes;
  if (edgeData_out != NULL) *edgeData_out = stream->tips.data;
  if (numDependencies_out != NULL) *numDependencies_out = stream->tips.count;
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuStreamGetCaptureInfo_v2(struct vgpu_stream *hStream, int32_t *captureStatus_out, uint64_t *id_out,
                              void **graph_out, const void ***dependencies_out, size_t *numDependencies_out) {
  return cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL,
                                   numDependencies_out);
}

int cuStreamGetCaptureInfo(struct vgpu_stream *hStream, int32_t *captureStatus_out, uint64_t *id_out) {
  return cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, NULL, NULL, NULL, NULL);
}

/* Flag 0 adds to the dependencies of the next node, flag 1 replaces them. */
int cuStreamUpdateCaptureDependencies_v2(struct vgpu_stream *hStream, void **dependencies,
                                         const void *dependencyData, size_t numDependencies, uint32_t flags) {
  struct vgpu_driver *driver;
  uint64_t number;
  int result = enter(hStream, &driver, &number);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_captured_stream *stream = vgpu_capture_find(driver, number);
  const struct vgpu_links tips = {.nodes = (struct vgpu_node **)dependencies,
                                  .data = (uint64_t *)(uintptr_t)dependencyData,
                                  .count = numDependencies};
  if (stream == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_ILLEGAL_STATE);
  if (flags > 1) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  result = check_tips(driver, stream->capture->graph, &tips);
  if (result != CUDA_SUCCESS) return vgpu_graph_leave(driver, result);
  bool done = flags == 1 ? vgpu_links_copy(&stream->tips, &tips) : vgpu_links_join(&stream->tips, &tips);
  return vgpu_graph_leave(driver, done ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

int cuStreamUpdateCaptureDependencies(struct vgpu_stream *hStream, void **dependencies,
                                      size_t numDependencies, uint32_t flags) {
  return cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, NULL, numDependencies, flags);
}

/* Sets which calls are allowed during a capture. This library forbids none, so it only stores the mode. */
int cuThreadExchangeStreamCaptureMode(int32_t *mode) {
  static __thread int32_t own = VGPU_MODE_GLOBAL;
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (mode == NULL || *mode < VGPU_MODE_GLOBAL || *mode > VGPU_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  int32_t before = own;
  own = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}
