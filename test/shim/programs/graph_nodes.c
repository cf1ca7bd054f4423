/* Nodes of graphs by the generic calls, their edges, attributes and switches, and updates of executables. */
#include <sys/stat.h>
#include <unistd.h>

#include "graph_check.h"

static int set_node(void *node, struct node_params *params) {
  return CALL(cuGraphNodeSetParams, (void *, void *), node, params);
}

static int set_exec(void *exec, void *node, struct node_params *params) {
  return CALL(cuGraphExecNodeSetParams, (void *, void *, void *), exec, node, params);
}

static int called;
static void count_call(void *data) {
  called += *(int *)data;
}

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

  /* In the executable only. */
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

  /* In the graph. */
  what = 13;
  OK(set_node(nodes[0], &kernel));
  OK(CALL(cuGraphKernelNodeGetParams_v2, (void *, void *), nodes[0], &read));
  IS(13, *(unsigned *)read.parameters[1]);
  OK(launch(exec, stream));
  IS(12, word_at(memory));

  /* Of another kind, with something in what is not used, of no kind, of kinds that are not carried. */
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
  IS(NOT_SUPPORTED, add_node(&inner, graph, NULL, 0, &wrong));
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

static int edges_of(void *graph, void **from, void **to, struct edge *data, size_t *count) {
  return CALL(cuGraphGetEdges_v2, (void *, void **, void **, void *, size_t *), graph, from, to, data, count);
}

static void edges(void) {
  void *function = put_function(), *graph = new_graph(), *stream = new_stream();
  void *a = NULL, *b = NULL, *c = NULL, *parameters[2], *from[4], *to[4];
  devptr memory = check_alloc(4096);
  unsigned what = 5;
  clear(memory, 4);
  struct node_params kernel = put_node(function, &memory, &what, parameters);
  struct node_params fill = fill_node(memory + 4, 6, 1);
  struct edge programmatic = {.from_port = 1, .type = 1}, plain = {0}, data[4];
  OK(add_node(&a, graph, NULL, 0, &kernel));
#define ADD(node, after, edge_data, params)                                                                  \
  CALL(cuGraphAddNode_v2, (void **, void *, void *const *, const void *, size_t, void *), node, graph,       \
       after, edge_data, 1, params)
  OK(ADD(&b, &a, &programmatic, &kernel));
  IS(INVALID_VALUE, ADD(&c, &a, &programmatic, &fill)); /* only between kernels */
  programmatic.from_port = 3;
  IS(INVALID_VALUE, ADD(&c, &a, &programmatic, &kernel));
  programmatic = (struct edge){.from_port = 1, .type = 1, .reserved = {0, 0, 1}};
  IS(INVALID_VALUE, ADD(&c, &a, &programmatic, &kernel));
  programmatic = (struct edge){.to_port = 1};
  IS(INVALID_VALUE, ADD(&c, &a, &programmatic, &kernel));
  programmatic = (struct edge){.from_port = 2, .type = 1};
  OK(ADD(&c, &b, &plain, &fill));
  size_t count = 4;
  IS(402, edges_of(graph, from, to, NULL, &count)); /* data that would be lost */
  IS(402, CALL(cuGraphGetEdges, (void *, void **, void **, size_t *), graph, from, to, &count));
  OK(edges_of(graph, NULL, NULL, NULL, &count));
  IS(2, count);
  count = 4;
  OK(edges_of(graph, from, to, data, &count));
  IS(2, count);
  TRUE(from[0] == a && to[0] == b && data[0].type == 1 && data[0].from_port == 1);
  TRUE(from[1] == b && to[1] == c && memcmp(&data[1], &plain, sizeof plain) == 0);
  TRUE(from[2] == NULL && to[3] == NULL);
  IS(INVALID_VALUE, edges_of(graph, NULL, NULL, data, &count));
  count = 4;
#define NEIGHBOURS(name, node, data_out)                                                                     \
  CALL(name, (void *, void **, void *, size_t *), node, from, data_out, &count)
  IS(402, NEIGHBOURS(cuGraphNodeGetDependencies_v2, b, NULL));
  OK(NEIGHBOURS(cuGraphNodeGetDependencies_v2, b, data));
  TRUE(count == 1 && from[0] == a && data[0].type == 1);
  count = 4;
  OK(NEIGHBOURS(cuGraphNodeGetDependentNodes_v2, a, data));
  TRUE(count == 1 && from[0] == b && data[0].from_port == 1);
  IS(INVALID_VALUE, NEIGHBOURS(cuGraphNodeGetDependentNodes_v2, graph, data));

#define CHANGE(name, first, second, edge_data)                                                               \
  CALL(name, (void *, void *const *, void *const *, const void *, size_t), graph, first, second, edge_data, 1)
  IS(INVALID_VALUE, CHANGE(cuGraphAddDependencies_v2, &a, &b, &plain)); /* there already */
  IS(INVALID_VALUE, CHANGE(cuGraphAddDependencies_v2, &a, &a, NULL));
  IS(INVALID_VALUE, CHANGE(cuGraphAddDependencies_v2, &a, &c, &programmatic));
  OK(CHANGE(cuGraphAddDependencies_v2, &a, &c, NULL));
  IS(INVALID_VALUE, CHANGE(cuGraphRemoveDependencies_v2, &a, &b, NULL)); /* that edge has data */
  programmatic.from_port = 1;
  OK(CHANGE(cuGraphRemoveDependencies_v2, &a, &b, &programmatic));
  OK(edges_of(graph, from, to, NULL, &count));
  void *exec = new_exec(graph);
  OK(launch(exec, stream));
  IS(5, word_at(memory));
  IS(6, word_at(memory + 4));
  drop(graph, exec);
}

