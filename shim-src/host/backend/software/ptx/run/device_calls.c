/* cuda_device_runtime_api.h. Sizes and positions are in bytes, because kernels name no arrays. */
#include <string.h>

#include "host/backend/software/ptx/run/children.h"

#define PITCHED_WORDS 4u /* cudaPitchedPtr: address, bytes of a row, width, rows */
#define EXTENT_WORDS 3u  /* cudaExtent: width, rows, slices */
#define DEFAULT_STACK 1024u
#define DEFAULT_PENDING 2048u
#define TAIL_STREAM 3u /* cudaStreamTailLaunch */

enum {
  INVALID_VALUE = 1,
  INVALID_PITCH = 12,
  INVALID_DEVICE = 101,
  UNSUPPORTED_LIMIT = 215,
  NOT_SUPPORTED = 801,
};

/* Indices are in words of 8 bytes. */
enum {
  FROM_ARRAY,
  FROM_PLACE,
  FROM = 4,
  TO_ARRAY = 8,
  TO_PLACE,
  TO = 12,
  EXTENT = 16,
  PARAMETERS_WORDS = 19
};

/* Writes a result of a call through a pointer. False: a fault was raised. */
static bool put(const struct place *at, uint32_t lane, uint64_t value, uint32_t bytes) {
  unsigned char *to = ptx_resolve(at, S_GENERIC, lane, ptx_argument(at, lane, 0), bytes);
  if (to != NULL) memcpy(to, &value, bytes);
  return to != NULL;
}

static bool give(const struct place *at, uint32_t lane, uint32_t error) {
  if (error != 0) at->warp->launch_error[lane] = (uint16_t)error;
  ptx_give_result(at, lane, error, 4);
  return true;
}

static bool answer(const struct place *at, uint32_t lane, uint32_t error, uint64_t value, uint32_t bytes) {
  give(at, lane, error);
  return error != 0 || put(at, lane, value, bytes);
}

static bool attribute(const struct place *at, uint32_t lane, const struct ptx_device *device) {
  uint32_t number = (uint32_t)ptx_argument(at, lane, 1), which = (uint32_t)ptx_argument(at, lane, 2);
  if (device == NULL || which >= (uint32_t)device->count) return give(at, lane, INVALID_DEVICE);
  /* The facts of the others are not here. */
  if (which != (uint32_t)device->number) return give(at, lane, NOT_SUPPORTED);
  if (number >= device->attribute_count || (device->known[number / 8] >> number % 8 & 1) == 0)
    return give(at, lane, INVALID_VALUE);
  return answer(at, lane, 0, (uint32_t)device->attributes[number], 4);
}

static bool limit(const struct place *at, uint32_t lane, const struct ptx_device *device) {
  uint32_t stack = at->worker->launch->launch->stack_limit;
  switch ((uint32_t)ptx_argument(at, lane, 1)) {
    case 0: /* cudaLimitStackSize */
      return answer(at, lane, 0, stack == 0 ? DEFAULT_STACK : stack, 8);
    case 1: /* cudaLimitPrintfFifoSize */
      return answer(at, lane, device == NULL ? INVALID_DEVICE : 0, device == NULL ? 0 : device->printed_bytes,
                    8);
    case 2: /* cudaLimitMallocHeapSize */
      return answer(at, lane, device == NULL ? INVALID_DEVICE : 0, device == NULL ? 0 : device->heap_bytes,
                    8);
    case 4: /* cudaLimitDevRuntimePendingLaunchCount */
      return answer(at, lane, 0, DEFAULT_PENDING, 8);
    default:
      return give(at, lane, UNSUPPORTED_LIMIT);
  }
}

/* Returns the version of the CUDA that has this version of PTX, as its runtime gives it: 12040 is 12.4. */
static uint32_t runtime_version(uint32_t ptx) {
  uint32_t major = ptx / 10, minor = ptx % 10;
  if (major < 8) return 11080;
  if (major > 8) return (major + 4) * 1000 + minor * 10;
  return 12000 + (minor < 6 ? minor : minor + 1) * 10; /* 12.5 and 12.6 have 8.5 */
}

/*
 * True if the parts lie one behind the other. Each part is accessed, so the memory limits their count unless
 * addresses begin again.
 */
static bool is_range(uint64_t count, uint64_t step) {
  uint64_t all;
  return !__builtin_mul_overflow(count, step, &all);
}

static bool record(const struct place *at, uint32_t lane, struct child *child, uint64_t stream) {
  if (!is_range(child->rows, child->to_row) || !is_range(child->slices, child->to_slice))
    return give(at, lane, INVALID_VALUE);
  child->tail = stream == TAIL_STREAM;
  pthread_mutex_lock(&at->worker->launch->lock);
  uint8_t error =
      child->bytes == 0 || child->rows == 0 || child->slices == 0 ? 0 : ptx_children_record(at, child);
  pthread_mutex_unlock(&at->worker->launch->lock);
  return give(at, lane, error);
}

static bool copy_rows(const struct place *at, uint32_t lane) {
  struct child child = {.kind = COPY,
                        .to = ptx_argument(at, lane, 0),
                        .to_row = ptx_argument(at, lane, 1),
                        .from = ptx_argument(at, lane, 2),
                        .from_row = ptx_argument(at, lane, 3),
                        .bytes = ptx_argument(at, lane, 4),
                        .rows = ptx_argument(at, lane, 5),
                        .slices = 1};
  if (child.bytes > child.to_row || child.bytes > child.from_row) return give(at, lane, INVALID_PITCH);
  return record(at, lane, &child, ptx_argument(at, lane, 7));
}

