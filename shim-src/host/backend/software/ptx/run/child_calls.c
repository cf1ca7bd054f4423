/*
 * CUDA dynamic parallelism, as CUDA 12's and 13's cuda_device_runtime_api.h declares it. The kernel requests
 * a buffer, nvcc's code stores the parameters there, and the launch names it. Grids, copies and fills are
 * recorded while the parent runs, and run when it has ended, each with its own children before the next. So
 * every stream and event keeps its order, and a grid is complete only when its children are. A tail launch
 * runs after the other launches of its grid.
 */
#include <string.h>

#include "host/backend/software/ptx/run/children.h"

#define MOST_PENDING (1u << 20)
#define TAIL_STREAM 3u /* cudaStreamTailLaunch */

enum {
  INVALID_VALUE = 1,
  NO_MEMORY = 2,
  INVALID_CONFIGURATION = 9,
  TOO_MANY_PENDING = 69,
  INVALID_FUNCTION = 98,
};

/* The caller holds the launch's lock, unless a function says otherwise. */

static struct ptx_children *children_of(const struct place *at) {
  return at->worker->launch->launch->children;
}

static void fail(const struct place *at, uint32_t lane, uint8_t error) {
  at->warp->launch_error[lane] = error;
}

uint8_t ptx_children_record(const struct place *at, const struct child *child) {
  struct ptx_children *children = children_of(at);
  if (children == NULL || children->fresh.count + children->waiting.count >= MOST_PENDING)
    return TOO_MANY_PENDING;
  return ptx_children_add(&children->fresh, child) ? 0 : NO_MEMORY;
}

/* Returns the kernel at a function's address; -1: there is none. */
static int64_t kernel_at(const struct ptx_module *module, uint64_t address) {
  uint64_t number = (address - PTX_FUNCTION_WINDOW) / 16;
  if (address < PTX_FUNCTION_WINDOW || address % 16 != 0 || number >= module->function_count) return -1;
  for (uint32_t i = 0; i < module->kernel_count; i++) {
    if (module->kernel_function[i] == number) return i;
  }
  return -1;
}

/* Fills in the kernel and its dimensions. Returns a cudaError_t. */
static uint8_t describe(const struct place *at, struct child *child, uint64_t function, const uint32_t *grid,
                        const uint32_t *block, uint32_t shared) {
  const struct ptx_module *module = at->worker->launch->module;
  int64_t kernel = kernel_at(module, function);
  if (kernel < 0) return INVALID_FUNCTION;
  const struct ptx_kernel_info *info = &module->kernels[kernel];
  struct ptx_launch launch = {
      .parameters = &launch, .parameter_bytes = info->parameter_bytes, .dynamic_shared = shared};
  memcpy(launch.grid, grid, sizeof launch.grid);
  memcpy(launch.block, block, sizeof launch.block);
  struct ptx_fault fault;
  if (!ptx_launch_possible(&launch, info, &fault) ||
      info->parameter_bytes > sizeof((struct ptx_child *)NULL)->parameters)
    return INVALID_CONFIGURATION;
  child->kernel = (uint32_t)kernel;
  child->shared = shared;
  memcpy(child->grid, grid, sizeof child->grid);
  memcpy(child->block, block, sizeof child->block);
  return 0;
}

/* Returns the address of a new buffer. 0: no room, and the lane has an error. */
static uint64_t make_buffer(const struct place *at, uint32_t lane, struct child *child) {
  struct ptx_heap *heap = at->worker->launch->launch->heap;
  child->buffer = ptx_heap_take(heap, child->bytes == 0 ? 16 : child->bytes);
  uint8_t error = child->buffer == 0 ? NO_MEMORY : ptx_children_record(at, child);
  if (error == 0) return child->buffer;
  if (child->buffer != 0) ptx_heap_give(heap, child->buffer);
  fail(at, lane, error);
  return 0;
}

static uint64_t buffer(const struct place *at, uint32_t lane) {
  struct child child = {.kind = BUFFER, .bytes = ptx_argument(at, lane, 1)};
  if (child.bytes <= sizeof((struct ptx_child *)NULL)->parameters) return make_buffer(at, lane, &child);
  fail(at, lane, INVALID_VALUE);
  return 0;
}

