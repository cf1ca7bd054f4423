/* Memory pools and the stream-ordered allocator. */
#include "check.h"
#include "public_structures.h"

#define MIB (1ull << 20)

enum { REUSE = 1, THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7, USED_HIGH = 8 };
enum { PEER_ACCESS_UNSUPPORTED = 217 };

static const struct pool_properties plain = {.type = 1, .location_type = 1};

static void *make_stream(void) {
  void *stream = NULL;
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
  return stream;
}

static int allocate(devptr *address, size_t bytes, void *stream) {
  return CALL(cuMemAllocAsync, (devptr *, size_t, void *), address, bytes, stream);
}

static int free_on(devptr address, void *stream) {
  return CALL(cuMemFreeAsync, (devptr, void *), address, stream);
}

static void *default_pool(void) {
  void *pool = NULL;
  MUST(CALL(cuDeviceGetDefaultMemPool, (void **, int), &pool, 0));
  return pool;
}

static uint64_t value_of(void *pool, int attribute) {
  uint64_t value = UINT64_MAX;
  OK(CALL(cuMemPoolGetAttribute, (void *, int, void *), pool, attribute, &value));
  return value;
}

static int set_value(void *pool, int attribute, uint64_t value) {
  return CALL(cuMemPoolSetAttribute, (void *, int, void *), pool, attribute, &value);
}

static void wait_for(void *stream) {
  OK(CALL(cuStreamSynchronize, (void *), stream));
}

static void allocates(void) {
  int supported = 0, handle_types = -1;
  OK(CALL(cuDeviceGetAttribute, (int *, int, int), &supported, 115, 0));
  OK(CALL(cuDeviceGetAttribute, (int *, int, int), &handle_types, 119, 0));
  IS(1, supported);
  TRUE(handle_types == 0 || handle_types == 1);
  void *stream = make_stream();
  size_t before = check_free_memory();
  devptr first = 0, second = 0;
  OK(allocate(&first, 3 * MIB, stream));
  OK(allocate(&second, MIB, NULL));
  TRUE(first != 0 && second != 0);
  TRUE(first + 3 * MIB <= second || second + MIB <= first);
  IS(before - 4 * MIB, check_free_memory());
  IS(4 * MIB, value_of(default_pool(), USED));

  unsigned char *sent = check_bytes(3 * MIB), *back = check_bytes(3 * MIB);
  check_pattern(sent, 3 * MIB, 7);
  OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), first, sent, 3 * MIB, stream));
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), back, first, 3 * MIB, stream));
  OK(free_on(first, stream));
  wait_for(stream);
  IS(0, memcmp(sent, back, 3 * MIB));
  IS(MIB, value_of(default_pool(), USED));

  /* The attributes of a pointer into a pool. */
  void *pool = NULL, *context = (void *)1;
  unsigned kind = 0;
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &pool, 17, second));
  TRUE(pool == default_pool());
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &context, 1, second));
  TRUE(context == NULL);
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &kind, 2, second));
  IS(2, kind);
  OK(CALL(cuMemFree_v2, (devptr), second)); /* the other way to free it */
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(before, check_free_memory());

  devptr other = check_alloc(MIB); /* and the other way round */
  OK(free_on(other, stream));
  wait_for(stream);
  IS(before, check_free_memory());

  /* The per-thread variants are found by name, as by a program that was built for them. */
  int (*per_thread)(devptr *, size_t, void *) = NULL;
  OK(CALL(cuGetProcAddress_v2, (const char *, void *, int, uint64_t, int *), "cuMemAllocAsync", &per_thread,
          12000, 2, NULL));
  TRUE(per_thread == (int (*)(devptr *, size_t, void *))check_need("cuMemAllocAsync_ptsz"));
  OK(per_thread(&other, MIB, NULL));
  OK(CALL(cuMemFreeAsync_ptsz, (devptr, void *), other, NULL));
}

