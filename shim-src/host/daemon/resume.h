#ifndef VGPU_HOST_RESUME_H
#define VGPU_HOST_RESUME_H

#include "host/daemon/supervisor.h"

/* If possible, the entry gets a secret and a line (spawned->line); otherwise the secrets are 0. */
void vgpu_resume_prepare(struct vgpu_session_entry *entry, const struct vgpu_greeting *greeting,
                         struct vgpu_session_setup *setup, struct vgpu_spawned *spawned);

void vgpu_resume_end(struct vgpu_session_entry *entry);

/* Takes the connection over. False: the session is here, or there is no predecessor. */
bool vgpu_resume_elsewhere(struct vgpu_supervisor *supervisor, const struct vgpu_greeting *greeting);

/* Takes the connection over. */
void vgpu_resume_session(struct vgpu_supervisor *supervisor, const struct vgpu_greeting *greeting);

#endif
