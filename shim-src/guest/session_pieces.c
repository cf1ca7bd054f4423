/*
 * Reads in several pieces: while this process copies one piece out of the ring, the host copies the next one
 * in. The host stops when the ring of replies is full, and then a thread that sends while no thread reads
 * would never continue. So only one thread at a time reads like this, through a ring that has room for all
 * its replies.
 */
#include <string.h>

#include "guest/session_internal.h"

#define WINDOW_BYTES (1u << 20) /* fits the smallest ring and a processor's cache */
#define PIECE (128u << 10)
/* At least four pieces, so that both ends copy at once, but none below 16 KiB. */
#define PARTS 4u
#define LEAST_PIECE (16u << 10)
#define PAGE 4096u /* pieces are multiples of a page, so that all have the same alignment */
/*
 * In a VM a bell is expensive, and a host that is faster than its guest sleeps after each piece: 1.3 GB/s
 * with pieces of 128 KiB, 2.0 GB/s with 512 KiB.
 */
#define VM_PIECE (512u << 10)
#define WINDOW (WINDOW_BYTES / PIECE)

struct flight {
  struct vgpu_pending pending;
  struct vgpu_receive receive;
};

uint32_t vgpu_session_piece(const struct vgpu_session *session, size_t total) {
  if (session->rings.base == NULL) return VGPU_BULK_MAX;
  if (session->rings.requests.of_device) return VM_PIECE;
  if (total >= PARTS * PIECE) return PIECE;
  uint32_t part = ((uint32_t)(total / PARTS) + PAGE - 1) / PAGE * PAGE;
  return part < LEAST_PIECE ? LEAST_PIECE : part;
}

static enum vgpu_outcome begin(struct vgpu_session *session, const struct vgpu_pieces *pieces, size_t offset,
                               uint32_t most, struct flight *flight) {
  uint32_t bytes = pieces->total - offset < most ? (uint32_t)(pieces->total - offset) : most;
  unsigned char body[VGPU_PIECE_BODY];
  pieces->make(pieces->context, offset, bytes, body);
  struct vgpu_send send = {.body = body, .body_size = pieces->body_size};
  flight->receive = (struct vgpu_receive){.bulk = pieces->destination + offset, .bulk_capacity = bytes};
  return vgpu_session_begin(session, pieces->opcode, &send, &flight->receive, &flight->pending);
}

static unsigned fitting(uint32_t piece) {
  unsigned count = WINDOW_BYTES / piece;
  return count < WINDOW ? count : WINDOW;
}

enum vgpu_outcome vgpu_session_pieces(struct vgpu_session *session, const struct vgpu_pieces *pieces,
                                      size_t *done, int32_t *status) {
  struct flight flights[WINDOW];
  uint32_t piece = vgpu_session_piece(session, pieces->total);
  bool window = session->rings.base != NULL && pthread_mutex_trylock(&session->pieces) == 0;
  unsigned most = window ? fitting(piece) : 1, oldest = 0, count = 0;
  enum vgpu_outcome outcome = VGPU_ANSWERED;
  size_t asked = 0;
  *done = 0;
  *status = 0;
  for (;;) {
    while (outcome == VGPU_ANSWERED && *status == 0 && count < most && asked < pieces->total) {
      outcome = begin(session, pieces, asked, piece, &flights[(oldest + count) % WINDOW]);
      if (outcome != VGPU_ANSWERED) break;
      count++;
      asked += piece;
    }
    if (count == 0) break;
    struct flight *flight = &flights[oldest];
    int32_t one = 0;
    enum vgpu_outcome came = vgpu_session_finish(session, &flight->pending, &one);
    bool first = outcome == VGPU_ANSWERED && *status == 0;
    if (first) {
      outcome = came;
      *status = one;
      if (came == VGPU_ANSWERED && one == 0) *done += flight->receive.bulk_size;
      /* A short piece would leave a gap before the next one. */
      if (*status == 0 && flight->receive.bulk_size != flight->receive.bulk_capacity) outcome = VGPU_LOST;
    }
    oldest = (oldest + 1) % WINDOW;
    count--;
  }
  if (window) pthread_mutex_unlock(&session->pieces);
  return outcome;
}