static void waits(void) {
  void *held = make_stream(), *writer = make_stream();
  devptr flag = check_alloc(4096), memory = 0;
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), flag, 0, 1024));
  OK(CALL(cuCtxSynchronize, (void), ));
  void *pool = default_pool();
  OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, unsigned, unsigned), held, flag, 5, 0));
  OK(allocate(&memory, MIB, held)); /* returned at once, although its stream waits */
  OK(CALL(cuMemsetD8Async, (devptr, unsigned char, size_t, void *), memory, 1, MIB, held));
  OK(free_on(memory, held));
  IS(NOT_READY, CALL(cuStreamQuery, (void *), held));
  IS(MIB, value_of(pool, USED));
  IS(INVALID_VALUE, free_on(memory, writer)); /* for the program it is freed */
  OK(CALL(cuStreamWriteValue32_v2, (void *, devptr, unsigned, unsigned), writer, flag, 5, 0));
  wait_for(writer);
  wait_for(held);
  IS(0, value_of(pool, USED));
}

static void thresholds(void) {
  void *stream = make_stream(), *pool = default_pool();
  devptr memory[4] = {0};
  size_t before = check_free_memory();
  IS(0, value_of(pool, THRESHOLD));
  OK(set_value(pool, THRESHOLD, 5 * MIB));
  IS(5 * MIB, value_of(pool, THRESHOLD));
  for (int i = 0; i < 4; i++) OK(allocate(&memory[i], 2 * MIB, stream));
  IS(8 * MIB, value_of(pool, USED));
  IS(8 * MIB, value_of(pool, RESERVED));
  for (int i = 0; i < 4; i++) OK(free_on(memory[i], stream));
  wait_for(stream);
  IS(0, value_of(pool, USED));
  IS(8 * MIB, value_of(pool, USED_HIGH));
  IS(8 * MIB, value_of(pool, RESERVED_HIGH));
  IS(5 * MIB, value_of(pool, RESERVED));
  IS(before - 5 * MIB, check_free_memory());
  OK(allocate(&memory[0], 4 * MIB, stream)); /* from the memory that it kept */
  IS(5 * MIB, value_of(pool, RESERVED));
  IS(before - 5 * MIB, check_free_memory());
  OK(set_value(pool, USED_HIGH, 0));
  IS(4 * MIB, value_of(pool, USED_HIGH));
  OK(CALL(cuMemPoolTrimTo, (void *, size_t), pool, 0)); /* keeps memory that is in use */
  IS(4 * MIB, value_of(pool, RESERVED));
  OK(free_on(memory[0], stream));
  wait_for(stream);
  OK(CALL(cuMemPoolTrimTo, (void *, size_t), pool, 0));
  IS(0, value_of(pool, RESERVED));
  IS(before, check_free_memory());
}

