/*
 * Memory that the program registers and that kernels use in place. Where that is not possible, the calls
 * return an error.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "registered.h"

/* A kernel and the program change the same numbers in turn. The bytes beside them do not change. */
static void in_turn(unsigned char *around, size_t offset, size_t bytes, size_t beside, unsigned flags) {
  static unsigned char was[1 << 20];
  unsigned char *memory = around + offset;
  unsigned *numbers = (unsigned *)memory, told_flags = 99, kind = 0;
  devptr at = 0, told = 0;
  size_t all = offset + bytes + beside, end = bytes - 256;
  check_pattern(around, all, flags + bytes);
  memcpy(was, around, all);
  MUST(attach(memory, bytes, flags));
  MUST(device_pointer(&at, memory));
  TRUE(at == (devptr)(uintptr_t)memory);
  OK(device_pointer(&told, memory + 4));
  TRUE(told == at + 4);
  IS(0, memcmp(was, around, all));
  OK(CALL(cuMemHostGetFlags, (unsigned *, void *), &told_flags, memory));
  IS(flags, told_flags);
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &kind, 2, at));
  IS(1, kind);
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &told, 3, at + 8));
  TRUE(told == at + 8);
  for (unsigned i = 0; i < 64; i++) numbers[i] = i;
  add(at, 7);
  for (unsigned i = 0; i < 64; i++) IS(i + 7, numbers[i]);
  for (unsigned i = 0; i < 64; i++) numbers[i] *= 2;
  add(at, 1);
  add(at + end, 0);
  for (unsigned i = 0; i < 64; i++) IS((i + 7) * 2 + 1, numbers[i]);
  IS(0, memcmp(was, around, offset));
  IS(0, memcmp(was + offset + 256, memory + 256, bytes - 256 + beside));
  copies(memory, bytes);
  IS(ALREADY_REGISTERED, attach(memory + 16, 32, 0));
  OK(detach(memory));
  IS(NOT_REGISTERED, detach(memory));
  for (unsigned i = 0; i < 64; i++) IS((i + 7) * 2 + 1, numbers[i]);
  IS(0, memcmp(was + offset + 256, memory + 256, bytes - 256 + beside));
}

