/*
 * Guests that return after a hand-over. A session stays with its daemon, but its guest connects to the
 * successor, which passes the connection with its greeting to its predecessors. It also passes on queries
 * for sessions, with its own part of the answer.
 *
 * A daemon makes one socket for each hand-over. The successor inherits the other end, and those of earlier
 * predecessors (VGPU_PREDECESSORS in the environment), because one in the middle may end first.
 */
#ifndef VGPU_HOST_RECONNECTS_H
#define VGPU_HOST_RECONNECTS_H

#include "host/daemon/greetings.h"

/* Most predecessors that a daemon reaches: the newest that still have sessions. */
#define VGPU_PREDECESSORS_MAX 8u

struct vgpu_reconnects {
  int successors;                          /* connections arrive here; -1: there was no hand-over */
  uint32_t count;                          /* of the predecessors */
  int predecessors[VGPU_PREDECESSORS_MAX]; /* newest first */
};

/* Called when the daemon starts: takes the sockets that its predecessor left in the environment. */
void vgpu_reconnects_inherit(struct vgpu_reconnects *reconnects);

/* Makes the socket of a hand-over. Returns the successor's end, which the caller closes, or -1. */
int vgpu_reconnects_open(struct vgpu_reconnects *reconnects);

/* Closes the socket of a hand-over that has failed, or whose successor has ended. */
void vgpu_reconnects_close(struct vgpu_reconnects *reconnects);

/*
 * Called in the process that becomes the successor: lets it inherit `end` and the sockets of the
 * predecessors, at descriptors from `lowest` on.
 */
void vgpu_reconnects_bequeath(const struct vgpu_reconnects *reconnects, int end, int lowest);

enum vgpu_reconnects_result {
  VGPU_RECONNECTS_NONE = 0,   /* there is no predecessor */
  VGPU_RECONNECTS_PASSED = 1, /* the caller closes its descriptor */
  VGPU_RECONNECTS_LATER = 2,  /* a predecessor has too many to read; the guest has to try again */
};

/*
 * The version of messages between daemons and of their attachments (tell_sessions.c). A daemon refuses
 * messages of another version. Raise the number with every change of a message.
 */
#define VGPU_RECONNECTS_VERSION 1u

#define VGPU_RECONNECTS_ATTACHED_MAX 40960u
struct vgpu_reconnects_attached {
  int claim;   /* forwarded_queries.h; -1: none */
  size_t size; /* 0: none */
  unsigned char bytes[VGPU_RECONNECTS_ATTACHED_MAX];
};

/*
 * Passes a greeting to the newest living predecessor, which passes it on if it does not know the session.
 * `claim` -1: none.
 */
enum vgpu_reconnects_result vgpu_reconnects_pass(struct vgpu_reconnects *reconnects,
                                                 const struct vgpu_greeting *greeting, const void *attached,
                                                 size_t size, int claim);

enum vgpu_reconnects_received {
  VGPU_RECONNECTS_NOTHING = 0, /* the socket is closed when no successor lives */
  VGPU_RECONNECTS_CAME = 1,    /* the caller closes the descriptors */
  VGPU_RECONNECTS_FOREIGN = 2, /* the message has another version: only the connection can be used */
};

/* Receives a greeting from a successor: its descriptor, its bytes and its attachment. */
enum vgpu_reconnects_received vgpu_reconnects_receive(struct vgpu_reconnects *reconnects,
                                                      struct vgpu_greeting *greeting,
                                                      struct vgpu_reconnects_attached *attached);

#endif
