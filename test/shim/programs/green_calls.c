/* Resources of a device and green contexts. The numbers are those of an H100 with 132 multiprocessors. */
#include "check.h"

#define LEGACY ((void *)1)
#define PER_THREAD ((void *)2)
enum { INVALID_TYPE = 914, INVALID_CONFIGURATION = 915, DETACHED = 917, IS_DESTROYED = 709, TOO_LARGE = 720 };
enum { SM = 1, QUEUES = 1000 };
enum { IGNORE_TOGETHER = 1, LARGEST_CLUSTER = 2, BACKFILL = 1 };
enum { MULTIPROCESSORS = 132, SMALLEST = 8 };

/* CUdevResource with CUdevSmResource, and CU_DEV_SM_RESOURCE_GROUP_PARAMS. */
struct resource {
  int type;
  unsigned char inside[92];
  unsigned count, least, alignment, flags, domain;
  unsigned char rest[20];
  void *next;
};
struct group {
  unsigned count, together, preferred, flags, domain, reserved[11];
};

static struct resource whole(void) {
  struct resource resource;
  MUST(CALL(cuDeviceGetDevResource, (int, struct resource *, int), 0, &resource, SM));
  return resource;
}

static int by_count(struct resource *result, unsigned *groups, const struct resource *input,
                    struct resource *rest, unsigned flags, unsigned least) {
  return CALL(cuDevSmResourceSplitByCount,
              (struct resource *, unsigned *, const struct resource *, struct resource *, unsigned, unsigned),
              result, groups, input, rest, flags, least);
}

static int by_size(struct resource *result, unsigned groups, const struct resource *input,
                   struct resource *rest, struct group *sizes) {
  return CALL(
      cuDevSmResourceSplit,
      (struct resource *, unsigned, const struct resource *, struct resource *, unsigned, struct group *),
      result, groups, input, rest, 0, sizes);
}

static int describe(void **described, struct resource *resources, unsigned count) {
  return CALL(cuDevResourceGenerateDesc, (void **, struct resource *, unsigned), described, resources, count);
}

static void resources(void) {
  struct resource resource = whole(), other;
  IS(MULTIPROCESSORS, resource.count);
  IS(SMALLEST, resource.least);
  IS(SMALLEST, resource.alignment);
  void *context = NULL, *stream = NULL;
  MUST(CALL(cuCtxGetCurrent, (void **), &context));
  OK(CALL(cuCtxGetDevResource, (void *, struct resource *, int), context, &other, SM));
  IS(MULTIPROCESSORS, other.count);
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, 0));
  OK(CALL(cuStreamGetDevResource, (void *, struct resource *, int), stream, &other, SM));
  IS(MULTIPROCESSORS, other.count);
  IS(INVALID_HANDLE, CALL(cuStreamGetDevResource, (void *, struct resource *, int), &resource, &other, SM));
  IS(INVALID_TYPE, CALL(cuDeviceGetDevResource, (int, struct resource *, int), 0, &other, 0));
  IS(INVALID_TYPE, CALL(cuDeviceGetDevResource, (int, struct resource *, int), 0, &other, 7));
  IS(INVALID_TYPE, CALL(cuDeviceGetDevResource, (int, struct resource *, int), 0, &other, QUEUES));
  IS(INVALID_DEVICE, CALL(cuDeviceGetDevResource, (int, struct resource *, int), 99, &other, SM));
  IS(INVALID_VALUE, CALL(cuDeviceGetDevResource, (int, struct resource *, int), 0, NULL, SM));
  IS(INVALID_CONTEXT, CALL(cuCtxGetDevResource, (void *, struct resource *, int), &other, &other, SM));
}

