#ifndef VGPU_HOST_SOFTWARE_KERNEL_INTERNAL_H
#define VGPU_HOST_SOFTWARE_KERNEL_INTERNAL_H

#include "host/backend/software/ptx/ptx.h"
#include "host/backend/software/kernel/run.h"

int32_t vgpu_run_result(enum ptx_status status);

/* Decodes a kernel, which counts to the session's memory for code. Returns a CUresult. */
int32_t vgpu_run_ready(struct vgpu_worker *worker, struct vgpu_module_object *module, uint32_t kernel);

/* Counts a launch that this device cannot run, and logs the reason at the first launch of each kernel. */
void vgpu_run_refuse(struct vgpu_worker *worker, struct vgpu_module_object *module, const char *name,
                     const char *why);

/* A ptx_print: writes to the guest if it fetches the output, else to the host's log. `user` is the worker. */
void vgpu_run_print(void *user, const char *text, size_t length);

/* Logs a finding of a check: as text for the administrator, and as members of a JSON object for programs. */
void vgpu_run_report(void *user, const struct ptx_finding *finding);

#endif
