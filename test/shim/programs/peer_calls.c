/*
 * Two devices of one host: access of one to the other's memory, copies between them, and memory of the second
 * one in several processes.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define MIB (1ull << 20)
enum { UNSUPPORTED = 217, ILLEGAL_ADDRESS = 700, ALREADY_ENABLED = 704, NOT_ENABLED = 705 };
enum { ATOMICS = 3, PARTIAL_ATOMICS = 5, READ_WRITE = 3 };

struct handle {
  unsigned char bytes[64];
};
struct properties {
  int type, handle_types, location_type, location;
  void *win32;
  unsigned char flags[8];
};
struct pool_properties {
  int type, handle_types, location_type, location;
  void *win32;
  size_t most;
  unsigned char reserved[56];
};
struct access {
  int location_type, location;
  unsigned flags;
};
/* CUDA_MEM_ALLOC_NODE_PARAMS_v1 */
struct allocation {
  struct pool_properties pool;
  const struct access *accesses;
  size_t count, bytes;
  devptr address;
};

static void *contexts[2];
static void *functions[2];

/* next(to, from): to[0] = from[0] + 1, and one more is added to from[0]. */
static const char text[] =
    ".version 7.0\n.target sm_60\n.address_size 64\n"
    ".visible .entry next(.param .u64 to, .param .u64 from) {\n"
    ".reg .b64 %t, %f; .reg .b32 %v, %x;\n"
    "ld.param.u64 %t, [to]; ld.param.u64 %f, [from];\n"
    "atom.global.add.u32 %v, [%f], 1; add.u32 %v, %v, 1; st.global.u32 [%t], %v; ret; }\n";

static void on(int device) {
  MUST(CALL(cuCtxSetCurrent, (void *), contexts[device]));
}

static void *load(void) {
  void *module = NULL, *function = NULL;
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, text));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "next"));
  return function;
}

/* Leaves the context of the first device current. */
static void begin(void) {
  for (int i = 1; i >= 0; i--) {
    MUST(CALL(cuDevicePrimaryCtxRetain, (void **, int), &contexts[i], i));
    on(i);
    functions[i] = load();
  }
}

static int next(int device, devptr to, devptr from) {
  void *parameters[] = {&to, &from};
  int result = CALL(cuLaunchKernel,
                    (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                     void **, void **),
                    functions[device], 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
  return result == 0 ? CALL(cuCtxSynchronize, (void)) : result;
}

static unsigned word(devptr at) {
  unsigned value = 0;
  MUST(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &value, at, 4));
  return value;
}

static void set(devptr at, unsigned value) {
  MUST(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), at, &value, 4));
}

static devptr memory_on(int device, size_t bytes) {
  on(device);
  return check_alloc(bytes);
}

static int enable(void *peer) {
  return CALL(cuCtxEnablePeerAccess, (void *, unsigned), peer, 0);
}
static int disable(void *peer) {
  return CALL(cuCtxDisablePeerAccess, (void *), peer);
}
static int reaches(int device, int peer) {
  int value = 9;
  MUST(CALL(cuDeviceCanAccessPeer, (int *, int, int), &value, device, peer));
  return value;
}

static void attributes(void) {
  begin();
  int value = 9;
  IS(1, reaches(0, 1));
  IS(1, reaches(1, 0));
  IS(0, reaches(0, 0));
  for (int attribute = 1; attribute <= PARTIAL_ATOMICS; attribute++) {
    OK(CALL(cuDeviceGetP2PAttribute, (int *, int, int, int), &value, attribute, 0, 1));
    IS(attribute > 1 && attribute < PARTIAL_ATOMICS, value);
  }
  IS(INVALID_VALUE, CALL(cuDeviceGetP2PAttribute, (int *, int, int, int), &value, 0, 0, 1));
  IS(INVALID_VALUE, CALL(cuDeviceGetP2PAttribute, (int *, int, int, int), &value, 6, 0, 1));
  IS(INVALID_DEVICE, CALL(cuDeviceGetP2PAttribute, (int *, int, int, int), &value, ATOMICS, 0, 2));
  OK(CALL(cuDeviceGetAttribute, (int *, int, int), &value, 132, 0)); /* MULTICAST_SUPPORTED */
  IS(0, value);
  struct {
    unsigned devices;
    size_t size;
    unsigned long long types, flags;
  } multicast = {2, 2 * MIB, 0, 0};
  uint64_t handle = 0;
  IS(NOT_SUPPORTED, CALL(cuMulticastCreate, (uint64_t *, const void *), &handle, &multicast));
}

