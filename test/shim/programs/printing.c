/* The output of kernels appears at this program's own standard output, when the program waits for them. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* Thread 0 prints a line for each number from 0 on; other threads print nothing. */
static const char text[] =
    ".version 6.0\n.target sm_60\n.address_size 64\n"
    ".extern .func (.param .b32 r) vprintf (.param .b64 format, .param .b64 values);\n"
    /* "line %06u", with its end of line */
    ".global .align 1 .b8 line[11] = {108, 105, 110, 101, 32, 37, 48, 54, 117, 10, 0};\n"
    ".visible .entry lines(.param .u32 count) { .local .align 8 .b8 values[8];\n"
    ".reg .b64 %a<5>; .reg .b32 %i, %n, %t; .reg .pred %q;\n"
    "mov.u32 %t, %tid.x; setp.ne.u32 %q, %t, 0; @%q ret;\n"
    "ld.param.u32 %n, [count]; mov.u32 %i, 0; mov.u64 %a1, values; cvta.local.u64 %a2, %a1;\n"
    "mov.u64 %a3, line; cvta.global.u64 %a4, %a3;\n"
    "again: setp.ge.u32 %q, %i, %n; @%q ret; st.local.u32 [values], %i;\n"
    "{ .param .b64 f; st.param.b64 [f], %a4; .param .b64 v; st.param.b64 [v], %a2; .param .b32 r;\n"
    "call.uni (r), vprintf, (f, v); }\n"
    "add.u32 %i, %i, 1; bra again; }\n";

enum { LINE = 12 }; /* bytes of one line: "line 000000\n" */

static int before, file;

/* Redirects the program's standard output to a file. */
static void catch_output(void) {
  fflush(stdout);
  before = dup(STDOUT_FILENO);
  file = memfd_create("output", 0);
  dup2(file, STDOUT_FILENO);
}

/* Returns all output since catch_output, zero-terminated and valid until the next call. */
static const char *output(size_t *size) {
  static char *bytes;
  fflush(stdout);
  dup2(before, STDOUT_FILENO);
  *size = (size_t)lseek(file, 0, SEEK_END);
  free(bytes);
  bytes = calloc(1, *size + 1);
  if (bytes == NULL || pread(file, bytes, *size, 0) != (ssize_t)*size) exit(2);
  return bytes;
}

static void *module;

static void launch(unsigned count) {
  static void *function;
  if (module == NULL) {
    MUST(CALL(cuModuleLoadData, (void **, const void *), &module, text));
    MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "lines"));
  }
  void *parameters[] = {&count};
  MUST(CALL(cuLaunchKernel,
            (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
             void **),
            function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
}

static int wait_for_all(void) {
  return CALL(cuCtxSynchronize, (void), );
}

static void in_order(void) {
  catch_output();
  printf("before, and no end of a line, ");
  launch(2);
  int first = wait_for_all();
  printf("between\n");
  launch(1);
  int second = CALL(cuStreamSynchronize, (void *), NULL);
  printf("after\n");
  size_t size;
  const char *got = output(&size);
  OK(first);
  OK(second);
  TRUE(strcmp(got, "before, and no end of a line, line 000000\nline 000001\nbetween\nline 000000\nafter\n") ==
       0);
  if (check_failures > 0) printf("it printed: %s", got);
}

static void copies(void) {
  devptr memory;
  unsigned value = 5;
  MUST(CALL(cuMemAlloc_v2, (devptr *, size_t), &memory, 64));
  catch_output();
  launch(3);
  int result = CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &value, memory, 4);
  size_t size;
  (void)output(&size);
  OK(result);
  IS(3 * LINE, size);
}

/* A GPU has a ring of 1 MiB, and so has this device: only the newest lines remain. */
static void more_than_fits(void) {
  enum { LINES = 100000, RING = 1 << 20 };
  catch_output();
  launch(LINES);
  int result = wait_for_all();
  size_t size;
  const char *got = output(&size);
  OK(result);
  IS(RING, size);
  TRUE(size >= LINE && strcmp(got + size - LINE, "line 099999\n") == 0);
}

static void nobody_reads(void) {
  fflush(stdout);
  before = dup(STDOUT_FILENO);
  close(STDOUT_FILENO);
  launch(1000);
  int result = wait_for_all();
  int again = wait_for_all();
  fflush(stdout);
  clearerr(stdout);
  dup2(before, STDOUT_FILENO);
  OK(result);
  OK(again);
}

static void never_waits(void) {
  launch(10);
}

static void *wait_in_thread(void *result) {
  void *context = NULL;
  MUST(CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0));
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  *(int *)result = wait_for_all();
  return NULL;
}

/* The child of a fork: a driver, a context and a kernel of its own. */
static void print_as_child(void) {
  alarm(20);
  catch_output();
  module = NULL;
  void *context = NULL;
  MUST(CALL(cuInit, (unsigned), 0));
  MUST(CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0));
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  launch(3);
  MUST(wait_for_all());
  size_t size;
  const char *got = output(&size);
  _exit(size >= 3 * LINE && strcmp(got + size - 3 * LINE, "line 000000\nline 000001\nline 000002\n") == 0
            ? 0
            : 1);
}

/* A thread that prints into a full pipe blocks there until this program reads. */
static void forked(void) {
  int ends[2], held = 0, result = -1, status = -1;
  if (pipe(ends) != 0) exit(2);
  int room = fcntl(ends[1], F_SETPIPE_SZ, 4096);
  fflush(stdout);
  before = dup(STDOUT_FILENO);
  dup2(ends[1], STDOUT_FILENO);
  launch(10000);
  pthread_t thread;
  if (pthread_create(&thread, NULL, wait_in_thread, &result) != 0) exit(2);
  for (int i = 0; i < 2000 && held < room; i++) {
    usleep(5000);
    ioctl(ends[0], FIONREAD, &held);
  }
  pid_t child = fork();
  if (child == 0) print_as_child();
  waitpid(child, &status, 0);
  char piece[4096];
  for (int left = 10000 * LINE; left > 0;) {
    ssize_t got = read(ends[0], piece, sizeof piece);
    if (got <= 0) break;
    left -= (int)got;
  }
  pthread_join(thread, NULL);
  fflush(stdout);
  dup2(before, STDOUT_FILENO);
  IS(room, held);
  OK(status);
  OK(result);
}

static const struct check_case cases[] = {
    {"in_order", in_order},         {"copies", copies},           {"more_than_fits", more_than_fits},
    {"nobody_reads", nobody_reads}, {"never_waits", never_waits}, {"forked", forked}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