static void turns(void) {
  if (!can()) {
    refused(check_bytes(100000), 100000);
    return;
  }
  unsigned char *whole = pages(64 * PAGE), *heap = malloc(300000), *small = malloc(5000);
  in_turn(whole, 0, 64 * PAGE, 0, DEVICEMAP);
  in_turn(whole, PAGE, PAGE, PAGE, PORTABLE | DEVICEMAP);
  in_turn(whole, 100, 10000, 500, 0); /* it becomes device memory when its address is requested */
  in_turn(heap, 64, 250000, 1000, DEVICEMAP);
  in_turn(small, 128, 1024, 200, DEVICEMAP);
  for (int i = 0; i < 20; i++) in_turn(heap, 64, 4096, 8, 0);
  /* malloc() and free() still work for memory that was registered */
  heap[299999] = 77;
  heap = realloc(heap, 5 << 20);
  IS(77, heap[299999]);
  memset(heap, 1, 5 << 20);
  free(heap);
  free(small);
  /* freed while it is registered, and mapped again when its registration ends */
  MUST(attach(whole, 64 * PAGE, DEVICEMAP));
  munmap(whole, 32 * PAGE);
  unsigned char *other =
      mmap(whole, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  TRUE(other == whole);
  other[0] = 9;
  whole[33 * PAGE] = 8;
  OK(detach(whole));
  IS(9, other[0]);
  IS(8, whole[33 * PAGE]);
}

/* A whole allocation with a mapping of its own, and memory of malloc()'s heap, both grow. */
static void reallocated(void) {
  if (!can()) return;
  for (int registered = 0; registered < 2; registered++) {
    unsigned char *grows = malloc(300000);
    volatile uintptr_t first = (uintptr_t)grows;
    grows[0] = 5;
    MUST(attach(grows, malloc_usable_size(grows), DEVICEMAP));
    if (!registered) OK(detach(grows));
    unsigned char *grown = realloc(grows, 9 << 20);
    memset(grown + 300000, 6, (9 << 20) - 300000);
    IS(5, grown[0]);
    if (registered) OK(detach((void *)first));
    /* not freed: a freed mapping would make malloc() take the next one from its heap */
    check_kept[registered] = grown;
  }
}

/* Rounds stop after a time limit, so that the test ends on a busy machine. */
static bool in_time(unsigned round) {
  static struct timespec begun;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (round == 0) begun = now;
  return round < 5 || now.tv_sec - begun.tv_sec < 3;
}

struct writer {
  uint64_t *word; /* no other thread writes it */
  uint64_t written;
  uint64_t wrong;
  const bool *stop;
};

/* Counts up in memory. A lost write shows as a number that was there before. */
static void *write_always(void *argument) {
  struct writer *writer = argument;
  while (!__atomic_load_n(writer->stop, __ATOMIC_ACQUIRE)) {
    if (__atomic_load_n(writer->word, __ATOMIC_RELAXED) != writer->written) writer->wrong++;
    __atomic_store_n(writer->word, ++writer->written, __ATOMIC_RELAXED);
  }
  return NULL;
}

enum { WRITERS = 3 };
struct writers {
  bool stop;
  pthread_t threads[WRITERS];
  struct writer each[WRITERS];
};

static void start(struct writers *writers, unsigned char *memory, const size_t *offsets) {
  __atomic_store_n(&writers->stop, false, __ATOMIC_RELEASE);
  for (int i = 0; i < WRITERS; i++) {
    writers->each[i] = (struct writer){.word = (uint64_t *)(memory + offsets[i]), .stop = &writers->stop};
    *writers->each[i].word = 0;
    MUST(pthread_create(&writers->threads[i], NULL, write_always, &writers->each[i]));
  }
  /* each must work before the first change */
  for (int i = 0; i < WRITERS; i++) {
    while (__atomic_load_n(writers->each[i].word, __ATOMIC_RELAXED) == 0) usleep(100);
  }
}

static void stop(struct writers *writers) {
  __atomic_store_n(&writers->stop, true, __ATOMIC_RELEASE);
  for (int i = 0; i < WRITERS; i++) {
    pthread_join(writers->threads[i], NULL);
    IS(0, writers->each[i].wrong);
    IS(writers->each[i].written, *writers->each[i].word);
  }
}

/* Before the range in its first page, in its middle, and after it in its last page. */
static const size_t places[WRITERS] = {64, 5 * PAGE + 8, 10 * PAGE - 8};

struct reader {
  uint64_t *word;
  uint64_t failed;
  const bool *stop;
};

/* Reads from a descriptor, so that the kernel writes to the memory. */
static void *read_always(void *argument) {
  struct reader *reader = argument;
  int ends[2];
  MUST(pipe(ends));
  for (uint64_t i = 1; !__atomic_load_n(reader->stop, __ATOMIC_ACQUIRE); i++) {
    if (write(ends[1], &i, sizeof i) != sizeof i || read(ends[0], reader->word, sizeof i) != sizeof i ||
        *reader->word != i) {
      reader->failed++;
    }
  }
  return NULL;
}

/* True if writes by system calls wait, too, which needs a privilege. */
static bool holds_up_the_kernel(void) {
  int descriptor = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
  if (descriptor >= 0) close(descriptor);
  return descriptor >= 0;
}

static void writers_lose_nothing(void) {
  if (!can()) return;
  bool reads = holds_up_the_kernel();
  pthread_t reading;
  unsigned char *memory = pages(10 * PAGE), *range = memory + 1024;
  const size_t bytes = 9 * PAGE;
  struct writers writers;
  unsigned *numbers = (unsigned *)range;
  devptr at = 0;
  start(&writers, memory, places);
  struct reader reader = {.word = (uint64_t *)(memory + 3 * PAGE), .stop = &writers.stop};
  if (reads) MUST(pthread_create(&reading, NULL, read_always, &reader));
  for (unsigned round = 0; round < 400 && check_failures == 0 && in_time(round); round++) {
    MUST(attach(range, bytes, round % 2 != 0 ? DEVICEMAP : 0));
    OK(device_pointer(&at, range));
    if (round % 20 == 0) {
      numbers[5] = round;
      add(at, 3);
      IS(round + 3, numbers[5]);
    }
    OK(detach(range));
  }
  stop(&writers);
  if (reads) pthread_join(reading, NULL);
  IS(0, reader.failed);
}

struct first_writes {
  unsigned char *memory;
  bool begun;
};

enum { FRESH = 2048 };

static void *write_each_page(void *argument) {
  struct first_writes *writes = argument;
  __atomic_store_n(&writes->begun, true, __ATOMIC_RELEASE);
  for (unsigned i = 0; i < FRESH; i++) {
    *(volatile unsigned *)(writes->memory + (size_t)i * PAGE) = i + 1;
    for (volatile int wait = 0; wait < 10000; wait++) {
    } /* so that it takes longer than a registration */
  }
  return NULL;
}

/* Pages that were never used, and whose first write comes during the change. */
static void first_writes(void) {
  if (!can()) return;
  for (unsigned round = 0; round < 15 && check_failures == 0 && in_time(round); round++) {
    struct first_writes writes = {.memory = pages(FRESH * PAGE)};
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, write_each_page, &writes));
    while (!__atomic_load_n(&writes.begun, __ATOMIC_ACQUIRE)) {
    }
    MUST(attach(writes.memory, FRESH * PAGE, DEVICEMAP));
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < FRESH; i++) IS(i + 1, *(unsigned *)(writes.memory + (size_t)i * PAGE));
    OK(detach(writes.memory));
    munmap(writes.memory, FRESH * PAGE);
  }
}

