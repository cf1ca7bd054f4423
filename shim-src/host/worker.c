#include "host/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/log.h"
#include "wire/clock.h"
#include "wire/stream.h"

/* A guest that started a frame must finish it; one that asked must read the answer. */
#define FRAME_LIMIT_MS 60000

static bool greet(struct vgpu_worker *worker) {
  int64_t deadline = vgpu_now_ms() + VGPU_HANDSHAKE_LIMIT_MS;
  struct vgpu_frame frame;
  struct vgpu_hello hello;
  enum vgpu_stream_result result = vgpu_stream_read_header(worker->descriptor, &frame, deadline);
  if (result != VGPU_STREAM_OK || frame.opcode != VGPU_OP_HELLO || frame.flags != 0 || frame.sequence != 0 ||
      frame.body < sizeof hello) {
    vgpu_host_log("refused", worker->session, "no greeting: %s",
                  result == VGPU_STREAM_TIMEOUT  ? "nothing came within the limit"
                  : result == VGPU_STREAM_CLOSED ? "the peer went away"
                                                 : "not the vgpu protocol");
    return false;
  }
  /* A later guest may say more than we know. */
  result = vgpu_stream_read(worker->descriptor, &hello, sizeof hello, deadline);
  if (result == VGPU_STREAM_OK) {
    result = vgpu_stream_skip(worker->descriptor, frame.length - sizeof frame - sizeof hello, deadline);
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
  result = vgpu_stream_write_frame(worker->descriptor, &reply, &welcome, taken ? sizeof welcome : 0, NULL, 0,
                                   deadline);
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
  uint32_t body_size;
  unsigned char body[VGPU_BODY_MAX];
  struct vgpu_bulk bulk;
};

static void carry_out(struct vgpu_worker *worker, const struct vgpu_frame *frame, struct answer *answer) {
  const void *body = worker->in;
  struct vgpu_bulk *bulk = &answer->bulk;
  uint32_t range = frame->opcode & VGPU_OP_RANGE_MASK;
  if (range == VGPU_OP_CONTROL) {
    answer->status =
        vgpu_control(worker, frame->opcode, body, frame->body, answer->body, &answer->body_size, bulk);
    return;
  }
  const struct vgpu_dispatch_row *row = NULL;
  if (range == VGPU_OP_CUDA && worker->library == VGPU_LIBRARY_CUDA) row = vgpu_dispatch_cuda(frame->opcode);
  if (range == VGPU_OP_NVML && worker->library == VGPU_LIBRARY_NVML) row = vgpu_dispatch_nvml(frame->opcode);
  if (row == NULL || row->send_size != frame->body ||
      row->oneway != ((frame->flags & VGPU_FLAG_ONEWAY) != 0) || (!row->bulk_in && frame->bulk != 0)) {
    answer->status = refusal(frame->opcode, row != NULL);
    return;
  }
  memset(answer->body, 0, row->reply_size);
  answer->status = worker->backend->number == VGPU_BACKEND_SOFTWARE
                       ? vgpu_queue_run(worker, row, body, answer->body, bulk)
                       : row->run[worker->backend->number](worker, body, answer->body, bulk);
  answer->body_size = row->reply_size;
  if (!row->bulk_out) bulk->out_size = 0;
}

static bool next_frame(struct vgpu_worker *worker, struct vgpu_frame *frame) {
  enum vgpu_stream_result result = vgpu_stream_read_header(worker->descriptor, frame, VGPU_NO_DEADLINE);
  if (result == VGPU_STREAM_CLOSED) return false;
  const char *wrong = NULL;
  if (result != VGPU_STREAM_OK) wrong = "a frame whose sizes do not agree";
  else if ((frame->flags & ~VGPU_FLAG_ONEWAY) != 0) wrong = "a flag that was not agreed upon";
  else if (frame->sequence != worker->next_sequence) wrong = "a frame out of order";
  if (wrong != NULL) {
    vgpu_host_log("violation", worker->session, "violation: the guest sent %s", wrong);
    return false;
  }
  worker->next_sequence++;
  size_t rest = frame->length - sizeof *frame;
  return vgpu_stream_read(worker->descriptor, worker->in, rest, vgpu_now_ms() + FRAME_LIMIT_MS) ==
         VGPU_STREAM_OK;
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

static bool answer_frame(struct vgpu_worker *worker, const struct vgpu_frame *frame) {
  struct answer answer;
  answer.status = 0;
  answer.body_size = 0;
  answer.bulk = (struct vgpu_bulk){.in = worker->in + frame->body,
                                   .in_size = frame->bulk,
                                   .out = worker->out,
                                   .out_capacity = VGPU_BULK_MAX};
  carry_out(worker, frame, &answer);
  if ((frame->flags & VGPU_FLAG_ONEWAY) != 0) {
    if (answer.status != 0 && worker->deferred == 0) worker->deferred = answer.status;
    return true;
  }
  struct vgpu_frame reply = {.opcode = frame->opcode,
                             .flags = VGPU_FLAG_REPLY,
                             .lane = frame->lane,
                             .sequence = frame->sequence,
                             .status = answer.status,
                             .deferred = worker->deferred};
  worker->deferred = worker->spoiled;
  bool brings = answer.status == 0;
  return vgpu_stream_write_frame(worker->descriptor, &reply, answer.body, brings ? answer.body_size : 0,
                                 answer.bulk.out, brings ? answer.bulk.out_size : 0,
                                 vgpu_now_ms() + FRAME_LIMIT_MS) == VGPU_STREAM_OK;
}

int vgpu_worker_serve(struct vgpu_worker *worker) {
  if (!greet(worker)) return 1;
  worker->handles.limit = worker->limits->session_handles;
  worker->in = malloc(VGPU_FRAME_MAX);
  worker->out = malloc(VGPU_FRAME_MAX);
  if (worker->in == NULL || worker->out == NULL) return 1;
  worker->next_sequence = 1;
  struct vgpu_frame frame;
  while (next_frame(worker, &frame)) {
    keep_to_rate(worker);
    if (!answer_frame(worker, &frame)) break;
  }
  return 0;
}
