/* Nodes of graphs by the generic calls: nodes of every kind, and attributes that only some kinds have. */
#include "graph_check.h"

static void generic(void) {
  void *function = put_function(), *stream = new_stream(), *graph = new_graph(), *child = new_graph();
  void *parameters[2], *nodes[5] = {0}, *inner = NULL;
  devptr memory = check_alloc(4096), to = memory;
  unsigned what = 11;
  int step = 3;
  clear(memory, 1024);
  struct node_params kernel = put_node(function, &to, &what, parameters);
  struct node_params fill = fill_node(memory + 16, 22, 4);
  struct node_params copy = {.type = COPY, .of.copy.copy = {.width = 16, .height = 1, .depth = 1}};
  copy.of.copy.copy.source.type = copy.of.copy.copy.destination.type = 2;
  copy.of.copy.copy.source.device = memory + 16;
  copy.of.copy.copy.destination.device = memory + 64;
  struct node_params call = {.type = FUNCTION, .of.function = {count_call, &step}};
  struct node_params nested = {.type = GRAPH, .of.child = {child, 0}};
  struct node_params inside = fill_node(memory + 128, 33, 1);
  struct node_params empty = {.type = EMPTY};
  OK(add_node(&inner, child, NULL, 0, &inside));
  OK(add_node(&nodes[0], graph, NULL, 0, &kernel));
  OK(add_node(&nodes[1], graph, &nodes[0], 1, &fill));
  OK(add_node(&nodes[2], graph, &nodes[1], 1, &copy));
  OK(add_node(&nodes[3], graph, &nodes[2], 1, &call));
  OK(add_node(&nodes[4], graph, &nodes[3], 1, &nested));
  OK(add_node(&inner, graph, nodes, 5, &empty));
  void *exec = new_exec(graph);
  OK(launch(exec, stream));
  IS(11, word_at(memory));
  IS(22, word_at(memory + 28));
  IS(22, word_at(memory + 76));
  IS(33, word_at(memory + 128));
  IS(3, called);

  /* Only in the executable. */
  what = 12;
  fill.of.fill.value = 23;
  copy.of.copy.copy.destination.device = memory + 80;
  step = 4;
  OK(set_exec(exec, nodes[0], &kernel));
  OK(set_exec(exec, nodes[1], &fill));
  OK(set_exec(exec, nodes[2], &copy));
  OK(set_exec(exec, nodes[3], &call));
  OK(launch(exec, stream));
  IS(12, word_at(memory));
  IS(23, word_at(memory + 80));
  IS(7, called);
  struct kernel_params read = {0};
  OK(CALL(cuGraphKernelNodeGetParams_v2, (void *, void *), nodes[0], &read));
  IS(11, *(unsigned *)read.parameters[1]);
  struct fill_params filled = {0};
  OK(CALL(cuGraphMemsetNodeGetParams, (void *, void *), nodes[1], &filled));
  IS(22, filled.value);

  /* In the graph, too. */
  what = 13;
  OK(set_node(nodes[0], &kernel));
  OK(CALL(cuGraphKernelNodeGetParams_v2, (void *, void *), nodes[0], &read));
  IS(13, *(unsigned *)read.parameters[1]);
  OK(launch(exec, stream));
  IS(12, word_at(memory));

  /*
   * Of another kind, with a value in a reserved field, of an invalid kind, and of kinds that are not carried.
   */
  IS(INVALID_VALUE, set_node(nodes[0], &fill));
  IS(INVALID_VALUE, set_exec(exec, nodes[0], &fill));
  IS(INVALID_VALUE, set_exec(NULL, nodes[1], &fill));
  IS(INVALID_VALUE, set_node(NULL, &fill));
  IS(INVALID_VALUE, add_node(&inner, graph, NULL, 0, NULL));
  IS(INVALID_VALUE, add_node(NULL, graph, NULL, 0, &fill));
  IS(INVALID_VALUE, add_node(&inner, NULL, NULL, 0, &fill));
  fill.of.bytes[60] = 1;
  IS(INVALID_VALUE, add_node(&inner, graph, NULL, 0, &fill));
  fill = fill_node(memory, 1, 1);
  fill.reserved[1] = 1;
  IS(INVALID_VALUE, add_node(&inner, graph, NULL, 0, &fill));
  fill = fill_node(memory, 1, 1);
  fill.reserved_too = 1;
  IS(INVALID_VALUE, add_node(&inner, graph, NULL, 0, &fill));
  fill = fill_node(memory, 1, 2000);
  IS(INVALID_VALUE, add_node(&inner, graph, NULL, 0, &fill)); /* beyond the memory */
  fill = fill_node(memory, 1, 1);
  fill.of.fill.context = &inner;
  IS(INVALID_CONTEXT, add_node(&inner, graph, NULL, 0, &fill));
  struct node_params wrong = {.type = -1};
  IS(INVALID_VALUE, add_node(&inner, graph, NULL, 0, &wrong));
  wrong.type = 14;
  IS(INVALID_VALUE, add_node(&inner, graph, NULL, 0, &wrong));
  wrong.type = CONDITIONAL;
  IS(INVALID_VALUE, add_node(&inner, graph, NULL, 0, &wrong)); /* no handle (graph_conditions.c) */
  wrong.type = SIGNAL;
  IS(NOT_SUPPORTED, add_node(&inner, graph, NULL, 0, &wrong));
  void *twice[] = {nodes[0], nodes[0]};
  fill = fill_node(memory, 1, 1);
  IS(INVALID_VALUE, add_node(&inner, graph, twice, 2, &fill));
  IS(INVALID_VALUE, add_node(&inner, graph, NULL, 1, &fill));
  IS(INVALID_VALUE, add_node(&inner, child, nodes, 1, &fill)); /* another graph's */
  nested.of.child.graph = graph;
  IS(INVALID_VALUE, add_node(&inner, graph, NULL, 0, &nested));
  nested.of.child.graph = child;
  nested.of.child.ownership = 2;
  IS(INVALID_VALUE, add_node(&inner, graph, NULL, 0, &nested));
  drop(graph, exec);
  drop(child, NULL);
  OK(CALL(cuCtxSynchronize, (void), ));
}

