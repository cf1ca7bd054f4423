/*
 * Frames that a session with VGPU_FEATURE_RESUME may have to send again over another connection. Each frame
 * is kept until the host has answered a later one. The caller of all functions holds the session's `sending`
 * lock.
 */
#ifndef VGPU_GUEST_RESEND_H
#define VGPU_GUEST_RESEND_H

#include <stdatomic.h>

#include "wire/stream.h"

#define VGPU_RESEND_BYTES (3u << 20)
#define VGPU_RESEND_COPIED (16u << 10) /* longer bulk with `stays` is not copied */
#define VGPU_RESEND_HELD 64u

struct vgpu_resend {
  unsigned char *bytes; /* VGPU_RESEND_BYTES; the frames, oldest first, without the bulk that is held */
  uint32_t used;
  uint64_t newest; /* sequence of the last frame */
  struct {
    uint64_t sequence;
    const void *bulk; /* in the caller's memory, which the caller does not change until the host has it */
  } held[VGPU_RESEND_HELD];
  uint32_t held_count;
  const _Atomic uint64_t *answered; /* the session's */
};

/* False: no memory. */
bool vgpu_resend_init(struct vgpu_resend *kept, const _Atomic uint64_t *answered);
void vgpu_resend_destroy(struct vgpu_resend *kept);

/*
 * True if there is room for a frame. Frames that the host has answered are dropped first. `stays`: the bulk
 * need not be copied. `last`: the answer to this call makes room, so it may use a small reserve.
 */
bool vgpu_resend_fits(struct vgpu_resend *kept, uint32_t body_size, uint32_t bulk_size, bool stays,
                      bool last);

/* Adds a frame for which vgpu_resend_fits has found room. The caller has set the sizes in `frame`. */
void vgpu_resend_add(struct vgpu_resend *kept, struct vgpu_frame *frame, const void *body, uint32_t body_size,
                     const void *bulk, uint32_t bulk_size, bool stays);

/* Sends all frames from the sequence `next` on. */
enum vgpu_stream_result vgpu_resend_send(struct vgpu_resend *kept, int descriptor, uint64_t next,
                                         int64_t deadline);

#endif
