/* Requests of a guest while a kernel runs, see docs/reference/software-gpu.md. */
#ifndef VGPU_HOST_SOFTWARE_TAKES_H
#define VGPU_HOST_SOFTWARE_TAKES_H

#include "host/session/worker.h"

/*
 * True if the worker's request can be taken while a kernel runs: it asks only, or works on another stream, or
 * is queued behind the kernel. It changes nothing that the kernel uses but the contents of device memory. A
 * wait for the kernel is only taken, and answered with NOT_READY, if `more` requests have arrived behind it,
 * which another thread of the guest has sent.
 */
bool vgpu_software_takes(struct vgpu_worker *worker, const struct vgpu_request *request, bool more);

#endif