/* A graph that is moved into a child node must not contain the graph of that node, at any depth. */
static void circles(void) {
  enum { MOVE = 1 };
  void *a = new_graph(), *b = new_graph(), *c = new_graph(), *leaf = new_graph(), *node = NULL, *set = NULL;
  struct node_params moved = {.type = GRAPH, .of.child = {.graph = a, .ownership = MOVE}};
  OK(add_node(&node, b, NULL, 0, &moved));
  moved.of.child.graph = b;
  IS(INVALID_VALUE, add_node(&node, a, NULL, 0, &moved));
  OK(add_node(&node, c, NULL, 0, &moved));
  moved.of.child.graph = c;
  IS(INVALID_VALUE, add_node(&node, a, NULL, 0, &moved));
  struct node_params cloned = {.type = GRAPH, .of.child.graph = leaf};
  OK(add_node(&set, a, NULL, 0, &cloned));
  IS(INVALID_VALUE, set_node(set, &moved));
  /* A copy is another graph. */
  cloned.of.child.graph = c;
  OK(set_node(set, &cloned));
  drop(NULL, new_exec(c));
  drop(c, NULL);
  drop(leaf, NULL);
}

static void attributes(void) {
  void *function = put_function(), *graph = new_graph(), *stream = new_stream();
  void *a = NULL, *b = NULL, *f = NULL, *parameters[2];
  devptr memory = check_alloc(4096);
  unsigned what = 5;
  int value[16] = {0};
  struct node_params kernel = put_node(function, &memory, &what, parameters);
  struct node_params fill = fill_node(memory + 4, 6, 1);
  OK(add_node(&a, graph, NULL, 0, &kernel));
  OK(add_node(&b, graph, &a, 1, &kernel));
  OK(add_node(&f, graph, &b, 1, &fill));
#define GET(node, id, to) CALL(cuGraphKernelNodeGetAttribute, (void *, int, void *), node, id, to)
#define SET(node, id, from) CALL(cuGraphKernelNodeSetAttribute, (void *, int, const void *), node, id, from)
#define COPY_FROM(to, from) CALL(cuGraphKernelNodeCopyAttributes, (void *, void *), to, from)
  value[0] = 77;
  OK(GET(a, 8, value));
  IS(0, value[0]);
  value[0] = -3; /* priority */
  OK(SET(a, 8, value));
  value[0] = 1; /* cooperative */
  OK(SET(a, 2, value));
  memset(value, 0, sizeof value);
  OK(GET(a, 8, value));
  IS(-3, value[0]);
  OK(COPY_FROM(b, a));
  OK(GET(b, 2, value));
  IS(1, value[0]);
  what = 6;
  OK(set_node(b, &kernel)); /* leaves them */
  OK(GET(b, 8, value));
  IS(-3, value[0]);
  struct kernel_params read = {0};
  OK(CALL(cuGraphKernelNodeGetParams_v2, (void *, void *), b, &read));
  IS(6, *(unsigned *)read.parameters[1]);
  void *exec = new_exec(graph);
  OK(launch(exec, stream));
  IS(6, word_at(memory));
  what = 8;
  OK(set_exec(exec, b, &kernel));
  OK(launch(exec, stream));
  IS(8, word_at(memory));

  /* A cooperative launch in an executable must stay cooperative. */
  value[0] = 0;
  OK(SET(b, 2, value));
  struct update_info info = {0};
  IS(UPDATE_FAILURE, CALL(cuGraphExecUpdate_v2, (void *, void *, void *), exec, graph, &info));
  IS(8, info.result);
  TRUE(info.error_node == b);

  IS(INVALID_VALUE, GET(f, 8, value));
  IS(INVALID_VALUE, SET(f, 8, value));
  IS(INVALID_VALUE, GET(a, 999, value));
  IS(INVALID_VALUE, SET(a, 0, value));
  IS(INVALID_VALUE, SET(a, 8, NULL));
  IS(INVALID_VALUE, GET(a, 8, NULL));
  IS(NOT_SUPPORTED, SET(a, 13, value)); /* changed from the device */
  IS(INVALID_VALUE, COPY_FROM(a, f));
  IS(INVALID_VALUE, COPY_FROM(NULL, a));
  drop(graph, exec);
}

