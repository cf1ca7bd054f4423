/*
 * The connection of a session that survives it (VGPU_FEATURE_RESUME). The daemon passes a guest's new
 * connection to the worker over a socket of its own. Two threads of the worker meet here: the one that serves
 * reads and writes, and takes the new connection when the old one has nothing more to give; the one that
 * watches (lifeline.h) greets on it at once, however long a call takes, and ends the process when no guest
 * comes back.
 */
#ifndef VGPU_HOST_LINE_H
#define VGPU_HOST_LINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "host/session/replies.h"

/* By the daemon, with the connection and, for a unix socket, a pidfd of the process at its other end. */
struct vgpu_line_message {
  uint64_t received; /* as in struct vgpu_resume */
};

struct vgpu_line {
  bool agreed;
  uint32_t limit_s; /* how long a session waits for its guest */
  int channel;      /* to the daemon; -1: none */
  /*
   * The watcher's own: pidfd of the guest's process, if it runs on this kernel; else, of a unix socket, that
   * of the process at the other end of the newest connection; -1: not known.
   */
  int peer;
  bool peer_is_guest;
  bool leaving; /* the guest has said goodbye. Use __atomic */
  bool overrun; /* too many replies were not acknowledged: it cannot be continued. Use __atomic */
  pthread_mutex_t lock;
  pthread_cond_t came;
  int now;                     /* the one that is served; it changes with link.descriptor */
  int next;                    /* a connection that was greeted and not taken; -1: none */
  int retired;                 /* the one before, for the watcher to close; -1: none */
  uint64_t received;           /* of `next` */
  struct vgpu_replies replies; /* of the serving thread */
};

/* `channel` and `peer` as above; not agreed upon yet. */
void vgpu_line_init(struct vgpu_line *line, int now, int channel, int peer, bool peer_is_guest,
                    uint32_t limit_s);

/* Whether a guest whose connection ends is waited for. */
bool vgpu_line_survives(const struct vgpu_line *line);

/* The daemon's side: without waiting; false: the worker takes no more. The descriptors stay the caller's. */
bool vgpu_line_pass(int channel, const struct vgpu_line_message *message, int connection, int peer);

/* The worker's: what has come, to be closed by the caller; *peer may be -1. False: nothing, or nonsense. */
bool vgpu_line_receive(int channel, struct vgpu_line_message *message, int *connection, int *peer);

/*
 * Of the serving thread, whose connection has ended: waits for the next one, which is then line->now. -1:
 * there will be none. *received: what the guest has.
 */
int vgpu_line_wait(struct vgpu_line *line, uint64_t *received);

/*
 * Of the watcher. The newest connection, whether it was taken or not; valid until the next call, which closes
 * what is no longer served.
 */
int vgpu_line_newest(struct vgpu_line *line);
/* This connection is the next one; the one that is served ends, and so does one that nobody took. */
void vgpu_line_offer(struct vgpu_line *line, int connection, uint64_t received);
/* The newest connection has ended: if nobody took it, nobody will. */
void vgpu_line_ended(struct vgpu_line *line);

#endif