static void splits_by_count(void) {
  struct resource all = whole(), parts[66], rest;
  unsigned groups = 0;
  OK(by_count(NULL, &groups, &all, NULL, 0, 0));
  IS(16, groups);
  groups = 66;
  OK(by_count(parts, &groups, &all, &rest, 0, 1));
  IS(16, groups);
  IS(8, parts[15].count);
  IS(4, rest.count);
  groups = 66;
  OK(by_count(parts, &groups, &all, &rest, 0, 10));
  IS(8, groups);
  IS(16, parts[0].count);
  IS(4, rest.count);
  groups = 2;
  OK(by_count(parts, &groups, &all, &rest, 0, 8));
  IS(2, groups);
  IS(116, rest.count);
  IS(INVALID_CONFIGURATION, by_count(parts, &groups, &parts[0], NULL, 0, 2));
  OK(by_count(parts, &groups, &rest, NULL, 0, 8));
  groups = 66;
  OK(by_count(parts, &groups, &all, &rest, IGNORE_TOGETHER, 1));
  IS(66, groups);
  IS(2, parts[65].count);
  IS(0, rest.type);
  groups = 66;
  OK(by_count(parts, &groups, &all, &rest, LARGEST_CLUSTER, 1));
  IS(8, groups);
  IS(16, parts[7].count);
  struct resource none = {.type = SM}, queues = {.type = QUEUES};
  IS(INVALID_VALUE, by_count(parts, &groups, &all, NULL, 4, 1));
  IS(INVALID_VALUE, by_count(parts, &groups, &all, NULL, 0, MULTIPROCESSORS + 1));
  IS(INVALID_VALUE, by_count(parts, NULL, &all, NULL, 0, 1));
  IS(INVALID_VALUE, by_count(parts, &groups, NULL, NULL, 0, 1));
  IS(INVALID_VALUE, by_count(parts, &groups, &none, NULL, 0, 1));
  IS(INVALID_TYPE, by_count(parts, &groups, &queues, NULL, 0, 1));
  groups = 0;
  IS(INVALID_VALUE, by_count(parts, &groups, &all, NULL, 0, 1));
}

