/*
 * Multiprocessors, split as the documentation allows. Kernels of a green context compute as all others; only
 * cooperative launches see fewer multiprocessors. No queues (CU_DEV_RESOURCE_TYPE_WORKQUEUE*), as in driver
 * 580.
 */
#include <string.h>

#include "api/device_attributes.h"
#include "api/structures.h"
#include "cuda_handlers.h"
#include "host/backend/software/software.h"

enum { IGNORE_TOGETHER = 1, LARGEST_CLUSTER = 2 }; /* CUdevSmResourceSplitByCount_flags */
enum { BACKFILL = 1 };                             /* CUdevSmResourceGroup_flags */
enum part { WHOLE = 0, GROUP = 1, REST = 2 };

struct inside {
  uint32_t device;
  uint32_t part;
  uint32_t place; /* of a group, among the results of its split */
  uint32_t reserved;
  uint64_t split; /* equal for what one split made */
};

static struct inside inside_of(const struct vgpu_dev_resource *resource) {
  struct inside inside;
  memcpy(&inside, resource->inside + 4, sizeof inside); /* aligned as the driver's are */
  return inside;
}

static struct vgpu_sm_resource sms_of(const struct vgpu_dev_resource *resource) {
  struct vgpu_sm_resource sms;
  memcpy(&sms, resource->visible, sizeof sms);
  return sms;
}

static struct vgpu_dev_resource made(const struct inside *inside, const struct vgpu_sm_resource *sms) {
  struct vgpu_dev_resource resource = {.type = sms->count == 0 ? VGPU_RESOURCE_INVALID : VGPU_RESOURCE_SM};
  if (sms->count == 0) return resource;
  memcpy(resource.inside + 4, inside, sizeof *inside);
  memcpy(resource.visible, sms, sizeof *sms);
  return resource;
}

/*
 * The documentation of green contexts: groups of at least 2 multiprocessors and a multiple of 2 (6.x, 7.x),
 * at least 4 and a multiple of 2 (8.x), at least 8 and a multiple of 8 (from 9.0 on).
 */
static struct vgpu_sm_resource granularity(const struct vgpu_device_profile *device) {
  if (device->compute_major >= 9) return (struct vgpu_sm_resource){.least = 8, .alignment = 8};
  return (struct vgpu_sm_resource){.least = device->compute_major == 8 ? 4 : 2, .alignment = 2};
}

