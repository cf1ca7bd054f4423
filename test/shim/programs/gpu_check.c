/*
 * gpu_check LIBRARY leave|look MEGABYTES: fills device memory with a word and ends without freeing it; or
 * counts that word in memory that was never written since. gpu_check LIBRARY [quick]: what scripts/gpu-check
 * runs twice, on the driver itself and through the shim. Adds two vectors with PTX of our own, checks every
 * element, and measures calls and copies. The last line on stdout is a JSON object; exit 0 when the numbers
 * are right, 1 when not or when a call failed (named in "error").
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define VGPU_CUDA_EXPORTED_NAMES
#include "cuda_api.h"

static const char ptx[] =
    ".version 6.4\n.target sm_52\n.address_size 64\n"
    ".visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n{\n"
    ".reg .pred %p<2>;\n.reg .f32 %f<4>;\n.reg .b32 %r<6>;\n.reg .b64 %d<11>;\n"
    "ld.param.u64 %d1, [a];\nld.param.u64 %d2, [b];\nld.param.u64 %d3, [c];\nld.param.u32 %r1, [n];\n"
    "mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\n"
    "mad.lo.s32 %r5, %r2, %r3, %r4;\nsetp.ge.u32 %p1, %r5, %r1;\n@%p1 bra DONE;\n"
    "cvta.to.global.u64 %d4, %d1;\ncvta.to.global.u64 %d5, %d2;\ncvta.to.global.u64 %d6, %d3;\n"
    "mul.wide.u32 %d7, %r5, 4;\nadd.s64 %d8, %d4, %d7;\nadd.s64 %d9, %d5, %d7;\nadd.s64 %d10, %d6, %d7;\n"
    "ld.global.f32 %f1, [%d8];\nld.global.f32 %f2, [%d9];\nadd.f32 %f3, %f1, %f2;\n"
    "st.global.f32 [%d10], %f3;\nDONE:\nret;\n}\n";

static void *library;

_Noreturn static void fail(const char *step, int code) {
  printf("\n{\"ok\":false,\"error\":{\"step\":\"%s\",\"code\":%d}}\n", step, code);
  exit(1);
}

static void *symbol(const char *name) {
  void *found = dlsym(library, name);
  if (found == NULL) fail(name, -1);
  return found;
}

#define CALL(name, ...)                                                                                      \
  do {                                                                                                       \
    __typeof__(name) *call_entry;                                                                            \
    void *call_found = symbol(#name);                                                                        \
    memcpy(&call_entry, &call_found, sizeof call_found);                                                     \
    int call_code = call_entry(__VA_ARGS__);                                                                 \
    if (call_code != 0) fail(#name, call_code);                                                              \
  } while (0)

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, compare);
  return values[count / 2];
}

static void launch(void *function, uint64_t a, uint64_t b, uint64_t c, uint32_t n) {
  void *parameters[] = {&a, &b, &c, &n};
  CALL(cuLaunchKernel, function, (n + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL);
}

/* FNV-1a over the result, which is compared between the two runs. */
static uint64_t add_vectors(void *function, uint32_t n, uint32_t *wrong) {
  uint64_t a, b, c, hash = 0xcbf29ce484222325u;
  size_t bytes = (size_t)n * sizeof(float);
  float *left = malloc(bytes), *right = malloc(bytes), *sum = malloc(bytes);
  if (left == NULL || right == NULL || sum == NULL) fail("malloc", 0);
  for (uint32_t i = 0; i < n; i++) {
    left[i] = (float)i * 0.37f;
    right[i] = 1.0f / (float)(i + 1);
  }
  CALL(cuMemAlloc_v2, &a, bytes);
  CALL(cuMemAlloc_v2, &b, bytes);
  CALL(cuMemAlloc_v2, &c, bytes);
  CALL(cuMemcpyHtoD_v2, a, left, bytes);
  CALL(cuMemcpyHtoD_v2, b, right, bytes);
  launch(function, a, b, c, n);
  CALL(cuMemcpyDtoH_v2, sum, c, bytes);
  *wrong = 0;
  for (uint32_t i = 0; i < n; i++) *wrong += sum[i] != left[i] + right[i];
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((unsigned char *)sum)[i]) * 0x100000001b3u;
  CALL(cuMemFree_v2, a);
  CALL(cuMemFree_v2, b);
  CALL(cuMemFree_v2, c);
  free(left);
  free(right);
  free(sum);
  return hash;
}

static void measure_calls(void *function, int count) {
  double *times = malloc((size_t)count * sizeof *times);
  uint64_t memory;
  size_t unused, total;
  if (times == NULL) fail("malloc", 0);
  CALL(cuMemAlloc_v2, &memory, 4096);
  launch(function, memory, memory, memory, 1);
  CALL(cuStreamSynchronize, NULL);
  for (int i = 0; i < count; i++) {
    double start = now();
    CALL(cuMemGetInfo_v2, &unused, &total);
    times[i] = now() - start;
  }
  printf("\"microseconds\":{\"waitingCall\":%.3f,", median(times, count));
  double start = now();
  for (int i = 0; i < count; i++) launch(function, memory, memory, memory, 1);
  double posted = now() - start;
  CALL(cuStreamSynchronize, NULL);
  printf("\"launchCall\":%.3f,\"launchThroughput\":%.3f,", posted / count, (now() - start) / count);
  for (int i = 0; i < count; i++) {
    start = now();
    launch(function, memory, memory, memory, 1);
    CALL(cuStreamSynchronize, NULL);
    times[i] = now() - start;
  }
  printf("\"launchAndSynchronize\":%.3f,", median(times, count));
  CALL(cuMemFree_v2, memory);
  free(times);
}

