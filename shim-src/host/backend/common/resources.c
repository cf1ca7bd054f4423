/*
 * Resources of devices that the guest has, for green contexts. The API never ends them, so equal ones share a
 * number.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_handlers.h"
#include "cuda_results.h"
#include "host/backend/backend.h"
#include "host/session/worker.h"
#include "wire/resource.h"

#define RESOURCES_MOST 4096u

struct vgpu_resources {
  uint32_t count, room;
  struct vgpu_dev_resource list[];
};

/* Returns the number of a resource: its place in the list plus 1. 0: no memory. */
static uint64_t number_of(struct vgpu_worker *worker, const struct vgpu_dev_resource *resource) {
  struct vgpu_resources *known = worker->resources;
  const uint32_t count = known == NULL ? 0 : known->count;
  for (uint32_t i = 0; i < count; i++)
    if (memcmp(&known->list[i], resource, sizeof *resource) == 0) return i + 1;
  if (known == NULL || count == known->room) {
    const uint32_t room = count == 0 ? 16 : 2 * count;
    if (room > RESOURCES_MOST) return 0;
    known = realloc(known, sizeof *known + room * sizeof *known->list);
    if (known == NULL) return 0;
    worker->resources = known;
    known->count = count;
    known->room = room;
  }
  known->list[known->count++] = *resource;
  return known->count;
}

static const struct vgpu_dev_resource *find(const struct vgpu_worker *worker, uint64_t number) {
  const struct vgpu_resources *known = worker->resources;
  return known == NULL || number == 0 || number > known->count ? NULL : &known->list[number - 1];
}

