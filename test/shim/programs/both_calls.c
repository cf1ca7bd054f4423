/* Memory of both sides: mapped pinned memory and managed memory, or an error if there is none. */
#include <unistd.h>

#include "check.h"

enum { MAPPED = 2, CAN_MAP = 19, MANAGED = 83, CONCURRENT = 89 };

static const char text[] =
    ".version 6.0\n.target sm_60\n.address_size 64\n"
    /* adds to each of 64 numbers */
    ".visible .entry add(.param .u64 at, .param .u32 what) { .reg .b64 %p, %o; .reg .b32 %i, %v, %w;\n"
    "ld.param.u64 %p, [at]; ld.param.u32 %w, [what]; mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4;\n"
    "add.u64 %p, %p, %o; ld.u32 %v, [%p]; add.u32 %v, %v, %w; st.u32 [%p], %v; ret; }\n"
    /* announces itself, waits for an answer, and answers */
    ".visible .entry talk(.param .u64 at) { .reg .b64 %p; .reg .b32 %v; .reg .pred %q;\n"
    "ld.param.u64 %p, [at]; st.volatile.u32 [%p], 1;\n"
    "again: ld.volatile.u32 %v, [%p+4]; setp.eq.u32 %q, %v, 0; @%q bra again;\n"
    "add.u32 %v, %v, 1; st.volatile.u32 [%p+8], %v; ret; }\n";

static void *module;

static void *function_of(const char *name) {
  void *function = NULL;
  if (module == NULL) MUST(CALL(cuModuleLoadData, (void **, const void *), &module, text));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, name));
  return function;
}

static int launch(void *function, unsigned threads, void **parameters, void *stream) {
  return CALL(cuLaunchKernel,
              (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
               void **),
              function, 1, 1, 1, threads, 1, 1, 0, stream, parameters, NULL);
}

static int attribute(int which) {
  int value = -1;
  MUST(CALL(cuDeviceGetAttribute, (int *, int, int), &value, which, 0));
  return value;
}

/* The test sets SHARES_MEMORY: 1 if program and device share memory over its transport. */
static void offered(void) {
  const char *shares = getenv("SHARES_MEMORY");
  if (shares == NULL) return;
  IS(atoi(shares), attribute(CAN_MAP));
  IS(atoi(shares), attribute(MANAGED));
  IS(atoi(shares), attribute(CONCURRENT));
}

static int wait_for_all(void) {
  return CALL(cuCtxSynchronize, (void), );
}

static unsigned *pinned(size_t bytes, unsigned flags) {
  void *memory = NULL;
  MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), &memory, bytes, flags));
  return memory;
}

/* A kernel and the program change the same numbers in turn. */
static void in_turn(devptr at, unsigned *numbers) {
  unsigned what = 7;
  void *parameters[] = {&at, &what};
  for (unsigned i = 0; i < 64; i++) numbers[i] = i;
  OK(launch(function_of("add"), 64, parameters, NULL));
  OK(wait_for_all());
  for (unsigned i = 0; i < 64; i++) IS(i + 7, numbers[i]);
  for (unsigned i = 0; i < 64; i++) numbers[i] *= 2;
  OK(launch(function_of("add"), 64, parameters, NULL));
  OK(wait_for_all());
  for (unsigned i = 0; i < 64; i++) IS((i + 7) * 2 + 7, numbers[i]);
}

static void mapped(void) {
  static const size_t sizes[] = {256, 65536, 1 << 20};
  for (int i = 0; i < 3; i++) {
    unsigned *memory = pinned(sizes[i], i == 0 ? MAPPED : 0);
    devptr at = 0, told = 0;
    int result = CALL(cuMemHostGetDevicePointer_v2, (devptr *, void *, unsigned), &at, memory, 0);
    if (attribute(CAN_MAP) == 0) {
      IS(NOT_SUPPORTED, result);
    } else {
      OK(result);
      TRUE(at == (devptr)(uintptr_t)memory);
      OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &told, 3, at));
      TRUE(told == at);
      OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &told, 4, at));
      TRUE(told == at);
      in_turn(at, memory);
    }
    IS(INVALID_VALUE, CALL(cuMemFree_v2, (devptr), (devptr)(uintptr_t)memory)); /* the wrong call */
    OK(CALL(cuMemFreeHost, (void *), memory));
    IS(INVALID_VALUE, CALL(cuMemHostGetDevicePointer_v2, (devptr *, void *, unsigned), &at, memory, 0));
  }
}

