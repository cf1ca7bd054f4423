#include "host/backend/cuda/waiting_call.h"

#include <stdlib.h>

#include "host/backend/cuda/session.h"
#include "wire/clock.h"

#define NO_TIMING 2u    /* CU_EVENT_DISABLE_TIMING */
#define NON_BLOCKING 1u /* CU_STREAM_NON_BLOCKING */
#define LEGACY ((struct vgpu_stream *)1)
#define PER_THREAD ((struct vgpu_stream *)2)

int32_t vgpu_cuda_wait(struct vgpu_worker *worker, int (*query)(struct vgpu_worker *worker, void *what),
                       void *what) {
  const uint64_t begin = vgpu_now_ns();
  int32_t result = query(worker, what);
  /* Parked calls must not wait for this one. */
  if (worker->link.parked > 0) return result == CUDA_ERROR_NOT_READY ? VGPU_WAITS : result;
  while (result == CUDA_ERROR_NOT_READY && vgpu_now_ns() - begin < worker->backend->awake_ns &&
         !vgpu_link_has_more(&worker->link))
    result = query(worker, what);
  return result == CUDA_ERROR_NOT_READY ? VGPU_WAITS : result;
}

/* A green context has no per-thread default stream. */
static bool is_green(struct vgpu_worker *worker, uint64_t context) {
  if (cuda_of(worker)->greens == 0) return false;
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, context, VGPU_HANDLE_CONTEXT);
  return handle != NULL && handle->object != NULL;
}

/* The driver has no query for a whole context, so each of its streams is queried. */
int vgpu_cuda_query_context(struct vgpu_worker *worker, uint64_t context) {
  const struct vgpu_driver_api *api = &cuda_of(worker)->api;
  int result = VGPU_DRIVER(api, cuStreamQuery, NULL);
  if (result == CUDA_SUCCESS && !is_green(worker, context))
    result = VGPU_DRIVER(api, cuStreamQuery, PER_THREAD);
  for (const struct vgpu_cuda_own_stream *own = cuda_of(worker)->waiting_calls.streams;
       result == CUDA_SUCCESS && own != NULL; own = own->next) {
    if (own->context == context) result = VGPU_DRIVER(api, cuStreamQuery, own->stream);
  }
  return result;
}

bool vgpu_cuda_stream_begins(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream) {
  struct vgpu_cuda_own_stream *own = malloc(sizeof *own);
  if (own == NULL) return false;
  *own = (struct vgpu_cuda_own_stream){
      .next = cuda_of(worker)->waiting_calls.streams, .context = context, .stream = stream};
  cuda_of(worker)->waiting_calls.streams = own;
  return true;
}

void vgpu_cuda_stream_ends(struct vgpu_worker *worker, const struct vgpu_stream *stream) {
  struct vgpu_cuda_own_stream **link = &cuda_of(worker)->waiting_calls.streams;
  while (*link != NULL && (*link)->stream != stream) link = &(*link)->next;
  struct vgpu_cuda_own_stream *own = *link;
  if (own == NULL) return;
  *link = own->next;
  free(own);
}

int vgpu_cuda_query_event(struct vgpu_worker *worker, void *event) {
  return VGPU_DRIVER(&cuda_of(worker)->api, cuEventQuery, event);
}

/* Finds the call with a note; with 0 a free entry. */
static struct vgpu_cuda_waiting_call *find_call(struct vgpu_cuda_waiting_calls *waiting, uint64_t note) {
  struct vgpu_cuda_waiting_call *call = waiting->list;
  while (call != NULL && call->note != note) call = call->next;
  return call;
}

void vgpu_cuda_waiting_call_over(struct vgpu_worker *worker, uint64_t note) {
  struct vgpu_cuda_waiting_call *call = find_call(&cuda_of(worker)->waiting_calls, note);
  if (call != NULL) call->note = 0;
}

static void drop_event(const struct vgpu_cuda *cuda, struct vgpu_cuda_waiting_call *call) {
  if (call->event != NULL) VGPU_DRIVER(&cuda->api, cuEventDestroy_v2, call->event);
  call->event = NULL;
  call->note = 0;
  call->context = 0;
}

