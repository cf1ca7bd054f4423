/* The reference process, and what the clock and the end of a failed run look like; see raw.h. */
#include "raw.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

void fail(const char *what, long code) {
  fprintf(stderr, "shim_bench: %s: %ld\n", what, code);
  exit(1);
}

double now_us(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec * 1e6 + (double)at.tv_nsec / 1e3;
}

/* Raw bytes over a socket, all of them. */
static bool put(int descriptor, const void *bytes, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t n = write(descriptor, (const char *)bytes + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += (size_t)n;
  }
  return true;
}

static bool get(int descriptor, void *bytes, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t n = read(descriptor, (char *)bytes + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += (size_t)n;
  }
  return true;
}

/* The simplest ring there can be: one frame each way, each end looks until it is its turn. */
static struct {
  _Alignas(64) uint64_t asked;
  _Alignas(64) uint64_t answered;
  _Alignas(64) unsigned char ask[RAW_RING];
  unsigned char answer[RAW_RING];
} * shared;

static void look(const uint64_t *counter, uint64_t least) {
  for (unsigned turns = 0; __atomic_load_n(counter, __ATOMIC_ACQUIRE) < least; turns++) {
    if (turns % 64 == 63) sched_yield();
  }
}

void raw_ring(const void *ask, size_t ask_size, void *answer, size_t answer_size) {
  memcpy(shared->ask, ask, ask_size);
  uint64_t turn = shared->asked + 1;
  __atomic_store_n(&shared->asked, turn, __ATOMIC_RELEASE);
  look(&shared->answered, turn);
  memcpy(answer, shared->answer, answer_size);
}

static int peer = -1;
unsigned char *source, *target;

static void serve(int descriptor) {
  struct order order;
  while (get(descriptor, &order, sizeof order)) {
    for (uint64_t i = 0; order.ring != 0 && i < order.times; i++) {
      uint64_t turn = shared->answered + 1;
      look(&shared->asked, turn);
      memcpy(target, shared->ask, order.read);
      memcpy(shared->answer, source, order.answer);
      __atomic_store_n(&shared->answered, turn, __ATOMIC_RELEASE);
    }
    if (order.ring != 0) continue;
    for (uint64_t i = 0; i < order.times; i++) {
      for (uint64_t done = 0; done < order.read;) {
        uint64_t step = order.read - done < order.piece ? order.read - done : order.piece;
        if (!get(descriptor, target + done, step)) _exit(1);
        done += step;
      }
      if (order.answer > 0 && !put(descriptor, source, order.answer)) _exit(1);
    }
  }
  _exit(0);
}

void start_peer(void) {
  int pair[2];
  source = malloc(LARGEST);
  target = malloc(LARGEST);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED || source == NULL || target == NULL ||
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    fail("socketpair", errno);
  }
  memset(source, 1, LARGEST);
  memset(target, 2, LARGEST);
  pid_t child = fork();
  if (child < 0) fail("fork", errno);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(pair[0]);
    memset(target, 3, LARGEST); /* pages of its own before the clock runs */
    serve(pair[1]);
  }
  close(pair[1]);
  peer = pair[0];
}

void order_peer(struct order order) {
  if (!put(peer, &order, sizeof order)) fail("socketpair", errno);
}

void raw_put(const void *bytes, size_t size) {
  if (!put(peer, bytes, size)) fail("socketpair", errno);
}

void raw_get(void *bytes, size_t size) {
  if (!get(peer, bytes, size)) fail("socketpair", errno);
}
