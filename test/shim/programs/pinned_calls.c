/*
 * Pinned memory, which the host may see too. The bytes of each copy must arrive when CUDA promises it, and
 * not before.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "wire/frame.h" /* for the limits that the tested lengths are close to */

#define MIB ((size_t)1 << 20)

static unsigned char *pinned(size_t size) {
  void *memory = NULL;
  MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), &memory, size, 0));
  return memory;
}

static void unpin(void *memory) {
  OK(CALL(cuMemFreeHost, (void *), memory));
}

/* Waits until the host has freed the memory on its separate thread. */
static void until_given_back(void) {
  TRUE(check_free_memory() > 0);
}

static int to(devptr device, const void *bytes, size_t size) {
  return CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), device, bytes, size);
}

static int from(void *bytes, devptr device, size_t size) {
  return CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), bytes, device, size);
}

static int to_async(devptr device, const void *bytes, size_t size, void *stream) {
  return CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), device, bytes, size, stream);
}

static int from_async(void *bytes, devptr device, size_t size, void *stream) {
  return CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), bytes, device, size, stream);
}

static void *make_stream(void) {
  void *stream = NULL;
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
  return stream;
}

/* Compares the device's memory with a pattern, after a copy to plain memory. */
static void expect(devptr device, uint64_t seed, size_t size) {
  unsigned char *got = malloc(size), *wanted = malloc(size);
  check_pattern(wanted, size, seed);
  MUST(from(got, device, size));
  OK(memcmp(got, wanted, size));
  free(got);
  free(wanted);
}

/* Under ThreadSanitizer, on a busy machine, the check of a span takes longer than a call may take. */
#ifdef __SANITIZE_THREAD__
#define ONE_SPAN (8 * MIB)
#else
#define ONE_SPAN ((size_t)VGPU_SPAN_MAX)
#endif

/* Copies of these sizes both ways, between the device and pinned memory and plain memory. */
static void both_ways(const size_t *sizes, size_t count, size_t most) {
  unsigned char *memory = pinned(most), *plain = malloc(most);
  devptr device = check_alloc(most);
  for (size_t i = 0; i < count; i++) {
    size_t size = sizes[i], offset = i * 5 % 64;
    check_pattern(memory + offset, size, i + 1);
    memcpy(plain, memory + offset, size);
    OK(to(device + offset, memory + offset, size));
    memset(memory + offset, 0, size); /* at once: the copy must have the old bytes */
    OK(from(memory, device + offset, size));
    OK(memcmp(memory, plain, size));
    /* Plain memory both ways, and mixed. */
    OK(to(device, plain, size));
    memset(plain, 0, size);
    OK(from(plain, device, size));
    OK(memcmp(memory, plain, size));
  }
  /* Copies beyond the end of either memory are refused. */
  IS(INVALID_VALUE, to(device, memory, most + 1));
  IS(INVALID_VALUE, from(memory, device, most + 1));
  unpin(memory);
  free(plain);
  until_given_back();
}

/* Around the limits of copies in one frame, in several, and in a shared region. */
static void lengths(void) {
  static const size_t sizes[] = {1, 4096, 65535, 65536, 131072, 131073, MIB, MIB + 1, 3 * MIB + 7};
  both_ways(sizes, sizeof sizes / sizeof *sizes, 4 * MIB);
}

/* Only a shared region is copied in spans. This copy has two. */
static void spans(void) {
  both_ways((size_t[]){ONE_SPAN + 1}, 1, ONE_SPAN + 65);
}

/* Asynchronous copies that follow each other through the same pinned memory. */
static void in_order(void) {
  void *stream = make_stream();
  size_t size = 5 * MIB;
  devptr device = check_alloc(2 * size);
  unsigned char *memory = pinned(2 * size);
  for (unsigned round = 1; round <= 8; round++) {
    check_pattern(memory, size, round);
    OK(to_async(device, memory, size, stream));
    OK(CALL(cuMemcpyDtoDAsync_v2, (devptr, devptr, size_t, void *), device + size, device, size, stream));
    OK(from_async(memory + size, device + size, size, stream));
    OK(CALL(cuStreamSynchronize, (void *), stream));
    OK(memcmp(memory, memory + size, size));
    expect(device + size, round, size);
    memset(memory, 0, 2 * size);
  }
  unpin(memory);
  OK(CALL(cuStreamDestroy_v2, (void *), stream));
  until_given_back();
}

