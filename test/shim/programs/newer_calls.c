/* Calls of CUDA 13.1 to 13.5. */
#include <unistd.h>

#include "graph_check.h"

enum { HOST_MEMORY = 2, TENSOR_MAP_LARGE_TENSOR_MIN_SIZE = 160 };

static int params_of(void *node, struct node_params *params) {
  memset(params, 0xff, sizeof *params);
  return CALL(cuGraphNodeGetParams, (void *, void *), node, params);
}

static void described(void) {
  void *function = put_function(), *graph = new_graph(), *child = new_graph(), *event = NULL;
  void *parameters[2], *nodes[6] = {0}, *inside = NULL, *stream = new_stream();
  devptr memory = check_alloc(4096), to = memory;
  unsigned what = 11;
  int step = 3;
  struct node_params kernel = put_node(function, &to, &what, parameters), read;
  struct node_params fill = fill_node(memory + 16, 22, 4);
  struct node_params copy = {.type = COPY, .of.copy.copy = {.width = 16, .height = 1, .depth = 1}};
  copy.of.copy.copy.source.type = copy.of.copy.copy.destination.type = 2;
  copy.of.copy.copy.source.device = memory + 16;
  copy.of.copy.copy.destination.device = memory + 64;
  struct node_params call = {.type = FUNCTION, .of.function = {.call = count_call, .data = &step}};
  call.of.bytes[16] = 1; /* CU_HOST_TASK_SPINWAIT */
  struct node_params nested = {.type = GRAPH, .of.child = {child, 0}}, empty = {.type = EMPTY};
  MUST(CALL(cuEventCreate, (void **, unsigned), &event, 2));
  struct node_params record = {.type = RECORD, .of.event = event};
  OK(add_node(&inside, child, NULL, 0, &empty));
  struct node_params *all[] = {&kernel, &fill, &copy, &call, &nested, &record};
  for (int i = 0; i < 6; i++) OK(add_node(&nodes[i], graph, NULL, 0, all[i]));

  OK(params_of(nodes[0], &read));
  TRUE(read.type == KERNEL && read.of.kernel.function == function && read.of.kernel.block[2] == 1);
  IS(11, *(unsigned *)read.of.kernel.parameters[1]);
  for (int i = 1; i < 6; i++) {
    OK(params_of(nodes[i], &read));
    if (i == 4) {
      void *own = NULL;
      OK(CALL(cuGraphChildGraphNodeGetGraph, (void *, void **), nodes[i], &own));
      TRUE(read.of.child.graph == own && own != child);
      read.of.child.graph = child;
    }
    TRUE(memcmp(all[i], &read, sizeof read) == 0);
  }
  /* A node takes the parameters that were read from it. */
  OK(params_of(nodes[1], &read));
  read.of.fill.value = 23;
  OK(CALL(cuGraphNodeSetParams_v2, (void *, void *), nodes[1], &read));
  void *exec = new_exec(graph);
  OK(launch(exec, stream));
  IS(11, word_at(memory));
  IS(23, word_at(memory + 16));
  IS(3, called);
  IS(INVALID_VALUE, CALL(cuGraphNodeGetParams, (void *, void *), graph, &read));
  IS(INVALID_VALUE, CALL(cuGraphNodeGetParams, (void *, void *), nodes[0], NULL));
  call.of.bytes[16] = 2;
  IS(INVALID_VALUE, set_node(nodes[3], &call));
  drop(graph, exec);
  drop(child, NULL);
}

/* The other kinds of nodes. */
static void described_too(void) {
  void *graph = new_graph(), *event = NULL, *nodes[6] = {0};
  devptr memory = check_alloc(4096);
  uint64_t handle = 0;
  struct operation list[2] = {{.type = 2, .address = memory, .value = 5},
                              {.type = 5, .address = memory + 16, .value = 7}};
  struct node_params allocate = {.type = ALLOCATE,
                                 .of.allocation = {.pool = {.type = 1, .location_type = 1}, .bytes = 4096}};
  struct node_params release = {.type = RELEASE}, wait = {.type = WAIT}, empty = {.type = EMPTY}, read;
  struct node_params operations = {.type = MEMORY_OPS, .of.operations = {.count = 2, .list = list}};
  struct node_params condition = {.type = CONDITIONAL, .of.condition = {.size = 1}};
  MUST(CALL(cuEventCreate, (void **, unsigned), &event, 2));
  MUST(CALL(cuGraphConditionalHandleCreate, (uint64_t *, void *, void *, unsigned, unsigned), &handle, graph,
            NULL, 1, 1));
  wait.of.event = event;
  condition.of.condition.handle = handle;
  struct node_params *all[] = {&allocate, &release, &wait, &empty, &operations, &condition};
  for (int i = 0; i < 6; i++) {
    OK(add_node(&nodes[i], graph, nodes, i == 1, all[i]));
    if (i == 0) release.of.release = allocate.of.allocation.address;
  }
  for (int i = 0; i < 6; i++) {
    OK(params_of(nodes[i], &read));
    if (i == 4) {
      TRUE(read.of.operations.list != list);
      IS(0, memcmp(read.of.operations.list, list, sizeof list));
      read.of.operations.list = list;
    }
    TRUE(memcmp(all[i], &read, sizeof read) == 0);
  }
  TRUE(condition.of.condition.bodies[0] != NULL);
  drop(graph, NULL);
}

