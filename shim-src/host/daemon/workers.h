#ifndef VGPU_HOST_WORKERS_H
#define VGPU_HOST_WORKERS_H

#include "host/daemon/supervisor.h"

void vgpu_workers_bury(struct vgpu_supervisor *supervisor);

void vgpu_workers_signal(const struct vgpu_supervisor *supervisor, int number);

bool vgpu_workers_end(struct vgpu_supervisor *supervisor, unsigned long long session);

#endif