static void captured_edges(void) {
  void *function = put_function(), *stream = new_stream(), *graph = new_graph(), *made = NULL;
  void *first = NULL, *parameters[2];
  const void **tips = NULL;
  const struct edge *data = NULL;
  devptr memory = check_alloc(4096);
  unsigned what = 1;
  int status = -1;
  size_t count = 0;
  clear(memory, 4);
  struct node_params kernel = put_node(function, &memory, &what, parameters);
  struct edge programmatic = {.from_port = 1, .type = 1}, wrong = {.type = 2};
  OK(add_node(&first, graph, NULL, 0, &kernel));
#define BEGIN(edge_data)                                                                                     \
  CALL(cuStreamBeginCaptureToGraph, (void *, void *, void *const *, const void *, size_t, int), stream,      \
       graph, &first, edge_data, 1, 2)
  IS(INVALID_VALUE, BEGIN(&wrong));
  OK(BEGIN(&programmatic));
  IS(402, CALL(cuStreamGetCaptureInfo_v2, (void *, int *, uint64_t *, void **, const void ***, size_t *),
               stream, &status, NULL, NULL, &tips, &count));
  OK(CALL(cuStreamGetCaptureInfo_v3,
          (void *, int *, uint64_t *, void **, const void ***, const struct edge **, size_t *), stream,
          &status, NULL, &made, &tips, &data, &count));
  TRUE(count == 1 && made == graph && tips[0] == first && data[0].type == 1);
  void *to = NULL;
  what = 2;
  OK(CALL(cuLaunchKernel,
          (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
           void **),
          function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
#define UPDATE(nodes, edge_data, number, flags)                                                              \
  CALL(cuStreamUpdateCaptureDependencies_v2, (void *, void **, const void *, size_t, unsigned), stream,      \
       nodes, edge_data, number, flags)
  IS(INVALID_VALUE, UPDATE(&first, &wrong, 1, 0));
  IS(INVALID_VALUE, UPDATE(&first, NULL, 1, 2));
  IS(INVALID_VALUE, UPDATE(&to, NULL, 1, 0));
  OK(UPDATE(&first, &programmatic, 1, 1));
  /* A fill cannot begin before that kernel has ended. */
  IS(INVALID_VALUE, CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory + 4, 9, 1, stream));
  OK(UPDATE(&first, NULL, 1, 1));
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory + 4, 9, 1, stream));
  OK(CALL(cuStreamEndCapture, (void *, void **), stream, &made));
  TRUE(made == graph);
  IS(401, UPDATE(&first, NULL, 1, 1));
  void *exec = new_exec(graph);
  OK(launch(exec, stream));
  IS(2, word_at(memory));
  IS(9, word_at(memory + 4));
  drop(graph, exec);
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

  /* An executable's launch cannot cease to be cooperative. */
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

