/*
 * Events in the life of a process that has loaded the library: unloading it, fork, exit while other threads
 * are inside the library, signals. `guest_life NAME` runs one case.
 */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 70000u
#define THREADS 8u

extern char **environ;

static void *context;
static atomic_uint done, stop;

/* Looked up once, because the program also calls these functions after it has closed the library. */
static int (*set_current)(void *);
static int (*allocate)(devptr *, size_t);
static int (*write_to)(devptr, const void *, size_t);
static int (*read_from)(void *, devptr, size_t);
static int (*give_back)(devptr);

static void open_library(void) {
  check_library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (check_library == NULL) {
    printf("%s\n", dlerror());
    exit(3);
  }
  set_current = (int (*)(void *))check_need("cuCtxSetCurrent");
  allocate = (int (*)(devptr *, size_t))check_need("cuMemAlloc_v2");
  write_to = (int (*)(devptr, const void *, size_t))check_need("cuMemcpyHtoD_v2");
  read_from = (int (*)(void *, devptr, size_t))check_need("cuMemcpyDtoH_v2");
  give_back = (int (*)(devptr))check_need("cuMemFree_v2");
}

static void begin(void) {
  MUST(CALL(cuInit, (unsigned), 0));
  MUST(CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0));
  MUST(CALL(cuCtxSetCurrent, (void *), context));
}

/* Allocates memory, writes it and reads it back. Returns a CUresult, or -1 if bytes differ. */
static int use(uint64_t seed) {
  unsigned char *out = malloc(BYTES), *in = malloc(BYTES);
  devptr address = 0;
  check_pattern(out, BYTES, seed);
  int result = allocate(&address, BYTES);
  if (result == 0) result = write_to(address, out, BYTES);
  if (result == 0) result = read_from(in, address, BYTES);
  if (result == 0) result = give_back(address);
  if (result == 0 && memcmp(in, out, BYTES) != 0) result = -1;
  if (result != 0) printf("use: %d\n", result);
  free(in);
  free(out);
  return result;
}

static void *use_until_stopped(void *seed) {
  intptr_t failures = set_current(context) != 0;
  while (atomic_load(&stop) == 0) {
    failures += use((uintptr_t)seed) != 0;
    atomic_fetch_add(&done, 1);
  }
  return (void *)failures;
}

static void start(pthread_t *threads, void *(*work)(void *), size_t stack) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (stack != 0) OK(pthread_attr_setstacksize(&attributes, stack));
  for (uintptr_t i = 0; i < THREADS; i++) OK(pthread_create(&threads[i], &attributes, work, (void *)i));
  pthread_attr_destroy(&attributes);
}

static void await_uses(unsigned count) {
  unsigned until = atomic_load(&done) + count;
  while (atomic_load(&done) < until) usleep(1000);
}

static void join(const pthread_t *threads) {
  atomic_store(&stop, 1);
  for (unsigned i = 0; i < THREADS; i++) {
    void *failures = NULL;
    pthread_join(threads[i], &failures);
    IS(0, (intptr_t)failures);
  }
}

static void closed_and_opened(void) {
  devptr address;
  unsigned char byte = 0;
  begin();
  MUST(CALL(cuMemAlloc_v2, (devptr *, size_t), &address, 4096));
  MUST(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), address, 0x5a, 4096));
  for (int i = 0; i < 20; i++) {
    OK(dlclose(check_library));
    open_library();
    void *current = NULL;
    OK(CALL(cuCtxGetCurrent, (void **), &current));
    IS(true, current == context);
    OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &byte, address + 4095, 1));
    IS(0x5a, byte);
  }
}

static void closed_while_used(void) {
  pthread_t threads[THREADS];
  begin();
  start(threads, use_until_stopped, 0);
  for (int i = 0; i < 20; i++) {
    void *again = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    OK(dlclose(again));
    await_uses(2);
  }
  void *held = check_library;
  OK(dlclose(held));
  await_uses(40);
  join(threads);
}

