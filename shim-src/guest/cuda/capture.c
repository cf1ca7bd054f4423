/*
 * Stream capture. Calls come here on their way to the host, as the frames they would be; a stream that
 * captures makes nodes of them. What an event recorded on such a stream marks is kept with the event, and
 * a stream that waits for it joins the capture.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/graph.h"

enum {
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901,
  CAPTURE_MERGE = 902,
  CAPTURE_UNMATCHED = 903,
  CAPTURE_UNJOINED = 904,
  CAPTURE_WRONG_THREAD = 908,
};

enum { STATUS_NONE = 0, STATUS_ACTIVE = 1, STATUS_INVALIDATED = 2 };
enum { MODE_GLOBAL = 0, MODE_THREAD_LOCAL = 1, MODE_RELAXED = 2 };

#define PER_THREAD 2u

struct tips {
  struct vgpu_node **nodes; /* what the next node depends on */
  size_t count;
};

struct vgpu_capture {
  uint64_t id;
  struct vgpu_graph *graph;
  bool into_given; /* the program's own graph */
  int32_t mode;
  uint64_t origin; /* stream */
  pthread_t thread;
  bool invalid;
};

struct vgpu_captured_stream {
  struct vgpu_captured_stream *next;
  uint64_t stream;
  pthread_t thread; /* whose per-thread stream it is */
  struct vgpu_capture *capture;
  struct tips tips;
};

struct vgpu_captured_event {
  struct vgpu_captured_event *next;
  uint64_t event;
  struct vgpu_capture *capture;
  struct tips tips;
};

static bool copy_tips(struct tips *to, const struct tips *from) {
  struct vgpu_node **nodes = malloc((from->count + 1) * sizeof(struct vgpu_node *));
  if (nodes == NULL) return false;
  if (from->count > 0) memcpy(nodes, from->nodes, from->count * sizeof(struct vgpu_node *));
  free(to->nodes);
  to->nodes = nodes;
  to->count = from->count;
  return true;
}

static bool add_tips(struct tips *to, const struct tips *more) {
  struct vgpu_node **nodes = realloc(to->nodes, (to->count + more->count + 1) * sizeof(struct vgpu_node *));
  if (nodes == NULL) return false;
  to->nodes = nodes;
  for (size_t i = 0; i < more->count; i++) {
    bool there = false;
    for (size_t j = 0; j < to->count; j++) there = there || to->nodes[j] == more->nodes[i];
    if (!there) to->nodes[to->count++] = more->nodes[i];
  }
  return true;
}

static struct vgpu_captured_stream *find_stream(struct vgpu_driver *driver, uint64_t stream) {
  struct vgpu_captured_stream *found = driver->captured_streams;
  while (found != NULL && (found->stream != stream ||
                           (stream == PER_THREAD && !pthread_equal(found->thread, pthread_self())))) {
    found = found->next;
  }
  return found;
}

static struct vgpu_captured_event *find_event(struct vgpu_driver *driver, uint64_t event) {
  struct vgpu_captured_event *found = driver->captured_events;
  while (found != NULL && found->event != event) found = found->next;
  return found;
}

static bool none(struct vgpu_driver *driver) {
  return __atomic_load_n(&driver->capturing, __ATOMIC_ACQUIRE) == 0;
}

/* The stream of a handle as frames have it; no check of the handle. */
static uint64_t number_of(const struct vgpu_stream *stream) {
  return (uintptr_t)stream <= PER_THREAD ? (uint64_t)(uintptr_t)stream : stream->number;
}

static bool stream_of_frame(uint32_t opcode, const void *body, uint32_t body_size, uint64_t *stream) {
  uint32_t entry = opcode & ~VGPU_OP_RANGE_MASK;
  uint16_t field = entry < VGPU_STREAM_FIELDS ? vgpu_stream_fields[entry] : 0;
  if ((opcode & VGPU_OP_RANGE_MASK) != VGPU_OP_CUDA || field == 0 ||
      field - 1u + sizeof *stream > body_size) {
    return false;
  }
  memcpy(stream, (const unsigned char *)body + field - 1, sizeof *stream);
  return true;
}

