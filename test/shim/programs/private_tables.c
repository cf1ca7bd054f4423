/*
 * private_tables CASE: tests one property of the private tables over a driver that this file implements.
 * Prints what is wrong on stderr and exits with status 1.
 */
#include "guest/private/core.h"
#include "guest/private/integrity.h"
#include "guest/private/private.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(condition)                                                                                    \
  do {                                                                                                       \
    if (!(condition)) {                                                                                      \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                \
      exit(1);                                                                                               \
    }                                                                                                        \
  } while (0)

/* ---- the driver beneath ---- */

static int ready = VGPU_PRIVATE_SUCCESS;
static _Thread_local void *current;
static int primary_calls;
static char refused_table[32];
static unsigned refused_slot;
static void (*on_destroyed)(void *context);
static atomic_uint generation;
static const struct vgpu_integrity_device gpus[2] = {
    {.uuid = {1, 2, 3}, .pci_domain = 0, .pci_bus = 1, .pci_device = 0},
    {.uuid = {9, 8, 7}, .pci_domain = 2, .pci_bus = 65, .pci_device = 3},
};

int vgpu_private_core_devices(uint32_t *driver_version,
                              struct vgpu_integrity_device devices[VGPU_PRIVATE_MAX_DEVICES],
                              unsigned *count) {
  if (ready != VGPU_PRIVATE_SUCCESS) return ready;
  *driver_version = 13000;
  memcpy(devices, gpus, sizeof gpus);
  *count = 2;
  return VGPU_PRIVATE_SUCCESS;
}

int vgpu_private_core_current(void **context) {
  *context = current;
  return ready;
}

static const void *ended;

bool vgpu_private_core_active(const void *context) {
  return context != ended;
}

int vgpu_private_core_number(void *context, uint64_t *number) {
  if (context == NULL) return VGPU_PRIVATE_INVALID_CONTEXT;
  *number = 1234;
  return ready;
}

int vgpu_private_core_primary(int device, void **context) {
  primary_calls++;
  if (device != 0) return 101;
  *context = &primary_calls;
  return VGPU_PRIVATE_SUCCESS;
}

void vgpu_private_core_on_destroyed(void (*destroyed)(void *context)) {
  on_destroyed = destroyed;
}

unsigned vgpu_private_core_generation(void) {
  return generation;
}

int vgpu_private_core_load(void **module, const void *image) {
  *module = (void *)(uintptr_t)image;
  return VGPU_PRIVATE_SUCCESS;
}

int vgpu_private_core_transport(struct vgpu_transport_word *word, size_t size) {
  (void)word;
  (void)size;
  return 0;
}

void vgpu_private_core_refused(const char *table, unsigned slot) {
  snprintf(refused_table, sizeof refused_table, "%s", table);
  refused_slot = slot;
}

int vgpu_private_core_stream(void *stream, uint64_t *number) {
  *number = (uintptr_t)stream * 10;
  return stream == (void *)0xbad ? VGPU_PRIVATE_INVALID_HANDLE : VGPU_PRIVATE_SUCCESS;
}

uint64_t vgpu_private_core_functions(void *module, vgpu_private_function *take, void *user) {
  for (uint64_t i = 1; i <= 3; i++) take(user, (void *)(uintptr_t)i, (uint64_t)(uintptr_t)module);
  return 3;
}

static unsigned char unknown_table[16];

void vgpu_private_core_unknown(const unsigned char uuid[16]) {
  memcpy(unknown_table, uuid, sizeof unknown_table);
}

/* ---- access, as the runtime does it ---- */

static const void *const *table_of(const char *hex) {
  unsigned char uuid[16];
  const void *table = &table;

  for (int i = 0; i < 16; i++) {
    unsigned value;
    EXPECT(sscanf(hex + 2 * i, "%2x", &value) == 1);
    uuid[i] = (unsigned char)value;
  }
  int result = vgpu_private_table(&table, uuid);
  EXPECT((result == VGPU_PRIVATE_SUCCESS) == (table != NULL));
  EXPECT(result == VGPU_PRIVATE_SUCCESS || result == VGPU_PRIVATE_INVALID_VALUE);
  return table;
}

#define CUDART "6bd5fb6c5bf4e74a8987d93912fd9df9"
#define HOOKS "a094798c2e742e7493f20800200c0a66"
#define CONTEXT "21318c60971432488ca641ff7324c8f2"
#define MODULES "6e163fbeb958444d835ce182aff1991e"
#define TLS "42d85a8123f6cb478298f6e78a3aecdc"
#define STORAGE "c693336e1121df11a8c368f355d89593"
#define CHECKS "263e88607cd2614392f6bbd5006dfa7e"
#define INTEGRITY "d4082055bde6704b8d34ba123c66e1f2"
#define TRANSPORT "5e0c1b7a924d4f36a1083de67720c94b" /* our own */