/* exit() runs the exit handlers while eight threads are in calls. */
static void left_while_used(void) {
  pthread_t threads[THREADS];
  begin();
  start(threads, use_until_stopped, 0);
  await_uses(40);
  exit(check_failures == 0 ? 0 : 1);
}

static void left_with_work_in_flight(void) {
  static unsigned char bytes[1 << 20];
  devptr address;
  void *stream;
  begin();
  MUST(CALL(cuMemAlloc_v2, (devptr *, size_t), &address, sizeof bytes));
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
  for (int i = 0; i < 200; i++) {
    OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), address, bytes, sizeof bytes,
            stream));
    OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), bytes, address, sizeof bytes, stream));
  }
}

static void *finish_alone(void *unused) {
  (void)unused;
  usleep(20000);
  int failures = set_current(context) != 0;
  for (int i = 0; i < 20; i++) failures += use(77) != 0;
  exit(failures == 0 && check_failures == 0 ? 0 : 1);
}

static void left_by_the_first_thread(void) {
  pthread_t thread;
  begin();
  OK(pthread_create(&thread, NULL, finish_alone, NULL));
  pthread_exit(NULL);
}

static void forked_while_used(void) {
  pthread_t threads[THREADS];
  begin();
  start(threads, use_until_stopped, 0);
  for (int i = 0; i < 12; i++) {
    await_uses(4);
    pid_t child = fork();
    if (child == 0) {
      void *current = NULL;
      int failures = CALL(cuCtxGetCurrent, (void **), &current) != 3; /* NOT_INITIALIZED */
      if (i % 2 == 0) {
        failures += CALL(cuInit, (unsigned), 0) != 0;
        failures += CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0) != 0;
        failures += CALL(cuCtxSetCurrent, (void *), context) != 0;
        failures += use(5) != 0;
      }
      _exit(failures);
    }
    int status = -1;
    IS(child, waitpid(child, &status, 0));
    IS(0, status);
  }
  join(threads);
}

/* A program starts another one as Go and Python do: a child shares all memory until it calls exec. */
static void spawned_while_used(void) {
  pthread_t threads[THREADS];
  char *words[] = {"true", NULL};
  begin();
  start(threads, use_until_stopped, 0);
  for (int i = 0; i < 20; i++) {
    pid_t child;
    int status = -1;
    await_uses(2);
    OK(posix_spawnp(&child, "true", NULL, NULL, words, environ));
    IS(child, waitpid(child, &status, 0));
    IS(0, status);
  }
  join(threads);
}

static atomic_uint signals;

static void count_signal(int number) {
  (void)number;
  atomic_fetch_add(&signals, 1);
}

static void on_signal(int number, int flags) {
  struct sigaction action = {.sa_handler = count_signal, .sa_flags = flags};
  sigemptyset(&action.sa_mask);
  OK(sigaction(number, &action, NULL));
}

/* Without SA_RESTART: each system call of the library may fail with EINTR. */
static void interrupted(void) {
  pthread_t threads[THREADS];
  on_signal(SIGALRM, 0);
  on_signal(SIGUSR1, 0);
  begin();
  struct itimerval often = {.it_interval = {.tv_usec = 500}, .it_value = {.tv_usec = 500}};
  OK(setitimer(ITIMER_REAL, &often, NULL));
  start(threads, use_until_stopped, 0);
  unsigned until = atomic_load(&done) + 400;
  for (unsigned i = 0; atomic_load(&done) < until; i++) {
    pthread_kill(threads[i % THREADS], SIGUSR1);
    usleep(200);
  }
  for (int i = 0; i < 20; i++) OK(use(3));
  join(threads);
  IS(true, atomic_load(&signals) > 100);
}

static void *use_on_own_signal_stack(void *seed) {
  stack_t stack = {.ss_size = 32768, .ss_sp = malloc(32768)}, before;
  OK(sigaltstack(&stack, &before)); /* the sanitizer's own stack, which must be set again */
  void *failures = use_until_stopped(seed);
  OK(sigaltstack(&before, NULL));
  free(stack.ss_sp);
  return failures;
}

