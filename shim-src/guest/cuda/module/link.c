/*
 * cuLink* joins inputs to one image. One input becomes the output without a change. Several PTX texts become
 * one text, which compiles for the device that loads it. Several inputs that include machine code would need
 * NVIDIA's linker; they are refused, and the error log says why. libcudadevrt.a is accepted, and a PTX text
 * of this project replaces it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "guest/cuda/module/code.h"
#include "guest/cuda/module/device_runtime.h"
#include "image/link_ptx.h"

#define INPUTS_MAX 1024u

struct input {
  int32_t type;
  char *bytes; /* zero-terminated */
  size_t size;
  char *name;
};

struct vgpu_link {
  struct input *inputs;
  size_t count;
  bool device_runtime; /* libcudadevrt.a was given */
  char *joined;        /* joined text of several inputs, or of one and the device runtime */
  size_t joined_size;
  char *log; /* the program's buffer for errors; NULL: none */
  size_t log_size;
  void **log_written; /* the option value that gets its length; NULL: none */
};

static struct vgpu_link *find(struct vgpu_driver **driver, void *handle, int *result) {
  *driver = vgpu_cuda_driver(result);
  if (*driver == NULL) return NULL;
  pthread_mutex_lock(&(*driver)->lock);
  bool live = vgpu_objects_has(&(*driver)->objects, handle, VGPU_OBJECT_LINK);
  pthread_mutex_unlock(&(*driver)->lock);
  *result = live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  return live ? handle : NULL;
}

/* CUjit_option */
enum { ERROR_LOG = 5, ERROR_LOG_SIZE = 6 };

static int fail(struct vgpu_link *link, int result, const char *why) {
  if (link->log == NULL || link->log_size == 0) return result;
  int written = snprintf(link->log, link->log_size, "%s\n", why);
  size_t length = written < 0 ? 0 : (size_t)written < link->log_size ? (size_t)written : link->log_size - 1;
  if (link->log_written != NULL) *link->log_written = (void *)(uintptr_t)length;
  return result;
}

