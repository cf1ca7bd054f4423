/*
 * The comparisons for the shim: bytes over a socketpair, or through shared memory, to a forked child
 * that reads and answers, with nothing else on the way. An order tells the child what comes.
 */
#ifndef BENCH_RAW_H
#define BENCH_RAW_H

#include <stddef.h>
#include <stdint.h>

/* `times` exchanges: `read` bytes to read, in pieces of `piece`, then `answer` bytes to answer. */
struct order {
  uint64_t times;
  uint64_t read;
  uint64_t piece;
  uint64_t answer;
  uint64_t ring; /* not 0: all of it through shared memory, with both ends awake; at most RAW_RING bytes */
};

#define RAW_RING ((size_t)4096)

#define LARGEST ((size_t)256 << 20)

/* LARGEST bytes each, touched; the child has its own copies. */
extern unsigned char *source, *target;

/* Monotonic microseconds. */
double now_us(void);

/* Ends the program with a line on stderr. */
_Noreturn void fail(const char *what, long code);

void start_peer(void);
void order_peer(struct order order);
void raw_put(const void *bytes, size_t size);
void raw_get(void *bytes, size_t size);

/* One exchange of an order with `ring`. */
void raw_ring(const void *ask, size_t ask_size, void *answer, size_t answer_size);

#endif
