/*
 * A kernel runs until the program ends it. Meanwhile the program queries its streams, works in other streams,
 * and queues work behind the kernel. A call that waits for the kernel without a reason never returns here.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "graph_check.h"

#define WORDS 1024u
enum { BLOCKING = 0, NON_BLOCKING = 1 };
static void *const legacy = (void *)1;

/*
 * spin(flag, seen, last): each block counts itself in seen[0] and waits until the flag is not 0. Then it adds
 * the flag to seen[1]. `last`: an address that the kernel writes to at the end; 0: none.
 */
static const char spin_text[] =
    ".version 7.0\n.target sm_60\n.address_size 64\n"
    ".visible .entry spin(.param .u64 flag, .param .u64 seen, .param .u64 last) {\n"
    ".reg .b64 %f, %s, %l; .reg .b32 %v, %x; .reg .pred %p;\n"
    "ld.param.u64 %f, [flag]; ld.param.u64 %s, [seen]; ld.param.u64 %l, [last];\n"
    "atom.add.u32 %x, [%s], 1;\n"
    "again: ld.volatile.u32 %v, [%f]; setp.eq.u32 %p, %v, 0; @%p bra again;\n"
    "atom.add.u32 %x, [%s+4], %v;\n"
    "setp.eq.u64 %p, %l, 0; @%p ret; st.u32 [%l], %v; ret; }\n";

struct spinning {
  void *function, *stream, *other, *event;
  devptr flag, seen;
};

static void *stream_with(unsigned flags) {
  void *stream = NULL;
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, flags));
  return stream;
}

static int spin(const struct spinning *spinning, devptr flag, unsigned blocks, devptr last) {
  devptr seen = spinning->seen;
  void *parameters[] = {&flag, &seen, &last};
  return CALL(cuLaunchKernel,
              (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
               void **),
              spinning->function, blocks, 1, 1, 1, 1, 1, 0, spinning->stream, parameters, NULL);
}

static int put(void *function, devptr to, unsigned what, void *stream) {
  void *parameters[] = {&to, &what};
  return CALL(cuLaunchKernel,
              (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
               void **),
              function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static int fill(devptr memory, unsigned value, unsigned words, void *stream) {
  return CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory, value, words, stream);
}

static int record(void *event, void *stream) {
  return CALL(cuEventRecord, (void *, void *), event, stream);
}

static int wait_for(void *stream) {
  return CALL(cuStreamSynchronize, (void *), stream);
}

static int ask(void *stream) {
  return CALL(cuStreamQuery, (void *), stream);
}

static int ask_event(void *event) {
  return CALL(cuEventQuery, (void *), event);
}

static unsigned word(devptr at, void *stream) {
  unsigned value = 0;
  MUST(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), &value, at, 4, stream));
  MUST(wait_for(stream));
  return value;
}

static void *new_event(void) {
  void *event = NULL;
  MUST(CALL(cuEventCreate, (void **, unsigned), &event, 2));
  return event;
}

static struct spinning prepare(void *stream) {
  struct spinning made = {.stream = stream, .other = stream_with(NON_BLOCKING), .event = new_event()};
  void *module = NULL;
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, spin_text));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &made.function, module, "spin"));
  made.flag = check_alloc(4);
  made.seen = check_alloc(8);
  MUST(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), made.flag, 0, 1));
  MUST(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), made.seen, 0, 2));
  MUST(CALL(cuCtxSynchronize, (void)));
  return made;
}

/* Launches the spinning kernel and records an event behind it. */
static struct spinning start(void *stream, unsigned blocks) {
  struct spinning made = prepare(stream);
  MUST(spin(&made, made.flag, blocks, 0));
  MUST(record(made.event, stream));
  return made;
}

/* Checks that the kernel has ended and that all of its blocks saw `value`. */
static void has_ended(const struct spinning *spinning, unsigned blocks, unsigned value) {
  OK(wait_for(spinning->stream));
  OK(ask(spinning->stream));
  OK(ask_event(spinning->event));
  IS(blocks, word(spinning->seen, spinning->other));
  IS(blocks * value, word(spinning->seen + 4, spinning->other));
}

