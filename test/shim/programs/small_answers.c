/* Small answers that real programs need to continue. */
#include <unistd.h>

#include "check.h"

/* ---- what cuBLAS, numba and libgomp ask ---------------------------------- */

/* Measured on an H200, driver 580. */
static void limits(void) {
  enum { STACK, SYNC_DEPTH = 3, SHARED_MEMORY = 7, WITH_GRAPHICS, FALLBACK, MAX };
  static const struct {
    int limit, get, set;
    size_t value;
  } known[] = {
      {STACK, 0, 0, 1024},        {SYNC_DEPTH, 215, 215, 77}, {SHARED_MEMORY, 0, 800, 232448},
      {WITH_GRAPHICS, 0, 800, 0}, {FALLBACK, 215, 215, 77},   {MAX, INVALID_VALUE, INVALID_VALUE, 77}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    size_t value = 77;
    IS(known[i].get, CALL(cuCtxGetLimit, (size_t *, int), &value, known[i].limit));
    IS(known[i].value, value);
    IS(known[i].set, CALL(cuCtxSetLimit, (int, size_t), known[i].limit, 2048));
  }
}

static void older_names(void) {
  int device = -1;
  OK(CALL(cuCtxGetDevice_v2, (int *, void *), &device, (void *)0x1));
  IS(0, device);
  device = -1;
  OK(CALL(cuCtxGetDevice_v2, (int *, void *), &device, &device));
  IS(0, device);
  OK(CALL(cuCtxSynchronize_v2, (void *), (void *)0xdeadbeef));
  /* a destroyed context is still an error */
  void *context = NULL;
  MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, 0));
  OK(CALL(cuCtxGetDevice_v2, (int *, void *), &device, context));
  MUST(CALL(cuCtxDestroy_v2, (void *), context));
  IS(INVALID_CONTEXT, CALL(cuCtxGetDevice_v2, (int *, void *), &device, context));
  IS(INVALID_CONTEXT, CALL(cuCtxSynchronize_v2, (void *), context));
}

static devptr of_callback;
static int in_callback = -1;

static void callback(void *stream, int status, void *data) {
  (void)stream;
  (void)status;
  (void)data;
  devptr base;
  size_t size;
  in_callback = CALL(cuMemGetAddressRange_v2, (devptr *, size_t *, devptr), &base, &size, of_callback);
}

static void range_in_callback(void) {
  of_callback = check_alloc(4096);
  devptr base = 0;
  size_t size = 0;
  OK(CALL(cuMemGetAddressRange_v2, (devptr *, size_t *, devptr), &base, &size, of_callback + 5));
  TRUE(base == of_callback && size == 4096);
  OK(CALL(cuStreamAddCallback, (void *, void (*)(void *, int, void *), void *, unsigned), NULL, callback,
          NULL, 0));
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(NOT_PERMITTED, in_callback);
}

/* ---- launches as CUDA 3 had them ----------------------------------------- */

static const char text[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry k(.param .u64 to, .param .u32 add, .param .f32 scale) {\n"
    ".reg .b64 %p, %o; .reg .b32 %i, %c, %b, %n, %v; .reg .f32 %f, %s;\n"
    "ld.param.u64 %p, [to]; ld.param.u32 %v, [add]; ld.param.f32 %s, [scale];\n"
    "mov.u32 %c, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %i, %tid.x; mad.lo.u32 %i, %c, %n, %i;\n"
    "mov.u32 %c, %ctaid.y; mov.u32 %b, %nctaid.x; mul.lo.u32 %b, %b, %n; mad.lo.u32 %i, %c, %b, %i;\n"
    "mul.wide.u32 %o, %i, 4; add.u64 %p, %p, %o; add.u32 %v, %v, %i;\n"
    "cvt.rn.f32.u32 %f, %v; mul.f32 %f, %f, %s; st.global.f32 [%p], %f; ret; }\n";

static void *function_of(void) {
  void *module = NULL, *function = NULL;
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, text));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "k"));
  return function;
}