static int32_t begin_call(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream,
                          struct vgpu_cuda_waiting_call **begun) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  struct vgpu_cuda_waiting_call *call = find_call(&cuda->waiting_calls, 0);
  if (call == NULL) {
    call = calloc(1, sizeof *call);
    if (call == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    call->next = cuda->waiting_calls.list;
    cuda->waiting_calls.list = call;
  }
  if (call->context != context) drop_event(cuda, call);
  int32_t result = CUDA_SUCCESS;
  call->context = context;
  if (call->event == NULL) result = VGPU_DRIVER(&cuda->api, cuEventCreate, &call->event, NO_TIMING);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(&cuda->api, cuEventRecord, call->event, stream);
  if (result != CUDA_SUCCESS) return result;
  worker->note = call->note = vgpu_cuda_note(cuda);
  *begun = call;
  return result;
}

int vgpu_cuda_query_stream(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream) {
  /*
   * The driver's query of the legacy stream covers only that stream, although its work waits for other
   * streams.
   */
  return stream == NULL || stream == LEGACY ? vgpu_cuda_query_context(worker, context)
                                            : VGPU_DRIVER(&cuda_of(worker)->api, cuStreamQuery, stream);
}

struct idle {
  uint64_t context;
  struct vgpu_stream *stream;
  bool begins; /* the stream could begin new work, so the legacy stream must be idle as well */
};

static int query_idle(struct vgpu_worker *worker, void *what) {
  const struct idle *idle = what;
  int result = vgpu_cuda_query_stream(worker, idle->context, idle->stream);
  if (result != CUDA_SUCCESS || !idle->begins) return result;
  return VGPU_DRIVER(&cuda_of(worker)->api, cuStreamQuery, NULL);
}

static int32_t await_stream(struct vgpu_worker *worker, struct idle *idle) {
  struct vgpu_cuda_waiting_call *call =
      worker->note == 0 ? NULL : find_call(&cuda_of(worker)->waiting_calls, worker->note);
  if (call == NULL || call->context != idle->context) {
    int32_t result = query_idle(worker, idle);
    if (result != CUDA_ERROR_NOT_READY) return result;
    vgpu_parking_end(worker);
    result = begin_call(worker, idle->context, idle->stream, &call);
    if (result != CUDA_SUCCESS) return result;
  }
  return vgpu_cuda_wait(worker, vgpu_cuda_query_event, call->event);
}

int32_t vgpu_cuda_await_stream(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream) {
  return await_stream(worker, &(struct idle){.context = context, .stream = stream});
}

int32_t vgpu_cuda_await_turn(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream) {
  return await_stream(worker, &(struct idle){.context = context, .stream = stream, .begins = true});
}

static void drop_reader(const struct vgpu_cuda *cuda, struct vgpu_cuda_reader *reader) {
  if (reader->stream != NULL) VGPU_DRIVER(&cuda->api, cuStreamDestroy_v2, reader->stream);
  *reader = (struct vgpu_cuda_reader){.stream = NULL};
}

struct vgpu_stream *vgpu_cuda_reader(struct vgpu_worker *worker, uint64_t context, int32_t *result) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  struct vgpu_cuda_waiting_calls *waiting = &cuda->waiting_calls;
  *result = CUDA_SUCCESS;
  for (uint32_t i = 0; i < VGPU_CUDA_READERS; i++)
    if (waiting->readers[i].stream != NULL && waiting->readers[i].context == context)
      return waiting->readers[i].stream;
  struct vgpu_cuda_reader *reader = &waiting->readers[waiting->next_reader++ % VGPU_CUDA_READERS];
  drop_reader(cuda, reader);
  reader->context = context;
  *result = VGPU_DRIVER(&cuda->api, cuStreamCreateWithPriority, &reader->stream, NON_BLOCKING, 0);
  if (*result != CUDA_SUCCESS) reader->stream = NULL;
  return reader->stream;
}

void vgpu_cuda_drop_waiting_calls(struct vgpu_worker *worker, uint64_t context) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  for (struct vgpu_cuda_own_stream **link = &cuda->waiting_calls.streams; *link != NULL;) {
    struct vgpu_cuda_own_stream *own = *link;
    if (own->context != context) {
      link = &own->next;
      continue;
    }
    *link = own->next;
    free(own);
  }
  for (struct vgpu_cuda_waiting_call *call = cuda->waiting_calls.list; call != NULL; call = call->next)
    if (call->context == context) drop_event(cuda, call);
  for (uint32_t i = 0; i < VGPU_CUDA_READERS; i++)
    if (cuda->waiting_calls.readers[i].context == context) drop_reader(cuda, &cuda->waiting_calls.readers[i]);
}
