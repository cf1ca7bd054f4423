/* The memory, streams and calls of random_order.c: steps are chosen at random and issued here. */
#ifndef VGPU_TEST_ORDER_STEPS_H
#define VGPU_TEST_ORDER_STEPS_H

#include <unistd.h>

#include "check.h"
#include "order_model.h"

enum { PLACES = 12, FIRST_PINNED = 5, FIRST_PAGEABLE = 8, THE_ARRAY = 11 };
enum {
  LONG_SPIN = 100000,
  EVENTS = 6,
  CALLS = 4096,
  BYTES = WORDS * 4,
  WIDTH = ROW * 4,
  HEIGHT = WORDS / ROW
};

/* Argument of a host function. It is kept for as long as a graph may call it again. */
struct addition {
  uint32_t *words, value;
};

struct machine {
  uint64_t seed, state;
  int step, wrong, mapped; /* 1: kernels can use pinned memory */
  bool boxes;              /* with an array, and fills of boxes */
  bool reads_early;        /* a real driver: see do_step() */
  void *streams[HOST], *captured[2], *events[EVENTS], *mix;
  devptr flags;
  unsigned flag_values[HOST];
  struct place places[PLACES], scratch[PLACES];
  struct addition additions[CALLS];
  int addition_count;
};

/*
 * mix: to = from * factor + second, after some turns of a loop, so that work that does not wait comes too
 * early.
 */
