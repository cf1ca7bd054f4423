#include "wire/ring.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>

static bool map_at(unsigned char *address, size_t size, int descriptor, uint64_t offset) {
  return mmap(address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, (off_t)offset) !=
         MAP_FAILED;
}

bool vgpu_rings_map(struct vgpu_rings *rings, int descriptor, uint64_t offset, uint32_t size) {
  size_t mapped = VGPU_RING_CONTROL + 4ull * size;
  unsigned char *base = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return false;
  unsigned char *requests = base + VGPU_RING_CONTROL, *replies = requests + 2ull * size;
  uint64_t first = offset + VGPU_RING_CONTROL, second = first + size;
  if (!map_at(base, VGPU_RING_CONTROL, descriptor, offset) || !map_at(requests, size, descriptor, first) ||
      !map_at(requests + size, size, descriptor, first) || !map_at(replies, size, descriptor, second) ||
      !map_at(replies + size, size, descriptor, second) || madvise(base, mapped, MADV_DONTFORK) != 0) {
    munmap(base, mapped);
    return false;
  }
  struct vgpu_spin spin;
  vgpu_spin_init(&spin);
  *rings = (struct vgpu_rings){
      .base = base,
      .mapped = mapped,
      .requests = {.control = (void *)base, .bytes = requests, .size = size, .spin = spin},
      .replies = {
          .control = (void *)(base + VGPU_RING_REPLIES), .bytes = replies, .size = size, .spin = spin}};
  return true;
}

void vgpu_rings_unmap(struct vgpu_rings *rings) {
  if (rings->base != NULL) munmap(rings->base, rings->mapped);
  rings->base = NULL;
}

void vgpu_rings_across_vm(struct vgpu_rings *rings, bool inside) {
  rings->requests.of_device = rings->replies.of_device = inside;
  vgpu_spin_across_vm(&rings->requests.spin);
  vgpu_spin_across_vm(&rings->replies.spin);
}

enum vgpu_ring_state vgpu_ring_room(struct vgpu_ring *ring, uint32_t length) {
  uint32_t step = vgpu_ring_step(length);
  if (ring->size - (ring->position - ring->peer) >= step) return VGPU_RING_READY;
  uint64_t head = __atomic_load_n(&ring->control->head, __ATOMIC_SEQ_CST);
  uint64_t used = ring->position - head;
  if (used > ring->size || head % VGPU_RING_LINE != 0) return VGPU_RING_BROKEN;
  ring->peer = head;
  return ring->size - used >= step ? VGPU_RING_READY : VGPU_RING_NOT_YET;
}

enum vgpu_ring_state vgpu_ring_available(struct vgpu_ring *ring, uint32_t *bytes) {
  uint64_t there = ring->peer - ring->position;
  if (there == 0) {
    uint64_t tail = __atomic_load_n(&ring->control->tail, __ATOMIC_SEQ_CST);
    there = tail - ring->position;
    if (there > ring->size || tail % VGPU_RING_LINE != 0) return VGPU_RING_BROKEN;
    ring->peer = tail;
  }
  *bytes = (uint32_t)there;
  return there > 0 ? VGPU_RING_READY : VGPU_RING_NOT_YET;
}

/*
 * Wakes a sleeping peer after an index was written. Both ends use sequentially consistent accesses (index
 * written, flag read; flag written, index read), so that at least one end sees the other's write.
 */
static void wake(uint32_t *sleeps, const struct vgpu_doorbell *doorbell) {
  if (__atomic_exchange_n(sleeps, 0, __ATOMIC_SEQ_CST) != 0) vgpu_doorbell_ring(doorbell);
}

void vgpu_ring_written(struct vgpu_ring *ring, uint32_t length, const struct vgpu_doorbell *doorbell) {
  struct vgpu_ring_control *control = ring->control;
  ring->position += vgpu_ring_step(length);
  __atomic_store_n(&control->tail, ring->position, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&control->reader_sleeps, __ATOMIC_SEQ_CST) != 0)
    wake(&control->reader_sleeps, doorbell);
}

void vgpu_ring_read(struct vgpu_ring *ring, uint32_t length, const struct vgpu_doorbell *doorbell) {
  struct vgpu_ring_control *control = ring->control;
  ring->position += vgpu_ring_step(length);
  __atomic_store_n(&control->head, ring->position, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&control->writer_sleeps, __ATOMIC_SEQ_CST) == 0) return;
  /* A writer that slept gets space for several frames. The last frame always wakes the writer. */
  uint64_t tail = __atomic_load_n(&control->tail, __ATOMIC_SEQ_CST);
  if (tail - ring->position <= ring->size / 2) wake(&control->writer_sleeps, doorbell);
}

/* `room`: 0 for the reader. */
static enum vgpu_ring_state look(struct vgpu_ring *ring, uint32_t room) {
  uint32_t bytes;
  return room > 0 ? vgpu_ring_room(ring, room) : vgpu_ring_available(ring, &bytes);
}

