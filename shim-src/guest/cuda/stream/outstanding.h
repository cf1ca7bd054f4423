/*
 * Records which streams have outstanding work. A synchronize is answered without the host if the stream was
 * waited for and got no call since, unless vgpu_pools_await() is true. Each call that leaves work gets the
 * next number when it is sent; a wait covers all numbers before its begin. Streams share slots, so an idle
 * stream may seem busy, but a busy one never seems idle.
 */
#ifndef VGPU_GUEST_CUDA_OUTSTANDING_H
#define VGPU_GUEST_CUDA_OUTSTANDING_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Generated table, by opcode number: 1 + offset of the stream's number in the body; 0: the call works on no
 * stream.
 */
#define VGPU_STREAM_FIELDS 1000
extern const uint16_t vgpu_stream_fields[VGPU_STREAM_FIELDS];

#define VGPU_OUTSTANDING_SLOTS 1024
struct vgpu_outstanding {
  uint64_t epoch; /* of the driver */
  uint64_t issued;
  uint64_t last[VGPU_OUTSTANDING_SLOTS]; /* number of the last call on a stream of this slot */
};

/*
 * Must be called when the frame is sent, not before: otherwise a wait of another thread could cover a call
 * that is not sent yet.
 */
void vgpu_outstanding_issued(struct vgpu_outstanding *outstanding, uint32_t opcode, const void *body,
                             uint32_t body_size, bool oneway);

/* Returns the number of the last call that a wait covers if it begins now. */
uint64_t vgpu_outstanding_now(const struct vgpu_outstanding *outstanding);

/* True if no call at all was made since `covered`. */
bool vgpu_outstanding_none(const struct vgpu_outstanding *outstanding, uint64_t covered);

/* True if no call was made on the stream since `covered`. The stream is not a legacy default stream. */
bool vgpu_outstanding_none_on(const struct vgpu_outstanding *outstanding, uint64_t stream, uint64_t covered);

/*
 * Returns the last call that the calling thread waited for on its per-thread stream of a context; 0: it never
 * waited.
 */
uint64_t vgpu_outstanding_thread(const struct vgpu_outstanding *outstanding, uint64_t context);
void vgpu_outstanding_thread_covered(const struct vgpu_outstanding *outstanding, uint64_t context,
                                     uint64_t covered);

void vgpu_outstanding_raise(uint64_t *value, uint64_t least);

#endif
