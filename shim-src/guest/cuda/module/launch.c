#include "guest/cuda/module/launch.h"

#include <stdlib.h>
#include <string.h>

#include "api/device_attributes.h"
#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/stream/capture.h"
#include "guest/log.h"

enum { LAUNCH_OUT_OF_RESOURCES = 701, COOPERATIVE_LAUNCH_TOO_LARGE = 720 };

/* All blocks of a cooperative grid, and of a cluster, run at once. */
static int check_groups(const struct vgpu_launch *launch, const int32_t *device, const int32_t *attributes,
                        uint64_t threads, uint32_t sms) {
  uint32_t cluster[3];
  bool cooperative = false;
  for (int i = 0; i < 3; i++) {
    int32_t own = attributes[VGPU_FUNCTION_CLUSTER_WIDTH + i];
    cluster[i] = own > 0 ? (uint32_t)own : 1;
  }
  uint32_t count = launch->attributes == NULL ? 0 : launch->attribute_count;
  for (uint32_t i = 0; i < count && count <= VGPU_LAUNCH_ATTRIBUTES_MAX; i++) {
    const struct vgpu_launch_attribute *attribute = &launch->attributes[i];
    if (attribute->id == LAUNCH_COOPERATIVE) cooperative = (uint32_t)attribute->value[0] != 0;
    if (attribute->id == LAUNCH_CLUSTER) memcpy(cluster, attribute->value, sizeof cluster);
  }
  uint64_t together = 1;
  for (int i = 0; i < 3; i++) {
    if (cluster[i] == 0 || cluster[i] > LARGEST_CLUSTER) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    if (launch->grid[i] % cluster[i] != 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    together *= cluster[i];
  }
  if (together > 1 && device[VGPU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] < 9) return CUDA_ERROR_NOT_SUPPORTED;
  if (together > (attributes[VGPU_FUNCTION_NON_PORTABLE] != 0 ? LARGEST_CLUSTER : PORTABLE_CLUSTER))
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  if (!cooperative) return CUDA_SUCCESS;
  uint64_t room = vgpu_occupancy_blocks(device, attributes, threads, launch->shared);
  if (sms != 0) room = room / (uint64_t)device[VGPU_ATTRIBUTE_MULTIPROCESSOR_COUNT] * sms;
  uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1];
  return blocks > room || blocks * launch->grid[2] > room ? COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

/* Finds errors that need no host, because programs test for them right after the launch. */
static int check(struct vgpu_driver *driver, struct vgpu_callable *callable,
                 const struct vgpu_launch *launch) {
  int32_t ordinal = vgpu_callable_device(driver, callable);
  const int32_t *attributes, *device = driver->facts[ordinal].attributes;
  int result = vgpu_callable_attributes(driver, callable, ordinal, &attributes);
  if (result != CUDA_SUCCESS) return result;
  uint64_t threads = 1;
  for (int i = 0; i < 3; i++) {
    if (launch->grid[i] == 0 || launch->grid[i] > (uint32_t)device[VGPU_ATTRIBUTE_MAX_GRID_DIM_X + i] ||
        launch->block[i] == 0 || launch->block[i] > (uint32_t)device[VGPU_ATTRIBUTE_MAX_BLOCK_DIM_X + i]) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    threads *= launch->block[i];
  }
  if (threads > (uint64_t)device[VGPU_ATTRIBUTE_MAX_THREADS_PER_BLOCK]) return CUDA_ERROR_INVALID_VALUE;
  if (launch->shared > (uint32_t)attributes[VGPU_FUNCTION_MAX_DYNAMIC]) return CUDA_ERROR_INVALID_VALUE;
  if (threads > (uint64_t)attributes[VGPU_FUNCTION_MAX_THREADS]) return CUDA_ERROR_INVALID_VALUE;
  if (threads * (uint64_t)attributes[VGPU_FUNCTION_REGISTERS] >
      (uint64_t)device[VGPU_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK])
    return LAUNCH_OUT_OF_RESOURCES;
  const int32_t *cluster = attributes + VGPU_FUNCTION_CLUSTER_WIDTH;
  if (launch->attribute_count == 0 && cluster[0] <= 0) return CUDA_SUCCESS;
  return check_groups(launch, device, attributes, threads, vgpu_cuda_stream_sms(driver, launch->stream));
}

/*
 * Reads the `extra` form of parameters: pairs of a word and a value that end with 0. The buffer may be
 * shorter than the kernel's parameters: NCCL omits the unused end of a structure.
 */
static int take_extra(const struct vgpu_callable *callable, void **extra, unsigned char *to) {
  const unsigned char *buffer = NULL;
  const size_t *size = NULL;
  for (unsigned i = 0; extra[i] != NULL; i += 2) {
    switch ((uintptr_t)extra[i]) {
      case 1:
        buffer = extra[i + 1];
        break;
      case 2:
        size = extra[i + 1];
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (callable->parameter_bytes == 0) return CUDA_SUCCESS;
  if (buffer == NULL || size == NULL) return CUDA_ERROR_INVALID_VALUE;
  size_t given = *size < callable->parameter_bytes ? *size : callable->parameter_bytes;
  memcpy(to, buffer, given);
  memset(to + given, 0, callable->parameter_bytes - given);
  return CUDA_SUCCESS;
}

int vgpu_launch_parameters(const struct vgpu_callable *callable,
                           const struct vgpu_send_cuLaunchKernelEx *placed, void **parameters, void **extra,
                           unsigned char *to) {
  if (callable->refused != CUDA_SUCCESS) {
    vgpu_log("kernel %.200s cannot run on this device: CUresult %d", callable->name, callable->refused);
    /* The host logs and counts the launch for vgpu-agent verify and doctor. */
    struct vgpu_send_cuLaunchKernelEx send = *placed;
    send.attributes = 0;
    send.parameters = VGPU_LAUNCH_REFUSED;
    vgpu_cuda_post_uncaptured(VGPU_OP_cuLaunchKernelEx, &send, sizeof send);
    return callable->refused;
  }
  if (parameters != NULL && extra != NULL) return CUDA_ERROR_INVALID_VALUE;
  if (extra != NULL) return take_extra(callable, extra, to);
  if (parameters == NULL) return callable->parameter_count == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  memset(to, 0, callable->parameter_bytes); /* gaps must not contain memory of this library */
  for (uint32_t i = 0; i < callable->parameter_count; i++) {
    if (parameters[i] == NULL) return CUDA_ERROR_INVALID_VALUE;
    memcpy(to + callable->parameters[i].offset, parameters[i], callable->parameters[i].size);
  }
  return CUDA_SUCCESS;
}

static int event_number(struct vgpu_driver *driver, uint64_t handle, uint64_t *number) {
  const struct vgpu_event *event = (const void *)(uintptr_t)handle;
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_has(&driver->objects, event, VGPU_OBJECT_EVENT);
  if (live) *number = event->number;
  pthread_mutex_unlock(&driver->lock);
  return live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

int vgpu_launch_attributes(struct vgpu_driver *driver, const struct vgpu_launch_attribute *attributes,
                           uint32_t count, struct vgpu_launch_attribute *to, uint32_t *kept) {
  *kept = 0;
  if (count > VGPU_LAUNCH_ATTRIBUTES_MAX || (count > 0 && attributes == NULL))
    return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < count; i++) {
    if (attributes[i].id == LAUNCH_IGNORE) continue;
    if (attributes[i].id == LAUNCH_UPDATABLE_NODE) return CUDA_ERROR_NOT_SUPPORTED;
    struct vgpu_launch_attribute *attribute = &to[(*kept)++];
    *attribute = attributes[i];
    attribute->reserved = 0;
    if (attribute->id == LAUNCH_PROGRAMMATIC_EVENT || attribute->id == LAUNCH_COMPLETION_EVENT) {
      int result = event_number(driver, attribute->value[0], &attribute->value[0]);
      if (result != CUDA_SUCCESS) return result;
    }
  }
  return CUDA_SUCCESS;
}

/* Most launches need less. Larger ones allocate memory. */
#define USUAL_BYTES 2048

int vgpu_launch_load(struct vgpu_driver *driver, struct vgpu_callable *callable, uint64_t context,
                     uint64_t stream) {
  const uint32_t places = sizeof callable->loaded / sizeof *callable->loaded;
  for (uint32_t i = 0; i < places; i++)
    if (__atomic_load_n(&callable->loaded[i], __ATOMIC_RELAXED) == context) return CUDA_SUCCESS;
  if (vgpu_capture_on(driver, stream)) return CUDA_SUCCESS;
  const int result = vgpu_callable_load(driver, callable, context);
  if (result != CUDA_SUCCESS) return result;
  const uint32_t place = __atomic_fetch_add(&callable->loads, 1, __ATOMIC_RELAXED) % places;
  __atomic_store_n(&callable->loaded[place], context, __ATOMIC_RELAXED);
  return CUDA_SUCCESS;
}

static int post(struct vgpu_driver *driver, struct vgpu_callable *callable, const struct vgpu_launch *launch,
                void **parameters, void **extra, unsigned char *bulk) {
  struct vgpu_send_cuLaunchKernelEx send = {.function = callable->number,
                                            .grid_x = launch->grid[0],
                                            .grid_y = launch->grid[1],
                                            .grid_z = launch->grid[2],
                                            .block_x = launch->block[0],
                                            .block_y = launch->block[1],
                                            .block_z = launch->block[2],
                                            .shared = launch->shared,
                                            .parameters = callable->parameter_bytes};
  struct vgpu_launch_attribute attributes[VGPU_LAUNCH_ATTRIBUTES_MAX];
  int result = vgpu_launch_attributes(driver, launch->attributes, launch->attribute_count, attributes,
                                      &send.attributes);
  size_t attribute_bytes = send.attributes * sizeof *attributes;
  if (result == CUDA_SUCCESS)
    result = vgpu_launch_place(driver, callable, launch->stream, &send.context, &send.stream);
  if (result == CUDA_SUCCESS) {
    memcpy(bulk, attributes, attribute_bytes);
    result = vgpu_launch_parameters(callable, &send, parameters, extra, bulk + attribute_bytes);
  }
  if (result == CUDA_SUCCESS) result = vgpu_launch_load(driver, callable, send.context, send.stream);
  if (result != CUDA_SUCCESS) return result;
  return vgpu_cuda_post(VGPU_OP_cuLaunchKernelEx, &send, sizeof send, bulk,
                        (uint32_t)attribute_bytes + callable->parameter_bytes);
}

int vgpu_launch_place(struct vgpu_driver *driver, const struct vgpu_callable *callable,
                      struct vgpu_stream *stream, uint64_t *context, uint64_t *number) {
  int result = vgpu_cuda_stream_number(driver, stream, number);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_context *current = *number < VGPU_FIRST_NUMBER ? vgpu_cuda_current_context() : NULL;
  if (callable->module != NULL && (current == NULL || current->owner == NULL)) {
    *context = callable->module->context_number;
    return CUDA_SUCCESS;
  }
  /* A kernel runs in the context of its stream. */
  if (*number < VGPU_FIRST_NUMBER) return vgpu_cuda_context_number(context);
  pthread_mutex_lock(&driver->lock);
  struct vgpu_context *of = stream->context;
  result = vgpu_cuda_context_at_host(driver, of);
  *context = of->number;
  pthread_mutex_unlock(&driver->lock);
  return result;
}

static int run(void *handle, const struct vgpu_launch *launch, void **parameters, void **extra) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_callable *callable = vgpu_callable_find(driver, handle);
  if (callable == NULL) return CUDA_ERROR_INVALID_HANDLE;
  result = check(driver, callable, launch);
  if (result != CUDA_SUCCESS) return result;
  if (launch->attribute_count > VGPU_LAUNCH_ATTRIBUTES_MAX) return CUDA_ERROR_INVALID_VALUE;
  size_t bytes = launch->attribute_count * sizeof *launch->attributes + callable->parameter_bytes;
  if (bytes <= USUAL_BYTES) {
    unsigned char bulk[USUAL_BYTES];
    return post(driver, callable, launch, parameters, extra, bulk);
  }
  unsigned char *bulk = malloc(bytes);
  if (bulk == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  result = post(driver, callable, launch, parameters, extra, bulk);
  free(bulk);
  return result;
}

int cuLaunchKernel(void *f, uint32_t gridDimX, uint32_t gridDimY, uint32_t gridDimZ, uint32_t blockDimX,
                   uint32_t blockDimY, uint32_t blockDimZ, uint32_t sharedMemBytes,
                   struct vgpu_stream *hStream, void **kernelParams, void **extra) {
  struct vgpu_launch launch = {.grid = {gridDimX, gridDimY, gridDimZ},
                               .block = {blockDimX, blockDimY, blockDimZ},
                               .shared = sharedMemBytes,
                               .stream = hStream};
  return run(f, &launch, kernelParams, extra);
}

int cuLaunchCooperativeKernel(void *f, uint32_t gridDimX, uint32_t gridDimY, uint32_t gridDimZ,
                              uint32_t blockDimX, uint32_t blockDimY, uint32_t blockDimZ,
                              uint32_t sharedMemBytes, struct vgpu_stream *hStream, void **kernelParams) {
  const struct vgpu_launch_attribute cooperative = {.id = LAUNCH_COOPERATIVE, .value = {1}};
  struct vgpu_launch launch = {.grid = {gridDimX, gridDimY, gridDimZ},
                               .block = {blockDimX, blockDimY, blockDimZ},
                               .shared = sharedMemBytes,
                               .stream = hStream,
                               .attributes = &cooperative,
                               .attribute_count = 1};
  return run(f, &launch, kernelParams, NULL);
}

static int launch_config(const struct vgpu_launch_config *config, struct vgpu_stream *stream, void *f,
                         void **kernelParams, void **extra) {
  struct vgpu_launch launch = {.shared = config->shared,
                               .stream = stream,
                               .attributes = config->attributes,
                               .attribute_count = config->attribute_count};
  memcpy(launch.grid, config->grid, sizeof launch.grid);
  memcpy(launch.block, config->block, sizeof launch.block);
  return run(f, &launch, kernelParams, extra);
}

int cuLaunchKernelEx(const void *config, void *f, void **kernelParams, void **extra) {
  if (config == NULL) return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_launch_config *fields = config;
  return launch_config(fields, fields->stream, f, kernelParams, extra);
}

int cuLaunchKernelEx_ptsz(const void *config, void *f, void **kernelParams, void **extra) {
  if (config == NULL) return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_launch_config *fields = config;
  return launch_config(fields, fields->stream == NULL ? VGPU_STREAM_PER_THREAD : fields->stream, f,
                       kernelParams, extra);
}
