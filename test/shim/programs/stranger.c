/*
 * stranger WHAT [NUMBER]: a guest that other guests have to live beside, and an honest one. One word a line:
 *
 *   endless        launches a kernel without an end, prints "launched" and sleeps
 *   blocks         launches a grid of two billion blocks that do nothing, prints "launched" and sleeps
 *   fill           fills 64 MiB of device memory and copies them, without an end; prints "launched" before
 *   queue N        launches N kernels of about a second each, prints "launched" and sleeps
 *   compile        loads and unloads a long module, without an end; prints "launched" before
 *   load N         launches kernels that count to N, without an end; prints "launched" after the first
 *   unmapped       stores to addresses that are reserved, and mapped in part; prints the CUresult of each
 *   local N        launches a kernel whose threads have N bytes of local memory; prints the CUresult
 *   modules N      loads the same module N times; prints how many could be loaded and the last CUresult
 *   rounds MS      writes, adds one in a kernel, reads back and compares for so long; prints how often
 *   pin N          allocates N times a MiB of pinned memory and of managed memory, writes to it, prints how
 *                  often that succeeded and the number of a child that inherits it, and sleeps
 *   memory         prints what cuMemGetInfo, cuDeviceTotalMem and a fresh allocation say
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "library.h"

typedef uint64_t address;

#define HEAD ".version 7.0\n.target sm_50\n.address_size 64\n"

static const char endless_ptx[] = HEAD ".visible .entry k(.param .u64 p) {\n"
                                       " .reg .u32 %r<2>;\n mov.u32 %r1, 1;\n"
                                       "L: add.u32 %r1, %r1, 1;\n bra L;\n ret; }\n";

static const char empty_ptx[] = HEAD ".visible .entry k(.param .u64 p) { ret; }\n";

static const char add_ptx[] =
    HEAD ".visible .entry k(.param .u64 p) {\n"
         " .reg .u64 %d<4>;\n .reg .u32 %r<4>;\n"
         " ld.param.u64 %d1, [p];\n cvta.to.global.u64 %d1, %d1;\n"
         " mov.u32 %r1, %tid.x;\n mul.wide.u32 %d2, %r1, 4;\n add.u64 %d3, %d1, %d2;\n"
         " ld.global.u32 %r2, [%d3];\n add.u32 %r2, %r2, 1;\n st.global.u32 [%d3], %r2;\n ret; }\n";

/* Counts to its parameter. */
static const char count_ptx[] = HEAD ".visible .entry k(.param .u64 p) {\n"
                                     " .reg .u32 %r<3>;\n .reg .pred %q;\n mov.u32 %r1, 0;\n"
                                     " ld.param.u32 %r2, [p];\n"
                                     "L:\n add.u32 %r1, %r1, 1;\n setp.ne.u32 %q, %r1, %r2;\n @%q bra L;\n"
                                     " ret; }\n";
static const char print_ptx[] =
    HEAD ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
         ".global .align 1 .b8 text[27] = "
         "{97,32,108,105,110,101,32,116,104,97,116,32,115,97,121,115,32,110,111,116,"
         "104,105,110,103,33,10,0};\n"
         ".visible .entry k(.param .u64 p) {\n"
         " .reg .u64 %d<3>;\n .reg .u32 %r<3>;\n .reg .pred %q;\n"
         " ld.param.u64 %d1, [p];\n cvt.u32.u64 %r1, %d1;\n"
         "L: mov.u64 %d1, text;\n cvta.global.u64 %d2, %d1;\n"
         " { .param .b64 a; st.param.b64 [a], %d2; .param .b64 b; st.param.b64 [b], 0; .param .b32 r;\n"
         "  call.uni (r), vprintf, (a, b); ld.param.b32 %r2, [r]; }\n"
         " sub.u32 %r1, %r1, 1;\n setp.ne.u32 %q, %r1, 0;\n @%q bra L;\n ret; }\n";

static void *function_of(const char *ptx, int *result) {
  void *module = NULL, *function = NULL;
  *result = CALL((void **, const void *), cuModuleLoadData, &module, ptx);
  if (*result == 0)
    *result = CALL((void **, void *, const char *), cuModuleGetFunction, &function, module, "k");
  return function;
}

static int launch(void *function, unsigned grid, unsigned block, address argument) {
  void *parameters[] = {&argument};
  return CALL((void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
               void **),
              cuLaunchKernel, function, grid, 1, 1, block, 1, 1, 0, NULL, parameters, NULL);
}

static int synchronize(void) {
  return CALL((void), cuCtxSynchronize);
}

/* Returns the first failure. A launch has no answer, so its failure shows when the guest waits. */
static int run(void *function, unsigned grid, unsigned block, address argument) {
  int result = launch(function, grid, block, argument);
  int after = synchronize();
  return result != 0 ? result : after;
}

static void sleep_for_ever(void) {
  puts("launched");
  fflush(stdout);
  for (;;) pause();
}

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

