/*
 * Host functions that run for long. Meanwhile the program queues work behind them, also in the same stream,
 * and its other streams work. A call that waits for such a function without a reason never returns here,
 * because the program releases the function only after the call.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "graph_check.h"

#define WORDS 1024u
enum { BLOCKING = 0, NON_BLOCKING = 1 };
static void *const legacy = (void *)1, *const per_thread = (void *)2;

static atomic_int released, ran;

static void wait_for_release(void *data) {
  while (!atomic_load(&released)) usleep(200);
  usleep(2000);
  atomic_fetch_add(&ran, *(int *)data);
}

static void add(void *data) {
  atomic_fetch_add(&ran, *(int *)data);
}

static int one = 1, ten = 10;

static int function_in(void *stream, void (*function)(void *), void *data) {
  return CALL(cuLaunchHostFunc, (void *, void (*)(void *), void *), stream, function, data);
}

static int fill(devptr memory, unsigned value, void *stream) {
  return CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory, value, WORDS, stream);
}

static void *stream_with(unsigned flags) {
  void *stream = NULL;
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, flags));
  return stream;
}

static void *new_event(void) {
  void *event = NULL;
  MUST(CALL(cuEventCreate, (void **, unsigned), &event, 2));
  return event;
}

static int record(void *event, void *stream) {
  return CALL(cuEventRecord, (void *, void *), event, stream);
}

static int wait_for(void *stream) {
  return CALL(cuStreamSynchronize, (void *), stream);
}

static int put(void *function, devptr to, unsigned what, void *stream) {
  void *parameters[] = {&to, &what};
  return CALL(cuLaunchKernel,
              (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
               void **),
              function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static unsigned *pinned(void) {
  unsigned *memory = NULL;
  MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&memory, WORDS * 4, 0));
  memset(memory, 0, WORDS * 4);
  return memory;
}

static unsigned *to_read;
static unsigned seen_by_function;

static void look_when_released(void *data) {
  while (!atomic_load(&released)) usleep(200);
  seen_by_function = to_read[WORDS - 1];
  atomic_fetch_add(&ran, *(int *)data);
}

/* When the function runs, earlier work is done, and later work is queued and has not begun. */
static void queues_behind_in(void *stream) {
  devptr memory = check_alloc(WORDS * 4), other = check_alloc(WORDS * 4);
  void *function = put_function(), *before = new_event(), *after = new_event();
  clear(memory, WORDS);
  clear(other, WORDS);
  atomic_store(&released, 0);
  atomic_store(&ran, 0);
  to_read = pinned();
  OK(fill(memory, 1, stream));
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), to_read, memory, WORDS * 4, stream));
  OK(record(before, stream));
  OK(function_in(stream, look_when_released, &one));
  OK(put(function, memory, 2, stream));
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory + 4, 3, 1, stream));
  OK(CALL(cuMemcpyDtoDAsync_v2, (devptr, devptr, size_t, void *), other, memory, WORDS * 4, stream));
  OK(record(after, stream));
  OK(CALL(cuEventSynchronize, (void *), before));
  IS(NOT_READY, CALL(cuEventQuery, (void *), after));
  IS(NOT_READY, CALL(cuStreamQuery, (void *), stream));
  IS(0, atomic_load(&ran));
  atomic_store(&released, 1);
  OK(CALL(cuEventSynchronize, (void *), after));
  IS(1, atomic_load(&ran));
  IS(1, seen_by_function);
  OK(wait_for(stream));
  OK(CALL(cuStreamQuery, (void *), stream));
  IS(2, word_at(other));
  IS(3, word_at(other + 4));
}

static void queues_behind(void) {
  queues_behind_in(stream_with(BLOCKING));
  queues_behind_in(stream_with(NON_BLOCKING));
  queues_behind_in(legacy);
  queues_behind_in(NULL);
  queues_behind_in(per_thread);
}

/* The function writes the bytes that a later copy takes to the device. */
static unsigned *to_fill;
static void fill_late(void *data) {
  usleep(20000);
  for (unsigned i = 0; i < WORDS; i++) to_fill[i] = *(unsigned *)data;
}

static void feeds_copies(void) {
  static unsigned value;
  void *streams[] = {stream_with(BLOCKING), stream_with(NON_BLOCKING), legacy, per_thread};
  devptr memory = check_alloc(WORDS * 4);
  to_fill = pinned();
  for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
    clear(memory, WORDS);
    value = 100 + (unsigned)i;
    OK(function_in(streams[i], fill_late, &value));
    OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), memory, to_fill, WORDS * 4,
            streams[i]));
    OK(wait_for(streams[i]));
    IS(value, word_at(memory + (WORDS - 1) * 4));
  }
  /* A copy of a blocking stream comes after a function of the legacy stream, also a synchronous copy. */
  clear(memory, WORDS);
  value = 200;
  OK(function_in(legacy, fill_late, &value));
  OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), memory, to_fill, WORDS * 4,
          streams[0]));
  OK(wait_for(streams[0]));
  IS(value, word_at(memory));
  value = 201;
  OK(function_in(streams[0], fill_late, &value));
  OK(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), memory, to_fill, WORDS * 4));
  IS(value, word_at(memory));
}

