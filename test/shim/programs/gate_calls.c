/*
 * Calls that a GPU's driver makes wait for the device, while streams wait for host functions of the program.
 * Each function is released only after the calls. A host whose thread sat in one of them could not release
 * the stream, so these cases would never end.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "graph_check.h"

#define STREAMS 16
#define GRANULE ((size_t)2 << 20)
enum { NON_BLOCKING = 1, HOST = 1, DEVICE = 2 };

static atomic_int released, begun, ran;
static void *streams[STREAMS];

static void wait_for_release(void *data) {
  (void)data;
  atomic_store(&begun, 1);
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

/* Memory is freed while sixteen streams wait. */
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

/*
 * Another thread destroys and creates the device's context, which waits for the memory that the first thread
 * freed.
 */
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

/* Gets a kernel that needs `bytes` of local memory, more than a new context has, and writes 3. */
static void *deep_kernel_of(unsigned bytes) {
  char code[512];
  snprintf(code, sizeof code,
           ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry deep(.param .u64 to)\n"
           "{\n.local .b8 large[%u];\n.reg .b64 %%d;\n.reg .b32 %%r;\nmov.u32 %%r, 3;\n"
           "st.local.u32 [large+%u], %%r;\nld.local.u32 %%r, [large+%u];\n"
           "ld.param.u64 %%d, [to];\nst.global.u32 [%%d], %%r;\nret;\n}\n",
           bytes, bytes - 4, bytes - 4);
  void *module = NULL, *function = NULL;
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, code));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "deep"));
  return function;
}

static void *deep_kernel(void) {
  return deep_kernel_of(65536);
}

static void launch_deep(void *function, void *stream, devptr memory) {
  void *parameters[] = {&memory};
  OK(CALL(cuLaunchKernel,
          (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
           void **),
          function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

/* Launches a kernel that needs more local memory than earlier kernels, in two contexts. */
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

/* Such a kernel is put into an executable: by a node, by a child graph, and by a whole update. */
static void exchanged(void) {
  void *function = put_function(), *graph = new_graph(), *child = new_graph(), *other = new_graph();
  void *nodes[2] = {0}, *inside = NULL, *parameters[2], *deep_parameters[2];
  devptr memory = check_alloc(4096);
  unsigned what = 5;
  struct node_params put = put_node(function, &memory, &what, parameters);
  struct node_params deep = put_node(deep_kernel(), &memory, NULL, deep_parameters);
  struct node_params nested = {.type = GRAPH, .of.child = {child, 0}};
  MUST(add_node(&inside, child, NULL, 0, &put));
  MUST(add_node(&nodes[1], graph, NULL, 0, &nested));
  MUST(add_node(&nodes[0], graph, &nodes[1], 1, &put));
  void *exec = new_exec(graph);
#define LAUNCHES_DEEP()                                                                                      \
  OK(CALL(cuGraphLaunch, (void *, void *), exec, streams[1]));                                               \
  join(thread);                                                                                              \
  IS(3, word_at(memory));                                                                                    \
  again()
  pthread_t thread = hold_for_a_while();
  OK(set_exec(exec, nodes[0], &deep));
  LAUNCHES_DEEP();
  clear(memory, 1);
  deep.of.kernel.function = deep_kernel_of(100000);
  OK(set_node(inside, &deep));
  thread = hold_for_a_while();
  OK(CALL(cuGraphExecChildGraphNodeSetParams, (void *, void *, void *), exec, nodes[1], child));
  LAUNCHES_DEEP();
  drop(NULL, exec);
  drop(graph, NULL);
  drop(child, NULL);
  graph = new_graph();
  MUST(add_node(&nodes[0], graph, NULL, 0, &put));
  exec = new_exec(graph);
  deep.of.kernel.function = deep_kernel_of(130000);
  MUST(add_node(&inside, other, NULL, 0, &deep));
  clear(memory, 1);
  thread = hold_for_a_while();
  struct update_info info;
  OK(CALL(cuGraphExecUpdate_v2, (void *, void *, void *), exec, other, &info));
  LAUNCHES_DEEP();
  drop(graph, exec);
  drop(other, NULL);
}

/* Such a kernel is launched for the first time while another stream captures. */
static void beside_capture(void) {
  void *function = deep_kernel(), *graph = NULL, *capturing = new_stream();
  const devptr memory = check_alloc(4);
  enum { RELAXED = 2 };
  MUST(CALL(cuStreamBeginCapture_v2, (void *, int), capturing, RELAXED));
  pthread_t thread = hold_for_a_while();
  launch_deep(function, streams[1], memory);
  join(thread);
  IS(3, word_at(memory));
  OK(CALL(cuStreamEndCapture, (void *, void **), capturing, &graph));
  drop(graph, NULL);
}

/* Such a kernel is launched again after the program has set the stack limit to the value that it had read. */
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

/* Reads memory and an array. The hardware may make the copies only after the waiting work. */
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

/* Bytes are uploaded to a stream that waits for nothing. */
static void upload(void) {
  enum { BYTES = 1 << 20 };
  unsigned char *bytes = check_bytes(BYTES);
  const devptr memory = check_alloc(BYTES);
  memset(bytes, 5, BYTES);
  pthread_t thread = hold_for_a_while();
  OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), memory, bytes, BYTES, streams[1]));
  OK(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), memory, bytes, BYTES));
  IS(0, atomic_load(&released));
  join(thread);
  IS(0x05050505, word_at(memory));
}

