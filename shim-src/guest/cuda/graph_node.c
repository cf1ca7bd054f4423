/* The nodes that programs add and change by hand. */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/graph.h"
#include "guest/cuda/launch.h"

/* CUDA_KERNEL_NODE_PARAMS: version 1 ends before `kernel`. */
struct kernel_params {
  void *function;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared;
  void **parameters;
  void **extra;
  void *kernel;
  void *context;
};
_Static_assert(sizeof(struct kernel_params) == 72, "CUDA_KERNEL_NODE_PARAMS");
#define KERNEL_PARAMS_V1 56u

struct memset_params {
  uint64_t destination;
  size_t pitch;
  uint32_t value;
  uint32_t element;
  size_t width;
  size_t height;
};
_Static_assert(sizeof(struct memset_params) == 40, "CUDA_MEMSET_NODE_PARAMS");

struct host_params {
  void (*function)(void *data);
  void *data;
};

/* One side of CUDA_MEMCPY3D, and the whole. */
struct copy_side {
  size_t x, y, z, level;
  uint32_t type; /* CUmemorytype */
  void *host;
  uint64_t device;
  void *array;
  void *reserved;
  size_t pitch, height;
};
struct copy_params {
  struct copy_side source, destination;
  size_t width, height, depth;
};
_Static_assert(sizeof(struct copy_params) == 200, "CUDA_MEMCPY3D");

static int enter(struct vgpu_driver **driver) {
  int result;
  *driver = vgpu_cuda_driver(&result);
  if (*driver != NULL) pthread_mutex_lock(&(*driver)->graph_lock);
  return result;
}

static int leave(struct vgpu_driver *driver, int result) {
  pthread_mutex_unlock(&driver->graph_lock);
  return result;
}

/* ---- work of each kind --------------------------------------------------- */

static int kernel_work(struct vgpu_driver *driver, const struct kernel_params *params,
                       struct vgpu_work *work) {
  void *handle = params->function != NULL ? params->function : params->kernel;
  struct vgpu_callable *callable = vgpu_callable_find(driver, handle);
  if (callable == NULL) return VGPU_CUDA_INVALID_HANDLE;
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
    if (params->grid[i] == 0 || params->block[i] == 0) return VGPU_CUDA_INVALID_VALUE;
  }
  int result = vgpu_launch_place(driver, callable, NULL, &send.context, &send.stream);
  if (result != VGPU_CUDA_SUCCESS) return result;
  unsigned char *block = malloc((size_t)callable->parameter_bytes + 1);
  if (block == NULL) return VGPU_CUDA_OUT_OF_MEMORY;
  result = vgpu_launch_parameters(callable, params->parameters, params->extra, block);
  *work = (struct vgpu_work){.kind = VGPU_NODE_KERNEL, .handle = callable};
  if (result == VGPU_CUDA_SUCCESS && !vgpu_work_frame(work, VGPU_OP_cuLaunchKernelEx, &send, sizeof send,
                                                      block, callable->parameter_bytes)) {
    result = VGPU_CUDA_OUT_OF_MEMORY;
  }
  free(block);
  return result;
}

static int memset_work(struct vgpu_driver *driver, const struct memset_params *params,
                       struct vgpu_work *work) {
  size_t bytes;
  if ((params->element != 1 && params->element != 2 && params->element != 4) || params->height == 0 ||
      params->width == 0 || params->destination % params->element != 0 ||
      __builtin_mul_overflow(params->width, (size_t)params->element, &bytes)) {
    return VGPU_CUDA_INVALID_VALUE;
  }
  uint64_t context = 0, span = bytes;
  if (params->height > 1 &&
      (params->pitch < bytes || __builtin_mul_overflow(params->pitch, params->height - 1, &span) ||
       __builtin_add_overflow(span, bytes, &span))) {
    return VGPU_CUDA_INVALID_VALUE;
  }
  if (!vgpu_regions_is_device(&driver->regions, params->destination, span)) return VGPU_CUDA_INVALID_VALUE;
  int result = vgpu_cuda_context_number(&context);
  if (result != VGPU_CUDA_SUCCESS) return result;
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
  memcpy(work->params, params, sizeof *params);
  bool made = params->height == 1
                  ? vgpu_work_frame(work, opcode, &row, sizeof row, NULL, 0)
                  : vgpu_work_frame(work, VGPU_OP_cuMemsetD2D8Async, &rows, sizeof rows, NULL, 0);
  return made ? VGPU_CUDA_SUCCESS : VGPU_CUDA_OUT_OF_MEMORY;
}

