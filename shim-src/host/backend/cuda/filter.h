/* What a worker with the host's driver may not ask of the kernel: a libseccomp filter. */
#ifndef VGPU_HOST_CUDA_FILTER_H
#define VGPU_HOST_CUDA_FILTER_H

void *vgpu_cuda_filter(void);

/* The same, but a denied call raises SIGSYS: whoever handles it knows which one it was. */
void *vgpu_cuda_filter_that_tells(void);

#endif
