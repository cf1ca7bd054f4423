/*
 * A stand-in for NVIDIA's driver, for what no test could know of it without a GPU: it is a libcuda.so.1 of
 * this project with the software device behind it, and where it matters to a host it behaves as the real one
 * does (STAND_IN, words with a comma between, each with its number after a `=`):
 *
 * - always: cuMemFreeHost wants a current context; cuInit listens on the abstract socket @cuda-uvmfd-NS-PID,
 * opens files of /proc and /dev, and starts a thread; it fails as NVIDIA's does where it may not
 * - always: cuMemcpyDtoDAsync_v2 reads and writes memory of cuMemMap only where the current device has access
 * to it, and cuMemcpyPeerAsync everywhere (a comment of PyTorch's c10/cuda/CUDAFunctions and
 *   aten/src/ATen/native/cuda/Copy.cu says so of the runtime's calls)
 * - jit=MS, free=MS, copy=MS, stuck=MS: cuModuleLoadDataEx, cuMemFree_v2, cuMemcpyHtoD_v2 or cuCtxSynchronize
 *   takes so long
 * - patient: cuModuleLoadDataEx takes until cuMemAlloc_v2 was called ten times more
 * - context=MS, begins: cuCtxCreate_v2 and cuDevicePrimaryCtxRetain take so long, and all but the first until
 *   cuMemAlloc_v2 was called ten times more ("order of 1-3 second startup cost per GPU":
 *   https://docs.nvidia.com/deploy/driver-persistence/overview.html)
 * - held: so long take cuMemFree_v2, cuArrayDestroy, cuModuleUnload, cuCtxDestroy_v2,
 *   cuDevicePrimaryCtxRelease_v2, cuMemHostUnregister, cuMemUnmap and cuMemPoolTrimTo
 * - maps: registered memory is device memory at its own address (VGPU_INPROCESS_MAPS for the library behind)
 * - wide: cuInit maps a TiB of addresses wherever the kernel puts it, as a driver with unified addressing
 * maps gigabytes, and prints the address on stderr
 * - late: a copy to the device in the default stream is made when that stream is next asked or waited for: a
 *   copy of ordinary memory may return before its bytes are there
 *   (https://docs.nvidia.com/cuda/cuda-driver-api/api-sync-behavior.html)
 * - slow: after an asynchronous copy of 256 KiB or more from the device, the first cuEventQuery is
 *   CUDA_ERROR_NOT_READY
 * - real: the device does not call itself simulated
 * - eventless: cuEventCreate is CUDA_ERROR_OUT_OF_MEMORY after the first cuMemHostAlloc
 * - unrecorded: the first cuMemcpyHtoDAsync_v2 behind a wait reads the memory when the wait is over, and the
 *   cuEventRecord after it is CUDA_ERROR_UNKNOWN
 * - uncopied: the first cuMemcpyHtoDAsync_v2 behind a wait is CUDA_ERROR_UNKNOWN
 * - unasked: the second cuEventQuery of the event behind the first copy of pinned memory behind a wait is
 *   CUDA_ERROR_ILLEGAL_ADDRESS, as for an event of a context with a fault. The first
 *   query is that of the launch in the same context
 * - unordered=N: the first N calls of cuStreamWaitEvent while a stream waits are CUDA_ERROR_UNKNOWN
 * - uncurrent: the first cuCtxSetCurrent of each thread but the main one is CUDA_ERROR_INVALID_CONTEXT
 * - threadless: while a cuMemAlloc_v2 of 64 MiB or more waits, the process can start no thread
 * - sticky: after cuMemFree_v2 every call of the process is CUDA_ERROR_ILLEGAL_ADDRESS
 * - broken: what is compiled is CUDA_ERROR_ILLEGAL_ADDRESS
 * - blind: CUDA_VISIBLE_DEVICES means nothing to it
 * - mig: each device is an instance of a GPU: named MIG-UUID in CUDA_VISIBLE_DEVICES, and a process sees one
 *   and no other
 * - options: cuModuleLoadDataEx says on stderr which options it has
 * - calls: cuMemHostRegister_v2, cuMemHostUnregister, cuGraphInstantiateWithFlags, cuGraphLaunch,
 * cuGraphExecDestroy and cuLaunchKernelEx say on stderr that they were called
 * - nodes: cuInit says on stderr which files of /dev it can open
 * - version=N: cuDriverGetVersion says N, as 12020 of driver 535
 * - exclusive: as in compute mode Exclusive_Process: of the processes that one daemon started, one at a time
 *   has a context, and the others get CUDA_ERROR_DEVICE_UNAVAILABLE
 *   (https://docs.nvidia.com/deploy/mps/index.html, "GPU Compute Modes")
 * - together: with MIG, cuInit fails unless each instance's process is in it at the same time
 * - hardware: what a stream's wait for a value does on a GPU. All streams share one hardware channel, so a
 *   write of another stream, and a copy of pinned memory, stay behind a wait that is not over (CUDA driver
 * API, "Stream Memory Operations": "may introduce a deadlock ... false dependencies";
 * forums.developer.nvidia.com thread 353972). A stream can wait for a word of mapped host memory, which a
 * processor writes. These calls wait for the device: those that free memory and code; cuGraphExecDestroy (as
 * seen with driver 580: docs/reports/2026-11-27-gpu-h200.md); cuCtxSetLimit of the stack ("the device will
 * block until all preceding requested tasks are complete", CUDA driver API); the first use of code, which is
 * loaded lazily: cuModuleGetFunction, the variables of a module or library, the module of a library, and the
 * first launch of a kernel ("Loading a kernel might require context synchronization", CUDA programming guide,
 * "Lazy Loading"); a launch that needs more local memory than its context has ("The driver automatically
 * increases the per-thread stack size for each kernel launch as needed", cuCtxSetLimit in the CUDA driver
 * API); cuCtxSynchronize, and cuStreamSynchronize also of a stream that does not wait; cuMemAlloc_v2 from 64
 * MiB on, as where memory is short; synchronous fills of memory that the host maps ("fully synchronous", the
 * page that `late` names); a copy of more than 64 KiB of ordinary memory to the device, in any stream,
 * because the driver's own staging memory is short (the same page: "a stream sync is performed before the
 * copy"; shorter ones: CUDA programming guide, "Asynchronous Concurrent Execution"). A launch and an
 * asynchronous copy wait while 1024 of these are behind a wait (the queue of a channel is full)
 * - pools: freed memory stays in its pool until cuMemPoolTrimTo, or until cuStreamSynchronize or
 *   cuCtxSynchronize if that is more than the pool's release threshold ("the allocator will try to release
 * memory back to the OS on the next call to stream, event or context synchronize",
 * CU_MEMPOOL_ATTR_RELEASE_THRESHOLD in
 *   https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MALLOC__ASYNC.html). The stand-in for NVML
 * counts it.
 * - units=MIB: pools reserve memory in units of this size
 * - cache: cuInit says on stderr where CUDA_CACHE_PATH is, and whether it can write and remove files there
 * and in the directory `other` beside it
 * - threads: cuInit says on stderr which part of the threads MPS gives it
 * - greedy: cuInit asks for bpf(2) and accept4(2), and does without
 *
 * STAND_IN_BEHIND is the path of the library behind it.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <dlfcn.h>

#include "stand_in.h"

/* A reference, so that the linker keeps the library that has all other functions. */
extern int cuDeviceGetCount(int *count);
EXPORT int (*const stand_in_needs)(int *) = cuDeviceGetCount;
EXPORT int cuDriverGetVersion(int *version);

