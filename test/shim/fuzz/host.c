/*
 * Fuzzes the host's end: a real worker of the software device that reads the input instead of a socket. First
 * byte: bit 0: a raw stream of bytes, bit 1: libnvidia-ml; then records of grammar.h.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/grammar.h"
#include "fuzz/serve.h"
#include "wire/read_ahead.h"
#include "wire/greeting.h"
#include "wire/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct fuzz_guest guest;
static bool raw;
static unsigned char frame_bytes[VGPU_FRAME_MAX];
static size_t frame_size, frame_at;

enum vgpu_stream_result __wrap_vgpu_read_ahead_read(struct vgpu_read_ahead *ahead, void *to, size_t size,
                                                    int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_read_ahead_skip(struct vgpu_read_ahead *ahead, size_t size,
                                                    int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_read_ahead_read_header(struct vgpu_read_ahead *ahead,
                                                           struct vgpu_frame *frame, int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_write_frame(int descriptor, struct vgpu_frame *frame,
                                                       const void *body, uint32_t body_size, const void *bulk,
                                                       uint32_t bulk_size, int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_pass_frame(int descriptor, struct vgpu_frame *frame,
                                                      const void *body, uint32_t body_size, int passed,
                                                      int64_t deadline);

enum vgpu_stream_result __wrap_vgpu_read_ahead_read(struct vgpu_read_ahead *ahead, void *to, size_t size,
                                                    int64_t deadline) {
  (void)ahead;
  (void)deadline;
  if (raw) {
    if (size > guest.source.left) return VGPU_STREAM_CLOSED;
    fuzz_bytes(&guest.source, to, size);
    return VGPU_STREAM_OK;
  }
  if (size > frame_size - frame_at) return VGPU_STREAM_CLOSED;
  memcpy(to, frame_bytes + frame_at, size);
  frame_at += size;
  return VGPU_STREAM_OK;
}

enum vgpu_stream_result __wrap_vgpu_read_ahead_skip(struct vgpu_read_ahead *ahead, size_t size,
                                                    int64_t deadline) {
  static unsigned char sink[VGPU_FRAME_MAX];
  return size > sizeof sink ? VGPU_STREAM_CLOSED : __wrap_vgpu_read_ahead_read(ahead, sink, size, deadline);
}

enum vgpu_stream_result __wrap_vgpu_read_ahead_read_header(struct vgpu_read_ahead *ahead,
                                                           struct vgpu_frame *frame, int64_t deadline) {
  if (!raw && frame_at == frame_size) {
    frame_size = fuzz_frame(&guest, frame_bytes);
    frame_at = 0;
    if (frame_size == 0) return VGPU_STREAM_CLOSED;
  }
  enum vgpu_stream_result result = __wrap_vgpu_read_ahead_read(ahead, frame, sizeof *frame, deadline);
  if (result != VGPU_STREAM_OK) return result;
  return vgpu_frame_sound(frame) ? VGPU_STREAM_OK : VGPU_STREAM_UNSOUND;
}

enum vgpu_stream_result __wrap_vgpu_stream_write_frame(int descriptor, struct vgpu_frame *frame,
                                                       const void *body, uint32_t body_size, const void *bulk,
                                                       uint32_t bulk_size, int64_t deadline) {
  (void)descriptor;
  (void)deadline;
  /* Reads all bytes, so that a sanitizer notices missing ones. */
  const unsigned char *parts[2] = {body, bulk};
  uint32_t sizes[2] = {body_size, bulk_size};
  volatile unsigned sum = 0;
  for (int part = 0; part < 2; part++) {
    for (uint32_t i = 0; i < sizes[part]; i++) sum += parts[part][i];
  }
  (void)sum;
  if (body_size > VGPU_BODY_MAX || bulk_size > VGPU_BULK_MAX) abort();
  fuzz_answer(&guest, frame->opcode, body, body_size);
  return VGPU_STREAM_OK;
}

enum vgpu_stream_result __wrap_vgpu_stream_pass_frame(int descriptor, struct vgpu_frame *frame,
                                                      const void *body, uint32_t body_size, int passed,
                                                      int64_t deadline) {
  (void)passed;
  return __wrap_vgpu_stream_write_frame(descriptor, frame, body, body_size, NULL, 0, deadline);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct fuzz_source source = {.at = data, .left = size};
  uint8_t mode = fuzz_byte(&source);
  fuzz_guest_begin(&guest, source);
  raw = (mode & 1) != 0;
  guest.nvml = (mode & 2) != 0;
  guest.sequence = 1;
  frame_size = frame_at = 0;
  unsigned char greeting[VGPU_GREETING_MAX];
  size_t greeting_size;
  if (raw) {
    greeting_size = vgpu_frame_length(sizeof(struct vgpu_hello), 0);
    fuzz_bytes(&guest.source, greeting, greeting_size);
  } else {
    greeting_size = fuzz_greeting(&guest, 0, greeting);
  }
  fuzz_serve(false, greeting, greeting_size);
  return 0;
}
