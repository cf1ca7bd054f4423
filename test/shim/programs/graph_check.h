/* Definitions that the graph test programs share: constants of the API, and a kernel. */
#ifndef VGPU_TEST_GRAPH_CHECK_H
#define VGPU_TEST_GRAPH_CHECK_H

#include "check.h"
#include "public_structures.h"

enum {
  KERNEL = 0,
  COPY = 1,
  FILL = 2,
  FUNCTION = 3,
  GRAPH = 4,
  EMPTY = 5,
  WAIT = 6,
  RECORD = 7,
  SIGNAL = 8,
  ALLOCATE = 10,
  RELEASE = 11,
  MEMORY_OPS = 12,
  CONDITIONAL = 13
};

enum { CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, UPDATE_FAILURE = 910 };

/* put(address, value): one thread writes one word. */
static const char put_text[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                               ".visible .entry put(.param .u64 to, .param .u32 what) {\n"
                               ".reg .b64 %a; .reg .b32 %v;\n"
                               "ld.param.u64 %a, [to]; ld.param.u32 %v, [what];\n"
                               "cvta.to.global.u64 %a, %a; st.global.u32 [%a], %v; ret; }\n";

static inline void *put_function(void) {
  void *module = NULL, *function = NULL;
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, put_text));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "put"));
  return function;
}

static inline struct node_params put_node(void *function, devptr *to, unsigned *what, void **parameters) {
  parameters[0] = to;
  parameters[1] = what;
  return (struct node_params){
      .type = KERNEL,
      .of.kernel = {.function = function, .grid = {1, 1, 1}, .block = {1, 1, 1}, .parameters = parameters}};
}

static inline struct node_params fill_node(devptr to, unsigned value, size_t words) {
  return (struct node_params){
      .type = FILL,
      .of.fill = {.destination = to, .value = value, .element = 4, .width = words, .height = 1}};
}

static inline void *new_graph(void) {
  void *graph = NULL;
  MUST(CALL(cuGraphCreate, (void **, unsigned), &graph, 0));
  return graph;
}

static inline void *new_stream(void) {
  void *stream = NULL;
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
  return stream;
}

static inline int add_node(void **node, void *graph, void *const *after, size_t count,
                           struct node_params *params) {
  return CALL(cuGraphAddNode, (void **, void *, void *const *, size_t, void *), node, graph, after, count,
              params);
}

static inline int set_node(void *node, struct node_params *params) {
  return CALL(cuGraphNodeSetParams, (void *, void *), node, params);
}

static inline int set_exec(void *exec, void *node, struct node_params *params) {
  return CALL(cuGraphExecNodeSetParams, (void *, void *, void *), exec, node, params);
}

/* Work of the host: adds its argument to a sum. */
static int called;
static inline void count_call(void *data) {
  called += *(int *)data;
}

static inline int instantiate(void **exec, void *graph, uint64_t flags) {
  return CALL(cuGraphInstantiateWithFlags, (void **, void *, uint64_t), exec, graph, flags);
}

static inline void *new_exec(void *graph) {
  void *exec = NULL;
  MUST(instantiate(&exec, graph, 0));
  return exec;
}

static inline int launch(void *exec, void *stream) {
  int result = CALL(cuGraphLaunch, (void *, void *), exec, stream);
  return result != 0 ? result : CALL(cuStreamSynchronize, (void *), stream);
}

static inline unsigned word_at(devptr address) {
  unsigned word = 0xdeadbeef;
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &word, address, 4));
  return word;
}

static inline void clear(devptr memory, size_t words) {
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), memory, 0, words));
  OK(CALL(cuCtxSynchronize, (void), ));
}

static inline void drop(void *graph, void *exec) {
  if (exec != NULL) OK(CALL(cuGraphExecDestroy, (void *), exec));
  if (graph != NULL) OK(CALL(cuGraphDestroy, (void *), graph));
}

#endif