/* The next node of a stream; takes `work` over. */
static int append(struct vgpu_driver *driver, struct vgpu_captured_stream *stream, struct vgpu_work *work) {
  struct tips *tips = &stream->tips;
  struct vgpu_node *node = vgpu_graph_add(driver, stream->capture->graph, tips->nodes, tips->count, work);
  struct tips one = {.nodes = &node, .count = 1};
  if (node != NULL && copy_tips(tips, &one)) return VGPU_CUDA_SUCCESS;
  stream->capture->invalid = true;
  return VGPU_CUDA_OUT_OF_MEMORY;
}

static enum vgpu_node_kind kind_of(uint32_t opcode) {
  switch (opcode) {
    case VGPU_OP_cuLaunchKernelEx:
      return VGPU_NODE_KERNEL;
    case VGPU_OP_cuMemsetD8Async:
    case VGPU_OP_cuMemsetD16Async:
    case VGPU_OP_cuMemsetD32Async:
    case VGPU_OP_cuMemsetD2D8Async:
      return VGPU_NODE_MEMSET;
    default:
      return VGPU_NODE_MEMCPY;
  }
}

static int capture_frame(struct vgpu_driver *driver, struct vgpu_captured_stream *stream, uint32_t opcode,
                         const void *body, uint32_t body_size, const void *bulk, uint32_t bulk_size) {
  if (stream->capture->invalid) return CAPTURE_INVALIDATED;
  struct vgpu_work work = {.kind = kind_of(opcode)};
  if (opcode == VGPU_OP_cuMemcpyHtoDAsync_v2) {
    /* What lies there when the graph is launched is what is to be copied. */
    struct vgpu_send_cuMemcpyHtoDAsync_v2 send;
    memcpy(&send, body, sizeof send);
    work.step = VGPU_STEP_TO_DEVICE;
    work.host = (void *)(uintptr_t)bulk;
    work.device = send.destination;
    work.size = bulk_size;
    return append(driver, stream, &work);
  }
  if (bulk_size > 0 && opcode != VGPU_OP_cuLaunchKernelEx) {
    stream->capture->invalid = true; /* bytes that are packed for this one time */
    return CAPTURE_UNSUPPORTED;
  }
  if (!vgpu_work_frame(&work, opcode, body, body_size, bulk, bulk_size)) return VGPU_CUDA_OUT_OF_MEMORY;
  return append(driver, stream, &work);
}

static void forget_event(struct vgpu_driver *driver, uint64_t event) {
  for (struct vgpu_captured_event **link = &driver->captured_events; *link != NULL; link = &(*link)->next) {
    struct vgpu_captured_event *found = *link;
    if (found->event != event) continue;
    *link = found->next;
    free(found->tips.nodes);
    free(found);
    return;
  }
}

static int record_event(struct vgpu_driver *driver, const struct vgpu_captured_stream *stream,
                        uint64_t event) {
  forget_event(driver, event);
  struct vgpu_captured_event *made = calloc(1, sizeof *made);
  if (made == NULL || !copy_tips(&made->tips, &stream->tips)) {
    free(made);
    return VGPU_CUDA_OUT_OF_MEMORY;
  }
  made->event = event;
  made->capture = stream->capture;
  made->next = driver->captured_events;
  driver->captured_events = made;
  return VGPU_CUDA_SUCCESS;
}

static struct vgpu_captured_stream *join(struct vgpu_driver *driver, uint64_t number,
                                         struct vgpu_capture *capture) {
  struct vgpu_captured_stream *stream = calloc(1, sizeof *stream);
  if (stream == NULL) return NULL;
  stream->stream = number;
  stream->thread = pthread_self();
  stream->capture = capture;
  stream->next = driver->captured_streams;
  driver->captured_streams = stream;
  return stream;
}

