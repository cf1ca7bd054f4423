/* Streams, events, host functions, values in memory that streams wait for, and reads into pinned memory. */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define LEGACY ((void *)1)
#define PER_THREAD ((void *)2)

static void *make_stream(unsigned flags) {
  void *stream = NULL;
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, flags));
  return stream;
}

static void *make_event(unsigned flags) {
  void *event = NULL;
  MUST(CALL(cuEventCreate, (void **, unsigned), &event, flags));
  return event;
}

static int wait_for(void *stream) {
  return CALL(cuStreamSynchronize, (void *), stream);
}

static void properties(void) {
  void *stream = NULL, *context = NULL, *green = (void *)1;
  int priority = 9, device = -1;
  unsigned flags = 9;
  unsigned long long id = 0, other = 0;
  OK(CALL(cuStreamCreateWithPriority, (void **, unsigned, int), &stream, 1, -100));
  OK(CALL(cuStreamGetPriority, (void *, int *), stream, &priority));
  IS(-5, priority);
  OK(CALL(cuStreamGetFlags, (void *, unsigned *), stream, &flags));
  IS(1, flags);
  OK(CALL(cuStreamGetDevice, (void *, int *), stream, &device));
  IS(0, device);
  OK(CALL(cuStreamGetCtx_v2, (void *, void **, void **), stream, &context, &green));
  TRUE(context != NULL && green == NULL);
  OK(CALL(cuStreamGetId, (void *, unsigned long long *), stream, &id));
  OK(CALL(cuStreamGetId, (void *, unsigned long long *), PER_THREAD, &other));
  TRUE(id != other);
  IS(INVALID_VALUE, CALL(cuStreamCreate, (void **, unsigned), &stream, 2));
  IS(INVALID_VALUE, CALL(cuStreamCreate, (void **, unsigned), NULL, 0));
  IS(INVALID_VALUE, CALL(cuStreamGetFlags, (void *, unsigned *), stream, NULL));
  IS(INVALID_HANDLE, CALL(cuStreamGetFlags, (void *, unsigned *), (void *)0x1234, &flags));
  OK(CALL(cuStreamDestroy_v2, (void *), stream));
  IS(INVALID_HANDLE, CALL(cuStreamDestroy_v2, (void *), stream));
  IS(INVALID_HANDLE, wait_for(stream));
  IS(INVALID_HANDLE, CALL(cuStreamQuery, (void *), stream));
}

static void attributes(void) {
  int value[16] = {0}, got[16];
  void *stream = make_stream(0), *copy = make_stream(0);
  OK(CALL(cuStreamGetAttribute, (void *, int, void *), stream, 3, got));
  IS(1, got[0]);
  value[0] = 2;
  OK(CALL(cuStreamSetAttribute, (void *, int, const void *), stream, 3, value));
  OK(CALL(cuStreamGetAttribute, (void *, int, void *), stream, 3, got));
  IS(2, got[0]);
  value[0] = 7;
  IS(INVALID_VALUE, CALL(cuStreamSetAttribute, (void *, int, const void *), stream, 3, value));
  value[0] = 1;
  OK(CALL(cuStreamSetAttribute, (void *, int, const void *), stream, 10, value));
  for (int i = 0; i < 8; i++) value[i] = 100 + i;
  OK(CALL(cuStreamSetAttribute, (void *, int, const void *), stream, 1, value));
  OK(CALL(cuStreamCopyAttributes, (void *, void *), copy, stream));
  OK(CALL(cuStreamGetAttribute, (void *, int, void *), copy, 1, got));
  OK(memcmp(got, value, 32));
  OK(CALL(cuStreamGetAttribute, (void *, int, void *), copy, 10, got));
  IS(1, got[0]);
  IS(INVALID_VALUE, CALL(cuStreamGetAttribute, (void *, int, void *), stream, 99, got));
  IS(INVALID_VALUE, CALL(cuStreamGetAttribute, (void *, int, void *), stream, 3, NULL));
  IS(INVALID_HANDLE, CALL(cuStreamSetAttribute, (void *, int, const void *), (void *)0x99, 3, value));
  OK(CALL(cuCtxSynchronize, (void), ));
}