/* Microseconds of a graph of GRAPH_LAUNCHES kernels, launched and waited for. */
#define GRAPH_LAUNCHES 100
static void measure_graph(void *function, int count) {
  double *times = malloc((size_t)count * sizeof *times);
  struct vgpu_stream *stream;
  void *graph, *executable;
  uint64_t memory;
  if (times == NULL) fail("malloc", 0);
  CALL(cuMemAlloc_v2, &memory, 4096);
  CALL(cuStreamCreate, &stream, 1);
  CALL(cuStreamBeginCapture_v2, stream, 0);
  uint32_t n = 1;
  void *parameters[] = {&memory, &memory, &memory, &n};
  for (int i = 0; i < GRAPH_LAUNCHES; i++) {
    CALL(cuLaunchKernel, function, 1, 1, 1, 256, 1, 1, 0, stream, parameters, NULL);
  }
  CALL(cuStreamEndCapture, stream, &graph);
  CALL(cuGraphInstantiateWithFlags, &executable, graph, 0);
  for (int i = 0; i < count; i++) {
    double start = now();
    CALL(cuGraphLaunch, executable, stream);
    CALL(cuStreamSynchronize, stream);
    times[i] = now() - start;
  }
  printf("\"graph\":%.3f},", median(times, count));
  CALL(cuGraphExecDestroy, executable);
  CALL(cuGraphDestroy, graph);
  CALL(cuStreamDestroy_v2, stream);
  CALL(cuMemFree_v2, memory);
  free(times);
}

/* Bytes per microsecond are MB/s. The best of three rounds counts. */
static void measure_copies(const char *title, size_t largest, bool pinned) {
  uint64_t memory;
  void *host = NULL;
  const char *comma = "";
  CALL(cuMemAlloc_v2, &memory, largest);
  if (pinned) CALL(cuMemHostAlloc, &host, largest, 0);
  else host = malloc(largest);
  if (host == NULL) fail("malloc", 0);
  memset(host, 7, largest);
  printf("\"%s\":[", title);
  for (size_t size = 4096; size <= largest; size *= 16) {
    double best[2] = {0, 0};
    int repeat = size < (1u << 20) ? 100 : 3;
    for (int i = 0; i < repeat; i++) {
      double start = now();
      CALL(cuMemcpyHtoD_v2, memory, host, size);
      CALL(cuStreamSynchronize, NULL);
      double middle = now();
      CALL(cuMemcpyDtoH_v2, host, memory, size);
      double end = now(), rate[2] = {(double)size / (middle - start), (double)size / (end - middle)};
      for (int j = 0; j < 2; j++) best[j] = rate[j] > best[j] ? rate[j] : best[j];
    }
    printf("%s{\"bytes\":%zu,\"toDeviceMBs\":%.1f,\"toHostMBs\":%.1f}", comma, size, best[0], best[1]);
    comma = ",";
  }
  printf("],");
  if (pinned) CALL(cuMemFreeHost, host);
  else free(host);
  CALL(cuMemFree_v2, memory);
}

#define SECRET 0x9e3779b97f4a7c15u
#define CHUNK (1u << 20)

static int leave_or_look(bool leave, size_t megabytes) {
  uint64_t memory, found = 0, *chunk = malloc(CHUNK);
  if (chunk == NULL) fail("malloc", 0);
  CALL(cuMemAlloc_v2, &memory, megabytes * CHUNK);
  for (size_t i = 0; i < CHUNK / sizeof *chunk; i++) chunk[i] = SECRET;
  for (size_t i = 0; i < megabytes; i++) {
    if (leave) CALL(cuMemcpyHtoD_v2, memory + i * CHUNK, chunk, CHUNK);
    else CALL(cuMemcpyDtoH_v2, chunk, memory + i * CHUNK, CHUNK);
    for (size_t j = 0; !leave && j < CHUNK / sizeof *chunk; j++) found += chunk[j] == SECRET;
  }
  CALL(cuCtxSynchronize);
  printf("{\"ok\":true,\"found\":%" PRIu64 "}\n", found);
  fflush(stdout);
  _exit(0); /* the host must free its memory */
}

int main(int count, char **words) {
  if (count < 2) return 2;
  bool quick = count > 2 && strcmp(words[2], "quick") == 0;
  library = dlopen(words[1], RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) fail("dlopen", -1);
  struct vgpu_context *context;
  void *module, *function;
  int version = 0;
  char name[128] = "";
  CALL(cuInit, 0);
  CALL(cuDriverGetVersion, &version);
  CALL(cuDeviceGetName, name, sizeof name, 0);
  CALL(cuDevicePrimaryCtxRetain, &context, 0);
  CALL(cuCtxSetCurrent, context);
  if (count > 3) return leave_or_look(strcmp(words[2], "leave") == 0, strtoul(words[3], NULL, 10));
  CALL(cuModuleLoadData, &module, ptx);
  CALL(cuModuleGetFunction, &function, module, "add");
  uint32_t n = quick ? 100000 : 10000000, wrong = 0;
  uint64_t hash = add_vectors(function, n, &wrong);
  printf("{\"ok\":%s,\"name\":\"%s\",\"cuda\":%d,", wrong == 0 ? "true" : "false", name, version);
  measure_calls(function, quick ? 200 : 20000);
  measure_graph(function, quick ? 20 : 1000);
  measure_copies("pinnedCopies", quick ? 1u << 24 : 1u << 28, true);
  measure_copies("pageableCopies", quick ? 1u << 24 : 1u << 28, false);
  printf("\"elements\":%u,\"wrong\":%u,\"result\":\"%016" PRIx64 "\"}\n", n, wrong, hash);
  return wrong != 0;
}
