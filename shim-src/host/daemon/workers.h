/* The processes that serve guests: what the daemon does with them once they run. */
#ifndef VGPU_HOST_WORKERS_H
#define VGPU_HOST_WORKERS_H

#include "host/daemon/supervisor.h"

/* Gives the slots of all workers that have ended back, and says in the log how each ended. */
void vgpu_workers_bury(struct vgpu_supervisor *supervisor);

void vgpu_workers_signal(const struct vgpu_supervisor *supervisor, int number);

/* By the administrator; false: there is no such session. */
bool vgpu_workers_end(struct vgpu_supervisor *supervisor, unsigned long long session);

#endif