static void pools(void) {
  void *pool = NULL, *current = NULL, *stream = make_stream();
  struct pool_properties limited = plain;
  limited.max_size = 4 * MIB;
  size_t before = check_free_memory();
  OK(CALL(cuMemPoolCreate, (void **, const void *), &pool, &limited));
  TRUE(pool != NULL && pool != default_pool());
  OK(CALL(cuDeviceSetMemPool, (int, void *), 0, pool));
  OK(CALL(cuDeviceGetMemPool, (void **, int), &current, 0));
  TRUE(current == pool);
  devptr memory = 0, more = 0;
  OK(allocate(&memory, 3 * MIB, stream));
  IS(3 * MIB, value_of(pool, USED));
  IS(0, value_of(default_pool(), USED));
  IS(OUT_OF_MEMORY, allocate(&more, 2 * MIB, stream));
  OK(CALL(cuMemAllocFromPoolAsync, (devptr *, size_t, void *, void *), &more, 2 * MIB, default_pool(),
          stream));
  IS(2 * MIB, value_of(default_pool(), USED));
  OK(free_on(more, stream));

  int flag = -1;
  OK(CALL(cuMemPoolGetAttribute, (void *, int, void *), pool, REUSE, &flag));
  IS(1, flag);
  flag = 0;
  OK(CALL(cuMemPoolSetAttribute, (void *, int, void *), pool, REUSE, &flag));
  flag = -1;
  OK(CALL(cuMemPoolGetAttribute, (void *, int, void *), pool, REUSE, &flag));
  IS(0, flag);

  /* A destroyed pool ends when the last of its memory is freed. The device has its default pool again. */
  OK(CALL(cuMemPoolDestroy, (void *), pool));
  OK(CALL(cuDeviceGetMemPool, (void **, int), &current, 0));
  TRUE(current == default_pool());
  OK(CALL(cuMemsetD8Async, (devptr, unsigned char, size_t, void *), memory, 1, 3 * MIB, stream));
  wait_for(stream);
  IS(before - 3 * MIB, check_free_memory());
  IS(INVALID_VALUE, CALL(cuMemPoolDestroy, (void *), pool));
  IS(INVALID_VALUE, CALL(cuMemPoolDestroy, (void *), default_pool()));
  void *of = (void *)1;
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &of, 17, memory));
  TRUE(of == NULL);
  OK(free_on(memory, stream));
  wait_for(stream);
  IS(before, check_free_memory());

  struct access access = {1, 0, 3};
  unsigned flags = 0;
  OK(CALL(cuMemPoolSetAccess, (void *, const void *, size_t), default_pool(), &access, 1));
  OK(CALL(cuMemPoolGetAccess, (unsigned *, void *, void *), &flags, default_pool(), &access));
  IS(3, flags);

  int place[2] = {1, 0};
  OK(CALL(cuMemGetDefaultMemPool, (void **, void *, int), &current, place, 1));
  TRUE(current == default_pool());
  OK(CALL(cuMemGetMemPool, (void **, void *, int), &current, place, 1));
  TRUE(current == default_pool());
  OK(CALL(cuMemSetMemPool, (void *, int, void *), place, 1, default_pool()));
}

static void bad_requests(void) {
  void *pool = NULL, *stream = make_stream();
  devptr memory = 0;
  struct pool_properties other = plain;
  IS(INVALID_VALUE, allocate(NULL, MIB, stream));
  IS(INVALID_VALUE, allocate(&memory, 0, stream));
  IS(INVALID_HANDLE, allocate(&memory, MIB, check_bytes(64)));
  memory = 4096;
  IS(OUT_OF_MEMORY, allocate(&memory, 1ull << 60, stream));
  IS(0, memory);
  OK(free_on(0, stream));
  IS(INVALID_VALUE, free_on(4096, stream));
  memory = check_alloc(MIB);
  IS(INVALID_HANDLE, free_on(memory, check_bytes(64)));
  OK(CALL(cuMemFree_v2, (devptr), memory)); /* still allocated, because a free was refused */
  IS(INVALID_DEVICE, CALL(cuDeviceGetDefaultMemPool, (void **, int), &pool, 99));
  IS(INVALID_VALUE, CALL(cuDeviceGetDefaultMemPool, (void **, int), NULL, 0));
  IS(INVALID_VALUE, CALL(cuDeviceSetMemPool, (int, void *), 0, check_bytes(64)));
  IS(INVALID_VALUE, CALL(cuMemPoolCreate, (void **, const void *), &pool, NULL));
  other.type = 9;
  IS(INVALID_VALUE, CALL(cuMemPoolCreate, (void **, const void *), &pool, &other));
  other = plain;
  other.handle_types = 8; /* a fabric */
  IS(NOT_SUPPORTED, CALL(cuMemPoolCreate, (void **, const void *), &pool, &other));
  other = plain;
  other.location_type = 2;
  IS(NOT_SUPPORTED, CALL(cuMemPoolCreate, (void **, const void *), &pool, &other));
  other = plain;
  other.location = 77;
  IS(INVALID_DEVICE, CALL(cuMemPoolCreate, (void **, const void *), &pool, &other));
  pool = default_pool();
  uint64_t value = 1;
  IS(INVALID_VALUE, CALL(cuMemPoolGetAttribute, (void *, int, void *), pool, 0, &value));
  IS(INVALID_VALUE, CALL(cuMemPoolGetAttribute, (void *, int, void *), pool, 9, &value));
  IS(INVALID_VALUE, CALL(cuMemPoolGetAttribute, (void *, int, void *), check_bytes(64), USED, &value));
  IS(INVALID_VALUE, set_value(pool, USED, 0));
  IS(INVALID_VALUE, set_value(pool, USED_HIGH, 1));
  struct access access = {1, 0, 0};
  IS(INVALID_VALUE, CALL(cuMemPoolSetAccess, (void *, const void *, size_t), pool, &access, 1));
  access.location = 50;
  IS(INVALID_DEVICE, CALL(cuMemPoolSetAccess, (void *, const void *, size_t), pool, &access, 1));
  int place[2] = {2, 0};
  IS(NOT_SUPPORTED, CALL(cuMemGetMemPool, (void **, void *, int), &pool, place, 1));
  IS(INVALID_VALUE, /* the pool was made without a handle type */
     CALL(cuMemPoolExportToShareableHandle, (void *, void *, int, uint64_t), &value, default_pool(), 1, 0));
  OK(CALL(cuCtxSynchronize, (void), )); /* none of these calls had an effect */
}

