/* Conditional nodes: if, while and switch. Kernels set the conditions. */
#include "graph_check.h"

enum { IF = 0, WHILE = 1, SWITCH = 2, ASSIGN = 1 };

/*
 * count(handle, address, limit): adds 1 to the word; the condition is whether the word is then below the
 * limit. decide(handle, address): the condition is the word.
 */
static const char text[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".extern .func cudaGraphSetConditional (.param .b64 h, .param .b32 v);\n"
    ".visible .entry count(.param .u64 handle, .param .u64 word, .param .u32 limit) {\n"
    ".reg .b64 %h, %a; .reg .b32 %v, %l; .reg .pred %p;\n"
    "ld.param.u64 %h, [handle]; ld.param.u64 %a, [word]; ld.param.u32 %l, [limit];\n"
    "cvta.to.global.u64 %a, %a; ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%a], %v;\n"
    "setp.lt.u32 %p, %v, %l; selp.u32 %v, 1, 0, %p;\n"
    "{ .param .b64 p0; .param .b32 p1; st.param.b64 [p0], %h; st.param.b32 [p1], %v;\n"
    "call.uni cudaGraphSetConditional, (p0, p1); }\nret; }\n"
    ".visible .entry decide(.param .u64 handle, .param .u64 word) {\n"
    ".reg .b64 %h, %a; .reg .b32 %v;\n"
    "ld.param.u64 %h, [handle]; ld.param.u64 %a, [word];\n"
    "cvta.to.global.u64 %a, %a; ld.global.u32 %v, [%a];\n"
    "{ .param .b64 p0; .param .b32 p1; st.param.b64 [p0], %h; st.param.b32 [p1], %v;\n"
    "call.uni cudaGraphSetConditional, (p0, p1); }\nret; }\n";

static void *function(const char *name) {
  static void *module;
  void *found = NULL;
  if (module == NULL) MUST(CALL(cuModuleLoadData, (void **, const void *), &module, text));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &found, module, name));
  return found;
}

static int new_handle(uint64_t *handle, void *graph, unsigned value, unsigned flags) {
  return CALL(cuGraphConditionalHandleCreate, (uint64_t *, void *, void *, unsigned, unsigned), handle, graph,
              NULL, value, flags);
}

static uint64_t handle_of(void *graph, unsigned value, unsigned flags) {
  uint64_t handle = 0;
  MUST(new_handle(&handle, graph, value, flags));
  return handle;
}

static struct node_params condition(uint64_t handle, int type, unsigned size) {
  return (struct node_params){.type = CONDITIONAL,
                              .of.condition = {.handle = handle, .type = type, .size = size}};
}

/* Adds a conditional node after another node. Returns its bodies. */
static void **add_condition(void *graph, void *after, uint64_t handle, int type, unsigned size) {
  struct node_params params = condition(handle, type, size);
  void *node = NULL;
  MUST(add_node(&node, graph, &after, after == NULL ? 0 : 1, &params));
  MUST(params.of.condition.bodies == NULL);
  return params.of.condition.bodies;
}

static void *add_decide(void *graph, uint64_t handle, devptr word) {
  void *parameters[] = {&handle, &word}, *node = NULL;
  struct node_params params = {
      .type = KERNEL,
      .of.kernel = {
          .function = function("decide"), .grid = {1, 1, 1}, .block = {1, 1, 1}, .parameters = parameters}};
  MUST(add_node(&node, graph, NULL, 0, &params));
  return node;
}

static void *add_count(void *graph, void *after, uint64_t handle, devptr word, unsigned limit) {
  void *parameters[] = {&handle, &word, &limit}, *node = NULL;
  struct node_params params = {
      .type = KERNEL,
      .of.kernel = {
          .function = function("count"), .grid = {1, 1, 1}, .block = {1, 1, 1}, .parameters = parameters}};
  MUST(add_node(&node, graph, &after, after == NULL ? 0 : 1, &params));
  return node;
}

static void *add_fill(void *graph, devptr to, unsigned value) {
  struct node_params params = fill_node(to, value, 1);
  void *node = NULL;
  MUST(add_node(&node, graph, NULL, 0, &params));
  return node;
}

static void set_word(devptr address, unsigned value) {
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), address, value, 1));
  OK(CALL(cuCtxSynchronize, (void), ));
}