static uint64_t buffer_v2(const struct place *at, uint32_t lane) {
  struct child child = {.kind = BUFFER};
  uint32_t grid[3], block[3];
  ptx_argument_bytes(at, lane, 1, grid, sizeof grid);
  ptx_argument_bytes(at, lane, 2, block, sizeof block);
  uint8_t error =
      describe(at, &child, ptx_argument(at, lane, 0), grid, block, (uint32_t)ptx_argument(at, lane, 3));
  if (error != 0) {
    fail(at, lane, error);
    return 0;
  }
  child.bytes = at->worker->launch->module->kernels[child.kernel].parameter_bytes;
  return make_buffer(at, lane, &child);
}

/* Searches from the end, because the last one is most often meant. */
static struct child *with_buffer(struct ptx_children *children, uint64_t address) {
  for (size_t i = children == NULL ? 0 : children->fresh.count; i > 0; i--) {
    struct child *child = &children->fresh.array[i - 1];
    if (child->kind == BUFFER && child->buffer == address && address != 0) return child;
  }
  return NULL;
}

/* A launch comes after all launches before it, even those that got their buffer later. */
static uint8_t launch(const struct place *at, struct child *child, uint64_t stream) {
  struct child now = *child;
  now.kind = GRID;
  now.tail = stream == TAIL_STREAM;
  child->buffer = 0; /* a BUFFER without a buffer is ignored */
  return ptx_children_record(at, &now);
}

static uint8_t launch_v1(const struct place *at, uint32_t lane) {
  struct child *child = with_buffer(children_of(at), ptx_argument(at, lane, 1));
  if (child == NULL) return INVALID_VALUE;
  uint32_t grid[3], block[3];
  ptx_argument_bytes(at, lane, 2, grid, sizeof grid);
  ptx_argument_bytes(at, lane, 3, block, sizeof block);
  uint8_t error =
      describe(at, child, ptx_argument(at, lane, 0), grid, block, (uint32_t)ptx_argument(at, lane, 4));
  if (error != 0) return error;
  if (child->bytes < at->worker->launch->module->kernels[child->kernel].parameter_bytes) return INVALID_VALUE;
  return launch(at, child, ptx_argument(at, lane, 5));
}

static uint8_t launch_v2(const struct place *at, uint32_t lane) {
  struct child *child = with_buffer(children_of(at), ptx_argument(at, lane, 0));
  return child == NULL ? INVALID_VALUE : launch(at, child, ptx_argument(at, lane, 1));
}

static uint8_t copy(const struct place *at, uint32_t lane, bool fills) {
  struct child child = {.kind = fills ? FILL : COPY,
                        .to = ptx_argument(at, lane, 0),
                        .bytes = ptx_argument(at, lane, 2),
                        .tail = ptx_argument(at, lane, fills ? 3 : 4) == TAIL_STREAM};
  if (fills) child.value = (int32_t)ptx_argument(at, lane, 1);
  else child.from = ptx_argument(at, lane, 1);
  return child.bytes == 0 ? 0 : ptx_children_record(at, &child);
}

static uint64_t error_text(const struct place *at, uint32_t lane, bool name) {
  static const struct {
    uint8_t error;
    const char *texts[2];
  } known[KNOWN_ERRORS] = {
      {0, {"no error", "cudaSuccess"}},
      {INVALID_VALUE, {"invalid argument", "cudaErrorInvalidValue"}},
      {NO_MEMORY, {"out of memory", "cudaErrorMemoryAllocation"}},
      {INVALID_CONFIGURATION, {"invalid configuration argument", "cudaErrorInvalidConfiguration"}},
      {TOO_MANY_PENDING, {"too many pending launches", "cudaErrorLaunchPendingCountExceeded"}},
      {INVALID_FUNCTION, {"invalid device function", "cudaErrorInvalidDeviceFunction"}},
  };
  struct ptx_children *children = children_of(at);
  uint32_t error = (uint32_t)ptx_argument(at, lane, 0);
  size_t i = 0;
  while (i < KNOWN_ERRORS && known[i].error != error) i++;
  if (i == KNOWN_ERRORS || children == NULL) return 0;
  size_t length = strlen(known[i].texts[name]) + 1;
  pthread_mutex_lock(&at->worker->launch->lock);
  uint64_t address = children->texts[name][i];
  if (address == 0) address = ptx_heap_take(at->worker->launch->launch->heap, length);
  children->texts[name][i] = address;
  pthread_mutex_unlock(&at->worker->launch->lock);
  unsigned char *to = address == 0 ? NULL : ptx_in_global(at, lane, address, 1);
  if (to != NULL) memcpy(to, known[i].texts[name], length);
  return address;
}