static void captures(void) {
  void *stream = make_stream(), *graph = NULL;
  devptr memory = 0, kept = check_alloc(MIB);
  OK(CALL(cuStreamBeginCapture_v2, (void *, int), stream, 1));
  IS(INVALID_VALUE, free_on(kept, stream)); /* not graph memory: only graph_memory.c has that */
  OK(CALL(cuStreamEndCapture, (void *, void **), stream, &graph));
  OK(CALL(cuGraphDestroy, (void *), graph));
  OK(allocate(&memory, MIB, stream));
  OK(free_on(memory, stream));
  OK(free_on(kept, stream));
  wait_for(stream);
}

static void managed(void) {
  enum {
    MANAGED_MEMORY = 83,
    POOL_OF = 17,
    MANAGED = 2,
    NO_LOCATION = 0,
    HOST = 2,
    PREFERRED = 2,
    IS_MANAGED = 8
  };
  int supported = 0;
  MUST(CALL(cuDeviceGetAttribute, (int *, int, int), &supported, MANAGED_MEMORY, 0));
  void *pool = NULL, *current = NULL, *other = NULL, *stream = make_stream(), *second = make_stream();
  struct pool_properties wanted = {.type = MANAGED, .location_type = 1};
  int place[2] = {1, 0}, nowhere[2] = {NO_LOCATION, 0};
  if (!supported) {
    IS(NOT_SUPPORTED, CALL(cuMemPoolCreate, (void **, const void *), &pool, &wanted));
    IS(NOT_SUPPORTED, CALL(cuMemGetMemPool, (void **, void *, int), &pool, place, MANAGED));
    return;
  }
  MUST(CALL(cuMemPoolCreate, (void **, const void *), &pool, &wanted));
  devptr memory = 0, gate = check_alloc(4);
  OK(CALL(cuMemAllocFromPoolAsync, (devptr *, size_t, void *, void *), &memory, MIB, pool, stream));
  IS(MIB, value_of(pool, USED));
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &current, POOL_OF, memory));
  TRUE(current == pool);
  unsigned value = 0;
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &value, IS_MANAGED, memory));
  IS(1, value & 1);
  int preferred = 7;
  OK(CALL(cuMemRangeGetAttribute, (void *, size_t, int, devptr, size_t), &preferred, 4, PREFERRED, memory,
          MIB));
  IS(0, preferred);
  /* The program and the device see the same bytes. */
  unsigned *words = (unsigned *)(uintptr_t)memory;
  words[0] = 5;
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory + 4, 9, 1, stream));
  wait_for(stream);
  IS(9, words[1]);
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &value, memory, 4));
  IS(5, value);
  /* Memory is freed behind work of its stream that waits, and the call does not wait. */
  MUST(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), gate, 0, 1));
  MUST(CALL(cuStreamWaitValue32_v2, (void *, devptr, unsigned, unsigned), stream, gate, 1, 0));
  OK(CALL(cuMemsetD32Async, (devptr, unsigned, size_t, void *), memory, 3, MIB / 4, stream));
  OK(free_on(memory, stream));
  IS(INVALID_VALUE, free_on(memory, stream));
  IS(0, value_of(pool, USED));
  IS(MIB, value_of(pool, USED_HIGH));
  OK(CALL(cuStreamWriteValue32_v2, (void *, devptr, unsigned, unsigned), second, gate, 1, 0));
  wait_for(stream);
  OK(set_value(pool, USED_HIGH, 0));
  IS(0, value_of(pool, RESERVED_HIGH));
  OK(set_value(pool, THRESHOLD, 5));
  IS(5, value_of(pool, THRESHOLD));
  OK(CALL(cuMemPoolTrimTo, (void *, size_t), pool, 0));
  /* Default and current pools of a location. */
  OK(CALL(cuMemGetDefaultMemPool, (void **, void *, int), &other, place, MANAGED));
  OK(CALL(cuMemGetMemPool, (void **, void *, int), &current, place, MANAGED));
  TRUE(other != NULL && current == other && other != default_pool());
  OK(CALL(cuMemSetMemPool, (void *, int, void *), place, MANAGED, pool));
  OK(CALL(cuMemGetMemPool, (void **, void *, int), &current, place, MANAGED));
  TRUE(current == pool);
  IS(INVALID_VALUE, CALL(cuMemSetMemPool, (void *, int, void *), nowhere, MANAGED, pool));
  IS(INVALID_VALUE, CALL(cuDeviceSetMemPool, (int, void *), 0, pool));
  IS(INVALID_VALUE, CALL(cuMemPoolDestroy, (void *), other));
  OK(CALL(cuMemPoolDestroy, (void *), pool));
  OK(CALL(cuMemGetMemPool, (void **, void *, int), &current, place, MANAGED));
  TRUE(current == other);
  OK(CALL(cuMemGetDefaultMemPool, (void **, void *, int), &other, nowhere, MANAGED));
  TRUE(other != current);
}