static void old_launches(void) {
  void *function = function_of();
  devptr to = check_alloc(64 * 4);
  float out[64];
  IS(INVALID_VALUE, CALL(cuFuncSetBlockShape, (void *, int, int, int), function, 0, 1, 1));
  IS(INVALID_HANDLE, CALL(cuFuncSetBlockShape, (void *, int, int, int), &to, 1, 1, 1));
  OK(CALL(cuFuncSetBlockShape, (void *, int, int, int), function, 8, 1, 1));
  OK(CALL(cuFuncSetSharedSize, (void *, unsigned), function, 16));
  OK(CALL(cuParamSetv, (void *, int, void *, unsigned), function, 0, &to, 8));
  OK(CALL(cuParamSeti, (void *, int, unsigned), function, 8, 100));
  OK(CALL(cuParamSetf, (void *, int, float), function, 12, 0.5f));
  IS(INVALID_VALUE, CALL(cuParamSetv, (void *, int, void *, unsigned), function, 1 << 20, &to, 8));
  IS(INVALID_VALUE, CALL(cuParamSetSize, (void *, unsigned), function, 1 << 20));
  IS(INVALID_VALUE, CALL(cuLaunchGrid, (void *, int, int), function, 2, 4)); /* no parameter size yet */
  OK(CALL(cuParamSetSize, (void *, unsigned), function, 16));
  IS(INVALID_VALUE, CALL(cuLaunchGrid, (void *, int, int), function, 0, 4));
  OK(CALL(cuLaunchGrid, (void *, int, int), function, 2, 4));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), out, to, sizeof out));
  for (int i = 0; i < 64; i++) TRUE(out[i] == (float)(100 + i) * 0.5f);
  OK(CALL(cuParamSeti, (void *, int, unsigned), function, 8, 7));
  OK(CALL(cuLaunch, (void *), function));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), out, to, sizeof out));
  for (int i = 0; i < 64; i++) TRUE(out[i] == (float)((i < 8 ? 7 : 100) + i) * 0.5f);
  void *stream = NULL;
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
  OK(CALL(cuLaunchGridAsync, (void *, int, int, void *), function, 8, 1, stream));
  OK(CALL(cuStreamSynchronize, (void *), stream));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), out, to, sizeof out));
  for (int i = 0; i < 64; i++) TRUE(out[i] == (float)(7 + i) * 0.5f);
}

/* ---- memory whose handle could be exported, as PyTorch asks for it --------- */

static void exportable(void) {
  struct {
    int type, handle_types, location_type, location;
    void *win32;
    unsigned char flags[8];
  } properties = {1, 1, 1, 0, NULL, {0}}, got;
  uint64_t handle = 0;
  OK(CALL(cuMemCreate, (uint64_t *, size_t, const void *, uint64_t), &handle, 2 << 20, &properties, 0));
  OK(CALL(cuMemGetAllocationPropertiesFromHandle, (void *, uint64_t), &got, handle));
  IS(1, got.handle_types);
  OK(CALL(cuMemRelease, (uint64_t), handle));
  properties.handle_types = 8; /* a fabric: there is none */
  IS(800, CALL(cuMemCreate, (uint64_t *, size_t, const void *, uint64_t), &handle, 2 << 20, &properties, 0));
}

/* ---- a graph's kernel whose grid is set later, as tinygrad does ------------ */

static void later_grid(void) {
  struct {
    void *function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
  } node = {.function = function_of(), .grid = {0, 1, 1}, .block = {8, 1, 1}};
  devptr to = check_alloc(8 * 4);
  unsigned add = 1;
  float scale = 1, out[8];
  void *arguments[] = {&to, &add, &scale};
  node.parameters = arguments;
  void *graph = NULL, *made = NULL, *exec = NULL;
  MUST(CALL(cuGraphCreate, (void **, unsigned), &graph, 0));
  OK(CALL(cuGraphAddKernelNode, (void **, void *, const void *, size_t, const void *), &made, graph, NULL, 0,
          &node));
  OK(CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &exec, graph, 0));
  node.grid[0] = 1;
  OK(CALL(cuGraphExecKernelNodeSetParams, (void *, void *, const void *), exec, made, &node));
  OK(CALL(cuGraphLaunch, (void *, void *), exec, NULL));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), out, to, sizeof out));
  for (int i = 0; i < 8; i++) TRUE(out[i] == (float)(1 + i));
}

/* ---- a stream that ends while it is captured, as graphMemoryNodes of NVIDIA's samples has it
 * ---------------- */