/* Waiting for what a capture has recorded joins it; a stream cannot be in two. */
static int wait_event(struct vgpu_driver *driver, uint64_t number, const struct vgpu_captured_event *event) {
  struct vgpu_captured_stream *stream = find_stream(driver, number);
  if (stream != NULL && stream->capture != event->capture) {
    stream->capture->invalid = true;
    return CAPTURE_MERGE;
  }
  if (stream == NULL) stream = join(driver, number, event->capture);
  return stream != NULL && add_tips(&stream->tips, &event->tips) ? VGPU_CUDA_SUCCESS
                                                                 : VGPU_CUDA_OUT_OF_MEMORY;
}

/* With graph_lock held. False: not captured, to be sent. */
static bool capture_locked(struct vgpu_driver *driver, uint32_t opcode, uint64_t number, const void *body,
                           uint32_t body_size, const void *bulk, uint32_t bulk_size, int *result) {
  struct vgpu_captured_stream *stream = find_stream(driver, number);
  if (opcode == VGPU_OP_cuStreamWaitEvent) {
    struct vgpu_send_cuStreamWaitEvent send;
    memcpy(&send, body, sizeof send);
    const struct vgpu_captured_event *event = find_event(driver, send.event);
    if (event != NULL) {
      *result = wait_event(driver, number, event);
      return true;
    }
    if (stream == NULL) return false;
    stream->capture->invalid = true; /* it would wait for what is outside of the graph */
    *result = 905;                   /* CUDA_ERROR_STREAM_CAPTURE_ISOLATION */
    return true;
  }
  if (opcode == VGPU_OP_cuEventRecordWithFlags) {
    struct vgpu_send_cuEventRecordWithFlags send;
    memcpy(&send, body, sizeof send);
    if (stream == NULL) {
      forget_event(driver, send.event);
      return false;
    }
    *result = record_event(driver, stream, send.event);
    return true;
  }
  if (stream == NULL) return false;
  *result = capture_frame(driver, stream, opcode, body, body_size, bulk, bulk_size);
  return true;
}

bool vgpu_capture_post(struct vgpu_driver *driver, uint32_t opcode, const void *body, uint32_t body_size,
                       const void *bulk, uint32_t bulk_size, int *result) {
  uint64_t stream;
  if (none(driver) || !stream_of_frame(opcode, body, body_size, &stream)) return false;
  pthread_mutex_lock(&driver->graph_lock);
  bool captured = capture_locked(driver, opcode, stream, body, body_size, bulk, bulk_size, result);
  pthread_mutex_unlock(&driver->graph_lock);
  return captured;
}

bool vgpu_capture_ask(struct vgpu_driver *driver, uint32_t opcode, const void *body, uint32_t body_size,
                      void *into, uint32_t into_size, int *result) {
  uint64_t number;
  if (none(driver) || !stream_of_frame(opcode, body, body_size, &number)) return false;
  pthread_mutex_lock(&driver->graph_lock);
  struct vgpu_captured_stream *stream = find_stream(driver, number);
  if (stream != NULL && opcode == VGPU_OP_cuMemcpyDtoHAsync_v2 && !stream->capture->invalid) {
    struct vgpu_send_cuMemcpyDtoHAsync_v2 send;
    memcpy(&send, body, sizeof send);
    struct vgpu_work work = {.kind = VGPU_NODE_MEMCPY,
                             .step = VGPU_STEP_FROM_DEVICE,
                             .host = into,
                             .device = send.source,
                             .size = into_size};
    *result = append(driver, stream, &work);
  } else if (stream != NULL) {
    *result = stream->capture->invalid ? CAPTURE_INVALIDATED : CAPTURE_UNSUPPORTED;
    stream->capture->invalid = true;
  }
  pthread_mutex_unlock(&driver->graph_lock);
  return stream != NULL;
}

bool vgpu_capture_function(struct vgpu_driver *driver, struct vgpu_stream *handle, void (*function)(void *),
                           void *data, int *result) {
  if (none(driver)) return false;
  pthread_mutex_lock(&driver->graph_lock);
  struct vgpu_captured_stream *stream = find_stream(driver, number_of(handle));
  if (stream != NULL) {
    struct vgpu_work work = {
        .kind = VGPU_NODE_HOST, .step = VGPU_STEP_FUNCTION, .function = function, .data = data};
    *result = stream->capture->invalid ? CAPTURE_INVALIDATED : append(driver, stream, &work);
  }
  pthread_mutex_unlock(&driver->graph_lock);
  return stream != NULL;
}

