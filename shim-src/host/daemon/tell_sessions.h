/* The answer to a guest that asks for its own sessions (VGPU_LIBRARY_SESSIONS). */
#ifndef VGPU_HOST_TELL_SESSIONS_H
#define VGPU_HOST_TELL_SESSIONS_H

#include "host/daemon/supervisor.h"

/*
 * Answers with the sessions of this peer, and takes the connection over. After a hand-over sessions of the
 * same guest are at several daemons, so each adds its own and passes the question on to its predecessors; the
 * oldest answers. When it does not, the guest is told that after a time limit (questions.h). `attached`: the
 * sessions of the successors; NULL: this daemon is the first one.
 */
void vgpu_tell_sessions(struct vgpu_supervisor *supervisor, const struct vgpu_greeting *greeting,
                        const struct vgpu_returns_attached *attached);

#endif
