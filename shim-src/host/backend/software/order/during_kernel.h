/* Requests of a guest while a kernel runs, see docs/reference/software-gpu.md. */
#ifndef VGPU_HOST_SOFTWARE_DURING_KERNEL_H
#define VGPU_HOST_SOFTWARE_DURING_KERNEL_H

#include "host/session/worker.h"

/*
 * True if the worker's request can be taken while a kernel runs: it asks only, or works on another stream, or
 * is queued behind the kernel, or waits for it. It changes nothing that the kernel uses but the contents of
 * device memory.
 */
bool vgpu_accepts_during_kernel(struct vgpu_worker *worker, const struct vgpu_request *request);

#endif
