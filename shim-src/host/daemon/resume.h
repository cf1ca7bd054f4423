#ifndef VGPU_HOST_RESUME_H
#define VGPU_HOST_RESUME_H

#include "host/daemon/supervisor.h"

/*
 * For setup->limits.reconnect seconds. If possible, the entry gets a secret and a line, and spawned->line is
 * the other end. Otherwise the secrets are 0.
 */
void vgpu_resume_prepare(struct vgpu_session_entry *entry, const struct vgpu_greeting *greeting,
                         struct vgpu_session_setup *setup, struct vgpu_spawned *spawned);

/* After the worker has ended. */
void vgpu_resume_end(struct vgpu_session_entry *entry);

/*
 * Passes the connection to predecessors and takes it over. False: the session is here, or there is no
 * predecessor.
 */
bool vgpu_resume_elsewhere(struct vgpu_supervisor *supervisor, const struct vgpu_greeting *greeting);

/* Passes the connection to the session's worker and takes it over. */
void vgpu_resume_session(struct vgpu_supervisor *supervisor, const struct vgpu_greeting *greeting);

#endif
