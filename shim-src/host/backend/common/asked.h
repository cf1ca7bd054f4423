/*
 * A call that is told NOT_READY is sent again by the same thread of the guest, with the same body. Lane and
 * body identify it. Lane 0 is a guest that does not say which of its threads calls.
 */
#ifndef VGPU_HOST_ASKED_H
#define VGPU_HOST_ASKED_H

#include <stdbool.h>
#include <string.h>

#include "host/session/link.h"

struct vgpu_asked {
  uint32_t lane; /* 0: free */
  uint32_t opcode, body_size;
  unsigned char body[VGPU_BODY_MAX];
};

static inline void vgpu_asked_remember(struct vgpu_asked *asked, const struct vgpu_request *request) {
  asked->lane = request->frame.lane;
  asked->opcode = request->frame.opcode;
  asked->body_size = request->frame.body;
  memcpy(asked->body, request->body, request->frame.body);
}

static inline bool vgpu_asked_is(const struct vgpu_asked *asked, const struct vgpu_request *request) {
  const struct vgpu_frame *frame = &request->frame;
  return asked->lane != 0 && asked->lane == frame->lane && asked->opcode == frame->opcode &&
         asked->body_size == frame->body && memcmp(asked->body, request->body, frame->body) == 0;
}

#endif