/* Uploads shared pinned memory, more than the host copies. */
static void upload_pinned(void) {
  enum { BYTES = 80 << 20 };
  unsigned char *bytes = NULL;
  const devptr memory = check_alloc(BYTES);
  MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&bytes, BYTES, 0));
  memset(bytes, 6, BYTES);
  pthread_t thread = hold_for_a_while();
  OK(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), memory, bytes, BYTES));
  join(thread);
  IS(0x06060606, word_at(memory + BYTES - 4));
}

/* Threads upload more to a waiting stream than the host has room for. */
enum { UPLOADS = 8, UPLOAD_BYTES = 12 << 20 };
static unsigned char *uploaded;
static void *upload_behind(void *memory) {
  void *context = NULL;
  OK(CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0));
  OK(CALL(cuCtxSetCurrent, (void *), context));
  OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), *(devptr *)memory, uploaded,
          UPLOAD_BYTES, streams[0]));
  return NULL;
}
static void uploads(void) {
  pthread_t threads[UPLOADS];
  devptr memory[UPLOADS];
  uploaded = check_bytes(UPLOAD_BYTES);
  memset(uploaded, 7, UPLOAD_BYTES);
  for (int i = 0; i < UPLOADS; i++) memory[i] = check_alloc(UPLOAD_BYTES);
  make_streams();
  hold(1);
  for (int i = 0; i < UPLOADS; i++) MUST(pthread_create(&threads[i], NULL, upload_behind, &memory[i]));
  sleep(2); /* the uploads fill the host's room much sooner */
  let_go(1);
  for (int i = 0; i < UPLOADS; i++) pthread_join(threads[i], NULL);
  OK(CALL(cuCtxSynchronize, (void), ));
  for (int i = 0; i < UPLOADS; i++) IS(0x07070707, word_at(memory[i] + UPLOAD_BYTES - 4));
}

/* The same in a context, after uploads in another one have taken the host's room. */
static void uploads_elsewhere(void) {
  void *context = NULL;
  uploads();
  MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, 0));
  again();
  upload();
}

