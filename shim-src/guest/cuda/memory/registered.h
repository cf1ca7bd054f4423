/*
 * Registered memory (cuMemHostRegister) that is device memory, too. The program's own pages become shared
 * memory in place (guest/in_place.h). This needs a host on this machine and a device whose memory is the
 * host's.
 */
#ifndef VGPU_GUEST_CUDA_REGISTERED_H
#define VGPU_GUEST_CUDA_REGISTERED_H

#include <stdbool.h>

#include "guest/cuda/memory/regions.h"

struct vgpu_driver;

/*
 * Gives a registered region its device address, which is its address in this process. False: not possible;
 * the log says why.
 */
bool vgpu_registered_lend(struct vgpu_driver *driver, const struct vgpu_region *region);

/* Makes the region private again. The caller has removed `region` from the list. */
void vgpu_registered_take_back(struct vgpu_driver *driver, const struct vgpu_region *region);

#endif