static void *write_later(void *argument) {
  devptr flag = *(devptr *)argument;
  void *context = NULL;
  if (CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0) != 0 ||
      CALL(cuCtxSetCurrent, (void *), context) != 0) {
    return NULL;
  }
  usleep(50000);
  int one = 1;
  void *stream = make_stream();
  OK(to_async(flag, &one, sizeof one, stream));
  OK(CALL(cuStreamSynchronize, (void *), stream));
  return NULL;
}

/* A stream that waits: later work waits too, also reads of every kind, and the memory may be freed. */
static void behind_a_wait(void) {
  void *stream = make_stream();
  size_t size = 3 * MIB;
  devptr device = check_alloc(size), flag = check_alloc(4);
  unsigned char *memory = pinned(size), *plain = malloc(size), *wanted = malloc(size);
  check_pattern(wanted, size, 7);
  OK(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), flag, 0, 4));
  OK(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), device, 0, size));
  OK(CALL(cuCtxSynchronize, (void), ));
  memcpy(memory, wanted, size);
  OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, uint32_t, unsigned), stream, flag, 1, 1));
  OK(to_async(device, memory, size, stream));
  pthread_t thread;
  pthread_create(&thread, NULL, write_later, &flag);
  OK(from_async(plain, device, size, stream)); /* plain memory: waits for the stream */
  OK(memcmp(plain, wanted, size));
  unpin(memory);
  pthread_join(thread, NULL);
  expect(device, 7, size);
  free(plain);
  free(wanted);
  until_given_back();
}

/* A long copy to pinned memory returns while its stream waits: a later call of this thread ends the wait. */
static void returns(void) {
  void *stream = make_stream(), *other = make_stream();
  const size_t size = 3 * MIB;
  devptr device = check_alloc(size), flag = check_alloc(4);
  unsigned char *memory = pinned(size), *wanted = check_bytes(size);
  check_pattern(wanted, size, 5);
  OK(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), flag, 0, 4));
  OK(to(device, wanted, size));
  OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, uint32_t, unsigned), stream, flag, 1, 0));
  OK(from_async(memory, device, size, stream));
  IS(NOT_READY, CALL(cuStreamQuery, (void *), stream));
  OK(CALL(cuStreamWriteValue32_v2, (void *, devptr, uint32_t, unsigned), other, flag, 1, 0));
  OK(CALL(cuStreamSynchronize, (void *), stream));
  OK(memcmp(memory, wanted, size));
  unpin(memory);
  until_given_back();
}

/* More allocations than a session may share, of all sizes, made and freed in every order. */
static void many(void) {
  static unsigned char *memory[1500];
  devptr device = check_alloc(70000);
  for (unsigned i = 0; i < 1500; i++) {
    memory[i] = pinned(i % 3 == 0 ? 100 : 65536 + i % 7);
    check_pattern(memory[i], 100, i);
  }
  for (unsigned i = 0; i < 1500; i += 37) {
    OK(to(device, memory[i], 100));
    expect(device, i, 100);
  }
  for (unsigned i = 0; i < 1500; i += 2) unpin(memory[i]);
  for (unsigned i = 0; i < 1500; i += 2) {
    memory[i] = pinned(66000);
    IS(0, memory[i][65999]); /* zero, whichever thread used this memory before */
    memory[i][65999] = 1;
  }
  for (unsigned i = 0; i < 1500; i++) unpin(memory[1499 - i]);
  IS(INVALID_VALUE, CALL(cuMemFreeHost, (void *), memory[0]));
  until_given_back();
}

struct job {
  pthread_t thread;
  unsigned seed;
  int bad;
};