static void tells_in(void *stream, unsigned blocks) {
  struct spinning spinning = start(stream, blocks);
  for (int i = 0; i < 20; i++) {
    IS(NOT_READY, ask(stream));
    IS(NOT_READY, ask_event(spinning.event));
    OK(ask(spinning.other));
    usleep(1000);
  }
  OK(fill(spinning.flag, 3, 1, spinning.other));
  has_ended(&spinning, blocks, 3);
}

static void tells(void) {
  tells_in(stream_with(NON_BLOCKING), 1);
  tells_in(stream_with(BLOCKING), 1);
  tells_in(NULL, 1);
  tells_in(legacy, 1);
}

static void tells_of_many_blocks(void) {
  tells_in(stream_with(NON_BLOCKING), 2);
  tells_in(stream_with(NON_BLOCKING), 64);
}

/* A blocking stream waits for the default stream, and the default stream for it. */
static void tells_of_ordered_streams(void) {
  struct spinning spinning = start(stream_with(BLOCKING), 1);
  void *blocking = stream_with(BLOCKING);
  IS(NOT_READY, ask(legacy));
  OK(ask(blocking));
  OK(fill(spinning.flag, 1, 1, spinning.other));
  has_ended(&spinning, 1, 1);
}

enum { BY_FILL, BY_COPY, BY_VALUE, BY_DEVICE_COPY, WAYS };

static void ends_by(int way) {
  struct spinning spinning = prepare(stream_with(NON_BLOCKING));
  devptr seven = check_alloc(4);
  unsigned value = 7;
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), seven, value, 1));
  OK(CALL(cuCtxSynchronize, (void)));
  OK(spin(&spinning, spinning.flag, 1, 0));
  OK(record(spinning.event, spinning.stream));
  IS(NOT_READY, ask_event(spinning.event));
  switch (way) {
    case BY_FILL:
      OK(fill(spinning.flag, value, 1, spinning.other));
      break;
    case BY_COPY:
      OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), spinning.flag, &value, 4,
              spinning.other));
      break;
    case BY_VALUE:
      OK(CALL(cuStreamWriteValue32_v2, (void *, devptr, unsigned, unsigned), spinning.other, spinning.flag,
              value, 0));
      break;
    default:
      OK(CALL(cuMemcpyDtoDAsync_v2, (devptr, devptr, size_t, void *), spinning.flag, seven, 4,
              spinning.other));
      break;
  }
  has_ended(&spinning, 1, value);
}

static void ends_by_other_streams(void) {
  for (int way = 0; way < WAYS; way++) ends_by(way);
}

/* One block: ThreadSanitizer reports what another thread of the host writes while this reads it. */
static void is_watched(void) {
  struct spinning spinning = start(stream_with(NON_BLOCKING), 1);
  while (word(spinning.seen, spinning.other) < 1) usleep(1000);
  IS(0, word(spinning.seen + 4, spinning.other));
  OK(fill(spinning.flag, 9, 1, spinning.other));
  has_ended(&spinning, 1, 9);
}

