/*
 * Reads from the device into memory that is not pinned. The library makes one read of several pieces, which
 * are under way together: none may be missing, nor be older than the work before the read.
 */
#include <pthread.h>
#include <unistd.h>

#include "check.h"

#define SIZE ((9u << 20) + 4096)

enum { NON_BLOCKING = 1, RELAXED = 2, CANARY = 0xc5 };

static unsigned char *source, *target;

static devptr filled(uint64_t seed) {
  if (source == NULL) source = check_bytes(SIZE);
  if (target == NULL) target = check_bytes(SIZE);
  check_pattern(source, SIZE, seed);
  devptr device = check_alloc(SIZE);
  MUST(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), device, source, SIZE));
  return device;
}

/*
 * Checks that `size` bytes from `at` on have arrived in `target`, and that no byte behind them has changed.
 */
static void arrived(size_t at, size_t size) {
  IS(0, memcmp(target, source + at, size));
  IS(CANARY, target[size]);
}

static void lengths(void) {
  static const size_t sizes[] = {
      1,      4095,       16383,   16384,   16385,          20480,          65535,
      65536,  65537,      100001,  262144,  262145,         524287,         524288,
      524289, (1u << 20), 1048577, 1572865, (2u << 20) - 1, (4u << 20) + 3, (8u << 20) + 77};
  devptr device = filled(11);
  void *stream = NULL;
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, NON_BLOCKING));
  OK(CALL(cuCtxSynchronize, (void), ));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    size_t at = i * 37;
    memset(target, CANARY, SIZE);
    OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), target, device + at, sizes[i]));
    arrived(at, sizes[i]);
    memset(target, CANARY, SIZE);
    OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), target, device + at, sizes[i], stream));
    OK(CALL(cuStreamSynchronize, (void *), stream));
    arrived(at, sizes[i]);
  }
}

static devptr word;

/* Releases the stream after some time, so that the read must wait and ask again. */
static void *let_go(void *context) {
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  usleep(100000);
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), word, 1, 1));
  return NULL;
}

static void behind_work(void) {
  static const size_t sizes[] = {3000, 70000, 300000, 2000000};
  void *stream = NULL, *context = NULL;
  devptr device = filled(12), other = filled(13);
  word = check_alloc(4);
  MUST(CALL(cuCtxGetCurrent, (void **), &context));
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, NON_BLOCKING));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    pthread_t thread;
    OK(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), device, 0, SIZE));
    OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), word, 0, 1));
    OK(CALL(cuCtxSynchronize, (void), ));
    OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, uint32_t, unsigned), stream, word, 1, 1));
    OK(CALL(cuMemcpyDtoDAsync_v2, (devptr, devptr, size_t, void *), device, other, SIZE, stream));
    MUST(pthread_create(&thread, NULL, let_go, context));
    memset(target, CANARY, SIZE);
    OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), target, device, sizes[i], stream));
    OK(CALL(cuStreamSynchronize, (void *), stream));
    arrived(0, sizes[i]);
    pthread_join(thread, NULL);
  }
}

/* A read of 64 KiB, as short ones are made of pieces outside of a capture. */
static void one_node(void) {
  void *stream = NULL, *graph = NULL, *exec = NULL;
  size_t nodes = 0;
  devptr device = filled(14);
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, NON_BLOCKING));
  OK(CALL(cuCtxSynchronize, (void), ));
  memset(target, CANARY, SIZE);
  OK(CALL(cuStreamBeginCapture_v2, (void *, int), stream, RELAXED));
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), target, device, 65536, stream));
  OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), device + 65536, target, 65536,
          stream));
  OK(CALL(cuStreamEndCapture, (void *, void **), stream, &graph));
  OK(CALL(cuGraphGetNodes, (void *, void **, size_t *), graph, NULL, &nodes));
  IS(2, nodes);
  MUST(CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &exec, graph, 0));
  OK(CALL(cuGraphLaunch, (void *, void *), exec, stream));
  OK(CALL(cuStreamSynchronize, (void *), stream));
  arrived(0, 65536);
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), target, device + 65536, 65536));
  arrived(0, 65536);
}

/* Threads that read at the same time: only one of them has several pieces under way. */
enum { THREADS = 4, TURNS = 60, PART = 300001 };

static devptr shared_device;

static void *read_part(void *context) {
  static unsigned next;
  unsigned char *own = malloc(PART);
  size_t at = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) * 1000003u;
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  for (int i = 0; i < TURNS; i++) {
    memset(own, CANARY, PART);
    OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), own, shared_device + at, PART));
    IS(0, memcmp(own, source + at, PART));
  }
  free(own);
  return NULL;
}

static void threads(void) {
  void *context = NULL;
  pthread_t running[THREADS];
  shared_device = filled(15);
  MUST(CALL(cuCtxGetCurrent, (void **), &context));
  for (int i = 0; i < THREADS; i++) MUST(pthread_create(&running[i], NULL, read_part, context));
  for (int i = 0; i < THREADS; i++) pthread_join(running[i], NULL);
}

static const struct check_case cases[] = {
    {"lengths", lengths}, {"behind_work", behind_work}, {"one_node", one_node}, {"threads", threads}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
