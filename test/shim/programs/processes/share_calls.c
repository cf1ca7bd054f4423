/*
 * Memory, events and pools shared between processes. The child opens, checks, changes and closes what the
 * parent offers, and the parent checks the changes. If nothing can be shared, the attributes and the calls
 * must say so.
 */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../check.h"

#define MIB (1ull << 20)

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

static int attribute(int which) {
  int value = -1;
  MUST(CALL(cuDeviceGetAttribute, (int *, int, int), &value, which, 0));
  return value;
}

/* The offer to the other process, at its standard input, with descriptors by their numbers. */
struct offer {
  struct handle memory, small, event;
  int descriptor;
};

/* Runs a case of this program in a new process, which prints its own errors. */
static pid_t start(const char *name, const struct offer *offer, int *to, int *from) {
  int down[2], up[2];
  if (pipe(down) != 0 || pipe(up) != 0 || write(down[1], offer, sizeof *offer) != (ssize_t)sizeof *offer)
    exit(3);
  pid_t pid = fork();
  if (pid == 0) {
    dup2(down[0], 0);
    dup2(up[1], 9);
    close(down[1]);
    close(up[0]);
    execl("/proc/self/exe", "share_calls", name, (char *)NULL);
    _exit(3);
  }
  close(down[0]);
  close(up[1]);
  *to = down[1];
  *from = up[0];
  return pid;
}

static void ends_well(pid_t pid) {
  int status = -1;
  waitpid(pid, &status, 0);
  IS(0, status);
}

/* Waits for this process's copies and frees, because the other process reads their results. */
static void run(const char *name, const struct offer *offer) {
  int to, from;
  OK(CALL(cuCtxSynchronize, (void)));
  ends_well(start(name, offer, &to, &from));
  close(to);
  close(from);
}

static struct offer taken(void) {
  struct offer offer;
  if (read(0, &offer, sizeof offer) != (ssize_t)sizeof offer) exit(3);
  return offer;
}

static void put(devptr to, size_t bytes, uint64_t seed) {
  unsigned char *pattern = check_bytes(bytes);
  check_pattern(pattern, bytes, seed);
  OK(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), to, pattern, bytes));
}

static void holds(devptr from, size_t bytes, uint64_t seed) {
  unsigned char *pattern = check_bytes(bytes), *now = check_bytes(bytes);
  check_pattern(pattern, bytes, seed);
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), now, from, bytes));
  OK(memcmp(pattern, now, bytes));
}

static int get_handle(struct handle *handle, devptr memory) {
  return CALL(cuIpcGetMemHandle, (void *, devptr), handle, memory);
}
static int open_handle(devptr *memory, struct handle handle) {
  return CALL(cuIpcOpenMemHandle_v2, (devptr *, struct handle, unsigned), memory, handle, 1);
}
static int close_handle(devptr memory) {
  return CALL(cuIpcCloseMemHandle, (devptr), memory);
}

static void offered(void) {
  IS(1, attribute(103)); /* HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED */
  IS(1, attribute(119)); /* MEMPOOL_SUPPORTED_HANDLE_TYPES: file descriptors */
  IS(1, attribute(125)); /* IPC_EVENT_SUPPORTED */
}

/* ---- allocations ----------------------------------------------------------- */

static void memory(void) {
  devptr large = check_alloc(3 * MIB), small = check_alloc(100);
  put(large, 3 * MIB, 1);
  put(small, 100, 2);
  size_t before = check_free_memory();
  struct offer offer = {.descriptor = -1};
  if (attribute(125) == 0) {
    IS(NOT_SUPPORTED, get_handle(&offer.memory, large));
    IS(INVALID_VALUE, open_handle(&small, offer.memory)); /* not a handle */
    return;
  }
  OK(get_handle(&offer.memory, large));
  OK(get_handle(&offer.small, small));
  holds(large, 3 * MIB, 1);
  struct handle again;
  OK(get_handle(&again, large));
  OK(memcmp(&again, &offer.memory, sizeof again));
  IS(before, check_free_memory());
  devptr own = 0;
  IS(INVALID_CONTEXT, open_handle(&own, offer.memory));
  IS(INVALID_VALUE, get_handle(&again, 4096));
  IS(INVALID_VALUE, get_handle(NULL, large));
  run("takes_memory", &offer);
  holds(large, 3 * MIB, 3);
  holds(small, 100, 4);
  OK(CALL(cuMemFree_v2, (devptr), large));
  run("finds_nothing", &offer);
}

