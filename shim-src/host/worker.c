#include "host/answer.h"

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
  struct vgpu_answer answer;
  vgpu_carry_out(worker, request, worker->out, VGPU_BULK_MAX, &answer);
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
    if (!vgpu_link_receive(&worker->link, vgpu_find_row, worker, &request, &violation)) {
      if (violation != NULL) {
        vgpu_host_log("violation", worker->session, "violation: the guest sent %s", violation);
      }
      return 0;
    }
    keep_to_rate(worker);
    if (!answer_request(worker, &request)) return 0;
  }
}
