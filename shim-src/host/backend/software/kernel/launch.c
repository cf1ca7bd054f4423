/* Checks every argument against the device and the function, logs the launch, and runs it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/device_attributes.h"
#include "cuda_handlers.h"
#include "host/backend/software/kernel/run.h"
#include "host/backend/software/software.h"
#include "cuda_results.h"

#define LAUNCH_KNOWN 18u /* the public headers of CUDA 13 have the attributes below */

struct request {
  const struct vgpu_send_cuLaunchKernelEx *send;
  const unsigned char *attributes;
  const unsigned char *parameters;
};

static struct vgpu_launch_attribute attribute_at(const struct request *request, uint32_t index) {
  struct vgpu_launch_attribute attribute;
  memcpy(&attribute, request->attributes + index * sizeof attribute, sizeof attribute);
  return attribute;
}

struct text {
  char *bytes;
  size_t size;
  size_t used;
};

__attribute__((format(printf, 2, 3))) static void say(struct text *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text->bytes + text->used, text->size - text->used, format, arguments);
  va_end(arguments);
  if (length > 0) text->used += (size_t)length;
  if (text->used >= text->size) text->used = text->size - 1;
}

static void say_hex(struct text *text, const unsigned char *bytes, size_t size) {
  for (size_t i = 0; i < size; i++) say(text, "%02x", bytes[i]);
}

/* Replaces characters that JSON does not allow: the guest chooses the name. */
static void say_name(struct text *text, const char *name) {
  for (; *name != '\0'; name++) {
    bool plain = *name >= ' ' && *name <= '~' && *name != '"' && *name != '\\';
    say(text, "%c", plain ? *name : '?');
  }
}

static void record(const struct vgpu_worker *worker, const struct request *request, const char *name,
                   int32_t result) {
  int descriptor = worker->code_options->launch_log;
  if (descriptor < 0) return;
  const struct vgpu_send_cuLaunchKernelEx *send = request->send;
  size_t size = 1024 + strlen(name) + 2 * (size_t)send->parameters + 200 * (size_t)send->attributes;
  struct text text = {.bytes = malloc(size), .size = size};
  if (text.bytes == NULL) return;
  say(&text, "{\"session\":%llu,\"kernel\":\"", (unsigned long long)worker->session);
  say_name(&text, name);
  say(&text, "\",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"shared\":%u,\"stream\":%llu,\"parameters\":\"",
      send->grid_x, send->grid_y, send->grid_z, send->block_x, send->block_y, send->block_z, send->shared,
      (unsigned long long)send->stream);
  say_hex(&text, request->parameters, send->parameters);
  say(&text, "\",\"attributes\":[");
  for (uint32_t i = 0; i < send->attributes; i++) {
    struct vgpu_launch_attribute attribute = attribute_at(request, i);
    say(&text, "%s{\"id\":%u,\"value\":\"", i == 0 ? "" : ",", attribute.id);
    say_hex(&text, (const unsigned char *)attribute.value, sizeof attribute.value);
    say(&text, "\"}");
  }
  say(&text, "],\"result\":%d}\n", result);
  ssize_t written = write(descriptor, text.bytes, text.used);
  (void)written;
  free(text.bytes);
}

static int32_t check_dimensions(const struct vgpu_device_profile *device,
                                struct vgpu_checked_launch *launch) {
  uint64_t threads = 1;
  for (int i = 0; i < 3; i++) {
    if (launch->grid[i] == 0 ||
        launch->grid[i] > (uint32_t)device->attributes[VGPU_ATTRIBUTE_MAX_GRID_DIM_X + i] ||
        launch->block[i] == 0 ||
        launch->block[i] > (uint32_t)device->attributes[VGPU_ATTRIBUTE_MAX_BLOCK_DIM_X + i]) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    threads *= launch->block[i];
  }
  if (threads > (uint64_t)device->attributes[VGPU_ATTRIBUTE_MAX_THREADS_PER_BLOCK])
    return CUDA_ERROR_INVALID_VALUE;
  const int32_t *attributes = launch->function->attributes;
  if (threads > (uint64_t)attributes[VGPU_FUNCTION_MAX_THREADS]) return CUDA_ERROR_INVALID_VALUE;
  if (threads * (uint64_t)attributes[VGPU_FUNCTION_REGISTERS] >
      (uint64_t)device->attributes[VGPU_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK])
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  return CUDA_SUCCESS;
}

