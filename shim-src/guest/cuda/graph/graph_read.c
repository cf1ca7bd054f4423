/* Answers queries about existing nodes. */
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

static void *function_of(struct vgpu_driver *driver, const struct vgpu_send_cuLaunchKernelEx *send) {
  uint64_t wanted[2] = {send->function, 0};
  pthread_mutex_lock(&driver->lock);
  vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_FUNCTION, by_number, wanted);
  if (wanted[1] == 0) vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_KERNEL, by_number, wanted);
  pthread_mutex_unlock(&driver->lock);
  return (void *)(uintptr_t)wanted[1];
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

static int kernel_get(void *hNode, void *nodeParams, size_t size) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_node *node = vgpu_node_of_kind(driver, hNode, VGPU_NODE_KERNEL);
  if (node == NULL || nodeParams == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  struct vgpu_send_cuLaunchKernelEx send;
  memcpy(&send, node->work.bytes, sizeof send);
  struct vgpu_callable *callable = vgpu_work_callable(driver, &node->work);
  if (callable == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_HANDLE); /* module is gone */
  struct vgpu_kernel_params params = {.grid = {send.grid_x, send.grid_y, send.grid_z},
                                      .block = {send.block_x, send.block_y, send.block_z},
                                      .shared = send.shared,
                                      .parameters = parameter_pointers(node, callable, send.attributes)};
  if (params.parameters == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_OUT_OF_MEMORY);
  if (callable->library != NULL && size > VGPU_KERNEL_PARAMS_V1) params.kernel = callable;
  else params.function = callable;
  memcpy(nodeParams, &params, size);
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuGraphKernelNodeGetParams(void *hNode, void *nodeParams) {
  return kernel_get(hNode, nodeParams, VGPU_KERNEL_PARAMS_V1);
}

int cuGraphKernelNodeGetParams_v2(void *hNode, void *nodeParams) {
  return kernel_get(hNode, nodeParams, sizeof(struct vgpu_kernel_params));
}

int cuGraphHostNodeGetParams(void *hNode, void *nodeParams) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_node *node = vgpu_node_of_kind(driver, hNode, VGPU_NODE_HOST);
  if (node == NULL || nodeParams == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  *(struct vgpu_host_params *)nodeParams =
      (struct vgpu_host_params){.function = node->work.function, .data = node->work.data};
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
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

int cuGraphMemsetNodeGetParams(void *hNode, void *nodeParams) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_node *node = vgpu_node_of_kind(driver, hNode, VGPU_NODE_MEMSET);
  if (node == NULL || nodeParams == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  struct vgpu_memset_params params;
  if (!vgpu_work_filled(&node->work, &params)) return vgpu_graph_leave(driver, CUDA_ERROR_NOT_SUPPORTED);
  memcpy(nodeParams, &params, VGPU_MEMSET_PARAMS_V1);
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuGraphMemcpyNodeGetParams(void *hNode, void *nodeParams) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_node *node = vgpu_node_of_kind(driver, hNode, VGPU_NODE_MEMCPY);
  if (node == NULL || nodeParams == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  struct vgpu_box params;
  if (!vgpu_work_copied(&node->work, &params)) return vgpu_graph_leave(driver, CUDA_ERROR_NOT_SUPPORTED);
  memcpy(nodeParams, &params, sizeof params);
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuGraphChildGraphNodeGetGraph(void *hNode, void **phGraph) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_node *node = vgpu_node_of_kind(driver, hNode, VGPU_NODE_GRAPH);
  if (node == NULL || phGraph == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  *phGraph = node->child;
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

static int get_event(void *hNode, struct vgpu_event **event, enum vgpu_node_kind kind) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_node *node = vgpu_node_of_kind(driver, hNode, kind);
  if (node == NULL || event == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  *event = node->work.handle;
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuGraphEventRecordNodeGetEvent(void *hNode, struct vgpu_event **event_out) {
  return get_event(hNode, event_out, VGPU_NODE_RECORD);
}

int cuGraphEventWaitNodeGetEvent(void *hNode, struct vgpu_event **event_out) {
  return get_event(hNode, event_out, VGPU_NODE_WAIT);
}

int cuGraphBatchMemOpNodeGetParams(void *hNode, void *nodeParams_out) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_node *node = vgpu_node_of_kind(driver, hNode, VGPU_NODE_MEMORY_OPS);
  if (node == NULL || nodeParams_out == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  const struct vgpu_work *work = &node->work;
  struct vgpu_memory_ops_params params = work->given.memory_ops;
  /* Valid until the node is changed or destroyed. */
  params.operations = (void *)(work->bytes + vgpu_work_bytes(work) - work->kept_size);
  memcpy(nodeParams_out, &params, sizeof params);
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuGraphMemAllocNodeGetParams(void *hNode, void *params_out) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_node *node = vgpu_node_of_kind(driver, hNode, VGPU_NODE_ALLOCATE);
  if (node == NULL || params_out == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  struct vgpu_allocation_params params = node->work.given.allocation;
  params.accesses = params.access_count == 0 ? NULL : (const void *)node->work.bytes;
  memcpy(params_out, &params, sizeof params);
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuGraphMemFreeNodeGetParams(void *hNode, uint64_t *dptr_out) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_node *node = vgpu_node_of_kind(driver, hNode, VGPU_NODE_FREE);
  if (node == NULL || dptr_out == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  *dptr_out = node->work.device;
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}
