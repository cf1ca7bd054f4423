/*
 * Drives libcuda.so.1 by lines on stdin: "COMMAND ARGUMENTS", answered by "COMMAND RESULT VALUES" on stdout.
 * The loader finds the library in the usual way. The declarations are written by hand from the public API,
 * not generated from the description, because the description is under test, too.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "library.h"

typedef uint64_t devptr;
static uint64_t number(const char *text) {
  return text == NULL ? 0 : strtoull(text, NULL, 0);
}

static void *handle(const char *text) {
  return (void *)(uintptr_t)number(text);
}

/* A pattern that differs at every byte and every seed. */
static void make_pattern(unsigned char *bytes, size_t size, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (size_t i = 0; i < size; i++) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    bytes[i] = (unsigned char)(state >> 56);
  }
}

/* Writes, reads back and compares. Returns 0, a CUresult, or -1 if the bytes differ. */
static int round_trip(devptr address, size_t size, uint64_t seed) {
  unsigned char *out = malloc(size), *in = malloc(size);
  make_pattern(out, size, seed);
  memset(in, 0xee, size);
  int result = CALL((devptr, const void *, size_t), cuMemcpyHtoD_v2, address, out, size);
  if (result == 0) result = CALL((void *, devptr, size_t), cuMemcpyDtoH_v2, in, address, size);
  if (result == 0 && memcmp(in, out, size) != 0) result = -1;
  free(in);
  free(out);
  return result;
}

static int whole_use(uint64_t seed) {
  void *context = NULL;
  devptr address = 0;
  int result = CALL((unsigned), cuInit, 0);
  if (result == 0) result = CALL((void **, int), cuDevicePrimaryCtxRetain, &context, 0);
  if (result == 0) result = CALL((void *), cuCtxSetCurrent, context);
  if (result == 0) result = CALL((devptr *, size_t), cuMemAlloc_v2, &address, 300000);
  if (result == 0) result = round_trip(address, 300000, seed);
  if (result == 0) result = CALL((devptr), cuMemFree_v2, address);
  return result;
}

static void do_fork(void) {
  int before = CALL((int *), cuCtxGetDevice, &(int){0});
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    /* The child does not have the parent's driver state; it initializes its own. */
    void *current = (void *)1;
    int uninitialised = CALL((void **), cuCtxGetCurrent, &current);
    int result = whole_use(99);
    printf("child %d %d\n", uninitialised, result);
    fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  int after = CALL((int *), cuCtxGetDevice, &(int){0});
  printf("fork %d %d %d\n", status, before, after);
}

struct job {
  pthread_t thread;
  unsigned seed, rounds;
  void *context;
  int result;
};

static void *work(void *argument) {
  struct job *job = argument;
  job->result = CALL((void *), cuCtxSetCurrent, job->context);
  for (unsigned i = 0; i < job->rounds && job->result == 0; i++) {
    devptr address = 0;
    size_t size = 1000 + (job->seed * 7919 + i * 104729) % 200000;
    job->result = CALL((devptr *, size_t), cuMemAlloc_v2, &address, size);
    if (job->result == 0) job->result = round_trip(address, size, job->seed * 1000 + i);
    if (job->result == 0) job->result = CALL((devptr), cuMemFree_v2, address);
  }
  return NULL;
}

/* threads COUNT ROUNDS: each thread allocates, copies both ways, compares and frees, all at the same time. */
static void do_threads(unsigned count, unsigned rounds) {
  struct job *jobs = calloc(count, sizeof *jobs);
  void *context = NULL;
  int first = CALL((void **, int), cuDevicePrimaryCtxRetain, &context, 0), bad = 0;
  for (unsigned i = 0; i < count; i++) {
    jobs[i] = (struct job){.seed = i, .rounds = rounds, .context = context};
    pthread_create(&jobs[i].thread, NULL, work, &jobs[i]);
  }
  for (unsigned i = 0; i < count; i++) {
    pthread_join(jobs[i].thread, NULL);
    if (jobs[i].result != 0) {
      bad++;
      first = jobs[i].result;
    }
  }
  free(jobs);
  printf("threads %d %d\n", first, bad);
}

static void *init_thread(void *result) {
  *(int *)result = CALL((unsigned), cuInit, 0);
  return NULL;
}

/*
 * initmany COUNT: calls cuInit in COUNT threads at once; prints the number of threads for each of two
 * results.
 */
