/* Inside of a session; for session*.c only. */
#ifndef VGPU_GUEST_SESSION_INTERNAL_H
#define VGPU_GUEST_SESSION_INTERNAL_H

#include <pthread.h>

#include "guest/session.h"

/* A thread that waits for a reply; lives on that thread's stack, in the session's list. */
struct vgpu_pending {
  struct vgpu_pending *next;
  uint64_t sequence;
  uint32_t opcode;
  struct vgpu_receive *receive;
  int32_t status;
  enum vgpu_outcome outcome;
  bool done;
  bool asleep; /* on `wake`; false while it still sends, when a signal would be lost */
  pthread_cond_t wake;
};

/*
 * Locks: `sending` orders frames on the stream and their sequence numbers; `state` guards the list and
 * who reads. `sending` is taken before `state`, never the other way round. One of the waiting threads
 * reads for all (`reading`); the others sleep on their own condition.
 */
struct vgpu_session {
  int descriptor;
  struct vgpu_welcome welcome;
  pthread_mutex_t sending;
  uint64_t next_sequence;
  pthread_mutex_t state;
  struct vgpu_pending *pending;
  bool reading;
  bool lost;
  int32_t deferred;
};

/* Why a session ends; said once to VGPU_LOG. Wakes everybody who waits. */
void vgpu_session_lose(struct vgpu_session *session, const char *reason);

#endif
