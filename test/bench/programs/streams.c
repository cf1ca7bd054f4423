/* Times of a stream: a call that waits, launches of which none waits, and copies of two sizes. */
#include <string.h>
#include <time.h>

#include "sides.h"

enum { WAITING = 1000, FLOOD = 20000, SMALL = 4 << 10, SMALL_TIMES = 500, LARGE = 1 << 20, LARGE_TIMES = 16 };

/* One thread a launch, so that the simulated GPU has little to do. */
static void prepare(struct side *side) {
  static const char text[] =
      ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n";
  void *module;
  check(cuda.module(&module, text), "cuModuleLoadData");
  check(cuda.function(&side->function, module, "nothing"), "cuModuleGetFunction");
  check(cuda.allocate(&side->address, LARGE), "cuMemAlloc");
}

static void wait_often(int round, const char *series) {
  size_t free_bytes, total;
  double begun = now_us();
  for (int i = 0; i < WAITING; i++) check(cuda.info(&free_bytes, &total), "cuMemGetInfo");
  sample(round, "waiting", series, (now_us() - begun) / WAITING);
}

/* Processor time of all threads of this program. */
static double spent_us(void) {
  struct timespec spent;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return (double)spent.tv_sec * 1e6 + (double)spent.tv_nsec / 1e3;
}

static void flood(int round, const struct side *side) {
  check(cuda.synchronize(), "cuCtxSynchronize");
  double begun = now_us(), before = spent_us();
  for (int i = 0; i < FLOOD; i++)
    check(cuda.launch(side->function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
  double issued = spent_us() - before;
  check(cuda.synchronize(), "cuCtxSynchronize");
  sample(round, "issued", side->series, issued / FLOOD);
  sample(round, "flood", side->series, (now_us() - begun) / FLOOD);
}

/* Microseconds a copy. */
static void copy(int round, const struct side *side, size_t size, int times, const char *to,
                 const char *from) {
  double begun = now_us();
  for (int i = 0; i < times; i++) check(cuda.to(side->address, source, size), "cuMemcpyHtoD");
  check(cuda.synchronize(), "cuCtxSynchronize");
  sample(round, to, side->series, (now_us() - begun) / times);
  begun = now_us();
  for (int i = 0; i < times; i++) check(cuda.from(target, side->address, size), "cuMemcpyDtoH");
  sample(round, from, side->series, (now_us() - begun) / times);
  if (memcmp(source, target, size) != 0) fail("other bytes came back", (long)size);
}

void streams(int rounds) {
  for (size_t number = 0; number < side_count; number++) prepare(turn(number));
  for (int round = 0; round <= rounds; round++) {
    for (size_t number = 0; number < side_count; number++) {
      const struct side *now = turn(number);
      wait_often(round, now->series);
      flood(round, now);
      copy(round, now, SMALL, SMALL_TIMES, "to:4KiB", "from:4KiB");
      copy(round, now, LARGE, LARGE_TIMES, "to:1MiB", "from:1MiB");
    }
  }
}
