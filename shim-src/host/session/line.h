/*
 * The connection of a session that survives a broken connection (VGPU_FEATURE_RESUME). The daemon passes a
 * guest's new connection to the worker over a separate socket. Two threads of the worker use this structure.
 * The serving thread reads and writes, and takes the new connection when it has read everything from the old
 * one. The watching thread (lifeline.h) answers the greeting at once, however long a call takes, and ends the
 * process when no guest comes back.
 */
#ifndef VGPU_HOST_LINE_H
#define VGPU_HOST_LINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "host/session/replies.h"

/*
 * The daemon's message with a new connection. A pidfd of the process at the other end comes along for a unix
 * socket.
 */
struct vgpu_line_message {
  uint64_t received; /* as in struct vgpu_resume */
};

struct vgpu_line {
  bool agreed;
  uint32_t limit_s; /* seconds that a session waits for its guest */
  int channel;      /* to the daemon; -1: none */
  /*
   * The watcher's own: pidfd of the guest's process, if it runs on this kernel; else, of a unix socket, that
   * of the process at the other end of the newest connection; -1: not known.
   */
  int peer;
  bool peer_is_guest;
  bool leaving; /* the guest has said goodbye. Use __atomic */
  bool overrun; /* too many replies were not acknowledged: the session cannot continue. Use __atomic */
  pthread_mutex_t lock;
  pthread_cond_t came;
  int now;                     /* the connection in use; it changes together with link.descriptor */
  int next;                    /* a connection that was greeted and not taken yet; -1: none */
  int retired;                 /* the old connection, for the watching thread to close; -1: none */
  uint64_t received;           /* `received` of the message for `next` */
  struct vgpu_replies replies; /* of the serving thread */
};

/* `channel` and `peer` as above; not agreed upon yet. */
void vgpu_line_init(struct vgpu_line *line, int now, int channel, int peer, bool peer_is_guest,
                    uint32_t limit_s);

/* True if the worker waits for the guest when the connection ends. */
bool vgpu_line_survives(const struct vgpu_line *line);

/*
 * For the daemon: passes a connection to the worker, without waiting. False: the worker accepts no more. The
 * descriptors stay the caller's.
 */
bool vgpu_line_pass(int channel, const struct vgpu_line_message *message, int connection, int peer);

enum vgpu_line_received {
  VGPU_LINE_CAME, /* the caller closes *connection, and *peer, which may be -1 */
  VGPU_LINE_LOST, /* the message came without its descriptors, because this process has none free */
  VGPU_LINE_ENDED /* the daemon has closed the channel, or the message is not valid */
};

/* For the worker: receives a connection, when the channel can be read. */
enum vgpu_line_received vgpu_line_receive(int channel, struct vgpu_line_message *message, int *connection,
                                          int *peer);

/*
 * For the serving thread, when its connection has ended: waits for the next one, which becomes line->now.
 * *received: the last reply that the guest has received. -1: there will be no other connection.
 */
int vgpu_line_wait(struct vgpu_line *line, uint64_t *received);

/*
 * For the watching thread: the newest connection, whether the serving thread has taken it or not. It is valid
 * until the next call of this function, which closes connections that are no longer served.
 */
int vgpu_line_newest(struct vgpu_line *line);
/*
 * Offers a connection to the serving thread. Ends the connection that is served, and an earlier offer that
 * was not taken.
 */
void vgpu_line_offer(struct vgpu_line *line, int connection, uint64_t received);
/* Withdraws the newest connection, which has ended, if the serving thread has not taken it. */
void vgpu_line_ended(struct vgpu_line *line);

#endif
