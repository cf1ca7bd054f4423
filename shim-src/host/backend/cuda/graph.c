/*
 * Executable graphs of the driver. The work of a graph is run once on a stream that captures, and the
 * captured graph is instantiated. If the driver cannot do that, nothing is lost: the work is then run call by
 * call at each launch.
 */
#include "host/backend/cuda/graph.h"

#include "host/backend/cuda/session.h"
#include "host/backend/cuda/slice.h"

#define NON_BLOCKING 1u
#define RELAXED 2 /* CU_STREAM_CAPTURE_MODE_RELAXED: the capture allows this thread's other calls */

bool vgpu_cuda_graph_begin(struct vgpu_worker *worker, uint64_t context) {
  struct vgpu_cuda *cuda;
  if (vgpu_cuda_enter(worker, context, &cuda) != CUDA_SUCCESS || cuda->recording != NULL) return false;
  struct vgpu_stream *stream = NULL;
  if (VGPU_DRIVER(&cuda->api, cuStreamCreate, &stream, NON_BLOCKING) != CUDA_SUCCESS) return false;
  if (VGPU_DRIVER(&cuda->api, cuStreamBeginCapture_v2, stream, RELAXED) != CUDA_SUCCESS) {
    VGPU_DRIVER(&cuda->api, cuStreamDestroy_v2, stream);
    return false;
  }
  cuda->recording = stream;
  return true;
}

void *vgpu_cuda_graph_end(struct vgpu_worker *worker, bool keep) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  void *graph = NULL, *exec = NULL;
  struct vgpu_stream *stream = cuda->recording;
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

void vgpu_cuda_graph_destroy(struct vgpu_worker *worker, void *graph) {
  VGPU_DRIVER(&cuda_of(worker)->api, cuGraphExecDestroy, graph);
}
