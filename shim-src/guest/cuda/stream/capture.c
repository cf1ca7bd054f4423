/* Captures calls before they are sent: a frame of a stream that captures becomes a node of the graph. */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/stream/capture.h"

struct vgpu_captured_stream *vgpu_capture_find(struct vgpu_driver *driver, uint64_t stream) {
  struct vgpu_captured_stream *found = driver->captured_streams;
  while (found != NULL && (found->stream != stream ||
                           (stream == VGPU_PER_THREAD && !pthread_equal(found->thread, pthread_self())))) {
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

/*
 * Returns the stream number that frames have for a handle. For an invalid handle that is a number that no
 * stream has.
 */
static uint64_t number_of(struct vgpu_driver *driver, const struct vgpu_stream *stream) {
  if ((uintptr_t)stream <= VGPU_PER_THREAD) return (uint64_t)(uintptr_t)stream;
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_has(&driver->objects, stream, VGPU_OBJECT_STREAM);
  uint64_t number = live ? stream->number : UINT64_MAX;
  pthread_mutex_unlock(&driver->lock);
  return number;
}

/*
 * False: the frame is not work of a stream. A frame that destroys a stream or sets its attributes names the
 * stream, but is not its work.
 */
static bool stream_of_frame(uint32_t opcode, const void *body, uint32_t body_size, uint64_t *stream) {
  if (opcode == VGPU_OP_cuStreamDestroy_v2 || opcode == VGPU_OP_cuStreamSetAttribute) return false;
  uint32_t entry = opcode & ~VGPU_OP_RANGE_MASK;
  uint16_t field = entry < VGPU_STREAM_FIELDS ? vgpu_stream_fields[entry] : 0;
  if ((opcode & VGPU_OP_RANGE_MASK) != VGPU_OP_CUDA || field == 0 ||
      field - 1u + sizeof *stream > body_size) {
    return false;
  }
  memcpy(stream, (const unsigned char *)body + field - 1, sizeof *stream);
  return true;
}

/* Adds the next node of a stream and takes `work` over. */
static int append(struct vgpu_driver *driver, struct vgpu_captured_stream *stream, struct vgpu_work *work) {
  for (size_t i = 0; i < stream->tips.count; i++) {
    int result = vgpu_edge_check(stream->tips.data[i], stream->tips.nodes[i]->work.kind, work->kind);
    if (result == CUDA_SUCCESS) continue;
    vgpu_work_free(work);
    return result;
  }
  struct vgpu_node *node = vgpu_graph_add(driver, stream->capture->graph, &stream->tips, work);
  const struct vgpu_links one = {.nodes = &node, .count = 1};
  if (node != NULL && vgpu_links_copy(&stream->tips, &one)) return CUDA_SUCCESS;
  stream->capture->invalid = true;
  return CUDA_ERROR_OUT_OF_MEMORY;
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
  if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  struct vgpu_work work = {.kind = kind_of(opcode)};
  if (opcode == VGPU_OP_cuMemcpyHtoDAsync_v2) {
    /*
     * The copy reads the bytes that are in memory when the graph is launched, so only the address is stored.
     */
    struct vgpu_send_cuMemcpyHtoDAsync_v2 send;
    memcpy(&send, body, sizeof send);
    work.step = VGPU_STEP_TO_DEVICE;
    work.host = (void *)(uintptr_t)bulk;
    work.device = send.destination;
    work.size = bulk_size;
    return append(driver, stream, &work);
  }
  if (bulk_size > 0 && opcode != VGPU_OP_cuLaunchKernelEx) {
    stream->capture->invalid = true; /* the packed bytes exist only during this call */
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (!vgpu_work_frame(&work, opcode, body, body_size, bulk, bulk_size)) return CUDA_ERROR_OUT_OF_MEMORY;
  return append(driver, stream, &work);
}

static void forget_event(struct vgpu_driver *driver, uint64_t event) {
  for (struct vgpu_captured_event **link = &driver->captured_events; *link != NULL; link = &(*link)->next) {
    struct vgpu_captured_event *found = *link;
    if (found->event != event) continue;
    *link = found->next;
    vgpu_links_free(&found->tips);
    free(found);
    return;
  }
}

static int record_event(struct vgpu_driver *driver, const struct vgpu_captured_stream *stream,
                        uint64_t event) {
  forget_event(driver, event);
  struct vgpu_captured_event *made = calloc(1, sizeof *made);
  if (made == NULL || !vgpu_links_copy(&made->tips, &stream->tips)) {
    free(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  made->event = event;
  made->capture = stream->capture;
  made->next = driver->captured_events;
  driver->captured_events = made;
  return CUDA_SUCCESS;
}

struct vgpu_captured_stream *vgpu_capture_join(struct vgpu_driver *driver, uint64_t number,
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

/* A stream that waits for an event of a capture joins that capture. A stream cannot be in two captures. */
static int wait_event(struct vgpu_driver *driver, uint64_t number, const struct vgpu_captured_event *event) {
  struct vgpu_captured_stream *stream = vgpu_capture_find(driver, number);
  if (stream != NULL && stream->capture != event->capture) {
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (stream == NULL) stream = vgpu_capture_join(driver, number, event->capture);
  return stream != NULL && vgpu_links_join(&stream->tips, &event->tips) ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The caller holds graph_lock. False: the frame is not captured and must be sent. */
static bool capture_locked(struct vgpu_driver *driver, uint32_t opcode, uint64_t number, const void *body,
                           uint32_t body_size, const void *bulk, uint32_t bulk_size, int *result) {
  struct vgpu_captured_stream *stream = vgpu_capture_find(driver, number);
  if (opcode == VGPU_OP_cuStreamWaitEvent) {
    struct vgpu_send_cuStreamWaitEvent send;
    memcpy(&send, body, sizeof send);
    const struct vgpu_captured_event *event = find_event(driver, send.event);
    if (event != NULL) {
      *result = wait_event(driver, number, event);
      return true;
    }
    if (stream == NULL) return false;
    stream->capture->invalid = true; /* the stream would wait for work outside the graph */
    *result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
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
  struct vgpu_captured_stream *stream = vgpu_capture_find(driver, number);
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
    *result = stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                       : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    stream->capture->invalid = true;
  }
  pthread_mutex_unlock(&driver->graph_lock);
  return stream != NULL;
}

bool vgpu_capture_function(struct vgpu_driver *driver, struct vgpu_stream *handle, void (*function)(void *),
                           void *data, int *result) {
  if (none(driver)) return false;
  pthread_mutex_lock(&driver->graph_lock);
  struct vgpu_captured_stream *stream = vgpu_capture_find(driver, number_of(driver, handle));
  if (stream != NULL) {
    struct vgpu_work work = {
        .kind = VGPU_NODE_HOST, .step = VGPU_STEP_FUNCTION, .function = function, .data = data};
    *result =
        stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : append(driver, stream, &work);
  }
  pthread_mutex_unlock(&driver->graph_lock);
  return stream != NULL;
}

bool vgpu_capture_node(struct vgpu_driver *driver, const struct vgpu_stream *handle,
                       struct vgpu_node_params *params, int *result) {
  if (none(driver)) return false;
  pthread_mutex_lock(&driver->graph_lock);
  struct vgpu_captured_stream *stream = vgpu_capture_find(driver, number_of(driver, handle));
  if (stream != NULL && stream->capture->invalid) {
    *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (stream != NULL) {
    struct vgpu_node *node = NULL;
    *result = vgpu_node_add(driver, stream->capture->graph, &stream->tips, params, &node);
    const struct vgpu_links one = {.nodes = &node, .count = 1};
    if (*result == CUDA_SUCCESS && !vgpu_links_copy(&stream->tips, &one)) {
      stream->capture->invalid = true;
      *result = CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  pthread_mutex_unlock(&driver->graph_lock);
  return stream != NULL;
}

bool vgpu_capture_on(struct vgpu_driver *driver, uint64_t number) {
  if (none(driver)) return false;
  pthread_mutex_lock(&driver->graph_lock);
  bool on = vgpu_capture_find(driver, number) != NULL;
  pthread_mutex_unlock(&driver->graph_lock);
  return on;
}

bool vgpu_capture_forbids(struct vgpu_driver *driver, const struct vgpu_stream *handle, int *result) {
  if (driver == NULL || none(driver)) return false;
  pthread_mutex_lock(&driver->graph_lock);
  struct vgpu_captured_stream *stream = vgpu_capture_find(driver, number_of(driver, handle));
  if (stream != NULL) {
    *result = stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                       : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    stream->capture->invalid = true;
  }
  pthread_mutex_unlock(&driver->graph_lock);
  return stream != NULL;
}

int32_t vgpu_capture_status_of(const struct vgpu_captured_stream *stream) {
  enum { NONE = 0, ACTIVE = 1, INVALIDATED = 2 };
  if (stream == NULL) return NONE;
  return stream->capture->invalid ? INVALIDATED : ACTIVE;
}

int32_t vgpu_capture_status(struct vgpu_driver *driver, const struct vgpu_stream *handle) {
  if (none(driver)) return vgpu_capture_status_of(NULL);
  pthread_mutex_lock(&driver->graph_lock);
  int32_t status = vgpu_capture_status_of(vgpu_capture_find(driver, number_of(driver, handle)));
  pthread_mutex_unlock(&driver->graph_lock);
  return status;
}

static bool has_number(void *handle, void *with) {
  const struct vgpu_stream *stream = handle;
  uint64_t *wanted = with;
  if (stream->number == *wanted && !stream->detached) *wanted = 0;
  return false; /* search only, remove nothing */
}

/*
 * True if the stream on which a capture began still exists. For a per-thread stream this is not known; the
 * answer is true.
 */
static bool has_origin(struct vgpu_driver *driver, const struct vgpu_capture *capture) {
  uint64_t wanted = capture->origin;
  if (wanted == VGPU_PER_THREAD) return true;
  pthread_mutex_lock(&driver->lock);
  vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_STREAM, has_number, &wanted);
  pthread_mutex_unlock(&driver->lock);
  return wanted == 0;
}

void vgpu_capture_streams_ended(struct vgpu_driver *driver) {
  if (none(driver)) return;
  pthread_mutex_lock(&driver->graph_lock);
  struct vgpu_captured_stream *stream = driver->captured_streams;
  bool ended = false;
  while (stream != NULL) {
    struct vgpu_capture *capture = stream->capture;
    stream = stream->next;
    if (has_origin(driver, capture)) continue;
    if (!capture->into_given) vgpu_graph_free(driver, capture->graph);
    vgpu_capture_end(driver, capture);
    stream = driver->captured_streams; /* vgpu_capture_end removed other streams of it, too */
    ended = true;
  }
  pthread_mutex_unlock(&driver->graph_lock);
  if (ended) vgpu_graph_memory_sweep(driver);
}

/*
 * The dependencies from cuStreamGetCaptureInfo are valid until the capture ends, but NVIDIA's own C++ code
 * reads them right after that. They stay until the next capture ends.
 */
static void keep_for_late_readers(struct vgpu_driver *driver, struct vgpu_captured_stream *stream) {
  struct vgpu_captured_stream *before = driver->last_captured;
  driver->last_captured = stream;
  if (before == NULL) return;
  vgpu_links_free(&before->tips);
  free(before);
}

void vgpu_capture_end(struct vgpu_driver *driver, struct vgpu_capture *capture) {
  for (struct vgpu_captured_stream **link = &driver->captured_streams; *link != NULL;) {
    struct vgpu_captured_stream *stream = *link;
    if (stream->capture != capture) {
      link = &stream->next;
      continue;
    }
    *link = stream->next;
    stream->capture = NULL;
    if (stream->stream == capture->origin) {
      keep_for_late_readers(driver, stream);
    } else {
      vgpu_links_free(&stream->tips);
      free(stream);
    }
  }
  for (struct vgpu_captured_event **link = &driver->captured_events; *link != NULL;) {
    struct vgpu_captured_event *event = *link;
    if (event->capture != capture) {
      link = &event->next;
      continue;
    }
    *link = event->next;
    vgpu_links_free(&event->tips);
    free(event);
  }
  free(capture);
  __atomic_sub_fetch(&driver->capturing, 1, __ATOMIC_ACQ_REL);
}
