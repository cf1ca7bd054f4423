#include "host/session/vm_rings.h"

#include "wire/clock.h"
#include "wire/stream.h"

static bool reply_to(struct vgpu_worker *worker, int32_t status, uint64_t next, int64_t deadline) {
  struct vgpu_frame frame = {.opcode = VGPU_OP_VM_RINGS, .flags = VGPU_FLAG_REPLY, .status = status};
  const struct vgpu_vm_place_reply reply = {.next = next};
  return vgpu_stream_write_frame(worker->link.descriptor, &frame, &reply, status == 0 ? sizeof reply : 0,
                                 NULL, 0, deadline) == VGPU_STREAM_OK;
}

static const char *violation_of(const struct vgpu_frame *frame) {
  bool expected = frame->opcode == VGPU_OP_VM_RINGS && frame->flags == 0 && frame->sequence == 0 &&
                  frame->body == sizeof(struct vgpu_vm_place) && frame->bulk == 0;
  return expected ? NULL : "something else than a place for its rings";
}

enum vgpu_vm_rings_outcome vgpu_vm_rings_agree(struct vgpu_worker *worker, const char **violation) {
  const int descriptor = worker->link.descriptor;
  const int64_t deadline = vgpu_now_ms() + VGPU_HANDSHAKE_LIMIT_MS;
  *violation = NULL;
  for (;;) {
    struct vgpu_frame frame;
    struct vgpu_vm_place place;
    enum vgpu_stream_result result = vgpu_stream_read_header(descriptor, &frame, deadline);
    if (result == VGPU_STREAM_UNSOUND) *violation = "a frame whose sizes do not agree";
    if (result != VGPU_STREAM_OK) return VGPU_VM_RINGS_GONE;
    *violation = violation_of(&frame);
    if (*violation != NULL || vgpu_stream_read(descriptor, &place, sizeof place, deadline) != VGPU_STREAM_OK)
      return VGPU_VM_RINGS_GONE;
    if (place.offset == VGPU_VM_NOT_SEEN || place.offset == VGPU_VM_NO_ROOM) {
      if (!reply_to(worker, 0, 0, deadline)) return VGPU_VM_RINGS_GONE;
      return place.offset == VGPU_VM_NOT_SEEN ? VGPU_VM_RINGS_NOT_SEEN : VGPU_VM_RINGS_NO_ROOM;
    }
    uint64_t next;
    bool taken = vgpu_link_place_rings(&worker->link, &worker->vm_memory, &place, &next);
    if (!reply_to(worker, taken || next != 0 ? 0 : VGPU_STATUS_REFUSED, next, deadline))
      return VGPU_VM_RINGS_GONE;
    if (taken) return VGPU_VM_RINGS_TAKEN;
  }
}
