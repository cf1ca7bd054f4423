#include "host/backend/cuda/jit.h"

#include <stdlib.h>
#include <string.h>

#define LOG_MAX 65536u

/*
 * CUjit_option. Options whose value is a buffer or a table are not carried, except the logs, which go to
 * buffers of this process.
 */
enum {
  JIT_INFO_LOG = 3,
  JIT_INFO_LOG_SIZE = 4,
  JIT_ERROR_LOG = 5,
  JIT_ERROR_LOG_SIZE = 6,
};

/*
 * Options whose value is a number (CUDA 13's public header). The counts of tables, 19, 26 and 28, are left
 * out: the tables of pointers stay in the guest, and a driver would read a count without its table.
 */
static bool is_plain(uint32_t option) {
  static const uint64_t plain = 1ull << 0 | 1ull << 1 | 1ull << 7 | 1ull << 8 | 1ull << 9 | 1ull << 10 |
                                1ull << 11 | 1ull << 12 | 1ull << 13 | 1ull << 14 | 1ull << 20 | 1ull << 21 |
                                1ull << 22 | 1ull << 23 | 1ull << 24 | 1ull << 29 | 1ull << 30 | 1ull << 31 |
                                1ull << 32 | 1ull << 33 | 1ull << 34 | 1ull << 35;
  return option < 64 && (plain >> option & 1) != 0;
}

static void add_option(struct vgpu_cuda_jit *options, int32_t name, void *value) {
  options->names[options->count] = name;
  options->values[options->count++] = value;
}

/* Adds a buffer for a log, of the size that the program has. The driver writes the used length. */
static bool add_log(struct vgpu_cuda_jit *options, int which, uint64_t wanted) {
  uint32_t size = wanted < LOG_MAX ? (uint32_t)wanted : LOG_MAX;
  if (size == 0 || options->logs[which] != NULL) return true;
  options->logs[which] = calloc(1, size);
  if (options->logs[which] == NULL) return false;
  add_option(options, which == 0 ? JIT_INFO_LOG : JIT_ERROR_LOG, options->logs[which]);
  options->at[which] = options->count;
  add_option(options, which == 0 ? JIT_INFO_LOG_SIZE : JIT_ERROR_LOG_SIZE, (void *)(uintptr_t)size);
  return true;
}

bool vgpu_cuda_jit_read(const struct vgpu_bulk *bulk, struct vgpu_cuda_jit *options) {
  struct vgpu_jit_option option;
  uint32_t count = bulk->in_size / (uint32_t)sizeof option;
  if (bulk->in_size % sizeof option != 0 || count > VGPU_JIT_OPTIONS_MAX / 2) return false;
  for (uint32_t i = 0; i < count; i++) {
    memcpy(&option, bulk->in + i * sizeof option, sizeof option);
    bool sound = true;
    if (option.option == JIT_INFO_LOG_SIZE) sound = add_log(options, 0, option.value);
    else if (option.option == JIT_ERROR_LOG_SIZE) sound = add_log(options, 1, option.value);
    else if (is_plain(option.option))
      add_option(options, (int32_t)option.option, (void *)(uintptr_t)option.value);
    if (!sound) return false;
  }
  return true;
}

void vgpu_cuda_jit_tell(struct vgpu_cuda_jit *options, uint32_t *info_bytes, uint32_t *error_bytes,
                        struct vgpu_bulk *bulk) {
  uint32_t *told[2] = {info_bytes, error_bytes};
  if (bulk != NULL) bulk->out_size = 0;
  for (int i = 0; i < 2; i++) {
    *told[i] = 0;
    if (options->logs[i] == NULL) continue;
    uint32_t length = (uint32_t)strnlen(options->logs[i], LOG_MAX - 1);
    if (length > 0 && bulk != NULL) {
      memcpy(bulk->out + bulk->out_size, options->logs[i], length);
      bulk->out[bulk->out_size + length] = '\0';
      *told[i] = length + 1;
      bulk->out_size += length + 1;
    }
    free(options->logs[i]);
  }
}