/* A module's managed word, and its table, of which `go` increments the word and the last byte. */
static unsigned *managed_word_and(unsigned table_bytes, unsigned char **table, void **function) {
  char code[1024];
  snprintf(code, sizeof code,
           ".version 6.0\n.target sm_60\n.address_size 64\n"
           ".visible .global .attribute(.managed) .align 4 .u32 word = 5;\n"
           ".visible .global .attribute(.managed) .align 4 .b8 table[%u];\n"
           ".visible .entry go()\n{\n.reg .b32 %%r;\n"
           "ld.global.u32 %%r, [word];\nadd.u32 %%r, %%r, 1;\nst.global.u32 [word], %%r;\n"
           "ld.global.u8 %%r, [table+%u];\nadd.u32 %%r, %%r, 1;\nst.global.u8 [table+%u], %%r;\nret;\n}\n",
           table_bytes, table_bytes - 1, table_bytes - 1);
  void *module = NULL;
  devptr word = 0, bytes = 0;
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, code));
  MUST(CALL(cuModuleGetGlobal_v2, (devptr *, size_t *, void *, const char *), &word, NULL, module, "word"));
  MUST(CALL(cuModuleGetGlobal_v2, (devptr *, size_t *, void *, const char *), &bytes, NULL, module, "table"));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), function, module, "go"));
  *table = (unsigned char *)(uintptr_t)bytes;
  return (unsigned *)(uintptr_t)word;
}

enum { MANAGED_BYTES = 300000 };
static unsigned *managed_word(unsigned char **table, void **function) {
  return managed_word_and(MANAGED_BYTES, table, function);
}

static void launch_in(void *function, void *stream) {
  OK(CALL(cuLaunchKernel,
          (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
           void **),
          function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

static void launch_go(void *function) {
  launch_in(function, streams[1]);
}

/* The program and a kernel change managed variables while another stream waits. */
static void managed(void) {
  void *function = NULL, *other = NULL;
  unsigned char *table = NULL, *table_of_other = NULL;
  unsigned *word = managed_word(&table, &function);
  const devptr plain = check_alloc(4);
  make_streams();
  launch_go(function);
  OK(CALL(cuStreamSynchronize, (void *), streams[1]));
  IS(6, *word);
  pthread_t thread = hold_for_a_while();
  *word = 20;
  memset(table, 30, MANAGED_BYTES);
  launch_go(function);
  OK(CALL(cuStreamSynchronize, (void *), streams[1]));
  IS(21, *word);
  IS(30, table[0]);
  IS(31, table[MANAGED_BYTES - 1]);
  join(thread);
  again();
  clear(plain, 1);
  thread = hold_for_a_while();
  *word = 40;
  launch_go(function);
  unsigned read = 1;
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), &read, plain, 4, streams[1]));
  IS(0, read);
  IS(41, *word);
  join(thread);
  again();
  thread = hold_for_a_while();
  const unsigned *word_of_other = managed_word(&table_of_other, &other);
  IS(5, *word_of_other);
  join(thread);
}

/* The same with queries: this thread releases the stream only after they have ended. */
static void managed_queries(void) {
  void *function = NULL;
  unsigned char *table = NULL;
  unsigned *word = managed_word(&table, &function);
  int result;
  make_streams();
  launch_go(function);
  OK(CALL(cuStreamSynchronize, (void *), streams[1]));
  hold(1);
  *word = 60;
  launch_go(function);
  for (int i = 0; i < 100; i++) {
    result = CALL(cuStreamQuery, (void *), streams[1]);
    TRUE(result == 0 || result == NOT_READY);
  }
  IS(0, atomic_load(&released));
  atomic_store(&released, 1);
  while ((result = CALL(cuStreamQuery, (void *), streams[1])) == NOT_READY) usleep(1000);
  IS(0, result);
  IS(61, *word);
  IS(2, table[MANAGED_BYTES - 1]);
  let_go(1);
}