/* Where a side begins, if it is memory; arrays are not carried. */
static bool side_start(struct vgpu_driver *driver, const struct copy_side *side, bool *device,
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

static int copy_work(struct vgpu_driver *driver, const struct copy_params *params, struct vgpu_work *work) {
  bool to_device, from_device;
  uint64_t to, from;
  if (params->width == 0 || params->height == 0 || params->depth == 0) return VGPU_CUDA_INVALID_VALUE;
  *work = (struct vgpu_work){.kind = VGPU_NODE_MEMCPY, .step = VGPU_STEP_BOX, .size = params->width};
  memcpy(work->params, params, sizeof *params);
  if (params->height != 1 || params->depth != 1 || params->source.y != 0 || params->source.z != 0 ||
      params->destination.y != 0 || params->destination.z != 0) {
    return VGPU_CUDA_SUCCESS;
  }
  if (!side_start(driver, &params->source, &from_device, &from) ||
      !side_start(driver, &params->destination, &to_device, &to)) {
    return VGPU_CUDA_NOT_SUPPORTED; /* an array */
  }
  if ((to_device && !vgpu_regions_is_device(&driver->regions, to, params->width)) ||
      (from_device && !vgpu_regions_is_device(&driver->regions, from, params->width))) {
    return VGPU_CUDA_INVALID_VALUE;
  }
  if (to_device && from_device) {
    struct vgpu_send_cuMemcpyDtoDAsync_v2 send = {.destination = to, .source = from, .bytes = params->width};
    int result = vgpu_cuda_context_number(&send.context);
    if (result != VGPU_CUDA_SUCCESS) return result;
    return vgpu_work_frame(work, VGPU_OP_cuMemcpyDtoDAsync_v2, &send, sizeof send, NULL, 0)
               ? VGPU_CUDA_SUCCESS
               : VGPU_CUDA_OUT_OF_MEMORY;
  }
  if (!to_device && !from_device) return VGPU_CUDA_SUCCESS;
  work->step = to_device ? VGPU_STEP_TO_DEVICE : VGPU_STEP_FROM_DEVICE;
  work->device = to_device ? to : from;
  work->host = (void *)(uintptr_t)(to_device ? from : to);
  return VGPU_CUDA_SUCCESS;
}

static int host_work(const struct host_params *params, struct vgpu_work *work) {
  if (params->function == NULL) return VGPU_CUDA_INVALID_VALUE;
  *work = (struct vgpu_work){
      .kind = VGPU_NODE_HOST, .step = VGPU_STEP_FUNCTION, .function = params->function, .data = params->data};
  return VGPU_CUDA_SUCCESS;
}

static int event_work(struct vgpu_driver *driver, struct vgpu_event *event, bool record,
                      struct vgpu_work *work) {
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_has(&driver->objects, event, VGPU_OBJECT_EVENT);
  uint64_t number = live ? event->number : 0;
  pthread_mutex_unlock(&driver->lock);
  if (!live) return VGPU_CUDA_INVALID_HANDLE;
  uint64_t context = 0;
  int result = vgpu_cuda_context_number(&context);
  if (result != VGPU_CUDA_SUCCESS) return result;
  struct vgpu_send_cuEventRecordWithFlags recorded = {.context = context, .event = number};
  struct vgpu_send_cuStreamWaitEvent waited = {.context = context, .event = number};
  *work = (struct vgpu_work){.kind = record ? VGPU_NODE_RECORD : VGPU_NODE_WAIT, .handle = event};
  bool made = record
                  ? vgpu_work_frame(work, VGPU_OP_cuEventRecordWithFlags, &recorded, sizeof recorded, NULL, 0)
                  : vgpu_work_frame(work, VGPU_OP_cuStreamWaitEvent, &waited, sizeof waited, NULL, 0);
  return made ? VGPU_CUDA_SUCCESS : VGPU_CUDA_OUT_OF_MEMORY;
}

/* ---- adding -------------------------------------------------------------- */

/* With graph_lock held; takes `work` over unless `result` says that there is none. */
static int add(struct vgpu_driver *driver, void **made, void *hGraph, const void **dependencies, size_t count,
               int result, struct vgpu_work *work) {
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (result == VGPU_CUDA_SUCCESS && (graph == NULL || made == NULL || (count > 0 && dependencies == NULL))) {
    result = VGPU_CUDA_INVALID_VALUE;
  }
  for (size_t i = 0; result == VGPU_CUDA_SUCCESS && i < count; i++) {
    struct vgpu_node *node = vgpu_node_find(driver, dependencies[i]);
    if (node == NULL || node->graph != graph) result = VGPU_CUDA_INVALID_VALUE;
  }
  if (result != VGPU_CUDA_SUCCESS) {
    vgpu_work_free(work);
    return result;
  }
  struct vgpu_node *node =
      vgpu_graph_add(driver, graph, (struct vgpu_node **)(uintptr_t)dependencies, count, work);
  if (node == NULL) return VGPU_CUDA_OUT_OF_MEMORY;
  *made = node;
  return VGPU_CUDA_SUCCESS;
}

static int add_kernel(void **phGraphNode, void *hGraph, const void **dependencies, size_t count,
                      const void *nodeParams, size_t size) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct kernel_params params = {0};
  struct vgpu_work work = {0};
  if (nodeParams == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  memcpy(&params, nodeParams, size);
  result = kernel_work(driver, &params, &work);
  return leave(driver, add(driver, phGraphNode, hGraph, dependencies, count, result, &work));
}

int cuGraphAddKernelNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies,
                         const void *nodeParams) {
  return add_kernel(phGraphNode, hGraph, dependencies, numDependencies, nodeParams, KERNEL_PARAMS_V1);
}

