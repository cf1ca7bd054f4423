/*
 * ptx_guest DIRECTORY TARGET: a CUDA program without NVIDIA's runtime. Loads test/shim/kernels' PTX through
 * libcuda.so.1, launches, and checks the numbers; then faults, and goes on with a new context. One line for
 * each step, "NAME RESULT ..." with the CUresult; exit status 0 when it came to its end.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "library.h"

typedef uint64_t address;

static void *load(const char *directory, const char *name, const char *target, int *result) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.compute_%s.ptx", directory, name, target);
  FILE *f = fopen(path, "rb");
  static char text[1 << 20];
  if (f == NULL) exit(3);
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  fclose(f);
  void *module = NULL;
  *result = CALL((void **, const void *), cuModuleLoadData, &module, text);
  return module;
}

static int launch(void *module, const char *name, unsigned grid, unsigned block, void **parameters) {
  void *function = NULL;
  int result = CALL((void **, void *, const char *), cuModuleGetFunction, &function, module, name);
  if (result != 0) return result;
  return CALL((void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
               void **),
              cuLaunchKernel, function, grid, 1, 1, block, 1, 1, 0, NULL, parameters, NULL);
}

static int synchronize(void) {
  return CALL((void), cuCtxSynchronize);
}

static address allocate(size_t bytes) {
  address a = 0;
  if (CALL((address *, size_t), cuMemAlloc_v2, &a, bytes) != 0) exit(3);
  return a;
}

int main(int count, char **words) {
  if (count != 3) return 2;
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  void *context = NULL;
  int result = CALL((unsigned), cuInit, 0);
  if (result == 0) result = CALL((void **, unsigned, int), cuCtxCreate_v2, &context, 0, 0);
  printf("begin %d\n", result);
  if (result != 0) return 1;

  void *module = load(words[1], "parallel", words[2], &result);
  printf("load %d\n", result);
  enum { N = 10000 };
  static float a[N], b[N], c[N];
  for (int i = 0; i < N; i++) {
    a[i] = (float)i / 3;
    b[i] = (float)(N - i);
  }
  address da = allocate(sizeof a), db = allocate(sizeof b), dc = allocate(sizeof c);
  CALL((address, const void *, size_t), cuMemcpyHtoD_v2, da, a, sizeof a);
  CALL((address, const void *, size_t), cuMemcpyHtoD_v2, db, b, sizeof b);
  int n = N, wrong = 0;
  void *parameters[] = {&da, &db, &dc, &n};
  result = launch(module, "vector_add", (N + 127) / 128, 128, parameters);
  if (result == 0) result = synchronize();
  CALL((void *, address, size_t), cuMemcpyDtoH_v2, c, dc, sizeof c);
  for (int i = 0; i < N; i++) wrong += c[i] != a[i] + b[i];
  printf("vector_add %d wrong %d\n", result, wrong);

  void *control = load(words[1], "control", words[2], &result);
  address variable = 0;
  size_t bytes = 0;
  if (result == 0)
    result = CALL((address *, size_t *, void *, const char *), cuModuleGetGlobal_v2, &variable, &bytes,
                  control, "counter");
  int seven = 0, out = 0;
  CALL((address, const void *, size_t), cuMemcpyHtoD_v2, variable, &seven, 4);
  void *one[] = {&dc};
  int launched = launch(control, "variables", 1, 5, one);
  CALL((void *, address, size_t), cuMemcpyDtoH_v2, &seven, variable, 4);
  CALL((void *, address, size_t), cuMemcpyDtoH_v2, &out, dc, 4);
  printf("variables %d %d bytes %zu counter %d out %d\n", result, launched, bytes, seven, out);
  launched = launch(control, "allocates", 1, 64, one);
  static int sums[64];
  CALL((void *, address, size_t), cuMemcpyDtoH_v2, sums, dc, sizeof sums);
  printf("allocates %d last %d\n", launched, sums[63]);

  void *two[] = {&da, &dc};
  launch(control, "reads_beyond", 1, 32, two);
  int first = synchronize(), second = synchronize();
  printf("fault %d again %d\n", first, second);

  CALL((void *), cuCtxDestroy_v2, context);
  result = CALL((void **, unsigned, int), cuCtxCreate_v2, &context, 0, 0);
  if (result == 0) module = load(words[1], "parallel", words[2], &result);
  dc = allocate(4 * 300);
  if (result == 0) result = launch(module, "chained", 300, 32, one);
  static unsigned chain[300];
  CALL((void *, address, size_t), cuMemcpyDtoH_v2, chain, dc, sizeof chain);
  printf("afterwards %d %d last %u\n", result, synchronize(), chain[299]);
  return 0;
}
