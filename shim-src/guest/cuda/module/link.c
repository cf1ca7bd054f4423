/* Collects images; the host links them (docs/reference/graphs.md). */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/module/code.h"
#include "image/container.h"

struct vgpu_link {
  uint64_t context;      /* number of the context that was current at cuLinkCreate */
  unsigned char *inputs; /* struct vgpu_link_input, one after another */
  uint64_t size;
  uint32_t count;
  int32_t options[VGPU_JIT_OPTIONS_MAX];
  void *values[VGPU_JIT_OPTIONS_MAX];
  uint32_t option_count;
  void **values_of_program; /* used if the link writes the value of an option */
  unsigned char *result;    /* the linked image; NULL: not completed */
  size_t result_size;
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

enum { WALL_TIME = 2, INFO_LOG_SIZE = 4, ERROR_LOG_SIZE = 6 };

static bool is_output(int32_t option) {
  return option == WALL_TIME || option == INFO_LOG_SIZE || option == ERROR_LOG_SIZE;
}

int cuLinkCreate_v2(uint32_t numOptions, int32_t *options, void **optionValues, void **stateOut) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (stateOut == NULL || numOptions > VGPU_JIT_OPTIONS_MAX ||
      (numOptions > 0 && (options == NULL || optionValues == NULL))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct vgpu_context *owner = NULL;
  uint64_t context = 0;
  result = vgpu_cuda_owner(driver, &owner, &context);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_link *link = calloc(1, sizeof *link);
  if (link == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  /* The API requires that the logs' buffers and optionValues exist as long as the link. */
  link->context = context;
  link->option_count = numOptions;
  link->values_of_program = optionValues;
  for (uint32_t i = 0; i < numOptions; i++) {
    link->options[i] = options[i];
    link->values[i] = optionValues[i];
    /* The size is an unsigned int; some programs leave the rest of the pointer undefined. */
    if (options[i] == INFO_LOG_SIZE || options[i] == ERROR_LOG_SIZE)
      link->values[i] = (void *)((uintptr_t)optionValues[i] & UINT32_MAX);
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

static int add(struct vgpu_link *link, int32_t type, const void *data, size_t size, const char *name) {
  if (type < VGPU_LINK_CUBIN || type > VGPU_LINK_NVVM || data == NULL || size == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (link->result != NULL || link->count == VGPU_LINK_INPUTS_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (name == NULL) name = "input";
  const struct vgpu_link_input input = {
      .type = (uint32_t)type, .name_bytes = (uint32_t)strnlen(name, 4095) + 1, .bytes = size};
  if (size > VGPU_IMAGE_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t all = vgpu_link_input_size(input.name_bytes, size);
  if (all > VGPU_IMAGE_MAX - link->size) return CUDA_ERROR_OUT_OF_MEMORY;
  unsigned char *grown = realloc(link->inputs, link->size + all);
  if (grown == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  link->inputs = grown;
  unsigned char *to = grown + link->size;
  memset(to, 0, all);
  memcpy(to, &input, sizeof input);
  memcpy(to + sizeof input, name, input.name_bytes - 1);
  memcpy(to + sizeof input + input.name_bytes, data, size);
  link->size += all;
  link->count++;
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

static int link_at_host(struct vgpu_link *link, struct vgpu_reply_link_images *reply) {
  struct vgpu_image image = {.bytes = link->inputs, .size = link->size};
  vgpu_sha256(image.bytes, image.size, &image.hash);
  const struct vgpu_send_link_images send = {.context = link->context,
                                             .hash_0 = image.hash.words[0],
                                             .hash_1 = image.hash.words[1],
                                             .hash_2 = image.hash.words[2],
                                             .hash_3 = image.hash.words[3],
                                             .bytes = image.size};
  const struct vgpu_image_request request = {.opcode = VGPU_OP_link_images,
                                             .send = &send,
                                             .send_size = sizeof send,
                                             .reply = reply,
                                             .reply_size = sizeof *reply};
  const struct vgpu_jit jit = {.count = link->option_count, .options = link->options, .values = link->values};
  int result = vgpu_image_load(&request, &image, &jit);
  for (uint32_t i = 0; i < link->option_count; i++) {
    if (is_output(link->options[i])) link->values_of_program[i] = link->values[i];
  }
  return result;
}

/* A text ends at the zero behind the image. */
static int read_result(struct vgpu_link *link, const struct vgpu_reply_link_images *reply) {
  if (reply->bytes == 0 || reply->bytes > VGPU_IMAGE_MAX) return CUDA_ERROR_UNKNOWN;
  unsigned char *bytes = malloc(reply->bytes + 1);
  if (bytes == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  bytes[reply->bytes] = '\0';
  struct vgpu_send_image_read send = {.number = reply->number};
  int result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && send.offset < reply->bytes) {
    uint64_t left = reply->bytes - send.offset;
    uint32_t step = left < VGPU_BULK_MAX ? (uint32_t)left : VGPU_BULK_MAX;
    struct vgpu_cuda_exchange exchange = {
        .send = &send, .send_size = sizeof send, .bulk = bytes + send.offset, .bulk_capacity = step};
    result = vgpu_cuda_exchange(VGPU_OP_image_read, &exchange);
    if (result == CUDA_SUCCESS && exchange.bulk_size != step) result = CUDA_ERROR_UNKNOWN;
    send.offset += step;
  }
  if (result != CUDA_SUCCESS) {
    free(bytes);
    return result;
  }
  link->result = bytes;
  link->result_size = reply->bytes;
  return CUDA_SUCCESS;
}

/* An older host cannot link: the only input is the result. */
static int copy_input(struct vgpu_link *link) {
  struct vgpu_link_input input;
  memcpy(&input, link->inputs, sizeof input);
  link->result = malloc(input.bytes + 1);
  if (link->result == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(link->result, link->inputs + sizeof input + input.name_bytes, input.bytes + 1);
  link->result_size = input.bytes;
  return CUDA_SUCCESS;
}

static int complete(struct vgpu_link *link) {
  struct vgpu_reply_link_images reply = {0};
  int result = link_at_host(link, &reply);
  if (result == CUDA_SUCCESS) return read_result(link, &reply);
  bool unknown = result == CUDA_ERROR_NOT_SUPPORTED && reply.result == CUDA_SUCCESS;
  return unknown && link->count == 1 ? copy_input(link) : result;
}

int cuLinkComplete(void *state, void **cubinOut, size_t *sizeOut) {
  int result;
  struct vgpu_driver *driver;
  struct vgpu_link *link = find(&driver, state, &result);
  if (link == NULL) return result;
  if (cubinOut == NULL || link->count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (link->result == NULL) result = complete(link);
  if (result != CUDA_SUCCESS) return result;
  *cubinOut = link->result;
  if (sizeOut != NULL) *sizeOut = link->result_size;
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
  free(link->inputs);
  free(link->result);
  free(link);
  return CUDA_SUCCESS;
}
