/* The system calls that a worker with the host's driver may not use: a libseccomp filter. */
#ifndef VGPU_HOST_CUDA_FILTER_H
#define VGPU_HOST_CUDA_FILTER_H

#include <stdint.h>

void *vgpu_cuda_filter(void);

/* The same, but a denied call raises SIGSYS, so that its handler can report the call. */
void *vgpu_cuda_filter_that_tells(void);

/*
 * Writes at most `most` groups that may open the device nodes, if access to these is restricted. Returns
 * their number.
 */
uint32_t vgpu_cuda_device_groups(uint32_t *groups, uint32_t most);

#endif
