/*
 * The guest's queries about the devices of a host, and rules that the answers of every backend must satisfy.
 */
#ifndef VGPU_FUZZ_FACTS_H
#define VGPU_FUZZ_FACTS_H

#include <stdlib.h>
#include <string.h>

#include "guest/session.h"

/* Makes the first, second or third query. Aborts if the library accepted an invalid answer. */
static inline void fuzz_ask_facts(struct vgpu_session *session, unsigned which) {
  static struct vgpu_device_facts facts[VGPU_DEVICES_MAX];
  struct vgpu_process_facts processes[4];
  struct vgpu_usage_reply usage;
  uint32_t count = 0;
  int32_t status = 0;
  switch (which % 3) {
    case 0:
      vgpu_session_device_facts(session, facts, VGPU_DEVICES_MAX, &count, &status);
      if (count > VGPU_DEVICES_MAX) abort();
      for (uint32_t i = 0; i < count; i++) {
        if (memchr(facts[i].name, 0, sizeof facts[i].name) == NULL) abort();
      }
      return;
    case 1:
      vgpu_session_device_usage(session, 0, &usage, &status);
      return;
    default:
      vgpu_session_device_processes(session, 0, processes, 4, &count, &status);
      if (count > 4) abort();
  }
}

#endif
