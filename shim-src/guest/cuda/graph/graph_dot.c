#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/graph/graph.h"

/* CUgraphDebugDot_flags */
enum {
  VERBOSE = 1 << 0,
  KERNELS = 1 << 2,
  COPIES = 1 << 3,
  FILLS = 1 << 4,
  FUNCTIONS = 1 << 5,
  EVENTS = 1 << 6,
  HANDLES = 1 << 10,
  ALLOCATIONS = 1 << 11,
  FREES = 1 << 12,
  MEMORY_OPS = 1 << 13,
  ALL_FLAGS = (1 << 16) - 1,
};

static const char *kind_name(enum vgpu_node_kind kind) {
  switch (kind) {
    case VGPU_NODE_KERNEL:
      return "KERNEL";
    case VGPU_NODE_MEMCPY:
      return "MEMCPY";
    case VGPU_NODE_MEMSET:
      return "MEMSET";
    case VGPU_NODE_HOST:
      return "HOST";
    case VGPU_NODE_GRAPH:
      return "GRAPH";
    case VGPU_NODE_EMPTY:
      return "EMPTY";
    case VGPU_NODE_WAIT:
      return "WAIT_EVENT";
    case VGPU_NODE_RECORD:
      return "EVENT_RECORD";
    case VGPU_NODE_ALLOCATE:
      return "MEM_ALLOC";
    case VGPU_NODE_FREE:
      return "MEM_FREE";
    case VGPU_NODE_MEMORY_OPS:
      return "BATCH_MEM_OP";
    case VGPU_NODE_CONDITIONAL:
      return "CONDITIONAL";
    case VGPU_NODE_BODY:
    case VGPU_NODE_VALUES:
      break;
  }
  return "UNKNOWN";
}

static void print_text(FILE *file, const char *text) {
  for (; *text != '\0'; text++) {
    if (*text == '"' || *text == '\\') fputc('\\', file);
    fputc((unsigned char)*text < ' ' ? ' ' : *text, file);
  }
}

static void print_kernel(FILE *file, struct vgpu_driver *driver, struct vgpu_node *node, uint32_t flags) {
  struct vgpu_send_cuLaunchKernelEx send;
  memcpy(&send, node->work.bytes, sizeof send);
  const struct vgpu_callable *callable = vgpu_work_callable(driver, &node->work);
  fputs("\\n", file);
  print_text(file, callable == NULL ? "(its module is gone)" : callable->name);
  if ((flags & (VERBOSE | KERNELS)) != 0) {
    fprintf(file, "\\ngrid %u %u %u, block %u %u %u, %u bytes shared, %u attributes", send.grid_x,
            send.grid_y, send.grid_z, send.block_x, send.block_y, send.block_z, send.shared, send.attributes);
  }
  if ((flags & HANDLES) != 0) fprintf(file, "\\nfunction %p", (const void *)callable);
}

static void print_copy(FILE *file, const struct vgpu_work *work, uint32_t flags) {
  static const char *const sides[] = {"?", "host", "device", "array", "unified"};
  struct vgpu_box params;
  if (!vgpu_work_copied(work, &params)) return;
  uint32_t from = params.source.type, to = params.destination.type;
  fprintf(file, "\\n%s to %s", sides[from < 5 ? from : 0], sides[to < 5 ? to : 0]);
  if ((flags & (VERBOSE | COPIES)) == 0) return;
  fprintf(file, "\\n%zu x %zu x %zu bytes, %#" PRIx64 " to %#" PRIx64, params.width, params.height,
          params.depth, from == 1 ? (uint64_t)(uintptr_t)params.source.host : params.source.device,
          to == 1 ? (uint64_t)(uintptr_t)params.destination.host : params.destination.device);
}

static void print_fill(FILE *file, const struct vgpu_work *work) {
  struct vgpu_memset_params params;
  if (!vgpu_work_filled(work, &params)) return;
  fprintf(file, "\\n%zu x %zu elements of %u at %#" PRIx64 ", value %#x", params.width, params.height,
          params.element, params.destination, params.value);
}