int cuGraphAddKernelNode_v2(void **phGraphNode, void *hGraph, const void **dependencies,
                            size_t numDependencies, const void *nodeParams) {
  return add_kernel(phGraphNode, hGraph, dependencies, numDependencies, nodeParams,
                    sizeof(struct kernel_params));
}

int cuGraphAddMemcpyNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies,
                         const void *copyParams, struct vgpu_context *ctx) {
  (void)ctx; /* addresses are good in every context of a device */
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_work work = {0};
  if (copyParams == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  result = copy_work(driver, copyParams, &work);
  return leave(driver, add(driver, phGraphNode, hGraph, dependencies, numDependencies, result, &work));
}

int cuGraphAddMemsetNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies,
                         const void *memsetParams, struct vgpu_context *ctx) {
  (void)ctx;
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_work work = {0};
  if (memsetParams == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  result = memset_work(driver, memsetParams, &work);
  return leave(driver, add(driver, phGraphNode, hGraph, dependencies, numDependencies, result, &work));
}

int cuGraphAddHostNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies,
                       const void *nodeParams) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_work work = {0};
  if (nodeParams == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  result = host_work(nodeParams, &work);
  return leave(driver, add(driver, phGraphNode, hGraph, dependencies, numDependencies, result, &work));
}

int cuGraphAddEmptyNode(void **phGraphNode, void *hGraph, const void **dependencies, size_t numDependencies) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_work work = {.kind = VGPU_NODE_EMPTY};
  return leave(driver, add(driver, phGraphNode, hGraph, dependencies, numDependencies, result, &work));
}

int cuGraphAddChildGraphNode(void **phGraphNode, void *hGraph, const void **dependencies,
                             size_t numDependencies, void *childGraph) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_graph *child = vgpu_graph_find(driver, childGraph);
  if (child == NULL || child == hGraph) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  struct vgpu_graph *copy = vgpu_graph_clone(driver, child);
  if (copy == NULL) return leave(driver, VGPU_CUDA_OUT_OF_MEMORY);
  struct vgpu_work work = {.kind = VGPU_NODE_GRAPH};
  void *made = NULL;
  result = add(driver, &made, hGraph, dependencies, numDependencies,
               phGraphNode == NULL ? VGPU_CUDA_INVALID_VALUE : 0, &work);
  if (result != VGPU_CUDA_SUCCESS) {
    vgpu_graph_free(driver, copy);
    return leave(driver, result);
  }
  copy->owned = true;
  ((struct vgpu_node *)made)->child = copy;
  *phGraphNode = made;
  return leave(driver, VGPU_CUDA_SUCCESS);
}

