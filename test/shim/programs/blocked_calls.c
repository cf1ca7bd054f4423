/*
 * A thread of a program waits in a call for work that only another thread of the program can release. The
 * other thread makes a hundred calls before it does. A host that serves no other call meanwhile exceeds the
 * time limit. The waiting call sees all work that was queued before it, and later work does not delay it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define SIZE (3 * MIB) /* of several frames */
#define ASKED 100

enum { BLOCKING = 0, NON_BLOCKING = 1, HOST = 1, DEVICE = 2 };

struct copy2 {
  struct {
    size_t x, y;
    unsigned type;
    const void *host;
    devptr device;
    void *array;
    size_t pitch;
  } from, to;
  size_t width, height;
};

static void *work; /* a stream */
static devptr data, flag;
static unsigned char *seen;
static atomic_bool waits;

static void *make_stream(unsigned flags) {
  void *stream = NULL;
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, flags));
  return stream;
}

static int fill_later(unsigned char value) {
  return CALL(cuMemsetD8Async, (devptr, unsigned char, size_t, void *), data, value, SIZE, work);
}

/* Work that continues when `flag` is 1, and then sets `data` to sevens. */
static void begin_work(void) {
  OK(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), flag, 0, 4));
  OK(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), data, 0, SIZE));
  OK(CALL(cuCtxSynchronize, (void), ));
  OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, uint32_t, unsigned), work, flag, 1, 1));
  OK(fill_later(7));
}

/* The thread that releases the work. */
static void *let_go(void *context) {
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  void *mine = make_stream(NON_BLOCKING);
  while (!atomic_load(&waits)) usleep(1000);
  usleep(20000);
  /* With pauses, so that each call arrives during the other thread's call. */
  for (unsigned i = 0; i < ASKED; i++) {
    usleep(3000);
    TRUE(check_free_memory() > 0);
  }
  OK(CALL(cuStreamWriteValue32_v2, (void *, devptr, uint32_t, unsigned), mine, flag, 1, 0));
  OK(CALL(cuStreamSynchronize, (void *), mine));
  OK(CALL(cuStreamDestroy_v2, (void *), mine));
  return NULL;
}

static void expect(unsigned char value) {
  size_t wrong = 0;
  for (size_t i = 0; i < SIZE; i++) wrong += seen[i] != value;
  IS(0, wrong);
}

/* `call` waits for the work; another thread releases it. */
static void blocked(int (*call)(void), unsigned flags) {
  void *context = NULL;
  pthread_t thread;
  MUST(CALL(cuCtxGetCurrent, (void **), &context));
  work = make_stream(flags);
  data = check_alloc(SIZE);
  flag = check_alloc(4);
  seen = check_bytes(SIZE);
  begin_work();
  pthread_create(&thread, NULL, let_go, context);
  atomic_store(&waits, true);
  OK(call());
  pthread_join(thread, NULL);
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), seen, data, SIZE));
}

static int context_waits(void) {
  return CALL(cuCtxSynchronize, (void), );
}
static int stream_waits(void) {
  return CALL(cuStreamSynchronize, (void *), work);
}
static int event_waits(void) {
  void *event = NULL;
  OK(CALL(cuEventCreate, (void **, unsigned), &event, 0));
  OK(CALL(cuEventRecord, (void *, void *), event, work));
  int result = CALL(cuEventSynchronize, (void *), event);
  OK(CALL(cuEventDestroy_v2, (void *), event));
  return result;
}
/* The default stream waits for blocking streams before it reads. */
static int read_waits(void) {
  int result = CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), seen, data, SIZE);
  expect(7);
  return result;
}
static int stream_read_waits(void) {
  int result = CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), seen, data, SIZE, work);
  expect(7);
  return result;
}
static int rows_wait(void) {
  struct copy2 copy = {.from = {.type = DEVICE, .device = data, .pitch = 4096},
                       .to = {.type = HOST, .host = seen, .pitch = 4096},
                       .width = 4096,
                       .height = SIZE / 4096};
  int result = CALL(cuMemcpy2D_v2, (const void *), &copy);
  expect(7);
  return result;
}
/* These calls do not wait in the program; the work after them waits. */
static int write_waits(void) {
  memset(seen, 9, SIZE);
  int result = CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), data, seen, SIZE);
  memset(seen, 1, SIZE);
  return result != 0 ? result : context_waits();
}
static int stream_write_waits(void) {
  memset(seen, 9, SIZE);
  int result = CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), data, seen, SIZE, work);
  memset(seen, 1, SIZE);
  return result != 0 ? result : stream_waits();
}
static int rows_written_wait(void) {
  memset(seen, 9, SIZE);
  struct copy2 copy = {.from = {.type = HOST, .host = seen, .pitch = 4096},
                       .to = {.type = DEVICE, .device = data, .pitch = 8192},
                       .width = 4096,
                       .height = SIZE / 8192};
  int result = CALL(cuMemcpy2D_v2, (const void *), &copy);
  memset(seen, 1, SIZE);
  return result != 0 ? result : context_waits();
}

