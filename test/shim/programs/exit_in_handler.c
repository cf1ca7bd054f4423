/*
 * exit() in a signal handler, in the middle of a call: the exit handlers call the library again, in the same
 * thread, and the process ends. `exit_in_handler NAME` runs one case: children that repeat a call get SIGTERM
 * after a random time. In the case "leaves" a handler leaves a call by longjmp. In the case "cancelled"
 * threads are cancelled in the middle of a call, and other threads go on.
 */
#include "check.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 10
#define BYTES (4u << 20)
#define PATIENCE_MS 15000
#define STATUS 3
#define OUTSIDE 0       /* the signal came between two calls */
#define INSIDE 4        /* CUDA_ERROR_DEINITIALIZED */
#define NVML_INSIDE 999 /* NVML_ERROR_UNKNOWN */

/* Looked up once, because the loader is not under test. */
static struct {
  int (*set)(devptr, unsigned char, size_t, void *);
  int (*to_device)(devptr, const void *, size_t, void *);
  int (*from_device)(void *, devptr, size_t);
  int (*allocate)(devptr *, size_t);
  int (*give_back)(devptr);
  int (*record)(void *, void *);
  int (*query)(void *);
  int (*synchronize)(void);
  int (*synchronize_stream)(void *);
  int (*destroy_stream)(void *);
  int (*release)(int);
  int (*memory_info)(void *, void *);
  int (*shut_down)(void);
} call;

static devptr memory;
static void *context, *stream, *event, *device;
static unsigned char *bytes;

static void expect(int result, int inside) {
  if (result == OUTSIDE || result == inside) return;
  printf("a call in an exit handler returned %d\n", result);
  fflush(stdout);
  _exit(1);
}

static void clean_up(void) {
  expect(call.synchronize_stream(stream), INSIDE);
  expect(call.give_back(memory), INSIDE);
  expect(call.destroy_stream(stream), INSIDE);
  expect(call.synchronize(), INSIDE);
  expect(call.release(0), INSIDE);
}

static void clean_up_nvml(void) {
  uint64_t total_free_used[3];
  expect(call.memory_info(device, total_free_used), NVML_INSIDE);
  expect(call.shut_down(), NVML_INSIDE);
}

static void end(int number) {
  (void)number;
  exit(STATUS);
}

static void begin(void) {
  check_library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (check_library == NULL) exit(1);
  *(void **)&call.set = check_need("cuMemsetD8Async");
  *(void **)&call.to_device = check_need("cuMemcpyHtoDAsync_v2");
  *(void **)&call.from_device = check_need("cuMemcpyDtoH_v2");
  *(void **)&call.allocate = check_need("cuMemAlloc_v2");
  *(void **)&call.give_back = check_need("cuMemFree_v2");
  *(void **)&call.record = check_need("cuEventRecord");
  *(void **)&call.query = check_need("cuEventQuery");
  *(void **)&call.synchronize = check_need("cuCtxSynchronize");
  *(void **)&call.synchronize_stream = check_need("cuStreamSynchronize");
  *(void **)&call.destroy_stream = check_need("cuStreamDestroy_v2");
  *(void **)&call.release = check_need("cuDevicePrimaryCtxRelease_v2");
  MUST(CALL(cuInit, (unsigned), 0));
  MUST(CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0));
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  MUST(call.allocate(&memory, BYTES));
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, 0));
  MUST(CALL(cuEventCreate, (void **, unsigned), &event, 0));
  bytes = malloc(BYTES);
  memset(bytes, 1, BYTES);
  atexit(clean_up);
}

static void begin_nvml(void) {
  check_library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (check_library == NULL) exit(1);
  *(void **)&call.memory_info = check_need("nvmlDeviceGetMemoryInfo");
  *(void **)&call.shut_down = check_need("nvmlShutdown");
  MUST(CALL(nvmlInit_v2, (void)));
  MUST(CALL(nvmlDeviceGetHandleByIndex_v2, (unsigned, void **), 0, &device));
  atexit(clean_up_nvml);
}

static void wait_for_work(void) {
  MUST(call.set(memory, 1, BYTES, stream));
  MUST(call.synchronize_stream(stream));
}

static void copy(void) {
  MUST(call.to_device(memory, bytes, BYTES, stream));
  MUST(call.from_device(bytes, memory, BYTES));
}

