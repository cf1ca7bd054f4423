/*
 * Two rings of bytes in shared memory, one for each direction.
 *
 * The memory begins with VGPU_RING_CONTROL bytes: a struct vgpu_ring_control for the requests and, at
 * VGPU_RING_REPLIES, one for the replies. `size` bytes of requests and `size` bytes of replies follow. Each
 * end maps a ring twice, the second mapping directly behind the first, so that every frame is contiguous.
 *
 * A frame begins at a cache line, so the writer never writes to a line that the reader is reading. `tail`
 * counts the bytes ever written and `head` the bytes ever read, in whole lines.
 *
 * An end that is about to sleep sets its `sleeps` field and then checks the ring once more. An end that moves
 * an index and finds the other's `sleeps` set clears it and rings the doorbell. The reader does this only
 * when half of the ring is free.
 *
 * Neither end trusts the other. An index is read once, and used only if `head` and `tail` are at most `size`
 * apart and multiples of VGPU_RING_LINE. Each end keeps its own index. A header is copied out, checked, and
 * used from the copy. Other bytes may change while they are read, so they are copied before use. An invalid
 * value ends the session.
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

#define VGPU_RING_CONTROL 65536u /* a multiple of the page size of each architecture */
#define VGPU_RING_REPLIES 512u   /* offset of the second control */
#define VGPU_RING_MARK 1024u     /* offset of the host's mark: vgpu_resumed */
#define VGPU_RING_LINE 64u
#define VGPU_RING_BYTES (2u << 20)
#define VGPU_RING_MOST (64u << 20)

/*
 * Each field has two cache lines of its own, because processors fetch lines in pairs: a writer that reads
 * `reader_sleeps` must not fetch the line to which the reader has just written its index, and vice versa.
 */
struct vgpu_ring_control {
  _Alignas(128) uint64_t tail;
  _Alignas(128) uint32_t writer_sleeps;
  _Alignas(128) uint64_t head;
  _Alignas(128) uint32_t reader_sleeps;
  uint32_t reader_processor; /* processor on which it last went to sleep, plus 1; 0: never, or an older end */
};
_Static_assert(sizeof(struct vgpu_ring_control) == VGPU_RING_REPLIES, "ring control");

struct vgpu_ring {
  struct vgpu_ring_control *control; /* shared */
  unsigned char *bytes;              /* shared, mapped twice */
  uint32_t size;                     /* bytes, a power of two */
  uint64_t position;                 /* the own index: tail of the writer, head of the reader */
  uint64_t peer;                     /* the other end's index when last read, and valid */
  struct vgpu_spin spin;
  bool of_device; /* the bytes are memory of a PCI device to this end (device_copy.h) */
  /*
   * The processor on which the peer's thread last slept, in shared memory, and the function that moves this
   * thread off a processor (false: never possible). NULL: this end never moves.
   */
  const uint32_t *peer_processor;
  bool (*leave)(uint32_t processor);
};

struct vgpu_rings {
  void *base; /* NULL: the session has no rings */
  size_t mapped;
  struct vgpu_ring requests, replies;
};

/* A number that the host has chosen. Both ends compare it to check that they still share this memory. */
static inline uint64_t *vgpu_rings_mark(const struct vgpu_rings *rings) {
  return (uint64_t *)(void *)((unsigned char *)rings->base + VGPU_RING_MARK);
}

/*
 * Returns the bytes of a ring that a frame takes. `length` is below VGPU_FRAME_MAX, or from a frame that was
 * checked.
 */
static inline uint32_t vgpu_ring_step(uint32_t length) {
  return (length + VGPU_RING_LINE - 1) & ~(VGPU_RING_LINE - 1);
}

/* Returns the bytes of the memory for two rings of `size` bytes. */
static inline uint64_t vgpu_rings_bytes(uint32_t size) {
  return VGPU_RING_CONTROL + 2ull * size;
}

static inline bool vgpu_ring_size_sound(uint32_t size) {
  return size > VGPU_FRAME_MAX && size <= VGPU_RING_MOST && (size & (size - 1)) == 0;
}

/*
 * Maps the rings, which begin at `offset` of the descriptor's memory. A fork()ed child does not inherit the
 * mapping. The caller may close the descriptor. False: no room.
 */
bool vgpu_rings_map(struct vgpu_rings *rings, int descriptor, uint64_t offset, uint32_t size);
void vgpu_rings_unmap(struct vgpu_rings *rings);

/* For rings in memory that a VM shares with its host. `inside`: this end is in the VM. */
void vgpu_rings_across_vm(struct vgpu_rings *rings, bool inside);

enum vgpu_ring_state { VGPU_RING_READY = 0, VGPU_RING_NOT_YET = 1, VGPU_RING_BROKEN = 2 };

/*
 * For the writer: whether there is room for a frame of `length` bytes. Reads the reader's index only if
 * necessary.
 */
enum vgpu_ring_state vgpu_ring_room(struct vgpu_ring *ring, uint32_t length);

/*
 * For the reader: sets *bytes to a number of bytes that can be read. Reads the writer's index only if none
 * are known.
 */
enum vgpu_ring_state vgpu_ring_available(struct vgpu_ring *ring, uint32_t *bytes);

/* Returns the place of the next byte to write or read. The bytes behind it are contiguous. */
static inline unsigned char *vgpu_ring_at(const struct vgpu_ring *ring) {
  return ring->bytes + (ring->position & (ring->size - 1));
}

static inline void vgpu_ring_fill(const struct vgpu_ring *ring, void *place, const void *bytes, size_t size) {
  if (ring->of_device) vgpu_device_copy(place, bytes, size, place);
  else memcpy(place, bytes, size);
}
static inline void vgpu_ring_take(const struct vgpu_ring *ring, void *bytes, const void *place, size_t size) {
  if (ring->of_device) vgpu_device_copy(bytes, place, size, place);
  else memcpy(bytes, place, size);
}

/*
 * Finish a frame of `length` bytes that was written, or that was read and is no longer needed. Both wake the
 * other end if it sleeps.
 */
void vgpu_ring_written(struct vgpu_ring *ring, uint32_t length, const struct vgpu_doorbell *doorbell);
void vgpu_ring_read(struct vgpu_ring *ring, uint32_t length, const struct vgpu_doorbell *doorbell);

/* Waits for room, without sleeping at first, and writes a whole frame. Sets the sizes in `frame`. */
enum vgpu_stream_result vgpu_ring_write_frame(struct vgpu_ring *ring, struct vgpu_frame *frame,
                                              const void *body, uint32_t body_size, const void *bulk,
                                              uint32_t bulk_size, struct vgpu_doorbell *doorbell,
                                              int64_t deadline);

/* Learns from a wait (spin.h). If many waits slept, moves away from the peer's processor. */
void vgpu_ring_learn(struct vgpu_ring *ring, const struct vgpu_spinning *spinning, bool slept);

/* For the reader: sleeps until there is a frame, or until a time (vgpu_now_ns). OK may come earlier. */
enum vgpu_stream_result vgpu_ring_sleep(struct vgpu_ring *ring, struct vgpu_doorbell *doorbell,
                                        uint64_t until);

/*
 * Waits for a frame, copies its header and checks it. Body and bulk are behind the header at vgpu_ring_at()
 * until vgpu_ring_read(frame->length).
 */
enum vgpu_stream_result vgpu_ring_read_header(struct vgpu_ring *ring, struct vgpu_frame *frame,
                                              struct vgpu_doorbell *doorbell, int64_t deadline);

#endif
