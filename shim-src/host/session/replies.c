#include "host/session/replies.h"

#include <stdlib.h>
#include <string.h>

struct vgpu_kept_reply {
  struct vgpu_frame frame;
  uint32_t body_size, bulk_size;
  const void *bulk;
  unsigned char *copy; /* backs `bulk`; NULL: the bytes are elsewhere */
  _Alignas(8) unsigned char body[VGPU_BODY_MAX];
};

static struct vgpu_kept_reply *at(const struct vgpu_replies *replies, uint32_t index) {
  return &replies->array[(replies->first + index) % VGPU_REPLIES_MOST];
}

static void drop_first(struct vgpu_replies *replies) {
  struct vgpu_kept_reply *reply = at(replies, 0);
  if (reply->copy != NULL) replies->copied -= reply->bulk_size;
  free(reply->copy);
  replies->first = (replies->first + 1) % VGPU_REPLIES_MOST;
  replies->count--;
}

void vgpu_replies_forget(struct vgpu_replies *replies) {
  while (replies->count > 0) drop_first(replies);
  free(replies->array);
  replies->array = NULL;
}

bool vgpu_replies_keep(struct vgpu_replies *replies, const struct vgpu_frame *frame, const void *body,
                       uint32_t body_size, const void *bulk, uint32_t bulk_size) {
  if (replies->array == NULL) replies->array = calloc(VGPU_REPLIES_MOST, sizeof *replies->array);
  if (replies->array == NULL || replies->count == VGPU_REPLIES_MOST || body_size > VGPU_BODY_MAX) {
    vgpu_replies_forget(replies);
    return false;
  }
  struct vgpu_kept_reply *reply = at(replies, replies->count++);
  reply->frame = *frame;
  reply->body_size = body_size;
  reply->bulk_size = bulk_size;
  reply->bulk = bulk;
  reply->copy = NULL;
  if (body_size > 0) memcpy(reply->body, body, body_size);
  return true;
}

void vgpu_replies_drop(struct vgpu_replies *replies, uint64_t acknowledged) {
  uint32_t received = replies->count;
  while (received > 0 && at(replies, received - 1)->frame.sequence != acknowledged) received--;
  while (received-- > 0) drop_first(replies);
}

bool vgpu_replies_settle(struct vgpu_replies *replies) {
  for (uint32_t i = 0; i < replies->count; i++) {
    struct vgpu_kept_reply *reply = at(replies, i);
    if (reply->copy != NULL || reply->bulk_size == 0) continue;
    bool room = reply->bulk_size <= VGPU_REPLIES_BYTES - replies->copied;
    reply->copy = room ? malloc(reply->bulk_size) : NULL;
    if (reply->copy == NULL) {
      vgpu_replies_forget(replies);
      return false;
    }
    memcpy(reply->copy, reply->bulk, reply->bulk_size);
    replies->copied += reply->bulk_size;
    reply->bulk = reply->copy;
  }
  return true;
}

enum vgpu_stream_result vgpu_replies_send(const struct vgpu_replies *replies, int descriptor,
                                          int64_t deadline) {
  enum vgpu_stream_result result = VGPU_STREAM_OK;
  for (uint32_t i = 0; i < replies->count && result == VGPU_STREAM_OK; i++) {
    struct vgpu_kept_reply *reply = at(replies, i);
    struct vgpu_frame frame = reply->frame;
    result = vgpu_stream_write_frame(descriptor, &frame, reply->body, reply->body_size, reply->bulk,
                                     reply->bulk_size, deadline);
  }
  return result;
}
