/*
 * Calls that a GPU's driver makes wait for the device, while streams wait for host functions of the program.
 * Each function is released only after the calls. A host whose thread sat in one of them could not release
 * the stream, so these cases would never end.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "graph_check.h"

#define STREAMS 16
#define GRANULE ((size_t)2 << 20)
enum { NON_BLOCKING = 1, HOST = 1, DEVICE = 2 };

static atomic_int released, ran;
static void *streams[STREAMS];

static void wait_for_release(void *data) {
  (void)data;
  while (!atomic_load(&released)) usleep(200);
  atomic_fetch_add(&ran, 1);
}

static void make_streams(void) {
  for (int i = 0; i < STREAMS; i++)
    MUST(CALL(cuStreamCreate, (void **, unsigned), &streams[i], NON_BLOCKING));
}

static void hold(int count) {
  for (int i = 0; i < count; i++)
    OK(CALL(cuLaunchHostFunc, (void *, void (*)(void *), void *), streams[i], wait_for_release, NULL));
}

static void *release_later(void *nothing) {
  (void)nothing;
  usleep(300000);
  atomic_store(&released, 1);
  return NULL;
}

static void let_go(int count) {
  atomic_store(&released, 1);
  for (int i = 0; i < STREAMS; i++) OK(CALL(cuStreamSynchronize, (void *), streams[i]));
  IS(count, atomic_load(&ran));
}

/* Sixteen streams wait, and memory is freed beside them. */
static void frees(void) {
  static devptr memory[1500];
  make_streams();
  for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) memory[i] = check_alloc(4096);
  hold(STREAMS);
  for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) OK(CALL(cuMemFree_v2, (devptr), memory[i]));
  let_go(STREAMS);
}

static uint64_t create(void) {
  static const struct {
    int type, handle_types, location_type, location;
    void *win32;
    unsigned char unused[8];
  } properties = {.type = 1, .location_type = 1};
  uint64_t handle = 0;
  MUST(CALL(cuMemCreate, (uint64_t *, size_t, const void *, uint64_t), &handle, GRANULE, &properties, 0));
  return handle;
}

/* Other memory is mapped where memory was unmapped, while a stream waits. */
static void maps(void) {
  devptr place = 0;
  uint64_t first = create(), second = create();
  pthread_t thread;
  make_streams();
  MUST(CALL(cuMemAddressReserve, (devptr *, size_t, size_t, devptr, uint64_t), &place, GRANULE, 0, 0, 0));
  OK(CALL(cuMemMap, (devptr, size_t, size_t, uint64_t, uint64_t), place, GRANULE, 0, first, 0));
  hold(1);
  OK(CALL(cuMemUnmap, (devptr, size_t), place, GRANULE));
  MUST(pthread_create(&thread, NULL, release_later, NULL));
  OK(CALL(cuMemMap, (devptr, size_t, size_t, uint64_t, uint64_t), place, GRANULE, 0, second, 0));
  IS(1, atomic_load(&released));
  pthread_join(thread, NULL);
  let_go(1);
}

/* More kernels are launched behind a function than a channel's queue holds. */
static void launches(void) {
  static const char code[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n";
  void *module = NULL, *function = NULL;
  pthread_t thread;
  make_streams();
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, code));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "nothing"));
  hold(1);
  MUST(pthread_create(&thread, NULL, release_later, NULL));
  for (int i = 0; i < 3000; i++)
    OK(CALL(cuLaunchKernel,
            (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
             void **),
            function, 1, 1, 1, 1, 1, 1, 0, streams[0], NULL, NULL));
  pthread_join(thread, NULL);
  let_go(1);
}

