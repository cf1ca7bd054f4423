/*
 * The results of a random program of streams (random_order.c): the content of each place after each step, and
 * which steps are known to be over before which.
 *
 * The model carries steps out one after the other. The library may carry them out in any order that the
 * program permits, so a program must not depend on an order that nothing demands. Each stream, and the thread
 * itself, is an actor with a vector clock. An access is over for an actor if the actor's clock has seen it.
 */
#ifndef VGPU_TEST_ORDER_MODEL_H
#define VGPU_TEST_ORDER_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { WORDS = 256, ROW = 16 }; /* copies of boxes take a place as rows */

/*
 * Streams, then the thread. The program makes the first three; two of these and the legacy stream wait for
 * each other.
 */
enum actor { BLOCKING, FREE, OTHER, LEGACY, PER_THREAD, HOST, ACTORS };

static inline bool is_blocking(enum actor actor) {
  return actor == BLOCKING || actor == OTHER || actor == PER_THREAD;
}

struct clock {
  uint32_t seen[ACTORS];
};

struct access {
  enum actor actor;
  uint32_t at; /* 0: none */
};

struct place {
  enum { DEVICE, PINNED, PAGEABLE, ARRAY } kind; /* an array has rows of ROW words */
  uint64_t device;
  void *array;
  uint32_t *host; /* address in the program, if not on the device */
  uint32_t words[WORDS];
  struct access written, read[ACTORS];
};

struct order {
  struct clock clocks[ACTORS];
};

static inline void merge(struct clock *into, const struct clock *from) {
  for (int i = 0; i < ACTORS; i++)
    if (from->seen[i] > into->seen[i]) into->seen[i] = from->seen[i];
}

/* Begins a step of an actor: gives the step a number and the clock of all work that must be over before. */
static inline uint32_t begin_step(struct order *order, enum actor actor) {
  struct clock *clock = &order->clocks[actor];
  merge(clock, &order->clocks[HOST]); /* the thread issues the step after all work that it has waited for */
  if (actor == LEGACY)
    for (int i = 0; i < ACTORS; i++)
      if (is_blocking(i)) merge(clock, &order->clocks[i]);
  if (is_blocking(actor)) merge(clock, &order->clocks[LEGACY]);
  return ++clock->seen[actor];
}

/* Returns the clock that a step of this actor would have: all that is over when it begins. */
static inline struct clock prospect(const struct order *order, enum actor actor) {
  struct order copy = *order;
  begin_step(&copy, actor);
  return copy.clocks[actor];
}

/*
 * The same without the order between the legacy stream and the others, except for earlier steps of this
 * actor.
 */
static inline struct clock without_legacy(const struct order *order, enum actor actor) {
  struct clock clock = order->clocks[actor];
  merge(&clock, &order->clocks[HOST]);
  return clock;
}

static inline bool is_over(const struct clock *clock, struct access access) {
  return access.at == 0 || clock->seen[access.actor] >= access.at;
}

/* Returns the actor of a conflicting access that is not over for this clock, or ACTORS. */
static inline enum actor in_the_way(const struct clock *clock, const struct place *place, bool writes) {
  if (!is_over(clock, place->written)) return place->written.actor;
  for (int i = 0; i < ACTORS && writes; i++)
    if (!is_over(clock, place->read[i])) return i;
  return ACTORS;
}

static inline void note_access(struct place *place, enum actor actor, uint32_t at, bool writes) {
  const struct access access = {actor, at};
  if (!writes) {
    place->read[actor] = access;
    return;
  }
  place->written = access;
  memset(place->read, 0, sizeof place->read);
}

/* ---- steps --------------------------------------------------------------- */

enum kind {
  KERNEL,    /* to = from * value + second */
  FILL,      /* a part of `to`, `count` words or a box, gets the value */
  COPY,      /* a part of `from` into `to`: `count` words, or a box of `height` rows of `count` words */
  FUNCTION,  /* the host adds the value to each word of `to` */
  TEMPORARY, /* like KERNEL, by memory that the stream allocates and frees */
  STORE,     /* the stream writes one word of `to` */
  KINDS
};

struct step {
  enum kind kind;
  int from, second, to; /* places; -1: none */
  uint32_t value, start, count, height, spin;
  bool waits; /* by a call that waits, in the legacy stream */
};

static inline void apply(const struct step *step, struct place *places) {
  uint32_t *to = places[step->to].words;
  const uint32_t *from = step->from < 0 ? NULL : places[step->from].words;
  const uint32_t *second = step->second < 0 ? NULL : places[step->second].words;
  switch (step->kind) {
    case KERNEL:
    case TEMPORARY:
      for (int i = 0; i < WORDS; i++) to[i] = from[i] * step->value + second[i];
      break;
    case FILL:
      for (uint32_t row = 0; row <= (step->height == 0 ? 0 : step->height - 1); row++)
        for (uint32_t i = 0; i < step->count; i++) to[step->start + row * ROW + i] = step->value;
      break;
    case COPY:
      for (uint32_t row = 0; row <= (step->height == 0 ? 0 : step->height - 1); row++)
        memmove(to + step->start + row * ROW, from + step->start + row * ROW, step->count * sizeof *to);
      break;
    case FUNCTION:
      for (int i = 0; i < WORDS; i++) to[i] += step->value;
      break;
    case STORE:
      to[step->start] = step->value;
      break;
    case KINDS:
      break;
  }
}

#endif