static void do_init_many(unsigned count) {
  pthread_t threads[256];
  int results[256], same = 0;
  if (count > 256) count = 256;
  for (unsigned i = 0; i < count; i++) pthread_create(&threads[i], NULL, init_thread, &results[i]);
  for (unsigned i = 0; i < count; i++) {
    pthread_join(threads[i], NULL);
    same += results[i] == results[0];
  }
  printf("initmany %d %d\n", results[0], same);
}

static void do_proc(const char *name, int version, uint64_t flags) {
  void *function = (void *)1;
  int status = -1;
  int result = CALL((const char *, void **, int, uint64_t, int *), cuGetProcAddress_v2, name, &function,
                    version, flags, &status);
  Dl_info info = {0};
  if (function != NULL) dladdr(function, &info);
  printf("proc %d %d %s\n", result, status, info.dli_sname == NULL ? "-" : info.dli_sname);
}

static void bytes_hex(const unsigned char *bytes, size_t size) {
  for (size_t i = 0; i < size; i++) printf("%02x", bytes[i]);
}

static bool device_command(const char *command, char **words) {
  int integer = -1, index = (int)number(words[0]);
  if (strcmp(command, "init") == 0) {
    printf("init %d\n", CALL((unsigned), cuInit, (unsigned)number(words[0])));
  } else if (strcmp(command, "version") == 0) {
    int result = CALL((int *), cuDriverGetVersion, &integer);
    printf("version %d %d\n", result, integer);
  } else if (strcmp(command, "count") == 0) {
    int result = CALL((int *), cuDeviceGetCount, &integer);
    printf("count %d %d\n", result, integer);
  } else if (strcmp(command, "device") == 0) {
    int result = CALL((int *, int), cuDeviceGet, &integer, index);
    printf("device %d %d\n", result, integer);
  } else if (strcmp(command, "name") == 0) {
    char name[200] = "";
    int result = CALL((char *, int, int), cuDeviceGetName, name, sizeof name, index);
    printf("name %d %s\n", result, name);
  } else if (strcmp(command, "uuid") == 0) {
    unsigned char uuid[16] = {0};
    int result = CALL((void *, int), cuDeviceGetUuid, uuid, index);
    printf("uuid %d ", result);
    bytes_hex(uuid, sizeof uuid);
    puts("");
  } else if (strcmp(command, "pci") == 0) {
    char id[32] = "";
    int back = -1, result = CALL((char *, int, int), cuDeviceGetPCIBusId, id, sizeof id, index);
    if (result == 0) CALL((int *, const char *), cuDeviceGetByPCIBusId, &back, id);
    printf("pci %d %s %d\n", result, id, back);
  } else if (strcmp(command, "total") == 0) {
    size_t total = 0;
    unsigned old = 0;
    int result = CALL((size_t *, int), cuDeviceTotalMem_v2, &total, index);
    CALL((unsigned *, int), cuDeviceTotalMem, &old, index);
    printf("total %d %zu %u\n", result, total, old);
  } else if (strcmp(command, "attribute") == 0) {
    int result = CALL((int *, int, int), cuDeviceGetAttribute, &integer, index, (int)number(words[1]));
    printf("attribute %d %d\n", result, integer);
  } else if (strcmp(command, "attributes") == 0) {
    /* All functions, as the runtime does it. */
    int failed = 0;
    for (int i = 1; i <= 147; i++)
      failed += CALL((int *, int, int), cuDeviceGetAttribute, &integer, i, 0) != 0;
    printf("attributes %d\n", failed);
  } else if (strcmp(command, "error") == 0) {
    const char *name = NULL, *text = NULL;
    int result = CALL((int, const char **), cuGetErrorName, index, &name);
    CALL((int, const char **), cuGetErrorString, index, &text);
    printf("error %d %s %s\n", result, name == NULL ? "-" : name, text == NULL ? "-" : text);
  } else if (strcmp(command, "proc") == 0) {
    do_proc(words[0] == NULL || strcmp(words[0], "''") == 0 ? "" : words[0], (int)number(words[1]),
            number(words[2]));
  } else {
    return false;
  }
  return true;
}