/* Words: 0 the value that decides, 1 the result, 2 the result of the node after it. */
static void decides(void) {
  const struct {
    int type;
    unsigned size, results[5]; /* for the values 0, 1, 2, 3 and 7; 0: no body */
  } kinds[] = {{IF, 1, {0, 10, 10, 10, 10}},
               {IF, 2, {11, 10, 10, 10, 10}},
               {SWITCH, 1, {10, 0, 0, 0, 0}},
               {SWITCH, 3, {10, 11, 12, 0, 0}}};
  const unsigned values[] = {0, 1, 2, 3, 7};
  devptr memory = check_alloc(4096);
  void *stream = new_stream();
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    void *graph = new_graph();
    uint64_t handle = handle_of(graph, 0, 0);
    void *first = add_decide(graph, handle, memory);
    void **bodies = add_condition(graph, first, handle, kinds[i].type, kinds[i].size);
    for (unsigned j = 0; j < kinds[i].size; j++) add_fill(bodies[j], memory + 4, 10 + j);
    void *exec = new_exec(graph);
    for (int round = 0; round < 3; round++) {
      for (size_t v = 0; v < 5; v++) {
        set_word(memory, values[v]);
        set_word(memory + 4, 0);
        OK(launch(exec, stream));
        IS(kinds[i].results[v], word_at(memory + 4));
      }
    }
    drop(graph, exec);
  }
}

static void repeats(void) {
  devptr memory = check_alloc(4096);
  void *stream = new_stream(), *graph = new_graph();
  clear(memory, 4);
  uint64_t handle = handle_of(graph, 1, ASSIGN);
  void **bodies = add_condition(graph, NULL, handle, WHILE, 1);
  void *counted = add_count(bodies[0], NULL, handle, memory, 300);
  void *exec = new_exec(graph);
  OK(launch(exec, stream));
  IS(300, word_at(memory));
  OK(launch(exec, stream)); /* the default value again: one round more */
  IS(301, word_at(memory));
  /* Twice on one stream, without waiting between. */
  clear(memory, 4);
  OK(CALL(cuGraphLaunch, (void *, void *), exec, stream));
  OK(launch(exec, stream));
  IS(301, word_at(memory));
  (void)counted;
  drop(graph, exec);
}

