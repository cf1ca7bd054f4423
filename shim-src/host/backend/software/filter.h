#ifndef VGPU_HOST_SOFTWARE_FILTER_H
#define VGPU_HOST_SOFTWARE_FILTER_H

#include <stdbool.h>

#include "host/backend/software/ptx/ptx.h"

void *vgpu_software_filter(void);
/*
 * Confines the calling process, which compiles kernels for a worker (ptx_confine). False: the process must
 * not continue.
 */
bool vgpu_software_confine_compiler(enum ptx_confined which);

#endif