static void managed(void) {
  devptr at = 0, other = 0;
  int result = CALL(cuMemAllocManaged, (devptr *, size_t, unsigned), &at, 100000, 1);
  if (attribute(MANAGED) == 0) {
    IS(NOT_SUPPORTED, result);
    return;
  }
  MUST(result);
  unsigned *numbers = (unsigned *)(uintptr_t)at, is_managed = 0, kind = 0;
  for (unsigned i = 0; i < 25000; i++) IS(0, numbers[i]);
  in_turn(at, numbers);
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &is_managed, 8, at + 4));
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &kind, 2, at));
  IS(1, is_managed);
  IS(2, kind);
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), at, 5, 1000));
  OK(wait_for_all());
  IS(5, numbers[999]);
  OK(CALL(cuMemAllocManaged, (devptr *, size_t, unsigned), &other, 4000, 1));
  OK(CALL(cuMemcpyDtoD_v2, (devptr, devptr, size_t), other, at, 4000));
  OK(wait_for_all());
  IS(5, ((unsigned *)(uintptr_t)other)[999]);
  OK(CALL(cuMemcpy, (devptr, devptr, size_t), other, at + 4000, 8));
  IS(0, CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), other + 8, "12345678", 8));
  OK(wait_for_all());
  IS(0, memcmp((unsigned char *)(uintptr_t)other + 8, "12345678", 8));
  OK(CALL(cuMemFree_v2, (devptr), other));
  IS(INVALID_VALUE, CALL(cuMemFree_v2, (devptr), other));
  OK(CALL(cuMemFree_v2, (devptr), at));
  IS(INVALID_VALUE, CALL(cuMemAllocManaged, (devptr *, size_t, unsigned), &at, 100, 3));
  IS(INVALID_VALUE, CALL(cuMemAllocManaged, (devptr *, size_t, unsigned), &at, 0, 1));
  IS(OUT_OF_MEMORY, CALL(cuMemAllocManaged, (devptr *, size_t, unsigned), &at, (size_t)1 << 45, 1));
}

/*
 * A copy after a kernel has the bytes that the kernel wrote to pinned memory, and a kernel sees the bytes of
 * a copy.
 */
static void in_order(void) {
  if (attribute(CAN_MAP) == 0) return;
  for (size_t bytes = 256; bytes <= 1 << 20; bytes <<= 12) {
    unsigned *memory = pinned(bytes, 0), what = 3, out[64];
    devptr at = (devptr)(uintptr_t)memory, device = check_alloc(bytes);
    void *stream = NULL, *parameters[] = {&at, &what};
    MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
    for (unsigned i = 0; i < 64; i++) memory[i] = i;
    OK(launch(function_of("add"), 64, parameters, stream));
    OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), device, memory, bytes, stream));
    OK(launch(function_of("add"), 64, parameters, stream));
    OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), out, device, 0));
    OK(CALL(cuStreamSynchronize, (void *), stream));
    OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), out, device, sizeof out));
    for (unsigned i = 0; i < 64; i++) IS(i + 3, out[i]);
    for (unsigned i = 0; i < 64; i++) IS(i + 6, memory[i]);
    OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), memory, device, bytes, stream));
    OK(launch(function_of("add"), 64, parameters, stream));
    OK(CALL(cuStreamSynchronize, (void *), stream));
    for (unsigned i = 0; i < 64; i++) IS(i + 6, memory[i]);
    OK(CALL(cuMemFreeHost, (void *), memory));
  }
}

/* A kernel that waits for the program while it runs. */
static void at_the_same_time(void) {
  devptr at = 0;
  if (attribute(CONCURRENT) == 0) return;
  MUST(CALL(cuMemAllocManaged, (devptr *, size_t, unsigned), &at, 4096, 1));
  volatile unsigned *words = (unsigned *)(uintptr_t)at;
  void *parameters[] = {&at};
  OK(launch(function_of("talk"), 1, parameters, NULL));
  for (int i = 0; i < 20000 && words[0] == 0; i++) usleep(1000);
  IS(1, words[0]);
  IS(0, words[2]);
  words[1] = 41;
  OK(wait_for_all());
  IS(42, words[2]);
  OK(CALL(cuMemFree_v2, (devptr), at));
}