static void takes_memory(void) {
  struct offer offer = taken();
  devptr large = 0, small = 0, none = 0;
  size_t before = check_free_memory();
  OK(open_handle(&large, offer.memory));
  OK(open_handle(&small, offer.small));
  TRUE(check_free_memory() < before);
  holds(large, 3 * MIB, 1);
  holds(small, 100, 2);
  put(large, 3 * MIB, 3);
  put(small, 100, 4);
  IS(INVALID_VALUE, CALL(cuMemFree_v2, (devptr), large));
  struct handle mine;
  IS(INVALID_VALUE, get_handle(&mine, large)); /* opened here, so this process cannot share it */
  struct handle wrong = offer.memory;
  wrong.bytes[12] ^= 1;
  IS(INVALID_VALUE, open_handle(&none, wrong));
  wrong = offer.memory;
  wrong.bytes[0] ^= 1;
  IS(INVALID_VALUE, open_handle(&none, wrong));
  IS(INVALID_VALUE, close_handle(large + 1));
  OK(close_handle(large));
  IS(INVALID_VALUE, close_handle(large));
  OK(close_handle(small));
  IS(before, check_free_memory());
}

static void finds_nothing(void) {
  struct offer offer = taken();
  devptr none = 0;
  IS(INVALID_VALUE, open_handle(&none, offer.memory));
}

/* ---- physical memory ------------------------------------------------------- */

static devptr mapped(uint64_t handle, size_t size) {
  devptr address = 0;
  struct access access = {1, 0, 3};
  MUST(CALL(cuMemAddressReserve, (devptr *, size_t, size_t, devptr, uint64_t), &address, size, 0, 0, 0));
  MUST(CALL(cuMemMap, (devptr, size_t, size_t, uint64_t, uint64_t), address, size, 0, handle, 0));
  MUST(CALL(cuMemSetAccess, (devptr, size_t, const void *, size_t), address, size, &access, 1));
  return address;
}

static int export(int *descriptor, uint64_t handle) {
  return CALL(cuMemExportToShareableHandle, (void *, uint64_t, int, uint64_t), descriptor, handle, 1, 0);
}

static int import(uint64_t *handle, int descriptor) {
  return CALL(cuMemImportFromShareableHandle, (uint64_t *, void *, int), handle, (void *)(intptr_t)descriptor,
              1);
}

static void physical(void) {
  struct properties properties = {.type = 1, .handle_types = 1, .location_type = 1};
  uint64_t handle = 0, kept = 0;
  struct offer offer = {.descriptor = -1};
  OK(CALL(cuMemCreate, (uint64_t *, size_t, const void *, uint64_t), &handle, 4 * MIB, &properties, 0));
  devptr address = mapped(handle, 4 * MIB), alias = mapped(handle, 4 * MIB);
  put(address, 4 * MIB, 5);
  if (attribute(103) == 0) {
    IS(NOT_SUPPORTED, export(&offer.descriptor, handle));
    return;
  }
  properties.handle_types = 0;
  OK(CALL(cuMemCreate, (uint64_t *, size_t, const void *, uint64_t), &kept, 2 * MIB, &properties, 0));
  IS(INVALID_VALUE, export(&offer.descriptor, kept));
  OK(export(&offer.descriptor, handle));
  holds(alias, 4 * MIB, 5);
  put(alias, 4 * MIB, 6);
  fcntl(offer.descriptor, F_SETFD, 0);
  run("takes_physical", &offer);
  holds(address, 4 * MIB, 7);
  holds(alias, 4 * MIB, 7);
  /* The process that exported the memory may import it, too. */
  uint64_t again = 0;
  OK(import(&again, offer.descriptor));
  devptr third = mapped(again, 4 * MIB);
  holds(third, 4 * MIB, 7);
  put(third, 4 * MIB, 10);
  holds(address, 4 * MIB, 10);
  OK(CALL(cuMemRelease, (uint64_t), handle));
  OK(CALL(cuMemUnmap, (devptr, size_t), address, 4 * MIB));
  OK(CALL(cuMemUnmap, (devptr, size_t), alias, 4 * MIB));
  holds(third, 4 * MIB, 10);
}