static void context_is_waited_for(void) {
  blocked(context_waits, NON_BLOCKING);
  expect(7);
}
static void stream_is_waited_for(void) {
  blocked(stream_waits, NON_BLOCKING);
  expect(7);
}
static void event_is_waited_for(void) {
  blocked(event_waits, BLOCKING);
  expect(7);
}
static void read_is_waited_for(void) {
  blocked(read_waits, BLOCKING);
}
static void stream_read_is_waited_for(void) {
  blocked(stream_read_waits, NON_BLOCKING);
}
static void rows_are_waited_for(void) {
  blocked(rows_wait, BLOCKING);
}
static void written(void) {
  blocked(write_waits, BLOCKING);
  expect(9);
}
static void stream_written(void) {
  blocked(stream_write_waits, NON_BLOCKING);
  expect(9);
}
static void rows_written(void) {
  blocked(rows_written_wait, BLOCKING);
  for (size_t row = 0; row < SIZE / 4096; row++) IS(row % 2 == 0 ? 9 : 7, seen[row * 4096]);
}

static atomic_bool loaded;

static void *allocates(void *context) {
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  while (!atomic_load(&loaded)) {
    OK(CALL(cuMemFree_v2, (devptr), check_alloc(4096)));
    usleep(1000);
  }
  return NULL;
}

/* The driver compiles until another thread has allocated memory (stand_in_driver.c, patient). */
static void code_is_loaded(void) {
  static const char code[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n";
  void *context = NULL, *module = NULL, *function = NULL;
  pthread_t thread;
  MUST(CALL(cuCtxGetCurrent, (void **), &context));
  pthread_create(&thread, NULL, allocates, context);
  OK(CALL(cuModuleLoadData, (void **, const void *), &module, code));
  atomic_store(&loaded, true);
  pthread_join(thread, NULL);
  OK(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "nothing"));
  OK(CALL(cuLaunchKernel,
          (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
           void **),
          function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  OK(CALL(cuCtxSynchronize, (void), ));
  OK(CALL(cuModuleUnload, (void *), module));
}

/*
 * Calls with which the driver frees an object. The driver waits until another thread has allocated memory
 * (stand_in_driver.c).
 */
static void *other; /* a context that does not have the object */

static atomic_bool ended;

static void *gets_memory(void *unused) {
  (void)unused;
  MUST(CALL(cuCtxSetCurrent, (void *), other));
  while (!atomic_load(&ended)) {
    check_alloc(4096);
    usleep(1000);
  }
  return NULL;
}

/*
 * `end` returns while the driver is still at work. The next call of this thread waits for the end of that
 * work.
 */
static void held(void (*end)(void *thing), void *thing, int (*call)(void)) {
  pthread_t thread;
  end(thing);
  pthread_create(&thread, NULL, gets_memory, NULL);
  OK(call());
  atomic_store(&ended, true);
  pthread_join(thread, NULL);
}

static size_t unused;

static int asks_for_room(void) {
  unused = check_free_memory();
  return 0;
}

static void *make_context(void) {
  void *context = NULL;
  MUST(CALL(cuCtxGetCurrent, (void **), &other));
  MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, 0));
  MUST(CALL(cuCtxSetCurrent, (void *), other));
  return context;
}

/* A context begins while another thread allocates memory in an earlier one. */
static void begins(void *earlier, int (*begin)(void)) {
  pthread_t thread;
  other = earlier;
  pthread_create(&thread, NULL, gets_memory, NULL);
  OK(begin());
  atomic_store(&ended, true);
  pthread_join(thread, NULL);
}
static int create_context(void) {
  void *context = NULL;
  return CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, 0);
}
static void context_begins(void) {
  void *primary = NULL;
  MUST(CALL(cuCtxGetCurrent, (void **), &primary));
  check_alloc(4096); /* now the host has it */
  begins(primary, create_context);
  check_alloc(4096);
}
static void *of_device;
static int use_primary(void) {
  OK(CALL(cuCtxSetCurrent, (void *), of_device));
  check_alloc(4096);
  return 0;
}
static void primary_begins(void) {
  void *context = NULL;
  MUST(CALL(cuCtxGetCurrent, (void **), &of_device));
  MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, 0));
  begins(context, use_primary);
}