int cuLinkCreate_v2(uint32_t numOptions, int32_t *options, void **optionValues, void **stateOut) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (stateOut == NULL || (numOptions > 0 && (options == NULL || optionValues == NULL))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct vgpu_link *link = calloc(1, sizeof *link);
  if (link == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  /* The program must keep both buffers as long as the link exists, as the API says. */
  for (uint32_t i = 0; i < numOptions; i++) {
    if (options[i] == ERROR_LOG) link->log = optionValues[i];
    if (options[i] != ERROR_LOG_SIZE) continue;
    link->log_size = (size_t)(uintptr_t)optionValues[i] & UINT32_MAX;
    link->log_written = &optionValues[i];
  }
  pthread_mutex_lock(&driver->lock);
  bool added = vgpu_objects_add(&driver->objects, link, VGPU_OBJECT_LINK);
  pthread_mutex_unlock(&driver->lock);
  if (!added) {
    free(link);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *stateOut = link;
  return CUDA_SUCCESS;
}

int cuLinkCreate(uint32_t numOptions, int32_t *options, void **optionValues, void **stateOut) {
  return cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}

/* CUjitInputType: cubin, PTX, fat binary. Objects and archives of device code need a linker. */
enum { INPUT_CUBIN = 0, INPUT_PTX = 1, INPUT_FATBIN = 2, INPUT_LIBRARY = 4, INPUT_TYPES = 6 };

static int add(struct vgpu_link *link, int32_t type, const void *data, size_t size, const char *name) {
  if (type < 0 || type >= INPUT_TYPES || data == NULL || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (link->joined != NULL || link->count == INPUTS_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (type == INPUT_LIBRARY && vgpu_is_device_runtime(data, size)) {
    link->device_runtime = true;
    return CUDA_SUCCESS;
  }
  if (type > INPUT_FATBIN) {
    return fail(link, CUDA_ERROR_NOT_SUPPORTED, "objects, libraries and NVVM code need NVIDIA's linker");
  }
  if (link->count > 0 && (type != INPUT_PTX || link->inputs[0].type != INPUT_PTX)) {
    return fail(link, CUDA_ERROR_NOT_SUPPORTED,
                "several inputs are linked when all are PTX texts: machine code needs NVIDIA's linker");
  }
  struct input *grown = realloc(link->inputs, (link->count + 1) * sizeof *grown);
  if (grown == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  link->inputs = grown;
  struct input input = {
      .type = type, .bytes = malloc(size + 1), .size = size, .name = strdup(name == NULL ? "input" : name)};
  if (input.bytes == NULL || input.name == NULL) {
    free(input.bytes);
    free(input.name);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memcpy(input.bytes, data, size);
  input.bytes[size] = '\0';
  link->inputs[link->count++] = input;
  return CUDA_SUCCESS;
}

int cuLinkAddData_v2(void *state, int32_t type, void *data, size_t size, const char *name,
                     uint32_t numOptions, int32_t *options, void **optionValues) {
  (void)options;
  (void)optionValues;
  (void)numOptions;
  int result;
  struct vgpu_driver *driver;
  struct vgpu_link *link = find(&driver, state, &result);
  return link == NULL ? result : add(link, type, data, size, name);
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
  if (path == NULL) return CUDA_ERROR_INVALID_VALUE;
  unsigned char *bytes;
  uint64_t size;
  result = vgpu_image_read_file(path, &bytes, &size);
  if (result != CUDA_SUCCESS) return result;
  result = add(link, type, bytes, size, path);
  free(bytes);
  return result;
}

int cuLinkAddFile(void *state, int32_t type, const char *path, uint32_t numOptions, int32_t *options,
                  void **optionValues) {
  return cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues);
}

static bool needs_runtime(const struct vgpu_link *link) {
  for (size_t i = 0; link->device_runtime && i < link->count; i++) {
    if (link->inputs[i].type == INPUT_PTX && vgpu_uses_device_runtime(link->inputs[i].bytes)) return true;
  }
  return false;
}

static int join(struct vgpu_link *link) {
  char why[512];
  struct vgpu_ptx_text *texts = malloc((link->count + 1) * sizeof *texts);
  if (texts == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; i < link->count; i++) {
    const struct input *input = &link->inputs[i];
    texts[i] = (struct vgpu_ptx_text){.text = input->bytes, .size = input->size, .name = input->name};
  }
  size_t count = link->count;
  if (needs_runtime(link)) {
    texts[count++] = (struct vgpu_ptx_text){
        .text = vgpu_device_runtime, .size = strlen(vgpu_device_runtime), .name = "the device runtime"};
  }
  link->joined = vgpu_ptx_link(texts, count, &link->joined_size, why, sizeof why);
  free(texts);
  return link->joined == NULL ? fail(link, CUDA_ERROR_UNKNOWN, why) : CUDA_SUCCESS;
}

/* The image belongs to the link and is freed with it. */
int cuLinkComplete(void *state, void **cubinOut, size_t *sizeOut) {
  int result;
  struct vgpu_driver *driver;
  struct vgpu_link *link = find(&driver, state, &result);
  if (link == NULL) return result;
  if (cubinOut == NULL || link->count == 0) return CUDA_ERROR_INVALID_VALUE;
  if ((link->count > 1 || needs_runtime(link)) && link->joined == NULL) result = join(link);
  if (result != CUDA_SUCCESS) return result;
  bool several = link->joined != NULL;
  *cubinOut = several ? link->joined : link->inputs[0].bytes;
  if (sizeOut != NULL) *sizeOut = several ? link->joined_size : link->inputs[0].size;
  return CUDA_SUCCESS;
}

int cuLinkDestroy(void *state) {
  int result;
  struct vgpu_driver *driver;
  struct vgpu_link *link = find(&driver, state, &result);
  if (link == NULL) return result;
  pthread_mutex_lock(&driver->lock);
  vgpu_objects_remove(&driver->objects, link, VGPU_OBJECT_LINK);
  pthread_mutex_unlock(&driver->lock);
  for (size_t i = 0; i < link->count; i++) {
    free(link->inputs[i].bytes);
    free(link->inputs[i].name);
  }
  free(link->inputs);
  free(link->joined);
  free(link);
  return CUDA_SUCCESS;
}
