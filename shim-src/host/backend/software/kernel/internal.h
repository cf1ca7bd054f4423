#ifndef VGPU_HOST_SOFTWARE_KERNEL_INTERNAL_H
#define VGPU_HOST_SOFTWARE_KERNEL_INTERNAL_H

#include "host/backend/software/ptx/ptx.h"
#include "host/backend/software/kernel/run.h"

int32_t vgpu_run_result(enum ptx_status status);

/* The kernel counts as the session's code. Returns a CUresult. */
int32_t vgpu_run_ready(struct vgpu_worker *worker, struct vgpu_module_object *module, uint32_t kernel);

/* Logs the reason once for each kernel. */
void vgpu_run_refuse(struct vgpu_worker *worker, struct vgpu_module_object *module, const char *name,
                     const char *why);

/* A ptx_print: to the guest if it fetches the output, else to the log. `user`: the worker. */
void vgpu_run_print(void *user, const char *text, size_t length);

/* Writes text for the administrator and JSON members for programs. */
void vgpu_run_report(void *user, const struct ptx_finding *finding);

#endif