static void advice(void) {
  devptr at = 0, plain = check_alloc(4096);
  int value = 9, where[3];
  IS(INVALID_VALUE, CALL(cuMemAdvise, (devptr, size_t, int, int), plain, 4096, 1, 0));
  if (attribute(MANAGED) == 0) return;
  MUST(CALL(cuMemAllocManaged, (devptr *, size_t, unsigned), &at, 8192, 1));
  OK(CALL(cuMemRangeGetAttribute, (void *, size_t, int, devptr, size_t), &value, 4, 2, at, 8192));
  IS(-2, value);
  OK(CALL(cuMemAdvise, (devptr, size_t, int, int), at, 8192, 1, 0));
  OK(CALL(cuMemAdvise, (devptr, size_t, int, int), at, 8192, 3, -1));
  OK(CALL(cuMemAdvise, (devptr, size_t, int, int), at, 8192, 5, 0));
  IS(INVALID_DEVICE, CALL(cuMemAdvise, (devptr, size_t, int, int), at, 8192, 3, 77));
  IS(INVALID_VALUE, CALL(cuMemAdvise, (devptr, size_t, int, int), at, 8193, 1, 0));
  OK(CALL(cuMemPrefetchAsync, (devptr, size_t, int, void *), at, 8192, 0, NULL));
  IS(INVALID_DEVICE, CALL(cuMemPrefetchAsync, (devptr, size_t, int, void *), at, 8192, 5, NULL));
  OK(CALL(cuMemRangeGetAttribute, (void *, size_t, int, devptr, size_t), &value, 4, 1, at, 8192));
  IS(1, value);
  OK(CALL(cuMemRangeGetAttribute, (void *, size_t, int, devptr, size_t), &value, 4, 2, at, 8192));
  IS(-1, value);
  OK(CALL(cuMemRangeGetAttribute, (void *, size_t, int, devptr, size_t), &value, 4, 4, at, 8192));
  IS(0, value);
  OK(CALL(cuMemRangeGetAttribute, (void *, size_t, int, devptr, size_t), where, 12, 3, at, 8192));
  TRUE(where[0] == 0 && where[1] == -2 && where[2] == -2);
  OK(CALL(cuStreamAttachMemAsync, (void *, devptr, size_t, unsigned), NULL, at, 0, 1));
  IS(INVALID_VALUE, CALL(cuStreamAttachMemAsync, (void *, devptr, size_t, unsigned), NULL, plain, 0, 1));
  OK(CALL(cuMemFree_v2, (devptr), at));
}

/* Many small allocations. Memory that was freed can be allocated again. */
static void many(void) {
  enum { COUNT = 300 };
  static unsigned *all[COUNT];
  for (int round = 0; round < 2; round++) {
    for (unsigned i = 0; i < COUNT; i++) {
      all[i] = pinned(64, MAPPED);
      all[i][0] = i;
    }
    for (unsigned i = 0; i < COUNT; i++) IS(i, all[i][0]);
    for (unsigned i = 0; i < COUNT; i++) OK(CALL(cuMemFreeHost, (void *), all[i]));
  }
}

static int alloc_managed(devptr *at, size_t bytes) {
  return CALL(cuMemAllocManaged, (devptr *, size_t, unsigned), at, bytes, 1);
}

static void arrived(void) {
  enum { WORDS = 1 << 18 };
  static unsigned source[WORDS];
  devptr at = 0;
  if (attribute(MANAGED) == 0) {
    IS(NOT_SUPPORTED, alloc_managed(&at, sizeof source));
    return;
  }
  MUST(alloc_managed(&at, sizeof source));
  const volatile unsigned *numbers = (const volatile unsigned *)(uintptr_t)at;
  devptr device = check_alloc(sizeof source);
  for (unsigned round = 1; round <= 20; round++) {
    for (unsigned i = 0; i < WORDS; i++) source[i] = i * round;
    OK(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), at, source, sizeof source));
    IS((WORDS - 1) * round, numbers[WORDS - 1]);
    source[WORDS - 1] = round;
    OK(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), device, source, sizeof source));
    OK(CALL(cuMemcpyDtoD_v2, (devptr, devptr, size_t), at, device, sizeof source));
    IS(round, numbers[WORDS - 1]);
  }
  OK(CALL(cuMemFree_v2, (devptr), at));
}