static void events(void) {
  void *graph = new_graph(), *stream = new_stream(), *held = new_stream(), *event[3] = {0};
  void *record = NULL, *wait = NULL, *fill_at = NULL, *got = NULL, *context = NULL;
  devptr memory = check_alloc(4096);
  clear(memory, 4);
  for (int i = 0; i < 3; i++) MUST(CALL(cuEventCreate, (void **, unsigned), &event[i], 2));
  struct node_params recorded = {.type = RECORD, .of.event = event[0]};
  struct node_params waited = {.type = WAIT, .of.event = event[1]};
  struct node_params fill = fill_node(memory, 6, 1);
  OK(add_node(&wait, graph, NULL, 0, &waited));
  OK(add_node(&fill_at, graph, &wait, 1, &fill));
  /* An event knows its context, so the thread needs none. */
  MUST(CALL(cuCtxPopCurrent_v2, (void **), &context));
  OK(add_node(&record, graph, &fill_at, 1, &recorded));
  MUST(CALL(cuCtxPushCurrent_v2, (void *), context));
  void *exec = new_exec(graph);
  /* The event that the graph waits for comes after a value that is written later. */
  OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, unsigned, unsigned), held, memory + 8, 1, 0));
  OK(CALL(cuEventRecord, (void *, void *), event[1], held));
  OK(CALL(cuGraphLaunch, (void *, void *), exec, stream));
  IS(NOT_READY, CALL(cuEventQuery, (void *), event[0]));
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory + 8, 1, 1, new_stream()));
  OK(CALL(cuEventSynchronize, (void *), event[0]));
  IS(6, word_at(memory));

  OK(CALL(cuGraphEventRecordNodeSetEvent, (void *, void *), record, event[2]));
  OK(CALL(cuGraphEventRecordNodeGetEvent, (void *, void **), record, &got));
  TRUE(got == event[2]);
  OK(CALL(cuGraphEventWaitNodeSetEvent, (void *, void *), wait, event[2]));
  OK(CALL(cuGraphEventWaitNodeGetEvent, (void *, void **), wait, &got));
  TRUE(got == event[2]);
  OK(CALL(cuGraphExecEventRecordNodeSetEvent, (void *, void *, void *), exec, record, event[1]));
  OK(CALL(cuGraphExecEventWaitNodeSetEvent, (void *, void *, void *), exec, wait, event[0]));
  OK(launch(exec, stream));
  OK(CALL(cuEventQuery, (void *), event[1]));
  IS(INVALID_VALUE, CALL(cuGraphEventRecordNodeSetEvent, (void *, void *), wait, event[2]));
  IS(INVALID_VALUE, CALL(cuGraphEventWaitNodeSetEvent, (void *, void *), record, event[2]));
  IS(INVALID_HANDLE, CALL(cuGraphEventWaitNodeSetEvent, (void *, void *), wait, graph));
  IS(INVALID_HANDLE, CALL(cuGraphExecEventRecordNodeSetEvent, (void *, void *, void *), exec, record, NULL));
  IS(INVALID_VALUE, CALL(cuGraphExecEventRecordNodeSetEvent, (void *, void *, void *), exec, wait, event[0]));
  IS(INVALID_VALUE, CALL(cuGraphExecEventWaitNodeSetEvent, (void *, void *, void *), NULL, wait, event[0]));
  drop(graph, exec);

  /* A capture makes such nodes of external records and waits. */
  IS(401, CALL(cuEventRecordWithFlags, (void *, void *, unsigned), event[0], stream, 1));
  OK(CALL(cuStreamBeginCapture_v2, (void *, int), stream, 0));
  OK(CALL(cuStreamWaitEvent, (void *, void *, unsigned), stream, event[1], 1));
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory, 7, 1, stream));
  OK(CALL(cuEventRecordWithFlags, (void *, void *, unsigned), event[0], stream, 1));
  OK(CALL(cuStreamEndCapture, (void *, void **), stream, &graph));
  void *nodes[3] = {0};
  size_t count = 3;
  int kinds[3] = {-1, -1, -1};
  OK(CALL(cuGraphGetNodes, (void *, void **, size_t *), graph, nodes, &count));
  IS(3, count);
  for (int i = 0; i < 3; i++) OK(CALL(cuGraphNodeGetType, (void *, int *), nodes[i], &kinds[i]));
  TRUE(kinds[0] == WAIT && kinds[1] == FILL && kinds[2] == RECORD);
  exec = new_exec(graph);
  OK(CALL(cuGraphLaunch, (void *, void *), exec, stream));
  OK(CALL(cuEventSynchronize, (void *), event[0]));
  IS(7, word_at(memory));
  drop(graph, exec);
}