static void *work(void *argument) {
  struct job *job = argument;
  void *context = NULL;
  job->bad = CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0);
  if (job->bad == 0) job->bad = CALL(cuCtxSetCurrent, (void *), context);
  size_t size = 200000 + job->seed * 40000;
  unsigned char *memory = pinned(size), *plain = malloc(size);
  devptr device = check_alloc(size);
  for (unsigned i = 0; i < 6 && job->bad == 0; i++) {
    check_pattern(plain, size, job->seed * 100 + i);
    job->bad = i % 2 == 0 ? to(device, plain, size) : to_async(device, memory, size, (void *)2);
    if (job->bad == 0) job->bad = from(memory, device, size);
    if (job->bad == 0 && i % 2 == 0 && memcmp(memory, plain, size) != 0) job->bad = -1;
    memcpy(memory, plain, size);
    if (job->bad == 0) job->bad = to(device, memory, size);
    memset(plain, 0, size);
    if (job->bad == 0) job->bad = from(plain, device, size);
    if (job->bad == 0 && memcmp(memory, plain, size) != 0) job->bad = -2;
  }
  unpin(memory);
  free(plain);
  if (job->bad == 0) job->bad = CALL(cuMemFree_v2, (devptr), device);
  return NULL;
}

static void threads(void) {
  static struct job jobs[24];
  for (unsigned i = 0; i < 24; i++) {
    jobs[i].seed = i;
    pthread_create(&jobs[i].thread, NULL, work, &jobs[i]);
  }
  for (unsigned i = 0; i < 24; i++) {
    pthread_join(jobs[i].thread, NULL);
    OK(jobs[i].bad);
  }
}

/* A child has no part of its parent's session, which continues while the child makes its own. */
static void forks(void) {
  size_t size = 2 * MIB;
  unsigned char *memory = pinned(size);
  devptr device = check_alloc(size);
  check_pattern(memory, size, 1);
  OK(to(device, memory, size));
  pid_t child = fork();
  if (child == 0) {
    void *context = NULL;
    IS(NOT_INITIALIZED, CALL(cuMemFreeHost, (void *), memory));
    MUST(CALL(cuInit, (unsigned), 0));
    MUST(CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0));
    MUST(CALL(cuCtxSetCurrent, (void *), context));
    devptr own = check_alloc(size);
    unsigned char *other = pinned(size);
    check_pattern(other, size, 2);
    OK(to(own, other, size));
    expect(own, 2, size);
    exit(check_failures);
  }
  for (unsigned i = 0; i < 50; i++) expect(device, 1, size);
  int status = -1;
  waitpid(child, &status, 0);
  OK(status);
  expect(device, 1, size);
  unpin(memory);
}

struct flat_side {
  size_t x, y;
  uint32_t type;
  const void *host;
  devptr device;
  void *array;
  size_t pitch;
};
struct flat_copy {
  struct flat_side source, destination;
  size_t width, height;
};

#define SPAN (4 * MIB)

enum call { FILL_8, FILL_16, FILL_32, FILL_ROWS, COPY_DEVICE, COPY_ANY, COPY_ROWS, CALLS };

static int make_call(enum call call, devptr to, devptr source) {
  static const size_t row = 4096;
  switch (call) {
    case FILL_8:
      return CALL(cuMemsetD8_v2, (devptr, uint8_t, size_t), to, 0x5c, SPAN);
    case FILL_16:
      return CALL(cuMemsetD16_v2, (devptr, uint16_t, size_t), to, 0x5c5c, SPAN / 2);
    case FILL_32:
      return CALL(cuMemsetD32_v2, (devptr, uint32_t, size_t), to, 0x5c5c5c5c, SPAN / 4);
    case FILL_ROWS:
      return CALL(cuMemsetD2D8_v2, (devptr, size_t, uint8_t, size_t, size_t), to, row, 0x5c, row, SPAN / row);
    case COPY_DEVICE:
      return CALL(cuMemcpyDtoD_v2, (devptr, devptr, size_t), to, source, SPAN);
    case COPY_ANY:
      return CALL(cuMemcpy, (devptr, devptr, size_t), to, source, SPAN);
    default: {
      const struct flat_copy copy = {.source = {.type = 2, .device = source, .pitch = row},
                                     .destination = {.type = 2, .device = to, .pitch = row},
                                     .width = row,
                                     .height = SPAN / row};
      return CALL(cuMemcpy2D_v2, (const void *), &copy);
    }
  }
}

