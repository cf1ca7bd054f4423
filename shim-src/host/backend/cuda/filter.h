/* What a worker with the host's driver may not ask of the kernel: a libseccomp filter. */
#ifndef VGPU_HOST_CUDA_FILTER_H
#define VGPU_HOST_CUDA_FILTER_H

void *vgpu_cuda_filter(void);

#endif