static void sizes(void) {
  static const struct {
    const char *id;
    size_t slots;
    int empty; /* a slot that is empty in the real table too, or -1 */
  } sized[] = {{CUDART, 13, 10},  {HOOKS, 7, -1},  {TLS, 3, -1},       {CONTEXT, 86, -1},
               {MODULES, 92, -1}, {CHECKS, 5, -1}, {INTEGRITY, 3, -1}, {TRANSPORT, 2, -1}};

  for (size_t i = 0; i < sizeof sized / sizeof *sized; i++) {
    const void *const *table = table_of(sized[i].id);
    EXPECT(table != NULL);
    EXPECT((size_t)table[0] == sized[i].slots * sizeof(void *));
    for (size_t slot = 1; slot < sized[i].slots; slot++)
      EXPECT((table[slot] == NULL) == ((int)slot == sized[i].empty));
  }
  EXPECT(table_of(STORAGE) != NULL);
  EXPECT(table_of("f8cff95121468b4eb9e2fb469e7c0dd9") == NULL);
  EXPECT(vgpu_private_table(NULL, (const unsigned char *)"0123456789abcdef") == 1);
  const void *table = &table;
  EXPECT(vgpu_private_table(&table, NULL) == 1 && table == NULL);
}

/* cublasLt 13.1 calls into 1734dc26... even if the table is unknown. */
static void unknown_ids(void) {
  const void *const *first = table_of("1734dc26800d47458726c0f1e7dd8bca");
  EXPECT(first != NULL && unknown_table[0] == 0x17 && unknown_table[15] == 0xca);
  EXPECT(table_of("da9151d33ae6cc41a5c04f26d533e328") == first);
  EXPECT(unknown_table[0] == 0xda);
  size_t slots = (size_t)first[0] / sizeof(void *);
  EXPECT(slots == 128);
  for (unsigned slot = 1; slot < slots; slot++) {
    int (*call)(void);
    *(const void **)(void *)&call = first[slot];
    EXPECT(call() == VGPU_PRIVATE_NOT_SUPPORTED);
    EXPECT(refused_slot == slot && strcmp(refused_table, "unknown") == 0);
  }
}

static void take_function(void *user, void *function, uint64_t owner) {
  EXPECT(owner == 0x77);
  *(uintptr_t *)user += (uintptr_t)function;
}

/* Requests the functions of a loaded module like cuFFT. */
static void module_functions(void) {
  const void *const *table = table_of(MODULES);
  uint64_t (*iterate)(void *, void *, vgpu_private_function *, void *);
  *(const void **)(void *)&iterate = table[7];
  uintptr_t sum = 0;
  EXPECT(iterate(NULL, (void *)0x77, take_function, &sum) == 3 && sum == 6);
  EXPECT(iterate(NULL, (void *)0x77, NULL, NULL) == 0);
}

/* Finds the workspace of a stream like cublasHgemm of 13.1. */
static void streams(void) {
  const void *const *table = table_of(CONTEXT);
  int (*inner)(void *, void *, void **, int), (*number)(void *, void *, uint64_t *);
  *(const void **)(void *)&inner = table[51];
  *(const void **)(void *)&number = table[39];
  void *found = NULL;
  uint64_t id = 0;
  EXPECT(inner(NULL, (void *)0x77, &found, 0) == 0 && found == (void *)0x77);
  EXPECT(number(NULL, found, &id) == 0 && id == 0x77 * 10);
  EXPECT(inner(NULL, NULL, &found, 0) == 0 && found == (void *)1);
  EXPECT(inner(NULL, NULL, &found, 1) == 0 && found == (void *)2);
  EXPECT(inner(NULL, (void *)0xbad, &found, 0) == VGPU_PRIVATE_INVALID_HANDLE && found == (void *)2);
  EXPECT(inner(NULL, NULL, NULL, 0) == 1 && number(NULL, found, NULL) == 1);
}

