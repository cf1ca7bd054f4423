#include "host/session/link.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "wire/clock.h"
#include "wire/shared.h"
#include "wire/stream.h"

/* A guest that started a frame must finish it; one that asked must read the answer. */
#define FRAME_LIMIT_MS 60000

int vgpu_link_make_rings(struct vgpu_link *link) {
  int memory = vgpu_shared_make("vgpu-ring", vgpu_rings_bytes(VGPU_RING_BYTES));
  if (memory < 0) return -1;
  if (vgpu_rings_map(&link->rings, memory, 0, VGPU_RING_BYTES)) {
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

bool vgpu_link_receive(struct vgpu_link *link,
                       const struct vgpu_dispatch_row *(*find)(const void *context, uint32_t opcode),
                       const void *context, struct vgpu_request *request, const char **violation) {
  struct vgpu_frame *frame = &request->frame;
  bool ring = link->rings.base != NULL;
  *violation = NULL;
  enum vgpu_stream_result result =
      ring ? vgpu_ring_read_header(&link->rings.requests, frame, &link->doorbell, VGPU_NO_DEADLINE)
           : vgpu_ahead_read_header(&link->ahead, frame, VGPU_NO_DEADLINE);
  if (result == VGPU_STREAM_CLOSED) return false;
  *violation = result == VGPU_STREAM_OK ? wrong_with(link, frame)
               : ring                   ? "a frame or an index of the ring that makes no sense"
                                        : "a frame whose sizes do not agree";
  if (*violation != NULL) return false;
  __atomic_store_n(&link->working, true, __ATOMIC_RELAXED);
  __atomic_store_n(&link->next_sequence, link->next_sequence + 1, __ATOMIC_RELAXED);
  link->current = frame->length;
  request->row = find(context, frame->opcode);
  request->body = link->in;
  request->bulk = link->in + frame->body;
  if (ring) {
    take_from_ring(link, request);
    return true;
  }
  return vgpu_ahead_read(&link->ahead, link->in, frame->length - sizeof *frame,
                         vgpu_about_now_ms() + FRAME_LIMIT_MS) == VGPU_STREAM_OK;
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
  pthread_mutex_lock(&link->writing);
  enum vgpu_stream_result result =
      vgpu_stream_write_frame(link->descriptor, reply, body, body_size, bulk, bulk_size, deadline);
  pthread_mutex_unlock(&link->writing);
  return result == VGPU_STREAM_OK;
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
  /* A guest that leaves no room for it is not waiting for one. */
  struct pollfd poller = {.fd = link->descriptor, .events = POLLOUT};
  if (poll(&poller, 1, 0) == 1 && (poller.revents & POLLOUT) != 0) {
    (void)vgpu_stream_write_frame(link->descriptor, &sign, NULL, 0, NULL, 0, vgpu_now_ms() + FRAME_LIMIT_MS);
  }
  pthread_mutex_unlock(&link->writing);
}

bool vgpu_link_pass(const struct vgpu_link *link, int passed) {
  return vgpu_stream_pass(link->descriptor, passed, vgpu_now_ms() + FRAME_LIMIT_MS) == VGPU_STREAM_OK;
}