bool vgpu_capture_on(struct vgpu_driver *driver, uint64_t number) {
  if (none(driver)) return false;
  pthread_mutex_lock(&driver->graph_lock);
  bool on = find_stream(driver, number) != NULL;
  pthread_mutex_unlock(&driver->graph_lock);
  return on;
}

bool vgpu_capture_forbids(struct vgpu_driver *driver, const struct vgpu_stream *handle, int *result) {
  if (driver == NULL || none(driver)) return false;
  pthread_mutex_lock(&driver->graph_lock);
  struct vgpu_captured_stream *stream = find_stream(driver, number_of(handle));
  if (stream != NULL) {
    *result = stream->capture->invalid ? CAPTURE_INVALIDATED : CAPTURE_UNSUPPORTED;
    stream->capture->invalid = true;
  }
  pthread_mutex_unlock(&driver->graph_lock);
  return stream != NULL;
}

int32_t vgpu_capture_status(struct vgpu_driver *driver, const struct vgpu_stream *handle) {
  if (none(driver)) return STATUS_NONE;
  pthread_mutex_lock(&driver->graph_lock);
  const struct vgpu_captured_stream *stream = find_stream(driver, number_of(handle));
  int32_t status = stream == NULL             ? STATUS_NONE
                   : stream->capture->invalid ? STATUS_INVALIDATED
                                              : STATUS_ACTIVE;
  pthread_mutex_unlock(&driver->graph_lock);
  return status;
}

/* ---- the API ------------------------------------------------------------- */

static int enter(struct vgpu_stream *handle, struct vgpu_driver **driver, uint64_t *number) {
  int result;
  *driver = vgpu_cuda_driver(&result);
  if (*driver == NULL) return result;
  result = vgpu_cuda_stream_number(*driver, handle, number);
  if (result == VGPU_CUDA_SUCCESS) pthread_mutex_lock(&(*driver)->graph_lock);
  return result;
}

static int leave(struct vgpu_driver *driver, int result) {
  pthread_mutex_unlock(&driver->graph_lock);
  return result;
}

static int begin(struct vgpu_driver *driver, uint64_t number, int32_t mode, struct vgpu_graph *given,
                 const struct tips *tips) {
  /* The legacy default stream waits for all others and cannot be captured. */
  if (number < PER_THREAD) return CAPTURE_UNSUPPORTED;
  if (find_stream(driver, number) != NULL) return VGPU_CUDA_INVALID_VALUE;
  struct vgpu_capture *capture = calloc(1, sizeof *capture);
  struct vgpu_graph *graph = given != NULL ? given : vgpu_graph_make(driver);
  struct vgpu_captured_stream *stream =
      capture == NULL || graph == NULL ? NULL : join(driver, number, capture);
  if (stream == NULL) {
    if (given == NULL && graph != NULL) vgpu_graph_free(driver, graph);
    free(capture);
    return VGPU_CUDA_OUT_OF_MEMORY;
  }
  *capture = (struct vgpu_capture){.id = ++driver->captures,
                                   .graph = graph,
                                   .into_given = given != NULL,
                                   .mode = mode,
                                   .origin = number,
                                   .thread = pthread_self()};
  if (tips != NULL && !copy_tips(&stream->tips, tips)) capture->invalid = true;
  __atomic_add_fetch(&driver->capturing, 1, __ATOMIC_ACQ_REL);
  return VGPU_CUDA_SUCCESS;
}

int cuStreamBeginCapture_v2(struct vgpu_stream *hStream, int32_t mode) {
  struct vgpu_driver *driver;
  uint64_t number;
  int result = enter(hStream, &driver, &number);
  if (result != VGPU_CUDA_SUCCESS) return result;
  if (mode < MODE_GLOBAL || mode > MODE_RELAXED) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  return leave(driver, begin(driver, number, mode, NULL, NULL));
}

int cuStreamBeginCapture(struct vgpu_stream *hStream) {
  return cuStreamBeginCapture_v2(hStream, MODE_GLOBAL);
}

