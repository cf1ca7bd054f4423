/*
 * cuLink*: joins what it is given to one image. Real linking (device code compiled for it, -rdc) needs
 * NVIDIA's linker; what programs use it for most is to compile one PTX text or to unwrap one cubin, and that
 * is done: one input becomes the output. Several are refused.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "guest/cuda/code.h"

struct vgpu_link {
  unsigned char *bytes; /* of the one input, zero-terminated */
  uint64_t size;
};

static struct vgpu_link *find(struct vgpu_driver **driver, void *handle, int *result) {
  *driver = vgpu_cuda_driver(result);
  if (*driver == NULL) return NULL;
  pthread_mutex_lock(&(*driver)->lock);
  bool live = vgpu_objects_has(&(*driver)->objects, handle, VGPU_OBJECT_LINK);
  pthread_mutex_unlock(&(*driver)->lock);
  *result = live ? VGPU_CUDA_SUCCESS : VGPU_CUDA_INVALID_HANDLE;
  return live ? handle : NULL;
}

int cuLinkCreate_v2(uint32_t numOptions, int32_t *options, void **optionValues, void **stateOut) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (stateOut == NULL || (numOptions > 0 && (options == NULL || optionValues == NULL))) {
    return VGPU_CUDA_INVALID_VALUE;
  }
  struct vgpu_link *link = calloc(1, sizeof *link);
  if (link == NULL) return VGPU_CUDA_OUT_OF_MEMORY;
  pthread_mutex_lock(&driver->lock);
  bool added = vgpu_objects_add(&driver->objects, link, VGPU_OBJECT_LINK);
  pthread_mutex_unlock(&driver->lock);
  if (!added) {
    free(link);
    return VGPU_CUDA_OUT_OF_MEMORY;
  }
  *stateOut = link;
  return VGPU_CUDA_SUCCESS;
}

int cuLinkCreate(uint32_t numOptions, int32_t *options, void **optionValues, void **stateOut) {
  return cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}

/* CUjitInputType: cubin, PTX, fat binary. Objects and archives of device code need a linker. */
enum { INPUT_CUBIN = 0, INPUT_PTX = 1, INPUT_FATBIN = 2, INPUT_TYPES = 6 };

static int add(struct vgpu_link *link, int32_t type, const void *data, size_t size) {
  if (type < 0 || type >= INPUT_TYPES || data == NULL || size == 0) return VGPU_CUDA_INVALID_VALUE;
  if (type > INPUT_FATBIN || link->bytes != NULL) return VGPU_CUDA_NOT_SUPPORTED;
  unsigned char *copy = malloc(size + 1);
  if (copy == NULL) return VGPU_CUDA_OUT_OF_MEMORY;
  memcpy(copy, data, size);
  copy[size] = '\0';
  link->bytes = copy;
  link->size = size;
  return VGPU_CUDA_SUCCESS;
}

int cuLinkAddData_v2(void *state, int32_t type, void *data, size_t size, const char *name,
                     uint32_t numOptions, int32_t *options, void **optionValues) {
  (void)name;
  (void)options;
  (void)optionValues;
  (void)numOptions;
  int result;
  struct vgpu_driver *driver;
  struct vgpu_link *link = find(&driver, state, &result);
  return link == NULL ? result : add(link, type, data, size);
}

int cuLinkAddData(void *state, int32_t type, void *data, size_t size, const char *name, uint32_t numOptions,
                  int32_t *options, void **optionValues) {
  return cuLinkAddData_v2(state, type, data, size, name, numOptions, options, optionValues);
}

int cuLinkAddFile_v2(void *state, int32_t type, const char *path, uint32_t numOptions, int32_t *options,
                     void **optionValues) {
  (void)options;
  (void)optionValues;
  (void)numOptions;
  int result;
  struct vgpu_driver *driver;
  struct vgpu_link *link = find(&driver, state, &result);
  if (link == NULL) return result;
  if (path == NULL) return VGPU_CUDA_INVALID_VALUE;
  unsigned char *bytes;
  uint64_t size;
  result = vgpu_image_read_file(path, &bytes, &size);
  if (result != VGPU_CUDA_SUCCESS) return result;
  result = add(link, type, bytes, size);
  free(bytes);
  return result;
}

int cuLinkAddFile(void *state, int32_t type, const char *path, uint32_t numOptions, int32_t *options,
                  void **optionValues) {
  return cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues);
}

/* The image belongs to the link and lives as long as it. */
int cuLinkComplete(void *state, void **cubinOut, size_t *sizeOut) {
  int result;
  struct vgpu_driver *driver;
  struct vgpu_link *link = find(&driver, state, &result);
  if (link == NULL) return result;
  if (cubinOut == NULL || link->bytes == NULL) return VGPU_CUDA_INVALID_VALUE;
  *cubinOut = link->bytes;
  if (sizeOut != NULL) *sizeOut = link->size;
  return VGPU_CUDA_SUCCESS;
}

int cuLinkDestroy(void *state) {
  int result;
  struct vgpu_driver *driver;
  struct vgpu_link *link = find(&driver, state, &result);
  if (link == NULL) return result;
  pthread_mutex_lock(&driver->lock);
  vgpu_objects_remove(&driver->objects, link, VGPU_OBJECT_LINK);
  pthread_mutex_unlock(&driver->lock);
  free(link->bytes);
  free(link);
  return VGPU_CUDA_SUCCESS;
}
