/*
 * The host's end, fuzzed: a worker of the software device, in this process, that reads what the input says
 * instead of a socket. The generated dispatch table gives each call's size, so most inputs are sound frames
 * of real calls with odd contents, some a raw stream of bytes.
 *
 * First byte: bit 0 a raw stream, bit 1 libnvidia-ml. Then records, each:
 *   u16 which call (its number in the description, else modulo their number); bit 15 a control call, bit 14
 * flags as the next byte has them, bit 13 sizes as the next two bytes have them one word for each 8 bytes of
 * its body: 00-7f that number, 80-8f a power of 16, 90-9f an answer of before, a0 all ones, a1 zero, else the
 * next 8 bytes u8 bytes of bulk (times 4, from the input)
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_calls.h"
#include "host/backend.h"
#include "host/log.h"
#include "host/software/software.h"
#include "host/worker.h"
#include "wire/stream.h"

#define CALLS_MAX 2048u
#define KEPT 16u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *count, char ***words);

static const struct vgpu_dispatch_row *calls[2][CALLS_MAX];
static uint32_t call_count[2];
static struct vgpu_inventory inventory;
static struct vgpu_accounts *accounts;

static struct input {
  const uint8_t *at;
  size_t left;
  bool raw;
  bool nvml;
  uint64_t sequence;
  uint64_t answers[KEPT];
  uint32_t answer_count;
  unsigned char frame[VGPU_FRAME_MAX];
  size_t frame_size;
  size_t frame_at;
} input;

static uint8_t byte(void) {
  if (input.left == 0) return 0;
  input.left--;
  return *input.at++;
}

static void bytes(void *to, size_t size) {
  memset(to, 0, size);
  size_t step = size < input.left ? size : input.left;
  memcpy(to, input.at, step);
  input.at += step;
  input.left -= step;
}

static uint64_t word(void) {
  uint8_t kind = byte();
  uint64_t value;
  if (kind < 0x80) return kind;
  if (kind < 0x90) return 1ull << 4 * (kind & 15);
  if (kind < 0xa0) return input.answers[kind & 15];
  if (kind == 0xa0) return UINT64_MAX;
  if (kind == 0xa1) return 0;
  bytes(&value, sizeof value);
  return value;
}

static void make_hello(void) {
  struct vgpu_hello hello = {.magic = VGPU_WIRE_MAGIC,
                             .major = VGPU_WIRE_MAJOR,
                             .frame_max = VGPU_FRAME_MAX,
                             .library = input.nvml ? VGPU_LIBRARY_NVML : VGPU_LIBRARY_CUDA,
                             .pid = 1};
  struct vgpu_frame frame = {
      .length = vgpu_frame_length(sizeof hello, 0), .opcode = VGPU_OP_HELLO, .body = sizeof hello};
  memcpy(input.frame, &frame, sizeof frame);
  memcpy(input.frame + sizeof frame, &hello, sizeof hello);
  input.frame_size = frame.length;
}

/* The next record as a frame; false: no more. */
static bool make_frame(void) {
  if (input.left == 0) return false;
  uint32_t which = byte();
  which |= (uint32_t)byte() << 8;
  struct vgpu_frame frame = {.sequence = input.sequence++};
  uint32_t send_size = 8;
  const struct vgpu_dispatch_row *row = NULL;
  if ((which & 0x8000) != 0) {
    frame.opcode = which & 7;
    if (frame.opcode == VGPU_OP_PING) send_size = 0;
  } else {
    row = input.nvml ? vgpu_dispatch_nvml(VGPU_OP_NVML | (which & 0x1fff))
                     : vgpu_dispatch_cuda(VGPU_OP_CUDA | (which & 0x1fff));
    if (row == NULL) row = calls[input.nvml][(which & 0x1fff) % call_count[input.nvml]];
    frame.opcode = row->opcode;
    frame.flags = row->oneway ? VGPU_FLAG_ONEWAY : 0;
    send_size = row->send_size;
  }
  if ((which & 0x4000) != 0) frame.flags = byte();
  if ((which & 0x2000) != 0) send_size = (uint32_t)byte() << 1;
  frame.body = send_size;
  unsigned char *at = input.frame + sizeof frame;
  for (uint32_t done = 0; done < send_size; done += 8) {
    uint64_t value = word();
    memcpy(at + done, &value, send_size - done < 8 ? send_size - done : 8);
  }
  frame.bulk = (uint32_t)byte() * 4;
  if (frame.bulk > input.left) frame.bulk = (uint32_t)input.left;
  if (row != NULL && !row->bulk_in && (which & 0x2000) == 0) frame.bulk = 0;
  bytes(at + frame.body, frame.bulk);
  frame.length = vgpu_frame_length(frame.body, frame.bulk);
  memset(at + frame.body + frame.bulk, 0, 8);
  memcpy(input.frame, &frame, sizeof frame);
  input.frame_size = frame.length;
  return true;
}

