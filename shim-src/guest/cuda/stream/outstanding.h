/*
 * Which streams have nothing outstanding: a synchronize of one that was waited for, and on which nothing
 * was called since, is answered without asking the host.
 *
 * Every call that leaves work behind takes the next number once it is sent. A wait covers all numbers
 * given before it began. Streams share slots, so one may be thought busy that is not, never the reverse.
 */
#ifndef VGPU_GUEST_CUDA_OUTSTANDING_H
#define VGPU_GUEST_CUDA_OUTSTANDING_H

#include <stdbool.h>
#include <stdint.h>

/* Generated: by opcode number, 1 + offset of the stream's number in the body; 0: it works on none. */
#define VGPU_STREAM_FIELDS 1000
extern const uint16_t vgpu_stream_fields[VGPU_STREAM_FIELDS];

#define VGPU_OUTSTANDING_SLOTS 1024
struct vgpu_outstanding {
  uint64_t epoch; /* of the driver */
  uint64_t issued;
  uint64_t last[VGPU_OUTSTANDING_SLOTS]; /* number of the last call on a stream of this slot */
};

/* To be called when the frame is sent, not before: a wait of another thread must not cover it unsent. */
void vgpu_outstanding_issued(struct vgpu_outstanding *outstanding, uint32_t opcode, const void *body,
                             uint32_t body_size, bool oneway);

/* The number of the last call that a wait covers if it begins now. */
uint64_t vgpu_outstanding_now(const struct vgpu_outstanding *outstanding);

/* Nothing at all was called since `covered`. */
bool vgpu_outstanding_none(const struct vgpu_outstanding *outstanding, uint64_t covered);

/* Nothing was called on the stream (not a legacy default one) since `covered`. */
bool vgpu_outstanding_none_on(const struct vgpu_outstanding *outstanding, uint64_t stream, uint64_t covered);

/*
 * The last call that the calling thread waited for on its per-thread stream of a context; 0: it never waited.
 */
uint64_t vgpu_outstanding_thread(const struct vgpu_outstanding *outstanding, uint64_t context);
void vgpu_outstanding_thread_covered(const struct vgpu_outstanding *outstanding, uint64_t context,
                                     uint64_t covered);

/* *value becomes at least `least`. */
void vgpu_outstanding_raise(uint64_t *value, uint64_t least);

#endif
