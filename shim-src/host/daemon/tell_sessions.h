#ifndef VGPU_HOST_TELL_SESSIONS_H
#define VGPU_HOST_TELL_SESSIONS_H

#include "host/daemon/supervisor.h"

/*
 * Takes the connection over. After a hand-over several daemons have sessions of the guest: each adds its own
 * and passes the question on; the oldest answers, or after a time limit another (questions.h). `attached`:
 * the successors' sessions; NULL: this daemon is the first one.
 */
void vgpu_tell_sessions(struct vgpu_supervisor *supervisor, const struct vgpu_greeting *greeting,
                        const struct vgpu_returns_attached *attached);

#endif
