/* Inside of a session; for session*.c only. */
#ifndef VGPU_GUEST_SESSION_INTERNAL_H
#define VGPU_GUEST_SESSION_INTERNAL_H

#include <pthread.h>

#include "guest/line.h"
#include "guest/outbox.h"
#include "guest/session.h"
#include "guest/vm_memory.h"
#include "wire/ahead.h"
#include "wire/ring.h"

/* A thread that waits for a reply; lives on that thread's stack, in the session's list. */
struct vgpu_pending {
  struct vgpu_pending *next;
  uint64_t sequence;
  uint32_t opcode;
  struct vgpu_receive *receive;
  const struct vgpu_span *shared_region; /* where the host puts the bulk; NULL: it comes with the reply */
  int32_t status;
  enum vgpu_outcome outcome;
  int64_t deadline;
  bool done;   /* written under `state` */
  bool asleep; /* on `wake`, which there is only then */
  pthread_cond_t wake;
};

/*
 * Locks: `sending` orders frames on the stream and their sequence numbers; `state` guards the list and
 * who reads. `sending` is taken before `state`, never the other way round. One of the waiting threads
 * reads for all (`reading`); the others sleep on their own condition.
 */
struct vgpu_session {
  int descriptor;
  struct vgpu_rings
      rings; /* none: frames go over the socket. Requests: under `sending`; replies: `reading` */
  struct vgpu_vm_memory vm;  /* of the host, in which rings and shared regions lie; of 0 bytes: they do not */
  struct vgpu_outbox outbox; /* without rings: one-way frames not written yet, under `sending` */
  struct vgpu_ahead ahead;   /* without rings: replies read ahead, by the thread that is `reading` */
  struct vgpu_doorbell doorbell;
  struct vgpu_welcome welcome;
  struct vgpu_line line;        /* of a session that survives its connection */
  vgpu_begins_work begins_work; /* NULL: no call does */
  pthread_mutex_t pieces;       /* see session_pieces.c */
  pthread_mutex_t
      shared_region; /* one at a time asks for a shared region, whose descriptor comes beside the answer */
  pthread_mutex_t sending;
  uint64_t next_sequence;    /* written under `sending` */
  _Atomic uint64_t launched; /* sequence number of the last frame that began work */
  _Atomic uint64_t answered; /* and of the last call that was answered: work before it is done */
  pthread_mutex_t state;
  struct vgpu_pending *pending;
  bool reading;
  bool lost;              /* written under `state` */
  _Atomic bool printed;   /* the last answer had VGPU_FLAG_PRINTED */
  _Atomic uint64_t heard; /* frames that came from the host */
  int32_t deferred;
};

/*
 * The two halves of a waiting call. After begin() with VGPU_ANSWERED finish() must follow, by the same
 * thread; the reply may be read by any that waits.
 */
enum vgpu_outcome vgpu_session_begin(struct vgpu_session *session, uint32_t opcode,
                                     const struct vgpu_send *send, struct vgpu_receive *receive,
                                     struct vgpu_pending *self);
enum vgpu_outcome vgpu_session_finish(struct vgpu_session *session, struct vgpu_pending *self,
                                      int32_t *status);

/*
 * After a WELCOME with a mark: the rings lie in this VM's memory from here on, or the socket carries the
 * frames. False: the host is gone, or did not keep to it.
 */
bool vgpu_session_enter_vm(struct vgpu_session *session, const struct vgpu_vm_mark *mark, int64_t deadline);

/* A shared region in this VM's memory, with `shared_region` held; false: the host has made none. Then *memory
 * is NULL if it cannot be mapped. */
bool vgpu_session_place_region(struct vgpu_session *session, size_t bytes, uint32_t *shared_region,
                               void **memory);

/* Why a session ends; said once to VGPU_LOG. Wakes everybody who waits. With `state` held. */
void vgpu_session_lose_locked(struct vgpu_session *session, const char *reason);

/* Likewise: everybody who waits looks again. */
void vgpu_session_rouse(struct vgpu_session *session);

/* The number of the next frame. With `sending` held. */
static inline uint64_t vgpu_session_number(struct vgpu_session *session) {
  uint64_t number = session->next_sequence;
  __atomic_store_n(&session->next_sequence, number + 1, __ATOMIC_RELAXED);
  return number;
}

#endif