/*
 * Threads of the kind that Go's runtime has: small stacks, and frequent signals that run on a separate stack.
 */
static void preempted(void) {
  pthread_t threads[THREADS];
  on_signal(SIGURG, SA_ONSTACK | SA_RESTART);
  begin();
  start(threads, use_on_own_signal_stack, 65536);
  unsigned until = atomic_load(&done) + 400;
  for (unsigned i = 0; atomic_load(&done) < until; i++) {
    pthread_kill(threads[i % THREADS], SIGURG);
    usleep(100);
  }
  join(threads);
}

#define FIRST 3
#define LAST 4096
#define MOST 64

static unsigned open_descriptors(int *numbers) {
  unsigned count = 0;
  for (int number = FIRST; number < LAST && count < MOST; number++) {
    if (fcntl(number, F_GETFD) >= 0) numbers[count++] = number;
  }
  return count;
}

static void low_descriptors_closed(void) {
  begin();
  OK(use(1));
  for (int number = FIRST; number < 256; number++) close(number);
  for (int number = FIRST; number < 256; number++) TRUE(dup2(STDOUT_FILENO, number) == number);
  OK(use(2));
}

/* Each descriptor of the library now is a file of the program, or one end of a pair of sockets. */
static void descriptors_closed(void) {
  static char bytes[70000];
  int numbers[MOST], peers[MOST];
  devptr address;
  begin();
  OK(use(1));
  OK(allocate(&address, sizeof bytes));
  unsigned count = open_descriptors(numbers);
  TRUE(count > 0 && count < MOST);
  for (unsigned i = 0; i < count; i++) close(numbers[i]);
  for (unsigned i = 0; i < count; i++) {
    int pair[2] = {memfd_create("of the program", 0), -1};
    if (i % 2 == 0) {
      OK(write(pair[0], "USER", 4) - 4);
    } else {
      close(pair[0]);
      OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
    }
    peers[i] = pair[1];
    if (pair[0] != numbers[i]) OK(dup2(pair[0], numbers[i]) - numbers[i]);
    if (pair[1] >= 0) peers[i] = fcntl(pair[1], F_DUPFD, LAST - MOST);
  }
  alarm(20);
  int result = 0;
  for (int i = 0; i < 100 && result == 0; i++) result = write_to(address, bytes, sizeof bytes);
  if (result == 0) result = read_from(bytes, address, sizeof bytes);
  IS(SYSTEM_NOT_READY, result);
  IS(SYSTEM_NOT_READY, write_to(address, bytes, sizeof bytes));
  for (unsigned i = 0; i < count; i++) {
    struct stat status = {0};
    char byte;
    OK(fstat(numbers[i], &status));
    if (i % 2 == 0) {
      IS(4, status.st_size);
    } else {
      IS(-1, recv(peers[i], &byte, 1, MSG_DONTWAIT)); /* 0: it was shut down or closed */
      IS(EAGAIN, errno);
    }
  }
}

static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {
    {"closed_and_opened", closed_and_opened},
    {"closed_while_used", closed_while_used},
    {"left_while_used", left_while_used},
    {"left_with_work_in_flight", left_with_work_in_flight},
    {"left_by_the_first_thread", left_by_the_first_thread},
    {"forked_while_used", forked_while_used},
    {"spawned_while_used", spawned_while_used},
    {"low_descriptors_closed", low_descriptors_closed},
    {"descriptors_closed", descriptors_closed},
    {"interrupted", interrupted},
    {"preempted", preempted},
};

int main(int count, char **words) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  open_library();
  for (size_t i = 0; count == 2 && i < sizeof cases / sizeof *cases; i++) {
    if (strcmp(cases[i].name, words[1]) != 0) continue;
    cases[i].run();
    return check_failures == 0 ? 0 : 1;
  }
  return 2;
}
