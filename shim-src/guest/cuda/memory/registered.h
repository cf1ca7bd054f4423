/*
 * Registered memory (cuMemHostRegister) that is device memory as well. The program's own pages become shared
 * memory in place (guest/in_place.h) where the host is on this machine and its device's memory is the host's.
 */
#ifndef VGPU_GUEST_CUDA_REGISTERED_H
#define VGPU_GUEST_CUDA_REGISTERED_H

#include <stdbool.h>

#include "guest/cuda/memory/regions.h"

struct vgpu_driver;

/* Gives a registered region its address on the device, the one that it has here. False: it cannot have one;
 * the log says why.
 */
bool vgpu_registered_lend(struct vgpu_driver *driver, const struct vgpu_region *region);

/* The region is the program's alone again; `region` has been removed. */
void vgpu_registered_take_back(struct vgpu_driver *driver, const struct vgpu_region *region);

#endif