/* A child of fork() sees the bytes at the time of the fork, and its writes are not visible to the parent. */
static void forks(void) {
  if (!can()) return;
  unsigned char *memory = pages(10 * PAGE), *range = memory + 1024;
  unsigned *numbers = (unsigned *)range;
  struct writers writers;
  devptr at = 0;
  MUST(attach(range, 9 * PAGE, DEVICEMAP));
  MUST(device_pointer(&at, range));
  start(&writers, memory, places);
  for (unsigned round = 0; round < 30 && check_failures == 0 && in_time(round); round++) {
    int go[2];
    MUST(pipe(go));
    for (unsigned i = 0; i < 64; i++) numbers[i] = round + i;
    pid_t child = fork();
    if (child == 0) {
      char byte;
      unsigned bad = 0;
      alarm(20);
      (void)!read(go[0], &byte, 1); /* meanwhile the parent and a kernel have written */
      for (unsigned i = 0; i < 64; i++) bad += numbers[i] != round + i;
      memset(memory, 0xee, 10 * PAGE);
      _exit(bad == 0 ? 0 : 1);
    }
    numbers[0] = 1000;
    add(at, 5);
    MUST(write(go[1], "", 1) != 1);
    int status = -1;
    waitpid(child, &status, 0);
    IS(0, status);
    IS(1005, numbers[0]);
    for (unsigned i = 1; i < 64; i++) IS(round + i + 5, numbers[i]);
    close(go[0]);
    close(go[1]);
  }
  stop(&writers);
  OK(detach(range));
}

/* A fork while a kernel writes: writes of neither side are lost. */
enum { MARKS = 2048 };
static const char mark_text[] =
    ".version 6.0\n.target sm_60\n.address_size 64\n"
    /* writes each of 2048 numbers once, and counts to 500 between two of them */
    ".visible .entry mark(.param .u64 at) { .reg .b64 %p; .reg .b32 %i, %w; .reg .pred %q;\n"
    "ld.param.u64 %p, [at]; mov.u32 %i, 0;\n"
    "next: mov.u32 %w, 0; wait: add.u32 %w, %w, 1; setp.lt.u32 %q, %w, 500; @%q bra wait;\n"
    "add.u32 %i, %i, 1; st.volatile.u32 [%p], %i; add.u64 %p, %p, 4;\n"
    "setp.lt.u32 %q, %i, 2048; @%q bra next; ret; }\n";

static void forks_while_a_kernel_writes(void) {
  if (!can()) return;
  unsigned char *memory = pages(10 * PAGE);
  volatile unsigned *marks = (volatile unsigned *)(memory + 6 * PAGE);
  void *module = NULL, *function = NULL;
  struct writers writers;
  devptr at = 0;
  MUST(attach(memory + 1024, 9 * PAGE, DEVICEMAP));
  MUST(device_pointer(&at, memory + 6 * PAGE));
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, mark_text));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "mark"));
  void *parameters[] = {&at};
  start(&writers, memory, places);
  OK(CALL(cuLaunchKernel,
          (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
           void **),
          function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
  unsigned forked = 0;
  (void)in_time(0);
  for (; forked < 3 || (marks[MARKS - 1] == 0 && in_time(forked)); forked++) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    int status = -1;
    waitpid(child, &status, 0);
    IS(0, status);
  }
  OK(CALL(cuCtxSynchronize, (void), ));
  for (unsigned i = 0; i < MARKS; i++) IS(i + 1, marks[i]);
  stop(&writers);
  OK(detach(memory + 1024));
}