static void takes_physical(void) {
  struct offer offer = taken();
  uint64_t handle = 0;
  IS(INVALID_VALUE, import(&handle, 9));
  OK(import(&handle, offer.descriptor));
  devptr address = mapped(handle, 4 * MIB);
  OK(CALL(cuMemRelease, (uint64_t), handle));
  holds(address, 4 * MIB, 6);
  put(address, 4 * MIB, 7);
  OK(CALL(cuCtxSynchronize, (void)));
}

/* ---- pools ------------------------------------------------------------------ */

static void pools(void) {
  struct pool_properties properties = {.type = 1, .handle_types = 1, .location_type = 1};
  void *pool = NULL;
  struct offer offer = {.descriptor = -1};
  int made = CALL(cuMemPoolCreate, (void **, const void *), &pool, &properties);
  IS(attribute(119) == 0 ? NOT_SUPPORTED : 0, made);
  if (attribute(119) == 0) return;
  devptr memory = 0;
  OK(CALL(cuMemAllocFromPoolAsync, (devptr *, size_t, void *, void *), &memory, 2 * MIB, pool, NULL));
  put(memory, 2 * MIB, 8);
  OK(CALL(cuMemPoolExportToShareableHandle, (void *, void *, int, uint64_t), &offer.descriptor, pool, 1, 0));
  /* A pool is shared once, however often it is exported: more than a session may share. */
  for (int i = 0, again; i < 100; i++) {
    OK(CALL(cuMemPoolExportToShareableHandle, (void *, void *, int, uint64_t), &again, pool, 1, 0));
    close(again);
  }
  OK(CALL(cuMemPoolExportPointer, (void *, devptr), &offer.memory, memory));
  IS(INVALID_VALUE, get_handle(&offer.small, memory));
  fcntl(offer.descriptor, F_SETFD, 0);
  run("takes_pool", &offer);
  holds(memory, 2 * MIB, 9);
  void *imported = NULL;
  devptr own = 0;
  OK(CALL(cuMemPoolImportFromShareableHandle, (void **, void *, int, uint64_t), &imported,
          (void *)(intptr_t)offer.descriptor, 1, 0));
  OK(CALL(cuMemPoolImportPointer, (devptr *, void *, void *), &own, imported, &offer.memory));
  put(own, 2 * MIB, 11);
  holds(memory, 2 * MIB, 11);
  OK(CALL(cuMemFreeAsync, (devptr, void *), own, NULL));
  OK(CALL(cuMemFreeAsync, (devptr, void *), memory, NULL));
}

static void takes_pool(void) {
  struct offer offer = taken();
  void *pool = NULL;
  devptr memory = 0;
  uint64_t handle;
  IS(INVALID_VALUE, import(&handle, offer.descriptor)); /* a pool is not memory */
  OK(CALL(cuMemPoolImportFromShareableHandle, (void **, void *, int, uint64_t), &pool,
          (void *)(intptr_t)offer.descriptor, 1, 0));
  IS(INVALID_VALUE,
     CALL(cuMemAllocFromPoolAsync, (devptr *, size_t, void *, void *), &memory, 2 * MIB, pool, NULL));
  OK(CALL(cuMemPoolImportPointer, (devptr *, void *, void *), &memory, pool, &offer.memory));
  holds(memory, 2 * MIB, 8);
  put(memory, 2 * MIB, 9);
  OK(CALL(cuMemFreeAsync, (devptr, void *), memory, NULL));
  OK(CALL(cuCtxSynchronize, (void)));
}

/* ---- events ----------------------------------------------------------------- */

static char next_word(int from) {
  char word = 0;
  if (read(from, &word, 1) != 1) exit(3);
  return word;
}

