/*
 * Frames that a session with VGPU_FEATURE_RESUME may have to send again over another connection. Each frame
 * is kept until the host has answered a later one. The caller of all functions holds the session's `sending`
 * lock.
 */
#ifndef VGPU_GUEST_KEPT_H
#define VGPU_GUEST_KEPT_H

#include <stdatomic.h>

#include "wire/stream.h"

#define VGPU_KEPT_BYTES (3u << 20)
#define VGPU_KEPT_COPIED (16u << 10) /* longer bulk with `stays` is not copied */
#define VGPU_KEPT_HELD 64u

struct vgpu_kept {
  unsigned char *bytes; /* VGPU_KEPT_BYTES; the frames, oldest first, without the bulk that is held */
  uint32_t used;
  uint64_t newest; /* sequence of the last frame */
  struct {
    uint64_t sequence;
    const void *bulk; /* in the caller's memory, which the caller does not change until the host has it */
  } held[VGPU_KEPT_HELD];
  uint32_t held_count;
  const _Atomic uint64_t *answered; /* the session's */
};

/* False: no memory. */
bool vgpu_kept_init(struct vgpu_kept *kept, const _Atomic uint64_t *answered);
void vgpu_kept_destroy(struct vgpu_kept *kept);

/*
 * True if there is room for a frame. Frames that the host has answered are dropped first. `stays`: the bulk
 * need not be copied. `last`: the answer to this call makes room, so it may use a small reserve.
 */
bool vgpu_kept_fits(struct vgpu_kept *kept, uint32_t body_size, uint32_t bulk_size, bool stays, bool last);

/* Adds a frame for which vgpu_kept_fits has found room. The caller has set the sizes in `frame`. */
void vgpu_kept_add(struct vgpu_kept *kept, struct vgpu_frame *frame, const void *body, uint32_t body_size,
                   const void *bulk, uint32_t bulk_size, bool stays);

/* Sends all frames from the sequence `next` on. */
enum vgpu_stream_result vgpu_kept_send(struct vgpu_kept *kept, int descriptor, uint64_t next,
                                       int64_t deadline);

#endif
