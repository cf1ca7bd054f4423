#include "guest/resend.h"

#include <stdlib.h>
#include <string.h>

#define RESERVE (8u << 10) /* for the pings by which waiting threads make room, one of each thread */

bool vgpu_resend_init(struct vgpu_resend *kept, const _Atomic uint64_t *answered) {
  *kept = (struct vgpu_resend){.bytes = malloc(VGPU_RESEND_BYTES), .answered = answered};
  return kept->bytes != NULL;
}

void vgpu_resend_destroy(struct vgpu_resend *kept) {
  free(kept->bytes);
  kept->bytes = NULL;
}

static bool is_held(bool stays, uint32_t bulk_size) {
  return stays && bulk_size > VGPU_RESEND_COPIED;
}

static uint32_t room_of(uint32_t body_size, uint32_t bulk_size, bool held) {
  return vgpu_frame_length(body_size, held ? 0 : bulk_size);
}

/* Returns the bulk of a frame that is held without a copy; NULL: the bulk follows the body. */
static const void *held_bulk(const struct vgpu_resend *kept, uint64_t sequence, uint32_t *from) {
  while (*from < kept->held_count && kept->held[*from].sequence < sequence) ++*from;
  return *from < kept->held_count && kept->held[*from].sequence == sequence ? kept->held[*from].bulk : NULL;
}

static void drop(struct vgpu_resend *kept) {
  uint64_t answered = atomic_load_explicit(kept->answered, memory_order_acquire);
  uint32_t at = 0, held = 0;
  while (at < kept->used) {
    struct vgpu_frame frame;
    memcpy(&frame, kept->bytes + at, sizeof frame);
    if (frame.sequence > answered) break;
    at += room_of(frame.body, frame.bulk, held_bulk(kept, frame.sequence, &held) != NULL);
  }
  memmove(kept->bytes, kept->bytes + at, kept->used - at);
  kept->used -= at;
  held = 0;
  while (held < kept->held_count && kept->held[held].sequence <= answered) held++;
  kept->held_count -= held;
  memmove(kept->held, kept->held + held, kept->held_count * sizeof *kept->held);
}

bool vgpu_resend_fits(struct vgpu_resend *kept, uint32_t body_size, uint32_t bulk_size, bool stays,
                      bool last) {
  /* Common case: nothing in flight, and the memory at the beginning is in a processor's cache. */
  if (atomic_load_explicit(kept->answered, memory_order_acquire) >= kept->newest) {
    kept->used = 0;
    kept->held_count = 0;
  }
  bool held = is_held(stays, bulk_size);
  uint32_t wanted = room_of(body_size, bulk_size, held) + (last ? 0 : RESERVE);
  if (wanted <= VGPU_RESEND_BYTES - kept->used && (!held || kept->held_count < VGPU_RESEND_HELD)) return true;
  drop(kept);
  return wanted <= VGPU_RESEND_BYTES - kept->used && (!held || kept->held_count < VGPU_RESEND_HELD);
}

void vgpu_resend_add(struct vgpu_resend *kept, struct vgpu_frame *frame, const void *body, uint32_t body_size,
                     const void *bulk, uint32_t bulk_size, bool stays) {
  bool held = is_held(stays, bulk_size);
  frame->body = body_size;
  frame->bulk = bulk_size;
  frame->length = vgpu_frame_length(body_size, bulk_size);
  uint32_t room = room_of(body_size, bulk_size, held);
  unsigned char *at = kept->bytes + kept->used;
  memset(at + room - 8, 0, 8); /* the padding is within the last 8 bytes */
  memcpy(at, frame, sizeof *frame);
  if (body_size > 0) memcpy(at + sizeof *frame, body, body_size);
  if (bulk_size > 0 && !held) memcpy(at + sizeof *frame + body_size, bulk, bulk_size);
  if (held) {
    kept->held[kept->held_count].sequence = frame->sequence;
    kept->held[kept->held_count++].bulk = bulk;
  }
  kept->used += room;
  kept->newest = frame->sequence;
}

enum vgpu_stream_result vgpu_resend_send(struct vgpu_resend *kept, int descriptor, uint64_t next,
                                         int64_t deadline) {
  uint32_t held = 0;
  uint32_t at = 0, begin = 0;
  while (at < kept->used) {
    struct vgpu_frame frame;
    memcpy(&frame, kept->bytes + at, sizeof frame);
    const void *bulk = held_bulk(kept, frame.sequence, &held);
    uint32_t room = room_of(frame.body, frame.bulk, bulk != NULL);
    if (frame.sequence < next) begin = at + room;
    if (bulk != NULL && frame.sequence >= next) {
      enum vgpu_stream_result result =
          vgpu_stream_write_after(descriptor, kept->bytes + begin, at - begin, &frame,
                                  kept->bytes + at + sizeof frame, frame.body, bulk, frame.bulk, deadline);
      if (result != VGPU_STREAM_OK) return result;
      begin = at + room;
    }
    at += room;
  }
  return begin == kept->used
             ? VGPU_STREAM_OK
             : vgpu_stream_write(descriptor, kept->bytes + begin, kept->used - begin, deadline);
}
