/* docs/reference/software-gpu.md */
#ifndef VGPU_HOST_SOFTWARE_DURING_KERNEL_H
#define VGPU_HOST_SOFTWARE_DURING_KERNEL_H

#include "host/session/worker.h"

/* Queries, calls of other streams or queued ones: of what the kernel uses, only memory may change. */
bool vgpu_accepts_during_kernel(struct vgpu_worker *worker, const struct vgpu_request *request);

#endif