static void print_node(FILE *file, struct vgpu_driver *driver, struct vgpu_node *node, uint32_t flags) {
  const struct vgpu_work *work = &node->work;
  fprintf(file, "\"graph_%u_node_%u\" [shape=\"box\" label=\"%u\\n%s", node->graph->number, node->local,
          node->local, kind_name(work->kind));
  bool verbose = (flags & VERBOSE) != 0;
  if (work->kind == VGPU_NODE_KERNEL) print_kernel(file, driver, node, flags);
  if (work->kind == VGPU_NODE_MEMCPY) print_copy(file, work, flags);
  if (work->kind == VGPU_NODE_MEMSET && (verbose || (flags & FILLS) != 0)) print_fill(file, work);
  if (work->kind == VGPU_NODE_HOST && (verbose || (flags & FUNCTIONS) != 0)) {
    void *function;
    memcpy(&function, &work->function, sizeof function);
    fprintf(file, "\\nfunction %p, data %p", function, work->data);
  }
  bool event = work->kind == VGPU_NODE_WAIT || work->kind == VGPU_NODE_RECORD;
  if (event && (verbose || (flags & EVENTS) != 0)) fprintf(file, "\\nevent %p", work->handle);
  if (work->kind == VGPU_NODE_MEMORY_OPS && (verbose || (flags & MEMORY_OPS) != 0))
    fprintf(file, "\\n%u operations", work->frames);
  if (work->kind == VGPU_NODE_ALLOCATE && (verbose || (flags & ALLOCATIONS) != 0))
    fprintf(file, "\\n%zu bytes at %#" PRIx64, work->given.allocation.bytes, work->device);
  if (work->kind == VGPU_NODE_FREE && (verbose || (flags & FREES) != 0))
    fprintf(file, "\\n%#" PRIx64, work->device);
  if ((flags & HANDLES) != 0) fprintf(file, "\\nnode %p", (void *)node);
  fputs("\"];\n", file);
}

static void print_graph(FILE *file, struct vgpu_driver *driver, const struct vgpu_graph *graph,
                        uint32_t flags);

/* An edge from a node to the first node of a graph that belongs to it, and that graph. */
static void print_inner(FILE *file, struct vgpu_driver *driver, const struct vgpu_node *node,
                        const struct vgpu_graph *inner, const char *what, uint32_t flags) {
  fprintf(file, "\"graph_%u_node_%u\" -> \"graph_%u_node_%u\" [style=\"dotted\" label=\"%s\"];\n",
          node->graph->number, node->local, inner->number, inner->count == 0 ? 0 : inner->nodes[0]->local,
          what);
  print_graph(file, driver, inner, flags);
}

/* A child graph is a cluster behind the graph of its node. */
static void print_graph(FILE *file, struct vgpu_driver *driver, const struct vgpu_graph *graph,
                        uint32_t flags) {
  fprintf(file, "subgraph cluster_%u {\nlabel=\"graph_%u\" graph[style=\"dashed\"];\n", graph->number,
          graph->number);
  for (size_t i = 0; i < graph->count; i++) print_node(file, driver, graph->nodes[i], flags);
  for (size_t i = 0; i < graph->count; i++) {
    const struct vgpu_links *links = &graph->nodes[i]->dependencies;
    for (size_t j = 0; j < links->count; j++) {
      fprintf(file, "\"graph_%u_node_%u\" -> \"graph_%u_node_%u\"%s;\n", graph->number,
              links->nodes[j]->local, graph->number, graph->nodes[i]->local,
              links->data[j] == 0 ? "" : " [style=\"dashed\" label=\"programmatic\"]");
    }
  }
  fputs("}\n", file);
  for (size_t i = 0; i < graph->count; i++) {
    const struct vgpu_node *node = graph->nodes[i];
    for (uint32_t j = 0; node->bodies != NULL && j < node->work.given.condition.size; j++) {
      char label[24];
      snprintf(label, sizeof label, "body %u", j);
      print_inner(file, driver, node, node->bodies[j], label, flags);
    }
    if (node->child != NULL) print_inner(file, driver, node, node->child, "child", flags);
  }
}

int cuGraphDebugDotPrint(void *hGraph, const char *path, uint32_t flags) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  const struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  if (graph == NULL || path == NULL || (flags & ~(uint32_t)ALL_FLAGS) != 0) {
    return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  }
  FILE *file = fopen(path, "we");
  if (file == NULL) return vgpu_graph_leave(driver, CUDA_ERROR_OPERATING_SYSTEM);
  fputs("digraph dot {\n", file);
  print_graph(file, driver, graph, flags);
  fputs("}\n", file);
  bool written = ferror(file) == 0;
  written = fclose(file) == 0 && written;
  return vgpu_graph_leave(driver, written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM);
}
