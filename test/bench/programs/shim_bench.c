/*
 * Times the shim, each step beside a raw one of the same size in the same loop. The reference never
 * touches CUDA: a socketpair, or shared memory, to a forked child that reads and answers, memcpy, exec of
 * `true`.
 *
 *   shim_bench calls    ROUNDS LIBRARY INPROCESS   a waiting call, a one-way call, many one-way calls
 *   shim_bench launches ROUNDS LIBRARY INPROCESS   a kernel that does nothing: many, and one with a wait
 *   shim_bench tokens   ROUNDS LIBRARY INPROCESS   the calls with which llama.cpp generates one token
 *   shim_bench copies   ROUNDS LIBRARY INPROCESS   copies to and from the device, 4 KiB to 256 MiB
 *   shim_bench streams  ROUNDS LIBRARY INPROCESS   a waiting call, 20,000 launches of one thread, short
 * copies shim_bench start    ROUNDS LIBRARY PROBE       a process from nothing to a device that answers
 *
 * INPROCESS is the library with the simulated GPU inside (test/shim/inprocess), measured in the same rounds.
 * Prints one line a sample, "COMPARISON SERIES VALUE": microseconds, or GB/s (10^9 bytes) for copies. The
 * first round is not printed. Exit status 1 with a line on stderr when anything fails.
 */
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sides.h"

extern char **environ;

enum { CALLS = 2000, BURST = 32, BURSTS = 64, MANY = 8000 };