static void allocate(void) {
  devptr more;
  MUST(call.allocate(&more, 4096));
  MUST(call.give_back(more));
}

static void send_only(void) {
  MUST(call.set(memory, 1, 64, stream));
}

static void ask(void) {
  MUST(call.record(event, stream));
  int result = call.query(event);
  if (result != NOT_READY) MUST(result);
}

static void ask_nvml(void) {
  uint64_t total_free_used[3];
  MUST(call.memory_info(device, total_free_used));
}

struct looped {
  const char *name;
  void (*begin)(void);
  void (*call)(void);
};

static void child(const struct looped *one, int ready) {
  one->begin();
  signal(SIGTERM, end);
  if (write(ready, "", 1) != 1) _exit(1);
  for (;;) one->call();
}

/* True if the child ends by itself, with the status of its signal handler. */
static bool ends(pid_t pid) {
  int status = 0;
  for (int waited = 0; waited < PATIENCE_MS; waited++) {
    if (waitpid(pid, &status, WNOHANG) == pid) return WIFEXITED(status) && WEXITSTATUS(status) == STATUS;
    usleep(1000);
  }
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  printf("it did not end\n");
  return false;
}

static int run(const struct looped *one) {
  srand(1);
  for (int i = 0; i < CHILDREN; i++) {
    int ready[2];
    char byte;
    if (pipe(ready) != 0) return 1;
    pid_t pid = fork();
    if (pid == 0) child(one, ready[1]);
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) return 1;
    close(ready[0]);
    usleep((useconds_t)(rand() % 3000));
    kill(pid, SIGTERM);
    if (!ends(pid)) return 1;
  }
  return 0;
}

static sigjmp_buf outside;

static void jump(int number) {
  (void)number;
  siglongjmp(outside, 1);
}

/* After a handler has left a call, later calls are refused, and the log reports that. */
static int leave(void) {
  char log[] = "/tmp/vgpu-left-XXXXXX", text[1024] = "";
  int file = mkstemp(log);
  volatile bool left = false;
  if (file < 0 || setenv("VGPU_LOG", log, 1) != 0) return 1;
  begin();
  signal(SIGALRM, jump);
  for (volatile int tries = 0; tries < 200 && !left; tries++) {
    if (sigsetjmp(outside, 1) == 0) {
      setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 2000}, NULL);
      for (;;) wait_for_work();
    }
    left = call.synchronize() == INSIDE; /* else the signal came between two calls */
  }
  bool told = pread(file, text, sizeof text - 1, 0) > 0 && strstr(text, "left a call by longjmp") != NULL;
  unlink(log);
  if (!left || !told) printf("left: %d, log: %s\n", left, text);
  return left && told && call.synchronize() == INSIDE ? 0 : 1;
}

static void *repeat(void *of) {
  void (*one)(void) = *(void (**)(void))of;
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  for (;;) {
    one();
    pthread_testcancel();
  }
}

/* A call is finished before its thread ends, so no lock and no request of the thread is left behind. */
static int cancelled(void) {
  void (*calls[])(void) = {wait_for_work, ask, allocate};
  begin();
  srand(1);
  alarm(PATIENCE_MS / 1000);
  for (int i = 0; i < 60; i++) {
    pthread_t thread;
    void *end;
    if (pthread_create(&thread, NULL, repeat, &calls[i % 3]) != 0) return 1;
    usleep((useconds_t)(rand() % 3000));
    pthread_cancel(thread);
    wait_for_work(); /* beside the thread that ends */
    pthread_join(thread, &end);
    if (end != PTHREAD_CANCELED) return 1;
    allocate();
    ask();
  }
  return 0;
}

int main(int argc, char **argv) {
  static const struct looped all[] = {
      {"waits", begin, wait_for_work}, {"copies", begin, copy}, {"allocates", begin, allocate},
      {"sends", begin, send_only},     {"asks", begin, ask},    {"asks_nvml", begin_nvml, ask_nvml},
  };
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc == 2 && strcmp(argv[1], "leaves") == 0) return leave();
  if (argc == 2 && strcmp(argv[1], "cancelled") == 0) return cancelled();
  for (size_t i = 0; argc == 2 && i < sizeof all / sizeof all[0]; i++) {
    if (strcmp(all[i].name, argv[1]) == 0) return run(&all[i]);
  }
  fprintf(stderr, "usage: exit_in_handler CASE\n");
  return 2;
}
