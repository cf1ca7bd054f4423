#include "host/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/log.h"
#include "wire/clock.h"
#include "wire/stream.h"

static bool greet(struct vgpu_worker *worker) {
  int64_t deadline = vgpu_now_ms() + VGPU_HANDSHAKE_LIMIT_MS;
  struct vgpu_frame frame;
  struct vgpu_hello hello;
  enum vgpu_stream_result result = vgpu_stream_read_header(worker->link.descriptor, &frame, deadline);
  if (result != VGPU_STREAM_OK || frame.opcode != VGPU_OP_HELLO || frame.flags != 0 || frame.sequence != 0 ||
      frame.body < sizeof hello) {
    vgpu_host_log("refused", worker->session, "no greeting: %s",
                  result == VGPU_STREAM_TIMEOUT  ? "nothing came within the limit"
                  : result == VGPU_STREAM_CLOSED ? "the peer went away"
                                                 : "not the vgpu protocol");
    return false;
  }
  /* A later guest may say more than we know. */
  result = vgpu_stream_read(worker->link.descriptor, &hello, sizeof hello, deadline);
  if (result == VGPU_STREAM_OK) {
    result = vgpu_stream_skip(worker->link.descriptor, frame.length - sizeof frame - sizeof hello, deadline);
  }
  if (result != VGPU_STREAM_OK) return false;

  struct vgpu_frame reply = {.opcode = VGPU_OP_HELLO, .flags = VGPU_FLAG_REPLY};
  if (memcmp(hello.magic, VGPU_WIRE_MAGIC, sizeof hello.magic) != 0 || hello.major != VGPU_WIRE_MAJOR) {
    reply.status = VGPU_STATUS_VERSION;
  } else if (hello.join != 0 || (hello.library != VGPU_LIBRARY_CUDA && hello.library != VGPU_LIBRARY_NVML)) {
    reply.status = VGPU_STATUS_REFUSED;
  }
  uint64_t memory = worker->limits->session_memory, of_peer = worker->limits->peer_memory;
  if (memory == 0 || (of_peer != 0 && of_peer < memory)) memory = of_peer;
  struct vgpu_welcome welcome = {.major = VGPU_WIRE_MAJOR,
                                 .minor = VGPU_WIRE_MINOR,
                                 .frame_max = VGPU_FRAME_MAX,
                                 .device_count = worker->inventory->count,
                                 .cuda_version = worker->inventory->cuda_version,
                                 .simulated = worker->inventory->simulated,
                                 .session = worker->session,
                                 .memory_limit = memory,
                                 .handle_limit = worker->limits->session_handles};
  snprintf(welcome.host, sizeof welcome.host, "vgpu-hostd %s %s", VGPU_VERSION, worker->backend->name);
  memcpy(welcome.magic, VGPU_WIRE_MAGIC, sizeof welcome.magic);
  memcpy(welcome.nvml_version, worker->inventory->nvml_version, sizeof welcome.nvml_version);
  bool taken = reply.status == 0;
  int rings = -1;
  bool local = worker->accounts->slots[worker->slot].peer.kind == VGPU_ADDRESS_UNIX;
  if (taken && local && worker->limits->session_shared > 0 && (hello.features & VGPU_FEATURE_RING) != 0) {
    rings = vgpu_link_make_rings(&worker->link);
  }
  if (rings >= 0) {
    welcome.features = hello.features & (VGPU_FEATURE_RING | VGPU_FEATURE_AREA);
    welcome.ring_size = VGPU_RING_BYTES;
  }
  result = vgpu_stream_pass_frame(worker->link.descriptor, &reply, &welcome, taken ? sizeof welcome : 0,
                                  rings, deadline);
  if (rings >= 0) close(rings);
  worker->areas_agreed = (welcome.features & VGPU_FEATURE_AREA) != 0;
  hello.program[sizeof hello.program - 1] = '\0';
  worker->library = hello.library;
  __atomic_store_n(&worker->accounts->slots[worker->slot].guest_pid, hello.pid, __ATOMIC_RELAXED);
  vgpu_host_log(taken ? "session" : "refused", worker->session, "%s %s (guest pid %u) %s",
                hello.library == VGPU_LIBRARY_NVML ? "libnvidia-ml" : "libcuda", hello.program, hello.pid,
                taken ? "begins" : "is refused: it speaks another version or asks for what is not there");
  return taken && result == VGPU_STREAM_OK;
}

/* Result of a call that we cannot carry out at all, in the language of its range. */
static int32_t refusal(uint32_t opcode, bool known) {
  switch (opcode & VGPU_OP_RANGE_MASK) {
    case VGPU_OP_CUDA:
      return known ? 1 : 801; /* CUDA_ERROR_INVALID_VALUE, NOT_SUPPORTED */
    case VGPU_OP_NVML:
      return known ? 2 : 3; /* NVML_ERROR_INVALID_ARGUMENT, NOT_SUPPORTED */
    default:
      return known ? VGPU_STATUS_INVALID : VGPU_STATUS_UNKNOWN;
  }
}

struct answer {
  int32_t status;
  uint32_t flags;
  uint32_t body_size;
  _Alignas(8) unsigned char body[VGPU_BODY_MAX]; /* structures of the wire, filled in place */
  struct vgpu_bulk bulk;
  struct vgpu_span span; /* that the bulk is put into */
};

