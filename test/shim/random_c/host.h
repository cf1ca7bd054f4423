/*
 * Random kernels as C: every thread of a block is a context of its own that runs until it waits for others. A
 * member mask is taken by its word: lanes with the same operation and the same mask wait for each other, all
 * of the mask.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define HELPER static inline
#define FUNCTION static __attribute__((noinline))
#define KERNEL static
#define SHARED static

#define THREADS 64
#define STACK (64 << 10)
enum {
  NOTHING,
  SHFL,
  UP,
  DOWN,
  XOR,
  BALLOT,
  ALL,
  ANY,
  MATCH_ANY,
  MATCH_ALL,
  ADD,
  MIN,
  MAX,
  AND,
  OR,
  XORED,
  WARP,
  BLOCK
};

static struct thread {
  ucontext_t context;
  int done, kind;
  unsigned mask, value, by, result;
} threads[THREADS];
static ucontext_t scheduler;
static int current;
static struct { unsigned x; } threadIdx, blockIdx, blockDim = {THREADS};

static unsigned meet(int kind, unsigned mask, unsigned value, unsigned by) {
  struct thread *t = &threads[current];
  t->kind = kind;
  t->mask = mask;
  t->value = value;
  t->by = by;
  swapcontext(&t->context, &scheduler);
  return t->result;
}

#define __shfl_sync(m, v, l, w) meet(SHFL, m, v, (unsigned)(l))
#define __shfl_up_sync(m, v, l, w) meet(UP, m, v, l)
#define __shfl_down_sync(m, v, l, w) meet(DOWN, m, v, l)
#define __shfl_xor_sync(m, v, l, w) meet(XOR, m, v, (unsigned)(l))
#define __ballot_sync(m, p) meet(BALLOT, m, (p) != 0, 0)
#define __all_sync(m, p) (int)meet(ALL, m, (p) != 0, 0)
#define __any_sync(m, p) (int)meet(ANY, m, (p) != 0, 0)
#define __match_any_sync(m, v) meet(MATCH_ANY, m, v, 0)
#define __reduce_add_sync(m, v) meet(ADD, m, v, 0)
#define __reduce_min_sync(m, v) meet(MIN, m, v, 0)
#define __reduce_max_sync(m, v) meet(MAX, m, v, 0)
#define __reduce_and_sync(m, v) meet(AND, m, v, 0)
#define __reduce_or_sync(m, v) meet(OR, m, v, 0)
#define __reduce_xor_sync(m, v) meet(XORED, m, v, 0)
#define __syncwarp(m) (void)meet(WARP, m, 0, 0)
#define __syncthreads() (void)meet(BLOCK, 0, 0, 0)
#define __syncthreads_count(p) (int)meet(BLOCK, 1, (p) != 0, 0)
#define __syncthreads_or(p) (int)meet(BLOCK, 2, (p) != 0, 0)
#define __syncthreads_and(p) (int)meet(BLOCK, 3, (p) != 0, 0)

#define atomicAdd(p, v) (void)(*(p) += (v))
#define atomicXor(p, v) (void)(*(p) ^= (v))
#define atomicOr(p, v) (void)(*(p) |= (v))
#define atomicAnd(p, v) (void)(*(p) &= (v))
#define atomicMin(p, v) (void)(*(p) = *(p) < (v) ? *(p) : (v))
#define atomicMax(p, v) (void)(*(p) = *(p) > (v) ? *(p) : (v))

static inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
static inline int __clz(int x) {
  return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
static inline int __ffs(int x) {
  return __builtin_ffs(x);
}
static inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r |= (x >> i & 1u) << (31 - i);
  return r;
}
static inline unsigned __umulhi(unsigned x, unsigned y) {
  return (unsigned)((unsigned long long)x * y >> 32);
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned by) {
  by &= 31;
  return by == 0 ? hi : hi << by | lo >> (32 - by);
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  unsigned long long both = (unsigned long long)y << 32 | x;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) r |= (unsigned)(both >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
  return r;
}
static inline unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}

#include "both.h"

static unsigned reduced(int kind, unsigned a, unsigned b) {
  switch (kind) {
    case ADD:
      return a + b;
    case MIN:
      return a < b ? a : b;
    case MAX:
      return a > b ? a : b;
    case AND:
      return a & b;
    case OR:
      return a | b;
    default:
      return a ^ b;
  }
}

/* The lanes of `group`, in the warp that begins at `first`, do what they wait for. */
static void together(int first, unsigned group, int kind) {
  struct thread *w = &threads[first];
  for (int i = 0; i < 32; i++) {
    if ((group >> i & 1) == 0) continue;
    unsigned r = 0, by = w[i].by & 31, begun = 0;
    int from = kind == SHFL ? (int)by : kind == UP ? i - (int)by : kind == DOWN ? i + (int)by : i ^ (int)by;
    if (kind <= XOR) r = from < 0 || from > 31 ? w[i].value : w[from].value;
    else if (kind == ALL) r = 1;
    for (int k = 0; k < 32; k++) {
      if ((group >> k & 1) == 0) continue;
      unsigned v = w[k].value;
      if (kind == BALLOT) r |= (v & 1u) << k;
      else if (kind == ALL) r &= v;
      else if (kind == ANY) r |= v;
      else if (kind == MATCH_ANY) r |= (unsigned)(v == w[i].value) << k;
      else if (kind >= ADD && kind <= XORED) r = begun++ == 0 ? v : reduced(kind, r, v);
    }
    w[i].result = r;
  }
  for (int i = 0; i < 32; i++) {
    if (group >> i & 1) w[i].kind = NOTHING;
  }
}

