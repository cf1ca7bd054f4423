/* Launches on the host's GPU. The device itself must check how a kernel uses its parameters. */
#include <string.h>

#include "host/backend/cuda/session.h"
#include "host/backend/cuda/slice.h"
#include "wire/module.h"
#include "cuda_results.h"

/* CUlaunchAttributeID of those whose value holds a handle. */
enum { PROGRAMMATIC_EVENT = 7, COMPLETION_EVENT = 12, UPDATABLE_NODE = 13 };

/* CU_LAUNCH_PARAM_*, as cuLaunchKernel's `extra` takes them. */
#define PARAMETERS ((void *)1)
#define PARAMETER_BYTES ((void *)2)

/* CUlaunchConfig of the public header. */
struct launch_config {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared;
  struct vgpu_stream *stream;
  struct vgpu_launch_attribute *attributes;
  uint32_t attribute_count;
};
_Static_assert(sizeof(struct launch_config) == 56, "CUlaunchConfig");

void *vgpu_cuda_function(struct vgpu_worker *worker, uint64_t number) {
  void *function = vgpu_cuda_object(worker, number, VGPU_HANDLE_FUNCTION);
  /* A kernel may be given for a function. The driver then launches it in the current context. */
  return function != NULL ? function : vgpu_cuda_object(worker, number, VGPU_HANDLE_KERNEL);
}

static int32_t translate(struct vgpu_worker *worker, struct vgpu_launch_attribute *attribute) {
  attribute->reserved = 0;
  switch (attribute->id) {
    case PROGRAMMATIC_EVENT:
    case COMPLETION_EVENT: {
      void *event = vgpu_cuda_object(worker, attribute->value[0], VGPU_HANDLE_EVENT);
      attribute->value[0] = (uint64_t)(uintptr_t)event;
      return event == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
    }
    case UPDATABLE_NODE:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_SUCCESS;
  }
}

static int32_t launch(struct vgpu_worker *worker, const struct vgpu_send_cuLaunchKernelEx *send,
                      struct vgpu_bulk *bulk) {
  struct vgpu_launch_attribute attributes[VGPU_LAUNCH_ATTRIBUTES_MAX];
  if (send->attributes > VGPU_LAUNCH_ATTRIBUTES_MAX || send->parameters > VGPU_PARAMETER_BYTES_MAX ||
      bulk->in_size != send->attributes * sizeof *attributes + send->parameters) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
  if (result != CUDA_SUCCESS) return result;
  void *function = vgpu_cuda_function(worker, send->function);
  if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
  const bool runs = cuda->recording == NULL;
  /* The wait may have carried out other calls: what was found above may be gone. */
  if (runs && vgpu_cuda_slice_begin(worker, send->context)) {
    result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
    if (result != CUDA_SUCCESS) return result;
    function = vgpu_cuda_function(worker, send->function);
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
  }
  if (runs) vgpu_cuda_slice_launch(send->context, stream);
  size_t attribute_bytes = send->attributes * sizeof *attributes;
  memcpy(attributes, bulk->in, attribute_bytes);
  for (uint32_t i = 0; i < send->attributes; i++) {
    result = translate(worker, &attributes[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  size_t bytes = send->parameters;
  /* The driver reads this many bytes, in the layout that it has reported to the guest. */
  void *extra[] = {PARAMETERS, (void *)(uintptr_t)(bulk->in + attribute_bytes), PARAMETER_BYTES, &bytes,
                   NULL};
  void **given = bytes == 0 ? NULL : extra;
  if (send->attributes == 0) {
    return VGPU_DRIVER(&cuda->api, cuLaunchKernel, function, send->grid_x, send->grid_y, send->grid_z,
                       send->block_x, send->block_y, send->block_z, send->shared, stream, NULL, given);
  }
  struct launch_config config = {.grid = {send->grid_x, send->grid_y, send->grid_z},
                                 .block = {send->block_x, send->block_y, send->block_z},
                                 .shared = send->shared,
                                 .stream = stream,
                                 .attributes = attributes,
                                 .attribute_count = send->attributes};
  return VGPU_DRIVER(&cuda->api, cuLaunchKernelEx, &config, function, NULL, given);
}

int32_t vgpu_cuda_cuLaunchKernelEx(struct vgpu_worker *worker, const struct vgpu_send_cuLaunchKernelEx *send,
                                   struct vgpu_bulk *bulk) {
  int32_t result = launch(worker, send, bulk);
  if (result == CUDA_SUCCESS) vgpu_worker_launched(worker);
  return result;
}