static void ended_stream(void) {
  void *first = NULL, *second = NULL, *fork = NULL, *join = NULL, *graph = NULL, *exec = NULL;
  devptr memory = check_alloc(64);
  unsigned char out[64] = {0}, attribute[64] = {1};
  size_t nodes = 0;
  MUST(CALL(cuStreamCreate, (void **, unsigned), &first, 1));
  MUST(CALL(cuStreamCreate, (void **, unsigned), &second, 1));
  MUST(CALL(cuEventCreate, (void **, unsigned), &fork, 2));
  MUST(CALL(cuEventCreate, (void **, unsigned), &join, 2));
  OK(CALL(cuStreamBeginCapture_v2, (void *, int), first, 0));
  OK(CALL(cuMemsetD8Async, (devptr, unsigned char, size_t, void *), memory, 1, 64, first));
  OK(CALL(cuEventRecord, (void *, void *), fork, first));
  OK(CALL(cuStreamWaitEvent, (void *, void *, unsigned), second, fork, 0));
  OK(CALL(cuMemsetD8Async, (devptr, unsigned char, size_t, void *), memory, 2, 32, second));
  OK(CALL(cuStreamSetAttribute, (void *, int, const void *), second, 3, attribute)); /* not work either */
  OK(CALL(cuEventRecord, (void *, void *), join, second));
  OK(CALL(cuStreamWaitEvent, (void *, void *, unsigned), first, join, 0));
  OK(CALL(cuStreamDestroy_v2, (void *), second));
  OK(CALL(cuStreamEndCapture, (void *, void **), first, &graph));
  OK(CALL(cuGraphGetNodes, (void *, void **, size_t *), graph, NULL, &nodes));
  IS(2, nodes);
  OK(CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &exec, graph, 0));
  OK(CALL(cuGraphLaunch, (void *, void *), exec, first));
  OK(CALL(cuStreamSynchronize, (void *), first));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), out, memory, 64));
  TRUE(out[0] == 2 && out[31] == 2 && out[32] == 1 && out[63] == 1);
}

static void count_end(void *data) {
  __atomic_add_fetch((int *)data, 1, __ATOMIC_ACQ_REL);
}

/* A capture on a new stream, whose graph holds an object: its end is counted. */
static void *begin_capture(int *ended) {
  void *stream = NULL, *graph = NULL, *object = NULL;
  int status = 0;
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
  MUST(CALL(cuStreamBeginCapture_v2, (void *, int), stream, 2));
  MUST(CALL(cuStreamGetCaptureInfo_v2, (void *, int *, uint64_t *, void **, void *, size_t *), stream,
            &status, NULL, &graph, NULL, NULL));
  MUST(CALL(cuUserObjectCreate, (void **, void *, void (*)(void *), unsigned, unsigned), &object, ended,
            count_end, 1, 1));
  MUST(CALL(cuGraphRetainUserObject, (void *, void *, unsigned, unsigned), graph, object, 1, 1));
  return stream;
}

static void wait_for_end(const int *ended) {
  for (int i = 0; i < 1000 && __atomic_load_n(ended, __ATOMIC_ACQUIRE) == 0; i++) usleep(10000);
  IS(1, *ended);
}

/* A capture ends with its first stream, or with the context of that stream, and its graph is freed. */
static void ended_capture(void) {
  static int with_stream, with_context;
  void *context = NULL;
  OK(CALL(cuStreamDestroy_v2, (void *), begin_capture(&with_stream)));
  wait_for_end(&with_stream);
  MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, 0));
  begin_capture(&with_context);
  OK(CALL(cuCtxDestroy_v2, (void *), context));
  wait_for_end(&with_context);
}