static const char mix_text[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry mix(.param .u64 to, .param .u64 from, .param .u64 second, .param .u32 factor, .param "
    ".u32 spin) {\n"
    ".reg .b64 %a, %b, %c, %o; .reg .b32 %i, %n, %t, %v, %w; .reg .pred %p;\n"
    "ld.param.u32 %n, [spin];\n"
    "again: setp.eq.u32 %p, %n, 0; @%p bra done; sub.u32 %n, %n, 1; bra again;\n"
    "done: mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %i, %n, %t;\n"
    "mul.wide.u32 %o, %i, 4; ld.param.u64 %a, [to]; ld.param.u64 %b, [from]; ld.param.u64 %c, [second];\n"
    "add.u64 %a, %a, %o; add.u64 %b, %b, %o; add.u64 %c, %c, %o;\n"
    "ld.param.u32 %n, [factor]; ld.global.u32 %v, [%b]; ld.global.u32 %w, [%c]; mad.lo.u32 %v, %v, %n, %w;\n"
    "st.global.u32 [%a], %v; ret; }\n";

static inline uint32_t next_random(struct machine *machine) {
  machine->state = machine->state * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(machine->state >> 33);
}

static inline uint32_t below(struct machine *machine, uint32_t limit) {
  return next_random(machine) % limit;
}

static inline void *any_event(struct machine *machine) {
  return machine->events[below(machine, EVENTS)];
}

static inline int device_place(struct machine *machine) {
  return (int)below(machine, FIRST_PINNED);
}

static inline int host_place(struct machine *machine) {
  return FIRST_PINNED + (int)below(machine, THE_ARRAY - FIRST_PINNED);
}

static inline int kernel_place(struct machine *machine) {
  return machine->mapped == 0 || below(machine, 3) != 0 ? device_place(machine)
                                                        : FIRST_PINNED + (int)below(machine, 3);
}

static inline int pinned_place(struct machine *machine) {
  return FIRST_PINNED + (int)below(machine, FIRST_PAGEABLE - FIRST_PINNED);
}

/* Makes a box of the part of memory that a step uses. */
static inline void make_box(struct machine *machine, struct step *step) {
  uint32_t x = step->start % ROW, y = step->start / ROW;
  step->count = 1 + below(machine, ROW - x);
  step->height = 1 + below(machine, HEIGHT - y);
}

/* Replaces device memory by the array, or makes the fill a box. */
static inline void use_boxes(struct machine *machine, struct step *step) {
  if ((step->kind != COPY && step->kind != FILL) || below(machine, 2) == 0) return;
  if (step->height == 0) make_box(machine, step);
  if (step->kind == FILL) return;
  bool from = step->from < FIRST_PINNED, to = step->to < FIRST_PINNED;
  if (from && (!to || below(machine, 2) == 0)) step->from = THE_ARRAY;
  else step->to = THE_ARRAY;
}

/* A step; for a capture only one that a capture can hold. */
static inline struct step random_step(struct machine *machine, bool captured) {
  struct step step = {.kind = below(machine, KINDS), .from = -1, .second = -1, .to = device_place(machine)};
  step.value = next_random(machine);
  step.start = below(machine, WORDS);
  step.count = below(machine, 3) == 0 ? WORDS - step.start : 1 + below(machine, WORDS - step.start);
  step.spin = below(machine, 3) == 0 ? below(machine, 3000) : 0;
  step.waits = !captured && below(machine, 5) == 0;
  if (step.kind == KERNEL || step.kind == TEMPORARY) {
    step.from = kernel_place(machine);
    step.second = kernel_place(machine);
    if (step.kind == KERNEL) step.to = kernel_place(machine);
    step.waits = false;
    /* For some milliseconds: the host takes other calls meanwhile. */
    if (step.value % 16 == 0) step.spin = LONG_SPIN + step.value / 16 % LONG_SPIN;
  }
  if (step.kind == STORE && captured) step.kind = FILL;
  if (step.kind == STORE || step.kind == FUNCTION) step.waits = false;
  if (step.kind == FUNCTION) step.to = captured ? pinned_place(machine) : host_place(machine);
  if (step.kind == COPY) {
    uint32_t way = below(machine, 3);
    int host = captured ? pinned_place(machine) : host_place(machine);
    step.from = way == 1 ? host : device_place(machine);
    if (way == 2) step.to = host;
    if (below(machine, 3) == 0) make_box(machine, &step);
  }
  if (machine->boxes) use_boxes(machine, &step);
  return step;
}

/* Some functions take so long that much work is queued behind them. */
static inline void add_to_words(void *data) {
  const struct addition *addition = data;
  if (addition->value % 8 == 0) usleep(addition->value / 8 % 3000);
  for (int i = 0; i < WORDS; i++) addition->words[i] += addition->value;
}

static inline void launch_mix(struct machine *machine, const struct step *step, devptr to, void *stream) {
  devptr from = machine->places[step->from].device, second = machine->places[step->second].device;
  uint32_t value = step->value, spin = step->spin;
  void *parameters[] = {&to, &from, &second, &value, &spin};
  MUST(CALL(cuLaunchKernel,
            (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
             void **),
            machine->mix, WORDS / 64, 1, 1, 64, 1, 1, 0, stream, parameters, NULL));
}

/* CUDA_MEMCPY2D */
struct box {
  struct {
    size_t x, y;
    unsigned type;
    const void *host;
    devptr device;
    void *array;
    size_t pitch;
  } from, to;
  size_t width, height;
};

enum { IN_HOST = 1, IN_DEVICE = 2, IN_ARRAY = 3 };

static inline unsigned type_of(const struct place *place) {
  return place->kind == DEVICE ? IN_DEVICE : place->kind == ARRAY ? IN_ARRAY : IN_HOST;
}

static inline void copy_box(const struct place *from, const struct place *to, const struct step *step,
                            void *stream) {
  size_t x = step->start % ROW * 4, y = step->start / ROW;
  const struct box box = {.from = {x, y, type_of(from), from->host, from->device, from->array, WIDTH},
                          .to = {x, y, type_of(to), to->host, to->device, to->array, WIDTH},
                          .width = step->count * 4,
                          .height = step->height};
  if (step->waits) MUST(CALL(cuMemcpy2D_v2, (const void *), &box));
  else MUST(CALL(cuMemcpy2DAsync_v2, (const void *, void *), &box, stream));
}

/* All of the array, to its buffer or from it. */
static inline void copy_array(const struct place *place, bool out) {
  struct box box = {.from = {0, 0, IN_HOST, place->host, 0, NULL, WIDTH},
                    .to = {0, 0, IN_ARRAY, NULL, 0, place->array, 0},
                    .width = WIDTH,
                    .height = HEIGHT};
  if (out) {
    box.to = box.from;
    box.from.type = IN_ARRAY;
    box.from.array = place->array;
  }
  MUST(CALL(cuMemcpy2D_v2, (const void *), &box));
}

static inline void fill_box(const struct step *step, devptr address, void *stream) {
  if (step->waits)
    MUST(CALL(cuMemsetD2D32_v2, (devptr, size_t, unsigned, size_t, size_t), address, WIDTH, step->value,
              step->count, step->height));
  else
    MUST(CALL(cuMemsetD2D32Async, (devptr, size_t, unsigned, size_t, size_t, void *), address, WIDTH,
              step->value, step->count, step->height, stream));
}

static inline void copy(struct machine *machine, const struct step *step, void *stream) {
  const struct place *from = &machine->places[step->from], *to = &machine->places[step->to];
  size_t start = step->start * 4, bytes = step->count * 4;
  if (step->height != 0) {
    copy_box(from, to, step, stream);
    return;
  }
  if (from->kind == DEVICE && to->kind == DEVICE) {
    if (step->waits)
      MUST(CALL(cuMemcpyDtoD_v2, (devptr, devptr, size_t), to->device + start, from->device + start, bytes));
    else
      MUST(CALL(cuMemcpyDtoDAsync_v2, (devptr, devptr, size_t, void *), to->device + start,
                from->device + start, bytes, stream));
  } else if (to->kind == DEVICE) {
    if (step->waits)
      MUST(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), to->device + start, from->host + step->start,
                bytes));
    else
      MUST(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), to->device + start,
                from->host + step->start, bytes, stream));
  } else {
    if (step->waits)
      MUST(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), to->host + step->start, from->device + start,
                bytes));
    else
      MUST(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), to->host + step->start,
                from->device + start, bytes, stream));
  }
}

