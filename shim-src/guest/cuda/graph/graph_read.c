#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/graph/graph.h"

/* Finds the function whose number a captured launch has. */
static bool by_number(void *handle, void *with) {
  struct vgpu_callable *callable = handle;
  uint64_t *wanted = with;
  if (callable->number == wanted[0]) wanted[1] = (uint64_t)(uintptr_t)callable;
  return false; /* search only, remove nothing */
}

static bool has_number(const struct vgpu_objects *objects, const struct vgpu_callable *callable,
                       uint64_t number) {
  return (vgpu_objects_has(objects, callable, VGPU_OBJECT_FUNCTION) ||
          vgpu_objects_has(objects, callable, VGPU_OBJECT_KERNEL)) &&
         callable->number == number;
}

/* A sweep takes longer than all else that a node needs, and graphs launch the same functions many times. */
static void *function_of(struct vgpu_driver *driver, const struct vgpu_send_cuLaunchKernelEx *send) {
  uint64_t wanted[2] = {send->function, 0};
  pthread_mutex_lock(&driver->lock);
  struct vgpu_callable **found = &driver->found_callables[send->function % VGPU_FOUND_CALLABLES];
  if (!has_number(&driver->objects, *found, send->function)) {
    vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_FUNCTION, by_number, wanted);
    if (wanted[1] == 0) vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_KERNEL, by_number, wanted);
    *found = (struct vgpu_callable *)(uintptr_t)wanted[1];
  }
  struct vgpu_callable *callable = *found;
  pthread_mutex_unlock(&driver->lock);
  return callable;
}

struct vgpu_callable *vgpu_work_callable(struct vgpu_driver *driver, struct vgpu_work *work) {
  struct vgpu_send_cuLaunchKernelEx send;
  memcpy(&send, work->bytes, sizeof send);
  if (work->handle == NULL) work->handle = function_of(driver, &send);
  return vgpu_callable_find(driver, work->handle);
}

/* The pointers to the parameters are in the node's own memory and live as long as the node. */
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

/* The description of a captured node is made from its frame. */
bool vgpu_work_filled(const struct vgpu_work *work, struct vgpu_memset_params *params) {
  *params = work->given.memset;
  if (params->element != 0) return true;
  if (work->opcode == VGPU_OP_cuMemsetD2D8Async) {
    struct vgpu_send_cuMemsetD2D8Async rows;
    memcpy(&rows, work->bytes, sizeof rows);
    *params = (struct vgpu_memset_params){.destination = rows.destination,
                                          .pitch = rows.pitch,
                                          .value = rows.value,
                                          .element = rows.element,
                                          .width = rows.width,
                                          .height = rows.height};
    return true;
  }
  struct vgpu_send_cuMemsetD8Async send;
  uint32_t element = work->opcode == VGPU_OP_cuMemsetD8Async    ? 1
                     : work->opcode == VGPU_OP_cuMemsetD16Async ? 2
                     : work->opcode == VGPU_OP_cuMemsetD32Async ? 4
                                                                : 0;
  if (element == 0) return false;
  memcpy(&send, work->bytes, sizeof send);
  *params = (struct vgpu_memset_params){.destination = send.destination,
                                        .pitch = send.count * element,
                                        .value = send.value,
                                        .element = element,
                                        .width = send.count,
                                        .height = 1};
  return true;
}

static bool copied_by_frame(const struct vgpu_work *work, struct vgpu_box *params) {
  struct vgpu_box_side *from = &params->source, *to = &params->destination;
  if (work->opcode == VGPU_OP_cuMemcpyDtoDAsync_v2) {
    struct vgpu_send_cuMemcpyDtoDAsync_v2 send;
    memcpy(&send, work->bytes, sizeof send);
    from->device = send.source;
    to->device = send.destination;
    params->width = send.bytes;
    return true;
  }
  struct vgpu_send_copy_box send;
  if (work->opcode != VGPU_OP_copy_box) return false;
  memcpy(&send, work->bytes, sizeof send);
  from->device = send.source;
  from->pitch = send.source_row;
  to->device = send.destination;
  to->pitch = send.destination_row;
  from->height = from->pitch == 0 ? 0 : send.source_slice / from->pitch;
  to->height = to->pitch == 0 ? 0 : send.destination_slice / to->pitch;
  params->width = send.width;
  params->height = send.height;
  params->depth = send.depth;
  return true;
}