static int32_t check_cluster(const struct vgpu_device_profile *device,
                             const struct vgpu_checked_launch *launch,
                             const struct vgpu_function_settings *settings) {
  uint64_t blocks = 1;
  for (int i = 0; i < 3; i++) {
    if (launch->cluster[i] == 0 || launch->cluster[i] > 16) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    if (launch->grid[i] % launch->cluster[i] != 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    blocks *= launch->cluster[i];
  }
  if (blocks == 1) return CUDA_SUCCESS;
  if (device->attributes[VGPU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] < 9) return CUDA_ERROR_NOT_SUPPORTED;
  return blocks > (settings->non_portable != 0 ? 16u : 8u) ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
}

static int32_t check_event(struct vgpu_worker *worker, uint64_t event) {
  return vgpu_handles_find(&worker->handles, event, VGPU_HANDLE_EVENT) == NULL ? CUDA_ERROR_INVALID_HANDLE
                                                                               : CUDA_SUCCESS;
}

static int32_t take_attributes(struct vgpu_worker *worker, const struct request *request,
                               struct vgpu_checked_launch *launch) {
  for (uint32_t i = 0; i < request->send->attributes; i++) {
    struct vgpu_launch_attribute attribute = attribute_at(request, i);
    uint32_t words[16];
    memcpy(words, attribute.value, sizeof words);
    if (attribute.id >= LAUNCH_KNOWN) return CUDA_ERROR_INVALID_VALUE;
    if (attribute.id == LAUNCH_UPDATABLE_NODE) return CUDA_ERROR_NOT_SUPPORTED;
    if (attribute.id == LAUNCH_COOPERATIVE) launch->cooperative = words[0] != 0;
    if (attribute.id == LAUNCH_CLUSTER) memcpy(launch->cluster, words, sizeof launch->cluster);
    if (attribute.id == LAUNCH_PROGRAMMATIC_EVENT || attribute.id == LAUNCH_COMPLETION_EVENT) {
      int32_t result = check_event(worker, attribute.value[0]);
      if (result != CUDA_SUCCESS) return result;
    }
  }
  return CUDA_SUCCESS;
}

/*
 * All blocks of a cooperative launch must be on the device at once. The check uses an upper bound that counts
 * only threads and blocks.
 */
static int32_t check_cooperative(const struct vgpu_device_profile *device,
                                 const struct vgpu_checked_launch *launch) {
  if (!launch->cooperative) return CUDA_SUCCESS;
  if (device->attributes[VGPU_ATTRIBUTE_COOPERATIVE_LAUNCH] == 0) return CUDA_ERROR_NOT_SUPPORTED;
  uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
  uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1];
  uint64_t each = (uint64_t)device->attributes[VGPU_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR] / threads;
  uint64_t places = (uint64_t)device->attributes[VGPU_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR];
  if (places > 0 && each > places) each = places;
  uint64_t room = each * (uint64_t)device->attributes[VGPU_ATTRIBUTE_MULTIPROCESSOR_COUNT];
  return blocks > room || blocks * launch->grid[2] > room ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
                                                          : CUDA_SUCCESS;
}