static void events(void) {
  void *stream = make_stream(1), *start = make_event(0), *end = make_event(1), *untimed = make_event(2);
  float milliseconds = -1;
  OK(CALL(cuEventQuery, (void *), start));
  OK(CALL(cuEventSynchronize, (void *), start));
  IS(INVALID_HANDLE, CALL(cuEventElapsedTime, (float *, void *, void *), &milliseconds, start, end));
  OK(CALL(cuEventRecord, (void *, void *), start, stream));
  struct timespec pause = {.tv_nsec = 30000000};
  OK(wait_for(stream));
  nanosleep(&pause, NULL);
  OK(CALL(cuEventRecordWithFlags, (void *, void *, unsigned), end, stream, 0));
  OK(CALL(cuEventSynchronize, (void *), end));
  OK(CALL(cuEventElapsedTime, (float *, void *, void *), &milliseconds, start, end));
  TRUE(milliseconds >= 30 && milliseconds < 10000);
  OK(CALL(cuEventElapsedTime_v2, (float *, void *, void *), &milliseconds, end, start));
  TRUE(milliseconds <= -30);
  OK(CALL(cuEventRecord, (void *, void *), untimed, stream));
  IS(INVALID_HANDLE, CALL(cuEventElapsedTime, (float *, void *, void *), &milliseconds, start, untimed));
  OK(CALL(cuStreamWaitEvent, (void *, void *, unsigned), LEGACY, untimed, 0));
  IS(INVALID_VALUE, CALL(cuStreamWaitEvent, (void *, void *, unsigned), stream, end, 8));
  IS(401, CALL(cuEventRecordWithFlags, (void *, void *, unsigned), end, stream, 1));
  IS(INVALID_VALUE, CALL(cuEventCreate, (void **, unsigned), &start, 8));
  IS(INVALID_VALUE,
     CALL(cuEventCreate, (void **, unsigned), &start, 4)); /* events between processes have no times */
  void *context = NULL;
  MUST(CALL(cuCtxGetCurrent, (void **), &context));
  OK(CALL(cuCtxRecordEvent, (void *, void *), context, end));
  OK(CALL(cuCtxWaitEvent, (void *, void *), context, end));
  OK(CALL(cuEventSynchronize, (void *), end));
  IS(INVALID_CONTEXT, CALL(cuCtxRecordEvent, (void *, void *), NULL, end));
  IS(INVALID_CONTEXT, CALL(cuCtxWaitEvent, (void *, void *), NULL, end));
  OK(CALL(cuEventDestroy_v2, (void *), end));
  IS(INVALID_HANDLE, CALL(cuEventDestroy_v2, (void *), end));
  IS(INVALID_HANDLE, CALL(cuEventRecord, (void *, void *), end, stream));
  IS(INVALID_HANDLE, CALL(cuEventQuery, (void *), NULL));
}

/* Pinned memory has the bytes of a read when the program waits, by any call that waits. */
static void pinned_reads(void) {
  enum { BYTES = 5001, WAYS = 6 };
  void *memory = NULL;
  MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), &memory, (size_t)BYTES * WAYS, 0));
  unsigned char *at = memory, expected[BYTES];
  devptr device = check_alloc(BYTES);
  void *event = make_event(2);
  for (int way = 0; way < WAYS; way++, at += BYTES) {
    void *stream = way == 4 ? PER_THREAD : make_stream(1);
    check_pattern(expected, BYTES, 40 + (uint64_t)way);
    memset(at, 0xee, BYTES);
    OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), device, expected, BYTES, stream));
    OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), at, device, BYTES, stream));
    /* A later call does not change bytes that were read before. */
    OK(CALL(cuMemsetD8Async, (devptr, unsigned char, size_t, void *), device, 0, BYTES, stream));
    switch (way) {
      case 0:
      case 4:
        OK(wait_for(stream));
        break;
      case 1:
        OK(CALL(cuCtxSynchronize, (void), ));
        break;
      case 2:
        OK(CALL(cuEventRecord, (void *, void *), event, stream));
        OK(CALL(cuEventSynchronize, (void *), event));
        break;
      case 3:
        while (CALL(cuStreamQuery, (void *), stream) == NOT_READY) continue;
        break;
      default: { /* through another stream that waits for this one */
        void *other = make_stream(1);
        OK(CALL(cuEventRecord, (void *, void *), event, stream));
        OK(CALL(cuStreamWaitEvent, (void *, void *, unsigned), other, event, 0));
        OK(wait_for(other));
      }
    }
    OK(memcmp(at, expected, BYTES));
  }
  /*
   * Bytes are read into pinned memory and then copied from it to the device: the copy has the bytes that were
   * read.
   */
  at = memory;
  void *stream = make_stream(1);
  devptr second = check_alloc(BYTES);
  check_pattern(expected, BYTES, 77);
  OK(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), device, expected, BYTES));
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), at, device, BYTES, stream));
  OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), second, at, BYTES, stream));
  unsigned char got[BYTES];
  OK(wait_for(stream));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), got, second, BYTES));
  OK(memcmp(got, expected, BYTES));
  /* Freed during a read: nothing is written to the memory afterwards. */
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), at, device, BYTES, stream));
  OK(CALL(cuMemFreeHost, (void *), memory));
  OK(wait_for(stream));
}