bool vgpu_work_copied(const struct vgpu_work *work, struct vgpu_box *params) {
  *params = work->given.copy;
  if (params->width != 0) return true;
  *params = (struct vgpu_box){.width = work->size, .height = 1, .depth = 1};
  params->source.type = work->step == VGPU_STEP_TO_DEVICE ? 1 : 2;
  params->destination.type = work->step == VGPU_STEP_FROM_DEVICE ? 1 : 2;
  params->source.host = params->destination.host = work->host;
  params->source.device = params->destination.device = work->device;
  return work->step != VGPU_STEP_FRAME || copied_by_frame(work, params);
}

/* Describes the kernel of a node. Returns a CUresult. */
static int describe_kernel(struct vgpu_driver *driver, struct vgpu_node *node,
                           struct vgpu_kernel_params *params) {
  struct vgpu_send_cuLaunchKernelEx send;
  memcpy(&send, node->work.bytes, sizeof send);
  struct vgpu_callable *callable = vgpu_work_callable(driver, &node->work);
  if (callable == NULL) return CUDA_ERROR_INVALID_HANDLE; /* module is gone */
  *params = (struct vgpu_kernel_params){.grid = {send.grid_x, send.grid_y, send.grid_z},
                                        .block = {send.block_x, send.block_y, send.block_z},
                                        .shared = send.shared,
                                        .parameters = parameter_pointers(node, callable, send.attributes)};
  if (callable->library != NULL) params->kernel = callable;
  else params->function = callable;
  return params->parameters == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* Describes a node as the API does. Its pointers are valid until the node is changed or destroyed. */
static int describe(struct vgpu_driver *driver, struct vgpu_node *node, struct vgpu_node_params *params) {
  struct vgpu_work *work = &node->work;
  bool known = true;
  *params = (struct vgpu_node_params){.type = (int32_t)work->kind};
  switch (work->kind) {
    case VGPU_NODE_KERNEL:
      return describe_kernel(driver, node, &params->of.kernel);
    case VGPU_NODE_MEMCPY:
      known = vgpu_work_copied(work, &params->of.copy.copy);
      break;
    case VGPU_NODE_MEMSET:
      known = vgpu_work_filled(work, &params->of.memset);
      break;
    case VGPU_NODE_HOST:
      params->of.host = work->given.host;
      params->of.host.function = work->function;
      params->of.host.data = work->data;
      break;
    case VGPU_NODE_GRAPH:
      params->of.child.graph = node->child;
      break;
    case VGPU_NODE_WAIT:
    case VGPU_NODE_RECORD:
      params->of.event = work->handle;
      break;
    case VGPU_NODE_ALLOCATE:
      params->of.allocation = work->given.allocation;
      params->of.allocation.accesses =
          work->given.allocation.access_count == 0 ? NULL : (const void *)work->bytes;
      break;
    case VGPU_NODE_FREE:
      params->of.freed = work->device;
      break;
    case VGPU_NODE_MEMORY_OPS:
      params->of.memory_ops = work->given.memory_ops;
      params->of.memory_ops.operations = (void *)(work->bytes + vgpu_work_bytes(work) - work->kept_size);
      break;
    case VGPU_NODE_CONDITIONAL:
      params->of.condition = work->given.condition;
      params->of.condition.bodies = node->bodies;
      break;
    case VGPU_NODE_EMPTY:
    case VGPU_NODE_BODY:
    case VGPU_NODE_VALUES:
      break;
  }
  return known ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

#define ANY_KIND (-1)

/* Describes a node of a kind for a caller that copies the parameters to `wanted_by`. */
static int read_node(void *hNode, int32_t kind, const void *wanted_by, struct vgpu_node_params *params) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_node *node = vgpu_node_find(driver, hNode);
  const bool is_wanted = node != NULL && (kind == ANY_KIND || (int32_t)node->work.kind == kind);
  result = !is_wanted || wanted_by == NULL ? CUDA_ERROR_INVALID_VALUE : describe(driver, node, params);
  return vgpu_graph_leave(driver, result);
}

/* Gives the first bytes of the parameters of a node of this kind. */
static int get(void *hNode, enum vgpu_node_kind kind, void *params_out, size_t size) {
  struct vgpu_node_params params;
  int result = read_node(hNode, (int32_t)kind, params_out, &params);
  if (result != CUDA_SUCCESS) return result;
  if (kind == VGPU_NODE_KERNEL && size == VGPU_KERNEL_PARAMS_V1 && params.of.kernel.function == NULL)
    params.of.kernel.function = params.of.kernel.kernel;
  memcpy(params_out, kind == VGPU_NODE_MEMCPY ? (const void *)&params.of.copy.copy : params.of.bytes, size);
  return CUDA_SUCCESS;
}

int cuGraphNodeGetParams(void *hNode, void *nodeParams) {
  struct vgpu_node_params params;
  int result = read_node(hNode, ANY_KIND, nodeParams, &params);
  if (result == CUDA_SUCCESS) memcpy(nodeParams, &params, sizeof params);
  return result;
}

int cuGraphKernelNodeGetParams(void *hNode, void *nodeParams) {
  return get(hNode, VGPU_NODE_KERNEL, nodeParams, VGPU_KERNEL_PARAMS_V1);
}

int cuGraphKernelNodeGetParams_v2(void *hNode, void *nodeParams) {
  return get(hNode, VGPU_NODE_KERNEL, nodeParams, sizeof(struct vgpu_kernel_params));
}

int cuGraphHostNodeGetParams(void *hNode, void *nodeParams) {
  return get(hNode, VGPU_NODE_HOST, nodeParams, VGPU_HOST_PARAMS_V1);
}

int cuGraphMemsetNodeGetParams(void *hNode, void *nodeParams) {
  return get(hNode, VGPU_NODE_MEMSET, nodeParams, VGPU_MEMSET_PARAMS_V1);
}

int cuGraphMemcpyNodeGetParams(void *hNode, void *nodeParams) {
  return get(hNode, VGPU_NODE_MEMCPY, nodeParams, sizeof(struct vgpu_box));
}

int cuGraphChildGraphNodeGetGraph(void *hNode, void **phGraph) {
  return get(hNode, VGPU_NODE_GRAPH, phGraph, sizeof *phGraph);
}

int cuGraphEventRecordNodeGetEvent(void *hNode, struct vgpu_event **event_out) {
  return get(hNode, VGPU_NODE_RECORD, event_out, sizeof(struct vgpu_event *));
}

int cuGraphEventWaitNodeGetEvent(void *hNode, struct vgpu_event **event_out) {
  return get(hNode, VGPU_NODE_WAIT, event_out, sizeof(struct vgpu_event *));
}

int cuGraphBatchMemOpNodeGetParams(void *hNode, void *nodeParams_out) {
  return get(hNode, VGPU_NODE_MEMORY_OPS, nodeParams_out, sizeof(struct vgpu_memory_ops_params));
}

int cuGraphMemAllocNodeGetParams(void *hNode, void *params_out) {
  return get(hNode, VGPU_NODE_ALLOCATE, params_out, sizeof(struct vgpu_allocation_params));
}

int cuGraphMemFreeNodeGetParams(void *hNode, uint64_t *dptr_out) {
  return get(hNode, VGPU_NODE_FREE, dptr_out, sizeof *dptr_out);
}

int cuGraphGetId(void *hGraph, uint32_t *graphId) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (graph == NULL || graphId == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  *graphId = graph->number;
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

/* Sets the output that is not NULL: the graph, the local id or the id of a node. */
static int name_node(void *hNode, void **graph, uint32_t *local, uint64_t *id) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_node *node = vgpu_node_find(driver, hNode);
  if (node == NULL || (graph == NULL && local == NULL && id == NULL))
    return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  if (graph != NULL) *graph = node->graph;
  if (local != NULL) *local = node->local;
  if (id != NULL) *id = node->id;
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuGraphNodeGetContainingGraph(void *hNode, void **phGraph) {
  return name_node(hNode, phGraph, NULL, NULL);
}

int cuGraphNodeGetLocalId(void *hNode, uint32_t *nodeId) {
  return name_node(hNode, NULL, nodeId, NULL);
}

int cuGraphNodeGetToolsId(void *hNode, uint64_t *toolsNodeId) {
  return name_node(hNode, NULL, NULL, toolsNodeId);
}