static bool fill_rows(const struct place *at, uint32_t lane) {
  struct child child = {.kind = FILL,
                        .to = ptx_argument(at, lane, 0),
                        .to_row = ptx_argument(at, lane, 1),
                        .value = (int32_t)ptx_argument(at, lane, 2),
                        .bytes = ptx_argument(at, lane, 3),
                        .rows = ptx_argument(at, lane, 4),
                        .slices = 1};
  if (child.bytes > child.to_row) return give(at, lane, INVALID_PITCH);
  return record(at, lane, &child, ptx_argument(at, lane, 5));
}

/* Gives the bytes from one slice to the next. False: the rows do not fit, or the number is too large. */
static bool slice_of(const uint64_t *memory, const uint64_t *extent, uint64_t *slice) {
  return !__builtin_mul_overflow(memory[1], memory[3], slice) && (extent[2] <= 1 || extent[1] <= memory[3]);
}

static bool fill_box(const struct place *at, uint32_t lane) {
  uint64_t to[PITCHED_WORDS], extent[EXTENT_WORDS];
  if (ptx_argument_room(at, 0) < sizeof to || ptx_argument_room(at, 2) < sizeof extent)
    return give(at, lane, INVALID_VALUE);
  ptx_argument_bytes(at, lane, 0, to, sizeof to);
  ptx_argument_bytes(at, lane, 2, extent, sizeof extent);
  struct child child = {.kind = FILL,
                        .to = to[0],
                        .to_row = to[1],
                        .value = (int32_t)ptx_argument(at, lane, 1),
                        .bytes = extent[0],
                        .rows = extent[1],
                        .slices = extent[2]};
  if (extent[0] > to[1]) return give(at, lane, INVALID_PITCH);
  if (!slice_of(to, extent, &child.to_slice)) return give(at, lane, INVALID_VALUE);
  return record(at, lane, &child, ptx_argument(at, lane, 3));
}

static uint64_t place_in(const uint64_t *memory, const uint64_t *place) {
  return memory[0] + place[0] + memory[1] * (place[1] + memory[3] * place[2]);
}

static bool copy_box(const struct place *at, uint32_t lane) {
  uint64_t words[PARAMETERS_WORDS], address = ptx_argument(at, lane, 0);
  for (uint32_t i = 0; i < PARAMETERS_WORDS; i++) {
    const unsigned char *from = ptx_resolve(at, S_GENERIC, lane, address + 8ul * i, 8);
    if (from == NULL) return false;
    memcpy(&words[i], from, 8);
  }
  if (words[FROM_ARRAY] != 0 || words[TO_ARRAY] != 0) return give(at, lane, NOT_SUPPORTED);
  const uint64_t *to = words + TO, *from = words + FROM, *extent = words + EXTENT;
  struct child child = {.kind = COPY,
                        .to = place_in(to, words + TO_PLACE),
                        .to_row = to[1],
                        .from = place_in(from, words + FROM_PLACE),
                        .from_row = from[1],
                        .bytes = extent[0],
                        .rows = extent[1],
                        .slices = extent[2]};
  if (extent[0] > to[1] || extent[0] > from[1]) return give(at, lane, INVALID_PITCH);
  if (!slice_of(to, extent, &child.to_slice) || !slice_of(from, extent, &child.from_slice))
    return give(at, lane, INVALID_VALUE);
  return record(at, lane, &child, ptx_argument(at, lane, 1));
}

bool ptx_device_call(const struct place *at, uint32_t lane, uint32_t builtin) {
  const struct ptx_device *device = at->worker->launch->launch->device;
  uint32_t none = device == NULL ? INVALID_DEVICE : 0;
  switch (builtin) {
    case BUILTIN_COPY_ROWS:
      return copy_rows(at, lane);
    case BUILTIN_COPY_BOX:
      return copy_box(at, lane);
    case BUILTIN_FILL_ROWS:
      return fill_rows(at, lane);
    case BUILTIN_FILL_BOX:
      return fill_box(at, lane);
    case BUILTIN_DEVICE:
      return answer(at, lane, none, device == NULL ? 0 : (uint32_t)device->number, 4);
    case BUILTIN_DEVICE_COUNT:
      return answer(at, lane, none, device == NULL ? 0 : (uint32_t)device->count, 4);
    case BUILTIN_DEVICE_ATTRIBUTE:
      return attribute(at, lane, device);
    case BUILTIN_DEVICE_LIMIT:
      return limit(at, lane, device);
    case BUILTIN_CACHE_CONFIG:
      return answer(at, lane, 0, 0, 4); /* cudaFuncCachePreferNone */
    case BUILTIN_SHARED_CONFIG:
      return answer(at, lane, 0, 1, 4); /* cudaSharedMemBankSizeFourByte */
    case BUILTIN_RUNTIME_VERSION:
      return answer(at, lane, 0, runtime_version(at->worker->launch->module->version), 4);
    default:
      return give(at, lane, NOT_SUPPORTED);
  }
}