static const struct vgpu_dispatch_row *find_row(const void *context, uint32_t opcode) {
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
 * A frame whose bulk is a span: points `bulk` at the data in the area, or at where it is to go. Only for
 * calls that look at neither, which no session can have without areas.
 */
static bool enter_area(const struct vgpu_worker *worker, const struct vgpu_request *request,
                       struct vgpu_span *span, struct vgpu_bulk *bulk) {
  const struct vgpu_dispatch_row *row = request->row;
  if (!worker->areas_agreed || row == NULL || request->frame.bulk != sizeof *span) return false;
  bool in = row->raw_in, out = row->raw_out && !row->bulk_in;
  memcpy(span, request->bulk, sizeof *span);
  unsigned char *memory = vgpu_areas_at(&worker->areas, span);
  if (memory == NULL || (!in && !out)) return false;
  if (in) {
    bulk->in = memory;
    bulk->in_size = (uint32_t)span->length;
  } else {
    bulk->in_size = 0;
    bulk->out = memory;
    bulk->out_capacity = (uint32_t)span->length;
  }
  return true;
}

static void carry_out(struct vgpu_worker *worker, const struct vgpu_request *request, struct answer *answer) {
  const struct vgpu_frame *frame = &request->frame;
  struct vgpu_bulk *bulk = &answer->bulk;
  const struct vgpu_dispatch_row *row = request->row;
  bool in_area = (frame->flags & VGPU_FLAG_AREA) != 0;
  if ((frame->opcode & VGPU_OP_RANGE_MASK) == VGPU_OP_CONTROL && !in_area) {
    answer->status = vgpu_control(worker, frame->opcode, request->body, frame->body, answer->body,
                                  &answer->body_size, bulk);
    return;
  }
  struct vgpu_span span;
  if (row == NULL || row->send_size != frame->body ||
      row->oneway != ((frame->flags & VGPU_FLAG_ONEWAY) != 0) ||
      (in_area ? !enter_area(worker, request, &span, bulk) : !row->bulk_in && frame->bulk != 0)) {
    answer->status = refusal(frame->opcode, row != NULL);
    return;
  }
  unsigned char *into = bulk->out;
  memset(answer->body, 0, row->reply_size);
  answer->status = worker->backend->number == VGPU_BACKEND_SOFTWARE
                       ? vgpu_queue_run(worker, row, request->body, answer->body, bulk)
                       : row->run[worker->backend->number](worker, request->body, answer->body, bulk);
  answer->body_size = row->reply_size;
  if (!row->bulk_out) bulk->out_size = 0;
  if (!in_area || !row->bulk_out || answer->status != 0) return;
  if (bulk->out != into) memcpy(into, bulk->out, bulk->out_size);
  answer->span = span;
  answer->span.length = bulk->out_size;
  answer->flags = VGPU_FLAG_AREA;
  bulk->out = (unsigned char *)&answer->span;
  bulk->out_size = sizeof answer->span;
}

bool vgpu_worker_may_wait(const struct vgpu_worker *worker, uint64_t bytes) {
  uint64_t limit = worker->limits->outstanding, now = worker->queue.bytes + worker->reads.bytes;
  return now <= limit && bytes <= limit - now;
}

/*
 * Who calls more often than it may waits, and so does all that it sends behind: it is slowed down, not thrown
 * out, for a burst is no attack.
 */
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

static bool answer_request(struct vgpu_worker *worker, const struct vgpu_request *request) {
  const struct vgpu_frame *frame = &request->frame;
  struct answer answer;
  answer.status = 0;
  answer.flags = 0;
  answer.body_size = 0;
  answer.bulk = (struct vgpu_bulk){
      .in = request->bulk, .in_size = frame->bulk, .out = worker->out, .out_capacity = VGPU_BULK_MAX};
  carry_out(worker, request, &answer);
  vgpu_link_done(&worker->link, request);
  if ((frame->flags & VGPU_FLAG_ONEWAY) != 0) {
    if (answer.status != 0 && worker->deferred == 0) worker->deferred = answer.status;
    return true;
  }
  struct vgpu_frame reply = {.opcode = frame->opcode,
                             .flags = VGPU_FLAG_REPLY | answer.flags,
                             .lane = frame->lane,
                             .sequence = frame->sequence,
                             .status = answer.status,
                             .deferred = worker->deferred};
  worker->deferred = worker->spoiled;
  bool brings = answer.status == 0;
  return vgpu_link_reply(&worker->link, &reply, answer.body, brings ? answer.body_size : 0, answer.bulk.out,
                         brings ? answer.bulk.out_size : 0);
}

int vgpu_worker_serve(struct vgpu_worker *worker) {
  if (!greet(worker)) return 1;
  worker->handles.limit = worker->limits->session_handles;
  worker->link.in = malloc(VGPU_FRAME_MAX);
  worker->out = malloc(VGPU_FRAME_MAX);
  if (worker->link.in == NULL || worker->out == NULL) return 1;
  worker->link.next_sequence = 1;
  struct vgpu_request request;
  const char *violation;
  for (;;) {
    if (!vgpu_link_receive(&worker->link, find_row, worker, &request, &violation)) {
      if (violation != NULL) {
        vgpu_host_log("violation", worker->session, "violation: the guest sent %s", violation);
      }
      return 0;
    }
    keep_to_rate(worker);
    if (!answer_request(worker, &request)) return 0;
  }
}