static void enables(void) {
  begin();
  devptr here = memory_on(0, 4), there = memory_on(1, 4);
  set(there, 41);
  on(0);
  IS(NOT_ENABLED, disable(contexts[1]));
  IS(NOT_ENABLED, disable(contexts[0]));
  IS(UNSUPPORTED, enable(contexts[0]));
  IS(INVALID_CONTEXT, enable(NULL));
  IS(INVALID_CONTEXT, enable(&here));
  IS(INVALID_VALUE, CALL(cuCtxEnablePeerAccess, (void *, unsigned), contexts[1], 1));
  OK(enable(contexts[1]));
  IS(ALREADY_ENABLED, enable(contexts[1]));
  OK(next(0, here, there));
  IS(42, word(here));
  IS(42, word(there));
  on(1); /* access is for one direction */
  IS(NOT_ENABLED, disable(contexts[0]));
  OK(enable(contexts[0]));
  OK(next(1, there, here));
  IS(43, word(there));
  devptr later = memory_on(1, 4); /* access is also to memory that is allocated later */
  set(later, 7);
  on(0);
  OK(next(0, here, later));
  IS(8, word(here));
  OK(disable(contexts[1]));
  IS(NOT_ENABLED, disable(contexts[1]));
  IS(ILLEGAL_ADDRESS, next(0, here, later));
}

static void forbids(void) {
  begin();
  devptr here = memory_on(0, 4), there = memory_on(1, 4);
  set(there, 41);
  on(0);
  IS(ILLEGAL_ADDRESS, next(0, here, there));
}

/* The access of a context ends when the context is destroyed. */
static void ends(void) {
  begin();
  void *second = NULL;
  on(0);
  OK(CALL(cuCtxCreate_v2, (void **, unsigned, int), &second, 0, 1));
  devptr there = check_alloc(4);
  set(there, 1);
  on(0);
  devptr here = check_alloc(4);
  OK(enable(second));
  OK(next(0, here, there));
  OK(CALL(cuCtxDestroy_v2, (void *), second));
  IS(INVALID_CONTEXT, enable(second));
  IS(INVALID_CONTEXT, disable(second));
  OK(CALL(cuCtxCreate_v2, (void **, unsigned, int), &second, 0, 1));
  there = check_alloc(4);
  set(there, 1);
  on(0);
  IS(NOT_ENABLED, disable(second));
  IS(ILLEGAL_ADDRESS, next(0, here, there));
}

static void holds(devptr from, size_t bytes, uint64_t seed) {
  unsigned char *pattern = check_bytes(bytes), *now = check_bytes(bytes);
  check_pattern(pattern, bytes, seed);
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), now, from, bytes));
  OK(memcmp(pattern, now, bytes));
}

static void put(devptr to, size_t bytes, uint64_t seed) {
  unsigned char *pattern = check_bytes(bytes);
  check_pattern(pattern, bytes, seed);
  OK(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), to, pattern, bytes));
}

static int copy(devptr to, int receiver, devptr from, int sender, size_t bytes) {
  return CALL(cuMemcpyPeer, (devptr, void *, devptr, void *, size_t), to, contexts[receiver], from,
              contexts[sender], bytes);
}