static void free_it(void *address) {
  OK(CALL(cuMemFree_v2, (devptr), *(devptr *)address));
}
static void unload_it(void *module) {
  OK(CALL(cuModuleUnload, (void *), module));
}
static void destroy_array(void *array) {
  OK(CALL(cuArrayDestroy, (void *), array));
}
static void destroy_context(void *context) {
  OK(CALL(cuCtxDestroy_v2, (void *), context));
}
static void reset_primary(void *nothing) {
  (void)nothing;
  OK(CALL(cuDevicePrimaryCtxReset_v2, (int), 0));
}

/* After the call the memory is free for the thread that freed it. */
static void memory_is_freed(void) {
  MUST(CALL(cuCtxGetCurrent, (void **), &other));
  size_t before = check_free_memory();
  devptr address = check_alloc(64 * MIB);
  held(free_it, &address, asks_for_room);
  TRUE(unused + 63 * MIB >= before);
}
static size_t most;
static int needs_it_again(void) {
  check_alloc(most);
  return 0;
}
static void memory_is_needed_again(void) {
  MUST(CALL(cuCtxGetCurrent, (void **), &other));
  most = check_free_memory() / 4 * 3;
  devptr address = check_alloc(most);
  held(free_it, &address, needs_it_again);
}
static void array_is_destroyed(void) {
  struct {
    size_t width, height;
    int format;
    unsigned channels;
  } of = {1024, 1024, 0x20, 4}; /* floats */
  void *array = NULL;
  MUST(CALL(cuCtxGetCurrent, (void **), &other));
  MUST(CALL(cuArrayCreate_v2, (void **, const void *), &array, &of));
  held(destroy_array, array, context_waits);
}
static void module_is_unloaded(void) {
  static const char code[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n";
  void *module = NULL;
  MUST(CALL(cuCtxGetCurrent, (void **), &other));
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, code));
  held(unload_it, module, context_waits);
}
static void context_is_destroyed(void) {
  void *context = make_context();
  size_t before = check_free_memory();
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  check_alloc(64 * MIB);
  MUST(CALL(cuCtxSetCurrent, (void *), other));
  held(destroy_context, context, asks_for_room);
  TRUE(unused + 63 * MIB >= before);
}
/* The device's primary context begins again, without its former objects. */
static void primary_is_reset(void) {
  void *primary = NULL;
  MUST(CALL(cuCtxGetCurrent, (void **), &primary));
  check_alloc(64 * MIB);
  size_t before = check_free_memory();
  MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &other, 0, 0));
  held(reset_primary, NULL, context_waits);
  MUST(CALL(cuDevicePrimaryCtxRetain, (void **, int), &primary, 0));
  MUST(CALL(cuCtxSetCurrent, (void *), primary));
  devptr again = check_alloc(4096);
  OK(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), again, 7, 4096));
  OK(CALL(cuCtxSynchronize, (void), ));
  TRUE(check_free_memory() >= before + 32 * MIB);
}

/* Frees pinned memory from which a copy was made, so that the driver has registered it. */
static void free_pinned(void *memory) {
  OK(CALL(cuMemFreeHost, (void *), memory));
}
static void pinned_is_given_back(void) {
  MUST(CALL(cuCtxGetCurrent, (void **), &other));
  devptr to = check_alloc(SIZE);
  unsigned char *back = check_bytes(SIZE);
  for (unsigned i = 0; i < 2; i++) {
    void *memory = NULL;
    MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), &memory, SIZE, 0));
    check_pattern(memory, SIZE, i);
    OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), to, memory, SIZE, NULL));
    if (i == 0) held(free_pinned, memory, context_waits);
    else OK(context_waits());
    OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), back, to, SIZE));
    unsigned char *expected = check_bytes(SIZE);
    check_pattern(expected, SIZE, i);
    IS(0, memcmp(expected, back, SIZE));
  }
}

