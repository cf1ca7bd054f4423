/* Edges between the nodes of a graph: edges with data, captures into a graph, and the DOT file. */
#include <unistd.h>

#include "graph_check.h"

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
  OK(CALL(cuStreamGetCaptureInfo_v2, (void *, int *, uint64_t *, void **, const void ***, size_t *), stream,
          &status, NULL, NULL, &tips, &count));
  const void *last = tips[0];
  OK(CALL(cuStreamEndCapture, (void *, void **), stream, NULL)); /* the graph is the program's own */
  TRUE(count == 1 && tips[0] == last); /* NVIDIA's C++ code reads the array that late */
  IS(401, UPDATE(&first, NULL, 1, 1));
  void *exec = new_exec(graph);
  OK(launch(exec, stream));
  IS(2, word_at(memory));
  IS(9, word_at(memory + 4));
  drop(graph, exec);
  /* A new graph would be lost; the capture goes on. */
  made = NULL;
  OK(CALL(cuStreamBeginCapture_v2, (void *, int), stream, 2));
  IS(INVALID_VALUE, CALL(cuStreamEndCapture, (void *, void **), stream, NULL));
  OK(CALL(cuStreamEndCapture, (void *, void **), stream, &made));
  TRUE(made != NULL);
  OK(CALL(cuGraphDestroy, (void *), made));
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
  unsigned number = 0;
  char wanted[64];
  OK(CALL(cuGraphGetId, (void *, unsigned *), graph, &number));
  snprintf(wanted, sizeof wanted, "\"graph_%u_node_0\" -> \"graph_%u_node_1\"", number, number);
  TRUE(strstr(text, wanted) != NULL);
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

/*
 * Six frames and eight dependencies: a fill, two kernels behind it, a child graph behind both whose two
 * kernels do not depend on each other, and a fill behind the child graph. An empty node joins.
 */
static void branches(void) {
  void *function = put_function(), *graph = new_graph(), *child = new_graph(), *stream = new_stream();
  void *root = NULL, *side[2] = {0}, *joined = NULL, *inner = NULL, *last = NULL, *parameters[2];
  devptr memory = check_alloc(4096), to = 0;
  unsigned what = 0;
  struct node_params fill = fill_node(memory, 1, 8), kernel = put_node(function, &to, &what, parameters);
  struct node_params empty = {.type = EMPTY}, nested = {.type = GRAPH, .of.child = {child, 0}};
  OK(add_node(&root, graph, NULL, 0, &fill));
  for (unsigned i = 0; i < 2; i++) {
    to = memory + 4 * (what = 2 + i);
    OK(add_node(&side[i], graph, &root, 1, &kernel));
    to = memory + 4 * (what = 4 + i);
    OK(add_node(&inner, child, NULL, 0, &kernel));
  }
  OK(add_node(&joined, graph, side, 2, &empty));
  OK(add_node(&inner, graph, &joined, 1, &nested));
  fill = fill_node(memory + 24, 6, 1);
  OK(add_node(&last, graph, &inner, 1, &fill));
  void *exec = new_exec(graph);
  for (unsigned i = 0; i < 4; i++) {
    OK(launch(exec, stream));
    const unsigned expected[] = {1, 1, 2, 3, 4, 5, 6, 1};
    for (unsigned j = 0; j < 8; j++) IS(expected[j], word_at(memory + 4 * j));
    clear(memory, 8);
  }
  OK(CALL(cuGraphNodeSetEnabled, (void *, void *, unsigned), exec, side[0], 0));
  for (unsigned i = 0; i < 3; i++) OK(launch(exec, stream));
  IS(1, word_at(memory + 8));
  IS(3, word_at(memory + 12));
  IS(6, word_at(memory + 24));
  drop(graph, exec);
  drop(child, NULL);
}

static int await_word(void *stream, devptr word) {
  return CALL(cuStreamWaitValue32_v2, (void *, devptr, uint32_t, unsigned), stream, word, 1, 0);
}

/* Launches of one executable in two streams, the first of which waits. */
static void in_turn(void) {
  void *function = put_function(), *graph = new_graph(), *one = new_stream(), *other = new_stream();
  void *node = NULL, *parameters[2];
  devptr memory = check_alloc(4096), flag = check_alloc(4);
  unsigned what = 5;
  struct node_params kernel = put_node(function, &memory, &what, parameters);
  OK(add_node(&node, graph, NULL, 0, &kernel));
  void *exec = new_exec(graph);
  /* The first launches are run call by call; a change makes the next ones so again. */
  for (unsigned i = 0; i < 8; i++) {
    clear(flag, 1);
    OK(await_word(one, flag));
    OK(CALL(cuGraphLaunch, (void *, void *), exec, one));
    OK(CALL(cuGraphLaunch, (void *, void *), exec, other));
    IS(NOT_READY, CALL(cuStreamQuery, (void *), other));
    OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), flag, 1, 1));
    OK(CALL(cuStreamSynchronize, (void *), other));
    OK(CALL(cuStreamSynchronize, (void *), one));
    /* Work behind a launch in its stream does not delay the next launch. */
    clear(flag, 1);
    OK(CALL(cuGraphLaunch, (void *, void *), exec, one));
    OK(await_word(one, flag));
    OK(launch(exec, other));
    OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), flag, 1, 1));
    OK(CALL(cuStreamSynchronize, (void *), one));
    if (i % 3 == 2) OK(set_exec(exec, node, &kernel));
  }
  IS(5, word_at(memory));
  drop(graph, exec);
}

static const struct check_case cases[] = {{"edges", edges},
                                          {"captured_edges", captured_edges},
                                          {"dot", dot},
                                          {"branches", branches},
                                          {"in_turn", in_turn}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