/* Calls that are queued behind a kernel run after it, in their order. */
static void queues_behind(void) {
  struct spinning spinning = prepare(stream_with(NON_BLOCKING));
  void *function = put_function(), *third = stream_with(NON_BLOCKING), *after = new_event();
  devptr memory = check_alloc(WORDS * 4), copy = check_alloc(WORDS * 4);
  unsigned bytes[WORDS];
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), memory, 1, WORDS));
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), copy, 1, WORDS));
  OK(CALL(cuCtxSynchronize, (void)));
  OK(spin(&spinning, spinning.flag, 2, memory));
  for (unsigned i = 1; i < 300; i++) OK(put(function, memory + i * 4, i, spinning.stream));
  OK(put(function, memory + 4, 1000, spinning.stream));
  OK(record(spinning.event, spinning.stream));
  OK(CALL(cuStreamWaitEvent, (void *, void *, unsigned), third, spinning.event, 0));
  OK(CALL(cuMemcpyDtoDAsync_v2, (devptr, devptr, size_t, void *), copy, memory, WORDS * 4, third));
  OK(record(after, third));
  for (unsigned i = 0; i < WORDS; i++) bytes[i] = 5;
  OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), memory, bytes, 16, spinning.stream));
  memset(bytes, 0, sizeof bytes); /* the call has copied its bytes */
  IS(NOT_READY, ask(third));
  IS(NOT_READY, ask_event(spinning.event));
  IS(NOT_READY, ask_event(after));
  IS(1, word(memory + 40, spinning.other));
  OK(fill(spinning.flag, 8, 1, spinning.other));
  OK(wait_for(third));
  OK(ask_event(after));
  has_ended(&spinning, 2, 8);
  IS(8, word(copy, third));
  IS(1000, word(copy + 4, third));
  for (unsigned i = 2; i < 300; i++) IS(i, word(copy + i * 4, third));
  IS(1, word(copy + 300 * 4, third));
  IS(5, word(memory + 4, third));
}

/* A second kernel is queued behind the first, and its event can be queried, too. */
static void second_one(void) {
  struct spinning spinning = prepare(stream_with(NON_BLOCKING));
  devptr second = check_alloc(4);
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), second, 0, 1));
  OK(CALL(cuCtxSynchronize, (void)));
  OK(spin(&spinning, spinning.flag, 1, 0));
  OK(spin(&spinning, second, 1, 0));
  OK(record(spinning.event, spinning.stream));
  IS(NOT_READY, ask_event(spinning.event));
  OK(fill(spinning.flag, 2, 1, spinning.other));
  while (word(spinning.seen, spinning.other) < 2) usleep(1000);
  IS(NOT_READY, ask_event(spinning.event));
  IS(2, word(spinning.seen + 4, spinning.other));
  OK(fill(second, 4, 1, spinning.other));
  OK(wait_for(spinning.stream));
  OK(ask_event(spinning.event));
  IS(6, word(spinning.seen + 4, spinning.other));
}

/* All nodes of a graph run before work that is queued behind the graph. */
static void graphs_keep_order(void) {
  struct spinning spinning = prepare(stream_with(NON_BLOCKING));
  void *graph = NULL, *exec = NULL, *function = put_function();
  devptr memory = check_alloc(4);
  OK(CALL(cuStreamBeginCapture_v2, (void *, int), spinning.stream, 2));
  for (unsigned i = 0; i < 3; i++) {
    OK(spin(&spinning, spinning.flag, 1, 0));
    OK(put(function, memory, i, spinning.stream));
  }
  OK(CALL(cuStreamEndCapture, (void *, void **), spinning.stream, &graph));
  OK(CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &exec, graph, 0));
  OK(fill(spinning.flag, 1, 1, spinning.stream));
  for (int i = 0; i < 5; i++) {
    OK(spin(&spinning, spinning.flag, 1, 0));
    OK(CALL(cuGraphLaunch, (void *, void *), exec, spinning.stream));
    OK(put(function, memory, 77, spinning.stream));
    OK(record(spinning.event, spinning.stream));
    while (ask_event(spinning.event) == NOT_READY) continue;
    IS(77, word(memory, spinning.stream));
  }
  IS(20, word(spinning.seen, spinning.stream));
}

/* The error of a kernel is returned after the kernel has ended, and by the calls behind it. */
static void fails_late(void) {
  struct spinning spinning = prepare(stream_with(NON_BLOCKING));
  devptr memory = check_alloc(4);
  OK(spin(&spinning, spinning.flag, 1, 64)); /* an address without memory */
  OK(fill(memory, 1, 1, spinning.stream));
  OK(record(spinning.event, spinning.stream));
  IS(NOT_READY, ask_event(spinning.event));
  OK(fill(spinning.flag, 1, 1, spinning.other));
  IS(700, wait_for(spinning.stream));
  IS(700, CALL(cuCtxSynchronize, (void)));
}

