/*
 * A call that makes an object and waits for its answer does not report the failure of earlier work: the
 * program would take it for the call's own failure and lose the object. A call that waits for work reports
 * it, once.
 */
#include "check.h"
#include "public_structures.h"

#define GRANULE ((size_t)2 << 20)

static const char code[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n";

struct attribute {
  unsigned id, reserved;
  unsigned value[16];
};
struct config {
  unsigned grid[3], block[3], shared;
  void *stream;
  struct attribute *attributes;
  unsigned count;
};

enum { UNKNOWN_ATTRIBUTE = 60 };

/*
 * Launches with an attribute that no driver knows. Only the host knows the attributes of its driver, so the
 * host refuses the launch, after the call has returned.
 */
static void begin_failure(void) {
  static void *function;
  void *module = NULL;
  struct attribute unknown = {.id = UNKNOWN_ATTRIBUTE};
  struct config config = {.grid = {32, 1, 1}, .block = {1, 1, 1}, .attributes = &unknown, .count = 1};
  if (function == NULL) {
    MUST(CALL(cuModuleLoadData, (void **, const void *), &module, code));
    MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "nothing"));
  }
  OK(CALL(cuLaunchKernelEx, (const void *, void *, void **, void **), &config, function, NULL, NULL));
}

/* `make` succeeds after a failure, and the failure is still reported later. */
static void told_later(void (*make)(void)) {
  begin_failure();
  make();
  IS(INVALID_VALUE, CALL(cuCtxSynchronize, (void), ));
  OK(CALL(cuCtxSynchronize, (void), ));
}

static void make_pool(void) {
  static const struct pool_properties plain = {.type = 1, .location_type = 1};
  void *pool = NULL;
  OK(CALL(cuMemPoolCreate, (void **, const void *), &pool, &plain));
  OK(CALL(cuMemPoolTrimTo, (void *, size_t), pool, 0));
  OK(CALL(cuMemPoolDestroy, (void *), pool));
}

static void make_memory(void) {
  static const struct {
    int type, handle_types, location_type, location;
    void *win32;
    unsigned char reserved[8];
  } properties = {.type = 1, .location_type = 1};
  uint64_t handle = 0;
  OK(CALL(cuMemCreate, (uint64_t *, size_t, const void *, uint64_t), &handle, GRANULE, &properties, 0));
  OK(CALL(cuMemRelease, (uint64_t), handle));
}

static void make_array(void) {
  static const struct {
    size_t width, height;
    int format;
    unsigned channels;
  } of = {64, 64, 0x20, 1};
  void *array = NULL;
  OK(CALL(cuArrayCreate_v2, (void **, const void *), &array, &of));
  OK(CALL(cuArrayDestroy, (void *), array));
}

static void make_context(void) {
  void *context = NULL, *before = NULL;
  OK(CALL(cuCtxGetCurrent, (void **), &before));
  OK(CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, 0)); /* destroying it removes all failures */
  OK(CALL(cuCtxSetCurrent, (void *), before));
}

static void make_pinned(void) {
  void *memory = NULL;
  OK(CALL(cuMemHostAlloc, (void **, size_t, unsigned), &memory, 8192, 2)); /* mapped, if possible */
  OK(CALL(cuMemFreeHost, (void *), memory));
}

static void make_managed(void) {
  devptr memory = 0;
  int result = CALL(cuMemAllocManaged, (devptr *, size_t, unsigned), &memory, 8192, 1);
  if (result == NOT_SUPPORTED) return; /* not on this device, or not over this transport */
  OK(result);
  OK(CALL(cuMemFree_v2, (devptr), memory));
}

static void make_graph(void) {
  void *graph = NULL, *exec = NULL;
  OK(CALL(cuGraphCreate, (void **, unsigned), &graph, 0));
  OK(CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &exec, graph, 0));
  OK(CALL(cuGraphExecDestroy, (void *), exec));
  OK(CALL(cuGraphDestroy, (void *), graph));
}

static void make_library(void) {
  void *library = NULL, *kernel = NULL, *module = NULL;
  OK(CALL(cuLibraryLoadData, (void **, const void *, int *, void **, unsigned, int *, void **, unsigned),
          &library, code, NULL, NULL, 0, NULL, NULL, 0));
  OK(CALL(cuLibraryGetKernel, (void **, void *, const char *), &kernel, library, "nothing"));
  OK(CALL(cuLibraryGetModule, (void **, void *), &module, library));
  OK(CALL(cuLibraryUnload, (void *), library));
}

static void things_are_made(void) {
  void (*const made[])(void) = {make_pool,   make_memory,  make_array, make_context,
                                make_pinned, make_managed, make_graph, make_library};
  for (size_t i = 0; i < sizeof made / sizeof *made; i++) told_later(made[i]);
}

/* Each query for work reports the failure, and only once. */
static void questions_tell(void) {
  void *stream = NULL, *event = NULL;
  OK(CALL(cuStreamCreate, (void **, unsigned), &stream, 0));
  OK(CALL(cuEventCreate, (void **, unsigned), &event, 0));
  for (int i = 0; i < 4; i++) {
    begin_failure();
    OK(CALL(cuEventRecord, (void *, void *), event, stream));
    int result = NOT_READY;
    while (result == NOT_READY)
      result = i == 0   ? CALL(cuStreamQuery, (void *), stream)
               : i == 1 ? CALL(cuEventQuery, (void *), event)
               : i == 2 ? CALL(cuStreamSynchronize, (void *), stream)
                        : CALL(cuEventSynchronize, (void *), event);
    IS(INVALID_VALUE, result);
    OK(CALL(cuCtxSynchronize, (void), ));
  }
}

/* A read for which the host has no event (stand_in_driver.c, eventless) fails, and later calls do not. */
static void unread(void) {
  enum { BYTES = 8192, OUT = 2 };
  unsigned char *memory = NULL;
  devptr from = check_alloc(BYTES);
  MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&memory, BYTES, 0));
  OK(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), from, 7, BYTES));
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), memory, from, BYTES, NULL));
  IS(OUT, CALL(cuCtxSynchronize, (void), ));
  for (int i = 0; i < 3; i++) {
    OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), memory, from, BYTES, NULL));
    OK(CALL(cuCtxSynchronize, (void), ));
    IS(7, memory[BYTES - 1]);
    check_alloc(4096);
  }
}

static const struct check_case cases[] = {
    {"made", things_are_made}, {"questions", questions_tell}, {"unread", unread}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