/* while (a < 5) { if (word 8 != 0) child graph: word 12 = 77; b counts to 3 in each round, captured }. */
static void nests(void) {
  devptr memory = check_alloc(4096);
  void *stream = new_stream(), *graph = new_graph(), *child = new_graph(), *node = NULL;
  clear(memory, 8);
  set_word(memory + 8, 1);
  uint64_t outer = handle_of(graph, 1, ASSIGN);
  void **bodies = add_condition(graph, NULL, outer, WHILE, 1);
  uint64_t choice = handle_of(graph, 0, 0), inner = handle_of(bodies[0], 0, 0);
  void *decided = add_decide(bodies[0], choice, memory + 8);
  void **chosen = add_condition(bodies[0], decided, choice, IF, 1);
  add_fill(child, memory + 12, 77);
  struct node_params nested = {.type = GRAPH, .of.child.graph = child};
  OK(add_node(&node, chosen[0], NULL, 0, &nested));
  /* Adds to the outer body: the inner loop's value, and the condition of the outer loop. */
  void *one = NULL, *value_node = NULL;
  set_word(memory + 16, 1);
  value_node = add_decide(bodies[0], inner, memory + 16);
  void **rounds = add_condition(bodies[0], value_node, inner, WHILE, 1);
  unsigned limit = 3;
  devptr counted = memory + 4;
  OK(CALL(cuStreamBeginCaptureToGraph, (void *, void *, void *, void *, size_t, int), stream, rounds[0], NULL,
          NULL, 0, 0));
  void *parameters[] = {&inner, &counted, &limit};
  OK(CALL(cuLaunchKernel,
          (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
           void **),
          function("count"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
  OK(CALL(cuStreamEndCapture, (void *, void **), stream, &one));
  TRUE(one == rounds[0]);
  add_count(bodies[0], NULL, outer, memory, 5);
  void *exec = new_exec(graph);
  OK(launch(exec, stream));
  IS(5, word_at(memory));
  IS(7, word_at(memory + 4)); /* 3 in the first round, one more in each of the others */
  IS(77, word_at(memory + 12));
  /* A body is not a graph of its own. */
  struct update_info info = {.result = -1};
  IS(1, CALL(cuGraphExecUpdate_v2, (void *, void *, void *), exec, bodies[0], &info));
  drop(graph, exec);
  drop(child, NULL);
}

static void defaults(void) {
  devptr memory = check_alloc(4096);
  void *stream = new_stream();
  for (unsigned value = 0; value < 3; value++) {
    void *graph = new_graph();
    uint64_t handle = handle_of(graph, value, ASSIGN);
    void **bodies = add_condition(graph, NULL, handle, SWITCH, 2);
    add_fill(bodies[0], memory, 100);
    add_fill(bodies[1], memory, 101);
    void *exec = new_exec(graph);
    set_word(memory, 0);
    OK(launch(exec, stream));
    IS(value < 2 ? 100 + value : 0, word_at(memory));
    drop(graph, NULL); /* the executable does not need its graph */
    set_word(memory, 0);
    OK(launch(exec, stream));
    IS(value < 2 ? 100 + value : 0, word_at(memory));
    drop(NULL, exec);
  }
}

/*
 * Makes switch (value) with two bodies that write. Returns the graph, and the node of the first body's fill.
 */
static void *two_ways(unsigned value, devptr to, unsigned first, void **fill) {
  void *graph = new_graph();
  uint64_t handle = handle_of(graph, value, ASSIGN);
  void **bodies = add_condition(graph, NULL, handle, SWITCH, 2);
  *fill = add_fill(bodies[0], to, first);
  add_fill(bodies[1], to, first + 1);
  return graph;
}

static void changed(void) {
  devptr memory = check_alloc(4096);
  void *stream = new_stream(), *fill = NULL, *other_fill = NULL;
  void *graph = two_ways(0, memory, 20, &fill), *exec = new_exec(graph);
  OK(launch(exec, stream));
  IS(20, word_at(memory));
  struct node_params params = fill_node(memory, 25, 1);
  OK(set_exec(exec, fill, &params));
  OK(launch(exec, stream));
  IS(25, word_at(memory));
  OK(CALL(cuGraphNodeSetEnabled, (void *, void *, unsigned), exec, fill, 0));
  set_word(memory, 1);
  OK(launch(exec, stream));
  IS(1, word_at(memory));
  /* The other graph's default value comes with its nodes. */
  void *other = two_ways(1, memory, 30, &other_fill);
  struct update_info info = {.result = -1};
  OK(CALL(cuGraphNodeSetEnabled, (void *, void *, unsigned), exec, fill, 1));
  OK(CALL(cuGraphExecUpdate_v2, (void *, void *, void *), exec, other, &info));
  IS(0, info.result);
  drop(other, NULL);
  OK(launch(exec, stream));
  IS(31, word_at(memory));
  /* Another kind, another number of bodies, or another number of nodes in them. */
  void *wrong = new_graph();
  uint64_t handle = handle_of(wrong, 0, ASSIGN);
  void **bodies = add_condition(wrong, NULL, handle, SWITCH, 2);
  add_fill(bodies[0], memory, 1);
  add_fill(bodies[0], memory + 4, 1);
  IS(UPDATE_FAILURE, CALL(cuGraphExecUpdate_v2, (void *, void *, void *), exec, wrong, &info));
  IS(2, info.result); /* topology changed */
  drop(wrong, NULL);
  wrong = new_graph();
  handle = handle_of(wrong, 0, ASSIGN);
  bodies = add_condition(wrong, NULL, handle, IF, 2);
  add_fill(bodies[0], memory, 1);
  add_fill(bodies[1], memory, 1);
  IS(UPDATE_FAILURE, CALL(cuGraphExecUpdate_v2, (void *, void *, void *), exec, wrong, &info));
  IS(5, info.result); /* parameters changed */
  drop(wrong, NULL);
  OK(launch(exec, stream));
  IS(31, word_at(memory));
  drop(graph, exec);
}

/* An executable that is updated takes the conditions of the new graph. No other executable has them then. */
static void update_takes_over(void) {
  devptr memory = check_alloc(4096);
  void *stream = new_stream(), *fill = NULL, *second_exec = NULL;
  void *first = two_ways(0, memory, 20, &fill), *second = two_ways(1, memory, 30, &fill);
  void *exec = new_exec(first);
  struct update_info info = {.result = -1};
  OK(CALL(cuGraphExecUpdate_v2, (void *, void *, void *), exec, second, &info));
  IS(NOT_SUPPORTED, instantiate(&second_exec, second, 0)); /* one at a time */
  void *first_exec = new_exec(first);                      /* the conditions of this graph are free again */
  OK(launch(first_exec, stream));
  IS(20, word_at(memory));
  OK(launch(exec, stream));
  IS(31, word_at(memory));
  /* The conditions of the first graph are used by another executable, so the update back fails. */
  info.result = -1;
  IS(UPDATE_FAILURE, CALL(cuGraphExecUpdate_v2, (void *, void *, void *), exec, first, &info));
  IS(6, info.result); /* not supported */
  OK(launch(exec, stream));
  IS(31, word_at(memory));
  drop(NULL, first_exec);
  OK(CALL(cuGraphExecUpdate_v2, (void *, void *, void *), exec, first, &info));
  IS(0, info.result);
  second_exec = new_exec(second);
  OK(launch(exec, stream));
  IS(20, word_at(memory));
  OK(launch(second_exec, stream));
  IS(31, word_at(memory));
  drop(first, exec);
  drop(second, second_exec);
}

static void ordered(void) {
  devptr memory = check_alloc(4096);
  void *first = new_stream(), *graph = new_graph();
  clear(memory, 8);
  uint64_t handle = handle_of(graph, 0, 0);
  void *decided = add_decide(graph, handle, memory);
  void **bodies = add_condition(graph, decided, handle, IF, 2);
  add_fill(bodies[0], memory + 4, 1);
  add_fill(bodies[1], memory + 4, 2);
  void *exec = new_exec(graph);
  OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, unsigned, unsigned), first, memory + 8, 1, 1)); /* equal */
  OK(CALL(cuGraphLaunch, (void *, void *), exec, first));
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory + 12, 9, 1, first));
  IS(0, word_at(memory + 12));
  IS(0, word_at(memory + 4));
  /* Read in the order of the stream: a wait for the context would also wait for the stream. */
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), memory, 5, 1));
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), memory + 8, 1, 1));
  OK(CALL(cuStreamSynchronize, (void *), first));
  IS(1, word_at(memory + 4));
  IS(9, word_at(memory + 12));
  drop(graph, exec);
}

