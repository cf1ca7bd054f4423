/*
 * The guest's end of the rings, fuzzed: a real session. The input chooses the bytes that its host writes to
 * the shared memory, and when (moments.h).
 *
 * The input begins with a u8 for the host's greeting (bit 0: the size of the rings in the WELCOME is the
 * input's; bit 1: the size of the memory, too; bit 2: the memory is unsealed; bit 3: there is no memory).
 * Then a u8 says how many calls the guest makes, followed by one u8 for each call (CALLS). The steps of the
 * host follow:
 *
 * - 0, 1: answer the oldest request: u8 bytes of body (0: as many as it should have), u8 * 16 of bulk, u8
 *   status, then the bytes
 *
 * - 2: the same, but published only as far as the next byte says
 *
 * - 3: an index or flag
 *
 * - 4: bytes of the last reply
 *
 * - 5: bytes of a shared region
 *
 * - 6: a descriptor comes over the socket; a u8 says of which kind
 *
 * - 7: the host hangs up
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/facts.h"
#include "fuzz/moments.h"
#include "guest/session.h"
#include "wire/shared.h"
#include "wire/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *count, char ***words);

#define CALLS 16u
#define SHARED_REGION_BYTES 8192u
#define BODY 64u
#define BULK 4096u

static struct fuzz_source source;
static struct vgpu_rings rings; /* the host's mapping */
static uint8_t greeting;
static struct vgpu_frame asked;      /* the last request that was read */
static uint64_t last;                /* where the last reply began */
static bool mine;                    /* the indexes of the requests are valid on both ends */
static unsigned char *shared_region; /* the host's mapping */

static uint32_t right_size(uint32_t opcode) {
  switch (opcode) {
    case VGPU_OP_DEVICE_USAGE:
      return sizeof(struct vgpu_usage_reply);
    case VGPU_OP_DEVICE_FACTS:
    case VGPU_OP_DEVICE_PROCESSES:
      return sizeof(struct vgpu_facts_reply);
    case VGPU_OP_SHARED_REGION_ADD:
      return sizeof(struct vgpu_shared_region_reply);
    case VGPU_OP_CUDA | 2:
      return BODY;
    default:
      return 0;
  }
}

/* A request from the guest must be valid, unless the fuzzer also wrote to the ring. */
static void take_request(void) {
  struct vgpu_ring *ring = &rings.requests;
  uint32_t there;
  do {
    if (!mine || vgpu_ring_available(ring, &there) != VGPU_RING_READY) return;
    if (there < sizeof asked) abort();
    memcpy(&asked, vgpu_ring_at(ring), sizeof asked);
    if (!vgpu_frame_sound(&asked) || vgpu_ring_step(asked.length) > there) abort();
    ring->position += vgpu_ring_step(asked.length);
    __atomic_store_n(&ring->control->head, ring->position, __ATOMIC_SEQ_CST);
  } while ((asked.flags & VGPU_FLAG_ONEWAY) != 0);
}

static void answer(bool whole) {
  struct vgpu_ring *ring = &rings.replies;
  take_request();
  struct vgpu_frame frame = {.opcode = asked.opcode,
                             .flags = VGPU_FLAG_REPLY | (asked.flags & VGPU_FLAG_SHARED_REGION),
                             .sequence = asked.sequence};
  uint8_t body = fuzz_byte(&source);
  frame.body = body == 0 ? right_size(asked.opcode) : body;
  frame.bulk = fuzz_byte(&source) * 16u;
  if ((frame.flags & VGPU_FLAG_SHARED_REGION) != 0 && frame.bulk < 1024)
    frame.bulk = sizeof(struct vgpu_span);
  frame.status = fuzz_byte(&source) & 3;
  frame.length = vgpu_frame_length(frame.body, frame.bulk);
  unsigned char *to = vgpu_ring_at(ring);
  last = ring->position;
  memcpy(to, &frame, sizeof frame);
  fuzz_bytes(&source, to + sizeof frame, frame.body + frame.bulk);
  ring->position += whole ? vgpu_ring_step(frame.length) : fuzz_part(&source);
  __atomic_store_n(&ring->control->tail, ring->position, __ATOMIC_SEQ_CST);
}

static int unsealed(uint64_t bytes) {
  int descriptor = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor >= 0 && ftruncate(descriptor, (off_t)bytes) != 0) exit(2);
  return descriptor;
}