/* Returns the library that has all other functions, which this one is also linked to. */
void *behind(const char *symbol) {
  static void *library;
  if (library == NULL) library = dlopen(getenv("STAND_IN_BEHIND"), RTLD_NOW | RTLD_LOCAL);
  void *found = library == NULL ? NULL : dlsym(library, symbol);
  if (found == NULL) abort();
  return found;
}

const char *word(const char *name) {
  const char *words = getenv("STAND_IN");
  size_t length = strlen(name);
  for (const char *at = words; at != NULL && *at != '\0';
       at = strchr(at, ','), at = at == NULL ? NULL : at + 1) {
    if (strncmp(at, name, length) == 0 && (at[length] == '=' || at[length] == ',' || at[length] == '\0'))
      return at + length + (at[length] == '=');
  }
  return NULL;
}

static void take_time(const char *name) {
  const char *text = word(name);
  long ms = text == NULL ? 0 : atol(text);
  struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

static void *serve(void *argument) {
  (void)argument;
  pause();
  return NULL;
}

/*
 * As strace shows for the real driver (public notes: Venus, snapd): it does not initialize if listen is
 * denied.
 */
static bool listens(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int length =
      snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "cuda-uvmfd-%d-%d", 1, (int)getpid());
  int descriptor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
  return descriptor >= 0 && bind(descriptor, (struct sockaddr *)&address, size) == 0 &&
         listen(descriptor, 16) == 0;
}

