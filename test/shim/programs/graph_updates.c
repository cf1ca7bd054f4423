/* Changes to an executable graph: disabled nodes, child graphs, whole updates. */
#include "graph_check.h"

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
  IS(INVALID_VALUE, SWITCH(call_at, 0)); /* function nodes cannot be disabled */
  IS(INVALID_VALUE, IS_ON(call_at));
  IS(INVALID_VALUE, SWITCH(foreign, 0));
  IS(INVALID_VALUE, SWITCH(NULL, 0));
  IS(INVALID_VALUE, CALL(cuGraphNodeSetEnabled, (void *, void *, unsigned), graph, fill_at, 0));
  IS(INVALID_VALUE, CALL(cuGraphNodeGetEnabled, (void *, void *, unsigned *), exec, fill_at, NULL));
  drop(graph, exec);
  drop(other, NULL);
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

  /* A node inside the child graph is a node of the executable, too. */
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
  IS(1, word_at(memory)); /* none of these changes was made */
  OK(add_node(&c, changed, &b, 1, &fill));
  OK(update(exec, changed, &info));
  IS(0, info.result);
  OK(launch(exec, stream));
  IS(2, word_at(memory));

  /* The same bytes, filled with another element size. */
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

static const struct check_case cases[] = {
    {"switches", switches}, {"children", children}, {"updates", updates}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