static unsigned graph_number(void *graph) {
  unsigned number = 0;
  OK(CALL(cuGraphGetId, (void *, unsigned *), graph, &number));
  return number;
}

static unsigned place(void *node) {
  unsigned number = 99;
  OK(CALL(cuGraphNodeGetLocalId, (void *, unsigned *), node, &number));
  return number;
}

/* The numbers of graphs and nodes are those in the file for DOT. */
static void named(void) {
  void *graph = new_graph(), *child = new_graph(), *nodes[3] = {0}, *inside = NULL, *owned = NULL,
       *holds = NULL;
  struct node_params empty = {.type = EMPTY}, nested = {.type = GRAPH, .of.child = {child, 0}};
  OK(add_node(&inside, child, NULL, 0, &empty));
  OK(add_node(&nodes[0], graph, NULL, 0, &empty));
  OK(add_node(&nodes[1], graph, NULL, 0, &empty));
  OK(add_node(&nodes[2], graph, NULL, 0, &nested));
  IS(0, place(nodes[0]));
  OK(CALL(cuGraphDestroyNode, (void *), nodes[0]));
  IS(1, place(nodes[1])); /* as before */
  IS(2, place(nodes[2]));
  OK(CALL(cuGraphChildGraphNodeGetGraph, (void *, void **), nodes[2], &owned));
  OK(CALL(cuGraphNodeGetContainingGraph, (void *, void **), nodes[2], &holds));
  TRUE(holds == graph);
  size_t one = 1;
  OK(CALL(cuGraphGetNodes, (void *, void **, size_t *), owned, &inside, &one));
  OK(CALL(cuGraphNodeGetContainingGraph, (void *, void **), inside, &holds));
  TRUE(holds == owned);
  uint64_t first = 0, second = 0;
  OK(CALL(cuGraphNodeGetToolsId, (void *, uint64_t *), nodes[1], &first));
  OK(CALL(cuGraphNodeGetToolsId, (void *, uint64_t *), nodes[2], &second));
  TRUE(first != second);
  void *exec = new_exec(graph);
  unsigned of_exec = 0;
  OK(CALL(cuGraphExecGetId, (void *, unsigned *), exec, &of_exec));
  TRUE(of_exec != 0 && of_exec != graph_number(graph) && graph_number(graph) != graph_number(owned));

  char path[] = "/tmp/vgpu-names-XXXXXX", wanted[64], *text = (char *)check_bytes(65536);
  int file = mkstemp(path);
  TRUE(file >= 0);
  OK(CALL(cuGraphDebugDotPrint, (void *, const char *, unsigned), graph, path, 0));
  TRUE(read(file, text, 65535) > 0);
  snprintf(wanted, sizeof wanted, "\"graph_%u_node_2\" -> \"graph_%u_node_0\"", graph_number(graph),
           graph_number(owned));
  TRUE(strstr(text, wanted) != NULL);
  snprintf(wanted, sizeof wanted, "\"graph_%u_node_1\"", graph_number(graph));
  TRUE(strstr(text, wanted) != NULL);
  close(file);
  unlink(path);
  IS(INVALID_VALUE, CALL(cuGraphGetId, (void *, unsigned *), nodes[1], &of_exec));
  IS(INVALID_VALUE, CALL(cuGraphGetId, (void *, unsigned *), graph, NULL));
  IS(INVALID_VALUE, CALL(cuGraphExecGetId, (void *, unsigned *), graph, &of_exec));
  IS(INVALID_VALUE, CALL(cuGraphNodeGetLocalId, (void *, unsigned *), nodes[1], NULL));
  IS(INVALID_VALUE, CALL(cuGraphNodeGetToolsId, (void *, uint64_t *), graph, &first));
  IS(INVALID_VALUE, CALL(cuGraphNodeGetContainingGraph, (void *, void **), NULL, &holds));
  drop(graph, exec);
  drop(child, NULL);
}