static void splits_by_size(void) {
  struct resource all = whole(), parts[3], rest;
  struct group sizes[3] = {{.count = 8, .together = 4}, {.together = 2, .flags = BACKFILL}};
  OK(by_size(parts, 2, &all, &rest, sizes));
  IS(8, parts[0].count);
  IS(4, parts[0].alignment);
  IS(124, parts[1].count);
  IS(124, sizes[1].count);
  IS(0, rest.type);
  struct group found[2] = {{0}, {0}};
  OK(by_size(NULL, 2, &all, NULL, found));
  IS(128, found[0].count);
  IS(0, found[1].count);
  found[0].count = found[1].count = 0;
  IS(INVALID_CONFIGURATION, by_size(parts, 2, &all, NULL, found));
  struct group ten = {.count = 10, .together = 2};
  OK(by_size(parts, 1, &all, &rest, &ten));
  IS(10, parts[0].count);
  IS(122, rest.count);
  OK(by_size(parts, 1, &rest, NULL, &ten));
  IS(INVALID_CONFIGURATION, by_size(parts + 1, 1, &parts[0], NULL, &ten));
  struct group wrong[] = {{.count = 3},
                          {.count = 1},
                          {.count = 12, .together = 8},
                          {.count = 134},
                          {.count = 64, .together = 64},
                          {.count = 8, .flags = 64},
                          {.reserved = {[4] = 1}}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    IS(INVALID_VALUE, by_size(parts, 1, &all, NULL, &wrong[i]));
  struct group much[2] = {{.count = 128}, {.count = 8}};
  IS(INVALID_CONFIGURATION, by_size(parts, 2, &all, NULL, much));
  IS(INVALID_VALUE, by_size(parts, 0, &all, NULL, much));
  IS(INVALID_VALUE, by_size(parts, 1, &all, NULL, NULL));
}

static void describes(void) {
  struct resource all = whole(), parts[4], others[2], rest;
  void *described = NULL;
  unsigned groups = 4;
  MUST(by_count(parts, &groups, &all, &rest, 0, 8));
  groups = 2;
  MUST(by_count(others, &groups, &all, NULL, 0, 16));
  OK(describe(&described, &all, 1));
  OK(describe(&described, parts, 4));
  TRUE(described != NULL);
  struct resource mixed[2] = {parts[0], others[0]};
  OK(describe(&described, mixed, 2));
  mixed[1] = parts[0];
  IS(INVALID_CONFIGURATION, describe(&described, mixed, 2));
  mixed[0] = mixed[1] = all;
  IS(INVALID_CONFIGURATION, describe(&described, mixed, 2));
  mixed[0] = parts[0], mixed[1] = rest;
  OK(describe(&described, mixed, 2));
  mixed[1].type = 0;
  IS(INVALID_TYPE, describe(&described, mixed, 2));
  IS(INVALID_VALUE, describe(&described, mixed, 0));
  IS(INVALID_VALUE, describe(NULL, parts, 1));
  IS(INVALID_VALUE, describe(&described, NULL, 1));
  void *green = NULL;
  IS(INVALID_VALUE, CALL(cuGreenCtxCreate, (void **, void *, int, unsigned), &green, NULL, 0, 1));
  IS(INVALID_VALUE, CALL(cuGreenCtxCreate, (void **, void *, int, unsigned), &green, described, 0, 2));
  IS(INVALID_VALUE,
     CALL(cuGreenCtxCreate, (void **, void *, int, unsigned), &green, described, 0, 0)); /* 13.0 */
  IS(INVALID_VALUE, CALL(cuGreenCtxCreate, (void **, void *, int, unsigned), NULL, described, 0, 1));
  IS(INVALID_DEVICE, CALL(cuGreenCtxCreate, (void **, void *, int, unsigned), &green, described, 99, 1));
}

/* A green context of `count` groups of 8 multiprocessors. */
static void *make_green(unsigned count) {
  struct resource all = whole(), parts[16];
  void *described = NULL, *green = NULL;
  unsigned groups = count;
  MUST(by_count(parts, &groups, &all, NULL, 0, SMALLEST));
  MUST(describe(&described, parts, groups));
  MUST(CALL(cuGreenCtxCreate, (void **, void *, int, unsigned), &green, described, 0, 1));
  return green;
}

static void *view_of(void *green) {
  void *view = NULL;
  MUST(CALL(cuCtxFromGreenCtx, (void **, void *), &view, green));
  return view;
}

static void *stream_of(void *green) {
  void *stream = NULL;
  MUST(CALL(cuGreenCtxStreamCreate, (void **, void *, unsigned, int), &stream, green, 1, 0));
  return stream;
}

static void contexts(void) {
  void *primary = NULL, *green = make_green(2), *view = view_of(green), *got = NULL, *of = &got, *stream;
  struct resource resource;
  unsigned long long id = 0, other = 0;
  MUST(CALL(cuCtxGetCurrent, (void **), &primary));
  TRUE(view != primary && view == green);
  OK(CALL(cuGreenCtxGetDevResource, (void *, struct resource *, int), green, &resource, SM));
  IS(16, resource.count);
  unsigned halves = 2;
  struct resource split[2];
  OK(by_count(split, &halves, &resource, NULL, 0, 8));
  IS(2, halves);
  OK(CALL(cuGreenCtxGetId, (void *, unsigned long long *), green, &id));
  OK(CALL(cuCtxGetId, (void *, unsigned long long *), primary, &other));
  TRUE(id != other);
  IS(INVALID_CONTEXT, CALL(cuGreenCtxGetId, (void *, unsigned long long *), NULL, &other));
  stream = stream_of(green);
  OK(CALL(cuStreamGetCtx, (void *, void **), stream, &got));
  TRUE(got == view);
  OK(CALL(cuStreamGetGreenCtx, (void *, void **), stream, &of));
  TRUE(of == green);
  OK(CALL(cuStreamGetCtx_v2, (void *, void **, void **), stream, &got, &of));
  TRUE(got == primary && of == green);
  OK(CALL(cuStreamGetDevResource, (void *, struct resource *, int), stream, &resource, SM));
  IS(16, resource.count);
  OK(CALL(cuStreamGetGreenCtx, (void *, void **), NULL, &of));
  TRUE(of == NULL);
  MUST(CALL(cuCtxSetCurrent, (void *), view));
  OK(CALL(cuStreamGetGreenCtx, (void *, void **), LEGACY, &of));
  TRUE(of == green);
  IS(INVALID_HANDLE, CALL(cuStreamGetCtx_v2, (void *, void **, void **), PER_THREAD, &got, &of));
  OK(CALL(cuGreenCtxGetId, (void *, unsigned long long *), NULL, &other));
  TRUE(id == other);
  MUST(CALL(cuCtxSetCurrent, (void *), primary));
  IS(INVALID_VALUE, CALL(cuGreenCtxStreamCreate, (void **, void *, unsigned, int), &stream, green, 0, 0));
  IS(INVALID_CONTEXT, CALL(cuGreenCtxStreamCreate, (void **, void *, unsigned, int), &stream, primary, 1, 0));
  IS(INVALID_CONTEXT, CALL(cuCtxFromGreenCtx, (void **, void *), &got, primary));
  IS(INVALID_VALUE, CALL(cuCtxFromGreenCtx, (void **, void *), NULL, green));
  OK(CALL(cuGreenCtxDestroy, (void *), green));
  IS(INVALID_CONTEXT, CALL(cuGreenCtxDestroy, (void *), green));
  IS(INVALID_CONTEXT, CALL(cuCtxFromGreenCtx, (void **, void *), &got, green));
  IS(INVALID_CONTEXT, CALL(cuCtxSetCurrent, (void *), view));
}

/* add(to): one more. all(to, blocks): each block adds one and waits until all have. */
static const char text[] =
    ".version 7.0\n.target sm_60\n.address_size 64\n"
    ".visible .global .u32 seen;\n"
    ".visible .entry add(.param .u64 to) {\n"
    ".reg .b64 %p; .reg .b32 %v;\n"
    "ld.param.u64 %p, [to]; atom.global.add.u32 %v, [%p], 1; atom.global.add.u32 %v, [seen], 1; ret; }\n"
    ".visible .entry all(.param .u64 to, .param .u32 blocks) {\n"
    ".reg .b64 %p; .reg .b32 %n, %v; .reg .pred %q;\n"
    "ld.param.u64 %p, [to]; ld.param.u32 %n, [blocks]; atom.global.add.u32 %v, [%p], 1;\n"
    "again: ld.volatile.global.u32 %v, [%p]; setp.lt.u32 %q, %v, %n; @%q bra again; ret; }\n";

static void *function_of(const char *name) {
  void *module = NULL, *function = NULL;
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, text));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, name));
  return function;
}