static void memory_operations(void) {
  void *graph = new_graph(), *stream = new_stream(), *node = NULL, *fill_at = NULL;
  devptr memory = check_alloc(4096);
  clear(memory, 16);
  struct operation list[3] = {{.type = 2, .address = memory, .value = 5},       /* write 32 */
                              {.type = 1, .address = memory + 8, .value = 3},   /* wait 32 */
                              {.type = 5, .address = memory + 16, .value = 7}}; /* write 64 */
  struct node_params ops = {.type = MEMORY_OPS, .of.operations = {.count = 3, .list = list}};
  struct node_params fill = fill_node(memory + 32, 4, 1);
  OK(add_node(&node, graph, NULL, 0, &ops));
  OK(add_node(&fill_at, graph, &node, 1, &fill));
  void *exec = new_exec(graph);
  OK(CALL(cuGraphLaunch, (void *, void *), exec, stream));
  IS(NOT_READY, CALL(cuStreamQuery, (void *), stream));
  OK(CALL(cuStreamWriteValue32_v2, (void *, devptr, unsigned, unsigned), new_stream(), memory + 8, 3, 0));
  OK(CALL(cuStreamSynchronize, (void *), stream));
  IS(5, word_at(memory));
  IS(7, word_at(memory + 16));
  IS(4, word_at(memory + 32));

  struct operations_params read = {0};
  OK(CALL(cuGraphBatchMemOpNodeGetParams, (void *, void *), node, &read));
  IS(3, read.count);
  IS(0, memcmp(read.list, list, sizeof list));
  read.list[0].value = 6; /* a program changes the parameters that it read and sets them */
  OK(CALL(cuGraphBatchMemOpNodeSetParams, (void *, const void *), node, &read));
  OK(CALL(cuGraphBatchMemOpNodeGetParams, (void *, void *), node, &read));
  IS(6, read.list[0].value);
#define SET_OPS()                                                                                            \
  CALL(cuGraphExecBatchMemOpNodeSetParams, (void *, void *, const void *), exec, node, &ops.of)
  list[0].value = 8;
  list[2].address = memory + 24;
  list[1].flags = 1; /* from greater or equal to equal */
  OK(SET_OPS());
  OK(launch(exec, stream));
  IS(8, word_at(memory));
  IS(7, word_at(memory + 24));
  ops.of.operations.count = 2;
  IS(INVALID_VALUE, SET_OPS());
  ops.of.operations.count = 3;
  list[0].type = 5;
  IS(INVALID_VALUE, SET_OPS());
  list[0].type = 3;
  IS(NOT_SUPPORTED, SET_OPS());
  list[0].type = 2;
  list[0].address = 8;
  IS(INVALID_VALUE, SET_OPS());
  list[0].address = memory + 2;
  IS(INVALID_VALUE, SET_OPS());
  list[0].address = memory;
  ops.of.operations.context = &node;
  IS(INVALID_CONTEXT, SET_OPS());
  ops.of.operations.context = NULL;
  ops.of.operations.flags = 1;
  IS(INVALID_VALUE, SET_OPS());
  ops.of.operations.flags = 0;
  ops.of.operations.list = NULL;
  IS(INVALID_VALUE, SET_OPS());
  IS(INVALID_VALUE, CALL(cuGraphBatchMemOpNodeGetParams, (void *, void *), fill_at, &read));
  drop(graph, exec);

  /* Captured, one batch is one node. */
  list[1].address = memory;
  list[1].value = 8;
  OK(CALL(cuStreamBeginCapture_v2, (void *, int), stream, 0));
  OK(CALL(cuStreamBatchMemOp_v2, (void *, unsigned, void *, unsigned), stream, 3, list, 0));
  OK(CALL(cuStreamEndCapture, (void *, void **), stream, &graph));
  size_t count = 1;
  int kind = -1;
  OK(CALL(cuGraphGetNodes, (void *, void **, size_t *), graph, &node, &count));
  OK(CALL(cuGraphNodeGetType, (void *, int *), node, &kind));
  IS(1, count);
  IS(MEMORY_OPS, kind);
  exec = new_exec(graph);
  OK(launch(exec, stream));
  drop(graph, exec);
}

/* Parameters of another kind are refused as such, also of a kernel's node whose module is gone. */
static void other_kinds(void) {
  void *module = NULL, *function = NULL, *graph = new_graph(), *node = NULL, *parameters[2];
  devptr memory = check_alloc(4096);
  unsigned what = 5;
  struct fill_params fill;
  struct kernel_params kernel;
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, put_text));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "put"));
  struct node_params put = put_node(function, &memory, &what, parameters);
  MUST(add_node(&node, graph, NULL, 0, &put));
  IS(INVALID_VALUE, CALL(cuGraphMemsetNodeGetParams, (void *, void *), node, &fill));
  OK(CALL(cuModuleUnload, (void *), module));
  IS(INVALID_VALUE, CALL(cuGraphMemsetNodeGetParams, (void *, void *), node, &fill));
  IS(INVALID_HANDLE, CALL(cuGraphKernelNodeGetParams_v2, (void *, void *), node, &kernel));
  drop(graph, NULL);
}

static const struct check_case cases[] = {
    {"generic", generic}, {"other_kinds", other_kinds}, {"attributes", attributes},
    {"circles", circles}, {"events", events},           {"memory_operations", memory_operations}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