void vgpu_ring_learn(struct vgpu_ring *ring, const struct vgpu_spinning *spinning, bool slept) {
  if (!vgpu_spin_learn(&ring->spin, spinning, slept) || ring->leave == NULL) return;
  uint32_t peer = __atomic_load_n(ring->peer_processor, __ATOMIC_RELAXED);
  if (!ring->leave(peer)) ring->leave = NULL;
}

static enum vgpu_stream_result await(struct vgpu_ring *ring, uint32_t room, struct vgpu_doorbell *doorbell,
                                     int64_t deadline) {
  enum vgpu_ring_state state = look(ring, room);
  if (state == VGPU_RING_NOT_YET) {
    struct vgpu_spinning spinning = {0};
    while (state == VGPU_RING_NOT_YET && vgpu_spin_turn(&ring->spin, &spinning)) state = look(ring, room);
    vgpu_ring_learn(ring, &spinning, state == VGPU_RING_NOT_YET);
  }
  enum vgpu_stream_result result = VGPU_STREAM_OK;
  uint32_t *sleeps = room > 0 ? &ring->control->writer_sleeps : &ring->control->reader_sleeps;
  while (state == VGPU_RING_NOT_YET) {
    /* Check once more before the result is returned: the peer may have written before it closed. */
    if (result != VGPU_STREAM_OK) return result;
    uint64_t seen = vgpu_doorbell_generation(doorbell);
    if (room == 0)
      __atomic_store_n(&ring->control->reader_processor, (uint32_t)sched_getcpu() + 1, __ATOMIC_RELAXED);
    __atomic_store_n(sleeps, 1, __ATOMIC_SEQ_CST);
    state = look(ring, room);
    if (state == VGPU_RING_NOT_YET) result = vgpu_doorbell_wait(doorbell, seen, deadline);
    __atomic_store_n(sleeps, 0, __ATOMIC_SEQ_CST);
    if (state == VGPU_RING_NOT_YET) state = look(ring, room);
  }
  return state == VGPU_RING_READY ? VGPU_STREAM_OK : VGPU_STREAM_UNSOUND;
}

enum vgpu_stream_result vgpu_ring_write_frame(struct vgpu_ring *ring, struct vgpu_frame *frame,
                                              const void *body, uint32_t body_size, const void *bulk,
                                              uint32_t bulk_size, struct vgpu_doorbell *doorbell,
                                              int64_t deadline) {
  frame->body = body_size;
  frame->bulk = bulk_size;
  frame->length = vgpu_frame_length(body_size, bulk_size);
  if (!vgpu_frame_sound(frame)) return VGPU_STREAM_UNSOUND;
  enum vgpu_stream_result result = await(ring, frame->length, doorbell, deadline);
  if (result != VGPU_STREAM_OK) return result;
  unsigned char *at = vgpu_ring_at(ring);
  memset(at + frame->length - 8, 0, 8); /* the padding is within the last 8 bytes */
  memcpy(at, frame, sizeof *frame);
  if (body_size > 0) memcpy(at + sizeof *frame, body, body_size);
  if (bulk_size > 0) vgpu_ring_fill(ring, at + sizeof *frame + body_size, bulk, bulk_size);
  vgpu_ring_written(ring, frame->length, doorbell);
  return VGPU_STREAM_OK;
}

enum vgpu_stream_result vgpu_ring_sleep(struct vgpu_ring *ring, struct vgpu_doorbell *doorbell,
                                        uint64_t until) {
  enum vgpu_stream_result result = VGPU_STREAM_OK;
  uint64_t seen = vgpu_doorbell_generation(doorbell);
  __atomic_store_n(&ring->control->reader_sleeps, 1, __ATOMIC_SEQ_CST);
  if (look(ring, 0) == VGPU_RING_NOT_YET) result = vgpu_doorbell_wait_until(doorbell, seen, until);
  __atomic_store_n(&ring->control->reader_sleeps, 0, __ATOMIC_SEQ_CST);
  /* The peer may have written before it closed. */
  return look(ring, 0) == VGPU_RING_NOT_YET ? result : VGPU_STREAM_OK;
}

enum vgpu_stream_result vgpu_ring_read_header(struct vgpu_ring *ring, struct vgpu_frame *frame,
                                              struct vgpu_doorbell *doorbell, int64_t deadline) {
  enum vgpu_stream_result result = await(ring, 0, doorbell, deadline);
  if (result != VGPU_STREAM_OK) return result;
  uint32_t there;
  if (vgpu_ring_available(ring, &there) != VGPU_RING_READY || there < sizeof *frame)
    return VGPU_STREAM_UNSOUND;
  memcpy(frame, vgpu_ring_at(ring), sizeof *frame);
  return vgpu_frame_sound(frame) && vgpu_ring_step(frame->length) <= there ? VGPU_STREAM_OK
                                                                           : VGPU_STREAM_UNSOUND;
}
