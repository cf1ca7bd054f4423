/*
 * The stand-in driver's `hardware` (stand_in_driver.c): a channel that all streams share, waits for words of
 * mapped host memory, code that is loaded at its first use, and local memory that grows.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "stand_in.h"

EXPORT int cuStreamWaitValue32_v2(void *stream, uint64_t address, uint32_t value, unsigned flags);
EXPORT int cuStreamWriteValue32_v2(void *stream, uint64_t address, uint32_t value, unsigned flags);
EXPORT int cuMemHostGetDevicePointer_v2(uint64_t *address, void *memory, unsigned flags);
EXPORT int cuModuleGetFunction(void **function, void *module, const char *name);
EXPORT int cuFuncLoad(void *function);
EXPORT int cuModuleGetGlobal_v2(uint64_t *address, size_t *bytes, void *module, const char *name);
EXPORT int cuLibraryGetGlobal(uint64_t *address, size_t *bytes, void *library, const char *name);
EXPORT int cuLibraryGetModule(void **module, void *library);
EXPORT int cuCtxSetLimit(int limit, size_t value);
EXPORT int cuMemsetD32_v2(uint64_t to, unsigned value, size_t count);
EXPORT int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared, void *stream,
                          void **parameters, void **extra);
EXPORT int cuLaunchKernelEx(const void *config, void *function, void **parameters, void **extra);
EXPORT int cuStreamWaitEvent(void *stream, void *event, unsigned flags);

#define MOST_WAITS 4096
#define CHANNEL_COMMANDS 1024

/* A wait that is not over. The library behind waits for `relay`, in device memory, instead. */
struct hardware_wait {
  const uint32_t *word; /* NULL: the place is free */
  uint32_t value, relayed;
  uint64_t relay;
  void *context;
};
static struct hardware_wait waits[MOST_WAITS];
static pthread_mutex_t waits_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint waits_now, commands_behind;
static void *mapped[64]; /* memory of cuMemHostAlloc with DEVICEMAP */

/* Copies that the channel makes when no stream waits any more. Guarded by waits_lock. */
static struct {
  uint64_t device;
  unsigned char *host;
  size_t bytes;
  bool to_device;
} copies[MOST_WAITS];
static size_t copies_count;
static void *writer, *writer_context; /* a stream of this stand-in */

static const uint32_t no_word = 0; /* the word of a stream that waits for such a copy */

static void make_copies(void) {
  NEXT(int (*)(void *), "cuCtxSetCurrent")(writer_context);
  for (size_t i = 0; i < copies_count; i++) {
    if (copies[i].to_device) NEXT(int (*)(uint64_t, const void *, size_t, void *), "cuMemcpyHtoDAsync_v2")
    (copies[i].device, copies[i].host, copies[i].bytes, writer);
    else NEXT(int (*)(void *, uint64_t, size_t, void *),
              "cuMemcpyDtoHAsync_v2")(copies[i].host, copies[i].device, copies[i].bytes, writer);
  }
  NEXT(int (*)(void *), "cuStreamSynchronize")(writer);
  copies_count = 0;
}

static void end_wait(struct hardware_wait *wait) {
  NEXT(int (*)(void *), "cuCtxSetCurrent")(wait->context);
  NEXT(int (*)(void *, uint64_t, uint32_t, unsigned), "cuStreamWriteValue32_v2")
  (writer, wait->relay, wait->relayed, 0);
  wait->word = NULL;
}

static void end_last_wait(struct hardware_wait *wait) {
  make_copies();
  end_wait(wait);
  for (size_t i = 0; i < MOST_WAITS; i++)
    if (waits[i].word == &no_word) end_wait(&waits[i]);
  atomic_store(&commands_behind, 0);
  atomic_store(&waits_now, 0);
}

static void *watch_words(void *nothing) {
  (void)nothing;
  for (;; nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL)) {
    pthread_mutex_lock(&waits_lock);
    for (size_t i = 0; i < MOST_WAITS; i++) {
      struct hardware_wait *wait = &waits[i];
      if (wait->word == NULL || wait->word == &no_word ||
          (int32_t)(__atomic_load_n(wait->word, __ATOMIC_ACQUIRE) - wait->value) < 0)
        continue;
      if (atomic_load(&waits_now) == 1) end_last_wait(wait);
      else {
        end_wait(wait);
        atomic_fetch_sub(&waits_now, 1);
      }
    }
    pthread_mutex_unlock(&waits_lock);
  }
  return NULL;
}