static bool context_command(const char *command, char **words) {
  void *context = NULL;
  int result;
  if (strcmp(command, "ctx") == 0) {
    result = CALL((void **, unsigned, int), cuCtxCreate_v2, &context, 0, (int)number(words[0]));
    printf("ctx %d %p\n", result, context);
  } else if (strcmp(command, "ctx3") == 0) {
    result = CALL((void **, void *, int, unsigned, int), cuCtxCreate_v3, &context, NULL, 0, 0, 0);
    printf("ctx3 %d %p\n", result, context);
  } else if (strcmp(command, "ctx4") == 0) {
    result = CALL((void **, void *, unsigned, int), cuCtxCreate_v4, &context, NULL, 0, 0);
    printf("ctx4 %d %p\n", result, context);
  } else if (strcmp(command, "ctxdestroy") == 0) {
    printf("ctxdestroy %d\n", CALL((void *), cuCtxDestroy_v2, handle(words[0])));
  } else if (strcmp(command, "ctxdestroy1") == 0) {
    printf("ctxdestroy1 %d\n", CALL((void *), cuCtxDestroy, handle(words[0])));
  } else if (strcmp(command, "retain") == 0) {
    result = CALL((void **, int), cuDevicePrimaryCtxRetain, &context, (int)number(words[0]));
    printf("retain %d %p\n", result, context);
  } else if (strcmp(command, "release") == 0) {
    printf("release %d\n", CALL((int), cuDevicePrimaryCtxRelease_v2, (int)number(words[0])));
  } else if (strcmp(command, "primaryflags") == 0) {
    printf("primaryflags %d\n", CALL((int, unsigned), cuDevicePrimaryCtxSetFlags, (int)number(words[0]),
                                     (unsigned)number(words[1])));
  } else if (strcmp(command, "state") == 0) {
    unsigned flags = 0;
    int active = -1;
    result = CALL((int, unsigned *, int *), cuDevicePrimaryCtxGetState, 0, &flags, &active);
    printf("state %d %u %d\n", result, flags, active);
  } else if (strcmp(command, "push") == 0) {
    printf("push %d\n", CALL((void *), cuCtxPushCurrent_v2, handle(words[0])));
  } else if (strcmp(command, "pop") == 0) {
    result = CALL((void **), cuCtxPopCurrent_v2, &context);
    printf("pop %d %p\n", result, context);
  } else if (strcmp(command, "set") == 0) {
    printf("set %d\n", CALL((void *), cuCtxSetCurrent, handle(words[0])));
  } else if (strcmp(command, "current") == 0) {
    result = CALL((void **), cuCtxGetCurrent, &context);
    printf("current %d %p\n", result, context);
  } else if (strcmp(command, "ctxdevice") == 0) {
    int device = -1;
    result = CALL((int *), cuCtxGetDevice, &device);
    printf("ctxdevice %d %d\n", result, device);
  } else if (strcmp(command, "sync") == 0) {
    printf("sync %d\n", CALL((void), cuCtxSynchronize, ));
  } else {
    return false;
  }
  return true;
}

/*
 * Replaces the C library's function, also for libcuda, and counts its calls. A tracer would count them, too,
 * but slow down each system call.
 */
static _Atomic unsigned long sends;

__attribute__((visibility("default"))) ssize_t sendmsg(int descriptor, const struct msghdr *message,
                                                       int flags) {
  static ssize_t (*real)(int, const struct msghdr *, int);
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "sendmsg");
  sends++;
  return real(descriptor, message, flags);
}

/* A pool of the program, or the device's default pool; in the default stream. */
static int pool_of(const char *text, void **pool) {
  *pool = handle(text);
  return *pool != NULL ? 0 : CALL((void **, int), cuDeviceGetDefaultMemPool, pool, 0);
}

