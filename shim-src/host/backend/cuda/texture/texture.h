/* Arrays, textures and surfaces of the host's GPU: the driver's own, under numbers of the guest's. */
#ifndef VGPU_HOST_CUDA_TEXTURE_H
#define VGPU_HOST_CUDA_TEXTURE_H

#include "host/backend/cuda/session.h"
#include "wire/texture.h"

/* The object behind the handle of an array. */
struct vgpu_cuda_array {
  void *array;                          /* CUarray, or CUmipmappedArray */
  void *levels[VGPU_ARRAY_LEVELS_MOST]; /* CUarray of each that was asked for; the driver's to free */
  uint32_t level_count;                 /* 0: a plain array */
  uint32_t device;
  uint64_t counted; /* bytes taken of the accounts */
};

/* The CUarray of a level, which must be 0 of a plain one; NULL: there is none. */
void *vgpu_cuda_array_level(struct vgpu_worker *worker, uint64_t number, uint32_t level);
struct vgpu_cuda_array *vgpu_cuda_array_find(struct vgpu_worker *worker, uint64_t number);

/* Forgets the objects and arrays of a context that ends; the driver frees them with it. */
void vgpu_cuda_textures_drop(struct vgpu_worker *worker, uint64_t context);
void vgpu_cuda_arrays_drop(struct vgpu_worker *worker, uint64_t context);

#endif
