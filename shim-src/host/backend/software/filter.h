#ifndef VGPU_HOST_SOFTWARE_FILTER_H
#define VGPU_HOST_SOFTWARE_FILTER_H

#include <stdbool.h>

void *vgpu_software_filter(void);
/* Confines the process that compiles kernels. False: it must not continue. */
bool vgpu_software_confine_compiler(void);

#endif
