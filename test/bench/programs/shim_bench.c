/*
 * Times the shim, each step beside a raw one of the same size in the same loop. The reference never
 * touches CUDA: a socketpair, or shared memory, to a forked child that reads and answers, memcpy, exec of
 * `true`.
 *
 *   shim_bench calls  ROUNDS LIBRARY     a waiting call, a one-way call, many one-way calls
 *   shim_bench launches ROUNDS LIBRARY   a kernel that does nothing, many times and with a wait for each
 *   shim_bench tokens ROUNDS LIBRARY     the calls with which llama.cpp generates one token
 *   shim_bench copies ROUNDS LIBRARY     copies to and from the device, 4 KiB to 256 MiB
 *   shim_bench start  ROUNDS LIBRARY PROBE   a process from nothing to a device that answers
 *
 * Prints one line a sample, "COMPARISON SERIES VALUE": microseconds, or GB/s (10^9 bytes) for
 * copies. The first round is not printed. Exit status 1 with a line on stderr when anything fails.
 */
#include <dlfcn.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

#include "cuda_calls.h"
#include "raw.h"
#include "wire/frame.h"

extern char **environ;

/* The entry points used, as a program that loads the driver by itself declares them. */
static struct {
  int (*init)(unsigned flags);
  int (*count)(int *count);
  int (*context)(void **context, unsigned flags, int device);
  int (*synchronize)(void);
  int (*info)(size_t *free, size_t *total);
  int (*allocate)(uint64_t *address, size_t bytes);
  int (*release)(uint64_t address);
  int (*set)(uint64_t address, unsigned char value, size_t bytes);
  int (*to)(uint64_t destination, const void *source, size_t bytes);
  int (*from)(void *destination, uint64_t source, size_t bytes);
  int (*pin)(void **memory, size_t bytes, unsigned flags);
  int (*module)(void **module, const void *image);
  int (*function)(void **function, void *module, const char *name);
  int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                unsigned shared, void *stream, void **parameters, void **extra);
  int (*stream)(void **stream, unsigned flags);
  int (*wait)(void *stream);
  int (*set_async)(uint64_t address, unsigned char value, size_t bytes, void *stream);
  int (*to_async)(uint64_t destination, const void *source, size_t bytes, void *stream);
  int (*from_async)(void *destination, uint64_t source, size_t bytes, void *stream);
  int (*capture)(void *stream, int mode);
  int (*captured)(void *stream, void **graph);
  int (*instantiate)(void **exec, void *graph, unsigned long long flags);
  int (*launch_graph)(void *exec, void *stream);
} cuda;

static void find(void *library, const char *name, void *target) {
  void *symbol = dlsym(library, name);
  if (symbol == NULL) fail(name, 0);
  memcpy(target, &symbol, sizeof symbol);
}

static void load(const char *path) {
  void *library = dlopen(path, RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "shim_bench: %s\n", dlerror());
    exit(1);
  }
  find(library, "cuInit", &cuda.init);
  find(library, "cuDeviceGetCount", &cuda.count);
  find(library, "cuCtxCreate_v2", &cuda.context);
  find(library, "cuCtxSynchronize", &cuda.synchronize);
  find(library, "cuMemGetInfo_v2", &cuda.info);
  find(library, "cuMemAlloc_v2", &cuda.allocate);
  find(library, "cuMemFree_v2", &cuda.release);
  find(library, "cuMemsetD8_v2", &cuda.set);
  find(library, "cuMemcpyHtoD_v2", &cuda.to);
  find(library, "cuMemcpyDtoH_v2", &cuda.from);
  find(library, "cuMemHostAlloc", &cuda.pin);
  find(library, "cuModuleLoadData", &cuda.module);
  find(library, "cuModuleGetFunction", &cuda.function);
  find(library, "cuLaunchKernel", &cuda.launch);
  find(library, "cuStreamCreate", &cuda.stream);
  find(library, "cuStreamSynchronize", &cuda.wait);
  find(library, "cuMemsetD8Async", &cuda.set_async);
  find(library, "cuMemcpyHtoDAsync_v2", &cuda.to_async);
  find(library, "cuMemcpyDtoHAsync_v2", &cuda.from_async);
  find(library, "cuStreamBeginCapture_v2", &cuda.capture);
  find(library, "cuStreamEndCapture", &cuda.captured);
  find(library, "cuGraphInstantiateWithFlags", &cuda.instantiate);
  find(library, "cuGraphLaunch", &cuda.launch_graph);
}

static void check(int result, const char *what) {
  if (result != 0) fail(what, result);
}

static void open_device(const char *path) {
  load(path);
  check(cuda.init(0), "cuInit");
  void *context;
  check(cuda.context(&context, 0, 0), "cuCtxCreate");
}