static int32_t append(struct vgpu_worker *worker, struct vgpu_bulk *bulk,
                      const struct vgpu_dev_resource *resource) {
  struct vgpu_resource sent = {.type = resource->type};
  if (resource->type != VGPU_RESOURCE_INVALID) sent.number = number_of(worker, resource);
  if (resource->type != VGPU_RESOURCE_INVALID && sent.number == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (bulk->out_capacity - bulk->out_size < sizeof sent) return CUDA_ERROR_INVALID_VALUE;
  memcpy(sent.visible, resource->visible, sizeof sent.visible);
  memcpy(bulk->out + bulk->out_size, &sent, sizeof sent);
  bulk->out_size += (uint32_t)sizeof sent;
  return CUDA_SUCCESS;
}

int32_t vgpu_common_cuDeviceGetDevResource(struct vgpu_worker *worker,
                                           const struct vgpu_send_cuDeviceGetDevResource *send,
                                           struct vgpu_bulk *bulk) {
  struct vgpu_dev_resource resource = {.type = VGPU_RESOURCE_INVALID};
  if (send->device >= worker->inventory->count) return CUDA_ERROR_INVALID_DEVICE;
  const int32_t result = worker->backend->resources->of_device(worker, send->device, send->type, &resource);
  return result == CUDA_SUCCESS ? append(worker, bulk, &resource) : result;
}

int32_t vgpu_common_cuCtxGetDevResource(struct vgpu_worker *worker,
                                        const struct vgpu_send_cuCtxGetDevResource *send,
                                        struct vgpu_bulk *bulk) {
  struct vgpu_dev_resource resource = {.type = VGPU_RESOURCE_INVALID};
  const int32_t result = worker->backend->resources->of_context(worker, send->context, send->type, &resource);
  return result == CUDA_SUCCESS ? append(worker, bulk, &resource) : result;
}

static int32_t split(struct vgpu_worker *worker, uint64_t input, bool counts, struct vgpu_resource_split *as,
                     struct vgpu_bulk *bulk) {
  const struct vgpu_dev_resource *found = find(worker, input);
  if (found == NULL || (as->groups == 0 && !counts) || as->groups > VGPU_RESOURCE_GROUPS_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  as->input = *found; /* the list may move */
  if (!counts) as->result = calloc(as->groups, sizeof *as->result);
  if (!counts && as->result == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  int32_t result = worker->backend->resources->split(worker, as);
  for (uint32_t i = 0; result == CUDA_SUCCESS && !counts && i < as->groups; i++)
    result = append(worker, bulk, &as->result[i]);
  if (result == CUDA_SUCCESS) result = append(worker, bulk, &as->remainder);
  free(as->result);
  return result;
}

int32_t vgpu_common_cuDevSmResourceSplitByCount(struct vgpu_worker *worker,
                                                const struct vgpu_send_cuDevSmResourceSplitByCount *send,
                                                struct vgpu_reply_cuDevSmResourceSplitByCount *reply,
                                                struct vgpu_bulk *bulk) {
  struct vgpu_resource_split as = {.groups = send->groups, .flags = send->flags, .least = send->least};
  const int32_t result = split(worker, send->input, send->counts != 0, &as, bulk);
  reply->groups = as.groups;
  return result;
}

int32_t vgpu_common_cuDevSmResourceSplit(struct vgpu_worker *worker,
                                         const struct vgpu_send_cuDevSmResourceSplit *send,
                                         struct vgpu_bulk *bulk) {
  struct vgpu_sm_group sizes[VGPU_RESOURCE_GROUPS_MAX];
  if (send->groups == 0 || send->groups > VGPU_RESOURCE_GROUPS_MAX ||
      bulk->in_size != send->groups * sizeof *sizes || bulk->out_capacity < bulk->in_size)
    return CUDA_ERROR_INVALID_VALUE;
  memcpy(sizes, bulk->in, bulk->in_size);
  struct vgpu_resource_split as = {.sizes = sizes, .groups = send->groups, .flags = send->flags};
  bulk->out_size = (uint32_t)(send->groups * sizeof *sizes);
  const int32_t result = split(worker, send->input, send->counts != 0, &as, bulk);
  memcpy(bulk->out, sizes, send->groups * sizeof *sizes);
  if (result != CUDA_SUCCESS) bulk->out_size = 0;
  return result;
}

/*
 * A program may make or change the visible part of a configuration of queues. Of all other resources only the
 * number counts.
 */
static bool take(const struct vgpu_worker *worker, const struct vgpu_resource *sent,
                 struct vgpu_dev_resource *resource) {
  const struct vgpu_dev_resource *known = find(worker, sent->number);
  *resource = (struct vgpu_dev_resource){.type = VGPU_RESOURCE_QUEUES};
  if (known != NULL) *resource = *known;
  if (resource->type != sent->type) return false;
  if (sent->type != VGPU_RESOURCE_QUEUES) return true;
  struct vgpu_queues_resource queues;
  memcpy(&queues, sent->visible, sizeof queues);
  memcpy(resource->visible, &queues, sizeof queues);
  return (uint32_t)queues.device < worker->inventory->count;
}

int32_t vgpu_common_cuDevResourceGenerateDesc(struct vgpu_worker *worker,
                                              const struct vgpu_send_cuDevResourceGenerateDesc *send,
                                              struct vgpu_bulk *bulk) {
  const uint32_t count = bulk->in_size / (uint32_t)sizeof(struct vgpu_resource);
  if (count == 0 || count > VGPU_RESOURCE_GROUPS_MAX || bulk->in_size % sizeof(struct vgpu_resource) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_dev_resource *resources = calloc(count, sizeof *resources);
  if (resources == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  int32_t result = CUDA_SUCCESS;
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
    struct vgpu_resource sent;
    memcpy(&sent, bulk->in + i * sizeof sent, sizeof sent);
    if (!take(worker, &sent, &resources[i])) result = CUDA_ERROR_INVALID_RESOURCE_TYPE;
  }
  if (result == CUDA_SUCCESS)
    result = worker->backend->resources->describe(worker, send->resources, resources, count);
  free(resources);
  return result;
}