/* https://docs.nvidia.com/cuda/cuda-driver-api/api-sync-behavior.html */
static void seen_at_once(void) {
  devptr source = check_alloc(SPAN), managed = 0, places[4] = {0};
  unsigned char *plain = check_bytes(SPAN + 4096);
  unsigned char *page = plain + (4096 - (uintptr_t)plain % 4096);
  void *memory[2] = {NULL};
  for (unsigned i = 0; i < 2; i++) {
    MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), &memory[i], SPAN, i * 2));
    if (CALL(cuMemHostGetDevicePointer_v2, (devptr *, void *, unsigned), &places[i], memory[i], 0) != 0)
      return; /* this transport shares no memory with the host */
  }
  MUST(CALL(cuMemHostRegister_v2, (void *, size_t, unsigned), page, SPAN, 2));
  if (CALL(cuMemHostGetDevicePointer_v2, (devptr *, void *, unsigned), &places[2], page, 0) != 0)
    places[2] = 0;
  MUST(CALL(cuMemAllocManaged, (devptr *, size_t, unsigned), &managed, SPAN, 1));
  places[3] = managed;
  OK(CALL(cuMemsetD8_v2, (devptr, uint8_t, size_t), source, 0x5c, SPAN));
  for (unsigned place = 0; place < 4; place++) {
    volatile unsigned char *bytes = (volatile unsigned char *)(uintptr_t)places[place];
    for (enum call call = FILL_8; bytes != NULL && call < CALLS; call++) {
      memset((void *)(uintptr_t)places[place], 0, SPAN);
      OK(make_call(call, places[place], source));
      if (bytes[0] != 0x5c || bytes[SPAN - 1] != 0x5c) {
        printf("memory %u: call %u returned before it was done\n", place, call);
        check_failures++;
      }
      OK(CALL(cuCtxSynchronize, (void)));
    }
  }
}

/*
 * vLLM asks this of pinned memory at its start (vllm/v1/worker/gpu/buffer_utils.py, csrc/cuda_view.cu):
 * memory that PyTorch has pinned without flags has an address on the device, where a kernel or copy sees what
 * the program writes later, without any further call.
 */
static void viewed(void) {
  unsigned char *memory = NULL, back[64];
  unsigned kind = 0;
  int can_map = -1;
  devptr view = 0, device = check_alloc(sizeof back);
  MUST(CALL(cuDeviceGetAttribute, (int *, int, int), &can_map, 19, 0));
  MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&memory, 4096, 0));
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &kind, 2, (devptr)(uintptr_t)memory));
  IS(1, kind); /* host memory: Tensor.is_pinned() */
  int result = CALL(cuMemHostGetDevicePointer_v2, (devptr *, void *, unsigned), &view, memory, 0);
  IS(can_map != 0 ? 0 : NOT_SUPPORTED, result);
  for (unsigned i = 0; result == 0 && i < 3; i++) {
    memset(memory + 128, (int)i + 1, sizeof back);
    OK(CALL(cuMemcpyDtoDAsync_v2, (devptr, devptr, size_t, void *), device, view + 128, sizeof back, NULL));
    OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), back, device, sizeof back));
    IS(0, memcmp(back, memory + 128, sizeof back));
  }
  OK(CALL(cuMemFreeHost, (void *), memory));
}

int main(int argc, char **argv) {
  static const struct check_case cases[] = {{"lengths", lengths},           {"spans", spans},
                                            {"in_order", in_order},         {"behind_a_wait", behind_a_wait},
                                            {"returns", returns},           {"many", many},
                                            {"threads", threads},           {"forks", forks},
                                            {"seen_at_once", seen_at_once}, {"viewed", viewed}};
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