/* Streams that are not ordered after the function finish their work although the function has not run. */
static void delays_no_other(void) {
  void *held = stream_with(NON_BLOCKING), *other = stream_with(NON_BLOCKING),
       *blocking = stream_with(BLOCKING);
  devptr memory = check_alloc(WORDS * 4);
  unsigned words[4] = {1, 2, 3, 4};
  OK(function_in(held, wait_for_release, &one));
  OK(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), memory, words, sizeof words));
  OK(fill(memory, 5, other));
  OK(wait_for(other));
  IS(5, word_at(memory));
  OK(fill(memory, 6, blocking));
  OK(wait_for(NULL));
  IS(6, word_at(memory));
#define FUNCTION_V2(mode)                                                                                    \
  CALL(cuLaunchHostFunc_v2, (void *, void (*)(void *), void *, unsigned), other, add, &ten, mode)
  OK(FUNCTION_V2(1));
  IS(INVALID_VALUE, FUNCTION_V2(2));
  OK(wait_for(other));
  IS(10, atomic_load(&ran));
  atomic_store(&released, 1);
  OK(wait_for(held));
  IS(11, atomic_load(&ran));
}

static atomic_int waited;
static void *wait_in_thread(void *arguments) {
  void **both = arguments;
  MUST(CALL(cuCtxSetCurrent, (void *), both[0]));
  OK(wait_for(both[1]));
  atomic_store(&waited, 1);
  return NULL;
}

/* A wait that began before the function ran returns after it. */
static void is_waited_for(void) {
  void *stream = stream_with(BLOCKING), *context = NULL;
  OK(CALL(cuCtxGetCurrent, (void **), &context));
  devptr flag = check_alloc(4);
  clear(flag, 1);
  OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, unsigned, unsigned), stream, flag, 1, 0));
  OK(function_in(stream, wait_for_release, &ten));
  pthread_t thread;
  void *arguments[] = {context, stream};
  MUST(pthread_create(&thread, NULL, wait_in_thread, arguments));
  usleep(50000);
  IS(0, atomic_load(&waited));
  OK(CALL(cuStreamWriteValue32_v2, (void *, devptr, unsigned, unsigned), stream_with(NON_BLOCKING), flag, 1,
          0));
  usleep(50000);
  IS(0, atomic_load(&waited));
  IS(0, atomic_load(&ran));
  atomic_store(&released, 1);
  pthread_join(thread, NULL);
  IS(10, atomic_load(&ran));
}

static void *read_in_thread(void *arguments) {
  void **all = arguments;
  MUST(CALL(cuCtxSetCurrent, (void *), all[0]));
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), all[2], *(devptr *)all[3], 4, all[1]));
  atomic_store(&waited, 1);
  return NULL;
}

/* Work that is queued after a wait began does not make it longer, and is not read. */
static void later_work_is_not_waited_for(void) {
  void *stream = stream_with(BLOCKING), *other = stream_with(NON_BLOCKING), *context = NULL;
  OK(CALL(cuCtxGetCurrent, (void **), &context));
  devptr memory = check_alloc(WORDS * 4), flag = check_alloc(4);
  unsigned word = 0;
  clear(flag, 1);
  OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, unsigned, unsigned), stream, flag, 1, 0));
  OK(fill(memory, 5, stream));
  pthread_t threads[2];
  void *arguments[] = {context, stream, &word, &memory};
  MUST(pthread_create(&threads[0], NULL, wait_in_thread, arguments));
  MUST(pthread_create(&threads[1], NULL, read_in_thread, arguments));
  usleep(100000);
  IS(0, atomic_load(&waited));
  OK(function_in(stream, wait_for_release, &one));
  OK(fill(memory, 6, stream));
  OK(CALL(cuStreamWriteValue32_v2, (void *, devptr, unsigned, unsigned), other, flag, 1, 0));
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  IS(5, word);
  IS(0, atomic_load(&ran));
  atomic_store(&released, 1);
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(1, atomic_load(&ran));
  IS(6, word_at(memory));
}

