/*
 * Guests that return after a hand-over. A session stays with its daemon, but its guest connects to the
 * successor, which passes the connection with its greeting to its predecessors. It also passes on questions
 * for sessions, with its own part of the answer.
 *
 * A daemon makes one socket for each hand-over. The successor inherits the other end, and those of earlier
 * predecessors (VGPU_PREDECESSORS in the environment), because one in the middle may end first.
 */
#ifndef VGPU_HOST_RETURNS_H
#define VGPU_HOST_RETURNS_H

#include "host/daemon/greetings.h"

/* Most predecessors that a daemon reaches: the newest that still have sessions. */
#define VGPU_PREDECESSORS_MAX 8u

struct vgpu_returns {
  int successors;                          /* connections arrive here; -1: there was no hand-over */
  uint32_t count;                          /* of the predecessors */
  int predecessors[VGPU_PREDECESSORS_MAX]; /* newest first */
};

/* Called when the daemon starts: takes the sockets that its predecessor left in the environment. */
void vgpu_returns_inherit(struct vgpu_returns *returns);

/* Makes the socket of a hand-over. Returns the successor's end, which the caller closes, or -1. */
int vgpu_returns_open(struct vgpu_returns *returns);

/* Closes the socket of a hand-over that has failed, or whose successor has ended. */
void vgpu_returns_close(struct vgpu_returns *returns);

/*
 * Called in the process that becomes the successor: lets it inherit `end` and the sockets of the
 * predecessors, at descriptors from `lowest` on.
 */
void vgpu_returns_bequeath(const struct vgpu_returns *returns, int end, int lowest);

enum vgpu_returns_result {
  VGPU_RETURNS_NONE = 0,   /* there is no predecessor */
  VGPU_RETURNS_PASSED = 1, /* the caller closes its descriptor */
  VGPU_RETURNS_LATER = 2,  /* a predecessor has too many to read; the guest has to try again */
};

/*
 * The version of messages between daemons and of their attachments (tell_sessions.c). A daemon refuses
 * messages of another version. Raise the number with every change of a message.
 */
#define VGPU_RETURNS_VERSION 1u

#define VGPU_RETURNS_ATTACHED_MAX 40960u
struct vgpu_returns_attached {
  int claim;   /* questions.h; -1: none */
  size_t size; /* 0: none */
  unsigned char bytes[VGPU_RETURNS_ATTACHED_MAX];
};

/*
 * Passes a greeting to the newest living predecessor, which passes it on if it does not know the session.
 * `claim` -1: none.
 */
enum vgpu_returns_result vgpu_returns_pass(struct vgpu_returns *returns, const struct vgpu_greeting *greeting,
                                           const void *attached, size_t size, int claim);

enum vgpu_returns_received {
  VGPU_RETURNS_NOTHING = 0, /* the socket is closed when no successor lives */
  VGPU_RETURNS_CAME = 1,    /* the caller closes the descriptors */
  VGPU_RETURNS_FOREIGN = 2, /* the message has another version: only the connection can be used */
};

/* Receives a greeting from a successor: its descriptor, its bytes and its attachment. */
enum vgpu_returns_received vgpu_returns_receive(struct vgpu_returns *returns, struct vgpu_greeting *greeting,
                                                struct vgpu_returns_attached *attached);

#endif