enum vgpu_stream_result __wrap_vgpu_stream_read(int descriptor, void *to, size_t size, int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_skip(int descriptor, size_t size, int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_read_header(int descriptor, struct vgpu_frame *frame,
                                                       int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_write_frame(int descriptor, struct vgpu_frame *frame,
                                                       const void *body, uint32_t body_size, const void *bulk,
                                                       uint32_t bulk_size, int64_t deadline);

enum vgpu_stream_result __wrap_vgpu_stream_read(int descriptor, void *to, size_t size, int64_t deadline) {
  (void)descriptor;
  (void)deadline;
  if (input.raw) {
    if (size > input.left) return VGPU_STREAM_CLOSED;
    bytes(to, size);
    return VGPU_STREAM_OK;
  }
  if (size > input.frame_size - input.frame_at) return VGPU_STREAM_CLOSED;
  memcpy(to, input.frame + input.frame_at, size);
  input.frame_at += size;
  return VGPU_STREAM_OK;
}

enum vgpu_stream_result __wrap_vgpu_stream_skip(int descriptor, size_t size, int64_t deadline) {
  static unsigned char sink[VGPU_FRAME_MAX];
  return size > sizeof sink ? VGPU_STREAM_CLOSED : __wrap_vgpu_stream_read(descriptor, sink, size, deadline);
}

enum vgpu_stream_result __wrap_vgpu_stream_read_header(int descriptor, struct vgpu_frame *frame,
                                                       int64_t deadline) {
  if (!input.raw && input.frame_at == input.frame_size) {
    if (!make_frame()) return VGPU_STREAM_CLOSED;
    input.frame_at = 0;
  }
  enum vgpu_stream_result result = __wrap_vgpu_stream_read(descriptor, frame, sizeof *frame, deadline);
  if (result != VGPU_STREAM_OK) return result;
  return vgpu_frame_sound(frame) ? VGPU_STREAM_OK : VGPU_STREAM_UNSOUND;
}

enum vgpu_stream_result __wrap_vgpu_stream_write_frame(int descriptor, struct vgpu_frame *frame,
                                                       const void *body, uint32_t body_size, const void *bulk,
                                                       uint32_t bulk_size, int64_t deadline) {
  (void)descriptor;
  (void)deadline;
  /* All of it is read, so that a sanitizer sees whether it is there. */
  const unsigned char *parts[2] = {body, bulk};
  uint32_t sizes[2] = {body_size, bulk_size};
  volatile unsigned sum = 0;
  for (int part = 0; part < 2; part++) {
    for (uint32_t i = 0; i < sizes[part]; i++) sum += parts[part][i];
  }
  (void)sum;
  if (body_size > VGPU_BODY_MAX || bulk_size > VGPU_BULK_MAX) abort();
  if (frame->opcode >= VGPU_OP_CUDA && body_size >= 8)
    memcpy(&input.answers[input.answer_count++ % KEPT], body, sizeof input.answers[0]);
  return VGPU_STREAM_OK;
}

enum vgpu_stream_result __wrap_vgpu_stream_pass_frame(int descriptor, struct vgpu_frame *frame,
                                                      const void *body, uint32_t body_size, int passed,
                                                      int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_pass_frame(int descriptor, struct vgpu_frame *frame,
                                                      const void *body, uint32_t body_size, int passed,
                                                      int64_t deadline) {
  (void)passed;
  return __wrap_vgpu_stream_write_frame(descriptor, frame, body, body_size, NULL, 0, deadline);
}

/* Nothing to be told of what a guest did wrong. */
void __wrap_vgpu_host_log(const char *event, uint64_t session, const char *format, ...);
void __wrap_vgpu_host_log(const char *event, uint64_t session, const char *format, ...) {
  (void)event;
  (void)session;
  (void)format;
}

int LLVMFuzzerInitialize(int *count, char ***words) {
  (void)count;
  (void)words;
  static struct vgpu_options options = {.device = VGPU_DEVICE_SOFTWARE, .kernels = VGPU_KERNELS_SKIP};
  options.profile = getenv("VGPU_FUZZ_PROFILE");
  inventory.options = &options;
  if (vgpu_software_backend.take_inventory(&options, &inventory) != 0) exit(2);
  uint64_t totals[VGPU_DEVICES_MAX];
  for (uint32_t i = 0; i < inventory.count; i++) totals[i] = inventory.devices[i].total_memory;
  accounts = vgpu_accounts_make(totals, inventory.count);
  if (accounts == NULL) exit(2);
  for (uint32_t number = 0; number < CALLS_MAX; number++) {
    const struct vgpu_dispatch_row *row = vgpu_dispatch_cuda(VGPU_OP_CUDA | number);
    if (row != NULL) calls[0][call_count[0]++] = row;
    row = vgpu_dispatch_nvml(VGPU_OP_NVML | number);
    if (row != NULL) calls[1][call_count[1]++] = row;
  }
  if (call_count[1] == 0) calls[1][call_count[1]++] = calls[0][0];
  return 0;
}

/* What ends with the process otherwise; most of it goes with its context. */
static void clean_up(struct vgpu_worker *worker) {
  for (size_t i = 0; i < worker->handles.capacity; i++) {
    const struct vgpu_handle *handle = &worker->handles.places[i];
    if (handle->number == 0 || handle->type != VGPU_HANDLE_CONTEXT) continue;
    uint64_t number = handle->number;
    const struct vgpu_dispatch_row *row = vgpu_dispatch_cuda(VGPU_OP_cuCtxDestroy_v2);
    struct vgpu_bulk bulk = {0};
    row->run[VGPU_BACKEND_SOFTWARE](worker, &number, NULL, &bulk);
    i = (size_t)-1; /* places move */
  }
  struct vgpu_allocation freed;
  while (worker->memory.count > 0) {
    uint64_t address = worker->memory.array[0].address;
    if (!vgpu_memory_free(&worker->memory, address, &freed) &&
        !vgpu_memory_unreserve(&worker->memory, address, worker->memory.array[0].size))
      break;
  }
  free(worker->memory.array);
  free(worker->handles.places);
  free(worker->link.in);
  free(worker->out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  input.at = data;
  input.left = size;
  uint8_t mode = byte();
  input.raw = (mode & 1) != 0;
  input.nvml = (mode & 2) != 0;
  input.sequence = 1;
  input.frame_size = input.frame_at = 0;
  input.answer_count = 0;
  memset(input.answers, 0, sizeof input.answers);
  if (!input.raw) make_hello();
  memset(accounts->slots, 0, sizeof accounts->slots[0]);
  accounts->slots[0].pid = 1;
  static const struct vgpu_limits limits = {
      .session_memory = 8u << 20, .session_handles = 300, .sessions = 1, .outstanding = 4u << 20};
  static const struct vgpu_code_options code = {
      .kernels = VGPU_KERNELS_SKIP, .launch_log = -1, .session_bytes = 8u << 20};
  struct vgpu_worker worker = {.link = {.descriptor = -1},
                               .session = 1,
                               .accounts = accounts,
                               .backend = &vgpu_software_backend,
                               .inventory = &inventory,
                               .profiles = inventory.profiles,
                               .limits = &limits,
                               .code_options = &code};
  vgpu_worker_serve(&worker);
  clean_up(&worker);
  return 0;
}