static void graphs_go_on(void) {
  void *stream = stream_with(BLOCKING), *graph = new_graph(), *function = put_function();
  devptr memory = check_alloc(WORDS * 4);
  unsigned what = 7;
  void *parameters[2], *nodes[3];
  clear(memory, WORDS);
  struct node_params first = fill_node(memory, 1, WORDS);
  struct node_params middle = {.type = FUNCTION, .of.function = {.call = wait_for_release, .data = &one}};
  struct node_params last = put_node(function, &memory, &what, parameters);
  OK(add_node(&nodes[0], graph, NULL, 0, &first));
  OK(add_node(&nodes[1], graph, nodes, 1, &middle));
  OK(add_node(&nodes[2], graph, nodes + 1, 1, &last));
  void *exec = new_exec(graph);
  OK(CALL(cuGraphLaunch, (void *, void *), exec, stream));
  OK(CALL(cuGraphLaunch, (void *, void *), exec, stream_with(NON_BLOCKING)));
  OK(function_in(stream, add, &ten));
  IS(0, atomic_load(&ran));
  atomic_store(&released, 1);
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(12, atomic_load(&ran));
  IS(7, word_at(memory));
  IS(1, word_at(memory + 4));
  drop(graph, exec);
}

/* The stream goes when its work is done, and so does code. */
static void outlives_its_stream(void) {
  static int calls[3] = {1, 10, 100};
  devptr memory = check_alloc(WORDS * 4);
  void *module = NULL, *function = NULL, *stream = stream_with(NON_BLOCKING);
  clear(memory, WORDS);
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, put_text));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "put"));
  OK(function_in(stream, wait_for_release, &calls[0]));
  OK(put(function, memory, 9, stream));
  OK(function_in(stream, add, &calls[1]));
  OK(CALL(cuModuleUnload, (void *), module));
  OK(CALL(cuStreamDestroy_v2, (void *), stream));
  atomic_store(&released, 1);
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(11, atomic_load(&ran));
  IS(9, word_at(memory));
}

static void ends_with_its_context(void) {
  void *first = NULL, *second = NULL;
  OK(CALL(cuCtxGetCurrent, (void **), &first));
  OK(CALL(cuCtxCreate_v2, (void **, unsigned, int), &second, 0, 0));
  void *stream = stream_with(BLOCKING);
  devptr memory = check_alloc(WORDS * 4);
  OK(function_in(stream, wait_for_release, &one));
  OK(fill(memory, 1, stream));
  OK(CALL(cuCtxDestroy_v2, (void *), second));
  OK(CALL(cuCtxSetCurrent, (void *), first));
  atomic_store(&released, 1);
  usleep(50000);
  OK(CALL(cuCtxSynchronize, (void), ));
  OK(function_in(NULL, add, &ten));
  OK(CALL(cuCtxSynchronize, (void), ));
}

static void *release_later(void *unused) {
  usleep(200000);
  atomic_store(&released, 1);
  return unused;
}

static unsigned order[3000];
static unsigned *next_in_order = order;
static void note(void *data) {
  *next_in_order++ = (unsigned)(uintptr_t)data;
}

/* A copy of a blocking stream, which has no other work, comes after the work of the legacy stream. */
static void reads_in_turn(void) {
  void *stream = stream_with(BLOCKING);
  devptr memory = check_alloc(WORDS * 4);
  unsigned words[WORDS] = {0};
  pthread_t thread;
  clear(memory, WORDS);
  OK(function_in(legacy, wait_for_release, &one));
  OK(fill(memory, 9, legacy));
  MUST(pthread_create(&thread, NULL, release_later, NULL));
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), words, memory, sizeof words, stream));
  IS(9, words[WORDS - 1]);
  pthread_join(thread, NULL);
}

/* Launches more functions than there are gates: the caller waits, as for a GPU's full queue. */
static void many_in_a_row(void) {
  void *stream = stream_with(BLOCKING);
  pthread_t thread;
  OK(function_in(stream, wait_for_release, &one));
  MUST(pthread_create(&thread, NULL, release_later, NULL));
  for (uintptr_t i = 0; i < 3000; i++) OK(function_in(stream, note, (void *)i));
  OK(wait_for(stream));
  pthread_join(thread, NULL);
  for (unsigned i = 0; i < 3000; i++) IS(i, order[i]);
}

/* Far more work than a queue holds. */
static void much_behind(void) {
  void *stream = stream_with(BLOCKING);
  devptr memory = check_alloc(WORDS * 4);
  pthread_t thread;
  OK(function_in(stream, wait_for_release, &one));
  MUST(pthread_create(&thread, NULL, release_later, NULL));
  for (unsigned i = 0; i < 100000; i++)
    OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory, i, 1, stream));
  OK(wait_for(stream));
  pthread_join(thread, NULL);
  IS(99999, word_at(memory));
  IS(1, atomic_load(&ran));
}

static const struct check_case cases[] = {{"queues_behind", queues_behind},
                                          {"feeds_copies", feeds_copies},
                                          {"delays_no_other", delays_no_other},
                                          {"is_waited_for", is_waited_for},
                                          {"later_work_is_not_waited_for", later_work_is_not_waited_for},
                                          {"graphs_go_on", graphs_go_on},
                                          {"outlives_its_stream", outlives_its_stream},
                                          {"ends_with_its_context", ends_with_its_context},
                                          {"reads_in_turn", reads_in_turn},
                                          {"many_in_a_row", many_in_a_row},
                                          {"much_behind", much_behind}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