static void runtime_slots(void) {
  const void *const *cudart = table_of(CUDART);
  void *context = NULL, *module = NULL;

  EXPECT(((int (*)(void **, int))cudart[2])(&context, 0) == 0 && context == &primary_calls);
  EXPECT(((int (*)(void **, int))cudart[2])(NULL, 0) == 1);
  EXPECT(((int (*)(void **, int))cudart[2])(&context, 7) == 101);
  EXPECT(primary_calls == 2);
  EXPECT(((int (*)(void **, const void *))cudart[1])(&module, "x") == 0 && module != NULL);
  EXPECT(((int (*)(void **, const void *))cudart[1])(&module, NULL) == 1);
  EXPECT(((int (*)(void **, const void *, void *, void *, unsigned))cudart[6])(&module, "x", NULL, NULL, 0) ==
         0);
  EXPECT(((int (*)(void **, const void *, void *, void *, unsigned))cudart[6])(&module, "x", &module, NULL,
                                                                               0) == 801);
  EXPECT(((int (*)(void))cudart[12])() == 0);
  EXPECT(((int (*)(void))cudart[9])() == 801 && refused_slot == 9 && !strcmp(refused_table, "cudart"));

  const void *const *hooks = table_of(HOOKS);
  const void *const *tls = table_of(TLS);
  const void *const *checks = table_of(CHECKS);
  static const struct {
    int slot;
    size_t size;
  } buffers[] = {{2, 1024}, {6, 14}}; /* sizes that the real 535 and 550 report */
  for (int i = 0; i < 2; i++) {
    void *buffer = NULL;
    size_t size = 0;
    ((void (*)(void **, size_t *))hooks[buffers[i].slot])(&buffer, &size);
    EXPECT(size == buffers[i].size);
    memset(buffer, 0, size * sizeof(uint64_t)); /* room for a word per unit, whatever the unit is */
  }
  void *thread_context = NULL;
  EXPECT(((int (*)(void **))tls[2])(&thread_context) == 0 && thread_context == current);
  EXPECT(((int (*)(void **))tls[2])(NULL) == 1);
  const void *const *numbers = table_of(CONTEXT);
  uint64_t context_id = 0;
  EXPECT(((int (*)(void *, uint64_t *))numbers[4])(&context_id, &context_id) == 0 && context_id == 1234);
  EXPECT(((int (*)(void *, uint64_t *))numbers[4])(&context_id, NULL) == 1);
  EXPECT(((int (*)(void *, uint64_t *))numbers[4])(NULL, &context_id) == 201);
  EXPECT(((int (*)(void))numbers[1])() == 801 && ((int (*)(void))numbers[85])() == 801);
  EXPECT(((int (*)(void))tls[1])() == 801);
  uint32_t flags = 7;
  const void *detail = &flags;
  EXPECT(((int (*)(void *, uint32_t *, const void **))checks[2])(context, &flags, &detail) == 0);
  EXPECT(flags == 0 && detail == &flags);
  EXPECT(((uint32_t(*)(void))checks[3])() == 0);
}

static void integrity(void) {
  const void *const *table = table_of(INTEGRITY);
  int (*check)(uint32_t, uint64_t, uint8_t *) = (int (*)(uint32_t, uint64_t, uint8_t *))table[1];
  struct vgpu_integrity_question question = {
      .driver_version = 13000,
      .runtime_version = 13003,
      .process = (uint32_t)getpid(),
      .thread = (uint32_t)(uintptr_t)pthread_self(),
      .cudart_table = (uintptr_t)table_of(CUDART),
      .integrity_table = (uintptr_t)table,
      .function = (uintptr_t)table[1],
      .seconds = 1234567890123,
  };
  uint8_t got[16] = {0}, wanted[16];

  vgpu_integrity_answer(&question, gpus, 2, wanted);
  EXPECT(check(13003, 1234567890123, got) == 0);
  EXPECT(memcmp(got, wanted, sizeof got) == 0);
  EXPECT(check(13003, 1234567890124, got) == 0);
  EXPECT(memcmp(got, wanted, sizeof got) != 0);
  EXPECT(check(13003, 1, NULL) == 1);
  ready = 3; /* before cuInit */
  EXPECT(check(13003, 1234567890123, got) == 3);
}

/* ---- local storage ---- */

typedef int (*put_function)(void *, void *, void *, void (*)(void *, void *, void *));
typedef int (*delete_function)(void *, void *);
typedef int (*get_function)(void **, void *, void *);
static put_function put;
static delete_function delete;
static get_function get;
static int destroyed;
static void *last_context, *last_key, *last_value;

static void find_storage(void) {
  const void *const *table = table_of(STORAGE);

  put = (put_function)table[0];
  delete = (delete_function)table[1];
  get = (get_function)table[2];
}

static void destructor(void *context, void *key, void *value) {
  destroyed++;
  last_context = context;
  last_key = key;
  last_value = value;
  /*
   * The runtime may look the value up again while it cleans up. No lock may be held, and the value must be
   * gone.
   */
  void *again;
  EXPECT(get(&again, context, key) == VGPU_PRIVATE_INVALID_HANDLE);
}

