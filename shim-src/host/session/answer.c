#include "host/session/answer.h"

#include <string.h>
#include <time.h>

#include "cuda_results.h"
#include "host/log.h"
#include "wire/clock.h"

/* The error of a call that cannot be carried out, as a code of its library. */
static int32_t refusal(uint32_t opcode, bool known) {
  switch (opcode & VGPU_OP_RANGE_MASK) {
    case VGPU_OP_CUDA:
      return known ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    case VGPU_OP_NVML:
      return known ? 2 : 3; /* NVML_ERROR_INVALID_ARGUMENT, NOT_SUPPORTED */
    default:
      return known ? VGPU_STATUS_INVALID : VGPU_STATUS_UNKNOWN;
  }
}

const uint32_t vgpu_call_features = VGPU_FEATURE_LOADS;

const struct vgpu_dispatch_row *vgpu_find_row(const void *context, uint32_t opcode) {
  const struct vgpu_worker *worker = context;
  switch (opcode & VGPU_OP_RANGE_MASK) {
    case VGPU_OP_CUDA:
      return worker->library == VGPU_LIBRARY_CUDA ? vgpu_dispatch_cuda(opcode) : NULL;
    case VGPU_OP_NVML:
      return worker->library == VGPU_LIBRARY_NVML ? vgpu_dispatch_nvml(opcode) : NULL;
    default:
      return NULL;
  }
}

/*
 * For a frame whose bulk is a span: points `bulk` into the shared region. Only for calls that copy the bulk
 * without reading it.
 */
static bool enter_shared_region(const struct vgpu_worker *worker, const struct vgpu_request *request,
                                struct vgpu_span *span, struct vgpu_bulk *bulk) {
  const struct vgpu_dispatch_row *row = request->row;
  if (!worker->shared_regions_agreed || row == NULL || request->frame.bulk != sizeof *span) return false;
  bool in = row->raw_in, out = row->raw_out && !row->bulk_in;
  memcpy(span, request->bulk, sizeof *span);
  unsigned char *memory = vgpu_shared_regions_at(&worker->shared_regions, span);
  if (memory == NULL || (!in && !out)) return false;
  if (in) {
    bulk->in = memory;
    bulk->shared_region = span->shared_region;
    bulk->in_size = (uint32_t)span->length;
  } else {
    bulk->in_size = 0;
    bulk->out = memory;
    bulk->out_capacity = (uint32_t)span->length;
  }
  return true;
}

void vgpu_carry_out(struct vgpu_worker *worker, const struct vgpu_request *request, unsigned char *out,
                    uint32_t capacity, struct vgpu_answer *answer) {
  const struct vgpu_frame *frame = &request->frame;
  struct vgpu_bulk *bulk = &answer->bulk;
  answer->status = 0;
  answer->flags = 0;
  answer->body_size = 0;
  *bulk =
      (struct vgpu_bulk){.in = request->bulk, .in_size = frame->bulk, .out = out, .out_capacity = capacity};
  const struct vgpu_dispatch_row *row = request->row;
  bool in_shared_region = (frame->flags & VGPU_FLAG_SHARED_REGION) != 0;
  if ((frame->opcode & VGPU_OP_RANGE_MASK) == VGPU_OP_CONTROL && !in_shared_region) {
    answer->status = vgpu_control(worker, frame->opcode, request->body, frame->body, answer->body,
                                  &answer->body_size, bulk);
    return;
  }
  struct vgpu_span span;
  if (row == NULL || row->send_size != frame->body ||
      row->oneway != ((frame->flags & VGPU_FLAG_ONEWAY) != 0) ||
      (in_shared_region ? !enter_shared_region(worker, request, &span, bulk)
                        : !row->bulk_in && frame->bulk != 0)) {
    answer->status = refusal(frame->opcode, row != NULL);
    return;
  }
  unsigned char *into = bulk->out;
  memset(answer->body, 0, row->reply_size);
  answer->status = worker->backend->run(worker, row, request->body, answer->body, bulk);
  answer->body_size = row->reply_size;
  if (!row->bulk_out) bulk->out_size = 0;
  if (!in_shared_region || !row->bulk_out || answer->status != 0) return;
  if (bulk->out != into) memcpy(into, bulk->out, bulk->out_size);
  answer->span = span;
  answer->span.length = bulk->out_size;
  answer->flags = VGPU_FLAG_SHARED_REGION;
  bulk->out = (unsigned char *)&answer->span;
  bulk->out_size = sizeof answer->span;
}

