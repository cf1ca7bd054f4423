/* What a worker of the software device may ask of the kernel: a libseccomp filter. */
#ifndef VGPU_HOST_SOFTWARE_FILTER_H
#define VGPU_HOST_SOFTWARE_FILTER_H

void *vgpu_software_filter(void);

#endif
