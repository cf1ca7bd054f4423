/* What one session leaves in the memory of its VM, and what the next one finds there. */
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { SIZE = 1 << 20, HALF = SIZE / 2, SECRET = 0x5a, OWN = 0x11 };

static unsigned char *pinned(void) {
  void *memory = NULL;
  MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), &memory, SIZE, 0));
  return memory;
}

static size_t bytes_of(const unsigned char *memory, size_t size, unsigned char value) {
  size_t first = 0;
  while (first < size && memory[first] == value) first++;
  return first;
}

/* Waits until it is killed, with a secret in pinned memory. */
static void holds(void) {
  memset(pinned(), SECRET, SIZE);
  puts("holds");
  for (;;) pause();
}

static void finds_nothing(void) {
  IS(SIZE, bytes_of(pinned(), SIZE, 0));
}

static volatile sig_atomic_t asked;

static void ask(int signal) {
  (void)signal;
  asked = 1;
}

/* A program that has not noticed that its session is gone: writes into the first half of its pinned memory
 * until SIGTERM, and then says what became of the second. */
static void write_on(unsigned char *memory) {
  const struct timespec nap = {.tv_nsec = 1000000};
  signal(SIGTERM, ask);
  printf("writes %d\n", (int)getpid());
  while (!asked) {
    memset(memory, SECRET, HALF);
    nanosleep(&nap, NULL);
  }
  puts(bytes_of(memory + HALF, HALF, SECRET) == HALF ? "kept" : "changed");
}

static void writes_on(void) {
  unsigned char *memory = pinned();
  memset(memory, SECRET, SIZE);
  write_on(memory);
}

/* The same by a child whose parent ends at once, and that has closed all that it inherited but its output. */
static void child_writes_on(void) {
  unsigned char *memory = pinned();
  memset(memory, SECRET, SIZE);
  if (fork() != 0) _exit(0);
  syscall(SYS_close_range, 3, ~0u, 0);
  write_on(memory);
}

/* What this session writes stays what it is for as long as somebody else could need to spoil it. */
static void keeps_its_own(void) {
  unsigned char *memory = pinned();
  const struct timespec nap = {.tv_nsec = 2000000};
  memset(memory, OWN, SIZE);
  for (int round = 0; round < 100; round++) {
    nanosleep(&nap, NULL);
    size_t own = bytes_of(memory, SIZE, OWN);
    IS(SIZE, own);
    if (own != SIZE) return;
  }
}

/* The last two at once, by the kernel of one machine: a child of an ended parent writes on beside this
 * session. */
static void stays_apart(void) {
  int ends[2];
  MUST(pipe(ends));
  pid_t parent = fork();
  if (parent == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execl("/proc/self/exe", "vm_memory", "child_writes_on", (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  FILE *said = fdopen(ends[0], "r");
  int child = 0, status = 0;
  char what[16] = "";
  if (said == NULL || fscanf(said, "writes %d", &child) != 1 || child <= 0) MUST(1);
  waitpid(parent, &status, 0);
  keeps_its_own();
  kill(child, SIGTERM);
  IS(1, fscanf(said, "%15s", what));
  printf("the child's memory was %s\n", what);
  IS(0, strcmp(what, "kept"));
  fclose(said);
}

static const struct check_case cases[] = {{"holds", holds},
                                          {"finds_nothing", finds_nothing},
                                          {"writes_on", writes_on},
                                          {"child_writes_on", child_writes_on},
                                          {"keeps_its_own", keeps_its_own},
                                          {"stays_apart", stays_apart}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
