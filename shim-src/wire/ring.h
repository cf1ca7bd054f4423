/*
 * Two rings of bytes in shared memory, one each way, that carry the frames of a session.
 *
 * The memory: VGPU_RING_CONTROL bytes with a struct vgpu_ring_control for the requests and, VGPU_RING_REPLIES
 * bytes further, one for the replies; then `size` bytes of requests, then as many of replies. Each end maps
 * the bytes of a ring twice, one behind the other, so that a frame never has a gap.
 *
 * A frame begins at a cache line, so that a short one is fetched with as few as it fills and nobody writes
 * into the line of one that is being read. `tail` counts the bytes ever written, those up to the next line
 * included, `head` those ever read; only the writer moves the one, only the reader the other, both by whole
 * frames. Who is going to sleep says so in its `sleeps` and looks once more; who moves an index and finds the
 * other's `sleeps` set clears it and rings the doorbell (doorbell.h), the reader not before half of the ring
 * is free.
 *
 * Neither end believes the other. An index is read once, into a variable, and is only used when it leaves
 * no more than `size` between the two and both are multiples of VGPU_RING_LINE; each end works with its own
 * copy of its own index. A header is copied out, checked and used from the copy. What else lies in the ring
 * may change while it is read: it is copied before anything in it is looked at, except bulk that is only
 * copied itself. Any nonsense ends the session.
 */
#ifndef VGPU_WIRE_RING_H
#define VGPU_WIRE_RING_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "wire/device_copy.h"
#include "wire/doorbell.h"
#include "wire/frame.h"
#include "wire/spin.h"

#define VGPU_RING_CONTROL 65536u /* a page on every machine */
#define VGPU_RING_REPLIES 512u   /* where the second control begins */
#define VGPU_RING_MARK 1024u     /* and where the host's mark is: vgpu_resumed */
#define VGPU_RING_LINE 64u
#define VGPU_RING_BYTES (2u << 20)
#define VGPU_RING_MOST (64u << 20)

/*
 * Each in cache lines of its own (two, as processors fetch pairs): while nobody sleeps, a writer that asks
 * for reader_sleeps must not fetch the line that the reader has just written its index to, nor the other way
 * round.
 */
struct vgpu_ring_control {
  _Alignas(128) uint64_t tail;
  _Alignas(128) uint32_t writer_sleeps;
  _Alignas(128) uint64_t head;
  _Alignas(128) uint32_t reader_sleeps;
  uint32_t reader_processor; /* on which it began to sleep last, plus 1; 0: it has not slept, or is older */
};
_Static_assert(sizeof(struct vgpu_ring_control) == VGPU_RING_REPLIES, "ring control");

/* One end of one ring. */
struct vgpu_ring {
  struct vgpu_ring_control *control; /* shared */
  unsigned char *bytes;              /* shared, mapped twice */
  uint32_t size;                     /* a power of two */
  uint64_t position;                 /* our own index: tail of the writer, head of the reader */
  uint64_t peer;                     /* the other's index as it was when last looked at, and sound */
  struct vgpu_spin spin;
  bool of_device; /* the bytes are memory of a PCI device to this end (device_copy.h) */
  /*
   * Of an end that may change processors: where the peer's thread slept last, which is shared memory, and how
   * to leave that processor; it returns false if that is never possible. NULL: this end stays where it is.
   */
  const uint32_t *peer_processor;
  bool (*leave)(uint32_t processor);
};

struct vgpu_rings {
  void *base; /* NULL: there are none */
  size_t mapped;
  struct vgpu_ring requests, replies;
};

/* A number of the host's, by which both ends see that they still share this memory. */
static inline uint64_t *vgpu_rings_mark(const struct vgpu_rings *rings) {
  return (uint64_t *)(void *)((unsigned char *)rings->base + VGPU_RING_MARK);
}

/* Bytes of a ring that a frame takes. Lengths are below VGPU_FRAME_MAX, or from a frame that was found sound.
 */
static inline uint32_t vgpu_ring_step(uint32_t length) {
  return (length + VGPU_RING_LINE - 1) & ~(VGPU_RING_LINE - 1);
}

/* Bytes of the memory for rings of `size`. */
static inline uint64_t vgpu_rings_bytes(uint32_t size) {
  return VGPU_RING_CONTROL + 2ull * size;
}

/* A size that rings may have: it must take the longest frame. */
static inline bool vgpu_ring_size_sound(uint32_t size) {
  return size > VGPU_FRAME_MAX && size <= VGPU_RING_MOST && (size & (size - 1)) == 0;
}

/*
 * Maps the rings, which begin at `offset` of what the descriptor stands for; a fork()ed child will not have
 * them. False: no room. The descriptor can be closed.
 */
bool vgpu_rings_map(struct vgpu_rings *rings, int descriptor, uint64_t offset, uint32_t size);
void vgpu_rings_unmap(struct vgpu_rings *rings);

enum vgpu_ring_state { VGPU_RING_READY = 0, VGPU_RING_NOT_YET = 1, VGPU_RING_BROKEN = 2 };

/* Of the writer: whether a frame of `length` bytes can be written now. Looks at the reader's index only when
 * it must. */
enum vgpu_ring_state vgpu_ring_room(struct vgpu_ring *ring, uint32_t length);

/* Of the reader: how much there is, at least. Looks at the writer's index only when nothing is known to be.
 */
enum vgpu_ring_state vgpu_ring_available(struct vgpu_ring *ring, uint32_t *bytes);

/* Where the next byte is written or read; that and what follows it without a gap. */
static inline unsigned char *vgpu_ring_at(const struct vgpu_ring *ring) {
  return ring->bytes + (ring->position & (ring->size - 1));
}

/* Copies what is only copied to or from there. */
static inline void vgpu_ring_fill(const struct vgpu_ring *ring, void *place, const void *bytes, size_t size) {
  if (ring->of_device) vgpu_device_copy(place, bytes, size, place);
  else memcpy(place, bytes, size);
}
static inline void vgpu_ring_take(const struct vgpu_ring *ring, void *bytes, const void *place, size_t size) {
  if (ring->of_device) vgpu_device_copy(bytes, place, size, place);
  else memcpy(bytes, place, size);
}

/* A frame of `length` bytes is written, or read and no longer needed. Wakes the other end if it sleeps. */
void vgpu_ring_written(struct vgpu_ring *ring, uint32_t length, const struct vgpu_doorbell *doorbell);
void vgpu_ring_read(struct vgpu_ring *ring, uint32_t length, const struct vgpu_doorbell *doorbell);

/* Waits, awake at first, for room and writes a whole frame; sets the sizes of `frame` itself. */
enum vgpu_stream_result vgpu_ring_write_frame(struct vgpu_ring *ring, struct vgpu_frame *frame,
                                              const void *body, uint32_t body_size, const void *bulk,
                                              uint32_t bulk_size, struct vgpu_doorbell *doorbell,
                                              int64_t deadline);

/*
 * Waits for a frame and copies its header out, checked; the body and what follows lie behind it at
 * vgpu_ring_at() until vgpu_ring_read(frame->length).
 */
enum vgpu_stream_result vgpu_ring_read_header(struct vgpu_ring *ring, struct vgpu_frame *frame,
                                              struct vgpu_doorbell *doorbell, int64_t deadline);

#endif
