#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_calls.h"
#include "guest/cuda/module/code.h"
#include "guest/log.h"

enum {
  JIT_WALL_TIME = 2,
  JIT_INFO_LOG = 3,
  JIT_INFO_LOG_SIZE = 4,
  JIT_ERROR_LOG = 5,
  JIT_ERROR_LOG_SIZE = 6
};

static int send_image(const struct vgpu_image *image) {
  struct vgpu_send_image_piece send = {.hash_0 = image->hash.words[0],
                                       .hash_1 = image->hash.words[1],
                                       .hash_2 = image->hash.words[2],
                                       .hash_3 = image->hash.words[3],
                                       .bytes = image->size};
  int result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && send.offset < image->size) {
    uint64_t left = image->size - send.offset;
    uint32_t step = left < VGPU_BULK_MAX ? (uint32_t)left : VGPU_BULK_MAX;
    result = vgpu_cuda_post(VGPU_OP_image_piece, &send, sizeof send, image->bytes + send.offset, step);
    send.offset += step;
  }
  return result;
}

/* Returns the place of an option in the list; -1: not given. */
static int option_at(const struct vgpu_jit *jit, int32_t option) {
  for (uint32_t i = 0; i < jit->count; i++) {
    if (jit->options[i] == option) return (int)i;
  }
  return -1;
}

/*
 * Copies a log to the buffer that the options name, and writes its length to the option that gave the
 * buffer's size.
 */
static void deliver_log(const struct vgpu_jit *jit, int32_t buffer, int32_t size, const char *log,
                        uint32_t bytes) {
  int buffer_at = option_at(jit, buffer), size_at = option_at(jit, size);
  if (size_at < 0) return;
  uint64_t room = (uint64_t)(uintptr_t)jit->values[size_at];
  jit->values[size_at] = NULL;
  if (buffer_at < 0 || jit->values[buffer_at] == NULL || room == 0) return;
  char *to = jit->values[buffer_at];
  if (bytes > room) bytes = (uint32_t)room;
  if (bytes > 0) memcpy(to, log, bytes);
  to[bytes > 0 ? bytes - 1 : 0] = '\0';
  jit->values[size_at] = (void *)(uintptr_t)bytes;
}

/* Programs seldom ask for the log, so VGPU_LOG gets it, too. */
static void tell_log(const char *log, uint32_t bytes) {
  uint32_t length;
  for (uint32_t at = 0; at < bytes && log[at] != '\0'; at += length + 1) {
    length = (uint32_t)strcspn(log + at, "\n");
    if (length > 0) vgpu_log("JIT log of a module: %.*s", (int)length, log + at);
    if (log[at + length] == '\0') return;
  }
}

#define LOG_MAX 65536u
#define LOGS_MAX (2u * LOG_MAX)

/* The replies of all three calls begin with these fields. */
_Static_assert(sizeof(struct vgpu_reply_cuModuleLoadDataEx) == sizeof(struct vgpu_reply_cuLibraryLoadData),
               "alike");
_Static_assert(sizeof(struct vgpu_reply_cuModuleLoadDataEx) ==
                   offsetof(struct vgpu_reply_link_images, number),
               "alike");

static int load_once(const struct vgpu_image_request *request, const struct vgpu_jit *jit,
                     const struct vgpu_jit_option *options, uint32_t count, bool *missing) {
  struct vgpu_reply_cuModuleLoadDataEx reply = {0};
  char *logs = malloc(LOGS_MAX + 1);
  if (logs == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  struct vgpu_cuda_exchange exchange = {.send = request->send,
                                        .send_size = request->send_size,
                                        .reply = request->reply,
                                        .reply_size = request->reply_size,
                                        .send_bulk = options,
                                        .send_bulk_size = count * (uint32_t)sizeof *options,
                                        .bulk = logs,
                                        .bulk_capacity = LOGS_MAX};
  int result = vgpu_cuda_exchange(request->opcode, &exchange);
  memcpy(&reply, request->reply, sizeof reply);
  *missing = result == CUDA_SUCCESS && reply.missing != 0;
  if (result == CUDA_SUCCESS && !*missing) {
    bool sound = (uint64_t)reply.info_bytes + reply.error_bytes == exchange.bulk_size;
    logs[exchange.bulk_size] = '\0';
    if (sound) tell_log(logs, reply.info_bytes);
    deliver_log(jit, JIT_INFO_LOG, JIT_INFO_LOG_SIZE, logs, sound ? reply.info_bytes : 0);
    deliver_log(jit, JIT_ERROR_LOG, JIT_ERROR_LOG_SIZE, sound ? logs + reply.info_bytes : logs,
                sound ? reply.error_bytes : 0);
    int time_at = option_at(jit, JIT_WALL_TIME);
    if (time_at >= 0) jit->values[time_at] = NULL; /* 0.0 milliseconds: nothing was compiled */
    result = reply.result;
  }
  free(logs);
  return result;
}

int vgpu_image_load(const struct vgpu_image_request *request, const struct vgpu_image *image,
                    const struct vgpu_jit *jit) {
  struct vgpu_jit_option options[VGPU_JIT_OPTIONS_MAX];
  if (jit->count > VGPU_JIT_OPTIONS_MAX ||
      (jit->count > 0 && (jit->options == NULL || jit->values == NULL))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (uint32_t i = 0; i < jit->count; i++) {
    bool buffer = jit->options[i] == JIT_INFO_LOG || jit->options[i] == JIT_ERROR_LOG;
    options[i] = (struct vgpu_jit_option){.option = (uint32_t)jit->options[i],
                                          .value = buffer ? 0 : (uint64_t)(uintptr_t)jit->values[i]};
  }
  uint32_t count = jit->count;
  if (count < VGPU_JIT_OPTIONS_MAX && option_at(jit, JIT_INFO_LOG_SIZE) < 0 && vgpu_log_wanted())
    options[count++] = (struct vgpu_jit_option){.option = JIT_INFO_LOG_SIZE, .value = LOG_MAX};
  bool missing;
  int result = load_once(request, jit, options, count, &missing);
  if (result != CUDA_SUCCESS || !missing) return result;
  result = send_image(image);
  if (result == CUDA_SUCCESS) result = load_once(request, jit, options, count, &missing);
  /* Still missing: the host had no room for the image. */
  return result == CUDA_SUCCESS && missing ? CUDA_ERROR_OUT_OF_MEMORY : result;
}
