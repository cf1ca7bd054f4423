/* Memory that graphs allocate. */
#include "graph_check.h"

#define MIB (1ull << 20)
enum { USED = 0, USED_HIGH = 1, RESERVED = 2, RESERVED_HIGH = 3, AUTO_FREE = 1 };
enum { PEER_ACCESS_UNSUPPORTED = 217 };

static struct node_params allocation(size_t bytes) {
  return (struct node_params){.type = ALLOCATE,
                              .of.allocation = {.pool = {.type = 1, .location_type = 1}, .bytes = bytes}};
}

static devptr allocate(void **node, void *graph, void *const *after, size_t count, size_t bytes) {
  struct node_params params = allocation(bytes);
  OK(add_node(node, graph, after, count, &params));
  TRUE(params.of.allocation.address != 0);
  return params.of.allocation.address;
}

static int add_free(void **node, void *graph, void *after, devptr address) {
  struct node_params params = {.type = RELEASE, .of.release = address};
  return add_node(node, graph, &after, after == NULL ? 0 : 1, &params);
}

static int free_memory(devptr address) {
  return CALL(cuMemFree_v2, (devptr), address);
}

static uint64_t value_of(int attribute) {
  uint64_t value = UINT64_MAX;
  OK(CALL(cuDeviceGetGraphMemAttribute, (int, int, void *), 0, attribute, &value));
  return value;
}

static struct node_params copy_between(devptr from, devptr to, size_t bytes) {
  struct node_params copy = {.type = COPY, .of.copy.copy = {.width = bytes, .height = 1, .depth = 1}};
  copy.of.copy.copy.source.type = copy.of.copy.copy.destination.type = 2;
  copy.of.copy.copy.source.device = from;
  copy.of.copy.copy.destination.device = to;
  return copy;
}

static void allocates(void) {
  void *function = put_function(), *graph = new_graph(), *stream = new_stream();
  void *made = NULL, *put = NULL, *filled = NULL, *copied = NULL, *released = NULL, *parameters[2];
  devptr out = check_alloc(4096);
  unsigned what = 41;
  devptr memory = allocate(&made, graph, NULL, 0, 3 * MIB);
  struct node_params kernel = put_node(function, &memory, &what, parameters);
  struct node_params fill = fill_node(memory + 4, 42, 3 * MIB / 4 - 1);
  struct node_params copy = copy_between(memory, out, 4096);
  OK(add_node(&put, graph, &made, 1, &kernel));
  OK(add_node(&filled, graph, &put, 1, &fill));
  OK(add_node(&copied, graph, &filled, 1, &copy));
  OK(add_free(&released, graph, copied, memory));
  void *exec = new_exec(graph);
  for (int i = 0; i < 3; i++) {
    clear(out, 1024);
    OK(launch(exec, stream));
    IS(41, word_at(out));
    IS(42, word_at(out + 4092));
  }
  struct allocation_params read = {0};
  devptr freed = 0;
  OK(CALL(cuGraphMemAllocNodeGetParams, (void *, void *), made, &read));
  TRUE(read.address == memory && read.bytes == 3 * MIB && read.pool.type == 1 && read.access_count == 0);
  OK(CALL(cuGraphMemFreeNodeGetParams, (void *, devptr *), released, &freed));
  TRUE(freed == memory);
  IS(INVALID_VALUE, CALL(cuGraphMemAllocNodeGetParams, (void *, void *), released, &read));
  IS(INVALID_VALUE, CALL(cuGraphMemFreeNodeGetParams, (void *, devptr *), made, &freed));
  /* Memory that has a free node in its graph can only be freed by that graph. */
  IS(INVALID_VALUE, free_memory(memory));
  IS(INVALID_VALUE, CALL(cuMemFreeAsync, (devptr, void *), memory, stream));
  unsigned kind = 0;
  void *context = (void *)1;
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &kind, 2, memory));
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &context, 1, memory));
  TRUE(kind == 2 && context == NULL);
  drop(graph, exec);
  IS(INVALID_VALUE, CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), memory, 0, 1));
  IS(INVALID_VALUE, free_memory(memory));
}

