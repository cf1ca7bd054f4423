/* docs/reference/software-gpu.md */
#ifndef VGPU_HOST_SOFTWARE_DURING_KERNEL_H
#define VGPU_HOST_SOFTWARE_DURING_KERNEL_H

#include "host/session/worker.h"

/*
 * True for queries, and calls of other streams or queued behind the kernel. Of what the kernel uses, they
 * change only the contents of device memory.
 */
bool vgpu_accepts_during_kernel(struct vgpu_worker *worker, const struct vgpu_request *request);

#endif