/* An abstract socket of the processes that have the same parent: -1 if another process has the name. */
static int take_name(const char *name, bool connects) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int length =
      snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "stand-in-%d-%s", (int)getppid(), name);
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
  int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int result = connects ? connect(descriptor, (struct sockaddr *)&address, size)
                        : bind(descriptor, (struct sockaddr *)&address, size);
  if (result == 0 && (connects || listen(descriptor, 16) == 0)) return descriptor;
  close(descriptor);
  return -1;
}

/* Waits until the processes of both MIG instances are here. */
static bool are_together(void) {
  const char *mine = getenv("CUDA_VISIBLE_DEVICES"), *list = getenv("STAND_IN_MIG");
  if (word("together") == NULL || mine == NULL || list == NULL) return true;
  char other[48];
  snprintf(other, sizeof other, "%s%.36s", "GPU-", strncmp(list, mine + 4, 36) == 0 ? list + 37 : list);
  (void)take_name(mine, false); /* held until this process ends */
  for (int i = 0; i < 200; i++) {
    if (take_name(other, true) >= 0) {
      take_time("together");
      return true;
    }
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  return false;
}

static bool looks_around(void) {
  static const char *const files[] = {"/proc/self/maps", "/proc/self/status", "/dev/null"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    int descriptor = open(files[i], O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return false;
    close(descriptor);
  }
  return true;
}

EXPORT int cuInit(unsigned flags);
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device);
EXPORT int cuCtxCreate_v2(void **context, unsigned flags, int device);
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device);
EXPORT int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values);
EXPORT int cuArrayDestroy(void *array);
EXPORT int cuModuleUnload(void *module);
EXPORT int cuCtxDestroy_v2(void *context);
EXPORT int cuDevicePrimaryCtxRelease_v2(int device);
EXPORT int cuMemFree_v2(uint64_t address);
EXPORT int cuCtxSetCurrent(void *context) {
  static _Thread_local bool again;
  if (word("uncurrent") != NULL && syscall(SYS_gettid) != getpid() && !again) {
    again = true;
    return 201;
  }
  return NEXT(int (*)(void *), "cuCtxSetCurrent")(context);
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes);
EXPORT int cuCtxSynchronize(void);
EXPORT int cuMemAlloc_v2(uint64_t *address, size_t bytes);
EXPORT int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags);
EXPORT int cuMemHostUnregister(void *memory);
EXPORT int cuMemUnmap(uint64_t address, size_t bytes);
EXPORT int cuMemPoolTrimTo(void *pool, size_t keep);
EXPORT int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags);
EXPORT int cuMemFreeHost(void *memory);
EXPORT int cuEventCreate(void **event, unsigned flags);
EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream);
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream);
EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream);
EXPORT int cuStreamQuery(void *stream);
EXPORT int cuEventQuery(void *event);
EXPORT int cuEventSynchronize(void *event);
EXPORT int cuEventRecord(void *event, void *stream);
EXPORT int cuCtxSetCurrent(void *context);
EXPORT int cuDeviceGetName(char *name, int length, int device);
EXPORT int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags);
EXPORT int cuGraphLaunch(void *graph, void *stream);
EXPORT int cuGraphExecDestroy(void *graph);

static bool broken;
static atomic_uint allocations;