static void outlives(void) {
  void *graph = new_graph(), *second = new_graph(), *stream = new_stream();
  void *made = NULL, *filled = NULL, *node = NULL;
  size_t before = check_free_memory();
  devptr memory = allocate(&made, graph, NULL, 0, 4 * MIB);
  struct node_params fill = fill_node(memory, 7, MIB);
  OK(add_node(&filled, graph, &made, 1, &fill));
  void *exec = new_exec(graph);
  IS(before, check_free_memory()); /* no memory before the launch */
  OK(launch(exec, stream));
  IS(before - 4 * MIB, check_free_memory());
  IS(7, word_at(memory + 4 * MIB - 4));
  drop(graph, exec);
  IS(7, word_at(memory)); /* the memory outlives its graph */
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory, 8, 1, stream));
  OK(CALL(cuMemFreeAsync, (devptr, void *), memory, stream));
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(before, check_free_memory());
  IS(INVALID_VALUE, CALL(cuMemFreeAsync, (devptr, void *), memory, stream));

  /* Another graph frees the memory. */
  graph = new_graph();
  memory = allocate(&made, graph, NULL, 0, MIB);
  OK(add_free(&node, second, NULL, memory));
  IS(INVALID_VALUE, add_free(&node, second, NULL, memory)); /* once */
  IS(INVALID_VALUE, add_free(&node, graph, made, memory));  /* already freed by a node here or there */
  exec = new_exec(graph);
  void *frees = new_exec(second);
  IS(INVALID_VALUE, launch(frees, stream)); /* the memory does not exist yet */
  OK(launch(exec, stream));
  OK(launch(frees, stream));
  IS(INVALID_VALUE, launch(frees, stream));
  OK(launch(exec, stream)); /* and again */
  OK(free_memory(memory));
  IS(INVALID_VALUE, free_memory(memory));
  drop(graph, exec);
  drop(second, frees);
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(before, check_free_memory());
}

static void twice(void) {
  void *graph = new_graph(), *stream = new_stream(), *made = NULL, *exec = NULL;
  devptr memory = allocate(&made, graph, NULL, 0, MIB);
  exec = new_exec(graph);
  OK(launch(exec, stream));
  IS(INVALID_VALUE, launch(exec, stream));
  OK(free_memory(memory));
  OK(launch(exec, stream));
  OK(free_memory(memory));
  drop(NULL, exec);
  OK(instantiate(&exec, graph, AUTO_FREE));
  for (int i = 0; i < 3; i++) OK(launch(exec, stream));
  OK(free_memory(memory));
  uint64_t flags = 0;
  OK(CALL(cuGraphExecGetFlags, (void *, uint64_t *), exec, &flags));
  IS(AUTO_FREE, flags);
  drop(graph, exec);
}

static void captured(void) {
  void *stream = new_stream(), *graph = NULL, *nodes[4] = {0}, *exec = NULL;
  devptr memory = 0, kept = 0, out = check_alloc(4096), plain = check_alloc(4096);
  int kinds[4] = {-1, -1, -1, -1};
  size_t count = 4, before = check_free_memory();
  OK(CALL(cuStreamBeginCapture_v2, (void *, int), stream, 0));
  OK(CALL(cuMemAllocAsync, (devptr *, size_t, void *), &memory, MIB, stream));
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory, 3, 1024, stream));
  OK(CALL(cuMemcpyDtoDAsync_v2, (devptr, devptr, size_t, void *), out, memory, 4096, stream));
  IS(INVALID_VALUE, CALL(cuMemFreeAsync, (devptr, void *), plain, stream));
  OK(CALL(cuMemFreeAsync, (devptr, void *), memory, stream));
  OK(CALL(cuStreamEndCapture, (void *, void **), stream, &graph));
  OK(CALL(cuGraphGetNodes, (void *, void **, size_t *), graph, nodes, &count));
  IS(4, count);
  for (int i = 0; i < 4; i++) OK(CALL(cuGraphNodeGetType, (void *, int *), nodes[i], &kinds[i]));
  TRUE(kinds[0] == ALLOCATE && kinds[1] == FILL && kinds[2] == COPY && kinds[3] == RELEASE);
  exec = new_exec(graph);
  OK(launch(exec, stream));
  IS(3, word_at(out + 4092));
  drop(graph, exec);

  /* Not freed in the capture: memory of a pool that is used after it. */
  void *pool = NULL;
  OK(CALL(cuDeviceGetDefaultMemPool, (void **, int), &pool, 0));
  OK(CALL(cuStreamBeginCapture_v2, (void *, int), stream, 0));
  OK(CALL(cuMemAllocFromPoolAsync, (devptr *, size_t, void *, void *), &kept, MIB, pool, stream));
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), kept, 5, 4, stream));
  OK(CALL(cuStreamEndCapture, (void *, void **), stream, &graph));
  exec = new_exec(graph);
  OK(CALL(cuGraphUpload, (void *, void *), exec, stream));
  OK(launch(exec, stream));
  IS(5, word_at(kept + 12));
  OK(CALL(cuMemFreeAsync, (devptr, void *), kept, stream));
  drop(graph, exec);
  OK(CALL(cuStreamBeginCapture_v2, (void *, int), stream, 0));
  IS(CAPTURE_UNSUPPORTED, CALL(cuStreamSynchronize, (void *), stream));
  IS(CAPTURE_INVALIDATED, CALL(cuMemAllocAsync, (devptr *, size_t, void *), &memory, MIB, stream));
  IS(CAPTURE_INVALIDATED, CALL(cuStreamEndCapture, (void *, void **), stream, &graph));
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(before, check_free_memory());
}

