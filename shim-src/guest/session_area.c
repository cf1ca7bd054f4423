/* Memory that the host sees too. */
#include <sys/mman.h>
#include <unistd.h>

#include "guest/log.h"
#include "guest/session_internal.h"
#include "wire/clock.h"
#include "wire/shared.h"

static void forget(struct vgpu_session *session, uint32_t area) {
  struct vgpu_area_drop drop = {.area = area};
  struct vgpu_send send = {.body = &drop, .body_size = sizeof drop};
  int32_t status;
  (void)vgpu_session_call(session, VGPU_OP_AREA_DROP, &send, NULL, &status);
}

bool vgpu_session_maps(const struct vgpu_session *session) {
  const uint32_t both = VGPU_FEATURE_AREA | VGPU_FEATURE_MAP;
  return (session->welcome.features & both) == both && session->rings.base != NULL;
}

bool vgpu_session_area_make(struct vgpu_session *session, size_t bytes, uint32_t *area, void **memory) {
  if ((session->welcome.features & VGPU_FEATURE_AREA) == 0 || session->rings.base == NULL) return false;
  struct vgpu_area_request request = {.bytes = bytes};
  struct vgpu_area_reply reply;
  struct vgpu_send send = {.body = &request, .body_size = sizeof request};
  struct vgpu_receive receive = {.body = &reply, .body_size = sizeof reply};
  int32_t status = 0;
  *memory = NULL;
  pthread_mutex_lock(&session->area);
  enum vgpu_outcome outcome = vgpu_session_call(session, VGPU_OP_AREA_ADD, &send, &receive, &status);
  bool made = outcome == VGPU_ANSWERED && status == VGPU_STATUS_OK;
  if (made) {
    int descriptor = vgpu_bell_take(&session->bell, vgpu_now_ms() + VGPU_CALL_LIMIT_MS);
    if (descriptor >= 0 && vgpu_shared_sound(descriptor, bytes)) *memory = vgpu_shared_map(descriptor, bytes);
    if (descriptor >= 0) close(descriptor);
    if (*memory == NULL) forget(session, reply.area);
  }
  pthread_mutex_unlock(&session->area);
  if (made && *memory == NULL) vgpu_log("shared memory of %zu bytes cannot be used", bytes);
  *area = made ? reply.area : 0;
  return *memory != NULL;
}

void vgpu_session_area_drop(struct vgpu_session *session, uint32_t area, void *memory, size_t bytes) {
  forget(session, area);
  munmap(memory, bytes);
}