static const char variables_text[] =
    ".version 6.0\n.target sm_60\n.address_size 64\n"
    ".visible .global .attribute(.managed) .align 4 .u32 shared_word = 5;\n"
    ".visible .global .align 4 .u32 plain_word = 6;\n"
    ".visible .global .align 8 .u64 where = shared_word;\n"
    ".visible .entry go() { .reg .b64 %p; .reg .b32 %v; ld.global.u64 %p, [where];\n"
    "ld.u32 %v, [%p]; add.u32 %v, %v, 10; st.u32 [%p], %v;\n"
    "ld.global.u32 %v, [shared_word]; add.u32 %v, %v, 100; st.global.u32 [shared_word], %v;\n"
    "ld.global.u32 %v, [plain_word]; add.u32 %v, %v, 1; st.global.u32 [plain_word], %v; ret; }\n";

static int variable(void *of, const char *name, devptr *at, size_t *bytes) {
  return CALL(cuModuleGetGlobal_v2, (devptr *, size_t *, void *, const char *), at, bytes, of, name);
}

static int managed_of(devptr *at, size_t *bytes, void *library, const char *name) {
  return CALL(cuLibraryGetManaged, (devptr *, size_t *, void *, const char *), at, bytes, library, name);
}

static unsigned word(devptr at) {
  unsigned value = 0xdead;
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &value, at, 4));
  return value;
}

static void variables(void) {
  void *code = NULL, *go = NULL, *library = NULL;
  devptr at = 0, plain = 0, again = 0;
  size_t bytes = 0;
  int is_managed = -1;
  MUST(CALL(cuModuleLoadData, (void **, const void *), &code, variables_text));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &go, code, "go"));
  OK(launch(go, 1, NULL, NULL)); /* before any call asks for an address */
  OK(variable(code, "plain_word", &plain, &bytes));
  IS(7, word(plain));
  OK(variable(code, "shared_word", &at, &bytes));
  IS(4, bytes);
  IS(115, word(at));
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &is_managed, 8, at));
  IS(attribute(MANAGED) != 0, is_managed);
  IS(INVALID_VALUE, CALL(cuMemFree_v2, (devptr), at));
  MUST(CALL(cuLibraryLoadData, (void **, const void *, void *, void *, unsigned, void *, void *, unsigned),
            &library, variables_text, NULL, NULL, 0, NULL, NULL, 0));
  if (attribute(MANAGED) == 0) {
    IS(NOT_SUPPORTED, managed_of(&again, &bytes, library, "shared_word"));
    IS(0, again);
  } else {
    unsigned *numbers = (unsigned *)(uintptr_t)at;
    IS(115, *numbers);
    *numbers = 1000;
    OK(launch(go, 1, NULL, NULL));
    OK(wait_for_all());
    IS(1110, *numbers);
    IS(8, word(plain));
    IS(500, managed_of(&again, &bytes, library, "nothing"));
    IS(500, managed_of(&again, &bytes, library, "plain_word"));
    IS(INVALID_VALUE, managed_of(&again, &bytes, library, NULL));
    IS(INVALID_VALUE, managed_of(&again, &bytes, library, ""));
    IS(INVALID_HANDLE, managed_of(&again, &bytes, NULL, "shared_word"));
    OK(managed_of(NULL, &bytes, library, "shared_word"));
    OK(managed_of(&again, NULL, library, "shared_word"));
    TRUE(again != at); /* another module, another variable */
    IS(5, *(unsigned *)(uintptr_t)again);
  }
  OK(CALL(cuLibraryUnload, (void *), library));
  OK(CALL(cuModuleUnload, (void *), code));
  IS(INVALID_VALUE, CALL(cuPointerGetAttribute, (void *, int, devptr), &is_managed, 8, at));
  OK(wait_for_all());
}

static const struct check_case cases[] = {{"offered", offered},
                                          {"mapped", mapped},
                                          {"managed", managed},
                                          {"in_order", in_order},
                                          {"at_the_same_time", at_the_same_time},
                                          {"arrived", arrived},
                                          {"variables", variables},
                                          {"advice", advice},
                                          {"many", many}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
