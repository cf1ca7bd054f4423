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

#define MOST_WAITS 4096
#define CHANNEL_LAUNCHES 1024

/* A wait that is not over. The library behind waits for `relay`, in device memory, instead. */
struct hardware_wait {
  const uint32_t *word; /* NULL: the place is free */
  uint32_t value, relayed;
  uint64_t relay;
  void *context, *stream; /* of this stand-in, which writes the relay */
};
static struct hardware_wait waits[MOST_WAITS];
static pthread_mutex_t waits_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint waits_now, launches_behind;
static void *mapped[64]; /* memory of cuMemHostAlloc with DEVICEMAP */

static void end_wait(struct hardware_wait *wait) {
  NEXT(int (*)(void *), "cuCtxSetCurrent")(wait->context);
  NEXT(int (*)(void *, uint64_t, uint32_t, unsigned), "cuStreamWriteValue32_v2")
  (wait->stream, wait->relay, wait->relayed, 0);
  wait->word = NULL;
  if (atomic_fetch_sub(&waits_now, 1) == 1) atomic_store(&launches_behind, 0);
}

static void *watch_words(void *nothing) {
  (void)nothing;
  for (;; nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL)) {
    pthread_mutex_lock(&waits_lock);
    for (size_t i = 0; i < MOST_WAITS; i++) {
      struct hardware_wait *wait = &waits[i];
      if (wait->word != NULL && (int32_t)(__atomic_load_n(wait->word, __ATOMIC_ACQUIRE) - wait->value) >= 0)
        end_wait(wait);
    }
    pthread_mutex_unlock(&waits_lock);
  }
  return NULL;
}

/* The caller holds the lock. Each place has a word of device memory. */
static struct hardware_wait *new_wait(void) {
  static uint64_t relays;
  static void *writer;
  static pthread_t watcher;
  void *context = NULL;
  NEXT(int (*)(void **), "cuCtxGetCurrent")(&context);
  if (relays == 0) {
    if (NEXT(int (*)(uint64_t *, size_t), "cuMemAlloc_v2")(&relays, MOST_WAITS * 4) != 0 ||
        NEXT(int (*)(uint64_t, unsigned, size_t), "cuMemsetD32_v2")(relays, 0, MOST_WAITS) != 0 ||
        NEXT(int (*)(void **, unsigned), "cuStreamCreate")(&writer, 1) != 0 ||
        pthread_create(&watcher, NULL, watch_words, NULL) != 0)
      abort();
  }
  size_t i = 0;
  while (waits[i].word != NULL) i++;
  waits[i].relay = relays + i * 4;
  waits[i].relayed++;
  waits[i].context = context;
  waits[i].stream = writer;
  return &waits[i];
}

static bool is_mapped(uint64_t address) {
  for (size_t i = 0; i < sizeof mapped / sizeof *mapped; i++)
    if (mapped[i] != NULL && address - (uint64_t)(uintptr_t)mapped[i] < 65536) return true;
  return false;
}

void await_device(void) {
  while (atomic_load(&waits_now) > 0) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

int cuStreamWaitValue32_v2(void *stream, uint64_t address, uint32_t value, unsigned flags) {
  int (*next)(void *, uint64_t, uint32_t, unsigned) =
      NEXT(int (*)(void *, uint64_t, uint32_t, unsigned), "cuStreamWaitValue32_v2");
  if (word("hardware") == NULL) return next(stream, address, value, flags);
  /* A wait for device memory ends with a write of a stream, which is behind it: it never ends. */
  atomic_fetch_add(&waits_now, 1);
  if (!is_mapped(address)) return next(stream, address, value, flags);
  pthread_mutex_lock(&waits_lock);
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

/* True for host memory that is registered, with `maps`. */
static bool is_of_the_host(uint64_t address) {
  unsigned type = 0;
  const int memory_type = 2, of_host = 1;
  return NEXT(int (*)(void *, int, uint64_t), "cuPointerGetAttribute")(&type, memory_type, address) == 0 &&
         type == of_host;
}

int cuMemsetD32_v2(uint64_t to, unsigned value, size_t count) {
  if (is_of_the_host(to)) await_device();
  return NEXT(int (*)(uint64_t, unsigned, size_t), "cuMemsetD32_v2")(to, value, count);
}

int cuStreamSynchronize(void *stream) {
  await_device();
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
  if (atomic_load(&waits_now) > 0 && atomic_fetch_add(&launches_behind, 1) >= CHANNEL_LAUNCHES)
    await_device();
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
