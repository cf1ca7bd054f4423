#include "sides.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct side sides[2];
size_t side_count;
struct driver cuda;

struct side *turn(size_t number) {
  cuda = sides[number].driver;
  return &sides[number];
}

static void find(void *library, const char *name, void *target) {
  void *symbol = dlsym(library, name);
  if (symbol == NULL) fail(name, 0);
  memcpy(target, &symbol, sizeof symbol);
}

void load(const char *path) {
  void *library = dlopen(path, RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "shim_bench: %s\n", dlerror());
    exit(1);
  }
  find(library, "cuInit", &cuda.init);
  find(library, "cuDeviceGetCount", &cuda.count);
  find(library, "cuCtxCreate_v2", &cuda.context);
  find(library, "cuCtxSynchronize", &cuda.synchronize);
  find(library, "cuMemGetInfo_v2", &cuda.info);
  find(library, "cuMemAlloc_v2", &cuda.allocate);
  find(library, "cuMemFree_v2", &cuda.release);
  find(library, "cuMemsetD8_v2", &cuda.set);
  find(library, "cuMemcpyHtoD_v2", &cuda.to);
  find(library, "cuMemcpyDtoH_v2", &cuda.from);
  find(library, "cuMemHostAlloc", &cuda.pin);
  find(library, "cuModuleLoadData", &cuda.module);
  find(library, "cuModuleGetFunction", &cuda.function);
  find(library, "cuLaunchKernel", &cuda.launch);
  find(library, "cuStreamCreate", &cuda.stream);
  find(library, "cuStreamSynchronize", &cuda.wait);
  find(library, "cuMemsetD8Async", &cuda.set_async);
  find(library, "cuMemcpyHtoDAsync_v2", &cuda.to_async);
  find(library, "cuMemcpyDtoHAsync_v2", &cuda.from_async);
  find(library, "cuStreamBeginCapture_v2", &cuda.capture);
  find(library, "cuStreamEndCapture", &cuda.captured);
  find(library, "cuGraphInstantiateWithFlags", &cuda.instantiate);
  find(library, "cuGraphLaunch", &cuda.launch_graph);
}

void check(int result, const char *what) {
  if (result != 0) fail(what, result);
}

void open_side(const char *series, const char *path) {
  load(path);
  check(cuda.init(0), "cuInit");
  void *context;
  check(cuda.context(&context, 0, 0), "cuCtxCreate");
  sides[side_count++] = (struct side){.series = series, .driver = cuda};
}

void sample(int round, const char *comparison, const char *series, double value) {
  if (round > 0) printf("%s %s %.6f\n", comparison, series, value);
}
