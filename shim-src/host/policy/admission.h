/*
 * Decides whether a peer may have a session. When a peer connects, hostd.conf and the rate of its connections
 * are checked; when it has greeted, the number of its sessions. A refused peer gets the reason as the host's
 * only frame. The connection is then kept for a moment, because an immediate close could discard the frame.
 */
#ifndef VGPU_HOST_ADMISSION_H
#define VGPU_HOST_ADMISSION_H

#include <poll.h>

#include "host/policy/peers.h"
#include "host/policy/policy.h"

#define VGPU_LEAVING_MAX 32u

/*
 * The limits of a peer for which hostd.conf sets none: connections a second, their burst, and connections at
 * once.
 */
#define VGPU_CONNECTS_DEFAULT 20u
#define VGPU_CONNECTS_BURST 400u

struct vgpu_admission {
  const struct vgpu_policy *policy; /* NULL: there is no file, so every peer may connect */
  const char *policy_name;
  struct vgpu_chosen_devices usual_devices;
  struct vgpu_peers peers;
  struct {
    int descriptor;
    int64_t until;
    uint32_t sent;             /* bytes that it sent since; more than a greeting is not accepted */
  } leaving[VGPU_LEAVING_MAX]; /* refused; oldest first */
  uint32_t leaving_count;
};

/*
 * Checks a peer that has connected. Returns 0 if it may greet, and *limits are its limits. Otherwise returns
 * the enum vgpu_status with which to refuse it; the reason is logged.
 */
int32_t vgpu_admit(struct vgpu_admission *admission, const struct vgpu_identity *identity, const char *who,
                   uint64_t session, struct vgpu_peer_limits *limits);

struct vgpu_session_counts {
  uint32_t limit, all, of_peer;
};

/*
 * Checks a peer that has greeted. Returns 0 if it may have one more session, otherwise the enum vgpu_status
 * with which to refuse it.
 */
int32_t vgpu_admit_session(struct vgpu_admission *admission, const struct vgpu_session_counts *counts,
                           const char *who, uint64_t session, const struct vgpu_peer_limits *limits);

/* Refuses a peer: sends the status, with `welcome` unless that is NULL, and takes the descriptor over. */
void vgpu_refuse(struct vgpu_admission *admission, const struct vgpu_peer *peer, int descriptor,
                 int32_t status, const struct vgpu_welcome *welcome);

/*
 * Refuses a peer that wants to continue a session, which does not count as a refused session. Takes the
 * descriptor over.
 */
void vgpu_refuse_return(struct vgpu_admission *admission, int descriptor, int32_t status);

/* Takes the descriptor over, and closes it when the peer has had time to read the answer. */
void vgpu_let_leave(struct vgpu_admission *admission, int descriptor);

/* For the daemon's poll: fills `pollers`, which has VGPU_LEAVING_MAX places, and returns how many it used. */
uint32_t vgpu_leaving_poll(const struct vgpu_admission *admission, struct pollfd *pollers);

/* Returns the milliseconds until the next of these connections is to be closed; -1: there is none. */
int vgpu_leaving_wait(const struct vgpu_admission *admission);

/* Closes the connections that the peer has closed, and those whose time has passed. */
void vgpu_leaving_close(struct vgpu_admission *admission, const struct pollfd *pollers, uint32_t count);

/* Closes all of these connections without an answer. For a new worker. */
void vgpu_leaving_abandon(struct vgpu_admission *admission);

#endif