#define GRANULE (2 * MIB)
static devptr reserved;
static void unmap_it(void *nothing) {
  (void)nothing;
  OK(CALL(cuMemUnmap, (devptr, size_t), reserved, 8 * GRANULE));
}
static uint64_t create(size_t size) {
  static const struct {
    int type, handle_types, location_type, location;
    void *win32;
    unsigned char unused[8];
  } properties = {.type = 1, .location_type = 1};
  uint64_t handle = 0;
  MUST(CALL(cuMemCreate, (uint64_t *, size_t, const void *, uint64_t), &handle, size, &properties, 0));
  return handle;
}
static void map_it(size_t size) {
  static const int access[3] = {1, 0, 3}; /* a device, which, reading and writing */
  uint64_t handle = create(size);
  OK(CALL(cuMemMap, (devptr, size_t, size_t, uint64_t, uint64_t), reserved, size, 0, handle, 0));
  OK(CALL(cuMemSetAccess, (devptr, size_t, const void *, size_t), reserved, size, access, 1));
  OK(CALL(cuMemRelease, (uint64_t), handle));
  OK(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), reserved, 7, size));
  OK(context_waits());
}
/* The driver would map the memory at once, although other addresses are still being unmapped. */
static devptr elsewhere;
static uint64_t for_elsewhere;
static int maps_elsewhere(void) {
  OK(CALL(cuMemMap, (devptr, size_t, size_t, uint64_t, uint64_t), elsewhere, GRANULE, 0, for_elsewhere, 0));
  return context_waits();
}
/* The memory counts as the session's until then; other memory can be mapped at its address. */
static void memory_is_unmapped(void) {
  MUST(CALL(cuCtxGetCurrent, (void **), &other));
  MUST(CALL(cuMemAddressReserve, (devptr *, size_t, size_t, devptr, uint64_t), &reserved, 8 * GRANULE, 0, 0,
            0));
  MUST(CALL(cuMemAddressReserve, (devptr *, size_t, size_t, devptr, uint64_t), &elsewhere, GRANULE, 0, 0, 0));
  map_it(8 * GRANULE);
  size_t before = check_free_memory();
  held(unmap_it, NULL, asks_for_room);
  TRUE(unused + GRANULE >= before + 8 * GRANULE);
  map_it(8 * GRANULE);
  atomic_store(&ended, false);
  held(unmap_it, NULL, context_waits);
  map_it(8 * GRANULE);
  for_elsewhere = create(GRANULE);
  atomic_store(&ended, false);
  held(unmap_it, NULL, maps_elsewhere);
  OK(CALL(cuMemAddressFree, (devptr, size_t), reserved, 8 * GRANULE));
  OK(context_waits());
}

static uint64_t kept;
static void trim_it(void *pool) {
  OK(CALL(cuMemPoolTrimTo, (void *, size_t), pool, 0));
}
static void *trimmed;
static int asks_what_is_kept(void) {
  return CALL(cuMemPoolGetAttribute, (void *, int, void *), trimmed, 5, &kept);
}
static void pool_is_trimmed(void) {
  uint64_t everything = UINT64_MAX;
  devptr address = 0;
  MUST(CALL(cuCtxGetCurrent, (void **), &other));
  MUST(CALL(cuDeviceGetDefaultMemPool, (void **, int), &trimmed, 0));
  OK(CALL(cuMemPoolSetAttribute, (void *, int, void *), trimmed, 4, &everything));
  OK(CALL(cuMemAllocAsync, (devptr *, size_t, void *), &address, 64 * MIB, NULL));
  OK(CALL(cuMemFreeAsync, (devptr, void *), address, NULL));
  OK(context_waits());
  OK(asks_what_is_kept());
  TRUE(kept >= 64 * MIB);
  held(trim_it, trimmed, asks_what_is_kept);
  IS(0, kept);
}

/* More than the host queues. */
#define MUCH (96 * MIB)
static devptr large;
static unsigned char *bytes;
static int much_is_written(void) {
  return CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), large, bytes, MUCH);
}
static int much_is_written_to_a_stream(void) {
  return CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), large, bytes, MUCH, work);
}
static void much(int (*call)(void), bool pinned, unsigned flags) {
  large = check_alloc(MUCH);
  if (pinned) MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&bytes, MUCH, 0));
  else bytes = check_bytes(MUCH);
  check_pattern(bytes, MUCH, 3);
  blocked(call, flags);
  unsigned char *back = check_bytes(MUCH);
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), back, large, MUCH));
  IS(0, memcmp(bytes, back, MUCH));
}
static void much_written(void) {
  much(much_is_written, false, BLOCKING);
}
static void much_pinned_written(void) {
  much(much_is_written, true, BLOCKING);
}
static void much_stream_written(void) {
  much(much_is_written_to_a_stream, false, NON_BLOCKING);
}

static const struct check_case cases[] = {{"unpinned", pinned_is_given_back},
                                          {"unmapped", memory_is_unmapped},
                                          {"trimmed", pool_is_trimmed},
                                          {"much", much_written},
                                          {"much_pinned", much_pinned_written},
                                          {"much_stream", much_stream_written},
                                          {"freed", memory_is_freed},
                                          {"needed", memory_is_needed_again},
                                          {"array", array_is_destroyed},
                                          {"module", module_is_unloaded},
                                          {"ended", context_is_destroyed},
                                          {"reset", primary_is_reset},
                                          {"begins", context_begins},
                                          {"primary_begins", primary_begins},
                                          {"load", code_is_loaded},
                                          {"context", context_is_waited_for},
                                          {"stream", stream_is_waited_for},
                                          {"event", event_is_waited_for},
                                          {"read", read_is_waited_for},
                                          {"stream_read", stream_read_is_waited_for},
                                          {"rows", rows_are_waited_for},
                                          {"written", written},
                                          {"stream_written", stream_written},
                                          {"rows_written", rows_written}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
