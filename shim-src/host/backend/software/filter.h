/* The system calls that a worker of the software device may use: a libseccomp filter. */
#ifndef VGPU_HOST_SOFTWARE_FILTER_H
#define VGPU_HOST_SOFTWARE_FILTER_H

void *vgpu_software_filter(void);

#endif