static bool pool_command(const char *command, char **words) {
  uint64_t value = number(words[0]);
  void *pool = NULL;
  int result = 0;
  if (strcmp(command, "poolmake") == 0) {
    const struct {
      int type, handle_types, location_type, location;
      unsigned char unused[72];
    } properties = {.type = 1, .location_type = 1};
    result = CALL((void **, const void *), cuMemPoolCreate, &pool, &properties);
    printf("poolmake %d %p\n", result, pool);
  } else if (strcmp(command, "pooldestroy") == 0) {
    printf("pooldestroy %d\n", CALL((void *), cuMemPoolDestroy, handle(words[0])));
  } else if (strcmp(command, "poolalloc") == 0) {
    devptr made = 0;
    result = pool_of(words[1], &pool);
    if (result == 0)
      result = CALL((devptr *, size_t, void *, void *), cuMemAllocFromPoolAsync, &made, value, pool, NULL);
    printf("poolalloc %d 0x%" PRIx64 "\n", result, made);
  } else if (strcmp(command, "poolfree") == 0) {
    printf("poolfree %d\n", CALL((devptr, void *), cuMemFreeAsync, value, NULL));
  } else if (strcmp(command, "poolkeep") == 0) {
    result = pool_of(words[1], &pool);
    if (result == 0) result = CALL((void *, int, void *), cuMemPoolSetAttribute, pool, 4, &value);
    printf("poolkeep %d\n", result);
  } else if (strcmp(command, "pooltrim") == 0) {
    result = pool_of(words[1], &pool);
    if (result == 0) result = CALL((void *, size_t), cuMemPoolTrimTo, pool, value);
    printf("pooltrim %d\n", result);
  } else {
    return false;
  }
  return true;
}

static bool memory_command(const char *command, char **words) {
  devptr address = number(words[0]);
  int result;
  if (strcmp(command, "alloc") == 0) {
    devptr made = 0;
    result = CALL((devptr *, size_t), cuMemAlloc_v2, &made, number(words[0]));
    printf("alloc %d 0x%" PRIx64 "\n", result, made);
  } else if (strcmp(command, "free") == 0) {
    printf("free %d\n", CALL((devptr), cuMemFree_v2, address));
  } else if (strcmp(command, "info") == 0) {
    size_t unused = 0, total = 0;
    result = CALL((size_t *, size_t *), cuMemGetInfo_v2, &unused, &total);
    printf("info %d %zu %zu\n", result, unused, total);
  } else if (strcmp(command, "trip") == 0) {
    printf("trip %d\n", round_trip(address, number(words[1]), number(words[2])));
  } else if (strcmp(command, "read") == 0) {
    /* read ADDRESS BYTES: hexadecimal, for short pieces */
    unsigned char bytes[64] = {0};
    size_t size = number(words[1]);
    result = size > sizeof bytes ? -1 : CALL((void *, devptr, size_t), cuMemcpyDtoH_v2, bytes, address, size);
    printf("read %d ", result);
    if (result == 0) bytes_hex(bytes, size);
    puts("");
  } else if (strcmp(command, "set8") == 0) {
    result = CALL((devptr, unsigned char, size_t), cuMemsetD8_v2, address, (unsigned char)number(words[1]),
                  number(words[2]));
    printf("set8 %d\n", result);
  } else if (strcmp(command, "set16") == 0) {
    result = CALL((devptr, unsigned short, size_t), cuMemsetD16_v2, address, (unsigned short)number(words[1]),
                  number(words[2]));
    printf("set16 %d\n", result);
  } else if (strcmp(command, "set32") == 0) {
    result = CALL((devptr, unsigned, size_t), cuMemsetD32_v2, address, (unsigned)number(words[1]),
                  number(words[2]));
    printf("set32 %d\n", result);
  } else if (strcmp(command, "burst") == 0) {
    /* burst ADDRESS COUNT: COUNT one-way calls, as fast as possible; the last one fills with COUNT % 256 */
    result = 0;
    for (uint64_t i = 1; i <= number(words[1]) && result == 0; i++) {
      result = CALL((devptr, unsigned char, size_t), cuMemsetD8_v2, address, (unsigned char)i, 16);
    }
    printf("burst %d\n", result);
  } else if (strcmp(command, "sends") == 0) {
    printf("sends 0 %lu\n", atomic_exchange(&sends, 0));
  } else if (strcmp(command, "copy") == 0) {
    result = CALL((devptr, devptr, size_t), cuMemcpyDtoD_v2, address, number(words[1]), number(words[2]));
    printf("copy %d\n", result);
  } else if (strcmp(command, "async") == 0) {
    /* async ADDRESS BYTES STREAM: fills, copies to the device and back, all on a stream */
    size_t size = number(words[1]);
    void *stream = handle(words[2]);
    unsigned char *out = malloc(size), *in = calloc(1, size);
    make_pattern(out, size, 5);
    result = CALL((devptr, unsigned char, size_t, void *), cuMemsetD8Async, address, 1, size, stream);
    if (result == 0)
      result = CALL((devptr, const void *, size_t, void *), cuMemcpyHtoDAsync_v2, address, out, size, stream);
    if (result == 0)
      result = CALL((void *, devptr, size_t, void *), cuMemcpyDtoHAsync_v2, in, address, size, stream);
    if (result == 0) result = CALL((void *), cuStreamSynchronize, stream);
    if (result == 0 && memcmp(in, out, size) != 0) result = -1;
    free(in);
    free(out);
    printf("async %d\n", result);
  } else if (strcmp(command, "pinned") == 0) {
    void *memory = NULL;
    unsigned kind = 0, flags = 0;
    result = CALL((void **, size_t, unsigned), cuMemHostAlloc, &memory, 5000, 1);
    CALL((void *, int, devptr), cuPointerGetAttribute, &kind, 2, (devptr)(uintptr_t)memory);
    CALL((unsigned *, void *), cuMemHostGetFlags, &flags, memory);
    if (memory != NULL) memset(memory, 1, 5000);
    printf("pinned %d %u %u %d\n", result, kind, flags, CALL((void *), cuMemFreeHost, memory));
  } else if (strcmp(command, "pointer") == 0) {
    unsigned kind = 0;
    int ordinal = -1;
    devptr start = 0;
    result = CALL((void *, int, devptr), cuPointerGetAttribute, &kind, 2, address);
    CALL((void *, int, devptr), cuPointerGetAttribute, &ordinal, 9, address);
    CALL((void *, int, devptr), cuPointerGetAttribute, &start, 11, address);
    printf("pointer %d %u %d 0x%" PRIx64 "\n", result, kind, ordinal, start);
  } else {
    return false;
  }
  return true;
}