/* The answers of NVIDIA's driver, by its documentation (optional outputs) and public reports. */
static void drivers_answers(void) {
  static unsigned char page[8192];
  static const char code[] = ".version 6.0\n.target sm_60\n.address_size 64\n.visible .entry k() { ret; }\n";
  size_t unused = 0, total = 0;
  void *memory = &page, *function = NULL, *module = NULL;
  unsigned flags = 0;
  const char *name = NULL;
  int value = 0;
  devptr device = check_alloc(64);
  OK(CALL(cuMemGetInfo_v2, (size_t *, size_t *), &unused, NULL));
  TRUE(unused > 0);
  OK(CALL(cuMemGetInfo_v2, (size_t *, size_t *), NULL, &total));
  TRUE(total >= unused);
  OK(CALL(cuMemGetInfo_v2, (size_t *, size_t *), NULL, NULL));

  OK(CALL(cuMemHostAlloc, (void **, size_t, unsigned), &memory, 0, 0));
  TRUE(memory == NULL);
  OK(CALL(cuMemHostAlloc, (void **, size_t, unsigned), &memory, 4096, 0));
  OK(CALL(cuMemHostGetFlags, (unsigned *, void *), &flags, memory));
  bool mapped = CALL(cuMemHostGetDevicePointer_v2, (devptr *, void *, unsigned), &device, memory, 0) == 0;
  IS(mapped ? 2 : 0, flags);

  IS(INVALID_VALUE, CALL(cuMemHostUnregister, (void *), memory));
  IS(INVALID_VALUE, CALL(cuMemHostUnregister, (void *), NULL));
  IS(713, CALL(cuMemHostUnregister, (void *), &flags));
  OK(CALL(cuMemHostRegister_v2, (void *, size_t, unsigned), page, sizeof page, 0));
  IS(INVALID_VALUE, CALL(cuMemHostUnregister, (void *), page + 100));
  OK(CALL(cuMemHostUnregister, (void *), page));
  IS(713, CALL(cuMemHostUnregister, (void *), page));

  IS(200, CALL(cuModuleLoadData, (void **, const void *), &module, "garbage"));
  IS(200, CALL(cuModuleLoadData, (void **, const void *), &module, "// .version 6.0\ngarbage"));
  IS(218, CALL(cuModuleLoadData, (void **, const void *), &module, " /* PTX */ .version 6.0\ngarbage"));
  OK(CALL(cuModuleLoadData, (void **, const void *), &module, code));
  OK(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "k"));
  IS(INVALID_VALUE, CALL(cuFuncGetName, (const char **, void *), &name, NULL));
  IS(INVALID_VALUE, CALL(cuFuncGetName, (const char **, void *), NULL, function));
  IS(INVALID_VALUE, CALL(cuKernelGetName, (const char **, void *), &name, NULL));
  OK(CALL(cuFuncGetName, (const char **, void *), &name, function));

  IS(INVALID_VALUE, CALL(cuPointerGetAttribute, (void *, int, devptr), page, 9999, device));
  IS(INVALID_DEVICE, CALL(cuDeviceGetP2PAttribute, (int *, int, int, int), &value, 9999, 0, 0));
}

/* ---- the primary context's references ------------------------------------- */

static int retain(void) {
  void *context;
  return CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0);
}

static int release(void) {
  return CALL(cuDevicePrimaryCtxRelease_v2, (int), 0);
}

static int reset(void) {
  return CALL(cuDevicePrimaryCtxReset_v2, (int), 0);
}

static int active(void) {
  unsigned flags;
  int value = -1;
  OK(CALL(cuDevicePrimaryCtxGetState, (int, unsigned *, int *), 0, &flags, &value));
  return value;
}

/* The case begins with one reference, and with the primary context current. Measured on an H100, driver 580.
 */
static void references(void) {
  void *context;
  unsigned version;
  devptr memory = check_alloc(1024), none = 0;
  OK(retain());
  OK(reset());
  IS(0, active());
  OK(CALL(cuCtxGetCurrent, (void **), &context));
  IS(INVALID_CONTEXT, CALL(cuCtxGetApiVersion, (void *, unsigned *), context, &version));
  IS(709, CALL(cuMemAlloc_v2, (devptr *, size_t), &none, 1024));
  IS(709, CALL(cuMemFree_v2, (devptr), memory));
  OK(retain());
  IS(1, active());
  OK(CALL(cuCtxGetApiVersion, (void *, unsigned *), context, &version));
  memory = check_alloc(1024);
  OK(CALL(cuMemFree_v2, (devptr), memory));
  IS(INVALID_VALUE, CALL(cuMemFree_v2, (devptr), memory));
  for (int left = 2; left >= 0; left--) {
    OK(release());
    IS(left > 0, active());
  }
  IS(INVALID_CONTEXT, release());
  OK(CALL(cuDevicePrimaryCtxRelease, (int), 0)); /* the older entry point */
  OK(retain());
  OK(reset());
  OK(release()); /* a reset keeps the reference */
  IS(INVALID_CONTEXT, release());
}

static const struct check_case cases[] = {
    {"drivers_answers", drivers_answers}, {"limits", limits},
    {"older_names", older_names},         {"range_in_callback", range_in_callback},
    {"old_launches", old_launches},       {"exportable", exportable},
    {"later_grid", later_grid},           {"ended_stream", ended_stream},
    {"ended_capture", ended_capture},     {"references", references},
};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