static void pass_one(void) {
  uint8_t how = fuzz_byte(&source);
  if ((how & 7) == 1) {
    fuzz_moments_pass(unsealed(SHARED_REGION_BYTES));
  } else if ((how & 7) == 2) {
    fuzz_moments_pass(open("/dev/null", O_RDWR | O_CLOEXEC));
  } else {
    int descriptor = vgpu_shared_make("fuzz", (how & 7) == 3 ? how : SHARED_REGION_BYTES);
    if (shared_region == NULL && (how & 7) != 3)
      shared_region = mmap(NULL, SHARED_REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    fuzz_moments_pass(descriptor);
  }
}

static bool act(uint8_t what) {
  if (rings.base == NULL) return false;
  switch (what & 7) {
    case 0:
    case 1:
      answer(true);
      return true;
    case 2:
      answer(false);
      return true;
    case 3:
      mine = false;
      fuzz_poke_control(&source, &rings);
      return true;
    case 4:
      fuzz_poke_bytes(&source, rings.replies.bytes, rings.replies.size, last);
      return true;
    case 5:
      if (shared_region != NULL && shared_region != MAP_FAILED)
        fuzz_poke_bytes(&source, shared_region, 4096, 0);
      return true;
    case 6:
      pass_one();
      return true;
    default:
      return false;
  }
}

int __wrap_vgpu_stream_connect(const struct vgpu_address *address, int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_read(int descriptor, void *to, size_t size, int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_skip(int descriptor, size_t size, int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_read_passed(int descriptor, void *to, size_t size, int *passed,
                                                       int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_write_frame(int descriptor, struct vgpu_frame *frame,
                                                       const void *body, uint32_t body_size, const void *bulk,
                                                       uint32_t bulk_size, int64_t deadline);

int __wrap_vgpu_stream_connect(const struct vgpu_address *address, int64_t deadline) {
  (void)address;
  (void)deadline;
  return dup(0); /* the session closes it */
}

/* A host that greets, and the memory that it sends with the greeting. */
enum vgpu_stream_result __wrap_vgpu_stream_read_passed(int descriptor, void *to, size_t size, int *passed,
                                                       int64_t deadline) {
  (void)descriptor;
  (void)deadline;
  struct vgpu_frame frame = {.opcode = VGPU_OP_HELLO,
                             .flags = VGPU_FLAG_REPLY,
                             .length = vgpu_frame_length(sizeof(struct vgpu_welcome), 0),
                             .body = sizeof(struct vgpu_welcome)};
  if (size != sizeof frame) return VGPU_STREAM_CLOSED;
  memcpy(to, &frame, sizeof frame);
  if (passed == NULL || (greeting & 8) != 0) return VGPU_STREAM_OK;
  uint64_t bytes = vgpu_rings_bytes(VGPU_RING_BYTES);
  if ((greeting & 2) != 0) bytes = ((uint64_t)fuzz_byte(&source) << 16) + 4096;
  *passed = (greeting & 4) != 0 ? unsealed(bytes) : vgpu_shared_make("fuzz", bytes);
  if ((greeting & 14) == 0 && !__real_vgpu_rings_map(&rings, *passed, 0, VGPU_RING_BYTES)) exit(2);
  return VGPU_STREAM_OK;
}

enum vgpu_stream_result __wrap_vgpu_stream_read(int descriptor, void *to, size_t size, int64_t deadline) {
  (void)descriptor;
  (void)deadline;
  struct vgpu_welcome welcome = {.magic = VGPU_WIRE_MAGIC,
                                 .major = VGPU_WIRE_MAJOR,
                                 .frame_max = VGPU_FRAME_MAX,
                                 .features = VGPU_FEATURE_RING | VGPU_FEATURE_SHARED_REGION,
                                 .ring_size = VGPU_RING_BYTES,
                                 .device_count = 2,
                                 .cuda_version = 13000,
                                 .session = 1};
  if (size != sizeof welcome) return VGPU_STREAM_CLOSED;
  if ((greeting & 1) != 0) fuzz_bytes(&source, &welcome.ring_size, sizeof welcome.ring_size);
  memcpy(to, &welcome, sizeof welcome);
  return VGPU_STREAM_OK;
}

enum vgpu_stream_result __wrap_vgpu_stream_skip(int descriptor, size_t size, int64_t deadline) {
  (void)descriptor;
  (void)deadline;
  return size == 0 ? VGPU_STREAM_OK : VGPU_STREAM_CLOSED;
}

enum vgpu_stream_result __wrap_vgpu_stream_write_frame(int descriptor, struct vgpu_frame *frame,
                                                       const void *body, uint32_t body_size, const void *bulk,
                                                       uint32_t bulk_size, int64_t deadline) {
  (void)descriptor;
  (void)deadline;
  (void)body;
  (void)bulk;
  (void)bulk_size;
  /*
   * Only the greeting is sent over the socket, and the frames after it if there are no rings. Nothing answers
   * those frames.
   */
  return frame->opcode == VGPU_OP_HELLO && body_size == sizeof(struct vgpu_hello) ? VGPU_STREAM_OK
                                                                                  : VGPU_STREAM_CLOSED;
}

static void make_piece(void *context, size_t offset, uint32_t bytes, void *body) {
  (void)context;
  uint64_t words[2] = {offset, bytes};
  memcpy(body, words, sizeof words);
}

static void with_shared_region(struct vgpu_session *session) {
  uint32_t number;
  void *memory;
  if (!vgpu_session_shared_region_make(session, SHARED_REGION_BYTES, &number, &memory)) return;
  memset(memory, 1, SHARED_REGION_BYTES);
  struct vgpu_span span = {.shared_region = number, .offset = 64, .length = 1024};
  unsigned char body[BODY];
  struct vgpu_send send = {.shared_region = &span};
  struct vgpu_receive receive = {
      .body = body, .body_size = sizeof body, .bulk_capacity = (uint32_t)span.length};
  int32_t status;
  if (vgpu_session_call(session, VGPU_OP_CUDA | 2, &send, &receive, &status) == VGPU_ANSWERED &&
      status == 0 && receive.bulk_size > span.length)
    abort();
  vgpu_session_shared_region_drop(session, number, memory, SHARED_REGION_BYTES);
}

static void in_pieces(struct vgpu_session *session) {
  size_t total = 20 * BULK, done = 0;
  unsigned char *destination = malloc(total);
  if (destination == NULL) exit(2);
  struct vgpu_pieces pieces = {.opcode = VGPU_OP_CUDA | 3,
                               .body_size = 16,
                               .destination = destination,
                               .total = total,
                               .make = make_piece};
  int32_t status;
  vgpu_session_pieces(session, &pieces, &done, &status);
  if (done > total) abort();
  free(destination);
}

/* Buffers of exact size on the heap, so that a sanitizer notices an access beyond the end. */
static void plain(struct vgpu_session *session) {
  unsigned char *body = malloc(BODY), *bulk = malloc(BULK);
  if (body == NULL || bulk == NULL) exit(2);
  struct vgpu_send send = {.body = body, .body_size = 32, .bulk = bulk, .bulk_size = 100};
  struct vgpu_receive receive = {.body = body, .body_size = BODY, .bulk = bulk, .bulk_capacity = BULK};
  memset(body, 0, BODY);
  memset(bulk, 0, BULK);
  int32_t status = 0;
  if (vgpu_session_call(session, VGPU_OP_CUDA | 2, &send, &receive, &status) == VGPU_ANSWERED &&
      status == 0 && receive.bulk_size > BULK)
    abort();
  free(body);
  free(bulk);
}

static void one_call(struct vgpu_session *session, uint8_t which) {
  unsigned char posted[500] = {0};
  struct vgpu_send send = {.bulk = posted, .bulk_size = sizeof posted};
  switch (which % 8) {
    case 0:
    case 1:
    case 2:
      fuzz_ask_facts(session, which % 8);
      return;
    case 3:
      for (int i = 0; i < 3; i++) vgpu_session_post(session, VGPU_OP_CUDA | 1, &send);
      vgpu_session_take_deferred(session);
      return;
    case 4:
      with_shared_region(session);
      return;
    case 5:
      in_pieces(session);
      return;
    default:
      plain(session);
  }
}

int LLVMFuzzerInitialize(int *count, char ***words) {
  (void)count;
  (void)words;
  setenv("VGPU_HOST", "unix:/nonexistent", 1);
  unsetenv("VGPU_TRANSPORT");
  unsetenv("VGPU_LOG");
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  source = (struct fuzz_source){.at = data, .left = size};
  greeting = fuzz_byte(&source);
  uint8_t calls[CALLS], count = fuzz_byte(&source) % CALLS;
  fuzz_bytes(&source, calls, count);
  mine = true;
  last = 0;
  memset(&asked, 0, sizeof asked);
  fuzz_moments_begin(&source, act);
  struct vgpu_session *session;
  if (vgpu_session_open(&session, VGPU_LIBRARY_CUDA, NULL) == VGPU_ANSWERED) {
    for (uint8_t i = 0; i < count; i++) one_call(session, calls[i]);
    vgpu_session_close(session);
  }
  fuzz_moments_begin(NULL, NULL);
  vgpu_rings_unmap(&rings);
  if (shared_region != NULL && shared_region != MAP_FAILED) munmap(shared_region, SHARED_REGION_BYTES);
  shared_region = NULL;
  return 0;
}
