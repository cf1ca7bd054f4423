/*
 * Arrays, textures and surfaces of the host's GPU. They are the driver's own; the guest chooses their
 * numbers.
 */
#ifndef VGPU_HOST_CUDA_TEXTURE_H
#define VGPU_HOST_CUDA_TEXTURE_H

#include "host/backend/cuda/session.h"
#include "wire/texture.h"

/* The object behind the handle of an array. */
struct vgpu_cuda_array {
  void *array;                          /* CUarray, or CUmipmappedArray */
  void *levels[VGPU_ARRAY_LEVELS_MOST]; /* CUarray of each level that was requested; the driver frees it */
  uint32_t level_count;                 /* 0: a plain array */
  uint32_t device;
  uint64_t counted; /* bytes that it counts as */
};

/* Returns the CUarray of a level, which must be 0 for a plain array. NULL: there is none. */
void *vgpu_cuda_array_level(struct vgpu_worker *worker, uint64_t number, uint32_t level);
struct vgpu_cuda_array *vgpu_cuda_array_find(struct vgpu_worker *worker, uint64_t number);

/* Removes the objects and arrays of a context that ends. The driver frees them with it. */
void vgpu_cuda_textures_drop(struct vgpu_worker *worker, uint64_t context);
void vgpu_cuda_arrays_drop(struct vgpu_worker *worker, uint64_t context);

#endif
