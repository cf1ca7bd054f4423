#include "host/backend/software/order/queue.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_calls.h"
#include "host/backend/common/graph.h"
#include "host/backend/software/order/place.h"
#include "host/backend/software/software.h"

#define MOST_QUEUED 65536u

struct vgpu_queued {
  struct vgpu_queued *next;
  uint64_t number; /* counts calls in the order of their arrival */
  const struct vgpu_dispatch_row *row;
  struct vgpu_place place;
  uint64_t record;  /* number of the record, if the call records an event */
  uint64_t awaited; /* number of the record that the call waits for; 0: none */
  uint32_t bulk_size;
  uint32_t body_size;
  uint64_t data[]; /* body, then bulk */
};

bool vgpu_queue_may_wait(const struct vgpu_worker *worker, uint64_t bytes) {
  uint64_t limit = worker->limits->outstanding,
           now = software_of(worker)->queue.bytes + software_of(worker)->reads.bytes;
  return now <= limit && bytes <= limit - now;
}

static bool is_record(const struct vgpu_dispatch_row *row) {
  return row->opcode == VGPU_OP_cuEventRecordWithFlags || row->opcode == VGPU_OP_cuCtxRecordEvent;
}

static bool is_wait(const struct vgpu_dispatch_row *row) {
  return row->opcode == VGPU_OP_cuStreamWaitEvent || row->opcode == VGPU_OP_cuCtxWaitEvent;
}

/* Returns the event that a call records or waits for. NULL: it was destroyed. */
static struct vgpu_handle *event_of(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row,
                                    const void *body) {
  uint64_t event = 0;
  size_t at = offsetof(struct vgpu_send_cuEventRecordWithFlags, event);
  if (row->opcode == VGPU_OP_cuCtxRecordEvent) at = offsetof(struct vgpu_send_cuCtxRecordEvent, event);
  if (row->opcode == VGPU_OP_cuStreamWaitEvent) at = offsetof(struct vgpu_send_cuStreamWaitEvent, event);
  if (row->opcode == VGPU_OP_cuCtxWaitEvent) at = offsetof(struct vgpu_send_cuCtxWaitEvent, event);
  memcpy(&event, (const unsigned char *)body + at, sizeof event);
  return vgpu_handles_find(&worker->handles, event, VGPU_HANDLE_EVENT);
}

bool vgpu_queue_has_room(const struct vgpu_worker *worker, uint64_t bytes) {
  return software_of(worker)->queue.count < MOST_QUEUED / 2 && vgpu_queue_may_wait(worker, 2 * bytes);
}

