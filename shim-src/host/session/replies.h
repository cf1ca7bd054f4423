/*
 * Replies of a session that can be continued (VGPU_FEATURE_RESUME): kept until a request says that they have
 * come. Bulk is left where it is until the next request is carried out, which is what may change it; by then
 * a guest with one thread has said that it has the reply, so that nothing is copied.
 */
#ifndef VGPU_HOST_REPLIES_H
#define VGPU_HOST_REPLIES_H

#include <stdbool.h>
#include <stddef.h>

#include "wire/stream.h"

#define VGPU_REPLIES_MOST 1024u               /* a thread of the guest waits for each */
#define VGPU_REPLIES_BYTES ((size_t)64 << 20) /* of bulk that was copied */

struct vgpu_kept_reply;

struct vgpu_replies {
  struct vgpu_kept_reply *array; /* a ring of VGPU_REPLIES_MOST places, made at the first reply */
  uint32_t first, count;
  size_t copied; /* bytes */
};

/* False: there is no memory, or too many are kept; then none is. */
bool vgpu_replies_keep(struct vgpu_replies *replies, const struct vgpu_frame *frame, const void *body,
                       uint32_t body_size, const void *bulk, uint32_t bulk_size);

/* All up to this sequence have come. */
void vgpu_replies_drop(struct vgpu_replies *replies, uint64_t acknowledged);

/* Copies what the next request may change. False: it cannot, and nothing is kept any more. */
bool vgpu_replies_settle(struct vgpu_replies *replies);

/* Sends all that are kept. */
enum vgpu_stream_result vgpu_replies_send(const struct vgpu_replies *replies, int descriptor,
                                          int64_t deadline);

void vgpu_replies_forget(struct vgpu_replies *replies);

#endif
