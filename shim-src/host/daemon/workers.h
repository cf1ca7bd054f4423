#ifndef VGPU_HOST_WORKERS_H
#define VGPU_HOST_WORKERS_H

#include "host/daemon/supervisor.h"

/* Releases the slots of all workers that have ended, and logs how each one ended. */
void vgpu_workers_bury(struct vgpu_supervisor *supervisor);

void vgpu_workers_signal(const struct vgpu_supervisor *supervisor, int number);

/* Ends a session on the administrator's order. False: there is no such session. */
bool vgpu_workers_end(struct vgpu_supervisor *supervisor, unsigned long long session);

#endif