static int32_t keep(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row,
                    const struct vgpu_place *place, const void *body, const struct vgpu_bulk *bulk) {
  struct vgpu_queue *queue = &software_of(worker)->queue;
  uint32_t bulk_size = row->bulk_in ? bulk->in_size : 0;
  size_t bytes = (size_t)row->send_size + bulk_size;
  if (queue->count >= MOST_QUEUED || !vgpu_queue_may_wait(worker, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  struct vgpu_queued *queued = malloc(sizeof *queued + bytes);
  if (queued == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *queued = (struct vgpu_queued){.number = ++queue->kept,
                                 .row = row,
                                 .place = *place,
                                 .bulk_size = bulk_size,
                                 .body_size = row->send_size};
  memcpy(queued->data, body, row->send_size);
  if (bulk_size > 0) memcpy((unsigned char *)queued->data + row->send_size, bulk->in, bulk_size);
  if (queue->last == NULL) queue->first = queued;
  else queue->last->next = queued;
  queue->last = queued;
  queue->count++;
  queue->bytes += bytes;
  /* The program may store the value in mapped memory, without a call. */
  if (row->opcode == VGPU_OP_memory_op) queue->outside = true;
  struct vgpu_handle *event = is_record(row) || is_wait(row) ? event_of(worker, row, body) : NULL;
  if (event != NULL && is_record(row)) {
    vgpu_event_pending_add(event, 1);
    event->stream = place->stream;
    event->awaited = queued->record = ++queue->records;
  } else if (event != NULL) {
    queued->awaited = event->awaited;
  }
  return CUDA_SUCCESS;
}

static void take_out(struct vgpu_queue *queue, struct vgpu_queued **link, struct vgpu_queued *before) {
  struct vgpu_queued *queued = *link;
  *link = queued->next;
  if (queue->last == queued) queue->last = before;
  queue->count--;
  queue->bytes -= (size_t)queued->body_size + queued->bulk_size;
}

/*
 * True if the running kernel, or a queued call before `end` (NULL: any) with a number up to `last`, must run
 * before the next call of the place.
 */
static bool held(const struct vgpu_queue *queue, const struct vgpu_queued *end, uint64_t last,
                 const struct vgpu_place *place) {
  if (queue->running != NULL && queue->running_number <= last && vgpu_place_ordered(queue->running, place))
    return true;
  for (const struct vgpu_queued *queued = queue->first; queued != end && queued->number <= last;
       queued = queued->next) {
    if (vgpu_place_ordered(&queued->place, place)) return true;
  }
  return false;
}

bool vgpu_queue_holds(const struct vgpu_worker *worker, const struct vgpu_place *place) {
  return held(&software_of(worker)->queue, NULL, UINT64_MAX, place);
}

/*
 * A call with an answer waits for the calls that were queued when it arrived (up to worker->note), not for
 * later ones: other threads could queue calls forever.
 */
static int32_t hold_call(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row,
                         const struct vgpu_place *place) {
  const struct vgpu_queue *queue = &software_of(worker)->queue;
  const uint64_t last = worker->note != 0 ? worker->note : UINT64_MAX;
  if (!held(queue, NULL, last, place)) return CUDA_SUCCESS;
  if (row->opcode == VGPU_OP_cuStreamQuery) return CUDA_ERROR_NOT_READY;
  if (worker->note == 0) worker->note = queue->kept;
  return VGPU_WAITS;
}

static bool is_queued(const struct vgpu_queue *queue, uint64_t record) {
  const struct vgpu_queued *queued = queue->first;
  while (queued != NULL && queued->record != record) queued = queued->next;
  return queued != NULL;
}

/* The last record before the wait counts; the event may since have been recorded again, or destroyed. */
static int32_t run_wait(struct vgpu_worker *worker, const struct vgpu_queued *queued) {
  const struct vgpu_handle *event = event_of(worker, queued->row, queued->data);
  if (queued->awaited != 0 && is_queued(&software_of(worker)->queue, queued->awaited)) return VGPU_BLOCKED;
  if (event == NULL || vgpu_place_owns(event)) return CUDA_SUCCESS;
  return vgpu_event_pending(event) > 0 ? VGPU_BLOCKED : CUDA_SUCCESS;
}

/*
 * Runs a call. During a kernel other requests may be carried out, unless the guest waits for the answer to
 * this call. `number` is that of a queued call; 0: it was not queued.
 */
static int32_t run_row(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row,
                       const struct vgpu_place *place, uint64_t number, const void *body, void *reply,
                       struct vgpu_bulk *bulk) {
  struct vgpu_queue *queue = &software_of(worker)->queue;
  bool opens = row->opcode == VGPU_OP_cuLaunchKernelEx && !queue->closed && queue->running == NULL &&
               worker->serve_nested != NULL && worker->request->row->oneway;
  if (!opens) return row->run[VGPU_BACKEND_SOFTWARE](worker, body, reply, bulk);
  queue->running = place;
  queue->running_number = number != 0 ? number : ++queue->kept;
  int32_t status = row->run[VGPU_BACKEND_SOFTWARE](worker, body, reply, bulk);
  queue->running = NULL;
  vgpu_parking_hurry(&worker->parking);
  return status;
}

/* No request runs during a graph's kernels: the graph's other nodes come first. */
static int32_t run_graph(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row, const void *body,
                         struct vgpu_bulk *bulk) {
  struct vgpu_queue *queue = &software_of(worker)->queue;
  bool closed = queue->closed;
  queue->closed = true;
  int32_t status = row->run[VGPU_BACKEND_SOFTWARE](worker, body, NULL, bulk);
  queue->closed = closed;
  return status;
}

static int32_t run_queued(struct vgpu_worker *worker, struct vgpu_queued *queued) {
  if (is_wait(queued->row)) return run_wait(worker, queued);
  if (is_record(queued->row)) {
    struct vgpu_handle *event = event_of(worker, queued->row, queued->data);
    if (event == NULL) return CUDA_SUCCESS;
    if (vgpu_event_pending(event) > 0) vgpu_event_pending_add(event, -1);
    if (event->awaited != queued->record) return CUDA_SUCCESS; /* a later record has replaced it */
    event->awaited = 0;
  }
  struct vgpu_bulk bulk = {.in = (const unsigned char *)queued->data + queued->body_size,
                           .in_size = queued->bulk_size};
  if (queued->row->opcode == VGPU_OP_cuGraphLaunch)
    return run_graph(worker, queued->row, queued->data, &bulk);
  return run_row(worker, queued->row, &queued->place, queued->number, queued->data, NULL, &bulk);
}

static void pump(struct vgpu_worker *worker) {
  struct vgpu_queue *queue = &software_of(worker)->queue;
  bool progress = true;
  while (progress && queue->first != NULL) {
    progress = false;
    struct vgpu_queued *before = NULL;
    for (struct vgpu_queued **link = &queue->first; *link != NULL;) {
      struct vgpu_queued *queued = *link;
      int32_t status =
          held(queue, queued, UINT64_MAX, &queued->place) ? VGPU_BLOCKED : run_queued(worker, queued);
      if (status == VGPU_BLOCKED) {
        before = queued;
        link = &queued->next;
        continue;
      }
      if (status != CUDA_SUCCESS) vgpu_worker_failed(worker, status);
      if (status != CUDA_SUCCESS && worker->deferred == 0) worker->deferred = status;
      take_out(queue, link, before);
      free(queued);
      progress = true;
      vgpu_parking_hurry(&worker->parking);
    }
  }
}

/* Runs queued calls that waited for another session, or for a store of the program. */
static void pump_before(struct vgpu_worker *worker) {
  struct vgpu_queue *queue = &software_of(worker)->queue;
  if (!queue->outside || queue->first == NULL || queue->running != NULL) return;
  bool closed = queue->closed;
  queue->closed = true;
  pump(worker);
  queue->closed = closed;
}

int32_t vgpu_queue_run(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row, const void *body,
                       void *reply, struct vgpu_bulk *bulk) {
  struct vgpu_queue *queue = &software_of(worker)->queue;
  pump_before(worker);
  /* The frames of a launch are queued one by one, or as a whole if conditions select frames. */
  bool graph = row->opcode == VGPU_OP_cuGraphLaunch;
  if (graph && !vgpu_graph_is_conditional(worker, vgpu_place_launched(body)))
    return run_graph(worker, row, body, bulk);
  struct vgpu_place place;
  bool placed = vgpu_place_find(worker, row, body, &place), waits = queue->first != NULL;
  if (row->oneway) {
    if (placed && (waits || queue->running != NULL) && held(queue, NULL, UINT64_MAX, &place))
      return keep(worker, row, &place, body, bulk);
  } else if (placed && (waits || queue->running != NULL)) {
    int32_t held_by = hold_call(worker, row, &place);
    if (held_by != CUDA_SUCCESS) return held_by;
  }
  if (is_record(row)) {
    struct vgpu_handle *event = event_of(worker, row, body);
    if (event != NULL) event->awaited = 0;
    vgpu_parking_hurry(&worker->parking);
  }
  int32_t status =
      graph ? run_graph(worker, row, body, bulk) : run_row(worker, row, &place, 0, body, reply, bulk);
  if (status == VGPU_BLOCKED) return keep(worker, row, &place, body, bulk);
  if (queue->first == NULL || queue->running != NULL) return status;
  /* This call's error comes before those of queued calls. */
  if (row->oneway && status != CUDA_SUCCESS && worker->deferred == 0) worker->deferred = status;
  pump(worker);
  return status;
}

void vgpu_queue_drop(struct vgpu_worker *worker, uint64_t context) {
  struct vgpu_queue *queue = &software_of(worker)->queue;
  struct vgpu_queued *before = NULL;
  for (struct vgpu_queued **link = &queue->first; *link != NULL;) {
    struct vgpu_queued *queued = *link;
    if (queued->place.context == context) {
      take_out(queue, link, before);
      free(queued);
    } else {
      before = queued;
      link = &queued->next;
    }
  }
}