/* The registration ends right after a launch: the writes of the kernel must be there. */
static void unregistered_at_once(void) {
  if (!can()) return;
  unsigned *numbers = (unsigned *)pages(PAGE);
  void *module = NULL, *function = NULL;
  static const char late[] =
      ".version 6.0\n.target sm_60\n.address_size 64\n"
      ".visible .entry late(.param .u64 at) { .reg .b64 %p; .reg .b32 %v; .reg .pred %q;\n"
      "ld.param.u64 %p, [at]; mov.u32 %v, 0;\n"
      "again: add.u32 %v, %v, 1; setp.lt.u32 %q, %v, 3000000; @%q bra again; st.u32 [%p], %v; ret; }\n";
  devptr at = 0;
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, late));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "late"));
  MUST(attach(numbers, PAGE, DEVICEMAP));
  MUST(device_pointer(&at, numbers));
  void *parameters[] = {&at};
  OK(CALL(cuLaunchKernel,
          (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
           void **),
          function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
  OK(detach(numbers));
  IS(3000000, numbers[0]);
  OK(CALL(cuCtxSynchronize, (void), ));
}

/* A fork handler that was registered first runs while the memory is private. Its writes must be kept. */
static unsigned *early;
static void write_early(void) {
  if (early != NULL) early[1] += 100;
}

static void written_in_a_fork(void) {
  if (!can()) return;
  MUST(pthread_atfork(write_early, NULL, NULL));
  unsigned *numbers = (unsigned *)pages(PAGE);
  devptr at = 0;
  MUST(attach(numbers, PAGE, DEVICEMAP));
  MUST(device_pointer(&at, numbers));
  numbers[1] = 1;
  early = numbers;
  pid_t child = fork();
  if (child == 0) _exit(numbers[1] == 101 ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  IS(0, status);
  add(at, 1);
  IS(102, numbers[1]);
  OK(detach(numbers));
}

static void other_memory(void) {
  if (!can()) return;
  unsigned char *shared = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  refused(shared, 4 * PAGE);
  FILE *file = tmpfile();
  TRUE(file != NULL && ftruncate(fileno(file), 4 * PAGE) == 0);
  unsigned char *mapped = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
  refused(mapped, 4 * PAGE);
  unsigned char on_stack[512] = {1};
  refused(on_stack, sizeof on_stack);
  static unsigned char variable[3 * PAGE];
  refused(variable, PAGE); /* of the program's file, or just behind it */
  unsigned char *hole = pages(3 * PAGE);
  munmap(hole + PAGE, PAGE);
  devptr at = 0;
  OK(attach(hole, 3 * PAGE, DEVICEMAP));
  IS(NOT_SUPPORTED, device_pointer(&at, hole));
  OK(detach(hole));
}

/* Copies from memory that the device may only read, and a kernel's copy of it. */
static void only_read(unsigned char *memory, bool has_address) {
  unsigned char back[PAGE];
  devptr on_device = check_alloc(PAGE), at = 0;
  OK(attach(memory, 2 * PAGE, READ_ONLY | DEVICEMAP));
  OK(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), on_device, memory, PAGE));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), back, on_device, PAGE));
  IS(0, memcmp(back, memory, PAGE));
  IS(has_address ? 0 : NOT_SUPPORTED, device_pointer(&at, memory + PAGE));
  if (has_address) {
    OK(CALL(cuMemcpyDtoD_v2, (devptr, devptr, size_t), on_device, at, PAGE));
    OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), back, on_device, PAGE));
    IS(0, memcmp(back, memory + PAGE, PAGE));
  }
}