static void restricted(void) {
  void *graph = new_graph(), *parent = new_graph(), *made = NULL, *node = NULL, *clone = NULL, *exec = NULL;
  void *second = NULL;
  devptr memory = allocate(&made, graph, NULL, 0, MIB);
  OK(add_free(&node, graph, made, memory));
  IS(NOT_SUPPORTED, CALL(cuGraphClone, (void **, void *), &clone, graph));
  IS(NOT_SUPPORTED, CALL(cuGraphDestroyNode, (void *), node));
  IS(NOT_SUPPORTED,
     CALL(cuGraphRemoveDependencies, (void *, void *const *, void *const *, size_t), graph, &made, &node, 1));
  struct node_params nested = {.type = GRAPH, .of.child = {graph, 0}};
  IS(NOT_SUPPORTED, add_node(&node, parent, NULL, 0, &nested));
  exec = new_exec(graph);
  IS(NOT_SUPPORTED, instantiate(&second, graph, 0));
  drop(NULL, exec);
  exec = new_exec(graph); /* one after the other */
  struct node_params params = allocation(MIB);
  IS(NOT_SUPPORTED, CALL(cuGraphNodeSetParams, (void *, void *), made, &params));
  IS(NOT_SUPPORTED, CALL(cuGraphExecNodeSetParams, (void *, void *, void *), exec, made, &params));
  IS(INVALID_VALUE, CALL(cuGraphNodeSetEnabled, (void *, void *, unsigned), exec, made, 0));
  drop(graph, exec);
  drop(parent, NULL);
}

/* A graph that allocates `bytes`, fills them, copies to `out` and frees them. */
static void *filling(size_t bytes, unsigned value, devptr out) {
  void *graph = new_graph(), *made = NULL, *filled = NULL, *copied = NULL, *released = NULL;
  devptr memory = allocate(&made, graph, NULL, 0, bytes);
  struct node_params fill = fill_node(memory, value, 4), copy = copy_between(memory, out, 16);
  OK(add_node(&filled, graph, &made, 1, &fill));
  OK(add_node(&copied, graph, &filled, 1, &copy));
  OK(add_free(&released, graph, copied, memory));
  return graph;
}

static int update(void *exec, void *graph, struct update_info *info) {
  return CALL(cuGraphExecUpdate_v2, (void *, void *, void *), exec, graph, info);
}