/* Writes a result of a call through a pointer. False: a fault was raised. */
static bool put(const struct place *at, uint32_t lane, uint64_t address, const void *value, uint32_t bytes) {
  unsigned char *to = ptx_resolve(at, S_GENERIC, lane, address, bytes);
  if (to != NULL) memcpy(to, value, bytes);
  return to != NULL;
}

static bool make(const struct place *at, uint32_t lane) {
  struct ptx_children *children = children_of(at);
  uint64_t number =
      children == NULL ? 0 : 0x10000 + __atomic_fetch_add(&children->numbers, 1, __ATOMIC_RELAXED);
  ptx_give_result(at, lane, 0, 4);
  return put(at, lane, ptx_argument(at, lane, 0), &number, sizeof number);
}

static bool runtime_malloc(const struct place *at, uint32_t lane) {
  uint64_t address = ptx_heap_take(at->worker->launch->launch->heap, ptx_argument(at, lane, 1));
  uint8_t error = address == 0 ? NO_MEMORY : 0;
  if (error != 0) fail(at, lane, error);
  ptx_give_result(at, lane, error, 4);
  return error != 0 || put(at, lane, ptx_argument(at, lane, 0), &address, sizeof address);
}

static uint8_t runtime_free(const struct place *at, uint32_t lane) {
  uint64_t address = ptx_argument(at, lane, 0);
  return address == 0 || ptx_heap_give(at->worker->launch->launch->heap, address) ? 0 : INVALID_VALUE;
}

/* A handle is the address of the condition's value. */
static bool set_conditional(const struct place *at, uint32_t lane) {
  uint64_t handle = ptx_argument(at, lane, 0);
  uint32_t value = (uint32_t)ptx_argument(at, lane, 1);
  unsigned char *to = ptx_in_global(at, lane, handle, sizeof value);
  if (to != NULL) __atomic_store_n((uint32_t *)(void *)to, value, __ATOMIC_RELAXED);
  return to != NULL;
}

static void give_error(const struct place *at, uint32_t lane, uint8_t error) {
  if (error != 0) fail(at, lane, error);
  ptx_give_result(at, lane, error, 4);
}

static bool child_call(const struct place *at, uint32_t lane, uint32_t builtin) {
  switch (builtin) {
    case BUILTIN_BUFFER:
      ptx_give_result(at, lane, buffer(at, lane), 8);
      return true;
    case BUILTIN_BUFFER_V2:
      ptx_give_result(at, lane, buffer_v2(at, lane), 8);
      return true;
    case BUILTIN_LAUNCH:
      give_error(at, lane, launch_v1(at, lane));
      return true;
    case BUILTIN_LAUNCH_V2:
      give_error(at, lane, launch_v2(at, lane));
      return true;
    case BUILTIN_COPY:
    case BUILTIN_FILL:
      give_error(at, lane, copy(at, lane, builtin == BUILTIN_FILL));
      return true;
    case BUILTIN_MAKE:
      return make(at, lane);
    case BUILTIN_ORDER:
      ptx_give_result(at, lane, 0, 4);
      return true;
    case BUILTIN_LAST_ERROR:
    case BUILTIN_PEEK_ERROR:
      ptx_give_result(at, lane, at->warp->launch_error[lane], 4);
      if (builtin == BUILTIN_LAST_ERROR) at->warp->launch_error[lane] = 0;
      return true;
    case BUILTIN_ERROR_TEXT:
    case BUILTIN_ERROR_NAME:
      ptx_give_result(at, lane, error_text(at, lane, builtin == BUILTIN_ERROR_NAME), 8);
      return true;
    case BUILTIN_RUNTIME_MALLOC:
      return runtime_malloc(at, lane);
    case BUILTIN_RUNTIME_FREE:
      give_error(at, lane, runtime_free(at, lane));
      return true;
    default:
      return set_conditional(at, lane);
  }
}

bool ptx_child_call(const struct place *at, uint32_t lane, uint32_t builtin) {
  if (builtin > BUILTIN_SET_CONDITIONAL) return ptx_device_call(at, lane, builtin);
  /* Raising a fault takes the lock, so calls that may do so do not hold it. */
  bool locked = builtin != BUILTIN_SET_CONDITIONAL && builtin != BUILTIN_RUNTIME_MALLOC &&
                builtin != BUILTIN_MAKE && builtin != BUILTIN_ERROR_TEXT && builtin != BUILTIN_ERROR_NAME;
  if (!locked) return child_call(at, lane, builtin);
  pthread_mutex_lock(&at->worker->launch->lock);
  bool good = child_call(at, lane, builtin);
  pthread_mutex_unlock(&at->worker->launch->lock);
  return good;
}
