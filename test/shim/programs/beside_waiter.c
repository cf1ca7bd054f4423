/*
 * One thread waits in a long call while another thread makes short calls. Neither thread may sleep by the
 * clock, and the waiting thread must not slow the short calls down. Prints "RATIO NAPS BESIDE ALONE": the
 * rate of the short calls beside the waiting thread divided by their rate without it, the number of
 * nanosleep() calls of both threads, and the microseconds of a short call beside the waiting thread and
 * without it. The two rates are measured in turn.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { ROUNDS = 12, SLICES = 4, NON_BLOCKING = 1 };

static int calls; /* of a slice: the environment's CALLS */

static void *work; /* a stream */
static devptr data, flag;
static unsigned char seen[64];
static int (*waiting_call)(void);
static atomic_uint naps;
static _Thread_local bool counted;

/* Replaces the C library's function, also for the library under test. */
__attribute__((visibility("default"))) int nanosleep(const struct timespec *time, struct timespec *rest) {
  if (counted) atomic_fetch_add(&naps, 1);
  return (int)syscall(SYS_nanosleep, time, rest);
}

static int stream_waits(void) {
  return CALL(cuStreamSynchronize, (void *), work);
}
static int context_waits(void) {
  return CALL(cuCtxSynchronize, (void), );
}
static int event_waits(void) {
  void *event = NULL;
  OK(CALL(cuEventCreate, (void **, unsigned), &event, 0));
  OK(CALL(cuEventRecord, (void *, void *), event, work));
  int result = CALL(cuEventSynchronize, (void *), event);
  OK(CALL(cuEventDestroy_v2, (void *), event));
  return result;
}
static int read_waits(void) {
  int result = CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), seen, data, sizeof seen, work);
  IS(7, seen[0]);
  return result;
}

static void *wait_long(void *context) {
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  counted = true;
  OK(waiting_call());
  return NULL;
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Returns the nanoseconds of the fastest of several series of calls. */
static uint64_t quickest(void) {
  uint64_t quickest = UINT64_MAX;
  size_t free_bytes, total;
  for (int slice = 0; slice < SLICES; slice++) {
    const uint64_t begun = now_ns();
    for (int i = 0; i < calls; i++) OK(CALL(cuMemGetInfo_v2, (size_t *, size_t *), &free_bytes, &total));
    const uint64_t took = now_ns() - begun;
    if (took < quickest) quickest = took;
  }
  return quickest;
}

static int by_size(const void *one, const void *other) {
  const double first = *(const double *)one, second = *(const double *)other;
  return first < second ? -1 : first > second;
}

static double middle(double values[ROUNDS]) {
  qsort(values, ROUNDS, sizeof values[0], by_size);
  return values[ROUNDS / 2];
}

static void beside(void) {
  void *context = NULL, *mine = NULL;
  double ratios[ROUNDS], without[ROUNDS], with[ROUNDS];
  const char *wanted = getenv("CALLS");
  calls = wanted == NULL ? 1500 : atoi(wanted);
  MUST(CALL(cuCtxGetCurrent, (void **), &context));
  MUST(CALL(cuStreamCreate, (void **, unsigned), &work, NON_BLOCKING));
  MUST(CALL(cuStreamCreate, (void **, unsigned), &mine, NON_BLOCKING));
  data = check_alloc(sizeof seen);
  flag = check_alloc(4);
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t thread;
    OK(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), flag, 0, 4));
    OK(CALL(cuCtxSynchronize, (void), ));
    const uint64_t alone = quickest();
    OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, uint32_t, unsigned), work, flag, 1, 1));
    OK(CALL(cuMemsetD8Async, (devptr, unsigned char, size_t, void *), data, 7, sizeof seen, work));
    pthread_create(&thread, NULL, wait_long, context);
    usleep(30000); /* by now the waiting thread is in its long wait */
    counted = true;
    const uint64_t together = quickest();
    ratios[round] = (double)alone / (double)together;
    without[round] = (double)alone / 1000 / calls;
    with[round] = (double)together / 1000 / calls;
    counted = false;
    OK(CALL(cuStreamWriteValue32_v2, (void *, devptr, uint32_t, unsigned), mine, flag, 1, 0));
    OK(CALL(cuStreamSynchronize, (void *), mine));
    pthread_join(thread, NULL);
  }
  printf("%.3f %u %.3f %.3f\n", middle(ratios), atomic_load(&naps), middle(with), middle(without));
}

static void stream(void) {
  waiting_call = stream_waits;
  beside();
}
static void context(void) {
  waiting_call = context_waits;
  beside();
}
static void event(void) {
  waiting_call = event_waits;
  beside();
}
static void read_later(void) {
  waiting_call = read_waits;
  beside();
}

int main(int argc, char **argv) {
  static const struct check_case cases[] = {
      {"stream", stream}, {"context", context}, {"event", event}, {"read", read_later}};
  return check_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
