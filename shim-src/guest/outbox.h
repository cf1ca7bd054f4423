/*
 * Gathers one-way frames, to write them with few system calls. A frame after a pause is written at once.
 * Frames that follow closely are written together: with the next waiting call, when there are many, or after
 * VGPU_OUTBOX_NS, by the thread that adds a frame or by the outbox's own thread. The caller holds the
 * session's `sending` lock, except for init and destroy.
 */
#ifndef VGPU_GUEST_OUTBOX_H
#define VGPU_GUEST_OUTBOX_H

#include <pthread.h>

#include "wire/owned_socket.h"
#include "wire/stream.h"

#define VGPU_OUTBOX_NS 20000
#define VGPU_OUTBOX_BYTES (32u << 10)
#define VGPU_OUTBOX_FRAME (4u << 10) /* a longer frame gets a system call of its own */

struct vgpu_outbox {
  const struct vgpu_owned_socket *own;
  pthread_mutex_t *lock;
  unsigned char *bytes; /* VGPU_OUTBOX_BYTES of memory; NULL until a frame is kept */
  uint32_t used;
  int64_t written; /* when something was last written, nanoseconds */
  int64_t oldest;  /* when the first kept frame was added; 0: none is kept. Also read without the lock */
  enum { VGPU_FLUSHER_NONE, VGPU_FLUSHER_RUNS, VGPU_FLUSHER_IMPOSSIBLE } flusher;
  pthread_t thread;
  pthread_cond_t kept; /* a frame is kept, or the outbox is about to end */
  bool asleep;         /* the thread waits for `kept` */
  bool ending;
  bool failed; /* the thread could not write: the next call returns the failure */
};

void vgpu_outbox_init(struct vgpu_outbox *outbox, const struct vgpu_owned_socket *own, pthread_mutex_t *lock);

/* Writes the kept frames, within `deadline`, and ends the thread. The caller does not hold the lock. */
void vgpu_outbox_destroy(struct vgpu_outbox *outbox, int64_t deadline);

/* Writes a one-way frame now, or keeps it to be written soon. The caller has set the sizes in `frame`. */
enum vgpu_stream_result vgpu_outbox_post(struct vgpu_outbox *outbox, struct vgpu_frame *frame,
                                         const void *body, uint32_t body_size, const void *bulk,
                                         uint32_t bulk_size, int64_t deadline);

/* Writes the kept frames, then a frame for whose reply a thread waits. */
enum vgpu_stream_result vgpu_outbox_write(struct vgpu_outbox *outbox, struct vgpu_frame *frame,
                                          const void *body, uint32_t body_size, const void *bulk,
                                          uint32_t bulk_size, int64_t deadline);

/* Drops the kept frames, because the descriptor now is another connection: resend.h sends them again. */
void vgpu_outbox_renew(struct vgpu_outbox *outbox);

#endif
