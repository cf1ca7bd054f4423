/*
 * Computes over a connection that is cut many times. Each call must be carried out once and in order, and
 * each byte must arrive. The environment sets the duration: ROUNDS rounds, and more until the file that UNTIL
 * names exists. A test makes that file after enough cuts, however fast this machine is.
 */
#include <pthread.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 5, MIB = 1 << 20 };

static const char counting[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                               ".visible .entry count(.param .u64 where) {\n"
                               "  .reg .u64 %a; .reg .u32 %r;\n"
                               "  ld.param.u64 %a, [where];\n"
                               "  atom.global.add.u32 %r, [%a], 1;\n"
                               "  ret;\n}\n";

static void *context, *function;

static int rounds(void) {
  const char *text = getenv("ROUNDS");
  return text == NULL ? 20 : atoi(text);
}

/* True if another round follows after `done` rounds. */
static bool goes_on(int done) {
  const char *until = getenv("UNTIL");
  return check_failures == 0 && (done < rounds() || (until != NULL && access(until, F_OK) != 0));
}

static uint32_t next(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

static void load(void) {
  void *module = NULL;
  MUST(CALL(cuCtxGetCurrent, (void **), &context));
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, counting));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "count"));
}

static int launch(devptr counter) {
  void *arguments[] = {&counter};
  return CALL(cuLaunchKernel,
              (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
               void **),
              function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
}

static uint32_t read_word(devptr from) {
  uint32_t value = 0;
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &value, from, sizeof value));
  return value;
}

/* State of one thread. */
struct lane {
  uint32_t seed, launched;
  devptr counter, memory, other;
  unsigned char *sent, *came;
  size_t most;
};

static void begin_lane(struct lane *lane, uint32_t seed, size_t most) {
  *lane = (struct lane){.seed = seed, .most = most, .counter = check_alloc(4)};
  lane->memory = check_alloc(most);
  lane->other = check_alloc(most);
  lane->sent = check_bytes(most);
  lane->came = check_bytes(most);
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), lane->counter, 0, 1));
}

static void copy(struct lane *lane, size_t bytes) {
  check_pattern(lane->sent, bytes, next(&lane->seed));
  MUST(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), lane->memory, lane->sent, bytes));
  unsigned char first = lane->sent[0];
  lane->sent[0] ^= 0xff; /* the program may change it again */
  MUST(CALL(cuMemcpyDtoD_v2, (devptr, devptr, size_t), lane->other, lane->memory, bytes));
  memset(lane->came, 0, bytes);
  MUST(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), lane->came, lane->other, bytes));
  lane->sent[0] = first;
  OK(memcmp(lane->sent, lane->came, bytes));
}

static void count(struct lane *lane, uint32_t launches) {
  for (uint32_t i = 0; i < launches; i++) MUST(launch(lane->counter));
  lane->launched += launches;
}

static void work(struct lane *lane) {
  for (int i = 0; goes_on(i); i++) {
    count(lane, next(&lane->seed) % 400);
    if (i % 3 == 0) copy(lane, 1 + next(&lane->seed) % 9000);
    if (i % 7 == 0) copy(lane, lane->most - next(&lane->seed) % 5000);
    if (i % 2 == 0) IS(lane->launched, read_word(lane->counter));
  }
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(lane->launched, read_word(lane->counter));
}

static void alone(void) {
  struct lane lane;
  load();
  begin_lane(&lane, 7, 3 * MIB);
  work(&lane);
}

static void *work_beside(void *context_of) {
  struct lane *lane = context_of;
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  work(lane);
  return NULL;
}

static void threads(void) {
  struct lane lanes[THREADS];
  pthread_t running[THREADS];
  load();
  for (uint32_t i = 0; i < THREADS; i++) begin_lane(&lanes[i], 100 + i, MIB + MIB / 2);
  for (int i = 0; i < THREADS; i++) MUST(pthread_create(&running[i], NULL, work_beside, &lanes[i]));
  for (int i = 0; i < THREADS; i++) pthread_join(running[i], NULL);
}

/* More calls than the session keeps, so the thread waits for the host now and then. */
static void burst(void) {
  struct lane lane;
  load();
  begin_lane(&lane, 3, MIB);
  for (int i = 0; goes_on(i); i++) count(&lane, 1000);
  IS(lane.launched, read_word(lane.counter));
}

/* Only long copies, in both directions. */
static void copies(void) {
  struct lane lane;
  load();
  begin_lane(&lane, 5, 24 * MIB);
  for (int i = 0; goes_on(i); i++) copy(&lane, lane.most - (size_t)(i % 1000) * 4321);
}

