#include <sys/mman.h>
#include <unistd.h>

#include "guest/log.h"
#include "guest/session_internal.h"
#include "wire/stream.h"

/* Asks the host for a place that this process has locked. */
typedef bool (*ask_host)(void *context, const struct vgpu_vm_place *place, struct vgpu_vm_place_reply *reply);

enum placing {
  PLACED,  /* *descriptor has the lock of *place */
  NO_ROOM, /* every place is in use */
  REFUSED, /* the host refused, or is gone */
};

/*
 * Finds the first place that is free in this VM and at the host. The search begins behind the last place that
 * was found, and continues at the beginning of the memory.
 */
static enum placing find_place(struct vgpu_vm_memory *memory, struct vgpu_vm_place *place, ask_host ask,
                               void *context, struct vgpu_vm_place_reply *reply, int *descriptor) {
  const uint64_t start = memory->start;
  uint64_t from = start;
  for (bool around = false;;) {
    *descriptor =
        vgpu_vm_memory_lock(memory, place->bytes, from, around ? start : memory->bytes, &place->offset);
    if (*descriptor < 0) {
      if (around) return NO_ROOM;
      around = true;
      from = 0;
      continue;
    }
    *reply = (struct vgpu_vm_place_reply){0};
    bool answered = ask(context, place, reply);
    if (answered && reply->next == 0) {
      memory->start = place->offset + place->bytes;
      return PLACED;
    }
    close(*descriptor);
    *descriptor = -1;
    if (!answered || reply->next <= place->offset) return REFUSED;
    from = reply->next;
  }
}

struct greeting {
  int descriptor;
  int64_t deadline;
};

static bool ask_for_rings(void *context, const struct vgpu_vm_place *place,
                          struct vgpu_vm_place_reply *reply) {
  const struct greeting *greeting = context;
  struct vgpu_frame frame = {.opcode = VGPU_OP_VM_RINGS};
  struct vgpu_frame answer;
  return vgpu_stream_write_frame(greeting->descriptor, &frame, place, sizeof *place, NULL, 0,
                                 greeting->deadline) == VGPU_STREAM_OK &&
         vgpu_stream_read_header(greeting->descriptor, &answer, greeting->deadline) == VGPU_STREAM_OK &&
         answer.opcode == VGPU_OP_VM_RINGS && answer.flags == VGPU_FLAG_REPLY && answer.sequence == 0 &&
         answer.status == 0 && answer.body == sizeof *reply && answer.bulk == 0 &&
         vgpu_stream_read(greeting->descriptor, reply, sizeof *reply, greeting->deadline) == VGPU_STREAM_OK;
}

static bool give_up(struct vgpu_session *session, struct greeting *greeting, uint64_t why) {
  const struct vgpu_vm_place nowhere = {.offset = why};
  struct vgpu_vm_place_reply reply;
  vgpu_log("the host's shared memory cannot be used: %s; the socket carries the frames",
           why == VGPU_VM_NO_ROOM ? "all of it is in use" : "none of this VM's has its mark");
  session->vm.bytes = 0;
  session->welcome.features &= ~(VGPU_FEATURE_VM_MEMORY | VGPU_FEATURE_MAP);
  return ask_for_rings(greeting, &nowhere, &reply);
}

bool vgpu_session_enter_vm(struct vgpu_session *session, const struct vgpu_vm_mark *mark, int64_t deadline) {
  struct greeting greeting = {.descriptor = session->own.descriptor, .deadline = deadline};
  const uint32_t size = session->welcome.ring_size;
  if (!vgpu_ring_size_sound(size) || !vgpu_vm_memory_find(mark, &session->vm))
    return give_up(session, &greeting, VGPU_VM_NOT_SEEN);
  struct vgpu_vm_place place = {.bytes = vgpu_rings_bytes(size)};
  struct vgpu_vm_place_reply reply;
  int descriptor;
  switch (find_place(&session->vm, &place, ask_for_rings, &greeting, &reply, &descriptor)) {
    case PLACED:
      break;
    case NO_ROOM:
      return give_up(session, &greeting, VGPU_VM_NO_ROOM);
    case REFUSED:
      return false;
  }
  bool mapped = vgpu_rings_map(&session->rings, descriptor, place.offset, size);
  close(descriptor);
  if (mapped) vgpu_rings_across_vm(&session->rings, true);
  session->welcome.features |= VGPU_FEATURE_RING | VGPU_FEATURE_SHARED_REGION;
  return mapped;
}

void vgpu_session_leave_vm(struct vgpu_session *session) {
  if (session->vm.bytes == 0 || session->rings.base == NULL || !vgpu_session_is_lost(session)) return;
  /* Not unmapped: a thread may still be leaving a call. If this fails, the place stays taken. */
  (void)mmap(session->rings.base, session->rings.mapped, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static bool ask_for_region(void *context, const struct vgpu_vm_place *place,
                           struct vgpu_vm_place_reply *reply) {
  struct vgpu_send send = {.body = place, .body_size = sizeof *place};
  struct vgpu_receive receive = {.body = reply, .body_size = sizeof *reply};
  int32_t status = 0;
  return vgpu_session_call(context, VGPU_OP_SHARED_REGION_ADD, &send, &receive, &status) == VGPU_ANSWERED &&
         status == VGPU_STATUS_OK && (reply->shared_region != 0) == (reply->next == 0);
}

bool vgpu_session_place_region(struct vgpu_session *session, size_t bytes, uint32_t *shared_region,
                               void **memory) {
  struct vgpu_vm_place place = {.bytes = bytes};
  struct vgpu_vm_place_reply reply;
  int descriptor;
  *memory = NULL;
  if (find_place(&session->vm, &place, ask_for_region, session, &reply, &descriptor) != PLACED) return false;
  *shared_region = reply.shared_region;
  void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, (off_t)place.offset);
  close(descriptor); /* the mapping keeps the lock */
  *memory = mapped == MAP_FAILED ? NULL : mapped;
  return true;
}