/* Opens each file by two names, for reading and for writing. */
static void tells_nodes(void) {
  static const char *const nodes[] = {
      "nvidiactl", "nvidia0", "nvidia1", "nvidia-uvm", "sda", "null", "nvidia-caps/nvidia-cap1"};
  for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
    bool opened = false;
    for (int way = 0; way < 4; way++) {
      char path[64];
      snprintf(path, sizeof path, "%s/dev/%s", way < 2 ? "" : "/proc/self/root", nodes[i]);
      int descriptor = open(path, (way % 2 == 0 ? O_RDONLY : O_RDWR) | O_CLOEXEC);
      opened = opened || descriptor >= 0;
      if (descriptor >= 0) close(descriptor);
    }
    fprintf(stderr, "stand-in: %s %s\n", nodes[i], opened ? "opened" : "closed");
  }
  int descriptor = open("/tmp", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  fprintf(stderr, "stand-in: /tmp %s\n", descriptor >= 0 ? "opened" : "closed");
}

static void tells_cache(void) {
  const char *path = getenv("CUDA_CACHE_PATH");
  fprintf(stderr, "stand-in: cache %s, %s bytes\n", path == NULL ? "none" : path,
          path == NULL ? "no" : getenv("CUDA_CACHE_MAXSIZE"));
  static const char *const beside[] = {"", "/../other"};
  for (size_t i = 0; path != NULL && i < sizeof beside / sizeof *beside; i++) {
    char file[4200];
    snprintf(file, sizeof file, "%s%s/new", path, beside[i]);
    int descriptor = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor >= 0) close(descriptor);
    snprintf(file, sizeof file, "%s%s/old", path, beside[i]);
    int old = open(file, O_RDONLY | O_CLOEXEC);
    if (old >= 0) close(old);
    fprintf(stderr, "stand-in: cache%s: write %s, read %s, remove %s\n", beside[i],
            descriptor >= 0 ? "yes" : "no", old >= 0 ? "yes" : "no", unlink(file) == 0 ? "yes" : "no");
  }
}

/*
 * Chooses the device that the real library behind this one shows, because that library knows no MIG
 * instances.
 */
static void choose_instance(void) {
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  char name[48];
  if (list == NULL || strncmp(list, "MIG-", 4) != 0) {
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    return;
  }
  snprintf(name, sizeof name, "GPU-%.36s", list + 4);
  setenv("CUDA_VISIBLE_DEVICES", name, 1);
}