static void *kernel_of(const char *name, devptr *seen) {
  void *library = NULL, *kernel = NULL;
  size_t bytes = 0;
  MUST(CALL(cuLibraryLoadData, (void **, const void *, void *, void *, unsigned, void *, void *, unsigned),
            &library, text, NULL, NULL, 0, NULL, NULL, 0));
  MUST(CALL(cuLibraryGetKernel, (void **, void *, const char *), &kernel, library, name));
  MUST(CALL(cuLibraryGetGlobal, (devptr *, size_t *, void *, const char *), seen, &bytes, library, "seen"));
  return kernel;
}

static int launch(void *function, unsigned blocks, void *stream, devptr to) {
  void *parameters[] = {&to, &blocks};
  return CALL(cuLaunchKernel,
              (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
               void **),
              function, blocks, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static unsigned read_word(devptr word) {
  unsigned value = 77;
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &value, word, 4));
  return value;
}

static devptr zero_word(void) {
  devptr word = check_alloc(4);
  MUST(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), word, 0, 1));
  return word;
}

static void computes(void) {
  void *green = make_green(2), *stream = stream_of(green), *add = function_of("add");
  devptr word = zero_word(), seen = 0;
  void *kernel = kernel_of("add", &seen);
  OK(launch(add, 5, stream, word));
  OK(launch(kernel, 3, stream, word));
  OK(launch(kernel, 2, NULL, word));
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(10, read_word(word));
  IS(5, read_word(seen)); /* one variable in the primary context and its green contexts */
  MUST(CALL(cuCtxSetCurrent, (void *), view_of(green)));
  OK(launch(add, 4, NULL, word));
  OK(launch(kernel, 4, NULL, word));
  IS(18, read_word(word));
  IS(9, read_word(seen));
  OK(CALL(cuCtxSynchronize, (void), ));
}

