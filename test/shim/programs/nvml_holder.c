/*
 * nvml_holder BYTES: allocates device memory, prints "ready", and ends when stdin ends.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void *library;

static int call(const char *name, int result) {
  if (result != 0) fprintf(stderr, "%s: %d\n", name, result);
  return result != 0;
}

static void *find(const char *name) {
  void *symbol = dlsym(library, name);

  if (!symbol) {
    fprintf(stderr, "no %s\n", name);
    exit(1);
  }
  return symbol;
}

int main(int argc, char **argv) {
  uint64_t address = 0;
  void *context = NULL;

  library = argc == 2 ? dlopen("libcuda.so.1", RTLD_NOW) : NULL;
  if (!library) return 2;
  if (call("cuInit", ((int (*)(unsigned))find("cuInit"))(0)) ||
      call("cuDevicePrimaryCtxRetain",
           ((int (*)(void **, int))find("cuDevicePrimaryCtxRetain"))(&context, 0)) ||
      call("cuCtxSetCurrent", ((int (*)(void *))find("cuCtxSetCurrent"))(context)) ||
      call("cuMemAlloc_v2",
           ((int (*)(uint64_t *, size_t))find("cuMemAlloc_v2"))(&address, strtoull(argv[1], NULL, 10))))
    return 1;
  printf("ready\n");
  fflush(stdout);
  while (getchar() != EOF)
    ;
  return 0; /* not freed: the host must do that */
}