/* Pinned memory that is allocated and freed often: with rings each allocation is a shared region. */
static void pin(struct lane *lane) {
  size_t bytes = 70000 + next(&lane->seed) % 900000;
  unsigned char *sent = NULL, *came = NULL;
  MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&sent, bytes, 0));
  MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&came, bytes, 0));
  check_pattern(sent, bytes, next(&lane->seed));
  memset(came, 0, bytes);
  MUST(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), lane->memory, sent, bytes, NULL));
  MUST(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), came, lane->memory, bytes, NULL));
  MUST(CALL(cuCtxSynchronize, (void), ));
  OK(memcmp(sent, came, bytes));
  OK(CALL(cuMemFreeHost, (void *), sent));
  OK(CALL(cuMemFreeHost, (void *), came));
}

static void *pin_beside(void *context_of) {
  struct lane *lane = context_of;
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  for (int i = 0; goes_on(i); i++) {
    pin(lane);
    count(lane, next(&lane->seed) % 40);
    IS(lane->launched, read_word(lane->counter));
  }
  return NULL;
}

static void pinned(void) {
  struct lane lanes[THREADS];
  pthread_t running[THREADS];
  load();
  for (uint32_t i = 0; i < THREADS; i++) begin_lane(&lanes[i], 200 + i, MIB);
  for (int i = 0; i < THREADS; i++) MUST(pthread_create(&running[i], NULL, pin_beside, &lanes[i]));
  for (int i = 0; i < THREADS; i++) pthread_join(running[i], NULL);
}

/* A thread waits for its stream, and another one releases it. The waiting call is answered once. */
struct blocked {
  void *stream;
  devptr flag;
  uint32_t value;
};

static void *wait_blocked(void *context_of) {
  const struct blocked *blocked = context_of;
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  OK(CALL(cuStreamSynchronize, (void *), blocked->stream));
  IS(blocked->value, read_word(blocked->flag));
  return NULL;
}

static void waiting(void) {
  struct lane lane;
  struct blocked blocked = {.flag = check_alloc(4)};
  void *mine = NULL;
  load();
  begin_lane(&lane, 11, MIB);
  MUST(CALL(cuStreamCreate, (void **, unsigned), &blocked.stream, 1));
  MUST(CALL(cuStreamCreate, (void **, unsigned), &mine, 1));
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), blocked.flag, 0, 1));
  for (int i = 0; goes_on(i); i++) {
    pthread_t thread;
    blocked.value++;
    MUST(CALL(cuStreamWaitValue32_v2, (void *, devptr, uint32_t, unsigned), blocked.stream, blocked.flag,
              blocked.value, 0));
    MUST(pthread_create(&thread, NULL, wait_blocked, &blocked));
    count(&lane, next(&lane.seed) % 40);
    copy(&lane, lane.most - next(&lane.seed) % 5000);
    IS(lane.launched, read_word(lane.counter));
    MUST(CALL(cuStreamWriteValue32_v2, (void *, devptr, uint32_t, unsigned), mine, blocked.flag,
              blocked.value, 0));
    MUST(CALL(cuStreamSynchronize, (void *), mine));
    pthread_join(thread, NULL);
  }
}

/* Prints "there", waits for a line, makes a call and prints its result; repeats this until its input ends. */
static void by_line(void) {
  struct lane lane;
  char line[64];
  load();
  begin_lane(&lane, 9, MIB);
  printf("there 0\n");
  while (fgets(line, sizeof line, stdin) != NULL) {
    int launched = launch(lane.counter), result = CALL(cuCtxSynchronize, (void), );
    lane.launched += launched == 0;
    uint32_t value = result == 0 ? read_word(lane.counter) : 0;
    line[strcspn(line, " \n")] = '\0';
    printf("%s %d %u %u\n", line, result, lane.launched, value);
  }
}

/* The process executes another program, without having ended the session. */
static void becomes_another(void) {
  struct lane lane;
  char line[64];
  load();
  begin_lane(&lane, 9, MIB);
  printf("there 0\n");
  if (fgets(line, sizeof line, stdin) != NULL) execlp("sleep", "sleep", "60", (char *)NULL);
}

static const struct check_case cases[] = {
    {"alone", alone},   {"threads", threads}, {"burst", burst},     {"copies", copies},
    {"pinned", pinned}, {"waiting", waiting}, {"by_line", by_line}, {"becomes_another", becomes_another}};

/* The environment variable CASE can name the case, too, for a program that is driven by lines. */
int main(int argc, char **argv) {
  char *words[] = {argv[0], getenv("CASE"), NULL};
  if (argc < 2 && words[1] != NULL) return check_main(2, words, cases, sizeof cases / sizeof *cases);
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