/*
 * A launch that waits for its stream is one of the executable as it was, which may be changed and destroyed
 * meanwhile.
 */
static void outlived(void) {
  devptr memory = check_alloc(4096);
  void *stream = new_stream(), *graph = new_graph();
  clear(memory, 8);
  uint64_t handle = handle_of(graph, 1, ASSIGN);
  void *fill = add_fill(add_condition(graph, NULL, handle, IF, 1)[0], memory + 4, 1), *exec = new_exec(graph);
  OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, unsigned, unsigned), stream, memory + 8, 1,
          1)); /* equal */
  OK(CALL(cuGraphLaunch, (void *, void *), exec, stream));
  struct node_params params = fill_node(memory + 12, 7, 1);
  OK(set_exec(exec, fill, &params));
  OK(CALL(cuGraphLaunch, (void *, void *), exec, stream));
  drop(graph, exec);
  IS(0, word_at(memory + 4));
  IS(0, word_at(memory + 12));
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), memory + 8, 1, 1));
  OK(CALL(cuStreamSynchronize, (void *), stream));
  IS(1, word_at(memory + 4));
  IS(7, word_at(memory + 12));
  OK(CALL(cuCtxSynchronize, (void), ));
}

static void restricted(void) {
  devptr memory = check_alloc(4096);
  void *graph = new_graph(), *other = new_graph(), *copy = NULL, *second = NULL, *node = NULL;
  uint64_t handle = handle_of(graph, 1, ASSIGN);
  struct node_params params = condition(handle, IF, 1);
  MUST(add_node(&node, graph, NULL, 0, &params));
  void *body = params.of.condition.bodies[0];
  add_fill(body, memory, 7);
  IS(NOT_SUPPORTED, CALL(cuGraphClone, (void **, void *), &copy, graph));
  struct node_params nested = {.type = GRAPH, .of.child.graph = graph};
  IS(NOT_SUPPORTED, add_node(&copy, other, NULL, 0, &nested));
  nested.of.child.ownership = 1;
  IS(NOT_SUPPORTED, add_node(&copy, other, NULL, 0, &nested));
  void *exec = new_exec(graph);
  IS(NOT_SUPPORTED, instantiate(&second, graph, 0));
  drop(NULL, exec);
  exec = new_exec(graph);
  set_word(memory, 0);
  OK(launch(exec, NULL));
  IS(7, word_at(memory));
  int type = -1;
  OK(CALL(cuGraphNodeGetType, (void *, int *), node, &type));
  IS(CONDITIONAL, type);
  IS(NOT_SUPPORTED, set_node(node, &params));
  IS(NOT_SUPPORTED, set_exec(exec, node, &params));
  IS(INVALID_VALUE, instantiate(&second, body, 0));
  IS(INVALID_VALUE, CALL(cuGraphDestroy, (void *), body));
  /* When a node is destroyed, another node can use its condition. */
  drop(NULL, exec);
  OK(CALL(cuGraphDestroyNode, (void *), node));
  IS(INVALID_VALUE, CALL(cuGraphGetNodes, (void *, void **, size_t *), body, NULL, &(size_t){0}));
  void **bodies = add_condition(graph, NULL, handle, WHILE, 1);
  set_word(memory, 3);
  add_count(bodies[0], NULL, handle, memory, 6);
  exec = new_exec(graph);
  OK(launch(exec, NULL));
  IS(6, word_at(memory));
  drop(graph, exec);
  drop(other, NULL);
}