int cuInit(unsigned flags) {
  static bool begun;
  if (!begun) {
    if (word("blind") != NULL) unsetenv("CUDA_VISIBLE_DEVICES");
    if (word("mig") != NULL) choose_instance();
    if (word("nodes") != NULL) tells_nodes();
    if (word("cache") != NULL) tells_cache();
    if (word("wide") != NULL)
      fprintf(stderr, "stand-in: a TiB at %p\n",
              mmap(NULL, (size_t)1 << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    const char *threads = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    if (word("threads") != NULL)
      fprintf(stderr, "stand-in: %s %% of threads\n", threads == NULL ? "all" : threads);
    if (word("greedy") != NULL) {
      (void)syscall(SYS_bpf, -1, NULL, 0);
      (void)accept4(-1, NULL, NULL, 0);
    }
    pthread_t thread;
    if (!listens() || !looks_around() || !are_together()) return 304; /* CUDA_ERROR_OPERATING_SYSTEM */
    if (pthread_create(&thread, NULL, serve, NULL) != 0) return 304;
    begun = true;
  }
  return NEXT(int (*)(unsigned), "cuInit")(flags);
}

/* Needs no cuInit, so it must not begin the library behind, which reads CUDA_VISIBLE_DEVICES then. */
int cuDriverGetVersion(int *version) {
  const char *text = word("version");
  *version = text == NULL ? 13000 : atoi(text);
  return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  enum {
    COMPUTE_MODE = 20,
    EXCLUSIVE_PROCESS = 3,
    CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
    READ_ONLY_HOST_REGISTER_SUPPORTED = 113
  };
  int result = NEXT(int (*)(int *, int, int), "cuDeviceGetAttribute")(value, attribute, device);
  if (result == 0 && attribute == COMPUTE_MODE && word("exclusive") != NULL) *value = EXCLUSIVE_PROCESS;
  if (result == 0 && attribute == CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) *value = word("maps") != NULL;
  if (result == 0 && attribute == READ_ONLY_HOST_REGISTER_SUPPORTED) *value = word("maps") != NULL;
  return result;
}

int cuDeviceGetName(char *name, int length, int device) {
  int result = NEXT(int (*)(char *, int, int), "cuDeviceGetName")(name, length, device);
  char *end = result != 0 || word("real") == NULL ? NULL : strstr(name, " (simulated)");
  if (end != NULL) *end = '\0';
  return result;
}

/* False: another process has the device. */
static bool has_device(void) {
  static int held = -1;
  if (word("exclusive") == NULL || held >= 0) return true;
  held = take_name("exclusive", false);
  return held >= 0;
}

static void await_allocations(const char *name) {
  unsigned begun = atomic_load(&allocations);
  while (word(name) != NULL && atomic_load(&allocations) - begun < 10)
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void begin_context(void) {
  static atomic_uint contexts;
  take_time("context");
  if (atomic_fetch_add(&contexts, 1) > 0) await_allocations("begins");
}

int cuCtxCreate_v2(void **context, unsigned flags, int device) {
  if (!has_device()) return 46; /* CUDA_ERROR_DEVICE_UNAVAILABLE */
  begin_context();
  return NEXT(int (*)(void **, unsigned, int), "cuCtxCreate_v2")(context, flags, device);
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  if (!has_device()) return 46;
  begin_context();
  return NEXT(int (*)(void **, int), "cuDevicePrimaryCtxRetain")(context, device);
}

int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
  take_time("jit");
  await_allocations("patient");
  for (unsigned i = 0; word("options") != NULL && i < count; i++)
    fprintf(stderr, "stand-in: option %d=%lu\n", options[i], (unsigned long)(uintptr_t)values[i]);
  if (broken || word("broken") != NULL) return 700;
  return NEXT(int (*)(void **, const void *, unsigned, int *, void **),
              "cuModuleLoadDataEx")(module, image, count, options, values);
}

#define WAITS_FOR_THE_DEVICE(symbol, type, name)                                                             \
  EXPORT int symbol(type name) {                                                                             \
    await_device();                                                                                          \
    return NEXT(int (*)(type), #symbol)(name);                                                               \
  }
WAITS_FOR_THE_DEVICE(cuLibraryUnload, void *, library)
WAITS_FOR_THE_DEVICE(cuMipmappedArrayDestroy, void *, array)
WAITS_FOR_THE_DEVICE(cuGreenCtxDestroy, void *, context)
WAITS_FOR_THE_DEVICE(cuMemRelease, uint64_t, handle)

int cuArrayDestroy(void *array) {
  await_device();
  await_allocations("held");
  return NEXT(int (*)(void *), "cuArrayDestroy")(array);
}

int cuModuleUnload(void *module) {
  await_device();
  await_allocations("held");
  return NEXT(int (*)(void *), "cuModuleUnload")(module);
}

int cuCtxDestroy_v2(void *context) {
  await_device();
  await_allocations("held");
  return NEXT(int (*)(void *), "cuCtxDestroy_v2")(context);
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  await_device();
  await_allocations("held");
  return NEXT(int (*)(int), "cuDevicePrimaryCtxRelease_v2")(device);
}

int cuMemFree_v2(uint64_t address) {
  take_time("free");
  await_device();
  await_allocations("held");
  if (word("sticky") != NULL) broken = true;
  if (broken) return 700;
  return NEXT(int (*)(uint64_t), "cuMemFree_v2")(address);
}

/* With `threadless` leaves too little memory for the stack of a thread. Returns the limit before. */
static struct rlimit starve(void) {
  struct rlimit before, less;
  unsigned long pages = 0;
  FILE *file = word("threadless") == NULL ? NULL : fopen("/proc/self/statm", "r");
  if (getrlimit(RLIMIT_AS, &before) != 0) abort();
  if (file != NULL && fscanf(file, "%lu", &pages) == 1) {
    less = (struct rlimit){.rlim_cur = pages * 4096 + (4 << 20), .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_AS, &less);
  }
  if (file != NULL) fclose(file);
  return before;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  const size_t long_bytes = (size_t)64 << 20;
  atomic_fetch_add(&allocations, 1);
  if (bytes >= long_bytes) {
    const struct rlimit before = starve();
    await_device();
    setrlimit(RLIMIT_AS, &before);
  }
  if (broken) return 700;
  return NEXT(int (*)(uint64_t *, size_t), "cuMemAlloc_v2")(address, bytes);
}

/* The copies of `late`, which one thread of the host makes. */
static struct {
  uint64_t to;
  void *bytes;
  size_t size;
} late[256];
static size_t late_count;

static int make_late_copies(void) {
  int result = 0;
  for (size_t i = 0; i < late_count; i++) {
    int made = NEXT(int (*)(uint64_t, const void *, size_t), "cuMemcpyHtoD_v2")(late[i].to, late[i].bytes,
                                                                                late[i].size);
    if (result == 0) result = made;
    free(late[i].bytes);
  }
  late_count = 0;
  return result;
}

static bool is_late(uint64_t to, const void *from, size_t bytes) {
  void *kept = word("late") != NULL && late_count < 256 ? malloc(bytes) : NULL;
  if (kept == NULL) return false;
  late[late_count].to = to;
  late[late_count].bytes = memcpy(kept, from, bytes);
  late[late_count++].size = bytes;
  return true;
}

static atomic_bool copied, copies_slowly;
/* The event behind a copy in a context with a fault, and its queries until one fails. */
static atomic_bool event_fails;
static _Atomic(void *) failing_event;
static atomic_uint queries_left;

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
  static atomic_bool once;
  if (word("uncopied") != NULL && device_waits() && !atomic_exchange(&once, true)) return 999;
  if (word("unrecorded") != NULL && device_waits() && !atomic_exchange(&once, true)) {
    atomic_store(&copied, true);
    copy_after_waits(to, from, bytes);
    return 0;
  }
  if (stream == NULL && is_late(to, from, bytes)) return 0;
  take_command();
  if (copies_behind(to, from, bytes, true, stream)) {
    if (word("unasked") != NULL && !atomic_exchange(&once, true)) atomic_store(&event_fails, true);
    return 0;
  }
  await_copy(from, bytes);
  return NEXT(int (*)(uint64_t, const void *, size_t, void *), "cuMemcpyHtoDAsync_v2")(to, from, bytes,
                                                                                       stream);
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
  const size_t long_bytes = 256 << 10;
  if (word("slow") != NULL && bytes >= long_bytes) atomic_store(&copies_slowly, true);
  take_command();
  if (copies_behind(from, to, bytes, false, stream)) return 0;
  return NEXT(int (*)(void *, uint64_t, size_t, void *), "cuMemcpyDtoHAsync_v2")(to, from, bytes, stream);
}

int cuEventQuery(void *event) {
  if (atomic_exchange(&copies_slowly, false)) return 600; /* CUDA_ERROR_NOT_READY */
  if (event == atomic_load(&failing_event) && atomic_load(&queries_left) > 0 &&
      atomic_fetch_sub(&queries_left, 1) == 1)
    return 700;
  return NEXT(int (*)(void *), "cuEventQuery")(event);
}

int cuEventSynchronize(void *event) {
  release_pools();
  return NEXT(int (*)(void *), "cuEventSynchronize")(event);
}

int cuStreamQuery(void *stream) {
  int result = stream == NULL ? make_late_copies() : 0;
  return result != 0 ? result : NEXT(int (*)(void *), "cuStreamQuery")(stream);
}

int cuEventRecord(void *event, void *stream) {
  int result = stream == NULL ? make_late_copies() : 0;
  if (atomic_exchange(&copied, false)) return 999;
  if (atomic_exchange(&event_fails, false)) {
    atomic_store(&queries_left, 2);
    atomic_store(&failing_event, event);
  }
  return result != 0 ? result : NEXT(int (*)(void *, void *), "cuEventRecord")(event, stream);
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
  if (is_late(to, from, bytes)) return 0;
  take_time("copy");
  await_copy(from, bytes);
  if (broken) return 700;
  return NEXT(int (*)(uint64_t, const void *, size_t), "cuMemcpyHtoD_v2")(to, from, bytes);
}

int cuCtxSynchronize(void) {
  take_time("stuck");
  await_device();
  release_pools();
  if (broken) return 700;
  return NEXT(int (*)(void), "cuCtxSynchronize")();
}

void say(const char *call) {
  if (word("calls") != NULL) fprintf(stderr, "stand-in: %s\n", call);
}

int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags) {
  const unsigned read_only = 8;
  if ((flags & read_only) != 0 && word("maps") == NULL) return 801; /* CUDA_ERROR_NOT_SUPPORTED */
  say((flags & read_only) != 0 ? "pinned to be read" : "pinned");
  return NEXT(int (*)(void *, size_t, unsigned), "cuMemHostRegister_v2")(memory, bytes, flags & ~read_only);
}

int cuMemHostUnregister(void *memory) {
  say("unpinned");
  await_device();
  await_allocations("held");
  return NEXT(int (*)(void *), "cuMemHostUnregister")(memory);
}

int cuMemUnmap(uint64_t address, size_t bytes) {
  await_device();
  await_allocations("held");
  return NEXT(int (*)(uint64_t, size_t), "cuMemUnmap")(address, bytes);
}

/* True for memory that is not mapped, too. */
static bool has_access(uint64_t address) {
  struct {
    int type, device;
  } place = {1, 0};
  unsigned long long flags = 0;
  if (NEXT(int (*)(int *), "cuCtxGetDevice")(&place.device) != 0) return true;
  int result =
      NEXT(int (*)(unsigned long long *, const void *, uint64_t), "cuMemGetAccess")(&flags, &place, address);
  return result != 0 || flags != 0;
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
  if (!has_access(to) || !has_access(from)) return 700; /* CUDA_ERROR_ILLEGAL_ADDRESS */
  return NEXT(int (*)(uint64_t, uint64_t, size_t, void *), "cuMemcpyDtoDAsync_v2")(to, from, bytes, stream);
}

int cuMemPoolTrimTo(void *pool, size_t keep) {
  await_device();
  await_allocations("held");
  return NEXT(int (*)(void *, size_t), "cuMemPoolTrimTo")(pool, keep);
}

static atomic_bool allocated;

int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
  static atomic_bool once;
  if (maps_itself(memory, bytes, flags)) return 0;
  if (word("eventless") != NULL && !atomic_exchange(&once, true)) atomic_store(&allocated, true);
  return NEXT(int (*)(void **, size_t, unsigned), "cuMemHostAlloc")(memory, bytes, flags);
}

