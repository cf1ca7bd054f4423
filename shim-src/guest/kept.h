/* Frames that may have to be sent again, each until a later one was answered. Needs `sending`. */
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

bool vgpu_kept_init(struct vgpu_kept *kept, const _Atomic uint64_t *answered);
void vgpu_kept_destroy(struct vgpu_kept *kept);

/* Drops answered frames first. `stays`: no copy of the bulk. `last`: may use the reserve. */
bool vgpu_kept_fits(struct vgpu_kept *kept, uint32_t body_size, uint32_t bulk_size, bool stays, bool last);

/* Needs room (vgpu_kept_fits) and the sizes in `frame`. */
void vgpu_kept_add(struct vgpu_kept *kept, struct vgpu_frame *frame, const void *body, uint32_t body_size,
                   const void *bulk, uint32_t bulk_size, bool stays);

enum vgpu_stream_result vgpu_kept_send(struct vgpu_kept *kept, int descriptor, uint64_t next,
                                       int64_t deadline);

#endif