/* A stream waits for a value in memory, so that an event that is recorded after the wait stays incomplete. */
static void events(void) {
  void *event = NULL, *plain = NULL, *stream = NULL;
  struct offer offer = {.descriptor = -1};
  int made = CALL(cuEventCreate, (void **, unsigned), &event, 4 | 2);
  IS(attribute(125) == 0 ? NOT_SUPPORTED : 0, made);
  if (attribute(125) == 0) return;
  devptr memory = check_alloc(MIB), flag = check_alloc(4);
  OK(CALL(cuEventCreate, (void **, unsigned), &plain, 2));
  IS(INVALID_VALUE, CALL(cuIpcGetEventHandle, (void *, void *), &offer.event, plain));
  OK(CALL(cuIpcGetEventHandle, (void *, void *), &offer.event, event));
  OK(get_handle(&offer.memory, memory));
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), flag, 0, 1));
  OK(CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
  OK(CALL(cuStreamWaitValue32_v2, (void *, devptr, uint32_t, unsigned), stream, flag, 1, 0));
  OK(CALL(cuMemsetD8Async, (devptr, unsigned char, size_t, void *), memory, 77, MIB, stream));
  OK(CALL(cuEventRecord, (void *, void *), event, stream));
  int to, from;
  pid_t child = start("takes_event", &offer, &to, &from);
  IS('w', next_word(from)); /* the child has seen that the event is not complete, and waits */
  usleep(50000);
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), flag, 1, 1));
  OK(CALL(cuStreamSynchronize, (void *), stream));
  IS('d', next_word(from));
  OK(CALL(cuStreamWaitEvent, (void *, void *, unsigned), stream, event, 0));
  OK(CALL(cuEventSynchronize, (void *), event));
  unsigned char now = 0;
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &now, memory, 1));
  IS(78, now);
  close(to);
  close(from);
  ends_well(child);
}

static void takes_event(void) {
  struct offer offer = taken();
  void *event = NULL, *stream = NULL;
  devptr memory = 0;
  unsigned char now = 0;
  OK(CALL(cuIpcOpenEventHandle, (void **, struct handle), &event, offer.event));
  OK(open_handle(&memory, offer.memory));
  IS(INVALID_VALUE, open_handle(&memory, offer.event)); /* an event is not memory */
  IS(NOT_READY, CALL(cuEventQuery, (void *), event));
  OK(CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
  OK(CALL(cuStreamWaitEvent, (void *, void *, unsigned), stream, event, 0));
  if (write(9, "w", 1) != 1) exit(3);
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), &now, memory, 1, stream));
  OK(CALL(cuStreamSynchronize, (void *), stream));
  IS(77, now);
  OK(CALL(cuMemsetD8Async, (devptr, unsigned char, size_t, void *), memory, 78, MIB, stream));
  OK(CALL(cuEventRecord, (void *, void *), event, stream));
  if (write(9, "d", 1) != 1) exit(3);
  OK(CALL(cuEventDestroy_v2, (void *), event));
}

/* ---- another guest ---------------------------------------------------------- */

/* Prints a handle and waits, so that a process of another user can try to open it. */
static void offers(void) {
  struct handle handle;
  MUST(get_handle(&handle, check_alloc(MIB)));
  for (size_t i = 0; i < sizeof handle; i++) printf("%02x", handle.bytes[i]);
  printf("\n");
  char end;
  while (read(0, &end, 1) > 0) continue;
}

/* Opens the handle that it reads; prints the result. */
static void tries(void) {
  struct handle handle;
  for (size_t i = 0; i < sizeof handle; i++) {
    unsigned byte = 0;
    if (scanf("%2x", &byte) != 1) exit(3);
    handle.bytes[i] = (unsigned char)byte;
  }
  devptr memory = 0;
  printf("%d\n", open_handle(&memory, handle));
}

static const struct check_case cases[] = {{"offered", offered},
                                          {"memory", memory},
                                          {"takes_memory", takes_memory},
                                          {"finds_nothing", finds_nothing},
                                          {"physical", physical},
                                          {"takes_physical", takes_physical},
                                          {"pools", pools},
                                          {"takes_pool", takes_pool},
                                          {"events", events},
                                          {"takes_event", takes_event},
                                          {"offers", offers},
                                          {"tries", tries}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
