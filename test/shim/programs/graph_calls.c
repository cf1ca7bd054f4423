/*
 * Stream capture and graphs through libcuda.so.1: graph_calls PTX-FILE. Says "ok NAME" or "FAILED NAME ..."
 * for each thing that must hold. Declarations are our own, from the public API.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "public_structures.h"

static int failures;

static void expect(const char *name, long got, long wanted) {
  if (got == wanted) {
    printf("ok %s\n", name);
    return;
  }
  printf("FAILED %s: %ld, not %ld\n", name, got, wanted);
  failures++;
}

static void *stream, *other, *event, *event_two, *module, *function;
static devptr memory;
enum { SIZE = 4096 };

static int byte_at(size_t offset) {
  unsigned char value = 0;
  int result = CALL((void *, devptr, size_t), cuMemcpyDtoH_v2, &value, memory + offset, 1);
  return result == 0 ? value : -result;
}

static void clear(void) {
  CALL((devptr, unsigned char, size_t), cuMemsetD8_v2, memory, 0, SIZE);
}

static int fill(void *on, size_t offset, int value, size_t count) {
  return CALL((devptr, unsigned char, size_t, void *), cuMemsetD8Async, memory + offset, (unsigned char)value,
              count, on);
}

static int begin(void *on) {
  return CALL((void *, int), cuStreamBeginCapture_v2, on, 2);
}

static int end(void *on, void **graph) {
  return CALL((void *, void **), cuStreamEndCapture, on, graph);
}

static int instantiate(void **exec, void *graph) {
  return CALL((void **, void *, unsigned long long), cuGraphInstantiateWithFlags, exec, graph, 0);
}

static int run(void *exec) {
  int result = CALL((void *, void *), cuGraphLaunch, exec, stream);
  return result != 0 ? result : CALL((void *), cuStreamSynchronize, stream);
}

static int launch(void *on, int n) {
  devptr a = memory, b = memory, c = memory;
  void *parameters[] = {&a, &b, &c, &n};
  return CALL((void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
               void **),
              cuLaunchKernel, function, 2, 1, 1, 64, 1, 1, 0, on, parameters, NULL);
}

static size_t count_nodes(void *graph) {
  size_t count = 0;
  CALL((void *, void **, size_t *), cuGraphGetNodes, graph, NULL, &count);
  return count;
}

static void captured(void) {
  static unsigned char in[256], out[256];
  void *graph = NULL, *exec = NULL;
  int status = -1;
  unsigned long long id = 0;
  clear();
  memset(in, 0x21, sizeof in);
  expect("begin", begin(stream), 0);
  CALL((void *, int *), cuStreamIsCapturing, stream, &status);
  expect("is capturing", status, 1);
  expect("fill in capture", fill(stream, 0, 0x11, 512), 0);
  expect("launch in capture", launch(stream, 77), 0);
  expect("copy in capture",
         CALL((devptr, devptr, size_t, void *), cuMemcpyDtoDAsync_v2, memory + 1024, memory, 512, stream), 0);
  expect("copy to the device in capture",
         CALL((devptr, const void *, size_t, void *), cuMemcpyHtoDAsync_v2, memory + 2048, in, 256, stream),
         0);
  expect("copy from the device in capture",
         CALL((void *, devptr, size_t, void *), cuMemcpyDtoHAsync_v2, out, memory + 2048, 256, stream), 0);
  CALL((void *, int *, unsigned long long *), cuStreamGetCaptureInfo, stream, &status, &id);
  expect("has an id", id != 0, 1);
  expect("end", end(stream, &graph), 0);
  CALL((void *, int *), cuStreamIsCapturing, stream, &status);
  expect("captures no more", status, 0);
  expect("nothing was done yet", byte_at(0), 0);
  expect("five nodes", (long)count_nodes(graph), 5);
  expect("instantiate", instantiate(&exec, graph), 0);
  memset(in, 0x42, sizeof in);
  expect("launch of the graph", run(exec), 0);
  expect("filled", byte_at(511), 0x11);
  expect("copied", byte_at(1024 + 511), 0x11);
  expect("read what lay there at the launch", out[255], 0x42);
  memset(in, 0x43, sizeof in);
  expect("second launch", run(exec), 0);
  expect("reads it again", out[0], 0x43);
  expect("destroy", CALL((void *), cuGraphExecDestroy, exec) | CALL((void *), cuGraphDestroy, graph), 0);
  expect("is gone", CALL((void *, void *), cuGraphLaunch, exec, stream), 1);
}

static void forked(void) {
  void *graph = NULL, *exec = NULL;
  clear();
  begin(stream);
  fill(stream, 0, 1, 16);
  CALL((void *, void *), cuEventRecord, event, stream);
  expect("the other stream joins", CALL((void *, void *, unsigned), cuStreamWaitEvent, other, event, 0), 0);
  fill(other, 16, 2, 16);
  fill(stream, 32, 3, 16);
  CALL((void *, void *), cuEventRecord, event_two, other);
  expect("and comes back", CALL((void *, void *, unsigned), cuStreamWaitEvent, stream, event_two, 0), 0);
  fill(stream, 48, 4, 16);
  expect("end of both", end(stream, &graph), 0);
  size_t edges = 0;
  CALL((void *, void **, void **, size_t *), cuGraphGetEdges, graph, NULL, NULL, &edges);
  expect("a diamond has four edges", (long)edges, 4);
  size_t roots = 0;
  CALL((void *, void **, size_t *), cuGraphGetRootNodes, graph, NULL, &roots);
  expect("and one root", (long)roots, 1);
  expect("instantiate it", instantiate(&exec, graph), 0);
  expect("run it", run(exec), 0);
  expect("all four", byte_at(0) * 1000 + byte_at(16) * 100 + byte_at(32) * 10 + byte_at(48), 1234);
  CALL((void *), cuGraphExecDestroy, exec);
  CALL((void *), cuGraphDestroy, graph);

  begin(stream);
  fill(stream, 0, 1, 16);
  CALL((void *, void *), cuEventRecord, event, stream);
  CALL((void *, void *, unsigned), cuStreamWaitEvent, other, event, 0);
  fill(other, 16, 2, 16);
  expect("a stream that does not come back", end(stream, &graph), 904);
  expect("leaves no graph", graph == NULL, 1);
  int status = -1;
  CALL((void *, int *), cuStreamIsCapturing, other, &status);
  expect("nor a capture", status, 0);

  begin(stream);
  expect("waiting is not for captures", CALL((void *), cuStreamSynchronize, stream), 900);
  expect("and spoils them", fill(stream, 0, 1, 16), 901);
  expect("to the end", end(stream, &graph), 901);
  expect("the legacy stream is never captured", begin(NULL), 900);
  expect("no end without a beginning", end(stream, &graph), 1);
  expect("the stream works again", fill(stream, 0, 9, 16) | CALL((void *), cuStreamSynchronize, stream), 0);
  expect("with effect", byte_at(15), 9);
}

static void updated(void) {
  void *graph = NULL, *exec = NULL, *changed = NULL, *longer = NULL;
  struct {
    int result;
    void *error, *from;
  } info = {0};
  clear();
  begin(stream);
  fill(stream, 0, 5, 64);
  launch(stream, 1);
  end(stream, &graph);
  instantiate(&exec, graph);
  begin(stream);
  fill(stream, 64, 6, 64);
  launch(stream, 2);
  end(stream, &changed);
  expect("update", CALL((void *, void *, void *), cuGraphExecUpdate_v2, exec, changed, &info), 0);
  expect("run the update", run(exec), 0);
  expect("what was", byte_at(0), 0);
  expect("what is", byte_at(64), 6);
  begin(stream);
  fill(stream, 0, 5, 64);
  end(stream, &longer);
  expect("another shape", CALL((void *, void *, void *), cuGraphExecUpdate_v2, exec, longer, &info), 910);
  expect("is told", info.result, 2);
  expect("and changes nothing", run(exec), 0);
  CALL((void *), cuGraphExecDestroy, exec);
  CALL((void *), cuGraphDestroy, graph);
  CALL((void *), cuGraphDestroy, changed);
  CALL((void *), cuGraphDestroy, longer);
}

static int called;
static void count_call(void *data) {
  called += *(int *)data;
}

static void by_hand(void) {
  void *graph = NULL, *child = NULL, *exec = NULL;
  void *first = NULL, *second = NULL, *third = NULL, *kernel = NULL, *inner = NULL, *node = NULL,
       *empty = NULL;
  int step = 10, n = 5, type = -1;
  devptr a = memory;
  void *parameters[] = {&a, &a, &a, &n};
  struct fill_params filled = {memory, 64, 0x01020304, 4, 8, 2, NULL};
  struct copy_params copied = {.width = 32, .height = 1, .depth = 1};
  struct {
    void (*function)(void *);
    void *data;
  } host = {count_call, &step};
  struct kernel_params launched = {function, {3, 1, 1}, {32, 1, 1}, 0, parameters, NULL, NULL, NULL};
  clear();
  copied.source.type = copied.destination.type = 2;
  copied.source.device = memory;
  copied.destination.device = memory + 256;
  expect("create", CALL((void **, unsigned), cuGraphCreate, &graph, 0), 0);
  expect("child", CALL((void **, unsigned), cuGraphCreate, &child, 0), 0);
  expect("a fill of rows",
         CALL((void **, void *, void *const *, size_t, const void *, void *), cuGraphAddMemsetNode, &first,
              graph, NULL, 0, &filled, NULL),
         0);
  expect("a copy",
         CALL((void **, void *, void *const *, size_t, const void *, void *), cuGraphAddMemcpyNode, &second,
              graph, &first, 1, &copied, NULL),
         0);
  expect("a function",
         CALL((void **, void *, void *const *, size_t, const void *), cuGraphAddHostNode, &third, graph,
              &second, 1, &host),
         0);
  expect("a kernel",
         CALL((void **, void *, void *const *, size_t, const void *), cuGraphAddKernelNode_v2, &kernel, graph,
              &third, 1, &launched),
         0);
  filled = (struct fill_params){memory + 512, 0, 7, 1, 16, 1, NULL};
  expect("a fill in the child",
         CALL((void **, void *, void *const *, size_t, const void *, void *), cuGraphAddMemsetNode, &inner,
              child, NULL, 0, &filled, NULL),
         0);
  expect("the child",
         CALL((void **, void *, void *const *, size_t, void *), cuGraphAddChildGraphNode, &node, graph,
              &kernel, 1, child),
         0);
  expect("an empty node",
         CALL((void **, void *, void *const *, size_t), cuGraphAddEmptyNode, &empty, graph, &node, 1), 0);
  expect("a dependency on another graph's node",
         CALL((void **, void *, void *const *, size_t), cuGraphAddEmptyNode, &empty, graph, &inner, 1), 1);
  CALL((void *, int *), cuGraphNodeGetType, node, &type);
  expect("is a child", type, 4);
  expect("destroy the child's original", CALL((void *), cuGraphDestroy, child), 0);
  expect("instantiate by hand", instantiate(&exec, graph), 0);
  expect("run by hand", run(exec), 0);
  expect("first row", byte_at(31), 1);
  expect("between rows", byte_at(32), 0);
  expect("second row", byte_at(64), 4);
  expect("its copy", byte_at(256), 4);
  expect("the function was called", called, 10);
  expect("the child's fill", byte_at(512 + 15), 7);

  struct kernel_params read = {0};
  expect("read the kernel", CALL((void *, void *), cuGraphKernelNodeGetParams_v2, kernel, &read), 0);
  expect("its grid", read.grid[0], 3);
  expect("its parameter", read.parameters == NULL ? -1 : *(int *)read.parameters[3], 5);
  n = 6;
  launched.grid[0] = 4;
  expect("set in the executable",
         CALL((void *, void *, const void *), cuGraphExecKernelNodeSetParams_v2, exec, kernel, &launched), 0);
  expect("run again", run(exec), 0);
  expect("called again", called, 20);
  expect("not a kernel", CALL((void *, void *), cuGraphKernelNodeGetParams_v2, first, &read), 1);
  void *clone = NULL, *found = NULL;
  expect("clone", CALL((void **, void *), cuGraphClone, &clone, graph), 0);
  expect("find in it", CALL((void **, void *, void *), cuGraphNodeFindInClone, &found, kernel, clone), 0);
  expect("another node", found != kernel, 1);
  expect("remove a node", CALL((void *), cuGraphDestroyNode, kernel), 0);
  expect("from this one only", (long)(count_nodes(clone) - count_nodes(graph)), 1);
  expect(
      "a circle",
      CALL((void *, void *const *, void *const *, size_t), cuGraphAddDependencies, graph, &second, &first, 1),
      0);
  void *none = NULL;
  expect("cannot be run", instantiate(&none, graph), 1);
  CALL((void *), cuGraphExecDestroy, exec);
  CALL((void *), cuGraphDestroy, clone);
  CALL((void *), cuGraphDestroy, graph);
}

static void many(void) {
  void *graph = NULL, *exec = NULL;
  clear();
  begin(stream);
  for (int i = 0; i < 20000; i++) launch(stream, i);
  fill(stream, 0, 0x77, 16);
  expect("twenty thousand nodes", end(stream, &graph), 0);
  expect("in several frames", instantiate(&exec, graph), 0);
  expect("run all", run(exec), 0);
  expect("to the last", byte_at(0), 0x77);
  CALL((void *), cuGraphExecDestroy, exec);
  CALL((void *), cuGraphDestroy, graph);
}

int main(int count, char **words) {
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL || count != 2) return 3;
  void *context = NULL;
  int result = CALL((unsigned), cuInit, 0);
  if (result == 0) result = CALL((void **, int), cuDevicePrimaryCtxRetain, &context, 0);
  if (result == 0) result = CALL((void *), cuCtxSetCurrent, context);
  if (result == 0) result = CALL((void **, const char *), cuModuleLoad, &module, words[1]);
  if (result == 0)
    result = CALL((void **, void *, const char *), cuModuleGetFunction, &function, module, "add");
  if (result == 0) result = CALL((void **, unsigned), cuStreamCreate, &stream, 1);
  if (result == 0) result = CALL((void **, unsigned), cuStreamCreate, &other, 1);
  if (result == 0) result = CALL((void **, unsigned), cuEventCreate, &event, 2);
  if (result == 0) result = CALL((void **, unsigned), cuEventCreate, &event_two, 2);
  if (result == 0) result = CALL((devptr *, size_t), cuMemAlloc_v2, &memory, SIZE);
  expect("setup", result, 0);
  if (result != 0) return 1;
  captured();
  forked();
  updated();
  by_hand();
  many();
  expect("nothing is left behind", CALL((void), cuCtxSynchronize), 0);
  printf("failures %d\n", failures);
  return failures != 0;
}
