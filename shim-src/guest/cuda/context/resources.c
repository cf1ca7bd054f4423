/*
 * Resources of a device (CUdevResource): queried, split, and described for a green context. The driver's
 * private part of a resource stays at the host; in the guest that field holds the host's number of the
 * resource.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/context/green.h"
#include "wire/resource.h"

#define NUMBER_AT 4 /* in `inside`, aligned to 8 in the structure */

/*
 * Converts resources for the program. If CUDA_VISIBLE_DEVICES is set, a device has another number at the
 * host.
 */
static void give(const struct vgpu_driver *driver, const struct vgpu_resource *got,
                 struct vgpu_dev_resource *resource) {
  *resource = (struct vgpu_dev_resource){.type = got->type};
  memcpy(resource->inside + NUMBER_AT, &got->number, sizeof got->number);
  memcpy(resource->visible, got->visible, sizeof got->visible);
  if (got->type != VGPU_RESOURCE_QUEUES) return;
  struct vgpu_queues_resource queues;
  memcpy(&queues, got->visible, sizeof queues);
  int32_t ordinal = 0;
  while (ordinal < driver->device_count && driver->host_index[ordinal] != (uint32_t)queues.device) ordinal++;
  queues.device = ordinal;
  memcpy(resource->visible, &queues, sizeof queues);
}

/* Converts a resource of the program for the host. False: it names a device that does not exist. */
static bool take(const struct vgpu_driver *driver, const struct vgpu_dev_resource *resource,
                 struct vgpu_resource *sent) {
  *sent = (struct vgpu_resource){.type = resource->type};
  memcpy(&sent->number, resource->inside + NUMBER_AT, sizeof sent->number);
  memcpy(sent->visible, resource->visible, sizeof sent->visible);
  if (resource->type != VGPU_RESOURCE_QUEUES) return true;
  struct vgpu_queues_resource queues;
  memcpy(&queues, resource->visible, sizeof queues);
  if (queues.device < 0 || queues.device >= driver->device_count) return false;
  queues.device = (int32_t)driver->host_index[queues.device];
  memcpy(sent->visible, &queues, sizeof queues);
  return true;
}

static int ask(struct vgpu_driver *driver, uint32_t opcode, const void *send, uint32_t send_size,
               struct vgpu_dev_resource *resource) {
  struct vgpu_resource got;
  struct vgpu_cuda_exchange exchange = {
      .send = send, .send_size = send_size, .bulk = &got, .bulk_capacity = sizeof got};
  const int result = vgpu_cuda_exchange(opcode, &exchange);
  if (result != CUDA_SUCCESS) return result;
  if (exchange.bulk_size != sizeof got) return CUDA_ERROR_UNKNOWN;
  give(driver, &got, resource);
  return CUDA_SUCCESS;
}

int cuDeviceGetDevResource(int32_t device, void *resource, int32_t type) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (device < 0 || device >= driver->device_count) return CUDA_ERROR_INVALID_DEVICE;
  if (resource == NULL) return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_send_cuDeviceGetDevResource send = {.device = driver->host_index[device], .type = type};
  return ask(driver, VGPU_OP_cuDeviceGetDevResource, &send, sizeof send, resource);
}

int cuCtxGetDevResource(struct vgpu_context *hCtx, void *resource, int32_t type) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (hCtx == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  struct vgpu_send_cuCtxGetDevResource send = {.type = type};
  result = vgpu_cuda_context_given(driver, hCtx, &send.context);
  if (result != CUDA_SUCCESS) return result;
  if (resource == NULL) return CUDA_ERROR_INVALID_VALUE;
  return ask(driver, VGPU_OP_cuCtxGetDevResource, &send, sizeof send, resource);
}

int cuStreamGetDevResource(struct vgpu_stream *hStream, void *resource, int32_t type) {
  struct vgpu_context *context = NULL;
  const int result = cuStreamGetCtx(hStream, &context);
  return result == CUDA_SUCCESS ? cuCtxGetDevResource(context, resource, type) : result;
}

static int hand_out(const struct vgpu_driver *driver, const struct vgpu_resource *got, uint32_t count,
                    uint32_t room, struct vgpu_dev_resource *result, struct vgpu_dev_resource *remainder) {
  if (count == 0 || count - 1 > room) return CUDA_ERROR_UNKNOWN;
  for (uint32_t i = 0; i + 1 < count; i++) give(driver, &got[i], &result[i]);
  if (remainder != NULL) give(driver, &got[count - 1], remainder);
  return CUDA_SUCCESS;
}