static void copies(void) {
  begin();
  devptr here = memory_on(0, 3 * MIB), there = memory_on(1, 3 * MIB);
  void *stream = NULL;
  put(there, 3 * MIB, 1);
  on(0);
  OK(copy(here, 0, there, 1, 3 * MIB));
  holds(here, 3 * MIB, 1);
  put(here, 3 * MIB, 2);
  OK(CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
  OK(CALL(cuMemcpyPeerAsync, (devptr, void *, devptr, void *, size_t, void *), there, contexts[1], here,
          contexts[0], 3 * MIB, stream));
  OK(CALL(cuStreamSynchronize, (void *), stream));
  holds(there, 3 * MIB, 2);
  /* With unified addresses the other copies know the device, too. */
  put(here, MIB, 3);
  OK(CALL(cuMemcpyDtoDAsync_v2, (devptr, devptr, size_t, void *), there, here, MIB, stream));
  OK(CALL(cuMemcpyAsync, (devptr, devptr, size_t, void *), there + MIB, here, MIB, stream));
  OK(CALL(cuStreamSynchronize, (void *), stream));
  holds(there, MIB, 3);
  holds(there + MIB, MIB, 3);
  IS(INVALID_VALUE, copy(here, 0, there, 1, 4 * MIB));
  IS(INVALID_CONTEXT,
     CALL(cuMemcpyPeer, (devptr, void *, devptr, void *, size_t), here, &here, there, contexts[1], 4));
}

static void sleeps(void *unused) {
  (void)unused;
  usleep(200000);
}

/* A copy without a stream comes after work of the other context, which begins after the copy is requested. */
static void copies_in_order(void) {
  begin();
  devptr here = memory_on(0, MIB), there = memory_on(1, MIB);
  void *stream = NULL;
  OK(CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
  OK(CALL(cuLaunchHostFunc, (void *, void (*)(void *), void *), stream, sleeps, NULL));
  OK(CALL(cuMemsetD8Async, (devptr, unsigned char, size_t, void *), there, 9, MIB, stream));
  on(0);
  OK(copy(here, 0, there, 1, MIB));
  IS(0x09090909, word(here + MIB - 4));
}

static devptr mapped(int device, uint64_t *handle) {
  struct properties properties = {.type = 1, .location_type = 1, .location = device};
  devptr address = 0;
  MUST(CALL(cuMemCreate, (uint64_t *, size_t, const void *, uint64_t), handle, 2 * MIB, &properties, 0));
  MUST(CALL(cuMemAddressReserve, (devptr *, size_t, size_t, devptr, uint64_t), &address, 2 * MIB, 0, 0, 0));
  MUST(CALL(cuMemMap, (devptr, size_t, size_t, uint64_t, uint64_t), address, 2 * MIB, 0, *handle, 0));
  return address;
}

static int allow(devptr address, int device, unsigned flags) {
  struct access access = {1, device, flags};
  return CALL(cuMemSetAccess, (devptr, size_t, const void *, size_t), address, 2 * MIB, &access, 1);
}

static uint64_t allowed(devptr address, int device) {
  int location[2] = {1, device};
  uint64_t flags = 9;
  OK(CALL(cuMemGetAccess, (uint64_t *, const void *, devptr), &flags, location, address));
  return flags;
}

static void maps(void) {
  begin();
  uint64_t handle = 0;
  devptr here = memory_on(0, 4), there = mapped(1, &handle);
  on(0);
  OK(allow(there, 0, READ_WRITE)); /* only this device: the other device's own access does not change */
  IS(READ_WRITE, allowed(there, 0));
  IS(0, allowed(there, 1));
  set(there, 5);
  OK(next(0, here, there));
  IS(6, word(here));
  OK(allow(there, 1, READ_WRITE));
  on(1);
  OK(next(1, there + 4, there));
  IS(7, word(there + 4));
  on(0);
  OK(allow(there, 0, 0));
  IS(0, allowed(there, 0));
  IS(READ_WRITE, allowed(there, 1));
  on(1);
  IS(7, word(there));
  on(0);
  IS(INVALID_DEVICE, allow(there, 2, READ_WRITE));
  IS(ILLEGAL_ADDRESS, next(0, here, there));
}

/* A copy with both contexts needs no access, also to mapped memory. */
static void copies_mapped(void) {
  begin();
  uint64_t handle = 0;
  void *stream = NULL;
  devptr here = memory_on(0, MIB), there = mapped(1, &handle);
  OK(allow(there, 1, READ_WRITE));
  on(1);
  put(there, MIB, 4);
  on(0);
  OK(CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
  OK(CALL(cuMemcpyPeerAsync, (devptr, void *, devptr, void *, size_t, void *), here, contexts[0], there,
          contexts[1], MIB, stream));
  OK(CALL(cuStreamSynchronize, (void *), stream));
  holds(here, MIB, 4);
}

static void pools(void) {
  begin();
  struct pool_properties properties = {.type = 1, .location_type = 1, .location = 1};
  struct access access = {1, 0, READ_WRITE};
  void *pool = NULL;
  devptr here = memory_on(0, 4), there = 0;
  unsigned flags = 9;
  on(1);
  OK(CALL(cuMemPoolCreate, (void **, const void *), &pool, &properties));
  OK(CALL(cuMemAllocFromPoolAsync, (devptr *, size_t, void *, void *), &there, 4, pool, NULL));
  set(there, 1);
  OK(enable(contexts[0]));
  on(0);
  OK(CALL(cuMemPoolGetAccess, (unsigned *, void *, void *), &flags, pool, &access));
  IS(0, flags);
  OK(CALL(cuMemPoolSetAccess, (void *, const void *, size_t), pool, &access, 1));
  OK(CALL(cuMemPoolGetAccess, (unsigned *, void *, void *), &flags, pool, &access));
  IS(READ_WRITE, flags);
  OK(next(0, here, there));
  IS(2, word(here));
  access.flags = 2;
  IS(INVALID_VALUE, CALL(cuMemPoolSetAccess, (void *, const void *, size_t), pool, &access, 1));
  access.flags = 0;
  OK(CALL(cuMemPoolSetAccess, (void *, const void *, size_t), pool, &access, 1));
  OK(enable(contexts[1])); /* has no effect on memory of a pool */
  IS(ILLEGAL_ADDRESS, next(0, here, there));
}

static void launch(void *graph) {
  void *executable = NULL;
  MUST(CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &executable, graph, 0));
  OK(CALL(cuGraphLaunch, (void *, void *), executable, NULL));
  OK(CALL(cuCtxSynchronize, (void)));
}

static void graphs(void) {
  begin();
  devptr here = memory_on(0, 4), there = memory_on(1, 4);
  void *stream = NULL, *graph = NULL, *node = NULL;
  set(there, 20);
  on(0);
  OK(enable(contexts[1]));
  OK(CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
  OK(CALL(cuStreamBeginCapture_v2, (void *, int), stream, 0));
  OK(CALL(cuMemcpyPeerAsync, (devptr, void *, devptr, void *, size_t, void *), here, contexts[0], there,
          contexts[1], 4, stream));
  void *parameters[] = {&there, &here};
  OK(CALL(cuLaunchKernel,
          (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
           void **),
          functions[0], 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
  OK(CALL(cuStreamEndCapture, (void *, void **), stream, &graph));
  launch(graph);
  IS(21, word(here));
  IS(21, word(there));

  /* Memory of a node on the second device, which the first one may use. */
  struct access access = {1, 0, READ_WRITE};
  struct allocation allocation = {
      .pool = {.type = 1, .location_type = 1, .location = 1}, .accesses = &access, .count = 1, .bytes = 64};
  OK(CALL(cuGraphCreate, (void **, unsigned), &graph, 0));
  OK(CALL(cuGraphAddMemAllocNode, (void **, void *, void *const *, size_t, void *), &node, graph, NULL, 0,
          &allocation));
  launch(graph);
  set(allocation.address, 30);
  OK(next(0, here, allocation.address));
  IS(31, word(here));
}

/* ---- processes ------------------------------------------------------------- */

static void run(const char *name, const struct handle *handle, const char *visible) {
  int down[2], status = -1;
  if (pipe(down) != 0 || write(down[1], handle, sizeof *handle) != (ssize_t)sizeof *handle) exit(3);
  pid_t pid = fork();
  if (pid == 0) {
    dup2(down[0], 0);
    if (visible != NULL) setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    execl("/proc/self/exe", "peer_calls", name, (char *)NULL);
    _exit(3);
  }
  close(down[0]);
  close(down[1]);
  waitpid(pid, &status, 0);
  IS(0, status);
}

static void processes(void) {
  begin();
  devptr there = memory_on(1, MIB);
  struct handle handle;
  set(there, 50);
  OK(CALL(cuIpcGetMemHandle, (void *, devptr), &handle, there));
  run("opens_on_second", &handle, NULL);
  IS(52, word(there));
  run("opens_on_first", &handle, NULL);
  IS(54, word(there));
  run("opens_only_second", &handle, "1");
  IS(56, word(there));
}

/* Opens the memory of the second device of the other process, and lets a kernel use it. */
static void opens(int device, int owner) {
  struct handle handle;
  devptr here, there = 0;
  int ordinal = -1;
  if (read(0, &handle, sizeof handle) != (ssize_t)sizeof handle) exit(3);
  MUST(CALL(cuDevicePrimaryCtxRetain, (void **, int), &contexts[device], device));
  on(device);
  functions[device] = load();
  here = check_alloc(4);
  MUST(CALL(cuIpcOpenMemHandle_v2, (devptr *, struct handle, unsigned), &there, handle, 1));
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &ordinal, 9, there));
  IS(owner, ordinal);
  OK(next(device, here, there));
  OK(next(device, here, there));
  IS(word(there), word(here));
  OK(CALL(cuIpcCloseMemHandle, (devptr), there));
}
static void opens_on_first(void) {
  opens(0, 1);
}
static void opens_on_second(void) {
  opens(1, 1);
}
static void opens_only_second(void) {
  opens(0, 0);
}

/* The first call that needs a context is on the second device, and the first device is never used. */
static void second_alone(void) {
  void *context = NULL;
  int device = -1;
  OK(CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, 1));
  OK(CALL(cuCtxGetDevice, (int *), &device));
  IS(1, device);
  contexts[1] = context;
  functions[1] = load();
  devptr memory = check_alloc(8);
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &device, 9, memory));
  IS(1, device);
  set(memory, 3);
  OK(next(1, memory + 4, memory));
  IS(4, word(memory + 4));
  IS(UNSUPPORTED, enable(context));
}

int main(int argc, char **argv) {
  static const struct check_case cases[] = {
      {"attributes", attributes},
      {"enables", enables},
      {"forbids", forbids},
      {"ends", ends},
      {"copies", copies},
      {"copies_mapped", copies_mapped},
      {"copies_in_order", copies_in_order},
      {"maps", maps},
      {"pools", pools},
      {"graphs", graphs},
      {"processes", processes},
      {"opens_on_first", opens_on_first},
      {"opens_on_second", opens_on_second},
      {"opens_only_second", opens_only_second},
      {"second_alone", second_alone},
  };
  return check_bare(argc, argv, cases, sizeof cases / sizeof *cases);
}
