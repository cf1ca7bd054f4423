/*
 * private_runtime LIBCUDART: starts a CUDA program through NVIDIA's own runtime, of any version: its calls
 * are looked up, so no header is needed. Prints its observations as JSON. If a call fails, prints that call
 * on stderr and exits with status 1.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TO_DEVICE = 1, FROM_DEVICE = 2, WITHIN = 3, BYTES = 4 * 1024 * 1024 };

static void *library;

static void *find(const char *name) {
  void *symbol = dlsym(library, name);

  if (!symbol) {
    fprintf(stderr, "no %s\n", name);
    exit(1);
  }
  return symbol;
}

static void good(const char *name, int result) {
  if (result == 0) return;
  const char *(*text)(int) = (const char *(*)(int))find("cudaGetErrorString");
  fprintf(stderr, "%s: %d %s\n", name, result, text(result));
  exit(1);
}

#define CALL(name, type, ...) good(#name, ((int(*) type)find(#name))(__VA_ARGS__))

/* The work of one thread: the runtime looks its state up by context at each of these calls. */
static void *work(void *argument) {
  unsigned char seed = (unsigned char)(uintptr_t)argument, small[512], back[512];
  void *memory = NULL;

  for (int i = 0; i < 100; i++) {
    memset(small, seed + i, sizeof small);
    CALL(cudaSetDevice, (int), 0);
    CALL(cudaMalloc, (void **, size_t), &memory, sizeof small);
    CALL(cudaMemcpy, (void *, const void *, size_t, int), memory, small, sizeof small, TO_DEVICE);
    CALL(cudaMemcpy, (void *, const void *, size_t, int), back, memory, sizeof back, FROM_DEVICE);
    CALL(cudaFree, (void *), memory);
    if (memcmp(small, back, sizeof small) != 0) {
      fprintf(stderr, "a thread got other bytes than it sent\n");
      exit(1);
    }
  }
  return NULL;
}

/* After cudaDeviceReset the runtime must find nothing of the former context, and must set itself up again. */
static void work_in_threads_after_a_reset(void) {
  pthread_t threads[8];

  for (int round = 0; round < 3; round++) {
    for (uintptr_t i = 0; i < 8; i++) pthread_create(&threads[i], NULL, work, (void *)(i * 31));
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    CALL(cudaDeviceReset, (void), );
  }
}

int main(int argc, char **argv) {
  static unsigned char properties[8192]; /* larger than cudaDeviceProp of any version */
  static unsigned char sent[BYTES], got[BYTES];
  int driver = 0, runtime = 0, count = 0, processors = 0, major = 0, minor = 0;
  size_t before = 0, after = 0, last = 0, total = 0, memory;
  void *first = NULL, *second = NULL;

  library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
  if (!library) {
    fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: private_runtime LIBCUDART");
    return 2;
  }
  CALL(cudaDriverGetVersion, (int *), &driver);
  CALL(cudaRuntimeGetVersion, (int *), &runtime);
  CALL(cudaGetDeviceCount, (int *), &count);
  CALL(cudaGetDeviceProperties, (void *, int), properties, 0);
  memcpy(&memory, properties + 288, sizeof memory); /* after name, uuid and luid, in every version */
  CALL(cudaDeviceGetAttribute, (int *, int, int), &processors, 16, 0);
  CALL(cudaDeviceGetAttribute, (int *, int, int), &major, 75, 0);
  CALL(cudaDeviceGetAttribute, (int *, int, int), &minor, 76, 0);

  CALL(cudaMemGetInfo, (size_t *, size_t *), &before, &total);
  CALL(cudaMalloc, (void **, size_t), &first, BYTES);
  CALL(cudaMalloc, (void **, size_t), &second, BYTES);
  CALL(cudaMemGetInfo, (size_t *, size_t *), &after, &total);
  for (uint32_t i = 0; i < BYTES; i++) sent[i] = (unsigned char)(i * 2654435761u >> 13);
  CALL(cudaMemcpy, (void *, const void *, size_t, int), first, sent, BYTES, TO_DEVICE);
  CALL(cudaMemcpy, (void *, const void *, size_t, int), second, first, BYTES, WITHIN);
  CALL(cudaMemset, (void *, int, size_t), (char *)second + 4097, 0x5a, 65537);
  memset(sent + 4097, 0x5a, 65537);
  CALL(cudaMemcpy, (void *, const void *, size_t, int), got, second, BYTES, FROM_DEVICE);
  CALL(cudaDeviceSynchronize, (void), );
  CALL(cudaFree, (void *), first);
  CALL(cudaFree, (void *), second);
  CALL(cudaMemGetInfo, (size_t *, size_t *), &last, &total);
  CALL(cudaDeviceReset, (void), );
  work_in_threads_after_a_reset();

  printf("{\"driver\": %d, \"runtime\": %d, \"count\": %d, \"name\": \"%.255s\", \"memory\": %zu, "
         "\"processors\": %d, \"compute\": \"%d.%d\", \"total\": %zu, \"taken\": %zu, \"kept\": "
         "%zu, "
         "\"equal\": %s}\n",
         driver, runtime, count, (const char *)properties, memory, processors, major, minor, total,
         before - after, before - last, memcmp(sent, got, BYTES) == 0 ? "true" : "false");
  return 0;
}
