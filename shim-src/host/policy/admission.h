/*
 * Decides whether a peer may have a session: when it connects by hostd.conf and its rate, when it has greeted
 * by the number of its sessions. A refused peer gets the reason as the only frame. The connection is then
 * kept for a moment, because an immediate close could discard the frame.
 */
#ifndef VGPU_HOST_ADMISSION_H
#define VGPU_HOST_ADMISSION_H

#include <poll.h>

#include "host/policy/peers.h"
#include "host/policy/policy.h"

#define VGPU_LEAVING_MAX 32u

/* Limits if hostd.conf has none: connections a second, and at once. */
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

/* 0: it may greet, within `limits`. Otherwise an enum vgpu_status; logged. */
int32_t vgpu_admit(struct vgpu_admission *admission, const struct vgpu_identity *identity, const char *who,
                   uint64_t session, struct vgpu_peer_limits *limits);

struct vgpu_session_counts {
  uint32_t limit, all, of_peer;
};

/* 0: a peer that has greeted may have one more session. */
int32_t vgpu_admit_session(struct vgpu_admission *admission, const struct vgpu_session_counts *counts,
                           const char *who, uint64_t session, const struct vgpu_peer_limits *limits);

/* Takes the descriptor over. `welcome`: may be NULL. */
void vgpu_refuse(struct vgpu_admission *admission, const struct vgpu_peer *peer, int descriptor,
                 int32_t status, const struct vgpu_welcome *welcome);

/* For a peer that wants to continue a session: not counted as a refused session. */
void vgpu_refuse_return(struct vgpu_admission *admission, int descriptor, int32_t status);

/* Takes the descriptor over and closes it when the peer has had time to read. */
void vgpu_let_leave(struct vgpu_admission *admission, int descriptor);

/* Fills `pollers` (VGPU_LEAVING_MAX places) and returns their number. */
uint32_t vgpu_leaving_poll(const struct vgpu_admission *admission, struct pollfd *pollers);

/* Milliseconds until the next close; -1: none. */
int vgpu_leaving_wait(const struct vgpu_admission *admission);

void vgpu_leaving_close(struct vgpu_admission *admission, const struct pollfd *pollers, uint32_t count);

void vgpu_leaving_abandon(struct vgpu_admission *admission);

#endif
