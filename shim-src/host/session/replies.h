/*
 * The replies of a session that can continue over another connection (VGPU_FEATURE_RESUME). Each one is kept
 * until a request acknowledges it. The bulk of a reply is not copied at once, because only the next request
 * can change it. A guest with one thread has acknowledged the reply by then, so no copy is needed at all.
 */
#ifndef VGPU_HOST_REPLIES_H
#define VGPU_HOST_REPLIES_H

#include <stdbool.h>
#include <stddef.h>

#include "wire/stream.h"

#define VGPU_REPLIES_MOST 1024u               /* a thread of the guest waits for each reply */
#define VGPU_REPLIES_BYTES ((size_t)64 << 20) /* of bulk that was copied */

struct vgpu_kept_reply;

struct vgpu_replies {
  struct vgpu_kept_reply *array; /* a ring of VGPU_REPLIES_MOST places, made at the first reply */
  uint32_t first, count;
  size_t copied; /* bytes */
};

/* Keeps a reply. False: no memory, or too many replies are kept; then all of them are dropped. */
bool vgpu_replies_keep(struct vgpu_replies *replies, const struct vgpu_frame *frame, const void *body,
                       uint32_t body_size, const void *bulk, uint32_t bulk_size);

/* Drops the replies up to the one with this sequence, in the order in which they were sent. */
void vgpu_replies_drop(struct vgpu_replies *replies, uint64_t acknowledged);

/* Copies bulk that the next request may change. False: no memory; all replies are dropped then. */
bool vgpu_replies_settle(struct vgpu_replies *replies);

/* Sends all kept replies. */
enum vgpu_stream_result vgpu_replies_send(const struct vgpu_replies *replies, int descriptor,
                                          int64_t deadline);

void vgpu_replies_forget(struct vgpu_replies *replies);

#endif