static atomic_int is_back;

static void *wait_in_thread(void *argument) {
  const struct spinning *spinning = argument;
  IS(0, wait_for(spinning->stream));
  atomic_store(&is_back, 1);
  return NULL;
}

/* One thread waits for the kernel; another thread queries the kernel and ends it. */
static void is_waited_for(void) {
  struct spinning spinning = start(stream_with(NON_BLOCKING), 1);
  pthread_t thread;
  OK(pthread_create(&thread, NULL, wait_in_thread, &spinning));
  for (int i = 0; i < 10; i++) {
    usleep(2000);
    IS(NOT_READY, ask_event(spinning.event));
    OK(ask(spinning.other));
  }
  IS(0, atomic_load(&is_back));
  OK(fill(spinning.flag, 2, 1, spinning.other));
  OK(pthread_join(thread, NULL));
  has_ended(&spinning, 1, 2);
}

/* A wait that began before a second kernel was launched returns while that one runs. */
static void later_ones_are_not_waited_for(void) {
  struct spinning spinning = prepare(stream_with(NON_BLOCKING));
  devptr second = check_alloc(4);
  pthread_t thread;
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), second, 0, 1));
  OK(CALL(cuCtxSynchronize, (void)));
  OK(spin(&spinning, spinning.flag, 1, 0));
  OK(pthread_create(&thread, NULL, wait_in_thread, &spinning));
  usleep(20000);
  IS(NOT_READY, ask(spinning.stream));
  OK(spin(&spinning, second, 1, 0));
  OK(fill(spinning.flag, 2, 1, spinning.other));
  OK(pthread_join(thread, NULL));
  IS(NOT_READY, ask(spinning.stream));
  OK(fill(second, 1, 1, spinning.other));
  OK(wait_for(spinning.stream));
  IS(3, word(spinning.seen + 4, spinning.other));
}

/* Meanwhile the program waits for other streams and their events, and looks code up. */
static void delays_no_other(void) {
  struct spinning spinning = prepare(stream_with(NON_BLOCKING));
  devptr memory = check_alloc(4);
  void *event = new_event(), *module = NULL, *function = NULL;
  unsigned *pinned = NULL;
  MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&pinned, 4096, 0));
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, put_text));
  /* The first copy makes a host with --device cuda allocate memory; a simulated GPU allocates later. */
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), pinned, memory, 4, spinning.other));
  OK(wait_for(spinning.other));
  OK(spin(&spinning, spinning.flag, 2, 0));
  OK(record(spinning.event, spinning.stream));
  IS(NOT_READY, ask_event(spinning.event));
  OK(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "put"));
  OK(put(function, spinning.seen + 4, 100, spinning.stream));
  OK(fill(memory, 12, 1, spinning.other));
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), pinned, memory, 4, spinning.other));
  OK(record(event, spinning.other));
  OK(CALL(cuEventSynchronize, (void *), event));
  OK(CALL(cuEventDestroy_v2, (void *), event));
  IS(12, *pinned);
  IS(NOT_READY, ask_event(spinning.event));
  OK(fill(spinning.flag, 2, 1, spinning.other));
  OK(wait_for(spinning.stream));
  IS(100, word(spinning.seen + 4, spinning.other));
}

/* The program ends while the kernel runs. Its host must not wait for the kernel. */
static void is_left(void) {
  struct spinning spinning = start(stream_with(NON_BLOCKING), 2);
  IS(NOT_READY, ask_event(spinning.event));
}