static int add_event(void **phGraphNode, void *hGraph, const void **dependencies, size_t count,
                     struct vgpu_event *event, bool record) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_work work = {0};
  result = event_work(driver, event, record, &work);
  return leave(driver, add(driver, phGraphNode, hGraph, dependencies, count, result, &work));
}

int cuGraphAddEventRecordNode(void **phGraphNode, void *hGraph, const void **dependencies,
                              size_t numDependencies, struct vgpu_event *event) {
  return add_event(phGraphNode, hGraph, dependencies, numDependencies, event, true);
}

int cuGraphAddEventWaitNode(void **phGraphNode, void *hGraph, const void **dependencies,
                            size_t numDependencies, struct vgpu_event *event) {
  return add_event(phGraphNode, hGraph, dependencies, numDependencies, event, false);
}

/* ---- asking -------------------------------------------------------------- */

/* A node of a kind; with graph_lock held. */
static struct vgpu_node *of_kind(struct vgpu_driver *driver, void *hNode, enum vgpu_node_kind kind) {
  struct vgpu_node *node = vgpu_node_find(driver, hNode);
  return node != NULL && node->work.kind == kind ? node : NULL;
}

/* The function whose number a captured launch names. */
static bool by_number(void *handle, void *with) {
  struct vgpu_callable *callable = handle;
  uint64_t *wanted = with;
  if (callable->number == wanted[0]) wanted[1] = (uint64_t)(uintptr_t)callable;
  return false; /* only looks */
}

static void *function_of(struct vgpu_driver *driver, const struct vgpu_send_cuLaunchKernelEx *send) {
  uint64_t wanted[2] = {send->function, 0};
  pthread_mutex_lock(&driver->lock);
  vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_FUNCTION, by_number, wanted);
  if (wanted[1] == 0) vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_KERNEL, by_number, wanted);
  pthread_mutex_unlock(&driver->lock);
  return (void *)(uintptr_t)wanted[1];
}

/* Pointers to each parameter in the node's own block live with the node. */
static void **parameter_pointers(struct vgpu_node *node, const struct vgpu_callable *callable,
                                 uint32_t attributes) {
  size_t frame = (size_t)node->work.body_size + node->work.bulk_size, at = (frame + 7) & ~(size_t)7;
  unsigned char *grown = realloc(node->work.bytes, at + (callable->parameter_count + 1) * sizeof(void *));
  if (grown == NULL) return NULL;
  node->work.bytes = grown;
  void **pointers = (void **)(void *)(grown + at);
  unsigned char *block = grown + node->work.body_size + attributes * sizeof(struct vgpu_launch_attribute);
  for (uint32_t i = 0; i < callable->parameter_count; i++)
    pointers[i] = block + callable->parameters[i].offset;
  return pointers;
}

static int kernel_get(void *hNode, void *nodeParams, size_t size) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_node *node = of_kind(driver, hNode, VGPU_NODE_KERNEL);
  if (node == NULL || nodeParams == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  struct vgpu_send_cuLaunchKernelEx send;
  memcpy(&send, node->work.bytes, sizeof send);
  if (node->work.handle == NULL) node->work.handle = function_of(driver, &send);
  struct vgpu_callable *callable = vgpu_callable_find(driver, node->work.handle);
  if (callable == NULL) return leave(driver, VGPU_CUDA_INVALID_HANDLE); /* its module is gone */
  struct kernel_params params = {.grid = {send.grid_x, send.grid_y, send.grid_z},
                                 .block = {send.block_x, send.block_y, send.block_z},
                                 .shared = send.shared,
                                 .parameters = parameter_pointers(node, callable, send.attributes)};
  if (params.parameters == NULL) return leave(driver, VGPU_CUDA_OUT_OF_MEMORY);
  if (callable->library != NULL && size > KERNEL_PARAMS_V1) params.kernel = callable;
  else params.function = callable;
  memcpy(nodeParams, &params, size);
  return leave(driver, VGPU_CUDA_SUCCESS);
}

int cuGraphKernelNodeGetParams(void *hNode, void *nodeParams) {
  return kernel_get(hNode, nodeParams, KERNEL_PARAMS_V1);
}