/* Another thread ends and begins the device's context, and so waits for what the first one freed. */
static void *begin_context(void *nothing) {
  void *context = NULL;
  OK(CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0));
  OK(CALL(cuCtxSetCurrent, (void *), context));
  OK(CALL(cuCtxSynchronize, (void), ));
  return nothing;
}
static void contexts(void) {
  void *own = NULL;
  devptr memory;
  pthread_t thread;
  OK(CALL(cuDevicePrimaryCtxReset_v2, (int), 0));
  MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &own, 0, 0));
  memory = check_alloc(4096);
  make_streams();
  hold(1);
  OK(CALL(cuMemFree_v2, (devptr), memory));
  MUST(pthread_create(&thread, NULL, begin_context, NULL));
  usleep(100000);
  let_go(1);
  pthread_join(thread, NULL);
}

/* A graph is destroyed while its launch waits behind a function. */
static void graphs(void) {
  void *graph = NULL, *exec = NULL;
  devptr memory = check_alloc(4);
  unsigned word = 0;
  make_streams();
  MUST(CALL(cuStreamBeginCapture_v2, (void *, int), streams[0], 0));
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory, 7, 1, streams[0]));
  MUST(CALL(cuStreamEndCapture, (void *, void **), streams[0], &graph));
  MUST(CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &exec, graph, 0));
  /* After some launches the graph is the device's own. */
  for (int i = 0; i < 4; i++) OK(CALL(cuGraphLaunch, (void *, void *), exec, streams[0]));
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory, 1, 1, streams[0]));
  hold(1);
  OK(CALL(cuGraphLaunch, (void *, void *), exec, streams[0]));
  OK(CALL(cuGraphExecDestroy, (void *), exec));
  let_go(1);
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &word, memory, 4));
  IS(7, word);
  OK(CALL(cuGraphDestroy, (void *), graph));
}

/* Holds a stream. A thread releases it later. */
static pthread_t hold_for_a_while(void) {
  pthread_t thread;
  make_streams();
  hold(1);
  MUST(pthread_create(&thread, NULL, release_later, NULL));
  return thread;
}

static void join(pthread_t thread) {
  pthread_join(thread, NULL);
  let_go(1);
}

/* A graph with a conditional node is changed, destroyed and instantiated again while its launch waits. */
static void conditions(void) {
  void *graph = new_graph(), *node = NULL, *fill = NULL;
  devptr memory = check_alloc(4096);
  uint64_t handle = 0;
  MUST(CALL(cuGraphConditionalHandleCreate, (uint64_t *, void *, void *, unsigned, unsigned), &handle, graph,
            NULL, 1, 1));
  struct node_params condition = {.type = CONDITIONAL, .of.condition = {.handle = handle, .size = 1}};
  MUST(add_node(&node, graph, NULL, 0, &condition));
  struct node_params params = fill_node(memory, 7, 1);
  MUST(add_node(&fill, condition.of.condition.bodies[0], NULL, 0, &params));
  void *exec = new_exec(graph);
  make_streams();
  OK(launch(exec, streams[0]));
  IS(7, word_at(memory));
  pthread_t thread = hold_for_a_while();
  OK(CALL(cuGraphLaunch, (void *, void *), exec, streams[0]));
  /* The host instantiates the changed graph when the first launch is over. */
  params = fill_node(memory, 8, 1);
  OK(set_exec(exec, fill, &params));
  OK(CALL(cuGraphLaunch, (void *, void *), exec, streams[1]));
  IS(1, atomic_load(&released));
  join(thread);
  IS(8, word_at(memory));
  atomic_store(&released, 0);
  atomic_store(&ran, 0);
  thread = hold_for_a_while();
  OK(CALL(cuGraphLaunch, (void *, void *), exec, streams[0]));
  OK(CALL(cuGraphExecDestroy, (void *), exec));
  IS(0, atomic_load(&released));
  exec = new_exec(graph);
  join(thread);
  OK(launch(exec, streams[0]));
  IS(7, word_at(memory));
  drop(graph, exec);
}

/* Changes the stack limit while work waits. */
static void limits(void) {
  size_t stack = 0;
  pthread_t thread = hold_for_a_while();
  OK(CALL(cuCtxSetLimit, (int, size_t), 0, 4096));
  OK(CALL(cuCtxGetLimit, (size_t *, int), &stack, 0));
  IS(4096, stack);
  join(thread);
}