struct location {
  int type, id;
};
struct properties { /* CUmemAllocationProp */
  int type, handle_types;
  struct location location;
  void *meta;
  unsigned char flags[8];
};
struct access {
  struct location location;
  int flags;
};

#define PIECE ((size_t)2 << 20)

/* A context cannot be used after a fault, so each attempt has its own. */
static int store_at(address base, size_t offset) {
  int result;
  void *function = function_of(add_ptx, &result);
  return result != 0 ? result : run(function, 1, 32, base + offset);
}

static address reserve_and_map(void) {
  address base = 0;
  unsigned long long handle = 0;
  struct properties properties = {.type = 1, .location = {.type = 1, .id = 0}};
  struct access access = {.location = {.type = 1, .id = 0}, .flags = 3};
  if (CALL((address *, size_t, size_t, address, unsigned long long), cuMemAddressReserve, &base, 2 * PIECE, 0,
           0, 0) != 0 ||
      CALL((unsigned long long *, size_t, const struct properties *, unsigned long long), cuMemCreate,
           &handle, PIECE, &properties, 0) != 0 ||
      CALL((address, size_t, size_t, unsigned long long, unsigned long long), cuMemMap, base, PIECE, 0,
           handle, 0) != 0 ||
      CALL((address, size_t, const struct access *, size_t), cuMemSetAccess, base, PIECE, &access, 1) != 0) {
    exit(4);
  }
  return base;
}

static void unmapped(void) {
  const size_t offsets[] = {0, PIECE - 128, PIECE - 64, PIECE, 2 * PIECE - 128};
  for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
    void *context = NULL;
    if (CALL((void **, unsigned, int), cuCtxCreate_v2, &context, 0, 0) != 0) exit(4);
    address base = reserve_and_map();
    printf("%d\n", store_at(base, offsets[i]));
    CALL((void *), cuCtxDestroy_v2, context);
  }
}

static void local(unsigned bytes) {
  static char text[2000];
  snprintf(text, sizeof text,
           HEAD ".visible .entry k(.param .u64 p) {\n .local .align 8 .b8 d[%u];\n .reg .u32 %%r<2>;\n"
                " mov.u32 %%r1, 7;\n st.local.u32 [d+%u], %%r1;\n ret; }\n",
           bytes, bytes - 8);
  int result;
  void *function = function_of(text, &result);
  if (result == 0) result = run(function, 1, 1024, 0);
  printf("%d\n", result);
}

/* The text is short, but each instruction is decoded, so the code is large. */
static void modules(unsigned count) {
  enum { LINES = 20000 };
  char *text = malloc(200 + LINES * 32), *at = text;
  if (text == NULL) exit(4);
  at += sprintf(at, HEAD ".visible .entry k(.param .u64 p) {\n .reg .u32 %%r<2>;\n");
  for (int i = 0; i < LINES; i++) at += sprintf(at, "add.u32 %%r1, %%r1, 1;\n");
  sprintf(at, "ret; }\n");
  unsigned loaded = 0;
  int result = 0;
  for (; loaded < count; loaded++) {
    void *module;
    result = CALL((void **, const void *), cuModuleLoadData, &module, text);
    if (result != 0) break;
  }
  free(text);
  printf("%u %d\n", loaded, result);
}

static void rounds(unsigned limit_ms) {
  int result;
  void *function = function_of(add_ptx, &result);
  address memory = 0;
  if (result != 0 || CALL((address *, size_t), cuMemAlloc_v2, &memory, 4096) != 0) exit(4);
  uint32_t numbers[32], done = 0;
  for (uint64_t until = now_ms() + limit_ms; now_ms() < until; done++) {
    for (uint32_t i = 0; i < 32; i++) numbers[i] = i * done;
    if (CALL((address, const void *, size_t), cuMemcpyHtoD_v2, memory, numbers, sizeof numbers) != 0) exit(5);
    if (launch(function, 1, 32, memory) != 0) exit(5);
    if (CALL((void *, address, size_t), cuMemcpyDtoH_v2, numbers, memory, sizeof numbers) != 0) exit(5);
    for (uint32_t i = 0; i < 32; i++) {
      if (numbers[i] != i * done + 1) exit(6);
    }
  }
  printf("%u\n", done);
}

/* Compiles without a pause; never ends. */
static int compile(void) {
  enum { LINES = 20000 };
  char *text = malloc(200 + LINES * 32), *at = text;
  if (text == NULL) exit(4);
  at += sprintf(at, HEAD ".visible .entry k(.param .u64 p) {\n .reg .u32 %%r<2>;\n");
  for (int i = 0; i < LINES; i++) at += sprintf(at, "add.u32 %%r1, %%r1, 1;\n");
  sprintf(at, "ret; }\n");
  puts("launched");
  fflush(stdout);
  for (int result = 0; result == 0;) {
    void *module, *function;
    result = CALL((void **, const void *), cuModuleLoadData, &module, text);
    if (result == 0)
      result = CALL((void **, void *, const char *), cuModuleGetFunction, &function, module, "k");
    if (result == 0) result = CALL((void *), cuModuleUnload, module);
  }
  return 1;
}