static void updated(void) {
  void *stream = new_stream(), *second = NULL;
  devptr out = check_alloc(4096);
  size_t before = check_free_memory();
  void *graph = filling(MIB, 7, out), *other = filling(MIB, 9, out), *larger = filling(5 * MIB, 9, out);
  void *exec = new_exec(graph);
  struct update_info info = {0};
  OK(update(exec, graph, &info));
  OK(launch(exec, stream));
  IS(7, word_at(out));
  OK(update(exec, other, &info));
  for (int i = 0; i < 3; i++) OK(launch(exec, stream));
  IS(9, word_at(out));
  /* The executable now uses the memory of the other graph, and only one executable can use it at a time. */
  IS(NOT_SUPPORTED, instantiate(&second, other, 0));
  second = new_exec(graph);
  IS(UPDATE_FAILURE, update(exec, graph, &info));
  OK(launch(second, stream));
  IS(7, word_at(out));
  IS(UPDATE_FAILURE, update(exec, larger, &info));
  TRUE(info.result == 6 && info.error_node != NULL);
  OK(launch(exec, stream));
  IS(9, word_at(out));
  drop(graph, second);
  drop(other, NULL);
  OK(launch(exec, stream));
  drop(larger, exec);
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(before, check_free_memory());
}

static void moved(void) {
  void *child = new_graph(), *parent = new_graph(), *stream = new_stream();
  void *made = NULL, *filled = NULL, *node = NULL, *embedded = NULL;
  devptr memory = allocate(&made, child, NULL, 0, MIB);
  struct node_params fill = fill_node(memory, 9, 4);
  OK(add_node(&filled, child, &made, 1, &fill));
  struct node_params nested = {.type = GRAPH, .of.child = {child, 1}};
  OK(add_node(&node, parent, NULL, 0, &nested));
  OK(CALL(cuGraphChildGraphNodeGetGraph, (void *, void **), node, &embedded));
  TRUE(embedded == child);
  IS(INVALID_VALUE, CALL(cuGraphDestroy, (void *), child)); /* its node's */
  struct node_params params = allocation(MIB);
  IS(NOT_SUPPORTED, add_node(&node, child, NULL, 0, &params));
  IS(NOT_SUPPORTED, CALL(cuGraphClone, (void **, void *), &embedded, parent));
  IS(INVALID_VALUE, add_node(&node, parent, NULL, 0, &nested));
  void *exec = new_exec(parent);
  OK(launch(exec, stream));
  IS(9, word_at(memory + 12));
  OK(free_memory(memory));
  drop(parent, exec);
  IS(INVALID_VALUE, CALL(cuGraphDestroy, (void *), child));
}

static void counted(void) {
  void *graph = new_graph(), *stream = new_stream(), *made = NULL, *second = NULL, *node = NULL;
  size_t before = check_free_memory();
  uint64_t zero = 0, one = 1;
  devptr memory = allocate(&made, graph, NULL, 0, 3 * MIB), kept = allocate(&second, graph, NULL, 0, 5);
  OK(add_free(&node, graph, made, memory));
  void *exec = new_exec(graph);
  for (int i = USED; i <= RESERVED_HIGH; i++) IS(0, value_of(i));
  OK(launch(exec, stream));
  for (int i = USED; i <= RESERVED_HIGH; i++) IS(6 * MIB, value_of(i)); /* in whole granules */
  IS(before - 6 * MIB, check_free_memory());
  OK(CALL(cuDeviceGraphMemTrim, (int), 0)); /* keeps memory that is not freed */
  IS(2 * MIB, value_of(RESERVED));
  IS(6 * MIB, value_of(RESERVED_HIGH));
  IS(before - 2 * MIB, check_free_memory());
  OK(CALL(cuDeviceSetGraphMemAttribute, (int, int, void *), 0, RESERVED_HIGH, &zero));
  IS(2 * MIB, value_of(RESERVED_HIGH));
  IS(6 * MIB, value_of(USED_HIGH));
  OK(free_memory(kept));
  OK(CALL(cuDeviceGraphMemTrim, (int), 0));
  IS(0, value_of(USED));
  IS(before, check_free_memory());
  OK(launch(exec, stream)); /* mapped again */
  IS(6 * MIB, value_of(RESERVED));
  drop(graph, exec);
  IS(2 * MIB, value_of(RESERVED));
  OK(free_memory(kept));
  IS(0, value_of(RESERVED));
#define SET(device, attribute, value)                                                                        \
  CALL(cuDeviceSetGraphMemAttribute, (int, int, void *), device, attribute, value)
  IS(INVALID_VALUE, SET(0, USED_HIGH, &one));
  IS(INVALID_VALUE, SET(0, USED, &zero));
  IS(INVALID_VALUE, SET(0, USED_HIGH, NULL));
  IS(INVALID_DEVICE, SET(99, USED_HIGH, &zero));
  IS(INVALID_DEVICE, CALL(cuDeviceGraphMemTrim, (int), -1));
  IS(INVALID_DEVICE, CALL(cuDeviceGetGraphMemAttribute, (int, int, void *), 99, USED, &zero));
  IS(INVALID_VALUE, CALL(cuDeviceGetGraphMemAttribute, (int, int, void *), 0, 4, &zero));
  IS(INVALID_VALUE, CALL(cuDeviceGetGraphMemAttribute, (int, int, void *), 0, USED, NULL));

  /* More than the device has: the launch fails, and the graph can be destroyed. */
  graph = new_graph();
  allocate(&made, graph, NULL, 0, 1ull << 38);
  exec = new_exec(graph);
  IS(OUT_OF_MEMORY, launch(exec, stream));
  drop(graph, exec);
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(before, check_free_memory());
}