/* More bytes change than the channel's queue can hold if each 64 KiB takes one place. */
static void managed_many(void) {
  enum { BYTES = 68 << 20 };
  void *function = NULL;
  unsigned char *table = NULL;
  const unsigned *word = managed_word_and(BYTES, &table, &function);
  make_streams();
  launch_go(function);
  OK(CALL(cuStreamSynchronize, (void *), streams[1]));
  hold(1);
  TRUE(check_free_memory() > 0); /* the stream waits at the host */
  memset(table, 30, BYTES);
  launch_go(function);
  atomic_store(&released, 1);
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(7, *word);
  IS(30, table[0]);
  IS(31, table[BYTES - 1]);
}

/* Launches such a kernel, then holds a stream. The function runs already: its thread must not get an error.
 */
static unsigned *held_word(unsigned char **table, void **function) {
  unsigned *word = managed_word(table, function);
  make_streams();
  launch_go(*function);
  OK(CALL(cuStreamSynchronize, (void *), streams[1]));
  hold(1);
  while (!atomic_load(&begun)) usleep(1000);
  return word;
}

/*
 * cuStreamWaitEvent fails, so the stream cannot wait for the copy of changed bytes. The kernel must not run
 * without these bytes.
 */
static void managed_unordered(void) {
  void *function = NULL;
  unsigned char *table = NULL;
  unsigned *word = held_word(&table, &function);
  pthread_t thread;
  *word = 20;
  launch_go(function);
  MUST(pthread_create(&thread, NULL, release_later, NULL));
  IS(999, CALL(cuStreamSynchronize, (void *), streams[1]));
  join(thread);
  IS(20, *word);
  IS(1, table[MANAGED_BYTES - 1]);
}

/* The copy of changed bytes to the device fails. The next kernel must find them. */
static void managed_uncopied(void) {
  void *function = NULL;
  unsigned char *table = NULL;
  unsigned *word = held_word(&table, &function);
  pthread_t thread;
  *word = 20;
  launch_go(function);
  MUST(pthread_create(&thread, NULL, release_later, NULL));
  IS(999, CALL(cuStreamSynchronize, (void *), streams[1]));
  launch_go(function);
  OK(CALL(cuStreamSynchronize, (void *), streams[1]));
  IS(21, *word);
  IS(2, table[MANAGED_BYTES - 1]);
  join(thread);
}

/*
 * A copy for the first context fails while a kernel is launched in another one, which must run. With `copied`
 * the copy was made before, and the driver returns an error for its event.
 */
static void launch_elsewhere(bool copied) {
  void *function = NULL, *other = NULL, *context = NULL, *own = NULL, *stream = NULL;
  unsigned char *table = NULL, *table_of_other = NULL;
  pthread_t thread;
  OK(CALL(cuCtxGetCurrent, (void **), &context));
  MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &own, 0, 0));
  unsigned *word_of_other = managed_word(&table_of_other, &other);
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, NON_BLOCKING));
  OK(CALL(cuCtxSetCurrent, (void *), context));
  unsigned *word = held_word(&table, &function);
  *word = 20;
  if (copied) launch_go(function);
  OK(CALL(cuCtxSetCurrent, (void *), own));
  if (copied) *word_of_other = 30;
  launch_in(other, stream);
  MUST(pthread_create(&thread, NULL, release_later, NULL));
  OK(CALL(cuStreamSynchronize, (void *), stream));
  IS(copied ? 31 : 6, *word_of_other);
  OK(CALL(cuCtxSetCurrent, (void *), context));
  join(thread);
  if (!copied) launch_go(function);
  OK(CALL(cuStreamSynchronize, (void *), streams[1]));
  IS(21, *word);
}

static void managed_elsewhere(void) {
  launch_elsewhere(false);
}

static void managed_unasked(void) {
  launch_elsewhere(true);
}

