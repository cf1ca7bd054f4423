#include "host/backend/cuda/turn.h"

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
  for (const struct vgpu_cuda_own_stream *own = cuda_of(worker)->turns.streams;
       result == CUDA_SUCCESS && own != NULL; own = own->next) {
    if (own->context == context) result = VGPU_DRIVER(api, cuStreamQuery, own->stream);
  }
  return result;
}

bool vgpu_cuda_stream_begins(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream) {
  struct vgpu_cuda_own_stream *own = malloc(sizeof *own);
  if (own == NULL) return false;
  *own = (struct vgpu_cuda_own_stream){
      .next = cuda_of(worker)->turns.streams, .context = context, .stream = stream};
  cuda_of(worker)->turns.streams = own;
  return true;
}

void vgpu_cuda_stream_ends(struct vgpu_worker *worker, const struct vgpu_stream *stream) {
  struct vgpu_cuda_own_stream **link = &cuda_of(worker)->turns.streams;
  while (*link != NULL && (*link)->stream != stream) link = &(*link)->next;
  struct vgpu_cuda_own_stream *own = *link;
  if (own == NULL) return;
  *link = own->next;
  free(own);
}

static int query_event(struct vgpu_worker *worker, void *event) {
  return VGPU_DRIVER(&cuda_of(worker)->api, cuEventQuery, event);
}

/* Finds the turn with a note; with 0 a free one. */
static struct vgpu_cuda_turn *find_turn(struct vgpu_cuda_turns *turns, uint64_t note) {
  struct vgpu_cuda_turn *turn = turns->list;
  while (turn != NULL && turn->note != note) turn = turn->next;
  return turn;
}

void vgpu_cuda_turn_over(struct vgpu_worker *worker, uint64_t note) {
  struct vgpu_cuda_turn *turn = find_turn(&cuda_of(worker)->turns, note);
  if (turn != NULL) turn->note = 0;
}

static void drop_event(const struct vgpu_cuda *cuda, struct vgpu_cuda_turn *turn) {
  if (turn->event != NULL) VGPU_DRIVER(&cuda->api, cuEventDestroy_v2, turn->event);
  turn->event = NULL;
  turn->note = 0;
  turn->context = 0;
}

static int32_t begin_turn(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream,
                          struct vgpu_cuda_turn **begun) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  struct vgpu_cuda_turn *turn = find_turn(&cuda->turns, 0);
  if (turn == NULL) {
    turn = calloc(1, sizeof *turn);
    if (turn == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    turn->next = cuda->turns.list;
    cuda->turns.list = turn;
  }
  if (turn->context != context) drop_event(cuda, turn);
  int32_t result = CUDA_SUCCESS;
  turn->context = context;
  if (turn->event == NULL) result = VGPU_DRIVER(&cuda->api, cuEventCreate, &turn->event, NO_TIMING);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(&cuda->api, cuEventRecord, turn->event, stream);
  if (result != CUDA_SUCCESS) return result;
  worker->note = turn->note = vgpu_cuda_note(cuda);
  *begun = turn;
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
  bool turn; /* the stream could begin new work, so the legacy stream must be idle as well */
};

static int query_idle(struct vgpu_worker *worker, void *what) {
  const struct idle *idle = what;
  int result = vgpu_cuda_query_stream(worker, idle->context, idle->stream);
  if (result != CUDA_SUCCESS || !idle->turn) return result;
  return VGPU_DRIVER(&cuda_of(worker)->api, cuStreamQuery, NULL);
}

static int32_t await_stream(struct vgpu_worker *worker, struct idle *idle) {
  struct vgpu_cuda_turn *turn = worker->note == 0 ? NULL : find_turn(&cuda_of(worker)->turns, worker->note);
  if (turn == NULL || turn->context != idle->context) {
    int32_t result = query_idle(worker, idle);
    if (result != CUDA_ERROR_NOT_READY) return result;
    vgpu_parking_end(worker);
    result = begin_turn(worker, idle->context, idle->stream, &turn);
    if (result != CUDA_SUCCESS) return result;
  }
  return vgpu_cuda_wait(worker, query_event, turn->event);
}

int32_t vgpu_cuda_await_stream(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream) {
  return await_stream(worker, &(struct idle){.context = context, .stream = stream});
}

int32_t vgpu_cuda_await_turn(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream) {
  return await_stream(worker, &(struct idle){.context = context, .stream = stream, .turn = true});
}

static void drop_reader(const struct vgpu_cuda *cuda, struct vgpu_cuda_reader *reader) {
  if (reader->stream != NULL) VGPU_DRIVER(&cuda->api, cuStreamDestroy_v2, reader->stream);
  *reader = (struct vgpu_cuda_reader){.stream = NULL};
}

struct vgpu_stream *vgpu_cuda_reader(struct vgpu_worker *worker, uint64_t context, int32_t *result) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  struct vgpu_cuda_turns *turns = &cuda->turns;
  *result = CUDA_SUCCESS;
  for (uint32_t i = 0; i < VGPU_CUDA_READERS; i++)
    if (turns->readers[i].stream != NULL && turns->readers[i].context == context)
      return turns->readers[i].stream;
  struct vgpu_cuda_reader *reader = &turns->readers[turns->next_reader++ % VGPU_CUDA_READERS];
  drop_reader(cuda, reader);
  reader->context = context;
  *result = VGPU_DRIVER(&cuda->api, cuStreamCreateWithPriority, &reader->stream, NON_BLOCKING, 0);
  if (*result != CUDA_SUCCESS) reader->stream = NULL;
  return reader->stream;
}

void vgpu_cuda_drop_turns(struct vgpu_worker *worker, uint64_t context) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  for (struct vgpu_cuda_own_stream **link = &cuda->turns.streams; *link != NULL;) {
    struct vgpu_cuda_own_stream *own = *link;
    if (own->context != context) {
      link = &own->next;
      continue;
    }
    *link = own->next;
    free(own);
  }
  for (struct vgpu_cuda_turn *turn = cuda->turns.list; turn != NULL; turn = turn->next)
    if (turn->context == context) drop_event(cuda, turn);
  for (uint32_t i = 0; i < VGPU_CUDA_READERS; i++)
    if (cuda->turns.readers[i].context == context) drop_reader(cuda, &cuda->turns.readers[i]);
}
