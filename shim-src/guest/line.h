/*
 * The connection of a session with VGPU_FEATURE_RESUME. A thread of the library notices that the connection
 * broke, connects again and sends the frames that the host lacks. Until then waiting calls wait, and one-way
 * calls are kept (resend.h). With rings no frame is sent again, and one-way calls still go into the rings.
 * For session*.c only.
 */
#ifndef VGPU_GUEST_LINE_H
#define VGPU_GUEST_LINE_H

#include <pthread.h>

#include "guest/resend.h"
#include "wire/address.h"
#include "wire/owned_socket.h"

struct vgpu_session;

struct vgpu_line {
  bool survives; /* agreed with the host, and the thread runs. Changes once, to false, under `state` */
  bool runs;     /* the thread was started */
  bool mapped;   /* the host can check that this process still maps the rings */
  struct vgpu_address address;
  enum vgpu_library library;
  int64_t limit_ms;        /* set before the greeting; 0: not offered */
  struct vgpu_resend kept; /* under `sending` */
  pthread_t thread;
  /* A pair of sockets: sending to `waker` wakes the thread. It also wakes when the program closes both. */
  struct vgpu_owned_socket sleeper, waker;
  int candidate;  /* the new connection during its greeting; -1: none. Under `state`; a forked child closes it
                   */
  bool broken;    /* written under `state`, and restored under `sending`, too */
  bool ending;    /* under `state` */
  uint64_t count; /* of connections. Written under `state` and, without rings, `sending`. Use __atomic */
  /* For the thread only: progress of the last connection, and the time since the last progress. */
  uint64_t answered, taken;
  int64_t up_at, since;
  pthread_cond_t restored; /* with `state`: no longer broken, or lost, or no thread reads any more */
};

/*
 * Returns the seconds of VGPU_RECONNECT, for which the thread tries to connect again. 0: the session ends
 * with its connection.
 */
uint32_t vgpu_line_wanted(void);

/*
 * Starts the thread after a WELCOME with VGPU_FEATURE_RESUME. If that fails, informs the host that the
 * session ends with its connection.
 */
void vgpu_line_begin(struct vgpu_session *session, const struct vgpu_address *address,
                     enum vgpu_library library);

/* Marks the connection as broken. The caller holds `state`. */
void vgpu_line_break(struct vgpu_session *session, const char *reason);

/* Waits until there is another connection; false: there will be none. The caller holds `state`. */
bool vgpu_line_wait(struct vgpu_session *session);

/*
 * Waits for another connection after the doorbell of connection number `count` has ended. False: there will
 * be none.
 */
bool vgpu_line_renewed(struct vgpu_session *session, uint64_t count);

static inline uint64_t vgpu_line_count(const struct vgpu_line *line) {
  return __atomic_load_n(&line->count, __ATOMIC_ACQUIRE);
}

/* Informs the host that the session now ends with its connection. Waits only for a short time. */
void vgpu_line_goodbye(struct vgpu_session *session);

/* Loses the session if it has no connection now, so that no call waits for one. */
void vgpu_line_give_up(struct vgpu_session *session, const char *reason);

/* Ends the thread. No other thread may be inside a call. */
void vgpu_line_end(struct vgpu_session *session);

#endif