/* Delays a guest that exceeds its rate of calls. The session goes on: a burst of calls is no attack. */
static void keep_to_rate(struct vgpu_worker *worker) {
  uint32_t rate = worker->limits->calls;
  if (rate == 0) return;
  for (;;) {
    uint64_t wait = vgpu_bucket_take(&worker->calls, rate, vgpu_now_ns());
    if (wait == 0) return;
    if (!worker->slowed) {
      vgpu_host_log("slowed", worker->session, "slowed down: more than its %u calls a second", rate);
      worker->slowed = true;
    }
    struct timespec nap = {.tv_sec = (time_t)(wait / 1000000000u), .tv_nsec = (long)(wait % 1000000000u)};
    nanosleep(&nap, NULL);
  }
}

/* A long request may have been released earlier, by vgpu_worker_serve_nested(). */
static void release(struct vgpu_worker *worker, const struct vgpu_request *request) {
  if (worker->nested.released != request) vgpu_link_done(&worker->link, request);
  else worker->nested.released = NULL;
}

static void count_call(struct vgpu_worker *worker, int32_t status) {
  uint64_t *calls = &worker->accounts->slots[worker->slot].calls;
  __atomic_store_n(calls, *calls + 1, __ATOMIC_RELAXED);
  if (status != 0) vgpu_worker_failed(worker, status);
}

bool vgpu_worker_answer(struct vgpu_worker *worker, const struct vgpu_request *request) {
  struct vgpu_answer answer;
  keep_to_rate(worker);
  vgpu_parking_find(worker, request);
  worker->request = request;
  vgpu_carry_out(worker, request, worker->out, VGPU_BULK_MAX, &answer);
  const bool parked = answer.status == VGPU_WAITS && vgpu_park(worker, request);
  if (!parked) vgpu_parking_end(worker);
  if (!parked && answer.status == VGPU_WAITS) answer.status = CUDA_ERROR_OUT_OF_MEMORY;
  worker->note = 0;
  (void)vgpu_accounts_hold(worker->accounts, worker->slot, worker->shared_regions.held);
  release(worker, request);
  if (parked) return true;
  if ((request->frame.flags & VGPU_FLAG_ONEWAY) == 0) return vgpu_worker_send(worker, request, &answer);
  count_call(worker, answer.status);
  if (answer.status != 0 && worker->deferred == 0) worker->deferred = answer.status;
  return true;
}

bool vgpu_worker_send(struct vgpu_worker *worker, const struct vgpu_request *request,
                      const struct vgpu_answer *answer) {
  const struct vgpu_frame *frame = &request->frame;
  struct vgpu_frame reply = {.opcode = frame->opcode,
                             .flags = VGPU_FLAG_REPLY | answer->flags,
                             .lane = frame->lane,
                             .sequence = frame->sequence,
                             .status = answer->status,
                             .deferred = worker->deferred};
  count_call(worker, answer->status);
  /* Not during a kernel: its threads may be printing now. */
  if (worker->nested.released == NULL && worker->printed.used > 0) reply.flags |= VGPU_FLAG_PRINTED;
  worker->deferred = worker->sticky;
  bool brings = answer->status == 0;
  return vgpu_link_reply(&worker->link, &reply, answer->body, brings ? answer->body_size : 0,
                         answer->bulk.out, brings ? answer->bulk.out_size : 0);
}