int cuMemFreeHost(void *memory) {
  void *context = NULL;
  int result = NEXT(int (*)(void **), "cuCtxGetCurrent")(&context);
  if (result == 0 && context == NULL) result = 201; /* CUDA_ERROR_INVALID_CONTEXT */
  if (result == 0 && unmaps_itself(memory)) return 0;
  await_device();
  return result == 0 ? NEXT(int (*)(void *), "cuMemFreeHost")(memory) : result;
}

int cuEventCreate(void **event, unsigned flags) {
  if (atomic_exchange(&allocated, false)) {
    say("no event");
    return 2; /* CUDA_ERROR_OUT_OF_MEMORY */
  }
  return NEXT(int (*)(void **, unsigned), "cuEventCreate")(event, flags);
}

int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
  size_t nodes = 0, edges = 0;
  NEXT(int (*)(void *, void **, size_t *), "cuGraphGetNodes")(graph, NULL, &nodes);
  NEXT(int (*)(void *, void **, void **, size_t *), "cuGraphGetEdges")(graph, NULL, NULL, &edges);
  char text[64];
  snprintf(text, sizeof text, "graph of %zu nodes, %zu edges", nodes, edges);
  say(text);
  return NEXT(int (*)(void **, void *, unsigned long long), "cuGraphInstantiateWithFlags")(executable, graph,
                                                                                           flags);
}

int cuGraphLaunch(void *graph, void *stream) {
  say("graph launched");
  return NEXT(int (*)(void *, void *), "cuGraphLaunch")(graph, stream);
}

int cuGraphExecDestroy(void *graph) {
  say("graph destroyed");
  await_device();
  return NEXT(int (*)(void *), "cuGraphExecDestroy")(graph);
}
