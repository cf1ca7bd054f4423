/*
 * Executable graphs on the host's GPU. What a graph is made of lies here as frames, exactly as for the
 * software device, and a launch carries them out in order on its stream: the same results, one frame from the
 * guest, and a call of the driver for each node. Making a graph of the driver's own of them is not done.
 */
#include "host/backend/cuda/real.h"

int32_t vgpu_real_graph_nodes(struct vgpu_worker *worker, const struct vgpu_send_graph_nodes *send,
                              struct vgpu_bulk *bulk) {
  return vgpu_host_graph_nodes(worker, send, bulk);
}

int32_t vgpu_real_graph_node_set(struct vgpu_worker *worker, const struct vgpu_send_graph_node_set *send,
                                 struct vgpu_bulk *bulk) {
  return vgpu_host_graph_node_set(worker, send, bulk);
}

int32_t vgpu_real_cuGraphInstantiateWithFlags(struct vgpu_worker *worker,
                                              const struct vgpu_send_cuGraphInstantiateWithFlags *send) {
  return vgpu_host_cuGraphInstantiateWithFlags(worker, send);
}

int32_t vgpu_real_cuGraphExecDestroy(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuGraphExecDestroy *send) {
  return vgpu_host_cuGraphExecDestroy(worker, send);
}

int32_t vgpu_real_cuGraphLaunch(struct vgpu_worker *worker, const struct vgpu_send_cuGraphLaunch *send) {
  return vgpu_host_cuGraphLaunch(worker, send);
}