static void again(void) {
  atomic_store(&released, 0);
  atomic_store(&ran, 0);
}

/* Gets functions and variables of a module and a library, and a library's module, for the first time. */
static void first_uses(void) {
  static const char code[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .u32 word = 5;\n"
      ".visible .entry nothing()\n{\nret;\n}\n";
  void *modules[2] = {0}, *libraries[3] = {0}, *of_library = NULL, *function = NULL, *kernel = NULL;
  devptr address = 0;
  size_t bytes = 0;
  for (int i = 0; i < 2; i++) MUST(CALL(cuModuleLoadData, (void **, const void *), &modules[i], code));
  for (int i = 0; i < 3; i++)
    MUST(CALL(cuLibraryLoadData, (void **, const void *, int *, void **, unsigned, int *, void **, unsigned),
              &libraries[i], code, NULL, NULL, 0, NULL, NULL, 0));
  MUST(CALL(cuLibraryGetKernel, (void **, void *, const char *), &kernel, libraries[0], "nothing"));
  pthread_t thread = hold_for_a_while();
  OK(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, modules[0], "nothing"));
  join(thread);
  again();
  thread = hold_for_a_while();
  OK(CALL(cuLaunchKernel,
          (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
           void **),
          kernel, 1, 1, 1, 1, 1, 1, 0, streams[1], NULL, NULL));
  join(thread);
  again();
  thread = hold_for_a_while();
  OK(CALL(cuModuleGetGlobal_v2, (devptr *, size_t *, void *, const char *), &address, &bytes, modules[1],
          "word"));
  join(thread);
  IS(5, word_at(address));
  again();
  thread = hold_for_a_while();
  OK(CALL(cuLibraryGetGlobal, (devptr *, size_t *, void *, const char *), &address, &bytes, libraries[1],
          "word"));
  join(thread);
  IS(4, bytes);
  IS(5, word_at(address));
  again();
  thread = hold_for_a_while();
  OK(CALL(cuLibraryGetModule, (void **, void *), &of_library, libraries[2]));
  join(thread);
  TRUE(of_library != NULL);
}

/* Gets a kernel that needs more local memory than a new context has, and that writes 3. */
static void *deep_kernel(void) {
  static const char code[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry deep(.param .u64 to)\n"
      "{\n.local .b8 large[65536];\n.reg .b64 %d;\n.reg .b32 %r;\nmov.u32 %r, 3;\n"
      "st.local.u32 [large+65532], %r;\nld.local.u32 %r, [large+65532];\n"
      "ld.param.u64 %d, [to];\nst.global.u32 [%d], %r;\nret;\n}\n";
  void *module = NULL, *function = NULL;
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, code));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "deep"));
  return function;
}