/* Launches without a pause, and waits after each 16; never ends. */
static int load(unsigned number) {
  int result;
  void *function = function_of(count_ptx, &result);
  for (unsigned i = 0; result == 0; i++) {
    result = launch(function, 4, 32, number);
    if (result == 0 && i % 16 == 0) result = ((int (*)(void))need("cuCtxSynchronize"))();
    if (i == 0) puts("launched");
    fflush(stdout);
  }
  return result;
}

static void memory(void) {
  size_t unused = 0, total = 0, device = 0;
  CALL((size_t *, size_t *), cuMemGetInfo_v2, &unused, &total);
  CALL((size_t *, int), cuDeviceTotalMem_v2, &device, 0);
  address place = 0;
  int all = CALL((address *, size_t), cuMemAlloc_v2, &place, unused);
  int more = CALL((address *, size_t), cuMemAlloc_v2, &place, 4096);
  printf("%zu %zu %zu %d %d\n", unused, total, device, all, more);
}

static int fill(void) {
  address memory = 0, other = 0;
  const size_t size = 64u << 20;
  if (CALL((address *, size_t), cuMemAlloc_v2, &memory, size) != 0 ||
      CALL((address *, size_t), cuMemAlloc_v2, &other, size) != 0)
    return 1;
  puts("launched");
  fflush(stdout);
  for (;;) {
    if (CALL((address, unsigned char, size_t), cuMemsetD8_v2, memory, 7, size) != 0 ||
        CALL((address, address, size_t), cuMemcpyDtoD_v2, other, memory, size) != 0 ||
        ((int (*)(void))need("cuCtxSynchronize"))() != 0)
      return 1;
  }
}

static _Noreturn void pin(unsigned number) {
  unsigned pinned = 0, managed = 0, sum = 0;
  volatile unsigned char *first = NULL;
  for (unsigned i = 0; i < number; i++) {
    void *memory = NULL;
    address place = 0;
    if (CALL((void **, size_t, unsigned), cuMemHostAlloc, &memory, 1u << 20, 0) == 0) {
      memset(memory, 1, 1u << 20);
      if (first == NULL) first = memory;
      pinned++;
    }
    if (CALL((address *, size_t, unsigned), cuMemAllocManaged, &place, 1u << 20, 1) == 0) {
      memset((void *)(uintptr_t)place, 1, 1u << 20);
      managed++;
    }
  }
  if (first != NULL && fork() == 0) {
    for (unsigned i = 0; i < 1u << 20; i += 4096) sum += first[i];
    printf("%u %u %ld %u\n", pinned, managed, (long)getpid(), sum);
    fflush(stdout);
  }
  for (;;) pause();
}

int main(int count, char **words) {
  const char *what = count > 1 ? words[1] : "";
  unsigned number = count > 2 ? (unsigned)strtoul(words[2], NULL, 10) : 0;
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  void *context = NULL;
  int result = CALL((unsigned), cuInit, 0);
  if (result == 0) result = CALL((void **, unsigned, int), cuCtxCreate_v2, &context, 0, 0);
  if (result != 0) {
    printf("no context: %d\n", result);
    return 1;
  }
  if (strcmp(what, "endless") == 0) {
    void *function = function_of(endless_ptx, &result);
    if (result == 0) result = launch(function, 4, 32, 0);
    if (result == 0) sleep_for_ever();
  } else if (strcmp(what, "blocks") == 0) {
    void *function = function_of(empty_ptx, &result);
    if (result == 0) result = launch(function, 0x7fffffff, 32, 0);
    if (result == 0) sleep_for_ever();
  } else if (strcmp(what, "fill") == 0) {
    result = fill();
  } else if (strcmp(what, "compile") == 0) {
    result = compile();
  } else if (strcmp(what, "load") == 0) {
    result = load(number);
  } else if (strcmp(what, "queue") == 0) {
    void *function = function_of(print_ptx, &result);
    for (unsigned i = 0; result == 0 && i < number; i++) result = launch(function, 1, 1, 100000);
    if (result == 0) sleep_for_ever();
  } else if (strcmp(what, "unmapped") == 0) {
    unmapped();
  } else if (strcmp(what, "local") == 0) {
    local(number);
  } else if (strcmp(what, "modules") == 0) {
    modules(number);
  } else if (strcmp(what, "rounds") == 0) {
    rounds(number);
  } else if (strcmp(what, "pin") == 0) {
    pin(number);
  } else if (strcmp(what, "memory") == 0) {
    memory();
  } else {
    fprintf(stderr, "\"%s\" is not known\n", what);
    return 2;
  }
  return result == 0 ? 0 : 1;
}
