#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/graph/graph.h"
#include "guest/cuda/module/launch.h"

static struct vgpu_callable *callable_of(struct vgpu_driver *driver,
                                         const struct vgpu_kernel_params *params) {
  return vgpu_callable_find(driver, params->function != NULL ? params->function : params->kernel);
}

/* A function runs in the context of its module, a kernel of a library in the named context. */
static int place(struct vgpu_driver *driver, const struct vgpu_kernel_params *params,
                 const struct vgpu_callable *callable, uint64_t *context, uint64_t *stream) {
  return params->context != NULL && callable->module == NULL
             ? vgpu_cuda_context_given(driver, params->context, context)
             : vgpu_launch_place(driver, callable, NULL, context, stream);
}

void vgpu_work_load_kernel(struct vgpu_driver *driver, const struct vgpu_kernel_params *params) {
  struct vgpu_callable *callable = callable_of(driver, params);
  uint64_t context, stream;
  if (callable != NULL && place(driver, params, callable, &context, &stream) == CUDA_SUCCESS)
    (void)vgpu_launch_load(driver, callable, context, 0);
}

static int kernel_work(struct vgpu_driver *driver, const struct vgpu_kernel_params *params,
                       struct vgpu_work *work) {
  struct vgpu_callable *callable = callable_of(driver, params);
  if (callable == NULL) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_send_cuLaunchKernelEx send = {.function = callable->number,
                                            .grid_x = params->grid[0],
                                            .grid_y = params->grid[1],
                                            .grid_z = params->grid[2],
                                            .block_x = params->block[0],
                                            .block_y = params->block[1],
                                            .block_z = params->block[2],
                                            .shared = params->shared,
                                            .parameters = callable->parameter_bytes};
  for (int i = 0; i < 3; i++) {
    /* A grid of 0 may be set later, before the launch (tinygrad does that). The launch itself refuses it. */
    if (params->block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
  }
  int result = place(driver, params, callable, &send.context, &send.stream);
  if (result != CUDA_SUCCESS) return result;
  unsigned char *block = malloc((size_t)callable->parameter_bytes + 1);
  if (block == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  result = vgpu_launch_parameters(callable, &send, params->parameters, params->extra, block);
  *work = (struct vgpu_work){.kind = VGPU_NODE_KERNEL, .handle = callable};
  if (result == CUDA_SUCCESS && !vgpu_work_frame(work, VGPU_OP_cuLaunchKernelEx, &send, sizeof send, block,
                                                 callable->parameter_bytes)) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  free(block);
  return result;
}

static int memset_work(struct vgpu_driver *driver, const struct vgpu_memset_params *params,
                       struct vgpu_work *work) {
  size_t bytes;
  if ((params->element != 1 && params->element != 2 && params->element != 4) || params->height == 0 ||
      params->width == 0 || params->destination % params->element != 0 ||
      __builtin_mul_overflow(params->width, (size_t)params->element, &bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t context = 0, span = bytes;
  if (params->height > 1 &&
      (params->pitch < bytes || __builtin_mul_overflow(params->pitch, params->height - 1, &span) ||
       __builtin_add_overflow(span, bytes, &span))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!vgpu_regions_is_device(&driver->regions, params->destination, span)) return CUDA_ERROR_INVALID_VALUE;
  int result = vgpu_cuda_context_given(driver, params->context, &context);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_send_cuMemsetD8Async row = {
      .context = context, .destination = params->destination, .count = params->width, .value = params->value};
  const struct vgpu_send_cuMemsetD2D8Async rows = {.context = context,
                                                   .destination = params->destination,
                                                   .pitch = params->pitch,
                                                   .width = params->width,
                                                   .height = params->height,
                                                   .value = params->value,
                                                   .element = params->element};
  uint32_t opcode = params->element == 1   ? VGPU_OP_cuMemsetD8Async
                    : params->element == 2 ? VGPU_OP_cuMemsetD16Async
                                           : VGPU_OP_cuMemsetD32Async;
  *work = (struct vgpu_work){.kind = VGPU_NODE_MEMSET};
  work->given.memset = *params;
  bool made = params->height == 1
                  ? vgpu_work_frame(work, opcode, &row, sizeof row, NULL, 0)
                  : vgpu_work_frame(work, VGPU_OP_cuMemsetD2D8Async, &rows, sizeof rows, NULL, 0);
  return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Finds the first byte of a side. False: the side is an array, or has no memory. */
static bool side_start(struct vgpu_driver *driver, const struct vgpu_box_side *side, bool *device,
                       uint64_t *start) {
  struct vgpu_region region;
  switch (side->type) {
    case 1:
      *device = false;
      *start = (uint64_t)(uintptr_t)side->host + side->x;
      return true;
    case 2:
      *device = true;
      break;
    case 4:
      *device = vgpu_regions_find(&driver->regions, side->device, &region) && vgpu_region_on_device(&region);
      break;
    default:
      return false;
  }
  *start = side->device + side->x;
  return true;
}

static int copy_work(struct vgpu_driver *driver, const struct vgpu_copy_node_params *node,
                     struct vgpu_work *work) {
  const struct vgpu_box *params = &node->copy;
  bool to_device, from_device;
  uint64_t to, from, context = 0;
  if (node->flags != 0 || node->reserved != 0) return CUDA_ERROR_INVALID_VALUE;
  int result = vgpu_cuda_context_given(driver, node->context, &context);
  if (result != CUDA_SUCCESS) return result;
  if (params->width == 0 || params->height == 0 || params->depth == 0) return CUDA_ERROR_INVALID_VALUE;
  *work = (struct vgpu_work){.kind = VGPU_NODE_MEMCPY, .step = VGPU_STEP_BOX, .size = params->width};
  work->given.copy = *params;
  const uint32_t array = 3;
  if (!side_start(driver, &params->source, &from_device, &from) ||
      !side_start(driver, &params->destination, &to_device, &to)) {
    bool known = params->source.type == array || params->destination.type == array;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if (params->height != 1 || params->depth != 1 || params->source.y != 0 || params->source.z != 0 ||
      params->destination.y != 0 || params->destination.z != 0) {
    return CUDA_SUCCESS;
  }
  if ((to_device && !vgpu_regions_is_device(&driver->regions, to, params->width)) ||
      (from_device && !vgpu_regions_is_device(&driver->regions, from, params->width))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (to_device && from_device) {
    const struct vgpu_send_cuMemcpyDtoDAsync_v2 send = {
        .context = context, .destination = to, .source = from, .bytes = params->width};
    return vgpu_work_frame(work, VGPU_OP_cuMemcpyDtoDAsync_v2, &send, sizeof send, NULL, 0)
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!to_device && !from_device) return CUDA_SUCCESS;
  work->step = to_device ? VGPU_STEP_TO_DEVICE : VGPU_STEP_FROM_DEVICE;
  work->device = to_device ? to : from;
  work->host = (void *)(uintptr_t)(to_device ? from : to);
  return CUDA_SUCCESS;
}

static int host_work(struct vgpu_driver *driver, const struct vgpu_host_params *params,
                     struct vgpu_work *work) {
  uint64_t context;
  if (params->function == NULL || params->sync_mode > 1) return CUDA_ERROR_INVALID_VALUE;
  *work = (struct vgpu_work){
      .kind = VGPU_NODE_HOST, .step = VGPU_STEP_FUNCTION, .function = params->function, .data = params->data};
  work->given.host = *params;
  return params->context == NULL ? CUDA_SUCCESS : vgpu_cuda_context_given(driver, params->context, &context);
}

static int event_work(struct vgpu_driver *driver, struct vgpu_event *event, bool record,
                      struct vgpu_work *work) {
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_has(&driver->objects, event, VGPU_OBJECT_EVENT);
  uint64_t number = live ? event->number : 0, context = live ? event->context->number : 0;
  pthread_mutex_unlock(&driver->lock);
  if (!live) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_send_cuEventRecordWithFlags recorded = {.context = context, .event = number};
  struct vgpu_send_cuStreamWaitEvent waited = {.context = context, .event = number};
  *work = (struct vgpu_work){.kind = record ? VGPU_NODE_RECORD : VGPU_NODE_WAIT, .handle = event};
  bool made = record
                  ? vgpu_work_frame(work, VGPU_OP_cuEventRecordWithFlags, &recorded, sizeof recorded, NULL, 0)
                  : vgpu_work_frame(work, VGPU_OP_cuStreamWaitEvent, &waited, sizeof waited, NULL, 0);
  return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

int vgpu_work_make(struct vgpu_driver *driver, const struct vgpu_node_params *params,
                   struct vgpu_work *work) {
  int result = CUDA_SUCCESS;
  *work = (struct vgpu_work){.kind = (enum vgpu_node_kind)params->type};
  switch (params->type) {
    case VGPU_NODE_KERNEL:
      result = kernel_work(driver, &params->of.kernel, work);
      break;
    case VGPU_NODE_MEMCPY:
      result = copy_work(driver, &params->of.copy, work);
      break;
    case VGPU_NODE_MEMSET:
      result = memset_work(driver, &params->of.memset, work);
      break;
    case VGPU_NODE_HOST:
      result = host_work(driver, &params->of.host, work);
      break;
    case VGPU_NODE_GRAPH:
    case VGPU_NODE_EMPTY:
      break;
    case VGPU_NODE_RECORD:
    case VGPU_NODE_WAIT:
      result = event_work(driver, params->of.event, params->type == VGPU_NODE_RECORD, work);
      break;
    case VGPU_NODE_ALLOCATE:
      result = vgpu_work_allocation(driver, &params->of.allocation, work);
      break;
    case VGPU_NODE_FREE:
      result = vgpu_work_release(driver, params->of.freed, work);
      break;
    case VGPU_NODE_MEMORY_OPS:
      result = vgpu_work_memory_ops(driver, &params->of.memory_ops, work);
      break;
    default:
      result = params->type >= 0 && params->type <= VGPU_NODE_LAST ? CUDA_ERROR_NOT_SUPPORTED
                                                                   : CUDA_ERROR_INVALID_VALUE;
  }
  if (result != CUDA_SUCCESS) vgpu_work_free(work);
  return result;
}
