/*
 * Between accept and a session: may this peer have one now? Who may not is told why in the host's first and
 * only frame, so that its library can say it; the connection is then kept for a moment, because closing it at
 * once could take the answer with it.
 */
#ifndef VGPU_HOST_ADMISSION_H
#define VGPU_HOST_ADMISSION_H

#include <poll.h>

#include "host/bucket.h"
#include "host/policy.h"

#define VGPU_LEAVING_MAX 32u
#define VGPU_PEERS_MAX 256u

struct vgpu_admission {
  const struct vgpu_policy *policy; /* NULL: no file, so everybody may */
  const char *policy_name;
  struct {
    struct vgpu_peer peer;
    struct vgpu_bucket connects;
  } peers[VGPU_PEERS_MAX]; /* those that connected last and have such a limit */
  struct {
    int descriptor;
    int64_t until;
    uint32_t sent;             /* bytes since; it has a greeting to say and no more */
  } leaving[VGPU_LEAVING_MAX]; /* refused; oldest first */
  uint32_t leaving_count;
  struct vgpu_bucket telling; /* refusals in the log; a guest must not be able to fill it */
  uint64_t untold;
};

/* 0: admitted, and `limits` are the peer's; else the enum vgpu_status to refuse with, after logging it. */
int32_t vgpu_admit(struct vgpu_admission *admission, const struct vgpu_accounts *accounts,
                   const struct vgpu_identity *identity, const char *who, uint64_t session,
                   struct vgpu_peer_limits *limits);

/* Tells the peer and takes the descriptor over. */
void vgpu_refuse(struct vgpu_admission *admission, int descriptor, int32_t status);

/* Says it in the log, unless it has said too much of late. */
__attribute__((format(printf, 3, 4))) void vgpu_tell_refusal(struct vgpu_admission *admission,
                                                             uint64_t session, const char *format, ...);

/* For the daemon's poll: fills `pollers`, VGPU_LEAVING_MAX places; how many. */
uint32_t vgpu_leaving_poll(const struct vgpu_admission *admission, struct pollfd *pollers);

/* Milliseconds until one of them is to be let go; -1: there is none. */
int vgpu_leaving_wait(const struct vgpu_admission *admission);

/* Closes those that are gone or whose time is up. */
void vgpu_leaving_close(struct vgpu_admission *admission, const struct pollfd *pollers, uint32_t count);

/* In a worker: closes them all without a word. */
void vgpu_leaving_abandon(struct vgpu_admission *admission);

#endif