/* The newer cuGraphAddNode compares the context of a kernel's function with that in its parameters. */
static void placed(void) {
  void *function = put_function(), *graph = new_graph(), *parameters[2], *node = NULL, *mine = NULL,
       *other = NULL;
  devptr memory = check_alloc(4096);
  unsigned what = 5;
  OK(CALL(cuCtxGetCurrent, (void **), &mine));
  OK(CALL(cuCtxCreate_v2, (void **, unsigned, int), &other, 0, 0));
  OK(CALL(cuCtxSetCurrent, (void *), mine));
  struct node_params kernel = put_node(function, &memory, &what, parameters);
#define ADD(version)                                                                                         \
  CALL(cuGraphAddNode_v##version, (void **, void *, void *const *, const void *, size_t, void *), &node,     \
       graph, NULL, NULL, 0, &kernel)
  OK(ADD(3));
  kernel.of.kernel.context = mine;
  OK(ADD(3));
  OK(CALL(cuGraphNodeSetParams_v2, (void *, void *), node, &kernel));
  kernel.of.kernel.context = other;
  IS(INVALID_CONTEXT, ADD(3));
  IS(INVALID_CONTEXT, CALL(cuGraphNodeSetParams_v2, (void *, void *), node, &kernel));
  OK(ADD(2)); /* ignores the context */
  kernel.of.kernel.context = graph;
  IS(INVALID_CONTEXT, ADD(3));
  drop(graph, NULL);
  OK(CALL(cuCtxDestroy_v2, (void *), other));
}

static void located(void) {
#define WHERE(at, size, summary, sampling)                                                                   \
  CALL(cuMemGetLocationInfo, (devptr, size_t, size_t, size_t, void *), at, size, summary, sampling, places)
  struct {
    int type, id;
  } places[4] = {{7, 7}, {7, 7}, {7, 7}, {7, 7}};
  devptr device = check_alloc(4096), managed = 0;
  int concurrent = -1;
  OK(CALL(cuDeviceGetAttribute, (int *, int, int), &concurrent, 89, 0));
  if (!concurrent) {
    IS(NOT_SUPPORTED, WHERE(device, 4096, 4096, 0));
    return;
  }
  MUST(CALL(cuMemAllocManaged, (devptr *, size_t, unsigned), &managed, 65536, 1));
  OK(WHERE(managed + 4096, 10000, 4096, 0));
  for (int i = 0; i < 3; i++) IS(HOST_MEMORY, places[i].type);
  IS(7, places[3].type);
  IS(INVALID_VALUE, WHERE(device, 4096, 4096, 0));
  IS(INVALID_VALUE, WHERE(managed, 65537, 4096, 0));
  IS(INVALID_VALUE, WHERE(managed, 4096, 0, 0));
  IS(INVALID_VALUE, WHERE(managed, 4096, 8192, 0));
  IS(INVALID_VALUE, WHERE(managed, 4096, 1024, 2048));
  IS(INVALID_VALUE, WHERE(managed, 0, 1, 0));
  OK(CALL(cuMemFree_v2, (devptr), managed));
}

static void classes(void) {
  _Alignas(64) unsigned char map[128], before[128];
  memset(map, 0x5a, sizeof map);
  memcpy(before, map, sizeof map);
  int least = 0, class = 7;
  OK(CALL(cuDeviceGetAttribute, (int *, int, int), &least, TENSOR_MAP_LARGE_TENSOR_MIN_SIZE, 0));
  IS(INT32_MAX, least);
#define SET(to, wanted) CALL(cuTensorMapSetAllocationClass, (void *, int, int *), to, wanted, &class)
  for (int wanted = 0; wanted < 3; wanted++) {
    OK(SET(map, wanted));
    IS(1, class);
    class = 7;
  }
  TRUE(memcmp(map, before, sizeof map) == 0);
  IS(INVALID_VALUE, SET(map, 3));
  IS(INVALID_VALUE, SET(NULL, 0));
  IS(INVALID_VALUE, SET(map + 8, 0));
  IS(7, class); /* only a call that succeeds writes it */
}

/* Each call is found by the version that introduced it, and returns that it is not supported. */
static void refused(void) {
  static const char *const names[] = {"cuMulticastBindMem",
                                      "cuStreamBeginCaptureToCig",
                                      "cuCoredumpRegisterStartCallback",
                                      "cuLogicalEndpointCreate",
                                      "cuDeviceGetCliqueCount",
                                      "cuDeviceGetFabricClusterUuid",
                                      "cuStreamBeginRecaptureToGraph",
                                      "cuFabricCpyBatchAsync",
                                      "cuCheckpointOperationComplete"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    void *found = NULL;
    int status = -1;
    OK(CALL(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *), names[i], &found, 13050, 0,
            &status));
    IS(0, status);
    int (*call)(void *, void *, void *, void *, void *, void *, void *);
    memcpy(&call, &found, sizeof call);
    TRUE(call != NULL);
    if (call != NULL) IS(NOT_SUPPORTED, call(NULL, NULL, NULL, NULL, NULL, NULL, NULL));
  }
}

static const struct check_case cases[] = {{"described", described}, {"described_too", described_too},
                                          {"named", named},         {"placed", placed},
                                          {"located", located},     {"classes", classes},
                                          {"refused", refused}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