/* Issues a step to a stream, or by a call that waits. */
static inline void issue(struct machine *machine, const struct step *step, void *stream) {
  const struct place *to = &machine->places[step->to];
  devptr address = to->device + step->start * 4, temporary = 0;
  switch (step->kind) {
    case KERNEL:
      launch_mix(machine, step, to->device, stream);
      break;
    case TEMPORARY:
      MUST(CALL(cuMemAllocAsync, (devptr *, size_t, void *), &temporary, BYTES, stream));
      launch_mix(machine, step, temporary, stream);
      MUST(
          CALL(cuMemcpyDtoDAsync_v2, (devptr, devptr, size_t, void *), to->device, temporary, BYTES, stream));
      MUST(CALL(cuMemFreeAsync, (devptr, void *), temporary, stream));
      break;
    case FILL:
      if (step->height != 0) fill_box(step, address, stream);
      else if (step->waits)
        MUST(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), address, step->value, step->count));
      else
        MUST(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), address, step->value, step->count,
                  stream));
      break;
    case COPY:
      copy(machine, step, stream);
      break;
    case FUNCTION: {
      if (machine->addition_count == CALLS) exit(3);
      struct addition *addition = &machine->additions[machine->addition_count++];
      *addition = (struct addition){to->host, step->value};
      MUST(CALL(cuLaunchHostFunc, (void *, void (*)(void *), void *), stream, add_to_words, addition));
      break;
    }
    case STORE:
      MUST(CALL(cuStreamWriteValue32_v2, (void *, devptr, unsigned, unsigned), stream, address, step->value,
                0));
      break;
    case KINDS:
      break;
  }
}

static inline void compare(struct machine *machine, int number, const uint32_t *found) {
  const struct place *place = &machine->places[number];
  for (int i = 0; i < WORDS && machine->wrong == 0; i++) {
    if (found[i] == place->words[i]) continue;
    printf("seed %llu, step %d: word %d of place %d is %#x, not %#x\n", (unsigned long long)machine->seed,
           machine->step, i, number, found[i], place->words[i]);
    machine->wrong++;
    __atomic_add_fetch(&check_failures, 1, __ATOMIC_RELAXED);
  }
}