static void managed_refusals(void) {
  enum { MANAGED_MEMORY = 83, MANAGED = 2, HOST = 2 };
  int supported = 0;
  MUST(CALL(cuDeviceGetAttribute, (int *, int, int), &supported, MANAGED_MEMORY, 0));
  void *pool = NULL, *stream = make_stream();
  devptr memory = 0;
  static const struct {
    struct pool_properties properties;
    int result;
  } wrong[] = {{{.type = MANAGED, .location_type = 1, .handle_types = 1}, INVALID_VALUE},
               {{.type = MANAGED, .location_type = 1, .max_size = MIB}, INVALID_VALUE},
               {{.type = MANAGED, .location_type = 1, .usage = 1}, INVALID_VALUE},
               {{.type = MANAGED, .location_type = 1, .location = 99}, INVALID_DEVICE},
               {{.type = MANAGED, .location_type = 9}, INVALID_VALUE}};
  for (size_t i = 0; supported && i < sizeof wrong / sizeof *wrong; i++)
    IS(wrong[i].result, CALL(cuMemPoolCreate, (void **, const void *), &pool, &wrong[i].properties));
  const struct pool_properties wanted = {.type = MANAGED, .location_type = HOST};
  if (!supported || CALL(cuMemPoolCreate, (void **, const void *), &pool, &wanted) != 0) {
    IS(0, supported);
    return;
  }
  OK(CALL(cuMemAllocFromPoolAsync, (devptr *, size_t, void *, void *), &memory, 100, pool, NULL));
  OK(CALL(cuMemFree_v2, (devptr), memory));
  IS(0, value_of(pool, USED));
  OK(CALL(cuStreamBeginCapture_v2, (void *, int), stream, 2));
  TRUE(CALL(cuMemAllocFromPoolAsync, (devptr *, size_t, void *, void *), &memory, 100, pool, stream) != 0);
}

static const struct check_case cases[] = {
    {"allocates", allocates},       {"waits", waits},
    {"thresholds", thresholds},     {"pools", pools},
    {"bad_requests", bad_requests}, {"captures", captures},
    {"managed", managed},           {"managed_refusals", managed_refusals}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