static int meetings(void) {
  int any = 0, waiting = 0, living = 0;
  unsigned count = 0;
  for (int i = 0; i < THREADS; i++) {
    living += !threads[i].done;
    if (!threads[i].done && threads[i].kind == BLOCK) {
      waiting++;
      count += threads[i].value;
    }
  }
  if (waiting > 0 && waiting == living) {
    for (int i = 0; i < THREADS; i++) {
      struct thread *t = &threads[i];
      if (t->done) continue;
      t->result = t->mask == 1 ? count : t->mask == 2 ? count > 0 : count == (unsigned)waiting;
      t->kind = NOTHING;
    }
    return 1;
  }
  for (int i = 0; i < THREADS; i++) {
    struct thread *t = &threads[i];
    if (t->done || t->kind == NOTHING || t->kind == BLOCK) continue;
    unsigned group = 0;
    int first = i & ~31;
    for (int k = 0; k < 32; k++) {
      const struct thread *o = &threads[first + k];
      if (!o->done && o->kind == t->kind && o->mask == t->mask) group |= 1u << k;
    }
    if ((t->mask & ~group) != 0) continue;
    together(first, group & t->mask, t->kind);
    any = 1;
  }
  return any;
}

static void (*kernel)(unsigned *, const unsigned *, unsigned *);
static unsigned *kernel_out, *kernel_sums;
static const unsigned *kernel_in;
static void begin(void) {
  kernel(kernel_out, kernel_in, kernel_sums);
  threads[current].done = 1;
  swapcontext(&threads[current].context, &scheduler);
}

static void run(void (*what)(unsigned *, const unsigned *, unsigned *), unsigned blocks, unsigned *out,
                const unsigned *in, unsigned *sums) {
  static char *stacks;
  if (stacks == NULL) stacks = malloc((size_t)STACK * THREADS);
  kernel = what;
  kernel_out = out;
  kernel_in = in;
  kernel_sums = sums;
  for (unsigned block = 0; block < blocks; block++) {
    blockIdx.x = block;
    for (int i = 0; i < THREADS; i++) {
      threads[i].done = 0;
      threads[i].kind = NOTHING;
      getcontext(&threads[i].context);
      threads[i].context.uc_stack.ss_sp = stacks + (size_t)i * STACK;
      threads[i].context.uc_stack.ss_size = STACK;
      threads[i].context.uc_link = NULL;
      makecontext(&threads[i].context, begin, 0);
    }
    for (;;) {
      int went = 0, left = 0;
      for (current = 0; current < THREADS; current++) {
        struct thread *t = &threads[current];
        if (t->done) continue;
        left = 1;
        if (t->kind != NOTHING) continue;
        threadIdx.x = (unsigned)current;
        swapcontext(&scheduler, &t->context);
        went = 1;
      }
      if (left == 0) break;
      if (!went && !meetings()) {
        fprintf(stderr, "threads wait for each other without end: the generator is wrong\n");
        exit(3);
      }
    }
  }
}
