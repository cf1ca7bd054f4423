/*
 * Fuzzes the guest's end: a session whose host sends the input as answers. First byte: bit 0: the input also
 * has the headers of the answers; else it has only body, sizes and status, and the welcome is valid. Bit 1:
 * the guest is in a VM that shares memory with its host. That memory is all zero, and the session ends where
 * it began.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/facts.h"
#include "guest/session.h"
#include "wire/read_ahead.h"
#include "wire/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *count, char ***words);

static struct input {
  const uint8_t *at;
  size_t left;
  bool raw;
  bool welcomed;
  struct vgpu_frame asked; /* last frame that the guest sent */
} input;

static bool bytes(void *to, size_t size) {
  memset(to, 0, size);
  size_t step = size < input.left ? size : input.left;
  memcpy(to, input.at, step);
  input.at += step;
  input.left -= step;
  return step == size;
}

int __wrap_vgpu_stream_connect(const struct vgpu_address *address, int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_read(int descriptor, void *to, size_t size, int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_skip(int descriptor, size_t size, int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_read_ahead_read(struct vgpu_read_ahead *ahead, void *to, size_t size,
                                                    int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_read_ahead_skip(struct vgpu_read_ahead *ahead, size_t size,
                                                    int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_read_ahead_read_header(struct vgpu_read_ahead *ahead,
                                                           struct vgpu_frame *frame, int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_write(int descriptor, const void *from, size_t size,
                                                 int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_write_after(int descriptor, const void *before, size_t before_size,
                                                       struct vgpu_frame *frame, const void *body,
                                                       uint32_t body_size, const void *bulk,
                                                       uint32_t bulk_size, int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_write_frame(int descriptor, struct vgpu_frame *frame,
                                                       const void *body, uint32_t body_size, const void *bulk,
                                                       uint32_t bulk_size, int64_t deadline);

int __wrap_vgpu_stream_connect(const struct vgpu_address *address, int64_t deadline) {
  (void)address;
  (void)deadline;
  return dup(0); /* the session closes it */
}

enum vgpu_stream_result __wrap_vgpu_stream_read(int descriptor, void *to, size_t size, int64_t deadline) {
  (void)descriptor;
  (void)deadline;
  if (!input.raw && !input.welcomed && size == sizeof(struct vgpu_welcome)) {
    struct vgpu_welcome welcome = {.magic = VGPU_WIRE_MAGIC,
                                   .major = VGPU_WIRE_MAJOR,
                                   .frame_max = VGPU_FRAME_MAX,
                                   .device_count = 2,
                                   .cuda_version = 13000,
                                   .session = 1};
    memcpy(to, &welcome, sizeof welcome);
    input.welcomed = true;
    return VGPU_STREAM_OK;
  }
  return bytes(to, size) ? VGPU_STREAM_OK : VGPU_STREAM_CLOSED;
}

enum vgpu_stream_result __wrap_vgpu_stream_skip(int descriptor, size_t size, int64_t deadline) {
  static unsigned char sink[VGPU_FRAME_MAX];
  return size > sizeof sink ? VGPU_STREAM_CLOSED : __wrap_vgpu_stream_read(descriptor, sink, size, deadline);
}

enum vgpu_stream_result __wrap_vgpu_read_ahead_read(struct vgpu_read_ahead *ahead, void *to, size_t size,
                                                    int64_t deadline) {
  (void)ahead;
  (void)deadline;
  return bytes(to, size) ? VGPU_STREAM_OK : VGPU_STREAM_CLOSED;
}

enum vgpu_stream_result __wrap_vgpu_read_ahead_skip(struct vgpu_read_ahead *ahead, size_t size,
                                                    int64_t deadline) {
  (void)ahead;
  return __wrap_vgpu_stream_skip(-1, size, deadline);
}

enum vgpu_stream_result __wrap_vgpu_read_ahead_read_header(struct vgpu_read_ahead *ahead,
                                                           struct vgpu_frame *frame, int64_t deadline) {
  (void)ahead;
  (void)deadline;
  if (input.raw) {
    if (!bytes(frame, sizeof *frame)) return VGPU_STREAM_CLOSED;
  } else {
    uint8_t how[4];
    if (input.left == 0) return VGPU_STREAM_CLOSED;
    bytes(how, sizeof how);
    *frame = (struct vgpu_frame){
        .opcode = input.asked.opcode, .flags = VGPU_FLAG_REPLY, .sequence = input.asked.sequence};
    frame->status = (int8_t)how[0] > 16 ? how[0] : 0;
    frame->body = input.asked.opcode == VGPU_OP_HELLO ? (uint32_t)sizeof(struct vgpu_welcome) : how[1];
    frame->bulk = (uint32_t)how[2] * 256u + how[3];
    frame->length = vgpu_frame_length(frame->body, frame->bulk);
  }
  return vgpu_frame_sound(frame) ? VGPU_STREAM_OK : VGPU_STREAM_UNSOUND;
}

enum vgpu_stream_result __wrap_vgpu_stream_write(int descriptor, const void *from, size_t size,
                                                 int64_t deadline) {
  (void)descriptor;
  (void)from;
  (void)size;
  (void)deadline;
  return VGPU_STREAM_OK;
}

enum vgpu_stream_result __wrap_vgpu_stream_write_after(int descriptor, const void *before, size_t before_size,
                                                       struct vgpu_frame *frame, const void *body,
                                                       uint32_t body_size, const void *bulk,
                                                       uint32_t bulk_size, int64_t deadline) {
  (void)before;
  (void)before_size;
  return __wrap_vgpu_stream_write_frame(descriptor, frame, body, body_size, bulk, bulk_size, deadline);
}

enum vgpu_stream_result __wrap_vgpu_stream_write_frame(int descriptor, struct vgpu_frame *frame,
                                                       const void *body, uint32_t body_size, const void *bulk,
                                                       uint32_t bulk_size, int64_t deadline) {
  (void)descriptor;
  (void)body;
  (void)body_size;
  (void)bulk;
  (void)bulk_size;
  (void)deadline;
  input.asked = *frame;
  return VGPU_STREAM_OK;
}

enum vgpu_stream_result __wrap_vgpu_stream_read_passed(int descriptor, void *to, size_t size, int *passed,
                                                       int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_read_passed(int descriptor, void *to, size_t size, int *passed,
                                                       int64_t deadline) {
  if (passed != NULL) *passed = -1;
  if (size != sizeof(struct vgpu_frame)) return __wrap_vgpu_stream_read(descriptor, to, size, deadline);
  enum vgpu_stream_result result = __wrap_vgpu_read_ahead_read_header(NULL, to, deadline);
  return result == VGPU_STREAM_UNSOUND ? VGPU_STREAM_OK : result; /* the caller checks */
}

static char vm_memory[64];

int LLVMFuzzerInitialize(int *count, char ***words) {
  (void)count;
  (void)words;
  int memory = memfd_create("vm", 0);
  if (memory < 0 || ftruncate(memory, 64 << 20) != 0) exit(2);
  snprintf(vm_memory, sizeof vm_memory, "/proc/self/fd/%d", memory);
  setenv("VGPU_HOST", "tcp:127.0.0.1:9", 1); /* as a stream, without rings */
  unsetenv("VGPU_LOG");
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  input = (struct input){.at = data + 1, .left = size - 1, .raw = (data[0] & 1) != 0};
  bool in_vm = (data[0] & 2) != 0;
  setenv("VGPU_VM_MEMORY", in_vm ? vm_memory : "none", 1);
  struct vgpu_session *session;
  if (vgpu_session_open(&session, VGPU_LIBRARY_CUDA, NULL) != VGPU_ANSWERED) return 0;
  for (int round = in_vm ? 8 : 0; round < 8 && !vgpu_session_is_lost(session); round++) {
    int32_t status = 0;
    unsigned char body[64], bulk[4096];
    struct vgpu_receive receive = {
        .body = body, .body_size = sizeof body, .bulk = bulk, .bulk_capacity = sizeof bulk};
    if (round % 4 < 3) {
      fuzz_ask_facts(session, (unsigned)round % 4);
      continue;
    }
    vgpu_session_post(session, VGPU_OP_CUDA | 1, NULL);
    if (vgpu_session_call(session, VGPU_OP_CUDA | 2, NULL, &receive, &status) == VGPU_ANSWERED &&
        status == 0 && receive.bulk_size > sizeof bulk)
      abort();
    vgpu_session_take_deferred(session);
  }
  vgpu_session_close(session);
  return 0;
}