int cuGraphKernelNodeGetParams_v2(void *hNode, void *nodeParams) {
  return kernel_get(hNode, nodeParams, sizeof(struct kernel_params));
}

int cuGraphHostNodeGetParams(void *hNode, void *nodeParams) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  const struct vgpu_node *node = of_kind(driver, hNode, VGPU_NODE_HOST);
  if (node == NULL || nodeParams == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  *(struct host_params *)nodeParams =
      (struct host_params){.function = node->work.function, .data = node->work.data};
  return leave(driver, VGPU_CUDA_SUCCESS);
}

/* Of a captured node its description is made from its frame. */
static bool memset_of_frame(const struct vgpu_work *work, struct memset_params *params) {
  struct vgpu_send_cuMemsetD8Async send;
  if (work->body_size != sizeof send) return false;
  memcpy(&send, work->bytes, sizeof send);
  uint32_t element = work->opcode == VGPU_OP_cuMemsetD8Async    ? 1
                     : work->opcode == VGPU_OP_cuMemsetD16Async ? 2
                     : work->opcode == VGPU_OP_cuMemsetD32Async ? 4
                                                                : 0;
  *params = (struct memset_params){.destination = send.destination,
                                   .pitch = send.count * element,
                                   .value = send.value,
                                   .element = element,
                                   .width = send.count,
                                   .height = 1};
  return element != 0;
}

int cuGraphMemsetNodeGetParams(void *hNode, void *nodeParams) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  const struct vgpu_node *node = of_kind(driver, hNode, VGPU_NODE_MEMSET);
  if (node == NULL || nodeParams == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  struct memset_params params;
  memcpy(&params, node->work.params, sizeof params);
  if (params.element == 0 && !memset_of_frame(&node->work, &params))
    return leave(driver, VGPU_CUDA_NOT_SUPPORTED);
  memcpy(nodeParams, &params, sizeof params);
  return leave(driver, VGPU_CUDA_SUCCESS);
}

int cuGraphMemcpyNodeGetParams(void *hNode, void *nodeParams) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  const struct vgpu_node *node = of_kind(driver, hNode, VGPU_NODE_MEMCPY);
  if (node == NULL || nodeParams == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  struct copy_params params;
  const struct vgpu_work *work = &node->work;
  memcpy(&params, work->params, sizeof params);
  if (params.width == 0) {
    params = (struct copy_params){.width = work->size, .height = 1, .depth = 1};
    params.source.type = work->step == VGPU_STEP_TO_DEVICE ? 1 : 2;
    params.destination.type = work->step == VGPU_STEP_FROM_DEVICE ? 1 : 2;
    params.source.host = params.destination.host = work->host;
    params.source.device = params.destination.device = work->device;
    if (work->step == VGPU_STEP_FRAME) {
      struct vgpu_send_cuMemcpyDtoDAsync_v2 send;
      if (work->opcode != VGPU_OP_cuMemcpyDtoDAsync_v2) return leave(driver, VGPU_CUDA_NOT_SUPPORTED);
      memcpy(&send, work->bytes, sizeof send);
      params.source.device = send.source;
      params.destination.device = send.destination;
      params.width = send.bytes;
    }
  }
  memcpy(nodeParams, &params, sizeof params);
  return leave(driver, VGPU_CUDA_SUCCESS);
}

int cuGraphChildGraphNodeGetGraph(void *hNode, void **phGraph) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  const struct vgpu_node *node = of_kind(driver, hNode, VGPU_NODE_GRAPH);
  if (node == NULL || phGraph == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  *phGraph = node->child;
  return leave(driver, VGPU_CUDA_SUCCESS);
}

static int get_event(void *hNode, struct vgpu_event **event, enum vgpu_node_kind kind) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  const struct vgpu_node *node = of_kind(driver, hNode, kind);
  if (node == NULL || event == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  *event = node->work.handle;
  return leave(driver, VGPU_CUDA_SUCCESS);
}

int cuGraphEventRecordNodeGetEvent(void *hNode, struct vgpu_event **event_out) {
  return get_event(hNode, event_out, VGPU_NODE_RECORD);
}

int cuGraphEventWaitNodeGetEvent(void *hNode, struct vgpu_event **event_out) {
  return get_event(hNode, event_out, VGPU_NODE_WAIT);
}

/* ---- changing ------------------------------------------------------------ */