/* More reads than fit in one answer, on many streams, in order and out of order. */
static void many_reads(void) {
  enum { READS = 300, BYTES = 20000 };
  unsigned char *memory = malloc((size_t)READS * BYTES), expected[BYTES];
  MUST(CALL(cuMemHostRegister_v2, (void *, size_t, unsigned), memory, (size_t)READS * BYTES, 1));
  devptr device = check_alloc(BYTES);
  void *streams[3] = {make_stream(0), make_stream(1), PER_THREAD};
  for (int i = 0; i < READS; i++) {
    void *stream = streams[i % 3];
    check_pattern(expected, BYTES, (uint64_t)i);
    OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), device, expected, BYTES, stream));
    OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), memory + (size_t)i * BYTES, device, BYTES,
            stream));
  }
  OK(wait_for(streams[1]));
  OK(CALL(cuCtxSynchronize, (void), ));
  for (int i = 0; i < READS; i++) {
    check_pattern(expected, BYTES, (uint64_t)i);
    OK(memcmp(memory + (size_t)i * BYTES, expected, BYTES));
  }
  OK(CALL(cuMemHostUnregister, (void *), memory));
  free(memory);
}

struct seen {
  void *stream;
  int status, calls, inside;
  pthread_t thread;
  int hold; /* the program sets it to release the function */
};

static void callback(void *stream, int status, void *data) {
  struct seen *seen = data;
  seen->stream = stream;
  seen->status = status;
  seen->calls++;
}

static void slow_function(void *data) {
  struct seen *seen = data;
  while (__atomic_load_n(&seen->hold, __ATOMIC_ACQUIRE) != 0) usleep(1000);
  seen->thread = pthread_self();
  seen->inside = CALL(cuCtxSynchronize, (void), );
  seen->calls++;
}

static void host_functions(void) {
  void *stream = make_stream(1);
  struct seen seen = {.hold = 1}, called = {0};
  /* The call returns at once, while the function still runs. */
  OK(CALL(cuLaunchHostFunc, (void *, void (*)(void *), void *), stream, slow_function, &seen));
  OK(CALL(cuStreamAddCallback, (void *, void (*)(void *, int, void *), void *, unsigned), stream, callback,
          &called, 0));
  IS(0, seen.calls);
  IS(NOT_READY, CALL(cuStreamQuery, (void *), stream));
  __atomic_store_n(&seen.hold, 0, __ATOMIC_RELEASE);
  OK(wait_for(stream));
  IS(1, seen.calls);
  IS(NOT_PERMITTED, seen.inside);
  TRUE(!pthread_equal(seen.thread, pthread_self()));
  IS(1, called.calls);
  OK(called.status);
  TRUE(called.stream == stream);
  /*
   * The bytes of earlier reads are there when the function runs, and later copies have the bytes that it
   * writes.
   */
  unsigned *memory = NULL;
  MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&memory, 64, 0));
  devptr device = check_alloc(64);
  for (int special = 0; special < 3; special++) {
    void *where = special == 0 ? NULL : special == 1 ? PER_THREAD : stream;
    struct seen order = {0};
    memory[0] = 0;
    OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), device, 7, 16, where));
    OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), memory, device, 64, where));
    OK(CALL(cuLaunchHostFunc, (void *, void (*)(void *), void *), where, slow_function, &order));
    OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), device, 8, 16, where));
    OK(wait_for(where));
    IS(1, order.calls);
    IS(7, memory[0]);
  }
  IS(INVALID_VALUE, CALL(cuLaunchHostFunc, (void *, void *, void *), stream, NULL, NULL));
  IS(INVALID_HANDLE,
     CALL(cuLaunchHostFunc, (void *, void (*)(void *), void *), (void *)0x77, slow_function, &seen));
  IS(INVALID_VALUE, CALL(cuStreamAddCallback, (void *, void (*)(void *, int, void *), void *, unsigned),
                         stream, callback, &called, 1));
}

static unsigned read32(devptr address) {
  unsigned value = 0xdead;
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), &value, address, 4, make_stream(1)));
  return value;
}

/*
 * A stream that waits delays its own work and the streams that wait for its events. It delays no other
 * stream.
 */