static void bad_requests(void) {
  void *graph = new_graph(), *node = NULL;
  devptr plain = check_alloc(4096);
  struct access own = {1, 0, 3}, other = {1, 7, 3}, read_only = {1, 0, 1};
  struct node_params params;
#define TRY(wanted, field, value)                                                                            \
  params = allocation(MIB);                                                                                  \
  params.of.allocation.field = value;                                                                        \
  IS(wanted, add_node(&node, graph, NULL, 0, &params))
  TRY(INVALID_VALUE, bytes, 0);
  TRY(INVALID_VALUE, bytes, UINT64_MAX);
  TRY(INVALID_VALUE, pool.type, 0);
  TRY(INVALID_VALUE, pool.handle_types, 1);
  TRY(NOT_SUPPORTED, pool.location_type, 2);
  TRY(INVALID_DEVICE, pool.location, 50);
  TRY(INVALID_VALUE, access_count, 1);
  params.of.allocation.accesses = &read_only;
  IS(INVALID_VALUE, add_node(&node, graph, NULL, 0, &params));
  params.of.allocation.accesses = &other;
  IS(INVALID_DEVICE, add_node(&node, graph, NULL, 0, &params));
  params.of.allocation.accesses = &own;
  OK(add_node(&node, graph, NULL, 0, &params));
  struct allocation_params read = {0};
  OK(CALL(cuGraphMemAllocNodeGetParams, (void *, void *), node, &read));
  TRUE(read.access_count == 1 && read.accesses[0].flags == 3);
  struct allocation_params typed = {.pool = {.type = 1, .location_type = 1}, .bytes = 1};
  OK(CALL(cuGraphAddMemAllocNode, (void **, void *, void *const *, size_t, void *), &node, graph, NULL, 0,
          &typed));
  TRUE(typed.address != 0 && typed.address != read.address);
  /* Until no addresses are left for so much memory. */
  int result = 0;
  for (int i = 0; i < 64 && result == 0; i++) {
    params = allocation((size_t)1 << 44);
    result = add_node(&node, graph, NULL, 0, &params);
  }
  IS(OUT_OF_MEMORY, result);
  IS(INVALID_VALUE, CALL(cuGraphAddMemAllocNode, (void **, void *, void *const *, size_t, void *), &node,
                         graph, NULL, 0, NULL));
  devptr wrong[] = {0, plain, typed.address + 1, 1ull << 50};
  for (int i = 0; i < 4; i++)
    IS(INVALID_VALUE, CALL(cuGraphAddMemFreeNode, (void **, void *, void *const *, size_t, devptr), &node,
                           graph, NULL, 0, wrong[i]));
  OK(CALL(cuGraphAddMemFreeNode, (void **, void *, void *const *, size_t, devptr), &node, graph, NULL, 0,
          typed.address));
  IS(INVALID_VALUE, free_memory(read.address)); /* never launched */
  drop(graph, NULL);
  OK(CALL(cuCtxSynchronize, (void), ));
}

static const struct check_case cases[] = {
    {"allocates", allocates}, {"outlives", outlives},     {"twice", twice},
    {"captured", captured},   {"restricted", restricted}, {"updated", updated},
    {"moved", moved},         {"counted", counted},       {"bad_requests", bad_requests}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