/* Uploads fail before they take the room that the host has reserved for them. */
static void *upload_in_vain(void *memory) {
  enum { BYTES = 512 << 10 }; /* four pieces */
  void *context = NULL;
  OK(CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0));
  OK(CALL(cuCtxSetCurrent, (void *), context));
  OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), *(devptr *)memory, uploaded, BYTES,
          streams[1]));
  return NULL;
}
static void managed_rooms(void) {
  void *function = NULL;
  unsigned char *table = NULL;
  unsigned *word = held_word(&table, &function);
  devptr memory = check_alloc(UPLOAD_BYTES);
  uploaded = check_bytes(UPLOAD_BYTES);
  *word = 20;
  for (int i = 0; i <= UPLOADS; i++) {
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, upload_in_vain, &memory));
    pthread_join(thread, NULL);
  }
  IS(0, atomic_load(&released));
  atomic_store(&released, 1);
  IS(999, CALL(cuCtxSynchronize, (void), ));
  let_go(1);
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

/*
 * A context ends while one of its threads allocates. What the call allocated does not count when that thread
 * asks how much is free.
 */
static atomic_int allocates_now;
static void *first;
static size_t before;
static void *try_to_allocate(void *context) {
  devptr memory = 0;
  OK(CALL(cuCtxSetCurrent, (void *), context));
  atomic_store(&allocates_now, 1);
  TRUE(CALL(cuMemAlloc_v2, (devptr *, size_t), &memory, (size_t)64 << 20) != 0);
  OK(CALL(cuCtxSetCurrent, (void *), first));
  TRUE(free_memory() >= before);
  return NULL;
}
static void ends(void) {
  void *own = NULL;
  pthread_t allocating;
  OK(CALL(cuCtxGetCurrent, (void **), &first));
  pthread_t thread = hold_for_a_while();
  before = free_memory();
  MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &own, 0, 0));
  MUST(pthread_create(&allocating, NULL, try_to_allocate, own));
  while (!atomic_load(&allocates_now)) usleep(1000);
  usleep(100000);
  IS(0, atomic_load(&released));
  OK(CALL(cuCtxDestroy_v2, (void *), own));
  pthread_join(allocating, NULL);
  OK(CALL(cuCtxSetCurrent, (void *), first));
  join(thread);
}

/* The driver does not record the event of an upload: its bytes must stay until the device has read them. */
static void unrecorded(void) {
  enum { BYTES = 64 << 10 };
  unsigned char *bytes = check_bytes(BYTES);
  const devptr first = check_alloc(BYTES), second = check_alloc(BYTES);
  memset(bytes, 1, BYTES);
  pthread_t thread = hold_for_a_while();
  while (!atomic_load(&begun)) usleep(1000); /* the function's thread must not get the error */
#define UPLOAD(to) CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), to, bytes, BYTES)
  OK(UPLOAD(first));
  memset(bytes, 2, BYTES);
  (void)UPLOAD(second); /* has the error of the first */
  OK(UPLOAD(second));
  join(thread);
  IS(0x01010101, word_at(first));
  IS(0x02020202, word_at(second));
}

/* The host's thread that frees objects cannot make the first one's context current. */
static void uncurrent(void) {
  const size_t before = free_memory();
  devptr memory = check_alloc((size_t)32 << 20);
  (void)CALL(cuMemFree_v2, (devptr), memory);
  (void)CALL(cuCtxSynchronize, (void), ); /* has the error */
  IS(before, free_memory());
}

/* A pool that keeps memory is destroyed, which the driver does later. Another thread asks what is free. */
static void *ask_for_free(void *bytes) {
  OK(CALL(cuCtxSetCurrent, (void *), first));
  *(size_t *)bytes = free_memory();
  return NULL;
}
static void pool_ends(void) {
  enum { BYTES = 64 << 20, RELEASE_THRESHOLD = 4 };
  const struct {
    int type, handle_types, location_type, location;
    unsigned char unused[72];
  } properties = {.type = 1, .location_type = 1};
  void *pool = NULL;
  uint64_t everything = UINT64_MAX;
  devptr memory = 0;
  size_t meanwhile = 0;
  pthread_t asking;
  OK(CALL(cuCtxGetCurrent, (void **), &first));
  before = free_memory();
  MUST(CALL(cuMemPoolCreate, (void **, const void *), &pool, &properties));
  OK(CALL(cuMemPoolSetAttribute, (void *, int, void *), pool, RELEASE_THRESHOLD, &everything));
  OK(CALL(cuMemAllocFromPoolAsync, (devptr *, size_t, void *, void *), &memory, BYTES, pool, NULL));
  OK(CALL(cuMemFreeAsync, (devptr, void *), memory, NULL));
  OK(CALL(cuCtxSynchronize, (void), ));
  make_streams();
  hold(1);
  OK(CALL(cuMemPoolDestroy, (void *), pool));
  MUST(pthread_create(&asking, NULL, ask_for_free, &meanwhile));
  pthread_join(asking, NULL);
  IS(before - BYTES, meanwhile);
  let_go(1);
  IS(before, free_memory());
}