/* Of the graph's node, or (`exec`) of its image in an executable. Takes `work` over. */
static int set(struct vgpu_driver *driver, void *exec, void *hNode, int result, struct vgpu_work *work) {
  struct vgpu_node *node = result == VGPU_CUDA_SUCCESS ? of_kind(driver, hNode, work->kind) : NULL;
  if (result == VGPU_CUDA_SUCCESS && node == NULL) result = VGPU_CUDA_INVALID_VALUE;
  if (result != VGPU_CUDA_SUCCESS) {
    vgpu_work_free(work);
    return leave(driver, result);
  }
  if (exec != NULL) return leave(driver, vgpu_exec_set(driver, exec, node, work));
  vgpu_work_free(&node->work);
  node->work = *work;
  return leave(driver, VGPU_CUDA_SUCCESS);
}

static int kernel_set(void *exec, void *hNode, const void *nodeParams, size_t size) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct kernel_params params = {0};
  struct vgpu_work work = {0};
  if (nodeParams == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  memcpy(&params, nodeParams, size);
  result = kernel_work(driver, &params, &work);
  return set(driver, exec, hNode, result, &work);
}

int cuGraphKernelNodeSetParams(void *hNode, const void *nodeParams) {
  return kernel_set(NULL, hNode, nodeParams, KERNEL_PARAMS_V1);
}

int cuGraphKernelNodeSetParams_v2(void *hNode, const void *nodeParams) {
  return kernel_set(NULL, hNode, nodeParams, sizeof(struct kernel_params));
}

int cuGraphExecKernelNodeSetParams(void *hGraphExec, void *hNode, const void *nodeParams) {
  return hGraphExec == NULL ? VGPU_CUDA_INVALID_VALUE
                            : kernel_set(hGraphExec, hNode, nodeParams, KERNEL_PARAMS_V1);
}

int cuGraphExecKernelNodeSetParams_v2(void *hGraphExec, void *hNode, const void *nodeParams) {
  return hGraphExec == NULL ? VGPU_CUDA_INVALID_VALUE
                            : kernel_set(hGraphExec, hNode, nodeParams, sizeof(struct kernel_params));
}

static int copy_set(void *exec, void *hNode, const void *params) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_work work = {0};
  if (params == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  result = copy_work(driver, params, &work);
  return set(driver, exec, hNode, result, &work);
}

int cuGraphMemcpyNodeSetParams(void *hNode, const void *nodeParams) {
  return copy_set(NULL, hNode, nodeParams);
}

int cuGraphExecMemcpyNodeSetParams(void *hGraphExec, void *hNode, const void *copyParams,
                                   struct vgpu_context *ctx) {
  (void)ctx;
  return hGraphExec == NULL ? VGPU_CUDA_INVALID_VALUE : copy_set(hGraphExec, hNode, copyParams);
}

static int memset_set(void *exec, void *hNode, const void *params) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_work work = {0};
  if (params == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  result = memset_work(driver, params, &work);
  return set(driver, exec, hNode, result, &work);
}

int cuGraphMemsetNodeSetParams(void *hNode, const void *nodeParams) {
  return memset_set(NULL, hNode, nodeParams);
}

int cuGraphExecMemsetNodeSetParams(void *hGraphExec, void *hNode, const void *memsetParams,
                                   struct vgpu_context *ctx) {
  (void)ctx;
  return hGraphExec == NULL ? VGPU_CUDA_INVALID_VALUE : memset_set(hGraphExec, hNode, memsetParams);
}

static int host_set(void *exec, void *hNode, const void *params) {
  struct vgpu_driver *driver;
  int result = enter(&driver);
  if (driver == NULL) return result;
  struct vgpu_work work = {0};
  if (params == NULL) return leave(driver, VGPU_CUDA_INVALID_VALUE);
  result = host_work(params, &work);
  return set(driver, exec, hNode, result, &work);
}

int cuGraphHostNodeSetParams(void *hNode, const void *nodeParams) {
  return host_set(NULL, hNode, nodeParams);
}

int cuGraphExecHostNodeSetParams(void *hGraphExec, void *hNode, const void *nodeParams) {
  return hGraphExec == NULL ? VGPU_CUDA_INVALID_VALUE : host_set(hGraphExec, hNode, nodeParams);
}