int cuStreamBeginCaptureToGraph(struct vgpu_stream *hStream, void *hGraph, const void **dependencies,
                                const void *dependencyData, size_t numDependencies, int32_t mode) {
  struct vgpu_driver *driver;
  uint64_t number;
  int result = enter(hStream, &driver, &number);
  if (result != VGPU_CUDA_SUCCESS) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (graph == NULL || mode < MODE_GLOBAL || mode > MODE_RELAXED ||
      (numDependencies > 0 && dependencies == NULL)) {
    return leave(driver, VGPU_CUDA_INVALID_VALUE);
  }
  if (dependencyData != NULL) return leave(driver, VGPU_CUDA_NOT_SUPPORTED);
  for (size_t i = 0; i < numDependencies; i++) {
    struct vgpu_node *node = vgpu_node_find(driver, dependencies[i]);
    if (node == NULL || node->graph != graph) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  }
  struct tips tips = {.nodes = (struct vgpu_node **)(uintptr_t)dependencies, .count = numDependencies};
  return leave(driver, begin(driver, number, mode, graph, &tips));
}

/* Whether everything of the capture leads to where its first stream ends. */
static bool is_joined(struct vgpu_driver *driver, const struct vgpu_capture *capture,
                      const struct tips *ends) {
  struct vgpu_graph *graph = capture->graph;
  for (size_t i = 0; i < graph->count; i++) graph->nodes[i]->mark = 0;
  for (size_t i = 0; i < ends->count; i++) ends->nodes[i]->mark = 1;
  /* Nodes of a capture only depend on earlier ones. */
  for (size_t i = graph->count; i > 0; i--) {
    const struct vgpu_node *node = graph->nodes[i - 1];
    for (size_t j = 0; node->mark == 1 && j < node->dependency_count; j++) node->dependencies[j]->mark = 1;
  }
  for (struct vgpu_captured_stream *stream = driver->captured_streams; stream != NULL;
       stream = stream->next) {
    for (size_t i = 0; stream->capture == capture && i < stream->tips.count; i++) {
      if (stream->tips.nodes[i]->mark == 0) return false;
    }
  }
  return true;
}

static void end(struct vgpu_driver *driver, struct vgpu_capture *capture) {
  for (struct vgpu_captured_stream **link = &driver->captured_streams; *link != NULL;) {
    struct vgpu_captured_stream *stream = *link;
    if (stream->capture != capture) {
      link = &stream->next;
      continue;
    }
    *link = stream->next;
    free(stream->tips.nodes);
    free(stream);
  }
  for (struct vgpu_captured_event **link = &driver->captured_events; *link != NULL;) {
    struct vgpu_captured_event *event = *link;
    if (event->capture != capture) {
      link = &event->next;
      continue;
    }
    *link = event->next;
    free(event->tips.nodes);
    free(event);
  }
  free(capture);
  __atomic_sub_fetch(&driver->capturing, 1, __ATOMIC_ACQ_REL);
}