static bool other_command(const char *command, char **words) {
  int result;
  void *made = NULL;
  if (strcmp(command, "stream") == 0) {
    result = CALL((void **, unsigned), cuStreamCreate, &made, 1);
    printf("stream %d %p\n", result, made);
  } else if (strcmp(command, "streamdestroy") == 0) {
    printf("streamdestroy %d\n", CALL((void *), cuStreamDestroy_v2, handle(words[0])));
  } else if (strcmp(command, "streamsync") == 0) {
    printf("streamsync %d\n", CALL((void *), cuStreamSynchronize, handle(words[0])));
  } else if (strcmp(command, "streamquery") == 0) {
    printf("streamquery %d\n", CALL((void *), cuStreamQuery, handle(words[0])));
  } else if (strcmp(command, "event") == 0) {
    result = CALL((void **, unsigned), cuEventCreate, &made, (unsigned)number(words[0]));
    printf("event %d %p\n", result, made);
  } else if (strcmp(command, "record") == 0) {
    printf("record %d\n", CALL((void *, void *), cuEventRecord, handle(words[0]), handle(words[1])));
  } else if (strcmp(command, "eventsync") == 0) {
    printf("eventsync %d\n", CALL((void *), cuEventSynchronize, handle(words[0])));
  } else if (strcmp(command, "elapsed") == 0) {
    float milliseconds = -1;
    result = CALL((float *, void *, void *), cuEventElapsedTime, &milliseconds, handle(words[0]),
                  handle(words[1]));
    printf("elapsed %d %f\n", result, (double)milliseconds);
  } else if (strcmp(command, "launch") == 0) {
    result = CALL((void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                   void **, void **),
                  cuLaunchKernel, NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    printf("launch %d\n", result);
  } else if (strcmp(command, "use") == 0) {
    printf("use %d\n", whole_use(number(words[0])));
  } else if (strcmp(command, "fork") == 0) {
    do_fork();
  } else if (strcmp(command, "threads") == 0) {
    do_threads((unsigned)number(words[0]), (unsigned)number(words[1]));
  } else if (strcmp(command, "initmany") == 0) {
    do_init_many((unsigned)number(words[0]));
  } else {
    return false;
  }
  return true;
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  char line[512];
  while (fgets(line, sizeof line, stdin) != NULL) {
    char *words[6] = {NULL}, *save = NULL;
    const char *command = strtok_r(line, " \n", &save);
    if (command == NULL) continue;
    for (int i = 0; i < 5; i++) words[i] = strtok_r(NULL, " \n", &save);
    if (!device_command(command, words) && !context_command(command, words) &&
        !pool_command(command, words) && !memory_command(command, words) && !other_command(command, words)) {
      printf("unknown %s\n", command);
    }
  }
  return 0;
}
