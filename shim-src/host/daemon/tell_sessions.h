#ifndef VGPU_HOST_TELL_SESSIONS_H
#define VGPU_HOST_TELL_SESSIONS_H

#include "host/daemon/supervisor.h"

/*
 * Answers with the sessions of this peer, and takes the connection over. After a hand-over several daemons
 * have sessions of one guest: each adds its own and passes the question on to its predecessors, and the
 * oldest answers. If it does not, forwarded_queries.h answers after a time limit. `attached`: the successors'
 * sessions; NULL: this daemon is the first one.
 */
void vgpu_tell_sessions(struct vgpu_supervisor *supervisor, const struct vgpu_greeting *greeting,
                        const struct vgpu_reconnects_attached *attached);

#endif
