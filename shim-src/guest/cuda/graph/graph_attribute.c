/* Attributes of kernel nodes. They are before the parameters in the frame of the launch. */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/graph/graph.h"
#include "guest/cuda/module/launch.h"

enum {
  ACCESS_POLICY = 1,
  COOPERATIVE = 2,
  CLUSTER_DIMENSION = 4,
  CLUSTER_SCHEDULING = 5,
  PRIORITY = 8,
  SYNC_DOMAIN_MAP = 9,
  SYNC_DOMAIN = 10,
  PREFERRED_CLUSTER = 11,
  DEVICE_UPDATABLE = 13,
  CARVEOUT = 14,
};

#define VALUE_BYTES sizeof(((struct vgpu_launch_attribute *)0)->value)

static uint32_t attributes_of(const struct vgpu_work *work,
                              struct vgpu_launch_attribute list[VGPU_LAUNCH_ATTRIBUTES_MAX]) {
  struct vgpu_send_cuLaunchKernelEx send;
  memcpy(&send, work->bytes, sizeof send);
  memcpy(list, work->bytes + sizeof send, send.attributes * sizeof *list);
  return send.attributes;
}

/* Makes the same launch with these attributes instead of its own. */
static int rebuild(struct vgpu_work *work, const struct vgpu_launch_attribute *list, uint32_t count) {
  struct vgpu_send_cuLaunchKernelEx send;
  memcpy(&send, work->bytes, sizeof send);
  size_t old = send.attributes * sizeof *list, size = count * sizeof *list;
  size_t rest = work->bulk_size - old;
  unsigned char *bytes = malloc(sizeof send + size + rest + 1);
  if (bytes == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  send.attributes = count;
  memcpy(bytes, &send, sizeof send);
  if (size > 0) memcpy(bytes + sizeof send, list, size);
  memcpy(bytes + sizeof send + size, work->bytes + sizeof send + old, rest);
  free(work->bytes);
  work->bytes = bytes;
  work->bulk_size = (uint32_t)(size + rest);
  return CUDA_SUCCESS;
}

int vgpu_work_keep_attributes(struct vgpu_work *work, const struct vgpu_work *before) {
  if (work->kind != VGPU_NODE_KERNEL || before->kind != VGPU_NODE_KERNEL) return CUDA_SUCCESS;
  struct vgpu_launch_attribute list[VGPU_LAUNCH_ATTRIBUTES_MAX];
  uint32_t count = attributes_of(before, list);
  return count == 0 ? CUDA_SUCCESS : rebuild(work, list, count);
}

bool vgpu_work_same_context(const struct vgpu_work *a, const struct vgpu_work *b) {
  struct vgpu_send_cuLaunchKernelEx one, other;
  memcpy(&one, a->bytes, sizeof one);
  memcpy(&other, b->bytes, sizeof other);
  return one.context == other.context;
}

bool vgpu_work_cooperative(const struct vgpu_work *work) {
  struct vgpu_launch_attribute list[VGPU_LAUNCH_ATTRIBUTES_MAX];
  uint32_t count = attributes_of(work, list);
  for (uint32_t i = 0; i < count; i++) {
    if (list[i].id == COOPERATIVE) return (uint32_t)list[i].value[0] != 0;
  }
  return false;
}

/* Accepts the attributes that a node can have. A launch can have more. */
static int check_attribute(int32_t attribute) {
  switch (attribute) {
    case ACCESS_POLICY:
    case COOPERATIVE:
    case CLUSTER_DIMENSION:
    case CLUSTER_SCHEDULING:
    case PRIORITY:
    case SYNC_DOMAIN_MAP:
    case SYNC_DOMAIN:
    case PREFERRED_CLUSTER:
    case CARVEOUT:
      return CUDA_SUCCESS;
    case DEVICE_UPDATABLE:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

int cuGraphKernelNodeGetAttribute(void *hNode, int32_t attr, void *value_out) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_node *node = vgpu_node_of_kind(driver, hNode, VGPU_NODE_KERNEL);
  result = node == NULL || value_out == NULL ? CUDA_ERROR_INVALID_VALUE : check_attribute(attr);
  if (result != CUDA_SUCCESS) return vgpu_graph_leave(driver, result);
  struct vgpu_launch_attribute list[VGPU_LAUNCH_ATTRIBUTES_MAX];
  uint32_t count = attributes_of(&node->work, list);
  memset(value_out, 0, VALUE_BYTES);
  for (uint32_t i = 0; i < count; i++) {
    if (list[i].id == (uint32_t)attr) memcpy(value_out, list[i].value, VALUE_BYTES);
  }
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuGraphKernelNodeSetAttribute(void *hNode, int32_t attr, const void *value) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_node *node = vgpu_node_of_kind(driver, hNode, VGPU_NODE_KERNEL);
  result = node == NULL || value == NULL ? CUDA_ERROR_INVALID_VALUE : check_attribute(attr);
  if (result != CUDA_SUCCESS) return vgpu_graph_leave(driver, result);
  struct vgpu_launch_attribute list[VGPU_LAUNCH_ATTRIBUTES_MAX];
  uint32_t count = attributes_of(&node->work, list), at = 0;
  while (at < count && list[at].id != (uint32_t)attr) at++;
  if (at == VGPU_LAUNCH_ATTRIBUTES_MAX) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  list[at] = (struct vgpu_launch_attribute){.id = (uint32_t)attr};
  memcpy(list[at].value, value, VALUE_BYTES);
  return vgpu_graph_leave(driver, rebuild(&node->work, list, at == count ? count + 1 : count));
}

int cuGraphKernelNodeCopyAttributes(void *dst, void *src) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_node *to = vgpu_node_of_kind(driver, dst, VGPU_NODE_KERNEL);
  const struct vgpu_node *from = vgpu_node_of_kind(driver, src, VGPU_NODE_KERNEL);
  if (to == NULL || from == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  if (!vgpu_work_same_context(&to->work, &from->work))
    return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  struct vgpu_launch_attribute list[VGPU_LAUNCH_ATTRIBUTES_MAX];
  return vgpu_graph_leave(driver, rebuild(&to->work, list, attributes_of(&from->work, list)));
}