/* The caller holds the lock. Each place has a word of device memory. */
static struct hardware_wait *new_wait(void) {
  static uint64_t relays;
  static pthread_t watcher;
  void *context = NULL;
  NEXT(int (*)(void **), "cuCtxGetCurrent")(&context);
  if (relays == 0) {
    if (NEXT(int (*)(uint64_t *, size_t), "cuMemAlloc_v2")(&relays, MOST_WAITS * 4) != 0 ||
        NEXT(int (*)(uint64_t, unsigned, size_t), "cuMemsetD32_v2")(relays, 0, MOST_WAITS) != 0 ||
        NEXT(int (*)(void **, unsigned), "cuStreamCreate")(&writer, 1) != 0 ||
        pthread_create(&watcher, NULL, watch_words, NULL) != 0)
      abort();
    writer_context = context;
  }
  size_t i = 0;
  while (waits[i].word != NULL) i++;
  waits[i].relay = relays + i * 4;
  waits[i].relayed++;
  waits[i].context = context;
  return &waits[i];
}

/* True for pinned memory. */
static bool is_of_the_host(uint64_t address) {
  unsigned type = 0;
  const int memory_type = 2, of_host = 1;
  return NEXT(int (*)(void *, int, uint64_t), "cuPointerGetAttribute")(&type, memory_type, address) == 0 &&
         type == of_host;
}

static void add_copy(uint64_t device, void *host, size_t bytes, bool to_device) {
  if (copies_count == MOST_WAITS) abort();
  copies[copies_count].device = device;
  copies[copies_count].host = host;
  copies[copies_count].bytes = bytes;
  copies[copies_count++].to_device = to_device;
}

void copy_after_waits(uint64_t to, const void *from, size_t bytes) {
  pthread_mutex_lock(&waits_lock);
  add_copy(to, (void *)(uintptr_t)from, bytes, true);
  pthread_mutex_unlock(&waits_lock);
}

bool copies_behind(uint64_t device, const void *host, size_t bytes, bool to_device, void *stream) {
  if (word("hardware") == NULL || !is_of_the_host((uint64_t)(uintptr_t)host)) return false;
  pthread_mutex_lock(&waits_lock);
  const bool held = atomic_load(&waits_now) > 0;
  if (held) {
    add_copy(device, (void *)(uintptr_t)host, bytes, to_device);
    struct hardware_wait *wait = new_wait();
    wait->word = &no_word;
    NEXT(int (*)(void *, uint64_t, uint32_t, unsigned), "cuStreamWaitValue32_v2")
    (stream, wait->relay, wait->relayed, 0);
  }
  pthread_mutex_unlock(&waits_lock);
  return held;
}

static bool is_mapped(uint64_t address) {
  for (size_t i = 0; i < sizeof mapped / sizeof *mapped; i++)
    if (mapped[i] != NULL && address - (uint64_t)(uintptr_t)mapped[i] < 65536) return true;
  return false;
}

bool device_waits(void) {
  return atomic_load(&waits_now) > 0;
}

