/* Memory that the host sees too. */
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

bool vgpu_session_exchanges(const struct vgpu_session *session) {
  return (session->welcome.features & VGPU_FEATURE_EXCHANGE) != 0;
}

/* Maps what the host has made: memory that comes over the socket, or a range of the VM's. */
static void *map_region(struct vgpu_session *session, const struct vgpu_vm_region_reply *reply,
                        size_t bytes) {
  void *memory = NULL;
  if (session->vm_memory >= 0) {
    if (bytes > session->vm_bytes || reply->offset > session->vm_bytes - bytes) return NULL;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, session->vm_memory, (off_t)reply->offset);
    return memory == MAP_FAILED ? NULL : memory;
  }
  int descriptor = vgpu_doorbell_take(&session->doorbell, vgpu_now_ms() + VGPU_CALL_LIMIT_MS);
  if (descriptor >= 0 && vgpu_shared_sound(descriptor, bytes)) memory = vgpu_shared_map(descriptor, bytes);
  if (descriptor >= 0) close(descriptor);
  return memory;
}

bool vgpu_session_shared_region_make(struct vgpu_session *session, size_t bytes, uint32_t *shared_region,
                                     void **memory) {
  if ((session->welcome.features & VGPU_FEATURE_SHARED_REGION) == 0 || session->rings.base == NULL)
    return false;
  struct vgpu_shared_region_request request = {.bytes = bytes};
  struct vgpu_vm_region_reply reply = {0};
  struct vgpu_send send = {.body = &request, .body_size = sizeof request};
  struct vgpu_receive receive = {
      .body = &reply,
      .body_size = session->vm_memory >= 0 ? sizeof reply : sizeof(struct vgpu_shared_region_reply)};
  int32_t status = 0;
  *memory = NULL;
  pthread_mutex_lock(&session->shared_region);
  enum vgpu_outcome outcome = vgpu_session_call(session, VGPU_OP_SHARED_REGION_ADD, &send, &receive, &status);
  bool made = outcome == VGPU_ANSWERED && status == VGPU_STATUS_OK;
  if (made) {
    *memory = map_region(session, &reply, bytes);
    if (*memory == NULL) forget(session, reply.shared_region);
  }
  pthread_mutex_unlock(&session->shared_region);
  if (made && *memory == NULL) vgpu_log("shared memory of %zu bytes cannot be used", bytes);
  *shared_region = made ? reply.shared_region : 0;
  return *memory != NULL;
}

void vgpu_session_shared_region_drop(struct vgpu_session *session, uint32_t shared_region, void *memory,
                                     size_t bytes) {
  forget(session, shared_region);
  munmap(memory, bytes);
}