/* Returns the bytes of memory of the host's workers. A child's pid can be less than its parent's. */
static size_t host_memory(void) {
  const int host = atoi(getenv("HOST_PID"));
  size_t sum = 0;
  DIR *processes = opendir("/proc");
  MUST(processes == NULL);
  for (const struct dirent *entry; (entry = readdir(processes)) != NULL;) {
    const int pid = atoi(entry->d_name);
    char path[64], text[256];
    int parent = 0;
    long pages = 0;
    if (pid <= 0) continue;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) continue;
    if (fgets(text, sizeof text, file) == NULL || sscanf(text, "%*d (%*[^)]) %*c %d", &parent) != 1)
      parent = 0;
    fclose(file);
    if (parent != host) continue;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    file = fopen(path, "r");
    if (file == NULL) continue;
    if (fscanf(file, "%*d %ld", &pages) == 1) sum += (size_t)pages * 4096;
    fclose(file);
  }
  closedir(processes);
  return sum;
}

/* Functions with long names are looked up while a stream waits. The host must not keep the names. */
static char long_name[60000];
static void *module_without;
static void *ask_for_name(void *context) {
  void *function = NULL;
  OK(CALL(cuCtxSetCurrent, (void *), context));
  IS(NOT_FOUND,
     CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module_without, long_name));
  return NULL;
}
static void names(void) {
  static const char code[] = ".version 7.0\n.target sm_70\n.address_size 64\n";
  pthread_t threads[8];
  void *context = NULL;
  size_t before = 0;
  memset(long_name, 'x', sizeof long_name - 1);
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module_without, code));
  OK(CALL(cuCtxGetCurrent, (void **), &context));
  make_streams();
  for (int i = 0; i < 20; i++) {
    again();
    hold(1);
    for (int j = 0; j < 8; j++) MUST(pthread_create(&threads[j], NULL, ask_for_name, context));
    usleep(20000);
    let_go(1);
    for (int j = 0; j < 8; j++) pthread_join(threads[j], NULL);
    if (i == 3) before = host_memory();
  }
  const size_t after = host_memory();
  printf("%zu bytes, then %zu\n", before, after);
  TRUE(before > 0);
  TRUE(after < before + (4 << 20));
}

static const struct check_case cases[] = {
    {"frees", frees},
    {"maps", maps},
    {"launches", launches},
    {"contexts", contexts},
    {"graphs", graphs},
    {"limits", limits},
    {"first_uses", first_uses},
    {"upload", upload},
    {"upload_pinned", upload_pinned},
    {"uploads", uploads},
    {"uploads_elsewhere", uploads_elsewhere},
    {"managed", managed},
    {"managed_queries", managed_queries},
    {"managed_many", managed_many},
    {"managed_unordered", managed_unordered},
    {"managed_uncopied", managed_uncopied},
    {"managed_elsewhere", managed_elsewhere},
    {"managed_unasked", managed_unasked},
    {"managed_rooms", managed_rooms},
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
    {"exchanged", exchanged},
    {"beside_capture", beside_capture},
    {"unrecorded", unrecorded},
    {"uncurrent", uncurrent},
    {"pool_ends", pool_ends},
    {"names", names},
};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