static inline void make_array(struct machine *machine, struct place *place) {
  const struct {
    size_t width, height;
    int format;
    unsigned channels;
  } words = {ROW, HEIGHT, 3, 1}; /* CUDA_ARRAY_DESCRIPTOR of CU_AD_FORMAT_UNSIGNED_INT32 */
  place->kind = ARRAY;
  MUST(CALL(cuArrayCreate_v2, (void **, const void *), &place->array, &words));
  if ((place->host = calloc(1, BYTES)) == NULL) exit(3);
  for (int i = 0; i < WORDS; i++) place->words[i] = place->host[i] = next_random(machine);
  copy_array(place, false);
}

static inline void make_machine(struct machine *machine, uint64_t seed) {
  void *module = NULL;
  machine->seed = seed;
  machine->state = seed * 0x9e3779b97f4a7c15ull + 1;
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, mix_text));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &machine->mix, module, "mix"));
  for (int i = BLOCKING; i <= OTHER; i++)
    MUST(CALL(cuStreamCreate, (void **, unsigned), &machine->streams[i], i == FREE));
  machine->streams[LEGACY] = below(machine, 2) == 0 ? NULL : (void *)1;
  machine->streams[PER_THREAD] = (void *)2;
  for (int i = 0; i < 2; i++) MUST(CALL(cuStreamCreate, (void **, unsigned), &machine->captured[i], 1));
  for (int i = 0; i < EVENTS; i++)
    MUST(CALL(cuEventCreate, (void **, unsigned), &machine->events[i], below(machine, 2) * 2));
  enum { CAN_MAP_HOST_MEMORY = 19 };
  MUST(CALL(cuDeviceGetAttribute, (int *, int, int), &machine->mapped, CAN_MAP_HOST_MEMORY, 0));
  char name[256] = "";
  MUST(CALL(cuDeviceGetName, (char *, int, int), name, sizeof name, 0));
  machine->reads_early = strstr(name, "(simulated)") == NULL;
  machine->flags = check_alloc(4 * HOST);
  MUST(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), machine->flags, 0, HOST));
  for (int i = 0; i < THE_ARRAY; i++) {
    struct place *place = &machine->places[i];
    place->kind = i < FIRST_PINNED ? DEVICE : i < FIRST_PAGEABLE ? PINNED : PAGEABLE;
    if (place->kind == PINNED)
      MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&place->host, BYTES, 0));
    else if ((place->host = calloc(1, BYTES)) == NULL) exit(3);
    for (int j = 0; j < WORDS; j++) place->words[j] = place->host[j] = next_random(machine);
    if (place->kind == PINNED) place->device = (devptr)(uintptr_t)place->host;
    if (place->kind != DEVICE) continue;
    place->device = check_alloc(BYTES);
    MUST(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), place->device, place->host, BYTES));
  }
  if (machine->boxes) make_array(machine, &machine->places[THE_ARRAY]);
  MUST(CALL(cuCtxSynchronize, (void), ));
}

/* Compares all memory, and frees everything. */
static inline void end_machine(struct machine *machine) {
  MUST(CALL(cuCtxSynchronize, (void), ));
  for (int i = 0; i < PLACES; i++) {
    struct place *place = &machine->places[i];
    if (place->host == NULL) continue;
    if (place->kind == ARRAY) copy_array(place, true);
    if (place->kind == DEVICE)
      MUST(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), place->host, place->device, BYTES));
    compare(machine, i, place->host);
    if (place->kind == DEVICE) MUST(CALL(cuMemFree_v2, (devptr), place->device));
    if (place->kind == ARRAY) MUST(CALL(cuArrayDestroy, (void *), place->array));
    if (place->kind == PINNED) MUST(CALL(cuMemFreeHost, (void *), place->host));
    else free(place->host);
  }
  MUST(CALL(cuMemFree_v2, (devptr), machine->flags));
  for (int i = BLOCKING; i <= OTHER; i++) MUST(CALL(cuStreamDestroy_v2, (void *), machine->streams[i]));
  for (int i = 0; i < 2; i++) MUST(CALL(cuStreamDestroy_v2, (void *), machine->captured[i]));
  for (int i = 0; i < EVENTS; i++) MUST(CALL(cuEventDestroy_v2, (void *), machine->events[i]));
}

#endif