void await_device(void) {
  while (atomic_load(&waits_now) > 0) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

void take_command(void) {
  if (atomic_load(&waits_now) > 0 && atomic_fetch_add(&commands_behind, 1) >= CHANNEL_COMMANDS)
    await_device();
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  static atomic_int calls;
  const char *most = word("unordered");
  if (most != NULL && device_waits() && atomic_fetch_add(&calls, 1) < atoi(most)) return 999;
  return NEXT(int (*)(void *, void *, unsigned), "cuStreamWaitEvent")(stream, event, flags);
}

int cuStreamWaitValue32_v2(void *stream, uint64_t address, uint32_t value, unsigned flags) {
  int (*next)(void *, uint64_t, uint32_t, unsigned) =
      NEXT(int (*)(void *, uint64_t, uint32_t, unsigned), "cuStreamWaitValue32_v2");
  if (word("hardware") == NULL) return next(stream, address, value, flags);
  /* A wait for device memory ends with a write of a stream, which is behind it: it never ends. */
  pthread_mutex_lock(&waits_lock);
  atomic_fetch_add(&waits_now, 1);
  if (!is_mapped(address)) {
    pthread_mutex_unlock(&waits_lock);
    return next(stream, address, value, flags);
  }
  struct hardware_wait *wait = new_wait();
  wait->word = (const uint32_t *)(uintptr_t)address;
  wait->value = value;
  int result = next(stream, wait->relay, wait->relayed, 0);
  pthread_mutex_unlock(&waits_lock);
  return result;
}

int cuStreamWriteValue32_v2(void *stream, uint64_t address, uint32_t value, unsigned flags) {
  if (word("hardware") != NULL && atomic_load(&waits_now) > 0) return 0;
  return NEXT(int (*)(void *, uint64_t, uint32_t, unsigned), "cuStreamWriteValue32_v2")(stream, address,
                                                                                        value, flags);
}

int cuMemHostGetDevicePointer_v2(uint64_t *address, void *memory, unsigned flags) {
  *address = (uint64_t)(uintptr_t)memory;
  if (is_mapped(*address)) return 0;
  return NEXT(int (*)(uint64_t *, void *, unsigned), "cuMemHostGetDevicePointer_v2")(address, memory, flags);
}

bool maps_itself(void **memory, size_t bytes, unsigned flags) {
  enum { DEVICEMAP = 2 };
  if (word("hardware") == NULL || (flags & DEVICEMAP) == 0 || bytes > 65536) return false;
  size_t i = 0;
  while (mapped[i] != NULL) i++;
  *memory = mapped[i] = calloc(1, 65536);
  return true;
}

bool unmaps_itself(const void *memory) {
  for (size_t i = 0; i < sizeof mapped / sizeof *mapped; i++) {
    if (mapped[i] != memory) continue;
    mapped[i] = NULL; /* and stays: a wait may still read it */
    return true;
  }
  return false;
}

/* Functions whose code is loaded. */
static void *loaded[256];
static atomic_uint loaded_count;

static void load(void *function) {
  const unsigned count = atomic_load(&loaded_count);
  for (unsigned i = 0; i < count && i < sizeof loaded / sizeof *loaded; i++)
    if (loaded[i] == function) return;
  await_device();
  loaded[atomic_fetch_add(&loaded_count, 1) % (sizeof loaded / sizeof *loaded)] = function;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
  await_device();
  int result = NEXT(int (*)(void **, void *, const char *), "cuModuleGetFunction")(function, module, name);
  if (result == 0) load(*function);
  return result;
}

int cuFuncLoad(void *function) {
  load(function);
  return NEXT(int (*)(void *), "cuFuncLoad")(function);
}

int cuModuleGetGlobal_v2(uint64_t *address, size_t *bytes, void *module, const char *name) {
  await_device();
  return NEXT(int (*)(uint64_t *, size_t *, void *, const char *), "cuModuleGetGlobal_v2")(address, bytes,
                                                                                           module, name);
}

int cuLibraryGetGlobal(uint64_t *address, size_t *bytes, void *library, const char *name) {
  await_device();
  return NEXT(int (*)(uint64_t *, size_t *, void *, const char *), "cuLibraryGetGlobal")(address, bytes,
                                                                                         library, name);
}

int cuLibraryGetModule(void **module, void *library) {
  await_device();
  return NEXT(int (*)(void **, void *), "cuLibraryGetModule")(module, library);
}

static atomic_int *local_memory(void);

int cuCtxSetLimit(int limit, size_t value) {
  enum { STACK_SIZE = 0 };
  if (limit == STACK_SIZE) await_device();
  if (limit == STACK_SIZE) atomic_store(local_memory(), (int)value);
  return NEXT(int (*)(int, size_t), "cuCtxSetLimit")(limit, value);
}

void await_copy(const void *from, size_t bytes) {
  const size_t always_taken = 64 << 10;
  if (bytes > always_taken && !is_of_the_host((uint64_t)(uintptr_t)from)) await_device();
}

int cuMemsetD32_v2(uint64_t to, unsigned value, size_t count) {
  if (is_of_the_host(to)) await_device();
  return NEXT(int (*)(uint64_t, unsigned, size_t), "cuMemsetD32_v2")(to, value, count);
}

int cuStreamSynchronize(void *stream) {
  await_device();
  release_pools();
  return NEXT(int (*)(void *), "cuStreamSynchronize")(stream);
}

/* Bytes of local memory that each thread of a context has. */
static atomic_int *local_memory(void) {
  static atomic_int all[1024];
  unsigned long long id = 0;
  NEXT(int (*)(void *, unsigned long long *), "cuCtxGetId")(NULL, &id);
  atomic_int *bytes = &all[id % (sizeof all / sizeof *all)];
  int fresh = 0;
  atomic_compare_exchange_strong(bytes, &fresh, 1024);
  return bytes;
}

static void grow_local_memory(int bytes) {
  atomic_int *most = local_memory();
  if (bytes <= atomic_load(most)) return;
  await_device();
  atomic_store(most, bytes);
}

static void take_place(void *function) {
  say("kernel launched");
  load(function);
  const int local_bytes = 3; /* CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES */
  int bytes = 0;
  NEXT(int (*)(int *, int, void *), "cuFuncGetAttribute")(&bytes, local_bytes, function);
  grow_local_memory(bytes);
  take_command();
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters,
                   void **extra) {
  take_place(function);
  return NEXT(int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                      void **, void **),
              "cuLaunchKernel")(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
                                parameters, extra);
}

int cuLaunchKernelEx(const void *config, void *function, void **parameters, void **extra) {
  take_place(function);
  return NEXT(int (*)(const void *, void *, void **, void **), "cuLaunchKernelEx")(config, function,
                                                                                   parameters, extra);
}
