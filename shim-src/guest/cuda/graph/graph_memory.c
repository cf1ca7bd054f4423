#include "guest/cuda/graph/graph_memory.h"

#include <stdlib.h>
#include <string.h>

#include "api/device_attributes.h"
#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/graph/graph_exec.h"

#define GRANULARITY (2ull << 20)
#define LARGEST (1ull << 44)
#define PEER_ACCESS_UNSUPPORTED 217
#define PINNED 1     /* CU_MEM_ALLOCATION_TYPE_PINNED */
#define ON_DEVICE 1  /* CU_MEM_LOCATION_TYPE_DEVICE */
#define READ_WRITE 3 /* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
#define ACCESSES_MAX 64u

/* CUgraphMem_attribute */
enum { USED_CURRENT = 0, USED_HIGH = 1, RESERVED_CURRENT = 2, RESERVED_HIGH = 3 };

enum { AUTO_FREE_ON_LAUNCH = 1 };

struct vgpu_graph_memory {
  struct vgpu_graph_memory *next;
  uint64_t address;
  uint64_t room; /* size, rounded up to whole granules */
  int32_t ordinal;
  uint32_t devices;    /* a bit for each visible device that may access it */
  uint32_t references; /* works of nodes and executables that use it */
  uint64_t owner;      /* id of the graph that has the allocating node */
  uint64_t context;    /* number of the context that it was last launched in */
  bool mapped;
  bool live;          /* launched, and not freed since then */
  bool freed_inside;  /* freed by a node of the same graph */
  bool freed_outside; /* freed by a node of another graph */
};

void vgpu_graph_memory_ref(struct vgpu_graph_memory *memory) {
  if (memory != NULL) memory->references++;
}

void vgpu_graph_memory_unref(struct vgpu_graph_memory *memory) {
  if (memory != NULL) memory->references--;
}

bool vgpu_graph_has_memory(const struct vgpu_graph *graph) {
  for (size_t i = 0; i < graph->count; i++) {
    const struct vgpu_node *node = graph->nodes[i];
    if (node->work.memory != NULL || (node->child != NULL && vgpu_graph_has_memory(node->child))) return true;
  }
  return false;
}

static struct vgpu_graph_memory *find(struct vgpu_driver *driver, uint64_t address) {
  struct vgpu_graph_memory *memory = driver->graph_memory.first;
  while (memory != NULL && memory->address != address) memory = memory->next;
  return memory;
}