static void switches(void) {
  void *function = put_function(), *graph = new_graph(), *other = new_graph(), *stream = new_stream();
  void *kernel_node = NULL, *fill_at = NULL, *read_at = NULL, *call_at = NULL, *foreign = NULL,
       *parameters[2];
  devptr memory = check_alloc(4096);
  unsigned what = 5, on = 9, in = 0;
  int step = 1;
  clear(memory, 4);
  struct node_params kernel = put_node(function, &memory, &what, parameters);
  struct node_params fill = fill_node(memory + 4, 6, 1);
  struct node_params read = {.type = COPY, .of.copy.copy = {.width = 4, .height = 1, .depth = 1}};
  read.of.copy.copy.source.type = 2;
  read.of.copy.copy.source.device = memory + 4;
  read.of.copy.copy.destination.type = 1;
  read.of.copy.copy.destination.host = &in;
  struct node_params call = {.type = FUNCTION, .of.function = {count_call, &step}};
  OK(add_node(&kernel_node, graph, NULL, 0, &kernel));
  OK(add_node(&fill_at, graph, &kernel_node, 1, &fill));
  OK(add_node(&read_at, graph, &fill_at, 1, &read));
  OK(add_node(&call_at, graph, &read_at, 1, &call));
  OK(add_node(&foreign, other, NULL, 0, &fill));
  void *exec = new_exec(graph);
#define SWITCH(node, value) CALL(cuGraphNodeSetEnabled, (void *, void *, unsigned), exec, node, value)
#define IS_ON(node) CALL(cuGraphNodeGetEnabled, (void *, void *, unsigned *), exec, node, &on)
  OK(IS_ON(kernel_node));
  IS(1, on);
  OK(SWITCH(kernel_node, 0));
  OK(SWITCH(read_at, 0));
  OK(IS_ON(read_at));
  IS(0, on);
  OK(launch(exec, stream));
  IS(0, word_at(memory));
  IS(6, word_at(memory + 4));
  IS(0, in);
  what = 7;
  OK(set_exec(exec, kernel_node, &kernel)); /* keeps it switched off */
  OK(launch(exec, stream));
  IS(0, word_at(memory));
  OK(SWITCH(kernel_node, 2));
  OK(IS_ON(kernel_node));
  IS(1, on);
  OK(SWITCH(read_at, 1));
  OK(launch(exec, stream));
  IS(7, word_at(memory));
  IS(6, in);
  OK(SWITCH(fill_at, 0));
  OK(SWITCH(fill_at, 0));
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), memory + 4, 1, 1));
  OK(launch(exec, stream));
  IS(1, in);
  IS(INVALID_VALUE, SWITCH(call_at, 0)); /* functions cannot be */
  IS(INVALID_VALUE, IS_ON(call_at));
  IS(INVALID_VALUE, SWITCH(foreign, 0));
  IS(INVALID_VALUE, SWITCH(NULL, 0));
  IS(INVALID_VALUE, CALL(cuGraphNodeSetEnabled, (void *, void *, unsigned), graph, fill_at, 0));
  IS(INVALID_VALUE, CALL(cuGraphNodeGetEnabled, (void *, void *, unsigned *), exec, fill_at, NULL));
  drop(graph, exec);
  drop(other, NULL);
}