static void cooperative(void) {
  void *green = make_green(1), *stream = stream_of(green), *all = function_of("all"), *wide = NULL;
  int each = 0;
  MUST(CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *, void *, int, size_t), &each, all, 32, 0));
  MUST(CALL(cuStreamCreate, (void **, unsigned), &wide, 1));
  unsigned most = (unsigned)each * SMALLEST;
  devptr word = zero_word();
  for (int more = 0; more < 2; more++) {
    unsigned blocks = most + (unsigned)more;
    void *parameters[] = {&word, &blocks};
    int result =
        CALL(cuLaunchCooperativeKernel,
             (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **),
             all, blocks, 1, 1, 1, 1, 1, 0, stream, parameters);
    IS(more == 0 ? 0 : TOO_LARGE, result);
    OK(CALL(cuStreamSynchronize, (void *), stream));
    IS(most, read_word(word));
  }
}

static int wait_value(void *stream, devptr word, unsigned value) {
  return CALL(cuStreamWaitValue32_v2, (void *, devptr, unsigned, unsigned), stream, word, value, 0);
}

static int write_value(void *stream, devptr word, unsigned value) {
  return CALL(cuStreamWriteValue32_v2, (void *, devptr, unsigned, unsigned), stream, word, value, 0);
}

static void events(void) {
  void *green = make_green(1), *first = stream_of(green), *second = stream_of(green), *other = NULL, *add;
  void *event = NULL, *done = NULL;
  devptr gate = zero_word(), word = zero_word();
  add = function_of("add");
  MUST(CALL(cuStreamCreate, (void **, unsigned), &other, 1));
  MUST(CALL(cuEventCreate, (void **, unsigned), &event, 2));
  MUST(CALL(cuEventCreate, (void **, unsigned), &done, 2));
  /* Work of both streams comes after an event of another one. */
  OK(wait_value(other, gate, 1));
  OK(CALL(cuEventRecord, (void *, void *), event, other));
  OK(CALL(cuGreenCtxWaitEvent, (void *, void *), green, event));
  OK(launch(add, 1, first, word));
  OK(launch(add, 1, second, word));
  OK(CALL(cuGreenCtxRecordEvent, (void *, void *), green, done));
  IS(NOT_READY, CALL(cuEventQuery, (void *), done));
  IS(NOT_READY, CALL(cuStreamQuery, (void *), first));
  IS(NOT_READY, CALL(cuStreamQuery, (void *), second));
  void *free_stream = NULL;
  MUST(CALL(cuStreamCreate, (void **, unsigned), &free_stream, 1));
  OK(write_value(free_stream, gate, 1));
  OK(CALL(cuEventSynchronize, (void *), done));
  IS(2, read_word(word));
  /* The primary context's wait includes its green contexts. */
  OK(wait_value(first, gate, 2));
  OK(launch(add, 1, first, word));
  OK(write_value(free_stream, gate, 2));
  OK(CALL(cuCtxSynchronize, (void), ));
  OK(CALL(cuStreamQuery, (void *), first));
  void *foreign = NULL, *context = NULL;
  MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, 0));
  MUST(CALL(cuEventCreate, (void **, unsigned), &foreign, 2));
  IS(INVALID_HANDLE, CALL(cuGreenCtxRecordEvent, (void *, void *), green, foreign));
  IS(INVALID_CONTEXT, CALL(cuGreenCtxRecordEvent, (void *, void *), context, done));
  IS(INVALID_CONTEXT, CALL(cuGreenCtxWaitEvent, (void *, void *), context, done));
  MUST(CALL(cuCtxDestroy_v2, (void *), context));
}

