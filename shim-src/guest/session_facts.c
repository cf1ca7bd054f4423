#include <stdlib.h>
#include <string.h>

#include "guest/session.h"

/* A newer host's elements are longer: reads the known part of each. */
static uint32_t take_elements(void *to, size_t known, uint32_t capacity, const unsigned char *from,
                              uint32_t bytes, const struct vgpu_facts_reply *reply) {
  uint32_t count = reply->count < capacity ? reply->count : capacity;
  if (reply->element_size < known || (uint64_t)reply->count * reply->element_size > bytes) return 0;
  for (uint32_t i = 0; i < count; i++) {
    memcpy((unsigned char *)to + i * known, from + (size_t)i * reply->element_size, known);
  }
  return count;
}

enum vgpu_outcome vgpu_session_device_facts(struct vgpu_session *session, struct vgpu_device_facts *facts,
                                            uint32_t capacity, uint32_t *count, int32_t *status) {
  *count = 0;
  /* On the heap: a caller may be a thread with a small stack. Room for elements twice as long as ours. */
  const uint32_t room = VGPU_DEVICES_MAX * 2 * sizeof *facts;
  unsigned char *bulk = malloc(room);
  if (bulk == NULL) return VGPU_TOO_LARGE;
  struct vgpu_facts_request request = {.first = 0, .count = capacity};
  struct vgpu_facts_reply reply;
  struct vgpu_send send = {.body = &request, .body_size = sizeof request};
  struct vgpu_receive receive = {
      .body = &reply, .body_size = sizeof reply, .bulk = bulk, .bulk_capacity = room};
  enum vgpu_outcome outcome = vgpu_session_call(session, VGPU_OP_DEVICE_FACTS, &send, &receive, status);
  if (outcome == VGPU_ANSWERED && *status == 0) {
    *count = take_elements(facts, sizeof *facts, capacity, bulk, receive.bulk_size, &reply);
  }
  free(bulk);
  for (uint32_t i = 0; i < *count; i++) facts[i].name[sizeof facts[i].name - 1] = '\0';
  return outcome;
}

enum vgpu_outcome vgpu_session_device_usage(struct vgpu_session *session, uint32_t device,
                                            struct vgpu_usage_reply *usage, int32_t *status) {
  struct vgpu_usage_request request = {.device = device, .wants_persistence = 1};
  struct vgpu_send send = {.body = &request, .body_size = sizeof request};
  struct vgpu_receive receive = {.body = usage, .body_size = sizeof *usage};
  return vgpu_session_call(session, VGPU_OP_DEVICE_USAGE, &send, &receive, status);
}

enum vgpu_outcome vgpu_session_device_processes(struct vgpu_session *session, uint32_t device,
                                                struct vgpu_process_facts *processes, uint32_t capacity,
                                                uint32_t *count, int32_t *status) {
  *count = 0;
  unsigned char bulk[256 * sizeof *processes];
  struct vgpu_usage_request request = {.device = device};
  struct vgpu_facts_reply reply;
  struct vgpu_send send = {.body = &request, .body_size = sizeof request};
  struct vgpu_receive receive = {
      .body = &reply, .body_size = sizeof reply, .bulk = bulk, .bulk_capacity = sizeof bulk};
  enum vgpu_outcome outcome = vgpu_session_call(session, VGPU_OP_DEVICE_PROCESSES, &send, &receive, status);
  if (outcome != VGPU_ANSWERED || *status != 0) return outcome;
  *count = take_elements(processes, sizeof *processes, capacity, bulk, receive.bulk_size, &reply);
  return outcome;
}
