/*
 * Between accept and a session: may this peer have one now? hostd.conf and the rate of connections are looked
 * at when it connects, the number of its sessions when it has greeted. Who may not is told why in the host's
 * first and only frame, so that its library can say it; the connection is then kept for a moment, because
 * closing it at once could take the answer with it.
 */
#ifndef VGPU_HOST_ADMISSION_H
#define VGPU_HOST_ADMISSION_H

#include <poll.h>

#include "host/policy/peers.h"
#include "host/policy/policy.h"
#include "host/daemon/sessions.h"

#define VGPU_LEAVING_MAX 32u

/* Of a peer that hostd.conf gives no other limit: so many connections a second, and so many at once. */
#define VGPU_CONNECTS_DEFAULT 20u
#define VGPU_CONNECTS_BURST 400u

struct vgpu_admission {
  const struct vgpu_policy *policy; /* NULL: no file, so everybody may */
  const char *policy_name;
  struct vgpu_chosen_devices usual_devices;
  struct vgpu_peers peers;
  struct {
    int descriptor;
    int64_t until;
    uint32_t sent;             /* bytes since; it has a greeting to say and no more */
  } leaving[VGPU_LEAVING_MAX]; /* refused; oldest first */
  uint32_t leaving_count;
};

/*
 * When a peer has connected. 0: it may greet, and `limits` are what it may have; else the enum vgpu_status to
 * refuse it with, after logging why.
 */
int32_t vgpu_admit(struct vgpu_admission *admission, const struct vgpu_identity *identity, const char *who,
                   uint64_t session, struct vgpu_peer_limits *limits);

/* When it has greeted: has it room for one more session? */
int32_t vgpu_admit_session(struct vgpu_admission *admission, const struct vgpu_sessions *sessions,
                           const struct vgpu_peer *peer, const char *who, uint64_t session,
                           const struct vgpu_peer_limits *limits);

/* Tells the peer, with `welcome` if that is not NULL, and takes the descriptor over. */
void vgpu_refuse(struct vgpu_admission *admission, const struct vgpu_peer *peer, int descriptor,
                 int32_t status, const struct vgpu_welcome *welcome);

/* The same for who wants to continue a session: no session is turned away, so none is counted. */
void vgpu_refuse_return(struct vgpu_admission *admission, int descriptor, int32_t status);

/* Takes the descriptor over; it is closed when the peer has had time to read what was sent. */
void vgpu_let_leave(struct vgpu_admission *admission, int descriptor);

/* For the daemon's poll: fills `pollers`, VGPU_LEAVING_MAX places; how many. */
uint32_t vgpu_leaving_poll(const struct vgpu_admission *admission, struct pollfd *pollers);

/* Milliseconds until one of them is to be let go; -1: there is none. */
int vgpu_leaving_wait(const struct vgpu_admission *admission);

/* Closes those that are gone or whose time is up. */
void vgpu_leaving_close(struct vgpu_admission *admission, const struct pollfd *pollers, uint32_t count);

/* In a worker: closes them all without a word. */
void vgpu_leaving_abandon(struct vgpu_admission *admission);

#endif