static void launch_deep(void *function, void *stream, devptr memory) {
  void *parameters[] = {&memory};
  OK(CALL(cuLaunchKernel,
          (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
           void **),
          function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

/* A kernel is launched that needs more local memory than those before it, in two contexts. */
static void local_memory(void) {
  for (int i = 0; i < 2; i++) {
    void *context = NULL;
    if (i > 0) MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, 0));
    void *function = deep_kernel();
    const devptr memory = check_alloc(4);
    again();
    pthread_t thread = hold_for_a_while();
    launch_deep(function, streams[1], memory);
    join(thread);
    IS(3, word_at(memory));
  }
}

/* Streams wait for one function after another while such a kernel is launched. */
static atomic_int ending;
static void pause_a_little(void *data) {
  (void)data;
  usleep(20000);
}
static void *hold_again(void *context) {
  OK(CALL(cuCtxSetCurrent, (void *), context));
  while (!atomic_load(&ending)) {
    for (int i = 2; i < 6; i++)
      OK(CALL(cuLaunchHostFunc, (void *, void (*)(void *), void *), streams[i], pause_a_little, NULL));
    OK(CALL(cuStreamSynchronize, (void *), streams[2]));
  }
  return NULL;
}
static void always_held(void) {
  void *function = deep_kernel(), *context = NULL;
  const devptr memory = check_alloc(4);
  pthread_t thread;
  OK(CALL(cuCtxGetCurrent, (void **), &context));
  make_streams();
  MUST(pthread_create(&thread, NULL, hold_again, context));
  usleep(100000);
  launch_deep(function, streams[1], memory);
  OK(CALL(cuStreamSynchronize, (void *), streams[1]));
  atomic_store(&ending, 1);
  pthread_join(thread, NULL);
  IS(3, word_at(memory));
}

/* A graph has such a kernel. */
static void deep_graph(void) {
  void *function = deep_kernel(), *graph = NULL, *exec = NULL;
  const devptr memory = check_alloc(4);
  make_streams();
  MUST(CALL(cuStreamBeginCapture_v2, (void *, int), streams[0], 0));
  launch_deep(function, streams[0], memory);
  MUST(CALL(cuStreamEndCapture, (void *, void **), streams[0], &graph));
  MUST(CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &exec, graph, 0));
  pthread_t thread = hold_for_a_while();
  OK(CALL(cuGraphLaunch, (void *, void *), exec, streams[1]));
  join(thread);
  IS(3, word_at(memory));
  drop(graph, exec);
}

/* Such a kernel is launched again after the program has set the stack limit back to what it was told. */
static void limit_again(void) {
  void *function = deep_kernel();
  const devptr memory = check_alloc(4);
  size_t stack = 0;
  make_streams();
  OK(CALL(cuCtxGetLimit, (size_t *, int), &stack, 0));
  launch_deep(function, streams[1], memory);
  OK(CALL(cuCtxSynchronize, (void), ));
  OK(CALL(cuCtxSetLimit, (int, size_t), 0, stack));
  pthread_t thread = hold_for_a_while();
  launch_deep(function, streams[1], memory);
  join(thread);
  IS(3, word_at(memory));
}

/* A graph is instantiated while a stream waits for a function, which another thread releases after a launch.
 */
static void *launch_and_release(void *exec) {
  usleep(100000);
  OK(CALL(cuGraphLaunch, (void *, void *), exec, streams[2]));
  atomic_store(&released, 1);
  return NULL;
}
static void instantiated(void) {
  void *first = new_graph(), *graph = NULL, *exec = NULL;
  void *function = deep_kernel(), *node = NULL;
  const devptr memory = check_alloc(4);
  pthread_t thread;
  struct node_params params = fill_node(memory, 7, 1);
  MUST(add_node(&node, first, NULL, 0, &params));
  void *earlier = new_exec(first);
  make_streams();
  MUST(CALL(cuStreamBeginCapture_v2, (void *, int), streams[1], 0));
  launch_deep(function, streams[1], memory);
  MUST(CALL(cuStreamEndCapture, (void *, void **), streams[1], &graph));
  hold(1);
  MUST(pthread_create(&thread, NULL, launch_and_release, earlier));
  MUST(CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &exec, graph, 0));
  pthread_join(thread, NULL);
  let_go(1);
  OK(launch(exec, streams[1]));
  IS(3, word_at(memory));
  drop(first, earlier);
  drop(graph, exec);
}