static void waiting_calls(int round) {
  double begun;
  for (size_t side = 0; side < side_count; side++) {
    const char *series = turn(side)->series;
    size_t free_bytes, total;
    begun = now_us();
    for (int i = 0; i < CALLS; i++) check(cuda.info(&free_bytes, &total), "cuMemGetInfo");
    sample(round, "waiting", series, (now_us() - begun) / CALLS);
  }

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

/* The program's cost: the time until the call is back, not until it is carried out. */
static void one_way_calls(int round) {
  double spent;
  for (size_t side = 0; side < side_count; side++) {
    const struct side *now = turn(side);
    spent = 0;
    for (int burst = 0; burst < BURSTS; burst++) {
      double begun = now_us();
      for (int i = 0; i < BURST; i++) check(cuda.set(now->address, 7, 1), "cuMemsetD8");
      spent += now_us() - begun;
      check(cuda.synchronize(), "cuCtxSynchronize");
    }
    sample(round, "oneway", now->series, spent / BURST / BURSTS);
  }

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
static void many_calls(int round) {
  double begun;
  for (size_t side = 0; side < side_count; side++) {
    const struct side *now = turn(side);
    begun = now_us();
    for (int i = 0; i < MANY; i++) check(cuda.set(now->address, 7, 1), "cuMemsetD8");
    check(cuda.synchronize(), "cuCtxSynchronize");
    sample(round, "many", now->series, (now_us() - begun) / MANY);
  }

  order_peer((struct order){.times = 1, .read = ONEWAY * MANY, .piece = ONEWAY, .answer = DONE});
  begun = now_us();
  for (int i = 0; i < MANY; i++) raw_put(source, ONEWAY);
  raw_get(target, DONE);
  sample(round, "many", "raw", (now_us() - begun) / MANY);
}

static void calls(int rounds) {
  for (size_t side = 0; side < side_count; side++) {
    struct side *now = turn(side);
    check(cuda.allocate(&now->address, 4096), "cuMemAlloc");
  }
  for (int round = 0; round <= rounds; round++) {
    waiting_calls(round);
    one_way_calls(round);
    many_calls(round);
  }
}

/* A block of 256 threads that does nothing: what is left is what a launch costs. */
static void launches(int rounds) {
  static const char text[] =
      ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n";
  enum { LAUNCHES = 2000, PAIRS = 500 };
  for (size_t side = 0; side < side_count; side++) {
    struct side *now = turn(side);
    void *module;
    check(cuda.module(&module, text), "cuModuleLoadData");
    check(cuda.function(&now->function, module, "nothing"), "cuModuleGetFunction");
  }
  for (int round = 0; round <= rounds; round++) {
    double begun;
    for (size_t side = 0; side < side_count; side++) {
      const struct side *now = turn(side);
      begun = now_us();
      for (int i = 0; i < LAUNCHES; i++)
        check(cuda.launch(now->function, 1, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
      check(cuda.synchronize(), "cuCtxSynchronize");
      sample(round, "launches", now->series, (now_us() - begun) / LAUNCHES);
    }

    order_peer((struct order){.times = 1, .read = ONEWAY * LAUNCHES, .piece = ONEWAY, .answer = DONE});
    begun = now_us();
    for (int i = 0; i < LAUNCHES; i++) raw_put(source, ONEWAY);
    raw_get(target, DONE);
    sample(round, "launches", "raw", (now_us() - begun) / LAUNCHES);

    for (size_t side = 0; side < side_count; side++) {
      const struct side *now = turn(side);
      begun = now_us();
      for (int i = 0; i < PAIRS; i++) {
        check(cuda.launch(now->function, 1, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
        check(cuda.synchronize(), "cuCtxSynchronize");
      }
      sample(round, "pairs", now->series, (now_us() - begun) / PAIRS);
    }

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
 * The calls of llama.cpp b8390 for a token with CUDA graphs, counted at the wire: six short uploads, each
 * waited for, one launch of a graph, the logits read into pinned memory and waited for. The graph's nodes
 * fill one byte each, so that what is left is what carrying the calls costs.
 */
enum { TOKENS = 200, UPLOADS = 6, NODES = 64, UPLOAD = 64, LOGITS = 4096 };

static void prepare_token(struct side *side) {
  void *graph;
  check(cuda.stream(&side->stream, 1), "cuStreamCreate");
  check(cuda.allocate(&side->address, LOGITS), "cuMemAlloc");
  check(cuda.pin(&side->logits, LOGITS, 0), "cuMemHostAlloc");
  check(cuda.capture(side->stream, 0), "cuStreamBeginCapture");
  for (unsigned i = 0; i < NODES; i++) {
    check(cuda.set_async(side->address + i, 7, 1, side->stream), "cuMemsetD8Async");
  }
  check(cuda.captured(side->stream, &graph), "cuStreamEndCapture");
  check(cuda.instantiate(&side->exec, graph, 0), "cuGraphInstantiate");
}

static void one_token(const struct side *side) {
  for (int i = 0; i < UPLOADS; i++) {
    check(cuda.to_async(side->address + LOGITS / 2, source, UPLOAD, side->stream), "cuMemcpyHtoDAsync");
    check(cuda.wait(side->stream), "cuStreamSynchronize");
  }
  check(cuda.launch_graph(side->exec, side->stream), "cuGraphLaunch");
  check(cuda.from_async(side->logits, side->address, LOGITS, side->stream), "cuMemcpyDtoHAsync");
  check(cuda.wait(side->stream), "cuStreamSynchronize");
}

static void tokens(int rounds) {
  for (size_t side = 0; side < side_count; side++) prepare_token(turn(side));
  for (int round = 0; round <= rounds; round++) {
    double begun;
    for (size_t side = 0; side < side_count; side++) {
      const struct side *now = turn(side);
      begun = now_us();
      for (int token = 0; token < TOKENS; token++) one_token(now);
      sample(round, "tokens", now->series, (now_us() - begun) / TOKENS);
    }

    order_peer((struct order){.times = TOKENS * (UPLOADS + 1), .read = ASK, .answer = ANSWER, .ring = 1});
    begun = now_us();
    for (int i = 0; i < TOKENS * (UPLOADS + 1); i++) raw_ring(source, ASK, target, ANSWER);
    sample(round, "tokens", "ring", (now_us() - begun) / TOKENS);
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

/* The first calls of every CUDA program. */
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
             strcmp(what, "tokens") == 0 || strcmp(what, "streams") == 0) {
    start_peer();
    open_side("shim", arguments[3]);
    if (count > 4) open_side("process", arguments[4]);
    if (what[0] == 's') streams(rounds);
    else if (what[0] == 'l') launches(rounds);
    else if (what[0] == 't') tokens(rounds);
    else if (what[1] == 'a') calls(rounds);
    else copies(rounds);
  } else if (strcmp(what, "start") == 0 && count > 4) {
    starts(rounds, arguments[0], arguments[3], arguments[4]);
  } else {
    fputs("usage: shim_bench calls|launches|tokens|copies|streams|start ROUNDS LIBRARY [INPROCESS|PROBE]\n",
          stderr);
    return 2;
  }
  return fflush(stdout) == 0 ? 0 : 1;
}