static void storage(void) {
  int a, b, key, other, one, two;
  void *value = NULL;

  find_storage();
  EXPECT(get(&value, &a, &key) == VGPU_PRIVATE_INVALID_HANDLE);
  EXPECT(put(&a, &key, &one, destructor) == 0);
  EXPECT(put(&b, &key, &two, destructor) == 0);
  EXPECT(put(&a, &other, &two, NULL) == 0);
  EXPECT(get(&value, &a, &key) == 0 && value == &one);
  EXPECT(get(&value, &a, &key) == 0 && value == &one);
  EXPECT(get(&value, &b, &key) == 0 && value == &two);
  EXPECT(put(&a, &key, &two, destructor) == 0); /* a second put replaces, also what a thread remembers */
  EXPECT(get(&value, &a, &key) == 0 && value == &two);
  EXPECT(get(NULL, &a, &key) == 1);

  current = NULL;
  EXPECT(get(&value, NULL, &key) == VGPU_PRIVATE_INVALID_CONTEXT);
  current = &b;
  EXPECT(put(NULL, &other, &one, NULL) == 0);
  EXPECT(get(&value, &b, &other) == 0 && value == &one);
  EXPECT(delete (NULL, &other) == 0);
  EXPECT(get(&value, NULL, &other) == VGPU_PRIVATE_INVALID_HANDLE);
  EXPECT(delete (NULL, &other) == 0);

  on_destroyed(&a);
  EXPECT(destroyed == 1 && last_context == &a && last_key == &key && last_value == &two);
  ended = &a;
  EXPECT(get(&value, &a, &key) == VGPU_PRIVATE_INVALID_CONTEXT);
  ended = NULL;
  EXPECT(get(&value, &a, &key) == VGPU_PRIVATE_INVALID_HANDLE);
  EXPECT(get(&value, &a, &other) == VGPU_PRIVATE_INVALID_HANDLE);
  EXPECT(get(&value, &b, &key) == 0 && value == &two);
  EXPECT(delete (&b, &key) == 0); /* deleted: its destructor does not run */
  on_destroyed(&b);
  EXPECT(destroyed == 1);
}

enum { THREADS = 8, ROUNDS = 20000 };
static char contexts[4];

static void *hammer(void *argument) {
  char key; /* of this thread alone */
  uintptr_t number = (uintptr_t)argument;

  for (uintptr_t round = 1; round <= ROUNDS; round++) {
    void *context = &contexts[(number + round) % sizeof contexts];
    void *mine = (void *)(number << 32 | round), *value = NULL;
    EXPECT(put(context, &key, mine, NULL) == 0);
    EXPECT(get(&value, context, &key) == 0 && value == mine);
    if (round % 3 == 0) {
      EXPECT(delete (context, &key) == 0);
      EXPECT(get(&value, context, &key) == VGPU_PRIVATE_INVALID_HANDLE);
    }
  }
  for (size_t i = 0; i < sizeof contexts; i++) EXPECT(delete (&contexts[i], &key) == 0);
  return NULL;
}

static void threads(void) {
  pthread_t all[THREADS];

  find_storage();
  for (uintptr_t i = 0; i < THREADS; i++) EXPECT(pthread_create(&all[i], NULL, hammer, (void *)(i + 1)) == 0);
  for (int i = 0; i < THREADS; i++) EXPECT(pthread_join(all[i], NULL) == 0);
}

/* fork() while another thread is in a call, many times: the child must neither hang nor see old values. */
static atomic_bool stop;

static void *churn(void *argument) {
  int key;

  while (!stop) {
    put(argument, &key, &key, NULL);
    delete (argument, &key);
  }
  return NULL;
}

static void forks(void) {
  pthread_t thread;
  int key, status;
  void *value;

  find_storage();
  EXPECT(put(&contexts[0], &key, &key, NULL) == 0);
  EXPECT(pthread_create(&thread, NULL, churn, &contexts[1]) == 0);
  for (int i = 0; i < 200; i++) {
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (pid == 0) {
      alarm(10);
      generation++;
      EXPECT(get(&value, &contexts[0], &key) == VGPU_PRIVATE_INVALID_HANDLE);
      EXPECT(put(&contexts[0], &key, &status, NULL) == 0);
      EXPECT(get(&value, &contexts[0], &key) == 0 && value == &status);
      _exit(0);
    }
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
  }
  stop = true;
  EXPECT(pthread_join(thread, NULL) == 0);
  EXPECT(get(&value, &contexts[0], &key) == 0 && value == &key);
}

static void pages(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[512];

  EXPECT(maps != NULL);
  table_of(CUDART);
  while (fgets(line, sizeof line, maps)) EXPECT(strstr(line, " rwx") == NULL && strstr(line, " -wx") == NULL);
  fclose(maps);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {{"sizes", sizes},     {"unknown", unknown_ids},   {"functions", module_functions},
               {"streams", streams}, {"runtime", runtime_slots}, {"integrity", integrity},
               {"storage", storage}, {"threads", threads},       {"forks", forks},
               {"pages", pages}};

  for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++) {
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      return 0;
    }
  }
  fprintf(stderr, "usage: private_tables CASE\n");
  return 2;
}