#define PIECE ((size_t)VGPU_BULK_MAX)

static void sample(int round, const char *comparison, const char *series, double value) {
  if (round > 0) printf("%s %s %.6f\n", comparison, series, value);
}

/* Bytes on the wire of the calls that are timed, and of an answer without values. */
#define ASK (sizeof(struct vgpu_frame) + sizeof(struct vgpu_send_cuMemGetInfo_v2))
#define ANSWER (sizeof(struct vgpu_frame) + sizeof(struct vgpu_reply_cuMemGetInfo_v2))
#define ONEWAY (sizeof(struct vgpu_frame) + sizeof(struct vgpu_send_cuMemsetD8_v2))
#define DONE (sizeof(struct vgpu_frame))

enum { CALLS = 2000, BURST = 32, BURSTS = 64, MANY = 8000 };

static void waiting_calls(int round) {
  size_t free_bytes, total;
  double begun = now_us();
  for (int i = 0; i < CALLS; i++) check(cuda.info(&free_bytes, &total), "cuMemGetInfo");
  sample(round, "waiting", "shim", (now_us() - begun) / CALLS);

  order_peer((struct order){.times = CALLS, .read = ASK, .piece = ASK, .answer = ANSWER});
  begun = now_us();
  for (int i = 0; i < CALLS; i++) {
    raw_put(source, ASK);
    raw_get(target, ANSWER);
  }
  sample(round, "waiting", "raw", (now_us() - begun) / CALLS);

  order_peer((struct order){.times = CALLS, .read = ASK, .answer = ANSWER, .ring = 1});
  begun = now_us();
  for (int i = 0; i < CALLS; i++) raw_ring(source, ASK, target, ANSWER);
  sample(round, "waiting", "ring", (now_us() - begun) / CALLS);
}

/* What the program pays for: the time until the call is back, not until it is carried out. */
static void one_way_calls(int round, uint64_t address) {
  double spent = 0;
  for (int burst = 0; burst < BURSTS; burst++) {
    double begun = now_us();
    for (int i = 0; i < BURST; i++) check(cuda.set(address, 7, 1), "cuMemsetD8");
    spent += now_us() - begun;
    check(cuda.synchronize(), "cuCtxSynchronize");
  }
  sample(round, "oneway", "shim", spent / BURST / BURSTS);

  spent = 0;
  for (int burst = 0; burst < BURSTS; burst++) {
    order_peer((struct order){.times = 1, .read = ONEWAY * BURST, .piece = ONEWAY, .answer = DONE});
    double begun = now_us();
    for (int i = 0; i < BURST; i++) raw_put(source, ONEWAY);
    spent += now_us() - begun;
    raw_get(target, DONE);
  }
  sample(round, "oneway", "raw", spent / BURST / BURSTS);
}

/* Many, and waited for at the end: how quickly they are carried out. */
static void many_calls(int round, uint64_t address) {
  double begun = now_us();
  for (int i = 0; i < MANY; i++) check(cuda.set(address, 7, 1), "cuMemsetD8");
  check(cuda.synchronize(), "cuCtxSynchronize");
  sample(round, "many", "shim", (now_us() - begun) / MANY);

  order_peer((struct order){.times = 1, .read = ONEWAY * MANY, .piece = ONEWAY, .answer = DONE});
  begun = now_us();
  for (int i = 0; i < MANY; i++) raw_put(source, ONEWAY);
  raw_get(target, DONE);
  sample(round, "many", "raw", (now_us() - begun) / MANY);
}

static void calls(int rounds) {
  uint64_t address;
  check(cuda.allocate(&address, 4096), "cuMemAlloc");
  for (int round = 0; round <= rounds; round++) {
    waiting_calls(round);
    one_way_calls(round, address);
    many_calls(round, address);
  }
}