static void wait_values(void) {
  devptr flag = check_alloc(4096), data = flag + 1024;
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), flag, 0, 1024));
  OK(CALL(cuCtxSynchronize, (void), ));
  void *waits = make_stream(1), *follows = make_stream(1), *writes = make_stream(1);
  void *event = make_event(0), *other = make_event(0);
  OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, unsigned, unsigned), waits, flag, 5, 0));
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), data, 1, 1, waits));
  OK(CALL(cuEventRecord, (void *, void *), event, waits));
  OK(CALL(cuStreamWaitEvent, (void *, void *, unsigned), follows, event, 0));
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), data + 4, 2, 1, follows));
  IS(NOT_READY, CALL(cuStreamQuery, (void *), waits));
  IS(NOT_READY, CALL(cuStreamQuery, (void *), follows));
  IS(NOT_READY, CALL(cuEventQuery, (void *), event));
  OK(CALL(cuEventRecord, (void *, void *), other, writes));
  OK(CALL(cuEventSynchronize, (void *), other));
  float milliseconds;
  IS(NOT_READY, CALL(cuEventElapsedTime, (float *, void *, void *), &milliseconds, other, event));
  IS(0, read32(data));
  OK(CALL(cuStreamWriteValue32_v2, (void *, devptr, unsigned, unsigned), writes, flag, 4, 0));
  OK(wait_for(writes));
  IS(NOT_READY, CALL(cuStreamQuery, (void *), waits));
  OK(CALL(cuStreamWriteValue32_v2, (void *, devptr, unsigned, unsigned), writes, flag, 6, 0));
  OK(wait_for(follows));
  OK(wait_for(waits));
  OK(CALL(cuEventQuery, (void *), event));
  IS(1, read32(data));
  IS(2, read32(data + 4));
  OK(CALL(cuEventElapsedTime, (float *, void *, void *), &milliseconds, other, event));
  TRUE(milliseconds > 0);

  /* Equal, a bit, none, 64 bits; then all of them as a batch. */
  struct {
    unsigned type, barrier;
    devptr address;
    uint64_t value;
    unsigned flags, unused;
    uint64_t rest[2];
  } batch[] = {{.type = 5, .address = flag + 8, .value = 0xff00000000ull},
               {.type = 4, .address = flag + 8, .value = 0xff00000000ull, .flags = 1},
               {.type = 4, .address = flag + 8, .value = 0x0100000000ull, .flags = 2},
               {.type = 1, .address = flag, .value = 1, .flags = 3},
               {.type = 6},
               {.type = 2, .address = data + 8, .value = 77}};
  OK(CALL(cuStreamBatchMemOp_v2, (void *, unsigned, void *, unsigned), waits, 6, batch, 0));
  OK(wait_for(waits));
  IS(77, read32(data + 8));
  batch[3].type = 3;
  IS(NOT_SUPPORTED, CALL(cuStreamBatchMemOp_v2, (void *, unsigned, void *, unsigned), waits, 6, batch, 0));
  batch[3].type = 9;
  IS(INVALID_VALUE, CALL(cuStreamBatchMemOp_v2, (void *, unsigned, void *, unsigned), waits, 6, batch, 0));
  IS(INVALID_VALUE,
     CALL(cuStreamWaitValue32_v2, (void *, devptr, unsigned, unsigned), waits, flag + 2, 5, 0));
  IS(INVALID_VALUE,
     CALL(cuStreamWaitValue64_v2, (void *, devptr, uint64_t, unsigned), waits, flag + 4, 5, 0));
  IS(INVALID_VALUE, CALL(cuStreamWaitValue32_v2, (void *, devptr, unsigned, unsigned), waits, flag, 5, 9));
  IS(INVALID_VALUE, CALL(cuStreamWriteValue32_v2, (void *, devptr, unsigned, unsigned), waits, 0x1000, 5, 0));
}

/* The default stream and blocking streams wait for each other. A context that ends removes all its work. */
static int fill_words(devptr memory, unsigned value, void *stream) {
  return CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory, value, 4, stream);
}

static int follow(void *stream, void *event) {
  return CALL(cuStreamWaitEvent, (void *, void *, unsigned), stream, event, 0);
}

