/*
 * Launches of CUDA 3. PyCUDA calls cuFuncSetBlockShape before every newer launch, too, which ignores the
 * size.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "guest/cuda/module/code.h"

struct vgpu_old_launch {
  uint32_t block[3];
  uint32_t shared;
  size_t size;   /* size of the parameters, as the program gave it */
  size_t needed; /* size of the kernel's parameters; 0 if the kernel is refused anyway */
  unsigned char parameters[VGPU_PARAMETER_BYTES_MAX];
};

/* As with NVIDIA's driver, two threads that set up the same function race. */
static int find(const void *handle, struct vgpu_old_launch **old) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_callable *callable = vgpu_callable_find(driver, handle);
  if (callable == NULL) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&driver->lock);
  if (callable->old_launch == NULL) {
    callable->old_launch = calloc(1, sizeof *callable->old_launch);
    if (callable->old_launch != NULL) {
      for (int i = 0; i < 3; i++) callable->old_launch->block[i] = 1;
      callable->old_launch->needed = callable->refused == CUDA_SUCCESS ? callable->parameter_bytes : 0;
    }
  }
  *old = callable->old_launch;
  pthread_mutex_unlock(&driver->lock);
  return *old == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

int cuFuncSetBlockShape(void *hfunc, int32_t x, int32_t y, int32_t z) {
  struct vgpu_old_launch *old = NULL;
  int result = find(hfunc, &old);
  if (result != CUDA_SUCCESS) return result;
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  old->block[0] = (uint32_t)x;
  old->block[1] = (uint32_t)y;
  old->block[2] = (uint32_t)z;
  return CUDA_SUCCESS;
}

int cuFuncSetSharedSize(void *hfunc, uint32_t bytes) {
  struct vgpu_old_launch *old = NULL;
  int result = find(hfunc, &old);
  if (result != CUDA_SUCCESS) return result;
  old->shared = bytes;
  return CUDA_SUCCESS;
}

int cuParamSetSize(void *hfunc, uint32_t numbytes) {
  struct vgpu_old_launch *old = NULL;
  int result = find(hfunc, &old);
  if (result != CUDA_SUCCESS) return result;
  if (numbytes > sizeof old->parameters) return CUDA_ERROR_INVALID_VALUE;
  old->size = numbytes;
  return CUDA_SUCCESS;
}

int cuParamSetv(void *hfunc, int32_t offset, void *ptr, uint32_t numbytes) {
  struct vgpu_old_launch *old = NULL;
  int result = find(hfunc, &old);
  if (result != CUDA_SUCCESS) return result;
  if (offset < 0 || ptr == NULL || (size_t)offset > sizeof old->parameters ||
      numbytes > sizeof old->parameters - (size_t)offset) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  memcpy(old->parameters + offset, ptr, numbytes);
  return CUDA_SUCCESS;
}

int cuParamSeti(void *hfunc, int32_t offset, uint32_t value) {
  return cuParamSetv(hfunc, offset, &value, sizeof value);
}

int cuParamSetf(void *hfunc, int32_t offset, float value) {
  return cuParamSetv(hfunc, offset, &value, sizeof value);
}

int cuLaunchGridAsync(void *f, int32_t grid_width, int32_t grid_height, struct vgpu_stream *hStream) {
  struct vgpu_old_launch *old = NULL;
  int result = find(f, &old);
  if (result != CUDA_SUCCESS) return result;
  if (grid_width <= 0 || grid_height <= 0 || old->size < old->needed) return CUDA_ERROR_INVALID_VALUE;
  void *extra[] = {(void *)1, old->parameters, (void *)2, &old->size, NULL};
  return cuLaunchKernel(f, (uint32_t)grid_width, (uint32_t)grid_height, 1, old->block[0], old->block[1],
                        old->block[2], old->shared, hStream, NULL, extra);
}

int cuLaunchGrid(void *f, int32_t grid_width, int32_t grid_height) {
  return cuLaunchGridAsync(f, grid_width, grid_height, NULL);
}

int cuLaunch(void *f) {
  return cuLaunchGridAsync(f, 1, 1, NULL);
}