/* Memory and an array are read. The hardware may make the copies only after the work that waits. */
static void reads(void) {
  const struct {
    size_t width, height;
    int format;
    unsigned channels;
  } shape = {.width = 8, .format = 1, .channels = 1};
  unsigned char bytes[8] = {0};
  unsigned word = 0;
  void *array = NULL;
  devptr memory = check_alloc(1024);
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), memory, 0x01020304, 256));
  MUST(CALL(cuArrayCreate_v2, (void **, const void *), &array, &shape));
  OK(CALL(cuMemcpyHtoA_v2, (void *, size_t, const void *, size_t), array, 0, "abcdefgh", 8));
  pthread_t thread = hold_for_a_while();
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &word, memory, 4));
  join(thread);
  IS(0x01020304, word);
  again();
  thread = hold_for_a_while();
  const struct copy_params rows = {.source = {.type = DEVICE, .device = memory, .pitch = 512, .height = 2},
                                   .destination = {.type = HOST, .host = bytes, .pitch = 4, .height = 2},
                                   .width = 4,
                                   .height = 2,
                                   .depth = 1};
  OK(CALL(cuMemcpy3D_v2, (const void *), &rows));
  join(thread);
  IS(0, memcmp(bytes, "\4\3\2\1\4\3\2\1", 8));
  again();
  thread = hold_for_a_while();
  OK(CALL(cuMemcpyAtoH_v2, (void *, void *, size_t, size_t), bytes, array, 0, 8));
  join(thread);
  IS(0, memcmp(bytes, "abcdefgh", 8));
}

/* Memory is short, so the driver waits before it allocates. */
static void allocates(void) {
  devptr before = check_alloc(4096);
  pthread_t thread = hold_for_a_while();
  devptr memory = check_alloc((size_t)64 << 20);
  join(thread);
  TRUE(memory != before);
  OK(CALL(cuMemFree_v2, (devptr), memory));
}

/* More threads allocate than the host has threads for such calls. */
static void *allocate(void *context) {
  devptr memory = 0;
  OK(CALL(cuCtxSetCurrent, (void *), context));
  OK(CALL(cuMemAlloc_v2, (devptr *, size_t), &memory, (size_t)64 << 20));
  OK(CALL(cuMemFree_v2, (devptr), memory));
  return NULL;
}
static void many_allocate(void) {
  pthread_t threads[20];
  void *context = NULL;
  OK(CALL(cuCtxGetCurrent, (void **), &context));
  pthread_t thread = hold_for_a_while();
  for (int i = 0; i < 20; i++) MUST(pthread_create(&threads[i], NULL, allocate, context));
  for (int i = 0; i < 20; i++) pthread_join(threads[i], NULL);
  join(thread);
}

static size_t free_memory(void) {
  size_t left = 0, total = 0;
  OK(CALL(cuMemGetInfo_v2, (size_t *, size_t *), &left, &total));
  return left;
}

/* A context ends while one of its threads allocates. What the call allocated counts no longer. */
static void *try_to_allocate(void *context) {
  devptr memory = 0;
  (void)CALL(cuCtxSetCurrent, (void *), context);
  (void)CALL(cuMemAlloc_v2, (devptr *, size_t), &memory, (size_t)64 << 20);
  return NULL;
}
static void ends(void) {
  void *first = NULL, *own = NULL;
  pthread_t allocating;
  OK(CALL(cuCtxGetCurrent, (void **), &first));
  const size_t before = free_memory();
  MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &own, 0, 0));
  pthread_t thread = hold_for_a_while();
  MUST(pthread_create(&allocating, NULL, try_to_allocate, own));
  usleep(100000);
  IS(0, atomic_load(&released));
  OK(CALL(cuCtxDestroy_v2, (void *), own));
  pthread_join(allocating, NULL);
  pthread_join(thread, NULL);
  OK(CALL(cuCtxSetCurrent, (void *), first));
  for (int i = 0; i < 1000 && free_memory() < before; i++) usleep(10000);
  TRUE(free_memory() >= before);
}

static const struct check_case cases[] = {
    {"frees", frees},
    {"maps", maps},
    {"launches", launches},
    {"contexts", contexts},
    {"graphs", graphs},
    {"limits", limits},
    {"first_uses", first_uses},
    {"allocates", allocates},
    {"conditions", conditions},
    {"many_allocate", many_allocate},
    {"ends", ends},
    {"local_memory", local_memory},
    {"always_held", always_held},
    {"deep_graph", deep_graph},
    {"limit_again", limit_again},
    {"instantiated", instantiated},
    {"reads", reads},
};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