static void ends(void) {
  void *primary = NULL, *green = make_green(3), *stream = stream_of(green), *event = NULL, *got = NULL;
  void *view = view_of(green), *capturing = stream_of(green);
  MUST(CALL(cuCtxGetCurrent, (void **), &primary));
  MUST(CALL(cuCtxPushCurrent_v2, (void *), view));
  devptr word = zero_word(), pooled = 0;
  void *add = function_of("add"), *pinned = NULL;
  MUST(CALL(cuEventCreate, (void **, unsigned), &event, 2));
  MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), &pinned, 4096, 0));
  MUST(CALL(cuMemAllocAsync, (devptr *, size_t, void *), &pooled, 4096, stream));
  MUST(CALL(cuCtxPopCurrent_v2, (void **), &got));
  TRUE(got == view);
  OK(launch(add, 1, stream, word));
  OK(CALL(cuStreamSynchronize, (void *), stream));
  OK(CALL(cuStreamBeginCapture_v2, (void *, int), capturing, 2));
  OK(CALL(cuGreenCtxDestroy, (void *), green));
  /* Objects that were made while it was current are the primary context's. */
  OK(launch(add, 1, NULL, word));
  OK(CALL(cuEventRecord, (void *, void *), event, NULL));
  OK(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), pooled, 1, 4096));
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), pinned, word, 4, NULL));
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(2, *(unsigned *)pinned);
  OK(CALL(cuMemFree_v2, (devptr), word));
  OK(CALL(cuMemFreeHost, (void *), pinned));
  OK(CALL(cuMemFree_v2, (devptr), pooled));
  /* Its streams are destroyed with it. */
  IS(DETACHED, launch(add, 1, stream, word));
  IS(DETACHED, CALL(cuStreamSynchronize, (void *), stream));
  IS(DETACHED, CALL(cuStreamQuery, (void *), stream));
  IS(DETACHED, CALL(cuStreamGetCtx, (void *, void **), stream, &got));
  IS(DETACHED, CALL(cuEventRecord, (void *, void *), event, stream));
  IS(DETACHED, CALL(cuStreamEndCapture, (void *, void **), capturing, &got));
  IS(IS_DESTROYED, CALL(cuStreamDestroy_v2, (void *), stream));
  IS(IS_DESTROYED, CALL(cuStreamDestroy_v2, (void *), capturing));
  OK(CALL(cuCtxSynchronize, (void), ));
}

static void ends_with_primary(void) {
  void *green = make_green(1), *stream = stream_of(green), *context = NULL, *got = NULL;
  unsigned flags = 0;
  int active = 0;
  /* It retains the primary context. */
  MUST(CALL(cuDevicePrimaryCtxRelease_v2, (int), 0));
  OK(CALL(cuDevicePrimaryCtxGetState, (int, unsigned *, int *), 0, &flags, &active));
  IS(1, active);
  OK(launch(function_of("add"), 1, stream, zero_word()));
  OK(CALL(cuCtxSynchronize, (void), ));
  OK(CALL(cuGreenCtxDestroy, (void *), green));
  OK(CALL(cuDevicePrimaryCtxGetState, (int, unsigned *, int *), 0, &flags, &active));
  IS(0, active);
  MUST(CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0));
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  green = make_green(1);
  IS(NOT_PERMITTED, CALL(cuDevicePrimaryCtxReset_v2, (int), 0));
  OK(CALL(cuCtxFromGreenCtx, (void **, void *), &got, green));
  OK(CALL(cuCtxDestroy_v2, (void *), green));
  OK(CALL(cuDevicePrimaryCtxReset_v2, (int), 0));
  /* The green context released its reference. The program's reference outlived the reset. */
  OK(CALL(cuDevicePrimaryCtxRelease_v2, (int), 0));
  IS(INVALID_CONTEXT, CALL(cuDevicePrimaryCtxRelease_v2, (int), 0));
  MUST(CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0));
  green = make_green(1);
  OK(launch(function_of("add"), 1, stream_of(green), zero_word()));
  OK(CALL(cuCtxSynchronize, (void), ));
}

static void many(void) {
  struct resource part;
  for (int i = 0; i < 40; i++) {
    void *greens[4];
    for (unsigned j = 0; j < 4; j++) {
      greens[j] = make_green(j + 1);
      OK(CALL(cuGreenCtxGetDevResource, (void *, struct resource *, int), greens[j], &part, SM));
      IS((j + 1) * SMALLEST, part.count);
    }
    for (int j = 0; j < 4; j++) OK(CALL(cuGreenCtxDestroy, (void *), greens[j]));
  }
}

int main(int argc, char **argv) {
  static const struct check_case cases[] = {
      {"resources", resources},
      {"splits_by_count", splits_by_count},
      {"splits_by_size", splits_by_size},
      {"describes", describes},
      {"contexts", contexts},
      {"computes", computes},
      {"cooperative", cooperative},
      {"events", events},
      {"ends", ends},
      {"ends_with_primary", ends_with_primary},
      {"many", many},
  };
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