static void events(void) {
  void *graph = new_graph(), *stream = new_stream(), *held = new_stream(), *event[3] = {0};
  void *record = NULL, *wait = NULL, *fill_at = NULL, *got = NULL;
  devptr memory = check_alloc(4096);
  clear(memory, 4);
  for (int i = 0; i < 3; i++) MUST(CALL(cuEventCreate, (void **, unsigned), &event[i], 2));
  struct node_params recorded = {.type = RECORD, .of.event = event[0]};
  struct node_params waited = {.type = WAIT, .of.event = event[1]};
  struct node_params fill = fill_node(memory, 6, 1);
  OK(add_node(&wait, graph, NULL, 0, &waited));
  OK(add_node(&fill_at, graph, &wait, 1, &fill));
  OK(add_node(&record, graph, &fill_at, 1, &recorded));
  void *exec = new_exec(graph);
  /* What it waits for is behind a value that is written later. */
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

  /* A capture makes such nodes of what is called external. */
  IS(INVALID_VALUE, CALL(cuEventRecordWithFlags, (void *, void *, unsigned), event[0], stream, 1));
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
  read.list[0].value = 6; /* a program changes what it was given and gives it back */
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

static void children(void) {
  void *graph = new_graph(), *child = new_graph(), *shaped = new_graph(), *longer = new_graph();
  void *stream = new_stream(), *before = NULL, *node = NULL, *at = NULL, *embedded = NULL, *first = NULL;
  devptr memory = check_alloc(4096);
  clear(memory, 16);
  struct node_params one = fill_node(memory, 1, 1), two = fill_node(memory + 4, 2, 1);
  struct node_params nested = {.type = GRAPH, .of.child = {child, 0}};
  OK(add_node(&first, child, NULL, 0, &one));
  OK(add_node(&at, child, &first, 1, &two));
  struct node_params lead = fill_node(memory + 8, 9, 1);
  OK(add_node(&before, graph, NULL, 0, &lead));
  OK(add_node(&node, graph, &before, 1, &nested));
  one.of.fill.value = 3;
  two.of.fill.value = 4;
  OK(add_node(&first, shaped, NULL, 0, &one));
  OK(add_node(&at, shaped, &first, 1, &two));
  OK(add_node(&first, longer, NULL, 0, &one));
  void *exec = new_exec(graph);
#define SET_CHILD(with) CALL(cuGraphExecChildGraphNodeSetParams, (void *, void *, void *), exec, node, with)
  OK(launch(exec, stream));
  IS(1, word_at(memory));
  OK(SET_CHILD(shaped));
  OK(launch(exec, stream));
  IS(3, word_at(memory));
  IS(4, word_at(memory + 4));
  IS(INVALID_VALUE, SET_CHILD(longer));
  IS(INVALID_VALUE, SET_CHILD(NULL));
  IS(INVALID_VALUE, CALL(cuGraphExecChildGraphNodeSetParams, (void *, void *, void *), exec, before, shaped));
  OK(launch(exec, stream));
  IS(3, word_at(memory));

  /* A node inside of the child is the executable's, too. */
  OK(CALL(cuGraphChildGraphNodeGetGraph, (void *, void **), node, &embedded));
  size_t count = 1;
  OK(CALL(cuGraphGetNodes, (void *, void **, size_t *), embedded, &first, &count));
  one.of.fill.value = 5;
  OK(set_exec(exec, first, &one));
  OK(launch(exec, stream));
  IS(5, word_at(memory));
  IS(INVALID_VALUE, CALL(cuGraphDestroy, (void *), embedded));
  nested.of.child.graph = longer;
  OK(set_node(node, &nested));
  OK(CALL(cuGraphChildGraphNodeGetGraph, (void *, void **), node, &embedded));
  OK(CALL(cuGraphGetNodes, (void *, void **, size_t *), embedded, NULL, &count));
  IS(1, count);
  drop(graph, exec);
  drop(child, NULL);
  drop(shaped, NULL);
  drop(longer, NULL);
}

static int update(void *exec, void *graph, struct update_info *info) {
  *info = (struct update_info){.result = -1};
  return CALL(cuGraphExecUpdate_v2, (void *, void *, void *), exec, graph, info);
}

static void updates(void) {
  void *graph = new_graph(), *changed = new_graph(), *stream = new_stream();
  void *a = NULL, *b = NULL, *c = NULL;
  devptr memory = check_alloc(4096);
  unsigned host = 7;
  struct update_info info;
  clear(memory, 16);
  struct node_params fill = fill_node(memory, 1, 1), empty = {.type = EMPTY};
  OK(add_node(&a, graph, NULL, 0, &fill));
  OK(add_node(&b, graph, &a, 1, &fill));
  OK(add_node(&c, graph, &b, 1, &fill));
  void *exec = new_exec(graph);

  fill.of.fill.value = 2;
  OK(add_node(&a, changed, NULL, 0, &fill));
  IS(UPDATE_FAILURE, update(exec, changed, &info)); /* fewer */
  IS(2, info.result);
  TRUE(info.error_node == NULL && info.error_from == NULL);
  OK(add_node(&b, changed, &a, 1, &fill));
  OK(add_node(&c, changed, &a, 1, &fill)); /* behind another one */
  IS(UPDATE_FAILURE, update(exec, changed, &info));
  IS(2, info.result);
  TRUE(info.error_node == c && info.error_from == a);
  OK(CALL(cuGraphAddDependencies, (void *, void *const *, void *const *, size_t), changed, &b, &c, 1));
  IS(UPDATE_FAILURE, update(exec, changed, &info)); /* behind both */
  TRUE(info.result == 2 && info.error_node == c && info.error_from == NULL);
  OK(CALL(cuGraphDestroyNode, (void *), c));
  OK(add_node(&c, changed, &b, 1, &empty));
  IS(UPDATE_FAILURE, update(exec, changed, &info));
  IS(3, info.result);
  TRUE(info.error_node == c);
  OK(CALL(cuGraphDestroyNode, (void *), c));
  OK(launch(exec, stream));
  IS(1, word_at(memory)); /* nothing of all this was done */
  OK(add_node(&c, changed, &b, 1, &fill));
  OK(update(exec, changed, &info));
  IS(0, info.result);
  OK(launch(exec, stream));
  IS(2, word_at(memory));

  /* The same bytes by another width. */
  OK(CALL(cuGraphDestroyNode, (void *), c));
  fill.of.fill = (struct fill_params){memory, 0, 3, 1, 1, 1, NULL};
  OK(add_node(&c, changed, &b, 1, &fill));
  OK(update(exec, changed, &info));
  OK(launch(exec, stream));
  IS(3, word_at(memory) & 0xff);
  drop(changed, NULL);
  drop(graph, exec);

  /* A copy between other kinds of memory. */
  graph = new_graph(), changed = new_graph();
  struct node_params copy = {.type = COPY, .of.copy.copy = {.width = 4, .height = 1, .depth = 1}};
  copy.of.copy.copy.source.type = copy.of.copy.copy.destination.type = 2;
  copy.of.copy.copy.source.device = memory;
  copy.of.copy.copy.destination.device = memory + 8;
  OK(add_node(&a, graph, NULL, 0, &copy));
  copy.of.copy.copy.source.type = 1;
  copy.of.copy.copy.source.host = &host;
  OK(add_node(&b, changed, NULL, 0, &copy));
  exec = new_exec(graph);
  IS(UPDATE_FAILURE, update(exec, changed, &info));
  IS(5, info.result);
  TRUE(info.error_node == b);
  IS(INVALID_VALUE, set_exec(exec, a, &copy));
  IS(INVALID_VALUE, update(exec, NULL, &info));
  IS(1, info.result);
  IS(INVALID_VALUE, update(graph, changed, &info));
  void *node = NULL;
  int result = -1;
  IS(UPDATE_FAILURE,
     CALL(cuGraphExecUpdate, (void *, void *, void **, int *), exec, changed, &node, &result));
  TRUE(node == b && result == 5);
  drop(changed, NULL);
  drop(graph, exec);
}

static char *text_of(const char *path) {
  FILE *file = fopen(path, "r");
  char *text = (char *)check_bytes(65536);
  if (file == NULL) return text;
  text[fread(text, 1, 65535, file)] = '\0';
  fclose(file);
  return text;
}

static void dot(void) {
  void *function = put_function(), *graph = new_graph(), *child = new_graph();
  void *a = NULL, *b = NULL, *c = NULL, *parameters[2];
  devptr memory = check_alloc(4096);
  unsigned what = 5;
  char path[] = "/tmp/vgpu-dot-XXXXXX";
  int file = mkstemp(path);
  TRUE(file >= 0);
  close(file);
  struct node_params kernel = put_node(function, &memory, &what, parameters);
  struct node_params fill = fill_node(memory + 4, 6, 1);
  struct node_params nested = {.type = GRAPH, .of.child = {child, 0}};
  OK(add_node(&a, child, NULL, 0, &fill));
  OK(add_node(&a, graph, NULL, 0, &kernel));
  OK(add_node(&b, graph, &a, 1, &fill));
  OK(add_node(&c, graph, &b, 1, &nested));
#define PRINT(to, flags) CALL(cuGraphDebugDotPrint, (void *, const char *, unsigned), graph, to, flags)
  OK(PRINT(path, 0));
  char *text = text_of(path);
  TRUE(strncmp(text, "digraph dot {", 13) == 0);
  TRUE(strstr(text, "KERNEL\\nput\"") != NULL);
  TRUE(strstr(text, "\"graph_1_node_0\" -> \"graph_1_node_1\"") != NULL);
  TRUE(strstr(text, "\"graph_2_node_0\"") != NULL);
  TRUE(strstr(text, "grid") == NULL);
  int depth = 0;
  bool quoted = false;
  for (const char *at = text; *at != '\0'; at++) {
    if (*at == '"') quoted = !quoted;
    if (!quoted) depth += (*at == '{') - (*at == '}');
  }
  TRUE(depth == 0 && !quoted);
  OK(PRINT(path, 1 | 1 << 10));
  text = text_of(path);
  TRUE(strstr(text, "grid 1 1 1, block 1 1 1") != NULL && strstr(text, "value 0x6") != NULL);
  IS(304, PRINT("/nonexistent/graph.dot", 0));
  IS(INVALID_VALUE, PRINT(NULL, 0));
  IS(INVALID_VALUE, PRINT(path, 1 << 20));
  IS(INVALID_VALUE, CALL(cuGraphDebugDotPrint, (void *, const char *, unsigned), a, path, 0));
  unlink(path);
  drop(graph, NULL);
  drop(child, NULL);
}

static const struct check_case cases[] = {{"generic", generic},
                                          {"edges", edges},
                                          {"captured_edges", captured_edges},
                                          {"attributes", attributes},
                                          {"switches", switches},
                                          {"events", events},
                                          {"memory_operations", memory_operations},
                                          {"children", children},
                                          {"updates", updates},
                                          {"dot", dot}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
