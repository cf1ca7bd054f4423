#include "host/session/link.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "host/session/apart.h"
#include "wire/clock.h"
#include "wire/shared.h"
#include "wire/stream.h"

typedef const struct vgpu_dispatch_row *find_row(const void *context, uint32_t opcode);

/* A guest that started a frame must finish it; one that asked must read the answer. */
#define FRAME_LIMIT_MS 60000

int vgpu_link_make_rings(struct vgpu_link *link) {
  int memory = vgpu_shared_make("vgpu-ring", vgpu_rings_bytes(VGPU_RING_BYTES));
  if (memory < 0) return -1;
  if (vgpu_rings_map(&link->rings, memory, 0, VGPU_RING_BYTES)) {
    /* The guest's processors are this machine's. In a VM their numbers mean nothing here. */
    link->rings.requests.peer_processor = &link->rings.replies.control->reader_processor;
    link->rings.requests.leave = vgpu_leave_processor;
    vgpu_doorbell_init(&link->doorbell, link->descriptor);
    return memory;
  }
  close(memory);
  return -1;
}

bool vgpu_link_place_rings(struct vgpu_link *link, const struct vgpu_vm_memory *memory,
                           const struct vgpu_vm_place *place, uint64_t *next) {
  *next = 0;
  if (place->bytes != vgpu_rings_bytes(VGPU_RING_BYTES) || !vgpu_vm_memory_take(memory, place, next))
    return false;
  if (vgpu_rings_map(&link->rings, memory->holder, place->offset, VGPU_RING_BYTES)) {
    vgpu_doorbell_init(&link->doorbell, link->descriptor);
    return true;
  }
  vgpu_vm_memory_give(memory, place);
  return false;
}

static const char *wrong_with(const struct vgpu_link *link, const struct vgpu_frame *frame) {
  uint32_t allowed = VGPU_FLAG_ONEWAY | (link->rings.base != NULL ? VGPU_FLAG_SHARED_REGION : 0);
  if ((frame->flags & ~allowed) != 0) return "a flag that was not agreed upon";
  if (frame->sequence != link->next_sequence) return "a frame out of order";
  return NULL;
}

/* What may change while it is read is copied first, unless nobody will look into it. */
static void take_from_ring(struct vgpu_link *link, struct vgpu_request *request) {
  const struct vgpu_frame *frame = &request->frame;
  const unsigned char *body = vgpu_ring_at(&link->rings.requests) + sizeof *frame;
  const unsigned char *bulk = body + frame->body;
  bool in_place =
      request->row != NULL && request->row->raw_in && (frame->flags & VGPU_FLAG_SHARED_REGION) == 0;
  memcpy(link->in, body, in_place ? frame->body : frame->body + frame->bulk);
  request->bulk = in_place ? bulk : link->in + frame->body;
}

/*
 * The connection has ended: goes on with the guest's next one, where it has sent again what is missing here.
 * False: there is none.
 */
static bool reconnect(struct vgpu_link *link) {
  uint64_t received;
  int next = vgpu_line_wait(&link->line, &received);
  if (next < 0) return false;
  pthread_mutex_lock(&link->writing);
  link->descriptor = link->ahead.descriptor = next;
  link->ahead.begin = link->ahead.end = 0;
  vgpu_replies_drop(&link->line.replies, received);
  /* If this one has ended, too, reading notices it. */
  (void)vgpu_replies_send(&link->line.replies, next, vgpu_now_ms() + FRAME_LIMIT_MS);
  pthread_mutex_unlock(&link->writing);
  return true;
}

static void count_frame(struct vgpu_link *link) {
  __atomic_store_n(&link->next_sequence, link->next_sequence + 1, __ATOMIC_RELAXED);
}

static bool receive_from_ring(struct vgpu_link *link, find_row *find, const void *context,
                              struct vgpu_request *request, const char **violation) {
  struct vgpu_frame *frame = &request->frame;
  enum vgpu_stream_result result =
      vgpu_ring_read_header(&link->rings.requests, frame, &link->doorbell, VGPU_NO_DEADLINE);
  if (result == VGPU_STREAM_CLOSED) return false;
  *violation = result == VGPU_STREAM_OK ? wrong_with(link, frame) : "an invalid frame or index of the ring";
  if (*violation != NULL) return false;
  __atomic_store_n(&link->working, true, __ATOMIC_RELAXED);
  count_frame(link);
  link->current = frame->length;
  request->row = find(context, frame->opcode);
  take_from_ring(link, request);
  return true;
}

/* Of a guest that may have sent it before its connection broke. */
static bool had_already(const struct vgpu_link *link, const struct vgpu_frame *frame) {
  return link->line.agreed && frame->sequence != 0 && frame->sequence < link->next_sequence;
}

/* One frame that is not had already; what is behind `frame` lies at link->in. */
static enum vgpu_stream_result read_frame(struct vgpu_link *link, struct vgpu_frame *frame,
                                          const char **violation) {
  for (;;) {
    enum vgpu_stream_result result = vgpu_ahead_read_header(&link->ahead, frame, VGPU_NO_DEADLINE);
    if (result == VGPU_STREAM_CLOSED) return result;
    if (result != VGPU_STREAM_OK) *violation = "a frame whose sizes do not agree";
    else if (!had_already(link, frame)) *violation = wrong_with(link, frame);
    if (*violation != NULL) return VGPU_STREAM_UNSOUND;
    __atomic_store_n(&link->working, true, __ATOMIC_RELAXED);
    result = vgpu_ahead_read(&link->ahead, link->in, frame->length - sizeof *frame,
                             vgpu_about_now_ms() + FRAME_LIMIT_MS);
    if (result != VGPU_STREAM_OK || !had_already(link, frame)) return result;
    __atomic_store_n(&link->working, false, __ATOMIC_RELAXED);
  }
}

