/* docs/reference/software-gpu.md */
#ifndef VGPU_HOST_SOFTWARE_DURING_KERNEL_H
#define VGPU_HOST_SOFTWARE_DURING_KERNEL_H

#include "host/session/worker.h"

/*
 * True if the request may be carried out during a kernel (docs/reference/software-gpu.md): it is a query,
 * works on another stream, or is queued behind the kernel. Of what the kernel uses, such a request changes
 * only the contents of device memory.
 */
bool vgpu_accepts_during_kernel(struct vgpu_worker *worker, const struct vgpu_request *request);

#endif
