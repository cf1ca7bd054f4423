#include "host/backend/cuda/resources.h"

#include "host/backend/backend.h"
#include "api/structures.h"

static int32_t find_device(struct vgpu_worker *worker, uint32_t index, struct vgpu_cuda **cuda,
                           int32_t *device) {
  const int32_t result = vgpu_cuda_open(worker, cuda);
  return result == CUDA_SUCCESS ? VGPU_DRIVER(&(*cuda)->api, cuDeviceGet, device, (int32_t)index) : result;
}

static int32_t of_device(struct vgpu_worker *worker, uint32_t index, int32_t type,
                         struct vgpu_dev_resource *resource) {
  struct vgpu_cuda *cuda;
  int32_t device;
  const int32_t result = find_device(worker, index, &cuda, &device);
  return result == CUDA_SUCCESS ? VGPU_DRIVER(&cuda->api, cuDeviceGetDevResource, device, resource, type)
                                : result;
}

static int32_t of_context(struct vgpu_worker *worker, uint64_t context, int32_t type,
                          struct vgpu_dev_resource *resource) {
  struct vgpu_cuda *cuda;
  const int32_t result = vgpu_cuda_enter(worker, context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  return VGPU_DRIVER(&cuda->api, cuCtxGetDevResource, vgpu_cuda_object(worker, context, VGPU_HANDLE_CONTEXT),
                     resource, type);
}

static int32_t split(struct vgpu_worker *worker, struct vgpu_resource_split *as) {
  struct vgpu_cuda *cuda;
  const int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (as->sizes != NULL)
    return VGPU_DRIVER(&cuda->api, cuDevSmResourceSplit, as->result, as->groups, &as->input, &as->remainder,
                       as->flags, as->sizes);
  const uint32_t room = as->groups;
  const int32_t done = VGPU_DRIVER(&cuda->api, cuDevSmResourceSplitByCount, as->result, &as->groups,
                                   &as->input, &as->remainder, as->flags, as->least);
  /* It must not have written more results than there is room for. */
  if (as->result != NULL && as->groups > room) as->groups = room;
  return done;
}

static int32_t describe(struct vgpu_worker *worker, uint64_t number, struct vgpu_dev_resource *resources,
                        uint32_t count) {
  struct vgpu_cuda *cuda;
  void *described = NULL;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result == CUDA_SUCCESS)
    result = VGPU_DRIVER(&cuda->api, cuDevResourceGenerateDesc, &described, resources, count);
  if (result != CUDA_SUCCESS) return result;
  /* A descriptor has no end in the driver, so the limit of handles is what bounds them. */
  return vgpu_cuda_remember(worker, number, VGPU_HANDLE_RESOURCES, 0, described) ? CUDA_SUCCESS
                                                                                 : CUDA_ERROR_OUT_OF_MEMORY;
}

const struct vgpu_backend_resources vgpu_cuda_resources = {
    .of_device = of_device, .of_context = of_context, .split = split, .describe = describe};

static int32_t destroy(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  return VGPU_DRIVER(api, cuGreenCtxDestroy, ending->object);
}

int32_t vgpu_cuda_cuGreenCtxCreate(struct vgpu_worker *worker,
                                   const struct vgpu_send_cuGreenCtxCreate *send) {
  struct vgpu_cuda *cuda;
  int32_t device;
  const struct vgpu_handle *primary = vgpu_handles_find(&worker->handles, send->primary, VGPU_HANDLE_CONTEXT);
  void *resources = vgpu_cuda_object(worker, send->resources, VGPU_HANDLE_RESOURCES), *green = NULL;
  if (primary == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (resources == NULL || !primary->primary || primary->device != send->device)
    return CUDA_ERROR_INVALID_VALUE;
  int32_t result = vgpu_cuda_enter(worker, send->primary, &cuda);
  if (result == CUDA_SUCCESS) result = find_device(worker, send->device, &cuda, &device);
  if (result == CUDA_SUCCESS)
    result = VGPU_DRIVER(&cuda->api, cuGreenCtxCreate, &green, resources, device, send->flags);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_context *context = NULL;
  result = VGPU_DRIVER(&cuda->api, cuCtxFromGreenCtx, &context, green);
  if (result == CUDA_SUCCESS &&
      !vgpu_cuda_remember(worker, send->context, VGPU_HANDLE_CONTEXT, send->context, context))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) {
    (void)vgpu_cuda_end(worker, &(struct vgpu_cuda_ending){.end = destroy, .object = green});
    return result;
  }
  struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, send->context, VGPU_HANDLE_CONTEXT);
  handle->device = send->device;
  handle->owner = send->primary;
  handle->object = green;
  cuda->greens++;
  return CUDA_SUCCESS;
}

int32_t vgpu_cuda_end_green(struct vgpu_worker *worker, const struct vgpu_handle *green) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  struct vgpu_cuda_ending ending = {.end = destroy, .object = green->object, .device = green->device};
  const uint64_t number = green->number;
  for (const struct vgpu_cuda_own_stream *own = cuda->waiting_calls.streams; own != NULL; own = own->next)
    if (own->context == number) VGPU_DRIVER(&cuda->api, cuStreamDestroy_v2, own->stream);
  ending.counted = vgpu_cuda_forget_context(worker, number, ending.device);
  cuda->greens--;
  return vgpu_cuda_end(worker, &ending);
}

/* Returns a green context of a primary context at or after a place in the table of handles; NULL: no more. */
static const struct vgpu_handle *next_green(const struct vgpu_worker *worker, uint64_t primary, size_t *at) {
  for (; *at < worker->handles.capacity; (*at)++) {
    const struct vgpu_handle *handle = &worker->handles.places[*at];
    if (handle->number != 0 && handle->type == VGPU_HANDLE_CONTEXT && handle->owner == primary) return handle;
  }
  return NULL;
}

void vgpu_cuda_end_greens(struct vgpu_worker *worker, uint64_t primary) {
  if (cuda_of(worker)->greens == 0) return;
  const struct vgpu_handle *green;
  for (size_t at = 0; (green = next_green(worker, primary, &at)) != NULL; at = 0)
    (void)vgpu_cuda_end_green(worker, green);
}

int vgpu_cuda_query_greens(struct vgpu_worker *worker, uint64_t primary) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  if (cuda->greens == 0) return CUDA_SUCCESS;
  int result = CUDA_SUCCESS;
  const struct vgpu_handle *green;
  for (size_t at = 0; result == CUDA_SUCCESS && (green = next_green(worker, primary, &at)) != NULL; at++) {
    result = vgpu_cuda_enter(worker, green->number, &cuda);
    if (result == CUDA_SUCCESS) result = vgpu_cuda_query_context(worker, green->number);
  }
  const int back = vgpu_cuda_enter(worker, primary, &cuda);
  return result == CUDA_SUCCESS ? back : result;
}
