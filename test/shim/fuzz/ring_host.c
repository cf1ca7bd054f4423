/*
 * The host's end of the rings, fuzzed: a real worker whose guest writes to the shared memory what the input
 * says, when it says (moments.h): indexes, headers, bodies, bulk and shared regions change between and during
 * any two reads. A step: 0, 1  a record of grammar.h as a frame, published 2     likewise, published as far
 * as the next byte says 3     an index or flag    4  bytes of the last frame    5  bytes of a shared region 6
 * all replies are read, and must be sound: the host is ours 7     the guest hangs up
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/moments.h"
#include "fuzz/serve.h"
#include "host/session/link.h"
#include "wire/shared.h"
#include "wire/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SHARED_REGIONS 4u

static struct fuzz_guest guest;
static struct vgpu_rings rings; /* the guest's mapping */
static struct {
  unsigned char *memory;
  size_t bytes;
} shared_regions[SHARED_REGIONS];
static uint32_t shared_region_count;
static uint64_t last; /* where the last frame began */
static bool spoilt;   /* the guest changed the replies' indexes or bytes itself */
static unsigned char frame_bytes[VGPU_FRAME_MAX];

static void send_record(bool whole) {
  uint32_t length = fuzz_frame(&guest, frame_bytes);
  struct vgpu_ring *ring = &rings.requests;
  if (length == 0) return;
  last = ring->position;
  memcpy(vgpu_ring_at(ring), frame_bytes, length);
  ring->position += whole ? vgpu_ring_step(length) : fuzz_part(&guest.source);
  __atomic_store_n(&ring->control->tail, ring->position, __ATOMIC_SEQ_CST);
}

/* The replies of a valid host are complete and valid, unless this guest wrote there. */
static void take_replies(void) {
  uint32_t there;
  while (!spoilt && vgpu_ring_available(&rings.replies, &there) == VGPU_RING_READY) {
    struct vgpu_frame frame;
    if (there < sizeof frame) abort();
    memcpy(&frame, vgpu_ring_at(&rings.replies), sizeof frame);
    if (!vgpu_frame_sound(&frame) || vgpu_ring_step(frame.length) > there ||
        (frame.flags & VGPU_FLAG_REPLY) == 0)
      abort();
    fuzz_answer(&guest, frame.opcode, vgpu_ring_at(&rings.replies) + sizeof frame, frame.body);
    rings.replies.position += vgpu_ring_step(frame.length);
    __atomic_store_n(&rings.replies.control->head, rings.replies.position, __ATOMIC_SEQ_CST);
  }
}

static bool act(uint8_t what) {
  struct fuzz_source *source = &guest.source;
  if (rings.base == NULL) return false;
  switch (what & 7) {
    case 0:
    case 1:
      send_record(true);
      return true;
    case 2:
      send_record(false);
      return true;
    case 3:
      spoilt = true;
      fuzz_poke_control(source, &rings);
      return true;
    case 4:
      fuzz_poke_bytes(source, rings.requests.bytes, rings.requests.size, last);
      return true;
    case 5:
      if (shared_region_count == 0) return true;
      uint32_t shared_region = what >> 3 & (SHARED_REGIONS - 1);
      if (shared_regions[shared_region].memory != NULL && shared_regions[shared_region].bytes >= 4096) {
        fuzz_poke_bytes(source, shared_regions[shared_region].memory, 4096, 0);
      }
      return true;
    case 6:
      take_replies();
      return true;
    default:
      return false;
  }
}

enum vgpu_stream_result __wrap_vgpu_stream_pass_frame(int descriptor, struct vgpu_frame *frame,
                                                      const void *body, uint32_t body_size, int passed,
                                                      int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_pass(int descriptor, int passed, int64_t deadline);

enum vgpu_stream_result __wrap_vgpu_stream_pass_frame(int descriptor, struct vgpu_frame *frame,
                                                      const void *body, uint32_t body_size, int passed,
                                                      int64_t deadline) {
  (void)descriptor;
  (void)deadline;
  (void)body;
  if (frame->status != 0 || body_size != sizeof(struct vgpu_welcome) || passed < 0) abort();
  if (!vgpu_shared_sound(passed, vgpu_rings_bytes(VGPU_RING_BYTES))) abort();
  if (!__real_vgpu_rings_map(&rings, passed, 0, VGPU_RING_BYTES)) exit(2);
  return VGPU_STREAM_OK;
}

void *__real_vgpu_shared_map(int descriptor, uint64_t bytes);
enum vgpu_stream_result __wrap_vgpu_stream_pass(int descriptor, int passed, int64_t deadline) {
  (void)descriptor;
  (void)deadline;
  off_t bytes = lseek(passed, 0, SEEK_END);
  if (shared_region_count == SHARED_REGIONS || bytes <= 0) return VGPU_STREAM_OK;
  shared_regions[shared_region_count].bytes = (size_t)bytes;
  shared_regions[shared_region_count++].memory = __real_vgpu_shared_map(passed, (uint64_t)bytes);
  return VGPU_STREAM_OK;
}

typedef const struct vgpu_dispatch_row *find_row(const void *context, uint32_t opcode);
enum vgpu_received __real_vgpu_link_receive(struct vgpu_link *link, find_row *find, const void *context,
                                            struct vgpu_request *request, const char **violation);
enum vgpu_received __wrap_vgpu_link_receive(struct vgpu_link *link, find_row *find, const void *context,
                                            struct vgpu_request *request, const char **violation);

/*
 * Each request that comes out must be valid, whatever the guest did. The rest of the host relies on this
 * only.
 */
enum vgpu_received __wrap_vgpu_link_receive(struct vgpu_link *link, find_row *find, const void *context,
                                            struct vgpu_request *request, const char **violation) {
  uint64_t expected = link->next_sequence;
  enum vgpu_received received = __real_vgpu_link_receive(link, find, context, request, violation);
  if (received != VGPU_RECEIVED) return received;
  const struct vgpu_frame *frame = &request->frame;
  if (!vgpu_frame_sound(frame) || frame->sequence != expected || request->body != link->in) abort();
  const unsigned char *ring = link->rings.requests.bytes, *end = ring + 2ull * link->rings.requests.size;
  bool copied = request->bulk == link->in + frame->body;
  if (!copied && (request->bulk < ring || request->bulk + frame->bulk > end)) abort();
  if (!copied &&
      (request->row == NULL || !request->row->raw_in || (frame->flags & VGPU_FLAG_SHARED_REGION) != 0))
    abort(); /* the request is in memory that the guest can change */
  return received;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_guest_begin(&guest, (struct fuzz_source){.at = data, .left = size});
  guest.sequence = 1;
  uint32_t greeting_size =
      fuzz_greeting(&guest, VGPU_FEATURE_RING | VGPU_FEATURE_SHARED_REGION | VGPU_FEATURE_PARK, frame_bytes);
  spoilt = false;
  last = 0;
  fuzz_moments_begin(&guest.source, act);
  fuzz_serve(true, frame_bytes, greeting_size);
  fuzz_moments_begin(NULL, NULL);
  vgpu_rings_unmap(&rings);
  for (uint32_t i = 0; i < shared_region_count; i++)
    munmap(shared_regions[i].memory, shared_regions[i].bytes);
  memset(shared_regions, 0, sizeof shared_regions);
  shared_region_count = 0;
  return 0;
}
