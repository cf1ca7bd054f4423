#include <sys/mman.h>
#include <unistd.h>

#include "guest/log.h"
#include "guest/session_internal.h"
#include "wire/clock.h"
#include "wire/shared.h"

static void forget(struct vgpu_session *session, uint32_t shared_region) {
  struct vgpu_shared_region_drop drop = {.shared_region = shared_region};
  struct vgpu_send send = {.body = &drop, .body_size = sizeof drop};
  int32_t status;
  (void)vgpu_session_call(session, VGPU_OP_SHARED_REGION_DROP, &send, NULL, &status);
}

bool vgpu_session_maps(const struct vgpu_session *session) {
  const uint32_t both = VGPU_FEATURE_SHARED_REGION | VGPU_FEATURE_MAP;
  return (session->welcome.features & both) == both && session->rings.base != NULL;
}

bool vgpu_session_mirrors(const struct vgpu_session *session) {
  return (session->welcome.features & VGPU_FEATURE_MIRROR) != 0;
}

bool vgpu_session_has_graphs(const struct vgpu_session *session) {
  return (session->welcome.features & VGPU_FEATURE_GRAPHS) != 0;
}

bool vgpu_session_loads(const struct vgpu_session *session) {
  return (session->welcome.features & VGPU_FEATURE_LOADS) != 0;
}

bool vgpu_session_has_gates(const struct vgpu_session *session) {
  return (session->welcome.features & VGPU_FEATURE_GATES) != 0;
}

bool vgpu_session_reads_only(const struct vgpu_session *session) {
  return (session->welcome.features & VGPU_FEATURE_READ_ONLY) != 0;
}

bool vgpu_session_in_vm_memory(const struct vgpu_session *session) {
  return session->vm.bytes > 0;
}

bool vgpu_session_exchanges(const struct vgpu_session *session) {
  return (session->welcome.features & VGPU_FEATURE_EXCHANGE) != 0;
}

bool vgpu_session_shares(const struct vgpu_session *session) {
  return (session->welcome.features & (VGPU_FEATURE_EXCHANGE | VGPU_FEATURE_SHARES)) != 0;
}

bool vgpu_session_has_ipc(const struct vgpu_session *session) {
  return (session->welcome.features & (VGPU_FEATURE_EXCHANGE | VGPU_FEATURE_IPC)) != 0;
}

/* Returns the descriptor from the host; after a broken connection it arrives over the next one. -1: none. */
static int take_descriptor(struct vgpu_session *session) {
  for (;;) {
    const uint64_t count = vgpu_line_count(&session->line);
    const int64_t deadline = vgpu_now_ms() + VGPU_CALL_LIMIT_MS;
    int descriptor = vgpu_doorbell_take(&session->doorbell, deadline);
    if (descriptor >= 0) return descriptor;
    if (vgpu_left_ms(deadline) > 0 && vgpu_line_renewed(session, count)) continue;
    vgpu_doorbell_missed(&session->doorbell);
    return -1;
  }
}

static bool make_region(struct vgpu_session *session, size_t bytes, uint32_t *shared_region, void **memory) {
  struct vgpu_shared_region_request request = {.bytes = bytes};
  struct vgpu_shared_region_reply reply = {0};
  struct vgpu_send send = {.body = &request, .body_size = sizeof request};
  struct vgpu_receive receive = {.body = &reply, .body_size = sizeof reply};
  int32_t status = 0;
  enum vgpu_outcome outcome = vgpu_session_call(session, VGPU_OP_SHARED_REGION_ADD, &send, &receive, &status);
  if (outcome != VGPU_ANSWERED || status != VGPU_STATUS_OK) return false;
  *shared_region = reply.shared_region;
  int descriptor = take_descriptor(session);
  if (descriptor >= 0 && vgpu_shared_sound(descriptor, bytes)) *memory = vgpu_shared_map(descriptor, bytes);
  if (descriptor >= 0) close(descriptor);
  return true;
}

bool vgpu_session_shared_region_make(struct vgpu_session *session, size_t bytes, uint32_t *shared_region,
                                     void **memory) {
  *shared_region = 0;
  *memory = NULL;
  if ((session->welcome.features & VGPU_FEATURE_SHARED_REGION) == 0 || session->rings.base == NULL)
    return false;
  pthread_mutex_lock(&session->shared_region);
  bool made = session->vm.bytes > 0 ? vgpu_session_place_region(session, bytes, shared_region, memory)
                                    : make_region(session, bytes, shared_region, memory);
  if (made && *memory == NULL) forget(session, *shared_region);
  pthread_mutex_unlock(&session->shared_region);
  if (made && *memory == NULL) {
    vgpu_log("shared memory of %zu bytes cannot be used", bytes);
    *shared_region = 0;
  }
  return *memory != NULL;
}

void vgpu_session_shared_region_drop(struct vgpu_session *session, uint32_t shared_region, void *memory,
                                     size_t bytes) {
  forget(session, shared_region);
  munmap(memory, bytes);
}
