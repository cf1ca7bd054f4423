#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_handlers.h"
#include "host/backend/common/reads.h"
#include "host/backend/software/order/queue.h"
#include "host/backend/software/software.h"

#define NO_TIMING 2u /* CU_EVENT_DISABLE_TIMING */

static int32_t add_to_context(struct vgpu_worker *worker, uint64_t context, uint64_t number, uint32_t flags,
                              enum vgpu_handle_type type) {
  if (find_context(worker, context) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (number < SPECIAL_STREAMS) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_handle *handle = vgpu_handles_add(&worker->handles, number, type);
  if (handle == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  handle->context = context;
  handle->flags = flags;
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuStreamCreate(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuStreamCreate *send) {
  return add_to_context(worker, send->context, send->number, send->flags, VGPU_HANDLE_STREAM);
}

int32_t vgpu_software_cuStreamDestroy_v2(struct vgpu_worker *worker,
                                         const struct vgpu_send_cuStreamDestroy_v2 *send) {
  return vgpu_handles_remove(&worker->handles, send->stream, VGPU_HANDLE_STREAM) ? CUDA_SUCCESS
                                                                                 : CUDA_ERROR_INVALID_HANDLE;
}

int32_t vgpu_software_cuStreamQuery(struct vgpu_worker *worker, const struct vgpu_send_cuStreamQuery *send) {
  return check_stream(worker, send->context, send->stream);
}

/* No caches and clocks here that an attribute could change. */
int32_t vgpu_software_cuStreamSetAttribute(struct vgpu_worker *worker,
                                           const struct vgpu_send_cuStreamSetAttribute *send,
                                           struct vgpu_bulk *bulk) {
  if (bulk->in_size != 64) return CUDA_ERROR_INVALID_VALUE;
  return check_stream(worker, send->context, send->stream);
}

static struct vgpu_handle *find_event(struct vgpu_worker *worker, uint64_t event) {
  return vgpu_handles_find(&worker->handles, event, VGPU_HANDLE_EVENT);
}

static bool is_open(const struct vgpu_handle *event) {
  return event->object == NULL ? event->awaited != 0 : vgpu_event_pending(event) > 0;
}

int32_t vgpu_software_cuStreamWaitEvent(struct vgpu_worker *worker,
                                        const struct vgpu_send_cuStreamWaitEvent *send) {
  const struct vgpu_handle *event = find_event(worker, send->event);
  if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
  int32_t result = check_stream(worker, send->context, send->stream);
  return result == CUDA_SUCCESS && is_open(event) ? VGPU_BLOCKED : result;
}

int32_t vgpu_software_cuEventCreate(struct vgpu_worker *worker, const struct vgpu_send_cuEventCreate *send) {
  return add_to_context(worker, send->context, send->event, send->flags, VGPU_HANDLE_EVENT);
}

int32_t vgpu_software_cuEventDestroy_v2(struct vgpu_worker *worker,
                                        const struct vgpu_send_cuEventDestroy_v2 *send) {
  const struct vgpu_handle *event = find_event(worker, send->event);
  if (event != NULL) vgpu_event_drop(worker, event);
  return vgpu_handles_remove(&worker->handles, send->event, VGPU_HANDLE_EVENT) ? CUDA_SUCCESS
                                                                               : CUDA_ERROR_INVALID_HANDLE;
}

static int32_t record(struct vgpu_worker *worker, uint64_t context, uint64_t stream, uint64_t number) {
  struct vgpu_handle *event = find_event(worker, number);
  if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
  int32_t result = check_stream(worker, context, stream);
  if (result != CUDA_SUCCESS) return result;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  event->recorded = true;
  event->nanoseconds = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuEventRecordWithFlags(struct vgpu_worker *worker,
                                             const struct vgpu_send_cuEventRecordWithFlags *send) {
  return record(worker, send->context, send->stream, send->event);
}

int32_t vgpu_software_cuCtxRecordEvent(struct vgpu_worker *worker,
                                       const struct vgpu_send_cuCtxRecordEvent *send) {
  return record(worker, send->context, 0, send->event);
}

int32_t vgpu_software_cuCtxWaitEvent(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuCtxWaitEvent *send) {
  const struct vgpu_handle *event = find_event(worker, send->event);
  if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (find_context(worker, send->context) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  return is_open(event) ? VGPU_BLOCKED : CUDA_SUCCESS;
}

static int32_t check_event(struct vgpu_worker *worker, uint64_t number) {
  const struct vgpu_handle *event = find_event(worker, number);
  if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
  return is_open(event) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

int32_t vgpu_software_cuEventQuery(struct vgpu_worker *worker, const struct vgpu_send_cuEventQuery *send) {
  return check_event(worker, send->event);
}

int32_t vgpu_software_cuEventElapsedTime_v2(struct vgpu_worker *worker,
                                            const struct vgpu_send_cuEventElapsedTime_v2 *send,
                                            struct vgpu_reply_cuEventElapsedTime_v2 *reply) {
  const struct vgpu_handle *start = find_event(worker, send->start);
  const struct vgpu_handle *end = find_event(worker, send->end);
  if (start == NULL || end == NULL || ((start->flags | end->flags) & NO_TIMING) != 0)
    return CUDA_ERROR_INVALID_HANDLE;
  if (is_open(start) || is_open(end)) return CUDA_ERROR_NOT_READY;
  if (!start->recorded || !end->recorded) return CUDA_ERROR_INVALID_HANDLE;
  reply->milliseconds = (float)((double)(end->nanoseconds - start->nanoseconds) / 1e6);
  return CUDA_SUCCESS;
}

#define TICKETS_MOST 65536u

struct vgpu_read {
  struct vgpu_read *next;
  uint64_t ticket;
  uint64_t context;
  uint64_t size;
  unsigned char bytes[];
};

int32_t vgpu_software_read_later(struct vgpu_worker *worker, const struct vgpu_send_read_later *send) {
  int32_t result = check_stream(worker, send->context, send->stream);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_reads *reads = &software_of(worker)->reads;
  if (send->bytes > VGPU_BULK_MAX - sizeof(uint64_t)) return CUDA_ERROR_INVALID_VALUE;
  if (reads->count >= TICKETS_MOST || !vgpu_queue_may_wait(worker, send->bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  const unsigned char *from = vgpu_memory_at(&software_of(worker)->memory, send->source, send->bytes);
  if (from == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_read *read = malloc(sizeof *read + send->bytes);
  if (read == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *read = (struct vgpu_read){
      .next = reads->first, .ticket = send->ticket, .context = send->context, .size = send->bytes};
  memcpy(read->bytes, from, send->bytes);
  reads->first = read;
  reads->count++;
  reads->bytes += send->bytes;
  return CUDA_SUCCESS;
}

static void remove_read(struct vgpu_reads *reads, struct vgpu_read **link) {
  struct vgpu_read *read = *link;
  *link = read->next;
  reads->count--;
  reads->bytes -= read->size;
  free(read);
}

void vgpu_reads_drop(struct vgpu_worker *worker, uint64_t context) {
  for (struct vgpu_read **link = &software_of(worker)->reads.first; *link != NULL;) {
    if ((*link)->context == context) remove_read(&software_of(worker)->reads, link);
    else link = &(*link)->next;
  }
}

static int32_t fetch_reads(struct vgpu_worker *worker, struct vgpu_bulk *bulk) {
  if (bulk->in_size % sizeof(uint64_t) != 0) return CUDA_ERROR_INVALID_VALUE;
  uint32_t at = 0;
  for (uint32_t i = 0; i < bulk->in_size; i += (uint32_t)sizeof(uint64_t)) {
    uint64_t ticket, size = NOT_READ;
    memcpy(&ticket, bulk->in + i, sizeof ticket);
    struct vgpu_read **link = &software_of(worker)->reads.first;
    while (*link != NULL && (*link)->ticket != ticket) link = &(*link)->next;
    if (*link != NULL) size = (*link)->size;
    if (!vgpu_reads_pack(bulk, &at, size, size == NOT_READ ? NULL : (*link)->bytes))
      return CUDA_ERROR_INVALID_VALUE;
    if (size != NOT_READ) remove_read(&software_of(worker)->reads, link);
  }
  bulk->out_size = at;
  return CUDA_SUCCESS;
}

int32_t vgpu_software_read_fetch(struct vgpu_worker *worker, const struct vgpu_send_read_fetch *send,
                                 struct vgpu_bulk *bulk) {
  (void)send;
  return fetch_reads(worker, bulk);
}

int32_t vgpu_software_cuStreamSynchronize(struct vgpu_worker *worker,
                                          const struct vgpu_send_cuStreamSynchronize *send,
                                          struct vgpu_bulk *bulk) {
  int32_t result = check_stream(worker, send->context, send->stream);
  return result == CUDA_SUCCESS ? fetch_reads(worker, bulk) : result;
}

int32_t vgpu_software_cuEventSynchronize(struct vgpu_worker *worker,
                                         const struct vgpu_send_cuEventSynchronize *send,
                                         struct vgpu_bulk *bulk) {
  int32_t result = check_event(worker, send->event);
  if (result == CUDA_ERROR_NOT_READY) return VGPU_WAITS;
  return result == CUDA_SUCCESS ? fetch_reads(worker, bulk) : result;
}

int32_t vgpu_software_cuCtxSynchronize(struct vgpu_worker *worker,
                                       const struct vgpu_send_cuCtxSynchronize *send) {
  return find_context(worker, send->context) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* CUstreamBatchMemOpType and the flags of a wait. */
enum { WAIT_32 = 1, WRITE_32 = 2, FLUSH = 3, WAIT_64 = 4, WRITE_64 = 5, BARRIER = 6 };
enum { AT_LEAST = 0, EQUAL = 1, AND = 2, NOR = 3 };

static bool holds(uint64_t now, uint64_t value, uint32_t flags, bool wide) {
  switch (flags) {
    case AT_LEAST: /* compared cyclically, as the API defines it */
      return wide ? (int64_t)(now - value) >= 0 : (int32_t)((uint32_t)now - (uint32_t)value) >= 0;
    case EQUAL:
      return wide ? now == value : (uint32_t)now == (uint32_t)value;
    case AND:
      return ((wide ? now : (uint32_t)now) & value) != 0;
    default: /* NOR */
      return wide ? ~(now | value) != 0 : (uint32_t) ~(now | value) != 0;
  }
}

int32_t vgpu_software_memory_op(struct vgpu_worker *worker, const struct vgpu_send_memory_op *send) {
  int32_t result = check_stream(worker, send->context, send->stream);
  if (result != CUDA_SUCCESS) return result;
  bool wide = send->operation == WAIT_64 || send->operation == WRITE_64;
  switch (send->operation) {
    case WAIT_32:
    case WAIT_64:
      if (send->flags > NOR) return CUDA_ERROR_INVALID_VALUE;
      break;
    case WRITE_32:
    case WRITE_64:
      if (send->flags > 1) return CUDA_ERROR_INVALID_VALUE;
      break;
    case BARRIER: /* no effect: calls run in order */
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  size_t size = wide ? 8 : 4;
  unsigned char *at = vgpu_memory_at(&software_of(worker)->memory, send->address, size);
  if (at == NULL || send->address % size != 0) return CUDA_ERROR_INVALID_VALUE;
  if (send->operation == WRITE_32 || send->operation == WRITE_64) {
    vgpu_memory_to_write(&software_of(worker)->memory, send->address, size);
    memcpy(at, &send->value, size);
    return CUDA_SUCCESS;
  }
  uint64_t now = 0;
  memcpy(&now, at, size);
  return holds(now, send->value, send->flags, wide) ? CUDA_SUCCESS : VGPU_BLOCKED;
}

#define MOST_GATES 4096u

int32_t vgpu_software_gate_words(struct vgpu_worker *worker, const struct vgpu_send_gate_words *send,
                                 struct vgpu_reply_gate_words *reply) {
  if (send->words == 0 || send->words > MOST_GATES) return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_send_cuMemAlloc_v2 allocate = {.context = send->context,
                                                   .bytes = send->words * sizeof(uint32_t)};
  struct vgpu_reply_cuMemAlloc_v2 allocated;
  int32_t result = vgpu_software_cuMemAlloc_v2(worker, &allocate, &allocated);
  if (result != CUDA_SUCCESS) return result;
  vgpu_memory_to_write(&software_of(worker)->memory, allocated.address, allocate.bytes);
  memset(vgpu_memory_at(&software_of(worker)->memory, allocated.address, allocate.bytes), 0, allocate.bytes);
  reply->address = allocated.address;
  return CUDA_SUCCESS;
}

int32_t vgpu_software_gate_open(struct vgpu_worker *worker, const struct vgpu_send_gate_open *send) {
  unsigned char *at = vgpu_memory_at(&software_of(worker)->memory, send->address, sizeof send->value);
  if (at == NULL || send->address % sizeof send->value != 0) return CUDA_ERROR_INVALID_VALUE;
  memcpy(at, &send->value, sizeof send->value);
  return CUDA_SUCCESS;
}