int cuDevSmResourceSplitByCount(void *result, uint32_t *nbGroups, const void *input, void *remaining,
                                uint32_t useFlags, uint32_t minCount) {
  int status;
  struct vgpu_driver *driver = vgpu_cuda_driver(&status);
  if (driver == NULL) return status;
  struct vgpu_resource from;
  if (nbGroups == NULL || input == NULL || !take(driver, input, &from) || (result != NULL && *nbGroups == 0))
    return CUDA_ERROR_INVALID_VALUE;
  if (from.type != VGPU_RESOURCE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  const uint32_t room = *nbGroups < VGPU_RESOURCE_GROUPS_MAX ? *nbGroups : VGPU_RESOURCE_GROUPS_MAX;
  const struct vgpu_send_cuDevSmResourceSplitByCount send = {.input = from.number,
                                                             .flags = useFlags,
                                                             .least = minCount,
                                                             .groups = result == NULL ? 0 : room,
                                                             .counts = result == NULL};
  struct vgpu_reply_cuDevSmResourceSplitByCount reply;
  struct vgpu_resource got[VGPU_RESOURCE_GROUPS_MAX + 1];
  struct vgpu_cuda_exchange exchange = {.send = &send,
                                        .send_size = sizeof send,
                                        .reply = &reply,
                                        .reply_size = sizeof reply,
                                        .bulk = got,
                                        .bulk_capacity = sizeof got};
  status = vgpu_cuda_exchange(VGPU_OP_cuDevSmResourceSplitByCount, &exchange);
  if (status != CUDA_SUCCESS) return status;
  status =
      hand_out(driver, got, exchange.bulk_size / sizeof *got, result == NULL ? 0 : room, result, remaining);
  if (status == CUDA_SUCCESS) *nbGroups = reply.groups;
  return status;
}

int cuDevSmResourceSplit(void *result, uint32_t nbGroups, const void *input, void *remainder, uint32_t flags,
                         void *groupParams) {
  int status;
  struct vgpu_driver *driver = vgpu_cuda_driver(&status);
  if (driver == NULL) return status;
  struct vgpu_resource from;
  if (nbGroups == 0 || nbGroups > VGPU_RESOURCE_GROUPS_MAX || groupParams == NULL || input == NULL ||
      !take(driver, input, &from))
    return CUDA_ERROR_INVALID_VALUE;
  if (from.type != VGPU_RESOURCE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  const struct vgpu_send_cuDevSmResourceSplit send = {
      .input = from.number, .flags = flags, .groups = nbGroups, .counts = result == NULL};
  const uint32_t sizes = nbGroups * (uint32_t)sizeof(struct vgpu_sm_group);
  const uint32_t room = sizes + (nbGroups + 1) * (uint32_t)sizeof(struct vgpu_resource);
  unsigned char *got = malloc(room);
  if (got == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  struct vgpu_cuda_exchange exchange = {.send = &send,
                                        .send_size = sizeof send,
                                        .send_bulk = groupParams,
                                        .send_bulk_size = sizes,
                                        .bulk = got,
                                        .bulk_capacity = room};
  status = vgpu_cuda_exchange(VGPU_OP_cuDevSmResourceSplit, &exchange);
  if (status == CUDA_SUCCESS && exchange.bulk_size < sizes) status = CUDA_ERROR_UNKNOWN;
  if (status == CUDA_SUCCESS)
    status = hand_out(driver, (const struct vgpu_resource *)(got + sizes),
                      (exchange.bulk_size - sizes) / (uint32_t)sizeof(struct vgpu_resource),
                      result == NULL ? 0 : nbGroups, result, remainder);
  if (status == CUDA_SUCCESS) memcpy(groupParams, got, sizes);
  free(got);
  return status;
}

static struct vgpu_described *describe(struct vgpu_driver *driver, const struct vgpu_dev_resource *resources,
                                       uint32_t count) {
  struct vgpu_described *described = calloc(1, sizeof *described);
  if (described == NULL) return NULL;
  for (uint32_t i = 0; i < count; i++) {
    struct vgpu_sm_resource sms;
    memcpy(&sms, resources[i].visible, sizeof sms);
    if (resources[i].type == VGPU_RESOURCE_SM) described->sms += sms.count;
  }
  pthread_mutex_lock(&driver->lock);
  described->number = vgpu_cuda_next_number(driver);
  pthread_mutex_unlock(&driver->lock);
  return described;
}

static int post(struct vgpu_driver *driver, struct vgpu_described *described,
                const struct vgpu_dev_resource *resources, uint32_t count) {
  struct vgpu_resource *sent = calloc(count, sizeof *sent);
  if (sent == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  int result = CUDA_SUCCESS;
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < count; i++)
    if (!take(driver, &resources[i], &sent[i])) result = CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_send_cuDevResourceGenerateDesc send = {.resources = described->number};
  struct vgpu_cuda_exchange exchange = {.send = &send,
                                        .send_size = sizeof send,
                                        .send_bulk = sent,
                                        .send_bulk_size = count * (uint32_t)sizeof *sent};
  if (result == CUDA_SUCCESS) result = vgpu_cuda_exchange(VGPU_OP_cuDevResourceGenerateDesc, &exchange);
  free(sent);
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&driver->lock);
  if (!vgpu_objects_add(&driver->objects, described, VGPU_OBJECT_DESCRIBED))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_unlock(&driver->lock);
  return result;
}

int cuDevResourceGenerateDesc(void **phDesc, void *resources, uint32_t nbResources) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (phDesc == NULL || resources == NULL || nbResources == 0 || nbResources > VGPU_RESOURCE_GROUPS_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_described *described = describe(driver, resources, nbResources);
  if (described == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  result = post(driver, described, resources, nbResources);
  if (result == CUDA_SUCCESS) *phDesc = described;
  else free(described);
  return result;
}
