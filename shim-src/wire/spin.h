/*
 * Spins for a moment before the thread sleeps: waking a thread takes many times longer than an answer. Each
 * end learns how long spinning pays. With one processor it never does; with fewer processors than runnable
 * threads a spinning thread keeps its own peer from running. sched_yield() does not help: it gives a turn to
 * each of the other threads (milliseconds), while a sleeping thread is woken as soon as there is something to
 * do.
 */
#ifndef VGPU_WIRE_SPIN_H
#define VGPU_WIRE_SPIN_H

#include <sched.h> /* sched_getaffinity */
#include <stdbool.h>
#include <stdint.h>

#include "wire/clock.h"

#define VGPU_SPIN_MOST_NS 60000
#define VGPU_SPIN_LEAST_NS 500
#define VGPU_SPIN_PROBE 8u         /* waits that slept until one spins longer again: doubled */
#define VGPU_SPIN_PROBE_MOST 256u  /* doubled each time the longer spin did not help, up to this */
#define VGPU_SPIN_CROWDED_NS 20000 /* a turn this long: another thread used this processor */
#define VGPU_SPIN_REST_LEAST 2u    /* waits without spinning after such a turn; doubled */
#define VGPU_SPIN_REST_MOST 128u   /* doubled each time, up to this */
#define VGPU_SPIN_QUIET 256u       /* waits in a row without sleep after which it is halved */
#define VGPU_SPIN_TURNS 8u         /* turns between two reads of the clock */
#define VGPU_SPIN_EAGER 1024u      /* first turns, without the pause, which takes 40 ns on some */
/*
 * Between a VM and its host a bell takes 0.2 to 3 ms (guest kernel, monitor, proxy), so spinning pays for
 * longer. Both processors stop for tens of microseconds for many reasons; only a longer turn shows that
 * another thread needs the processor.
 */
#define VGPU_SPIN_VM_MOST_NS 1000000
#define VGPU_SPIN_VM_CROWDED_NS 1000000

/*
 * For a guest whose host has a GPU. A GPU works for longer than an answer takes, and CUDA's own wait spins
 * until the GPU is done (CU_CTX_SCHED_AUTO). If a program exchanges something with the GPU at each step, few
 * of its waits are longer than this.
 */
#define VGPU_SPIN_DEVICE_NS 300000

struct vgpu_spin {
  int64_t limit;      /* nanoseconds; 0: one processor */
  int64_t most;       /* the largest value of `limit` */
  int64_t crowded;    /* nanoseconds; a longer turn: another thread used this processor */
  uint32_t slept;     /* waits in a row that slept, since the last longer spin */
  uint32_t probe;     /* number of such waits after which one spins longer */
  uint32_t rest;      /* number of next waits that sleep at once */
  uint32_t next_rest; /* the value of `rest` after the next crowded turn */
  uint32_t quiet;     /* waits in a row for which spinning was enough */
};

struct vgpu_spinning {
  int64_t begun; /* 0: the clock was not read yet */
  int64_t last;
  uint32_t turns;
  bool crowded;
};

static inline void vgpu_spin_init(struct vgpu_spin *spin) {
  cpu_set_t usable;
  bool alone = sched_getaffinity(0, sizeof usable, &usable) == 0 && CPU_COUNT(&usable) == 1;
  *spin = (struct vgpu_spin){.limit = alone ? 0 : VGPU_SPIN_MOST_NS,
                             .most = VGPU_SPIN_MOST_NS,
                             .crowded = VGPU_SPIN_CROWDED_NS,
                             .probe = VGPU_SPIN_PROBE,
                             .next_rest = VGPU_SPIN_REST_LEAST};
}

/* For an end whose peer is at the other side of a VM. */
static inline void vgpu_spin_across_vm(struct vgpu_spin *spin) {
  spin->most = VGPU_SPIN_VM_MOST_NS;
  spin->crowded = VGPU_SPIN_VM_CROWDED_NS;
  if (spin->limit > 0) spin->limit = spin->most;
}

static inline void vgpu_spin_for_device(struct vgpu_spin *spin) {
  if (spin->most < VGPU_SPIN_DEVICE_NS) spin->most = VGPU_SPIN_DEVICE_NS;
  if (spin->limit > 0) spin->limit = spin->most;
}

static inline void vgpu_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Reads the clock. False: the limit has passed, or another thread used the processor. */
static inline bool vgpu_spin_clock(const struct vgpu_spin *spin, struct vgpu_spinning *spinning) {
  int64_t now = (int64_t)vgpu_now_ns();
  if (spinning->begun == 0) spinning->begun = now;
  else spinning->crowded = now - spinning->last > spin->crowded;
  spinning->last = now;
  return !spinning->crowded && now - spinning->begun < spin->limit;
}

/*
 * For a turn in which the caller makes a system call, which costs more than reading the clock. False: the
 * limit has passed.
 */
static inline bool vgpu_spin_call(const struct vgpu_spin *spin, struct vgpu_spinning *spinning) {
  if (spin->limit == 0 || spin->rest > 0) return false;
  return vgpu_spin_clock(spin, spinning);
}

/* For a turn without a system call. False: the limit has passed. */
static inline bool vgpu_spin_turn(const struct vgpu_spin *spin, struct vgpu_spinning *spinning) {
  if (spin->limit == 0 || spin->rest > 0) return false;
  /* These turns take a microsecond in total: skipped while spinning does not help. */
  if (++spinning->turns <= VGPU_SPIN_EAGER && spin->limit > VGPU_SPIN_LEAST_NS) return true;
  vgpu_relax();
  return spinning->turns % VGPU_SPIN_TURNS != 1 || vgpu_spin_clock(spin, spinning);
}

/*
 * Learns from a wait. `slept`: spinning was not enough, and the thread slept. True: many waits have slept,
 * and the next one spins longer; the caller can then look for a reason other than the peer's speed.
 */
static inline bool vgpu_spin_learn(struct vgpu_spin *spin, const struct vgpu_spinning *spinning, bool slept) {
  if (spin->limit == 0) return false;
  if (spin->rest > 0) {
    spin->rest--;
    return false;
  }
  if (spinning->crowded) {
    spin->rest = spin->next_rest;
    if (spin->next_rest < VGPU_SPIN_REST_MOST) spin->next_rest *= 2;
    spin->quiet = 0;
  } else if (slept) {
    spin->quiet = 0;
  } else if (++spin->quiet == VGPU_SPIN_QUIET) {
    spin->quiet = 0;
    if (spin->next_rest > VGPU_SPIN_REST_LEAST) spin->next_rest /= 2;
  }
  spin->slept = slept ? spin->slept + 1 : 0;
  if (!slept) spin->probe = VGPU_SPIN_PROBE;
  int64_t limit = slept ? spin->limit / 2 : spin->limit * 2;
  bool probes = spin->slept >= spin->probe;
  if (probes) {
    limit = spin->most / 2;
    spin->slept = 0;
    if (spin->probe < VGPU_SPIN_PROBE_MOST) spin->probe *= 2;
  }
  spin->limit = limit < VGPU_SPIN_LEAST_NS ? VGPU_SPIN_LEAST_NS : limit > spin->most ? spin->most : limit;
  return probes;
}

#endif