int cuStreamEndCapture(struct vgpu_stream *hStream, void **phGraph) {
  struct vgpu_driver *driver;
  uint64_t number;
  int result = enter(hStream, &driver, &number);
  if (result != VGPU_CUDA_SUCCESS) return result;
  struct vgpu_captured_stream *stream = find_stream(driver, number);
  if (phGraph == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  *phGraph = NULL;
  if (stream == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  struct vgpu_capture *capture = stream->capture;
  if (capture->origin != number) return leave(driver, CAPTURE_UNMATCHED);
  if (capture->mode != MODE_RELAXED && !pthread_equal(capture->thread, pthread_self())) {
    return leave(driver, CAPTURE_WRONG_THREAD);
  }
  if (capture->invalid) result = CAPTURE_INVALIDATED;
  else if (!is_joined(driver, capture, &stream->tips)) result = CAPTURE_UNJOINED;
  if (result == VGPU_CUDA_SUCCESS) *phGraph = capture->graph;
  else if (!capture->into_given) vgpu_graph_free(driver, capture->graph);
  end(driver, capture);
  return leave(driver, result);
}

int cuStreamGetCaptureInfo_v3(struct vgpu_stream *hStream, int32_t *captureStatus_out, uint64_t *id_out,
                              void **graph_out, const void ***dependencies_out, const void **edgeData_out,
                              size_t *numDependencies_out) {
  struct vgpu_driver *driver;
  uint64_t number;
  int result = enter(hStream, &driver, &number);
  if (result != VGPU_CUDA_SUCCESS) return result;
  if (captureStatus_out == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  struct vgpu_captured_stream *stream = find_stream(driver, number);
  *captureStatus_out = stream == NULL             ? STATUS_NONE
                       : stream->capture->invalid ? STATUS_INVALIDATED
                                                  : STATUS_ACTIVE;
  if (stream == NULL) return leave(driver, VGPU_CUDA_SUCCESS);
  if (id_out != NULL) *id_out = stream->capture->id;
  if (graph_out != NULL) *graph_out = stream->capture->graph;
  if (dependencies_out != NULL) *dependencies_out = (const void **)(uintptr_t)stream->tips.nodes;
  if (edgeData_out != NULL) *edgeData_out = NULL;
  if (numDependencies_out != NULL) *numDependencies_out = stream->tips.count;
  return leave(driver, VGPU_CUDA_SUCCESS);
}

int cuStreamGetCaptureInfo_v2(struct vgpu_stream *hStream, int32_t *captureStatus_out, uint64_t *id_out,
                              void **graph_out, const void ***dependencies_out, size_t *numDependencies_out) {
  return cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL,
                                   numDependencies_out);
}

int cuStreamGetCaptureInfo(struct vgpu_stream *hStream, int32_t *captureStatus_out, uint64_t *id_out) {
  return cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, NULL, NULL, NULL, NULL);
}

/* Flag 0 adds to what the next node depends on, 1 replaces it. */
int cuStreamUpdateCaptureDependencies(struct vgpu_stream *hStream, void **dependencies,
                                      size_t numDependencies, uint32_t flags) {
  struct vgpu_driver *driver;
  uint64_t number;
  int result = enter(hStream, &driver, &number);
  if (result != VGPU_CUDA_SUCCESS) return result;
  struct vgpu_captured_stream *stream = find_stream(driver, number);
  if (stream == NULL || flags > 1 || (numDependencies > 0 && dependencies == NULL)) {
    return leave(driver, stream == NULL ? 401 : VGPU_CUDA_INVALID_VALUE); /* CUDA_ERROR_ILLEGAL_STATE */
  }
  for (size_t i = 0; i < numDependencies; i++) {
    struct vgpu_node *node = vgpu_node_find(driver, dependencies[i]);
    if (node == NULL || node->graph != stream->capture->graph) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  }
  const struct tips tips = {.nodes = (struct vgpu_node **)dependencies, .count = numDependencies};
  bool done = flags == 1 ? copy_tips(&stream->tips, &tips) : add_tips(&stream->tips, &tips);
  return leave(driver, done ? VGPU_CUDA_SUCCESS : VGPU_CUDA_OUT_OF_MEMORY);
}

int cuStreamUpdateCaptureDependencies_v2(struct vgpu_stream *hStream, void **dependencies,
                                         const void *dependencyData, size_t numDependencies, uint32_t flags) {
  if (dependencyData != NULL) return VGPU_CUDA_NOT_SUPPORTED;
  return cuStreamUpdateCaptureDependencies(hStream, dependencies, numDependencies, flags);
}

/* What a thread may call while something captures: nothing is forbidden here, so it is only kept. */
int cuThreadExchangeStreamCaptureMode(int32_t *mode) {
  static __thread int32_t own = MODE_GLOBAL;
  int result = vgpu_cuda_ready();
  if (result != VGPU_CUDA_SUCCESS) return result;
  if (mode == NULL || *mode < MODE_GLOBAL || *mode > MODE_RELAXED) return VGPU_CUDA_INVALID_VALUE;
  int32_t before = own;
  own = *mode;
  *mode = before;
  return VGPU_CUDA_SUCCESS;
}
