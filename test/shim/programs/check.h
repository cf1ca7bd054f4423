/*
 * For programs that test libcuda.so.1 directly. `PROGRAM NAME` runs one case, prints each wrong result and
 * then exits with status 1. The loader finds the library in the usual way. The declarations are written by
 * hand from the public API, not generated from the description, because the description is under test, too.
 */
#ifndef VGPU_TEST_CHECK_H
#define VGPU_TEST_CHECK_H

#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t devptr;

static void *check_library;
static int check_failures;

static inline void *check_need(const char *name) {
  void *symbol = dlsym(check_library, name);
  if (symbol == NULL) {
    fprintf(stderr, "no %s\n", name);
    exit(3);
  }
  return symbol;
}

/* CALL(cuFoo, (int, void *), 1, NULL) */
#define CALL(name, types, ...) ((int(*) types)check_need(#name))(__VA_ARGS__)

#define IS(wanted, value)                                                                                    \
  do {                                                                                                       \
    long long wanted_ = (long long)(wanted), value_ = (long long)(value);                                    \
    if (wanted_ != value_) {                                                                                 \
      printf("%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #value, value_, wanted_);                  \
      check_failures++;                                                                                      \
    }                                                                                                        \
  } while (0)
#define OK(value) IS(0, value)
#define TRUE(value) IS(1, !!(value))

/* Like OK, but a failure ends the program, because the rest would make no sense. */
#define MUST(value)                                                                                          \
  do {                                                                                                       \
    int must_ = (value);                                                                                     \
    if (must_ != 0) {                                                                                        \
      printf("%s:%d: %s gave %d\n", __FILE__, __LINE__, #value, must_);                                      \
      exit(1);                                                                                               \
    }                                                                                                        \
  } while (0)

enum {
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  NOT_PERMITTED = 800,
  NOT_SUPPORTED = 801,
  SYSTEM_NOT_READY = 802,
};

struct check_case {
  const char *name;
  void (*run)(void);
};

/* Opens the library, makes the primary context current if `primary`, and runs the case. */
static inline int check_run(int argc, char **argv, const struct check_case *cases, size_t count,
                            bool primary) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  check_library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (check_library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  for (size_t i = 0; i < count; i++) {
    if (argc < 2) puts(cases[i].name);
    if (argc < 2 || strcmp(argv[1], cases[i].name) != 0) continue;
    void *context = NULL;
    MUST(CALL(cuInit, (unsigned), 0));
    if (primary) {
      MUST(CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0));
      MUST(CALL(cuCtxSetCurrent, (void *), context));
    }
    cases[i].run();
    return check_failures == 0 ? 0 : 1;
  }
  return argc < 2 ? 0 : 2;
}

static inline int check_main(int argc, char **argv, const struct check_case *cases, size_t count) {
  return check_run(argc, argv, cases, count, true);
}

/* Like check_main, without a context. */
static inline int check_bare(int argc, char **argv, const struct check_case *cases, size_t count) {
  return check_run(argc, argv, cases, count, false);
}

static inline devptr check_alloc(size_t bytes) {
  devptr made = 0;
  MUST(CALL(cuMemAlloc_v2, (devptr *, size_t), &made, bytes));
  return made;
}

static inline size_t check_free_memory(void) {
  size_t unused = 0, total = 0;
  MUST(CALL(cuMemGetInfo_v2, (size_t *, size_t *), &unused, &total));
  return unused;
}

/* Memory that lives as long as the program. */
void *check_kept[64];
static unsigned check_kept_count;

static inline unsigned char *check_bytes(size_t size) {
  unsigned char *bytes = calloc(1, size);
  if (bytes == NULL || check_kept_count == 64) exit(3);
  check_kept[check_kept_count++] = bytes;
  return bytes;
}

/*
 * A pattern that differs at every byte and every seed. Writes eight bytes a step, because some programs fill
 * hundreds of MiB.
 */
static inline void check_pattern(unsigned char *bytes, size_t size, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (size_t i = 0; i < size; i += sizeof state) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    uint64_t mixed = (state ^ state >> 32) * 0x9e3779b97f4a7c15ull;
    memcpy(bytes + i, &mixed, size - i < sizeof mixed ? size - i : sizeof mixed);
  }
}

#endif
