/* Executable graphs of the driver. struct vgpu_backend_graphs explains the functions. */
#ifndef VGPU_HOST_CUDA_GRAPH_H
#define VGPU_HOST_CUDA_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_worker;
struct vgpu_exec_object;

struct vgpu_graph_edge;

bool vgpu_cuda_graph_begin(struct vgpu_worker *worker, const struct vgpu_exec_object *exec);
bool vgpu_cuda_graph_before(struct vgpu_worker *worker, const struct vgpu_graph_edge *edges, uint32_t count);
bool vgpu_cuda_graph_after(struct vgpu_worker *worker, uint32_t frame);
void *vgpu_cuda_graph_end(struct vgpu_worker *worker, bool keep);
int32_t vgpu_cuda_graph_launch(struct vgpu_worker *worker, void *graph, uint64_t context, uint64_t number);
void vgpu_cuda_graph_destroy(struct vgpu_worker *worker, const struct vgpu_exec_object *exec);
int32_t vgpu_cuda_graph_mark(struct vgpu_worker *worker, void **mark, uint64_t context, uint64_t stream);
int32_t vgpu_cuda_graph_await_mark(struct vgpu_worker *worker, void *mark, uint64_t context, uint64_t stream);
void vgpu_cuda_graph_drop_mark(struct vgpu_worker *worker, void *mark);

/* Makes a graph with conditional nodes (conditions.c). Returns a CUresult. */
int32_t vgpu_cuda_graph_build(struct vgpu_worker *worker, struct vgpu_exec_object *exec);

#endif