static int check_device(int32_t ordinal) {
  int result = vgpu_pool_device(ordinal);
  if (result != CUDA_SUCCESS) return result;
  bool virtual = vgpu_cuda_device_facts(ordinal)
                     ->attributes[VGPU_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] != 0;
  return virtual ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static int check_allocation(const struct vgpu_driver *driver, const struct vgpu_allocation_params *params) {
  if (params->allocation_type != PINNED || params->handle_types != 0 || params->bytes == 0 ||
      params->bytes > LARGEST || params->access_count > ACCESSES_MAX ||
      (params->access_count > 0 && params->accesses == NULL)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (params->location_type != ON_DEVICE) return CUDA_ERROR_NOT_SUPPORTED; /* host memory */
  int result = check_device(params->location);
  for (size_t i = 0; result == CUDA_SUCCESS && i < params->access_count; i++) {
    const struct vgpu_memory_access *access = &params->accesses[i];
    if (access->location_type != ON_DEVICE || access->flags != READ_WRITE) return CUDA_ERROR_INVALID_VALUE;
    if (access->location < 0 || access->location >= driver->device_count) return CUDA_ERROR_INVALID_DEVICE;
    if (access->location != params->location && !vgpu_peer_possible(access->location, params->location))
      return PEER_ACCESS_UNSUPPORTED;
  }
  return result;
}

int vgpu_work_allocation(struct vgpu_driver *driver, const struct vgpu_allocation_params *params,
                         struct vgpu_work *work) {
  int result = check_allocation(driver, params);
  if (result != CUDA_SUCCESS) return result;
  *work = (struct vgpu_work){.kind = VGPU_NODE_ALLOCATE, .given.allocation = *params};
  work->kept_size = (uint32_t)(params->access_count * sizeof *params->accesses);
  struct vgpu_graph_memory *memory = calloc(1, sizeof *memory);
  if (memory != NULL) work->bytes = malloc(work->kept_size + 1);
  if (memory == NULL || work->bytes == NULL) {
    free(memory);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (work->kept_size > 0) memcpy(work->bytes, params->accesses, work->kept_size);
  uint64_t room = (params->bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
  const struct vgpu_send_cuMemAddressReserve send = {.size = room};
  struct vgpu_reply_cuMemAddressReserve reply;
  result = vgpu_cuda_call(VGPU_OP_cuMemAddressReserve, &send, sizeof send, &reply, sizeof reply);
  if (result != CUDA_SUCCESS) {
    free(memory);
    return result;
  }
  *memory = (struct vgpu_graph_memory){.next = driver->graph_memory.first,
                                       .address = reply.address,
                                       .room = room,
                                       .ordinal = params->location,
                                       .devices = 1u << params->location,
                                       .references = 1};
  for (size_t i = 0; i < params->access_count; i++) memory->devices |= 1u << params->accesses[i].location;
  const struct vgpu_region region = {
      .start = reply.address, .size = params->bytes, .kind = VGPU_REGION_GRAPH, .ordinal = params->location};
  if (vgpu_regions_add(&driver->regions, &region) != VGPU_REGIONS_OK) {
    const struct vgpu_send_cuMemAddressFree back = {.address = reply.address, .size = room};
    vgpu_cuda_post(VGPU_OP_cuMemAddressFree, &back, sizeof back, NULL, 0);
    free(memory);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  driver->graph_memory.first = memory;
  work->memory = memory;
  work->device = work->given.allocation.address = reply.address;
  return CUDA_SUCCESS;
}

int vgpu_work_release(struct vgpu_driver *driver, uint64_t address, struct vgpu_work *work) {
  struct vgpu_graph_memory *memory = find(driver, address);
  if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
  memory->references++;
  *work = (struct vgpu_work){.kind = VGPU_NODE_FREE, .device = address, .memory = memory};
  return CUDA_SUCCESS;
}

static bool frees(const struct vgpu_graph *graph, const struct vgpu_graph_memory *memory) {
  for (size_t i = 0; i < graph->count; i++) {
    const struct vgpu_work *work = &graph->nodes[i]->work;
    if (work->kind == VGPU_NODE_FREE && work->memory == memory) return true;
  }
  return false;
}

int vgpu_graph_memory_may(struct vgpu_driver *driver, const struct vgpu_graph *graph,
                          const struct vgpu_node_params *params) {
  if (params->type != VGPU_NODE_ALLOCATE && params->type != VGPU_NODE_FREE) return CUDA_SUCCESS;
  if (graph->owned) return CUDA_ERROR_NOT_SUPPORTED; /* a graph that is a child already */
  if (params->type == VGPU_NODE_ALLOCATE) return CUDA_SUCCESS;
  const struct vgpu_graph_memory *memory = find(driver, params->of.freed);
  if (memory == NULL || frees(graph, memory) || memory->freed_inside) return CUDA_ERROR_INVALID_VALUE;
  return memory->owner == graph->id && memory->freed_outside ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

void vgpu_graph_memory_added(const struct vgpu_node *node) {
  struct vgpu_graph_memory *memory = node->work.memory;
  if (memory == NULL) return;
  if (node->work.kind == VGPU_NODE_ALLOCATE) memory->owner = node->graph->id;
  else if (memory->owner == node->graph->id) memory->freed_inside = true;
  else memory->freed_outside = true;
}

static uint64_t mapped_on(const struct vgpu_driver *driver, int32_t ordinal) {
  uint64_t sum = 0;
  for (const struct vgpu_graph_memory *memory = driver->graph_memory.first; memory != NULL;
       memory = memory->next) {
    if (memory->mapped && memory->ordinal == ordinal) sum += memory->room;
  }
  return sum;
}

static int map(struct vgpu_driver *driver, struct vgpu_graph_memory *memory) {
  pthread_mutex_lock(&driver->lock);
  uint64_t handle = vgpu_cuda_next_number(driver);
  pthread_mutex_unlock(&driver->lock);
  uint32_t device = driver->host_index[memory->ordinal];
  const struct vgpu_send_cuMemCreate create = {.handle = handle, .size = memory->room, .device = device};
  const struct vgpu_send_cuMemMap place = {
      .address = memory->address, .size = memory->room, .handle = handle};
  const struct vgpu_send_cuMemRelease release = {.handle = handle}; /* mapped memory lives on */
  int result = vgpu_cuda_call(VGPU_OP_cuMemCreate, &create, sizeof create, NULL, 0);
  if (result == CUDA_SUCCESS) result = vgpu_cuda_call(VGPU_OP_cuMemMap, &place, sizeof place, NULL, 0);
  for (int32_t i = 0; result == CUDA_SUCCESS && i < driver->device_count; i++) {
    const struct vgpu_send_cuMemSetAccess allow = {.address = memory->address,
                                                   .size = memory->room,
                                                   .device = driver->host_index[i],
                                                   .flags = READ_WRITE};
    if ((memory->devices >> i & 1) == 0) continue;
    result = vgpu_cuda_post(VGPU_OP_cuMemSetAccess, &allow, sizeof allow, NULL, 0);
  }
  if (result == CUDA_SUCCESS)
    result = vgpu_cuda_post(VGPU_OP_cuMemRelease, &release, sizeof release, NULL, 0);
  if (result != CUDA_SUCCESS) return result;
  memory->mapped = true;
  uint64_t now = mapped_on(driver, memory->ordinal);
  uint64_t *highs[] = {&driver->graph_memory.used_high[memory->ordinal],
                       &driver->graph_memory.reserved_high[memory->ordinal]};
  for (size_t i = 0; i < 2; i++) *highs[i] = *highs[i] < now ? now : *highs[i];
  return CUDA_SUCCESS;
}

static void unmap(const struct vgpu_graph_memory *memory) {
  const struct vgpu_send_cuMemUnmap send = {.address = memory->address, .size = memory->room};
  vgpu_cuda_wait_context(memory->context); /* a thread that waits for that work gets its error */
  vgpu_cuda_post(VGPU_OP_cuMemUnmap, &send, sizeof send, NULL, 0);
}

int vgpu_graph_memory_launch(struct vgpu_driver *driver, const struct vgpu_exec *exec) {
  for (size_t i = 0; i < exec->count; i++) {
    const struct vgpu_work *work = &exec->nodes[i].work;
    const struct vgpu_graph_memory *memory = work->memory;
    if (memory == NULL) continue;
    bool again = work->kind == VGPU_NODE_ALLOCATE && memory->live && (exec->flags & AUTO_FREE_ON_LAUNCH) == 0;
    bool nothing = work->kind == VGPU_NODE_FREE && !memory->freed_inside && !memory->live;
    if (again || nothing) return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < exec->count; i++) {
    struct vgpu_graph_memory *memory = exec->nodes[i].work.memory;
    if (memory == NULL || memory->mapped) continue;
    int result = map(driver, memory);
    if (result != CUDA_SUCCESS) return result;
  }
  for (size_t i = 0; i < exec->count; i++) {
    const struct vgpu_work *work = &exec->nodes[i].work;
    if (work->memory == NULL) continue;
    work->memory->context = exec->context;
    work->memory->live = work->kind == VGPU_NODE_ALLOCATE;
  }
  return CUDA_SUCCESS;
}

bool vgpu_graph_memory_free(struct vgpu_driver *driver, uint64_t address, int *result) {
  struct vgpu_region region;
  if (!vgpu_regions_find(&driver->regions, address, &region) || region.kind != VGPU_REGION_GRAPH) {
    return false;
  }
  pthread_mutex_lock(&driver->graph_lock);
  struct vgpu_graph_memory *memory = find(driver, address);
  bool freed = memory != NULL && memory->live && !memory->freed_inside;
  if (freed) memory->live = false;
  pthread_mutex_unlock(&driver->graph_lock);
  if (freed) vgpu_graph_memory_sweep(driver);
  *result = freed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  return true;
}

void vgpu_graph_memory_sweep(struct vgpu_driver *driver) {
  struct vgpu_graph_memory *dead = NULL;
  pthread_mutex_lock(&driver->graph_lock);
  for (struct vgpu_graph_memory **link = &driver->graph_memory.first; *link != NULL;) {
    struct vgpu_graph_memory *memory = *link;
    if (memory->references > 0 || memory->live) {
      link = &memory->next;
      continue;
    }
    *link = memory->next;
    memory->next = dead;
    dead = memory;
  }
  pthread_mutex_unlock(&driver->graph_lock);
  while (dead != NULL) {
    struct vgpu_graph_memory *memory = dead;
    const struct vgpu_send_cuMemAddressFree send = {.address = memory->address, .size = memory->room};
    struct vgpu_region region;
    dead = memory->next;
    if (memory->mapped) unmap(memory);
    vgpu_regions_remove(&driver->regions, memory->address, VGPU_REGION_GRAPH, &region);
    vgpu_cuda_post(VGPU_OP_cuMemAddressFree, &send, sizeof send, NULL, 0);
    free(memory);
  }
}

/* Frees graph memory that is not in use. The memory of executables is mapped again at their next launch. */
int cuDeviceGraphMemTrim(int32_t device) {
  int result = check_device(device);
  struct vgpu_driver *driver = result == CUDA_SUCCESS ? vgpu_graph_enter(&result) : NULL;
  if (driver == NULL) return result;
  for (struct vgpu_graph_memory *memory = driver->graph_memory.first; memory != NULL; memory = memory->next) {
    if (!memory->mapped || memory->live || memory->ordinal != device) continue;
    unmap(memory);
    memory->mapped = false;
  }
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuDeviceGetGraphMemAttribute(int32_t device, int32_t attr, void *value) {
  int result = check_device(device);
  struct vgpu_driver *driver = result == CUDA_SUCCESS ? vgpu_graph_enter(&result) : NULL;
  if (driver == NULL) return result;
  if (value == NULL || attr < USED_CURRENT || attr > RESERVED_HIGH) {
    return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  }
  const uint64_t values[] = {[USED_CURRENT] = mapped_on(driver, device),
                             [USED_HIGH] = driver->graph_memory.used_high[device],
                             [RESERVED_CURRENT] = mapped_on(driver, device),
                             [RESERVED_HIGH] = driver->graph_memory.reserved_high[device]};
  *(uint64_t *)value = values[attr];
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

/* High watermarks can only be reset, to the amount that is mapped now. */
int cuDeviceSetGraphMemAttribute(int32_t device, int32_t attr, void *value) {
  int result = check_device(device);
  struct vgpu_driver *driver = result == CUDA_SUCCESS ? vgpu_graph_enter(&result) : NULL;
  if (driver == NULL) return result;
  if (value == NULL || (attr != USED_HIGH && attr != RESERVED_HIGH) || *(uint64_t *)value != 0) {
    return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  }
  uint64_t *high = attr == USED_HIGH ? driver->graph_memory.used_high : driver->graph_memory.reserved_high;
  high[device] = mapped_on(driver, device);
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}