static int32_t of_device(struct vgpu_worker *worker, uint32_t number, int32_t type,
                         struct vgpu_dev_resource *resource) {
  if (type != VGPU_RESOURCE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  const struct vgpu_device_profile *device = &worker->inventory->profiles->devices[number];
  struct vgpu_sm_resource sms = granularity(device);
  sms.count = (uint32_t)device->attributes[VGPU_ATTRIBUTE_MULTIPROCESSOR_COUNT];
  *resource = made(&(struct inside){.device = number, .part = WHOLE}, &sms);
  return CUDA_SUCCESS;
}

static int32_t of_context(struct vgpu_worker *worker, uint64_t number, int32_t type,
                          struct vgpu_dev_resource *resource) {
  const struct vgpu_handle *context = find_context(worker, number);
  if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  const int32_t result = of_device(worker, context->device, type, resource);
  if (result != CUDA_SUCCESS || context->sms == 0) return result;
  struct vgpu_sm_resource sms = sms_of(resource);
  sms.count = context->sms;
  /* The green context makes it another whole than that of the device. */
  *resource = made(&(struct inside){.device = context->device, .part = WHOLE, .split = number}, &sms);
  return CUDA_SUCCESS;
}

static uint64_t hash(uint64_t so_far, const void *bytes, size_t size) {
  const unsigned char *at = bytes;
  for (size_t i = 0; i < size; i++) so_far = (so_far ^ at[i]) * 0x100000001b3u; /* FNV-1a */
  return so_far;
}

static uint64_t hash_of(const struct vgpu_resource_split *split) {
  uint64_t all = hash(0xcbf29ce484222325u, &split->input, sizeof split->input);
  all = hash(all, &split->flags, sizeof split->flags);
  all = hash(all, &split->least, sizeof split->least);
  all = hash(all, &split->groups, sizeof split->groups);
  return split->sizes == NULL ? all : hash(all, split->sizes, split->groups * sizeof *split->sizes);
}

static int32_t split_by_count(const struct vgpu_device_profile *device, struct vgpu_resource_split *split,
                              struct inside *inside) {
  struct vgpu_sm_resource sms = sms_of(&split->input), group = granularity(device);
  if ((split->flags & ~(uint32_t)(IGNORE_TOGETHER | LARGEST_CLUSTER)) != 0 || split->least > sms.count ||
      ((split->flags & LARGEST_CLUSTER) != 0 && device->compute_major < 9))
    return CUDA_ERROR_INVALID_VALUE;
  if ((split->flags & IGNORE_TOGETHER) != 0) group.least = group.alignment = 2;
  if ((split->flags & LARGEST_CLUSTER) != 0) group.least = group.alignment = 16;
  const uint32_t wanted = split->least > group.least ? split->least : group.least;
  group.count = (wanted + group.alignment - 1) / group.alignment * group.alignment;
  const uint32_t most = sms.count / group.count;
  if (split->result == NULL || most < split->groups) split->groups = most;
  if (split->result != NULL && most == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  for (inside->place = 0; split->result != NULL && inside->place < split->groups; inside->place++)
    split->result[inside->place] = made(inside, &group);
  sms.count -= split->groups * group.count;
  *inside = (struct inside){.device = inside->device, .part = REST, .split = inside->split};
  split->remainder = made(inside, &sms);
  return CUDA_SUCCESS;
}

static bool is_sound(const struct vgpu_device_profile *device, const struct vgpu_sm_group *group,
                     uint32_t together, uint32_t input) {
  const uint32_t most = device->compute_major >= 9 ? 32 : 2;
  static const uint32_t none[sizeof group->reserved / sizeof *group->reserved];
  if (memcmp(group->reserved, none, sizeof none) != 0) return false;
  if ((group->flags & ~(uint32_t)BACKFILL) != 0 || group->domain != 0) return false;
  if (together > most || together % 2 != 0 || group->preferred > most) return false;
  if (group->count == 0) return true;
  if (group->count < 2 || group->count > input || group->count % 2 != 0) return false;
  return (group->flags & BACKFILL) != 0 || group->count % together == 0;
}

/* Multiprocessors have no places here, so any can be together. */
static int32_t split_by_size(const struct vgpu_device_profile *device, struct vgpu_resource_split *split,
                             struct inside *inside) {
  struct vgpu_sm_resource left = sms_of(&split->input), group = granularity(device);
  const uint32_t usual = group.alignment, input = left.count;
  if (split->flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (inside->place = 0; inside->place < split->groups; inside->place++) {
    struct vgpu_sm_group *size = &split->sizes[inside->place];
    group.alignment = size->together == 0 ? usual : size->together;
    group.flags = size->flags;
    if (!is_sound(device, size, group.alignment, input)) return CUDA_ERROR_INVALID_VALUE;
    const uint32_t whole = left.count / group.alignment * group.alignment;
    const uint32_t most = (size->flags & BACKFILL) != 0 ? left.count / 2 * 2 : whole;
    if (size->count == 0) size->count = most;
    if (size->count > most) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (split->result != NULL && (size->count == 0 || size->count < group.alignment))
      return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    group.count = size->count;
    if (split->result != NULL) split->result[inside->place] = made(inside, &group);
    left.count -= size->count;
  }
  *inside = (struct inside){.device = inside->device, .part = REST, .split = inside->split};
  split->remainder = made(inside, &left);
  return CUDA_SUCCESS;
}

static int32_t split(struct vgpu_worker *worker, struct vgpu_resource_split *as) {
  if (as->input.type != VGPU_RESOURCE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  const struct inside from = inside_of(&as->input);
  /* "the output results cannot be split again without first creating a descriptor and a green context" */
  if (from.part == GROUP) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  const struct vgpu_device_profile *device = &worker->inventory->profiles->devices[from.device];
  struct inside inside = {.device = from.device, .part = GROUP, .split = hash_of(as)};
  return as->sizes == NULL ? split_by_count(device, as, &inside) : split_by_size(device, as, &inside);
}

/*
 * True if the resources are of one device and different parts of it. Driver 580 accepts parts of several
 * splits.
 */
static bool fit(const struct vgpu_dev_resource *resources, uint32_t count) {
  const struct inside first = inside_of(&resources[0]);
  for (uint32_t i = 1; i < count; i++) {
    const struct inside other = inside_of(&resources[i]);
    if (other.device != first.device || first.part == WHOLE || other.part == WHOLE) return false;
    for (uint32_t before = 0; before < i; before++)
      if (memcmp(&resources[before], &resources[i], sizeof *resources) == 0) return false;
  }
  return true;
}

static int32_t describe(struct vgpu_worker *worker, uint64_t number, struct vgpu_dev_resource *resources,
                        uint32_t count) {
  uint32_t sms = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (resources[i].type != VGPU_RESOURCE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    sms += sms_of(&resources[i]).count;
  }
  if (!fit(resources, count)) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (number < SPECIAL_STREAMS) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_handle *handle = vgpu_handles_add(&worker->handles, number, VGPU_HANDLE_RESOURCES);
  if (handle == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  handle->device = inside_of(&resources[0]).device;
  const uint32_t most =
      worker->inventory->devices[handle->device].attributes[VGPU_ATTRIBUTE_MULTIPROCESSOR_COUNT];
  handle->sms = sms < most ? sms : most;
  return CUDA_SUCCESS;
}

const struct vgpu_backend_resources vgpu_software_resources = {
    .of_device = of_device, .of_context = of_context, .split = split, .describe = describe};

int32_t vgpu_software_cuGreenCtxCreate(struct vgpu_worker *worker,
                                       const struct vgpu_send_cuGreenCtxCreate *send) {
  const struct vgpu_handle *primary = find_context(worker, send->primary);
  if (primary == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  const struct vgpu_handle *resources =
      vgpu_handles_find(&worker->handles, send->resources, VGPU_HANDLE_RESOURCES);
  if (resources == NULL || resources->device != send->device || primary->device != send->device ||
      primary->owner != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_handle described = *resources;
  struct vgpu_handle *green = vgpu_handles_add(&worker->handles, send->context, VGPU_HANDLE_CONTEXT);
  if (green == NULL)
    return find_context(worker, send->context) != NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
  green->context = send->context;
  green->device = send->device;
  green->owner = send->primary;
  green->sms = described.sms;
  return CUDA_SUCCESS;
}
