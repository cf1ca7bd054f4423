#include "guest/cuda/stream/outstanding.h"

#include <string.h>

#include "cuda_calls.h"

#define PER_THREAD 2u /* number of the per-thread default stream, of which each thread has its own */

static __thread struct {
  uint64_t epoch;
  uint64_t last;
  uint64_t context; /* of the value of `covered` */
  uint64_t covered;
} own;

void vgpu_outstanding_raise(uint64_t *value, uint64_t least) {
  uint64_t now = __atomic_load_n(value, __ATOMIC_RELAXED);
  while (now < least &&
         !__atomic_compare_exchange_n(value, &now, least, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
}

static void refresh(const struct vgpu_outstanding *outstanding) {
  if (own.epoch == outstanding->epoch) return;
  memset(&own, 0, sizeof own);
  own.epoch = outstanding->epoch;
}

void vgpu_outstanding_issued(struct vgpu_outstanding *outstanding, uint32_t opcode, const void *body,
                             uint32_t body_size, bool oneway) {
  uint32_t entry = opcode & ~VGPU_OP_RANGE_MASK;
  uint16_t field = entry < VGPU_STREAM_FIELDS ? vgpu_stream_fields[entry] : 0;
  /* A call that was waited for leaves no work behind if it names no stream, or is one of these two calls. */
  if (!oneway && (field == 0 || opcode == VGPU_OP_cuStreamSynchronize || opcode == VGPU_OP_cuStreamQuery)) {
    return;
  }
  uint64_t number = __atomic_add_fetch(&outstanding->issued, 1, __ATOMIC_ACQ_REL);
  uint64_t stream;
  if (field == 0 || field - 1u + sizeof stream > body_size) return;
  memcpy(&stream, (const unsigned char *)body + field - 1, sizeof stream);
  if (stream == PER_THREAD) {
    refresh(outstanding);
    own.last = number;
  } else {
    vgpu_outstanding_raise(&outstanding->last[stream % VGPU_OUTSTANDING_SLOTS], number);
  }
}

uint64_t vgpu_outstanding_now(const struct vgpu_outstanding *outstanding) {
  return __atomic_load_n(&outstanding->issued, __ATOMIC_ACQUIRE);
}

bool vgpu_outstanding_none(const struct vgpu_outstanding *outstanding, uint64_t covered) {
  return covered != 0 && vgpu_outstanding_now(outstanding) <= covered;
}

bool vgpu_outstanding_none_on(const struct vgpu_outstanding *outstanding, uint64_t stream, uint64_t covered) {
  if (covered == 0) return false;
  if (stream == PER_THREAD) {
    refresh(outstanding);
    return own.last <= covered;
  }
  return __atomic_load_n(&outstanding->last[stream % VGPU_OUTSTANDING_SLOTS], __ATOMIC_ACQUIRE) <= covered;
}

uint64_t vgpu_outstanding_thread(const struct vgpu_outstanding *outstanding, uint64_t context) {
  refresh(outstanding);
  return own.context == context ? own.covered : 0;
}

void vgpu_outstanding_thread_covered(const struct vgpu_outstanding *outstanding, uint64_t context,
                                     uint64_t covered) {
  refresh(outstanding);
  own.context = context;
  own.covered = covered;
}
