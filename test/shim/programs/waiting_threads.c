/*
 * Many threads wait for one stream, each for the work that the stream had at the call. Later work of the
 * stream must delay none of the threads: the later work continues only when all threads have returned.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 48, NON_BLOCKING = 1 };

static void *context, *stream;
static atomic_uint asking, back;

static void *wait_for_stream(void *unused) {
  (void)unused;
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  atomic_fetch_add(&asking, 1);
  OK(CALL(cuStreamSynchronize, (void *), stream));
  atomic_fetch_add(&back, 1);
  return NULL;
}

/* Holds the stream until the word is 1. */
static void hold(devptr word) {
  OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, uint32_t, unsigned), stream, word, 1, 1));
}

static void let_go(devptr word) {
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), word, 1, 1));
}

static void many(void) {
  pthread_t threads[THREADS];
  devptr words = check_alloc(8);
  MUST(CALL(cuCtxGetCurrent, (void **), &context));
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, NON_BLOCKING));
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), words, 0, 2));
  OK(CALL(cuCtxSynchronize, (void), ));
  hold(words);
  for (int i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], NULL, wait_for_stream, NULL));
  while (atomic_load(&asking) < THREADS) usleep(1000);
  sleep(2); /* until the request of each thread has reached the host */
  IS(0, atomic_load(&back));
  hold(words + 4);
  let_go(words);
  for (int i = 0; i < 1000 && atomic_load(&back) < THREADS; i++) usleep(10000);
  IS(THREADS, atomic_load(&back));
  let_go(words + 4);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static const struct check_case cases[] = {{"many", many}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
