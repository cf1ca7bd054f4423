/* The system calls that a worker of the software device may use: a libseccomp filter. */
#ifndef VGPU_HOST_SOFTWARE_FILTER_H
#define VGPU_HOST_SOFTWARE_FILTER_H

#include <stdbool.h>

void *vgpu_software_filter(void);
/* Confines the calling process, which compiles kernels for a worker. False: it must not continue. */
bool vgpu_software_confine_compiler(void);

#endif
