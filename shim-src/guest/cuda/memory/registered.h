/* Registered memory that is device memory, too, shared in place (guest/in_place.h) with a local host. */
#ifndef VGPU_GUEST_CUDA_REGISTERED_H
#define VGPU_GUEST_CUDA_REGISTERED_H

#include <stdbool.h>

#include "guest/cuda/memory/regions.h"

struct vgpu_driver;

/* Gives the region its own address on the device. False: not possible; the log says why. */
bool vgpu_registered_lend(struct vgpu_driver *driver, const struct vgpu_region *region);

void vgpu_registered_take_back(struct vgpu_driver *driver, const struct vgpu_region *region);

#endif