/* A wait is for the last record before it. Later changes of the event do not affect that wait. */
static void events_recorded_again(void) {
  void *first = make_stream(1), *second = make_stream(1), *third = make_stream(1), *event = make_event(2);
  devptr flag = check_alloc(16), words = check_alloc(16), copy = check_alloc(16);
  OK(fill_words(flag, 0, first));
  OK(fill_words(words, 0, first));
  OK(fill_words(copy, 0, first));
  OK(wait_for(first));
  OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, unsigned, unsigned), first, flag, 1, 0));
  OK(fill_words(words, 5, first));
  OK(CALL(cuEventRecord, (void *, void *), event, first));
  OK(follow(second, event));
  OK(CALL(cuMemcpyDtoDAsync_v2, (devptr, devptr, size_t, void *), copy, words, 16, second));
  OK(CALL(cuEventRecord, (void *, void *), event, second));
  IS(NOT_READY, CALL(cuEventQuery, (void *), event));
  OK(CALL(cuEventRecord, (void *, void *), event, third));
  OK(CALL(cuEventQuery, (void *), event));
  OK(follow(third, event));
  OK(fill_words(check_alloc(16), 7, third));
  OK(wait_for(third));
  IS(NOT_READY, CALL(cuStreamQuery, (void *), second));
  OK(CALL(cuEventDestroy_v2, (void *), event));
  OK(CALL(cuStreamWriteValue32_v2, (void *, devptr, unsigned, unsigned), third, flag, 1, 0));
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(5, read32(copy));
}

/*
 * A stream knows its context. A thread without a current context, or with another one, can queue work in it;
 * the default streams are those of the current context.
 */
static void without_context(void) {
  unsigned words[4] = {1, 2, 3, 4}, back[4] = {0};
  void *own = NULL, *other = NULL, *stream = make_stream(0), *second = make_stream(1), *event = make_event(0);
  devptr memory = check_alloc(sizeof words);
  MUST(CALL(cuCtxPopCurrent_v2, (void **), &own));
  TRUE(own != NULL);
  OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), memory, words, sizeof words, stream));
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory, 7, 1, stream));
  OK(CALL(cuStreamWriteValue32_v2, (void *, devptr, unsigned, unsigned), stream, memory + 4, 8, 0));
  OK(CALL(cuEventRecord, (void *, void *), event, stream));
  OK(CALL(cuStreamWaitEvent, (void *, void *, unsigned), second, event, 0));
  OK(CALL(cuMemcpyDtoDAsync_v2, (devptr, devptr, size_t, void *), memory + 8, memory, 4, second));
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), back, memory, sizeof back, second));
  OK(wait_for(second));
  OK(CALL(cuEventQuery, (void *), event));
  IS(7, back[0]);
  IS(8, back[1]);
  IS(7, back[2]);
  IS(4, back[3]);
  IS(INVALID_CONTEXT, CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory, 7, 1, NULL));
  IS(INVALID_CONTEXT, CALL(cuEventRecord, (void *, void *), event, PER_THREAD));
  IS(INVALID_CONTEXT, CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), memory, words, sizeof words));
  MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &other, 0, 0));
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory, 9, 1, stream));
  OK(CALL(cuEventRecord, (void *, void *), event, stream));
  OK(CALL(cuEventSynchronize, (void *), event));
  OK(CALL(cuCtxDestroy_v2, (void *), other));
  MUST(CALL(cuCtxPushCurrent_v2, (void *), own));
  IS(9, read32(memory));
}

static void default_stream_order(void) {
  void *context = NULL;
  MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, 0));
  devptr flag = check_alloc(64);
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), flag, 0, 16));
  void *blocking = make_stream(0), *free_stream = make_stream(1);
  OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, unsigned, unsigned), blocking, flag, 1, 1));
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), flag + 4, 9, 1, LEGACY));
  OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), flag + 8, "abc", 4, NULL));
  IS(NOT_READY, CALL(cuStreamQuery, (void *), LEGACY));
  IS(0, read32(flag + 4));
  OK(CALL(cuStreamWriteValue32_v2, (void *, devptr, unsigned, unsigned), free_stream, flag, 1, 0));
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(9, read32(flag + 4));
  IS(0x636261, read32(flag + 8));
  OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, unsigned, unsigned), blocking, flag, 2, 1));
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), flag, 3, 1, blocking));
  OK(CALL(cuCtxDestroy_v2, (void *), context));
  IS(INVALID_HANDLE, wait_for(blocking));
  OK(CALL(cuCtxSynchronize, (void), ));
}

static const struct check_case cases[] = {
    {"properties", properties},
    {"attributes", attributes},
    {"events", events},
    {"pinned_reads", pinned_reads},
    {"many_reads", many_reads},
    {"host_functions", host_functions},
    {"events_recorded_again", events_recorded_again},
    {"wait_values", wait_values},
    {"without_context", without_context},
    {"default_stream_order", default_stream_order},
};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
