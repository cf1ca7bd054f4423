#ifndef VGPU_HOST_RESUME_H
#define VGPU_HOST_RESUME_H

#include "host/daemon/supervisor.h"

/*
 * Prepares a new session to survive its connection, for setup->limits.reconnect seconds. If that is possible,
 * the entry has a secret and a line, and spawned->line is the other end of the line. Otherwise the secrets
 * are 0.
 */
void vgpu_resume_prepare(struct vgpu_session_entry *entry, const struct vgpu_greeting *greeting,
                         struct vgpu_session_setup *setup, struct vgpu_spawned *spawned);

/* Frees what vgpu_resume_prepare made, when the worker has ended. */
void vgpu_resume_end(struct vgpu_session_entry *entry);

/*
 * Passes a connection that continues a session which this daemon does not have to the predecessors, and takes
 * the connection over. False: the session is here, or there is no predecessor.
 */
bool vgpu_resume_elsewhere(struct vgpu_supervisor *supervisor, const struct vgpu_greeting *greeting);

/* Passes a connection that continues a session to its worker, and takes the connection over. */
void vgpu_resume_session(struct vgpu_supervisor *supervisor, const struct vgpu_greeting *greeting);

#endif