/* The kernel waits for the program's own write to memory that both see. */
static void sees_the_program(void) {
  struct spinning spinning = prepare(stream_with(NON_BLOCKING));
  volatile unsigned *flag = NULL;
  devptr address = 0;
  MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&flag, 4096, 2));
  MUST(CALL(cuMemHostGetDevicePointer_v2, (devptr *, void *, unsigned), &address, (void *)flag, 0));
  *flag = 0;
  pthread_t thread;
  OK(spin(&spinning, address, 3, 0));
  OK(record(spinning.event, spinning.stream));
  for (int i = 0; i < 10; i++) IS(NOT_READY, ask_event(spinning.event));
  OK(pthread_create(&thread, NULL, wait_in_thread, &spinning));
  usleep(20000);
  IS(0, atomic_load(&is_back));
  *flag = 5;
  OK(pthread_join(thread, NULL));
  has_ended(&spinning, 3, 5);
}

/*
 * A copy behind the kernel reads the bytes that the program wrote to pinned memory before the kernel ended.
 */
static void copies_afterwards_of(unsigned words, bool by_value) {
  struct spinning spinning = prepare(stream_with(NON_BLOCKING));
  volatile unsigned *pinned = NULL;
  devptr memory = check_alloc(words * 4);
  MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&pinned, words * 4, 0));
  memset((void *)pinned, 0, words * 4);
  if (by_value)
    OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, unsigned, unsigned), spinning.stream, spinning.flag, 1,
            0));
  else OK(spin(&spinning, spinning.flag, 1, 0));
  OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), memory, (void *)pinned, words * 4,
          spinning.stream));
  usleep(20000); /* the host has seen both */
  for (unsigned i = 0; i < words; i++) pinned[i] = i + 1;
  OK(fill(spinning.flag, 1, 1, spinning.other));
  OK(wait_for(spinning.stream));
  for (unsigned i = 0; i < words; i += 93) IS(i + 1, word(memory + i * 4, spinning.stream));
}

static void copies_afterwards(void) {
  copies_afterwards_of(1024, false);
  copies_afterwards_of(64 << 10, false);
  copies_afterwards_of(1024, true);
  copies_afterwards_of(64 << 10, true);
}

static unsigned load_of_device(void *nvml, void *device) {
  unsigned rates[2] = {999, 999};
  OK(((int (*)(void *, unsigned *))dlsym(nvml, "nvmlDeviceGetUtilizationRates"))(device, rates));
  return rates[0];
}

static bool load_becomes(void *nvml, void *device, unsigned least, unsigned most) {
  for (unsigned i = 0; i < 100; i++) {
    unsigned load = load_of_device(nvml, device);
    if (load >= least && load <= most) return true;
    usleep(100000);
  }
  return false;
}

static void is_the_load(void) {
  void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), *device = NULL;
  TRUE(nvml != NULL);
  if (nvml == NULL) return;
  MUST(((int (*)(void))dlsym(nvml, "nvmlInit_v2"))());
  MUST(((int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2"))(0, &device));
  TRUE(load_becomes(nvml, device, 0, 5));
  struct spinning spinning = start(stream_with(NON_BLOCKING), 1);
  TRUE(load_becomes(nvml, device, 10, 100)); /* the load is processor time, so a busy machine has less */
  OK(fill(spinning.flag, 5, 1, spinning.other));
  OK(wait_for(spinning.stream));
  TRUE(load_becomes(nvml, device, 0, 5));
}

int main(int argc, char **argv) {
  static const struct check_case cases[] = {
      {"tells", tells},
      {"tells_of_many_blocks", tells_of_many_blocks},
      {"tells_of_ordered_streams", tells_of_ordered_streams},
      {"ends_by_other_streams", ends_by_other_streams},
      {"is_watched", is_watched},
      {"queues_behind", queues_behind},
      {"second_one", second_one},
      {"graphs_keep_order", graphs_keep_order},
      {"fails_late", fails_late},
      {"is_waited_for", is_waited_for},
      {"later_ones_are_not_waited_for", later_ones_are_not_waited_for},
      {"delays_no_other", delays_no_other},
      {"is_left", is_left},
      {"sees_the_program", sees_the_program},
      {"copies_afterwards", copies_afterwards},
      {"is_the_load", is_the_load},
  };
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