/* A block of 256 threads that does nothing: what is left is what a launch costs. */
static void launches(int rounds) {
  static const char text[] =
      ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n";
  enum { LAUNCHES = 2000, PAIRS = 500 };
  void *module, *function;
  check(cuda.module(&module, text), "cuModuleLoadData");
  check(cuda.function(&function, module, "nothing"), "cuModuleGetFunction");
  for (int round = 0; round <= rounds; round++) {
    double begun = now_us();
    for (int i = 0; i < LAUNCHES; i++)
      check(cuda.launch(function, 1, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
    check(cuda.synchronize(), "cuCtxSynchronize");
    sample(round, "launches", "shim", (now_us() - begun) / LAUNCHES);

    order_peer((struct order){.times = 1, .read = ONEWAY * LAUNCHES, .piece = ONEWAY, .answer = DONE});
    begun = now_us();
    for (int i = 0; i < LAUNCHES; i++) raw_put(source, ONEWAY);
    raw_get(target, DONE);
    sample(round, "launches", "raw", (now_us() - begun) / LAUNCHES);

    begun = now_us();
    for (int i = 0; i < PAIRS; i++) {
      check(cuda.launch(function, 1, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
      check(cuda.synchronize(), "cuCtxSynchronize");
    }
    sample(round, "pairs", "shim", (now_us() - begun) / PAIRS);

    order_peer((struct order){.times = PAIRS, .read = ASK, .piece = ASK, .answer = ANSWER});
    begun = now_us();
    for (int i = 0; i < PAIRS; i++) {
      raw_put(source, ASK);
      raw_get(target, ANSWER);
    }
    sample(round, "pairs", "raw", (now_us() - begun) / PAIRS);
  }
}

/*
 * What llama.cpp b8390 does for a token with CUDA graphs, counted at the wire: six short uploads, each waited
 * for, one launch of a graph, the logits read into pinned memory and waited for. The graph's nodes fill one
 * byte each, so that what is left is what carrying the calls costs.
 */
static void tokens(int rounds) {
  enum { TOKENS = 200, UPLOADS = 6, NODES = 64, UPLOAD = 64, LOGITS = 4096 };
  void *stream, *graph, *exec, *logits;
  uint64_t address;
  check(cuda.stream(&stream, 1), "cuStreamCreate");
  check(cuda.allocate(&address, LOGITS), "cuMemAlloc");
  check(cuda.pin(&logits, LOGITS, 0), "cuMemHostAlloc");
  check(cuda.capture(stream, 0), "cuStreamBeginCapture");
  for (int i = 0; i < NODES; i++)
    check(cuda.set_async(address + (unsigned)i, 7, 1, stream), "cuMemsetD8Async");
  check(cuda.captured(stream, &graph), "cuStreamEndCapture");
  check(cuda.instantiate(&exec, graph, 0), "cuGraphInstantiate");
  for (int round = 0; round <= rounds; round++) {
    double begun = now_us();
    for (int token = 0; token < TOKENS; token++) {
      for (int i = 0; i < UPLOADS; i++) {
        check(cuda.to_async(address + LOGITS / 2, source, UPLOAD, stream), "cuMemcpyHtoDAsync");
        check(cuda.wait(stream), "cuStreamSynchronize");
      }
      check(cuda.launch_graph(exec, stream), "cuGraphLaunch");
      check(cuda.from_async(logits, address, LOGITS, stream), "cuMemcpyDtoHAsync");
      check(cuda.wait(stream), "cuStreamSynchronize");
    }
    sample(round, "tokens", "shim", (now_us() - begun) / TOKENS);

    order_peer((struct order){.times = TOKENS * (UPLOADS + 1), .read = ASK, .answer = ANSWER, .ring = 1});
    begun = now_us();
    for (int i = 0; i < TOKENS * (UPLOADS + 1); i++) raw_ring(source, ASK, target, ANSWER);
    sample(round, "tokens", "ring", (now_us() - begun) / TOKENS);
  }
}

/* Small copies are repeated until so many bytes have gone: one alone is below what a clock can
 * tell. */
#define ENOUGH ((size_t)8 << 20)

static double rate(size_t bytes, int times, double microseconds) {
  return (double)bytes * times / microseconds / 1e3;
}

static unsigned char *pinned; /* LARGEST bytes */

static void pinned_copy(int round, uint64_t address, size_t size, const char *name, int times, double plain) {
  char to[32], from[32];
  snprintf(to, sizeof to, "pinned-to:%s", name);
  snprintf(from, sizeof from, "pinned-from:%s", name);
  double begun = now_us();
  for (int i = 0; i < times; i++) check(cuda.to(address, pinned, size), "cuMemcpyHtoD");
  check(cuda.synchronize(), "cuCtxSynchronize");
  sample(round, to, "shim", rate(size, times, now_us() - begun));
  sample(round, to, "memcpy", plain);
  begun = now_us();
  for (int i = 0; i < times; i++) check(cuda.from(pinned, address, size), "cuMemcpyDtoH");
  sample(round, from, "shim", rate(size, times, now_us() - begun));
  sample(round, from, "memcpy", plain);
}

static void copy(int round, uint64_t address, size_t size, const char *name) {
  int times = size >= ENOUGH ? 1 : (int)(ENOUGH / size);
  size_t piece = size < PIECE ? size : PIECE;
  char to[32], from[32];
  snprintf(to, sizeof to, "to:%s", name);
  snprintf(from, sizeof from, "from:%s", name);

  double begun = now_us();
  for (int i = 0; i < times; i++) check(cuda.to(address, source, size), "cuMemcpyHtoD");
  check(cuda.synchronize(), "cuCtxSynchronize");
  sample(round, to, "shim", rate(size, times, now_us() - begun));

  begun = now_us();
  for (int i = 0; i < times; i++) check(cuda.from(target, address, size), "cuMemcpyDtoH");
  sample(round, from, "shim", rate(size, times, now_us() - begun));
  if (memcmp(source, target, size) != 0) fail("other bytes came back", (long)size);

  order_peer((struct order){.times = 1, .read = size * (size_t)times, .piece = piece, .answer = DONE});
  begun = now_us();
  for (size_t left = size * (size_t)times; left > 0; left -= piece) raw_put(source, piece);
  raw_get(target, DONE);
  double raw = rate(size, times, now_us() - begun);
  sample(round, to, "socket", raw);

  /* One request, one piece: as a program that waits for its bytes has to do it. */
  uint64_t pieces = size * (size_t)times / piece;
  order_peer((struct order){.times = pieces, .read = DONE, .piece = DONE, .answer = piece});
  begun = now_us();
  for (uint64_t i = 0; i < pieces; i++) {
    raw_put(source, DONE);
    raw_get(target + (i * piece) % size, piece);
  }
  sample(round, from, "socket", rate(size, times, now_us() - begun));

  begun = now_us();
  for (int i = 0; i < times; i++) {
    memcpy(target, source, size);
    __asm__ volatile("" : : "r"(target) : "memory"); /* every copy counts */
  }
  double plain = rate(size, times, now_us() - begun);
  sample(round, to, "memcpy", plain);
  sample(round, from, "memcpy", plain);
  pinned_copy(round, address, size, name, times, plain);
}

static void copies(int rounds) {
  static const struct {
    const char *name;
    size_t size;
  } sizes[] = {{"4KiB", 4u << 10},
               {"64KiB", 64u << 10},
               {"1MiB", 1u << 20},
               {"16MiB", 16u << 20},
               {"256MiB", LARGEST}};
  void *memory;
  check(cuda.pin(&memory, LARGEST, 0), "cuMemHostAlloc");
  pinned = memory;
  memset(pinned, 4, LARGEST);
  for (int round = 0; round <= rounds; round++) {
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
      uint64_t address;
      check(cuda.allocate(&address, sizes[i].size), "cuMemAlloc");
      check(cuda.set(address, 9, sizes[i].size), "cuMemsetD8"); /* the host's pages, before the clock runs */
      check(cuda.synchronize(), "cuCtxSynchronize");
      copy(round, address, sizes[i].size, sizes[i].name);
      check(cuda.release(address), "cuMemFree");
    }
  }
}

/* Microseconds until the program has ended well. */
static double run(char *const arguments[]) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  double begun = now_us();
  pid_t child;
  int status, error = posix_spawn(&child, arguments[0], &actions, NULL, arguments, environ);
  if (error != 0) fail(arguments[0], error);
  if (waitpid(child, &status, 0) != child || status != 0) fail(arguments[0], status);
  double spent = now_us() - begun;
  posix_spawn_file_actions_destroy(&actions);
  return spent;
}

/* What every CUDA program does first. */
static void ready(const char *library) {
  int count;
  load(library);
  check(cuda.init(0), "cuInit");
  check(cuda.count(&count), "cuDeviceGetCount");
  if (count < 1) fail("devices", count);
}

static void starts(int rounds, char *self, char *library, char *probe) {
  char *nothing[] = {"/bin/true", NULL};
  char *ask[] = {self, "ready", "0", library, NULL};
  char *all[] = {probe, "--json", "--library", library, NULL};
  for (int round = 0; round <= rounds; round++) {
    sample(round, "ready", "shim", run(ask));
    sample(round, "ready", "true", run(nothing));
    sample(round, "probe", "shim", run(all));
    sample(round, "probe", "true", run(nothing));
  }
}

int main(int count, char **arguments) {
  const char *what = count > 3 ? arguments[1] : "";
  int rounds = count > 3 ? atoi(arguments[2]) : 0;
  if (strcmp(what, "ready") == 0) {
    ready(arguments[3]);
  } else if (strcmp(what, "calls") == 0 || strcmp(what, "copies") == 0 || strcmp(what, "launches") == 0 ||
             strcmp(what, "tokens") == 0) {
    start_peer();
    open_device(arguments[3]);
    if (what[0] == 'l') launches(rounds);
    else if (what[0] == 't') tokens(rounds);
    else if (what[1] == 'a') calls(rounds);
    else copies(rounds);
  } else if (strcmp(what, "start") == 0 && count > 4) {
    starts(rounds, arguments[0], arguments[3], arguments[4]);
  } else {
    fputs("usage: shim_bench calls|launches|tokens|copies|start ROUNDS LIBRARY [PROBE]\n", stderr);
    return 2;
  }
  return fflush(stdout) == 0 ? 0 : 1;
}