static void bad_requests(void) {
  devptr memory = check_alloc(4096);
  void *graph = new_graph(), *other = new_graph(), *node = NULL, *strange = &memory;
  uint64_t handle = 0, foreign = handle_of(other, 0, 0);
  IS(INVALID_VALUE, new_handle(NULL, graph, 0, 0));
  IS(INVALID_VALUE, new_handle(&handle, NULL, 0, 0));
  IS(INVALID_VALUE, new_handle(&handle, strange, 0, 0));
  IS(INVALID_VALUE, new_handle(&handle, graph, 0, 2));
  IS(INVALID_CONTEXT, CALL(cuGraphConditionalHandleCreate, (uint64_t *, void *, void *, unsigned, unsigned),
                           &handle, graph, strange, 0, 0));
  IS(0, handle);
  handle = handle_of(graph, 0, 0);
  const struct {
    int type;
    unsigned size;
  } wrong[] = {{IF, 0}, {IF, 3}, {WHILE, 0}, {WHILE, 2}, {SWITCH, 0}, {3, 1}, {-1, 1}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct node_params params = condition(handle, wrong[i].type, wrong[i].size);
    IS(INVALID_VALUE, add_node(&node, graph, NULL, 0, &params));
  }
  struct node_params params = condition(handle, SWITCH, 0xffffffffu);
  IS(OUT_OF_MEMORY, add_node(&node, graph, NULL, 0, &params));
  params = condition(foreign, IF, 1);
  IS(INVALID_VALUE, add_node(&node, graph, NULL, 0, &params));
  params = condition(handle + 1, IF, 1);
  IS(INVALID_VALUE, add_node(&node, graph, NULL, 0, &params));
  params = condition(handle, IF, 1);
  params.of.condition.context = strange;
  IS(INVALID_CONTEXT, add_node(&node, graph, NULL, 0, &params));
  params = condition(handle, IF, 1);
  params.of.bytes[40] = 1;
  IS(INVALID_VALUE, add_node(&node, graph, NULL, 0, &params));
  params = condition(handle, IF, 1);
  OK(add_node(&node, graph, NULL, 0, &params));
  void *body = params.of.condition.bodies[0];
  params = condition(handle, IF, 1);
  IS(INVALID_VALUE, add_node(&node, graph, NULL, 0, &params)); /* in use */
  /* Nodes that a body must not contain. */
  int number = 1;
  struct node_params host = {.type = FUNCTION, .of.function = {.call = count_call, .data = &number}};
  IS(NOT_SUPPORTED, add_node(&node, body, NULL, 0, &host));
  struct node_params copy = {.type = COPY};
  copy.of.copy.copy.source.type = 1; /* the program's memory */
  copy.of.copy.copy.source.host = &number;
  copy.of.copy.copy.destination.type = 2;
  copy.of.copy.copy.destination.device = memory;
  copy.of.copy.copy.width = 4;
  copy.of.copy.copy.height = copy.of.copy.copy.depth = 1;
  IS(NOT_SUPPORTED, add_node(&node, body, NULL, 0, &copy));
  /* In a child graph this is noticed later. */
  void *child = new_graph(), *exec = NULL;
  OK(add_node(&node, child, NULL, 0, &host));
  struct node_params nested = {.type = GRAPH, .of.child.graph = child};
  OK(add_node(&node, body, NULL, 0, &nested));
  IS(NOT_SUPPORTED, instantiate(&exec, graph, 0));
  IS(0, called);
  drop(graph, NULL);
  drop(other, NULL);
  drop(child, NULL);
}

static const struct check_case cases[] = {
    {"decides", decides},       {"repeats", repeats},           {"nests", nests},
    {"defaults", defaults},     {"changed", changed},           {"ordered", ordered},
    {"restricted", restricted}, {"bad_requests", bad_requests}, {"update_takes_over", update_takes_over},
    {"outlived", outlived}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
