/* For session*.c only. */
#ifndef VGPU_GUEST_SESSION_INTERNAL_H
#define VGPU_GUEST_SESSION_INTERNAL_H

#include <pthread.h>

#include "guest/line.h"
#include "guest/outbox.h"
#include "guest/session.h"
#include "guest/vm_memory.h"
#include "wire/read_ahead.h"
#include "wire/ring.h"

/* A thread that waits for a reply. The structure is on the stack of that thread and in the session's list. */
struct vgpu_pending {
  struct vgpu_pending *next;
  uint64_t sequence;
  uint32_t opcode;
  struct vgpu_receive *receive;
  const struct vgpu_span *shared_region; /* the place for the bulk; NULL: the reply contains it */
  int32_t status;
  enum vgpu_outcome outcome;
  int64_t begun, deadline;
  bool lets_others_read;
  bool done;   /* written under `state` */
  bool asleep; /* waits on `wake`, which exists only then */
  pthread_cond_t wake;
};

/*
 * Locks: `sending` orders the frames on the stream and their sequence numbers; `state` guards the list of
 * waiting threads and `reading`. A thread that needs both takes `sending` first. One waiting thread reads
 * replies for all of them (`reading`); the others sleep on their own condition. A thread whose call takes
 * long lets the others read for themselves while they call often.
 */
struct vgpu_session {
  struct vgpu_owned_socket own; /* the socket */
  struct vgpu_rings
      rings; /* none: frames go over the socket. Requests: under `sending`; replies: `reading` */
  struct vgpu_vm_memory vm;     /* the memory of rings and shared regions in a VM; 0 bytes: not used */
  struct vgpu_outbox outbox;    /* without rings: one-way frames not written yet, under `sending` */
  struct vgpu_read_ahead ahead; /* without rings: replies read ahead, by the thread that is `reading` */
  struct vgpu_doorbell doorbell;
  struct vgpu_welcome welcome;
  struct vgpu_line line;         /* of a session that survives its connection */
  vgpu_begins_work begins_work;  /* NULL: no call does */
  pthread_mutex_t pieces;        /* see session_pieces.c */
  pthread_mutex_t shared_region; /* one thread at a time requests a shared region: its descriptor arrives
                                    separately from the answer */
  pthread_mutex_t sending;
  uint64_t next_sequence;    /* written under `sending` */
  _Atomic uint64_t launched; /* sequence number of the last frame that began work */
  _Atomic uint64_t answered; /* the highest of a call that was answered: the host has all frames up to it */
  _Atomic uint64_t received; /* of the last reply; all replies that were sent before it have arrived */
  pthread_mutex_t state;
  struct vgpu_pending *pending;
  bool reading;
  bool lost;              /* written under `state` */
  _Atomic bool printed;   /* the last answer had VGPU_FLAG_PRINTED */
  _Atomic uint64_t heard; /* number of frames from the host */
  int32_t deferred;
};

/*
 * The two halves of a waiting call. If begin() returns VGPU_ANSWERED, the same thread must call finish(). Any
 * waiting thread may read the reply.
 */
enum vgpu_outcome vgpu_session_begin(struct vgpu_session *session, uint32_t opcode,
                                     const struct vgpu_send *send, struct vgpu_receive *receive,
                                     struct vgpu_pending *self);
enum vgpu_outcome vgpu_session_finish(struct vgpu_session *session, struct vgpu_pending *self,
                                      int32_t *status);

/*
 * Finds a place for the rings in this VM's memory, after a WELCOME with a mark. If there is no place, the
 * socket carries the frames. False: the host is gone, or broke the protocol.
 */
bool vgpu_session_enter_vm(struct vgpu_session *session, const struct vgpu_vm_mark *mark, int64_t deadline);

/*
 * Makes a shared region in this VM's memory. The caller holds `shared_region`. False: the host has made none.
 * *memory is NULL if the region cannot be mapped.
 */
bool vgpu_session_place_region(struct vgpu_session *session, size_t bytes, uint32_t *shared_region,
                               void **memory);

/*
 * Ends the session, writes the reason to VGPU_LOG once, and wakes all waiting threads. The caller holds
 * `state`.
 */
void vgpu_session_lose_locked(struct vgpu_session *session, const char *reason);

/* Wakes all waiting threads, so that they check again. The caller holds `state`. */
void vgpu_session_rouse(struct vgpu_session *session);

/* Takes the sequence number of the next frame. The caller holds `sending`. */
static inline uint64_t vgpu_session_number(struct vgpu_session *session) {
  uint64_t number = session->next_sequence;
  __atomic_store_n(&session->next_sequence, number + 1, __ATOMIC_RELAXED);
  return number;
}

#endif
