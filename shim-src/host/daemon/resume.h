/* Sessions that survive their connection: what the daemon has to do with them. */
#ifndef VGPU_HOST_RESUME_H
#define VGPU_HOST_RESUME_H

#include "host/daemon/supervisor.h"

/*
 * A session that is about to begin: whether it can survive its connection, for setup->limits.reconnect
 * seconds. If so the entry has a secret and a line, and spawned->line is the line's other end; else the
 * secrets are 0.
 */
void vgpu_resume_prepare(struct vgpu_session_entry *entry, const struct vgpu_greeting *greeting,
                         struct vgpu_session_setup *setup, struct vgpu_spawned *spawned);

/* The worker has ended. */
void vgpu_resume_end(struct vgpu_session_entry *entry);

/* A greeting that continues a session; the connection is taken over. */
void vgpu_resume_session(struct vgpu_supervisor *supervisor, const struct vgpu_greeting *greeting);

#endif