static void read_only(void) {
  int supported = 0;
  unsigned char *memory = pages(4 * PAGE);
  OK(CALL(cuDeviceGetAttribute, (int *, int, int), &supported, 113, 0));
  if (supported == 0) {
    IS(NOT_SUPPORTED, attach(memory, PAGE, READ_ONLY));
    return;
  }
  check_pattern(memory, 4 * PAGE, 7);
  if (!can()) { /* copies from it work */
    refused_as(memory, 4 * PAGE, READ_ONLY | DEVICEMAP);
    return;
  }
  only_read(memory, true);
  /* A region that the device writes cannot have a page of it, but one that the device reads can. */
  devptr at = 0;
  OK(attach(memory + 2 * PAGE, PAGE, READ_ONLY));
  OK(device_pointer(&at, memory + 2 * PAGE));
  OK(detach(memory + 2 * PAGE));
  OK(detach(memory));
  OK(attach(memory + 100, 50, READ_ONLY | DEVICEMAP));
  OK(attach(memory + 200, 50, READ_ONLY | DEVICEMAP));
  OK(attach(memory + 300, 50, DEVICEMAP));
  OK(device_pointer(&at, memory + 200));
  IS(NOT_SUPPORTED, device_pointer(&at, memory + 300));
  OK(detach(memory + 100));
  OK(detach(memory + 200));
  OK(device_pointer(&at, memory + 300)); /* nothing else is in its page now */
  OK(detach(memory + 300));
  FILE *file = tmpfile();
  TRUE(file != NULL && fwrite(memory, PAGE, 2, file) == 2 && fflush(file) == 0);
  only_read(mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, fileno(file), 0), false);
}

static void *register_own_stack(void *unused) {
  (void)unused;
  unsigned char own[64 * PAGE] = {1}; /* its first page is far from the active part of the stack */
  void *context = NULL;
  MUST(CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0));
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  refused(own + 32 * PAGE, 16 * PAGE);
  refused(own, sizeof own);
  return NULL;
}

static void stacks(void) {
  pthread_t thread;
  if (!can()) return;
  MUST(pthread_create(&thread, NULL, register_own_stack, NULL));
  pthread_join(thread, NULL);
}

/* An ordinary user, whose userfaultfd holds back the program's writes but not those of the kernel. */
static void without_rights(void) {
  if (!can()) return;
  if (getuid() == 0) MUST(setgid(65534) != 0 || setuid(65534) != 0);
  unsigned char *memory = pages(16 * PAGE);
  in_turn(memory, 100, 40000, 100, DEVICEMAP);
  writers_lose_nothing();
  forks();
}

static void without_userfaultfd(void) {
  if (!can()) return;
  if (getuid() == 0) MUST(setgid(65534) != 0 || setuid(65534) != 0);
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
  MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
  refused(check_bytes(100000), 100000);
}

/* Memory that another device may write to cannot be replaced. */
static void pinned_elsewhere(void) {
  if (!can()) return;
  struct io_uring_params params = {0};
  int ring = (int)syscall(SYS_io_uring_setup, 4, &params);
  unsigned char *memory = pages(16 * PAGE), *before = pages(PAGE);
  struct iovec buffer = {.iov_base = memory, .iov_len = 4 * PAGE};
  devptr at = 0;
  MUST(attach(before, PAGE, DEVICEMAP));
  if (ring < 0 || syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1) != 0) {
    OK(detach(before));
    return; /* this kernel does not have it */
  }
  refused(memory, 16 * PAGE);
  /* memory that was mapped before stays mapped */
  OK(device_pointer(&at, before));
  ((unsigned *)before)[0] = 1;
  add(at, 1);
  OK(detach(before));
  IS(2, ((unsigned *)before)[0]);
  close(ring);
}

int main(int argc, char **argv) {
  static const struct check_case cases[] = {
      {"turns", turns},
      {"read_only", read_only},
      {"reallocated", reallocated},
      {"first_writes", first_writes},
      {"writers", writers_lose_nothing},
      {"forks", forks},
      {"forks_while_a_kernel_writes", forks_while_a_kernel_writes},
      {"unregistered_at_once", unregistered_at_once},
      {"written_in_a_fork", written_in_a_fork},
      {"other_memory", other_memory},
      {"stacks", stacks},
      {"without_rights", without_rights},
      {"without_userfaultfd", without_userfaultfd},
      {"pinned_elsewhere", pinned_elsewhere},
  };
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