/* What the guest has is kept no longer; what it has not must not change while the request is carried out. */
static void settle_replies(struct vgpu_link *link, const struct vgpu_frame *frame) {
  struct vgpu_line *line = &link->line;
  vgpu_replies_drop(&line->replies, vgpu_frame_acknowledged(frame));
  if (!vgpu_replies_settle(&line->replies)) __atomic_store_n(&line->overrun, true, __ATOMIC_RELAXED);
}

bool vgpu_link_receive(struct vgpu_link *link, find_row *find, const void *context,
                       struct vgpu_request *request, const char **violation) {
  struct vgpu_frame *frame = &request->frame;
  *violation = NULL;
  request->body = link->in;
  if (link->rings.base != NULL) return receive_from_ring(link, find, context, request, violation);
  enum vgpu_stream_result result;
  while ((result = read_frame(link, frame, violation)) == VGPU_STREAM_CLOSED) {
    __atomic_store_n(&link->working, false, __ATOMIC_RELAXED);
    if (!reconnect(link)) return false;
  }
  if (result != VGPU_STREAM_OK) return false;
  count_frame(link);
  if (link->line.agreed) settle_replies(link, frame);
  link->current = frame->length;
  request->row = find(context, frame->opcode);
  request->bulk = link->in + frame->body;
  return true;
}

bool vgpu_link_has_more(const struct vgpu_link *link) {
  if (link->rings.base != NULL) {
    /* The frame that is carried out lies in the ring until it is done. What the guest says is only compared.
     */
    const struct vgpu_ring *ring = &link->rings.requests;
    return __atomic_load_n(&ring->control->tail, __ATOMIC_ACQUIRE) !=
           ring->position + vgpu_ring_step(link->current);
  }
  struct pollfd poller = {.fd = link->descriptor, .events = POLLIN};
  return link->ahead.end > link->ahead.begin || poll(&poller, 1, 0) == 1;
}

void vgpu_link_done(struct vgpu_link *link, const struct vgpu_request *request) {
  __atomic_store_n(&link->working, false, __ATOMIC_RELAXED);
  if (link->rings.base != NULL) vgpu_ring_read(&link->rings.requests, request->frame.length, &link->doorbell);
}

bool vgpu_link_reply(struct vgpu_link *link, struct vgpu_frame *reply, const void *body, uint32_t body_size,
                     const void *bulk, uint32_t bulk_size) {
  int64_t deadline = vgpu_about_now_ms() + FRAME_LIMIT_MS;
  if (link->rings.base != NULL) {
    return vgpu_ring_write_frame(&link->rings.replies, reply, body, body_size, bulk, bulk_size,
                                 &link->doorbell, deadline) == VGPU_STREAM_OK;
  }
  struct vgpu_line *line = &link->line;
  if (line->agreed && !line->overrun &&
      !vgpu_replies_keep(&line->replies, reply, body, body_size, bulk, bulk_size)) {
    __atomic_store_n(&line->overrun, true, __ATOMIC_RELAXED);
  }
  pthread_mutex_lock(&link->writing);
  enum vgpu_stream_result result =
      vgpu_stream_write_frame(link->descriptor, reply, body, body_size, bulk, bulk_size, deadline);
  pthread_mutex_unlock(&link->writing);
  /* What could not be sent is sent over the guest's next connection, which reading waits for. */
  return result == VGPU_STREAM_OK || (result == VGPU_STREAM_CLOSED && line->agreed);
}

void vgpu_link_tell_alive(struct vgpu_link *link, bool idle) {
  if (!link->alive || (!idle && !__atomic_load_n(&link->working, __ATOMIC_RELAXED))) return;
  if (link->rings.base != NULL) {
    vgpu_doorbell_ring(&link->doorbell);
    return;
  }
  /* While an answer is written, that is the sign. */
  if (pthread_mutex_trylock(&link->writing) != 0) return;
  struct vgpu_frame sign = {.opcode = VGPU_OP_ALIVE, .flags = VGPU_FLAG_REPLY};
  /* One that is not taken yet is nobody's but the watcher's, which is here. */
  int newest = link->line.agreed ? vgpu_line_newest(&link->line) : link->descriptor;
  /* A guest that leaves no room for it is not waiting for one. */
  struct pollfd poller = {.fd = newest, .events = POLLOUT};
  if (poll(&poller, 1, 0) == 1 && (poller.revents & POLLOUT) != 0) {
    (void)vgpu_stream_write_frame(newest, &sign, NULL, 0, NULL, 0, vgpu_now_ms() + FRAME_LIMIT_MS);
  }
  pthread_mutex_unlock(&link->writing);
}

bool vgpu_link_pass(const struct vgpu_link *link, int passed) {
  return vgpu_stream_pass(link->descriptor, passed, vgpu_now_ms() + FRAME_LIMIT_MS) == VGPU_STREAM_OK;
}
