/* Functions that the files of run.h share. */
#ifndef VGPU_HOST_SOFTWARE_KERNEL_INTERNAL_H
#define VGPU_HOST_SOFTWARE_KERNEL_INTERNAL_H

#include "host/backend/software/ptx/ptx.h"
#include "host/backend/software/kernel/run.h"

/* The CUresult of a status of the PTX machine. */
int32_t vgpu_run_result(enum ptx_status status);

/* Makes a kernel ready; returns a CUresult. Its decoded code counts as the session's code. */
int32_t vgpu_run_ready(struct vgpu_worker *worker, struct vgpu_module_object *module, uint32_t kernel);

/* Counts a launch that this device cannot run. The reason is logged at the first launch of each kernel. */
void vgpu_run_refuse(struct vgpu_worker *worker, struct vgpu_module_object *module, const char *name,
                     const char *why);

/* Prints to the guest's own standard output if the guest fetches it; else to the host's log. `user`: the
 * worker. */
void vgpu_run_print(void *user, const char *text, size_t length);

/* Logs a finding of a check: as text for the administrator, and as members of a JSON object for programs. */
void vgpu_run_report(void *user, const struct ptx_finding *finding);

#endif
