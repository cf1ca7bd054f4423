/*
 * The connection of a session that survives it (VGPU_FEATURE_RESUME): a thread of the library notices that it
 * broke, also while no call is made, connects again and sends what the host has not. Until then calls wait,
 * and one-way calls are kept (kept.h). With rings nothing is sent again, and one-way calls are written into
 * them meanwhile. For session*.c only.
 */
#ifndef VGPU_GUEST_LINE_H
#define VGPU_GUEST_LINE_H

#include <pthread.h>

#include "guest/kept.h"
#include "wire/address.h"

struct vgpu_session;

struct vgpu_line {
  bool survives; /* agreed upon, and the thread runs. Changes once, to false: under `state` */
  bool runs;     /* the thread was started */
  bool mapped;   /* the host can tell that this process maps the rings that it has passed */
  struct vgpu_address address;
  enum vgpu_library library;
  int64_t limit_ms;      /* set before the greeting; 0: not offered */
  struct vgpu_kept kept; /* under `sending` */
  pthread_t thread;
  int wake;       /* wakes the thread; -1: none */
  int candidate;  /* a connection on which it greets; -1: none. Under `state`; closed in a forked child */
  bool broken;    /* written under `state`, and restored under `sending`, too */
  bool ending;    /* under `state` */
  uint64_t count; /* of connections. Written under `state` and, without rings, `sending`. Use __atomic */
  /* Of the thread alone: what the last connection brought, and since when the session has had none that did.
   */
  uint64_t answered, taken;
  int64_t up_at, since;
  pthread_cond_t restored; /* with `state`: no longer broken, or lost; or nobody reads any more */
};

/* Seconds of VGPU_RECONNECT; 0: the session shall not survive its connection. */
uint32_t vgpu_line_wanted(void);

/* After a WELCOME with VGPU_FEATURE_RESUME; if it cannot be, the host is told so. */
void vgpu_line_begin(struct vgpu_session *session, const struct vgpu_address *address,
                     enum vgpu_library library);

/* With `state` held: this connection is of no use any more. */
void vgpu_line_break(struct vgpu_session *session, const char *reason);

/* Likewise: until there is another connection. False: there will be none. */
bool vgpu_line_wait(struct vgpu_session *session);

/* The doorbell of connection number `count` has ended: until there is another one. False: there will be none.
 */
bool vgpu_line_renewed(struct vgpu_session *session, uint64_t count);

/* Which connection there is. */
static inline uint64_t vgpu_line_count(const struct vgpu_line *line) {
  return __atomic_load_n(&line->count, __ATOMIC_ACQUIRE);
}

/* From here on the end of the connection is the end of the session. Waits for a moment at most. */
void vgpu_line_goodbye(struct vgpu_session *session);

/* Ends the thread; no other thread may be inside a call. */
void vgpu_line_end(struct vgpu_session *session);

#endif
