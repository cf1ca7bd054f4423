#ifndef VGPU_GUEST_CUDA_LAUNCH_H
#define VGPU_GUEST_CUDA_LAUNCH_H

#include "guest/cuda/module/code.h"

/* Most blocks of a cluster: on any device, and with a function that asks for more. */
#define PORTABLE_CLUSTER 8u
#define LARGEST_CLUSTER 16u

struct vgpu_launch_config {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared;
  uint32_t reserved;
  struct vgpu_stream *stream;
  const struct vgpu_launch_attribute *attributes;
  uint32_t attribute_count;
  uint32_t reserved_too;
};
_Static_assert(sizeof(struct vgpu_launch_config) == 56, "CUlaunchConfig");

struct vgpu_launch {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared;
  uint32_t attribute_count;
  struct vgpu_stream *stream;
  const struct vgpu_launch_attribute *attributes; /* as the program gave them */
};

struct vgpu_send_cuLaunchKernelEx;

/*
 * Gathers the parameter block of the launch `placed` from either form of the API. `to` has room for
 * callable->parameter_bytes. Returns a CUresult; for a kernel that cannot run, its error.
 */
int vgpu_launch_parameters(const struct vgpu_callable *callable,
                           const struct vgpu_send_cuLaunchKernelEx *placed, void **parameters, void **extra,
                           unsigned char *to);

/*
 * Converts attributes for the wire: handles become numbers. `to` has room for `count`; *kept is the number
 * written. Returns a CUresult.
 */
int vgpu_launch_attributes(struct vgpu_driver *driver, const struct vgpu_launch_attribute *attributes,
                           uint32_t count, struct vgpu_launch_attribute *to, uint32_t *kept);

/*
 * The first launch of a kernel loads its code. The driver waits for the device if it must, and an error is
 * that of the launch. A launch is one-way, so another call does this. For a launch in a graph `stream` is 0;
 * a launch on a stream that captures loads nothing. Returns a CUresult.
 */
int vgpu_launch_load(struct vgpu_driver *driver, struct vgpu_callable *callable, uint64_t context,
                     uint64_t stream);

/* Gives the context and stream numbers of a launch. Returns a CUresult. */
int vgpu_launch_place(struct vgpu_driver *driver, const struct vgpu_callable *callable,
                      struct vgpu_stream *stream, uint64_t *context, uint64_t *number);

/*
 * Returns how many blocks of `threads` threads are on the device at once, by the attributes of device and
 * function.
 */
uint64_t vgpu_occupancy_blocks(const int32_t *device, const int32_t *function, uint64_t threads,
                               uint32_t dynamic);

#endif
