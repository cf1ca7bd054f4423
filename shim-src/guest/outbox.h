/*
 * One-way frames of a stream, gathered into few system calls. A frame that comes after a pause is written at
 * once: the host is idle and should begin. Those that follow closely are kept, and written together with the
 * next waiting call, when there are many, or VGPU_OUTBOX_NS after the first of them: by the thread that adds
 * the next one, or by a thread of the outbox, which sleeps without a timer while nothing is kept.
 *
 * All calls but init and destroy are made with the session's `sending` lock held.
 */
#ifndef VGPU_GUEST_OUTBOX_H
#define VGPU_GUEST_OUTBOX_H

#include <pthread.h>

#include "wire/stream.h"

#define VGPU_OUTBOX_NS 20000
#define VGPU_OUTBOX_BYTES (32u << 10)
#define VGPU_OUTBOX_FRAME (4u << 10) /* a longer frame is worth a system call of its own */

struct vgpu_outbox {
  int descriptor;
  pthread_mutex_t *lock;
  unsigned char *bytes; /* VGPU_OUTBOX_BYTES of memory; NULL until there is something to keep */
  uint32_t used;
  int64_t written; /* when something was last written, nanoseconds */
  int64_t oldest;  /* when the first of what is kept came; 0: nothing is kept. Read without the lock, too */
  enum { VGPU_FLUSHER_NONE, VGPU_FLUSHER_RUNS, VGPU_FLUSHER_IMPOSSIBLE } flusher;
  pthread_t thread;
  pthread_cond_t kept; /* something is, or the outbox is about to end */
  bool asleep;         /* the thread waits for `kept` */
  bool ending;
  bool failed; /* the thread could not write: the next call learns it */
};

void vgpu_outbox_init(struct vgpu_outbox *outbox, int descriptor, pthread_mutex_t *lock);

/* Without the lock: writes what is kept, within `deadline`, and ends the thread. */
void vgpu_outbox_destroy(struct vgpu_outbox *outbox, int64_t deadline);

/* A one-way frame: written, or kept to be written soon. The sizes of `frame` are set. */
enum vgpu_stream_result vgpu_outbox_post(struct vgpu_outbox *outbox, struct vgpu_frame *frame,
                                         const void *body, uint32_t body_size, const void *bulk,
                                         uint32_t bulk_size, int64_t deadline);

/* A frame that somebody waits for: written now, behind all that is kept. */
enum vgpu_stream_result vgpu_outbox_write(struct vgpu_outbox *outbox, struct vgpu_frame *frame,
                                          const void *body, uint32_t body_size, const void *bulk,
                                          uint32_t bulk_size, int64_t deadline);

/* There is another connection at the descriptor: what is kept here is not written to it. */
void vgpu_outbox_renew(struct vgpu_outbox *outbox);

#endif
