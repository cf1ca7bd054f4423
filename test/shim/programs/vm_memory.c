/* The data that one session leaves in the memory of its VM, as the next session finds it. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

/*
 * The bytes that this session writes stay as they are, for longer than another process needs to overwrite
 * them.
 */
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

/* A number in a file of sysfs, such as "0x1af4". */
static unsigned long number_in(const char *device, const char *name) {
  char path[512], text[32] = "";
  snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/%s", device, name);
  FILE *file = fopen(path, "r");
  if (file == NULL) return 0;
  unsigned long number = fgets(text, sizeof text, file) == NULL ? 0 : strtoul(text, NULL, 16);
  fclose(file);
  return number;
}

/* Looks through all memory that this machine shares with its host, as root may: for a page of the secret. */
static bool sees_the_secret(void) {
  DIR *devices = opendir("/sys/bus/pci/devices");
  bool seen = false, looked = false;
  for (const struct dirent *entry; devices != NULL && (entry = readdir(devices)) != NULL;) {
    if (number_in(entry->d_name, "vendor") != 0x1af4 || number_in(entry->d_name, "device") != 0x1110)
      continue;
    char path[512];
    struct stat status;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/resource2", entry->d_name);
    int file = open(path, O_RDWR);
    MUST(file < 0 || fstat(file, &status) != 0);
    const size_t size = (size_t)status.st_size;
    const unsigned char *memory = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    MUST(memory == MAP_FAILED);
    for (size_t page = 0; page + 4096 <= size && !seen; page += 4096)
      seen = bytes_of(memory + page, 4096, SECRET) == 4096;
    looked = true;
  }
  MUST(!looked);
  return seen;
}

/* Copies bytes to the device and back. False: that failed. */
static bool trips(void) {
  static unsigned char there[4096], back[4096];
  static unsigned seed;
  check_pattern(there, sizeof there, ++seed);
  devptr device = 0;
  return CALL(cuMemAlloc_v2, (devptr *, size_t), &device, sizeof there) == 0 &&
         CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), device, there, sizeof there) == 0 &&
         CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), back, device, sizeof back) == 0 &&
         CALL(cuMemFree_v2, (devptr), device) == 0 && memcmp(there, back, sizeof back) == 0;
}

static bool comes_back(void) {
  void *context = NULL;
  return CALL(cuInit, (unsigned), 0) == 0 &&
         CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0) == 0 &&
         CALL(cuCtxSetCurrent, (void *), context) == 0;
}

/* Computes without end, reports each round, and begins again if the host was lost. */
static void works_on(void) {
  const struct timespec nap = {.tv_nsec = 100000000};
  for (int tick = 1;; tick++) {
    if (trips()) {
      printf("tick %d\n", tick);
    } else {
      puts("lost");
      while (!comes_back()) nanosleep(&nap, NULL);
      puts("back");
    }
    nanosleep(&nap, NULL);
  }
}

static void searches(void) {
  printf("the secret is %s\n", sees_the_secret() ? "seen" : "not seen");
}

static void has_a_secret(void) {
  memset(pinned(), SECRET, SIZE);
  searches();
  works_on();
}

static const struct check_case cases[] = {{"holds", holds},
                                          {"finds_nothing", finds_nothing},
                                          {"writes_on", writes_on},
                                          {"child_writes_on", child_writes_on},
                                          {"keeps_its_own", keeps_its_own},
                                          {"stays_apart", stays_apart},
                                          {"searches", searches},
                                          {"has_a_secret", has_a_secret},
                                          {"works_on", works_on}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