static int32_t check(struct vgpu_worker *worker, const struct request *request,
                     struct vgpu_checked_launch *launch) {
  const struct vgpu_send_cuLaunchKernelEx *send = request->send;
  struct vgpu_function_settings settings;
  struct vgpu_module_object *module = NULL;
  int32_t result =
      vgpu_programs_function(worker, launch->context, send->function, &module, &launch->function, &settings);
  if (result != CUDA_SUCCESS) return result;
  launch->module = module;
  const struct vgpu_device_profile *device = &worker->inventory->profiles->devices[module->device];
  for (int i = 0; i < 3; i++)
    launch->cluster[i] = settings.cluster[i] > 0 ? (uint32_t)settings.cluster[i] : 1;
  if (send->parameters != launch->function->parameter_bytes) return CUDA_ERROR_INVALID_VALUE;
  result = take_attributes(worker, request, launch);
  if (result == CUDA_SUCCESS) result = check_dimensions(device, launch);
  if (result == CUDA_SUCCESS && send->shared > (uint32_t)settings.max_dynamic)
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = check_cluster(device, launch, &settings);
  if (result == CUDA_SUCCESS) result = check_cooperative(device, launch);
  return result;
}

static int32_t find_function(struct vgpu_worker *worker, uint64_t context, uint64_t number,
                             struct vgpu_module_object **module,
                             const struct vgpu_program_function **function) {
  struct vgpu_function_settings settings;
  return vgpu_programs_function(worker, owner_of(worker, context), number, module, function, &settings);
}

/* The guest has returned the error already, so no later call returns it. */
static int32_t refused(struct vgpu_worker *worker, const struct vgpu_send_cuLaunchKernelEx *send) {
  struct vgpu_module_object *module;
  const struct vgpu_program_function *function;
  int32_t result = find_function(worker, send->context, send->function, &module, &function);
  if (result != CUDA_SUCCESS) return result;
  if (function->refused == CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  result = vgpu_run_refused(worker, module, function);
  vgpu_worker_failed(worker, result);
  struct vgpu_send_cuLaunchKernelEx bare = *send;
  bare.parameters = 0;
  record(worker, &(struct request){.send = &bare}, function->name, result);
  return CUDA_SUCCESS;
}

int32_t vgpu_software_function_load(struct vgpu_worker *worker, const struct vgpu_send_function_load *send) {
  if (vgpu_handles_find(&worker->handles, send->context, VGPU_HANDLE_CONTEXT) == NULL)
    return CUDA_ERROR_INVALID_CONTEXT;
  struct vgpu_module_object *module;
  const struct vgpu_program_function *function;
  int32_t result = find_function(worker, send->context, send->function, &module, &function);
  if (result != CUDA_SUCCESS) return result;
  vgpu_run_prepare(worker, module, function);
  return function->refused;
}

int32_t vgpu_software_cuLaunchKernelEx(struct vgpu_worker *worker,
                                       const struct vgpu_send_cuLaunchKernelEx *send,
                                       struct vgpu_bulk *bulk) {
  uint64_t attribute_bytes = (uint64_t)send->attributes * sizeof(struct vgpu_launch_attribute);
  const bool told = send->parameters == VGPU_LAUNCH_REFUSED && send->attributes == 0 && bulk->in_size == 0;
  if (!told &&
      (send->attributes > VGPU_LAUNCH_ATTRIBUTES_MAX || send->parameters > VGPU_PARAMETER_BYTES_MAX ||
       bulk->in_size != attribute_bytes + send->parameters)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (vgpu_handles_find(&worker->handles, send->context, VGPU_HANDLE_CONTEXT) == NULL)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (send->stream >= VGPU_FIRST_HANDLE &&
      vgpu_handles_find(&worker->handles, send->stream, VGPU_HANDLE_STREAM) == NULL) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (told) return refused(worker, send);
  struct request request = {.send = send, .attributes = bulk->in, .parameters = bulk->in + attribute_bytes};
  struct vgpu_checked_launch launch = {.context = owner_of(worker, send->context),
                                       .stream = send->stream,
                                       .grid = {send->grid_x, send->grid_y, send->grid_z},
                                       .block = {send->block_x, send->block_y, send->block_z},
                                       .dynamic_shared = send->shared,
                                       .parameters = request.parameters};
  int32_t result = check(worker, &request, &launch);
  if (result == CUDA_SUCCESS) result = vgpu_run_launch(worker, &launch);
  record(worker, &request, launch.function == NULL ? "" : launch.function->name, result);
  return result;
}
