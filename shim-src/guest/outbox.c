#include "guest/outbox.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "wire/clock.h"

/* A host that reads nothing for this time has frozen. */
#define FLUSH_LIMIT_MS VGPU_WORK_LIMIT_MS
#define LOOKS 10 /* of VGPU_OUTBOX_NS each, before the thread sleeps without a timer */

void vgpu_outbox_init(struct vgpu_outbox *outbox, const struct vgpu_owned_socket *own,
                      pthread_mutex_t *lock) {
  *outbox = (struct vgpu_outbox){.own = own, .lock = lock};
  pthread_cond_init(&outbox->kept, NULL);
}

static void set_oldest(struct vgpu_outbox *outbox, int64_t when) {
  __atomic_store_n(&outbox->oldest, when, __ATOMIC_RELAXED);
}

static enum vgpu_stream_result flush(struct vgpu_outbox *outbox, int64_t deadline) {
  if (outbox->failed) return VGPU_STREAM_CLOSED;
  if (outbox->used == 0) return VGPU_STREAM_OK;
  uint32_t used = outbox->used;
  outbox->used = 0;
  set_oldest(outbox, 0);
  if (!vgpu_owned_socket_holds(outbox->own)) return VGPU_STREAM_CLOSED;
  enum vgpu_stream_result result = vgpu_stream_write(outbox->own->descriptor, outbox->bytes, used, deadline);
  outbox->written = (int64_t)vgpu_now_ns();
  return result;
}

static void nap(int64_t nanoseconds) {
  struct timespec time = {.tv_nsec = (long)nanoseconds};
  nanosleep(&time, NULL);
}

/*
 * Waits until a frame is kept. The caller holds the lock. Polls first, because waking this thread is the most
 * expensive part of adding a frame.
 */
static void wait_for_frames(struct vgpu_outbox *outbox) {
  pthread_mutex_unlock(outbox->lock);
  for (int looks = 0; looks < LOOKS && __atomic_load_n(&outbox->oldest, __ATOMIC_RELAXED) == 0; looks++) {
    nap(VGPU_OUTBOX_NS);
  }
  pthread_mutex_lock(outbox->lock);
  if (outbox->used > 0 || outbox->ending) return;
  outbox->asleep = true;
  pthread_cond_wait(&outbox->kept, outbox->lock);
  outbox->asleep = false;
}

/* Sleeps until the kept frames are due, and writes them. The caller holds the lock. */
static void flush_when_due(struct vgpu_outbox *outbox) {
  pthread_mutex_unlock(outbox->lock);
  /* The lock is free during this wait, so that other threads can write and flush. */
  int64_t oldest, left;
  while ((oldest = __atomic_load_n(&outbox->oldest, __ATOMIC_RELAXED)) != 0 &&
         (left = oldest + VGPU_OUTBOX_NS - (int64_t)vgpu_now_ns()) > 0) {
    nap(left);
  }
  pthread_mutex_lock(outbox->lock);
  bool due = outbox->used > 0 && (int64_t)vgpu_now_ns() - outbox->oldest >= VGPU_OUTBOX_NS;
  if (due && flush(outbox, vgpu_now_ms() + FLUSH_LIMIT_MS) != VGPU_STREAM_OK) outbox->failed = true;
}

static void *keep_flushing(void *context) {
  struct vgpu_outbox *outbox = context;
  prctl(PR_SET_NAME, "vgpu-send");
  prctl(PR_SET_TIMERSLACK, 1000ul); /* nanoseconds, of this thread; 50,000 by default */
  pthread_mutex_lock(outbox->lock);
  while (!outbox->ending) {
    if (outbox->used == 0) wait_for_frames(outbox);
    else flush_when_due(outbox);
  }
  pthread_mutex_unlock(outbox->lock);
  return NULL;
}

static void start_flusher(struct vgpu_outbox *outbox) {
  sigset_t all, before;
  sigfillset(&all);
  bool blocked = pthread_sigmask(SIG_SETMASK, &all, &before) == 0;
  bool runs = blocked && pthread_create(&outbox->thread, NULL, keep_flushing, outbox) == 0;
  outbox->flusher = runs ? VGPU_FLUSHER_RUNS : VGPU_FLUSHER_IMPOSSIBLE;
  if (blocked) pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static bool may_keep(struct vgpu_outbox *outbox) {
  if (outbox->flusher == VGPU_FLUSHER_NONE) {
    outbox->bytes = malloc(VGPU_OUTBOX_BYTES);
    if (outbox->bytes == NULL) outbox->flusher = VGPU_FLUSHER_IMPOSSIBLE;
    else start_flusher(outbox);
  }
  return outbox->flusher == VGPU_FLUSHER_RUNS;
}

enum vgpu_stream_result vgpu_outbox_write(struct vgpu_outbox *outbox, struct vgpu_frame *frame,
                                          const void *body, uint32_t body_size, const void *bulk,
                                          uint32_t bulk_size, int64_t deadline) {
  if (outbox->failed) return VGPU_STREAM_CLOSED;
  uint32_t used = outbox->used;
  outbox->used = 0;
  outbox->written = 0; /* the host will be idle when it has answered */
  set_oldest(outbox, 0);
  if (!vgpu_owned_socket_holds(outbox->own)) return VGPU_STREAM_CLOSED;
  return vgpu_stream_write_after(outbox->own->descriptor, outbox->bytes, used, frame, body, body_size, bulk,
                                 bulk_size, deadline);
}

static void keep(struct vgpu_outbox *outbox, const struct vgpu_frame *frame, const void *body,
                 const void *bulk) {
  unsigned char *at = outbox->bytes + outbox->used;
  memset(at + frame->length - 8, 0, 8); /* the padding is within the last 8 bytes */
  memcpy(at, frame, sizeof *frame);
  if (frame->body > 0) memcpy(at + sizeof *frame, body, frame->body);
  if (frame->bulk > 0) memcpy(at + sizeof *frame + frame->body, bulk, frame->bulk);
  outbox->used += frame->length;
}

enum vgpu_stream_result vgpu_outbox_post(struct vgpu_outbox *outbox, struct vgpu_frame *frame,
                                         const void *body, uint32_t body_size, const void *bulk,
                                         uint32_t bulk_size, int64_t deadline) {
  int64_t now = (int64_t)vgpu_now_ns();
  bool paused = outbox->used == 0 && now - outbox->written > VGPU_OUTBOX_NS;
  uint64_t length = sizeof *frame + (uint64_t)body_size + bulk_size + 8;
  if (paused || length > VGPU_OUTBOX_FRAME || !may_keep(outbox)) {
    enum vgpu_stream_result result =
        vgpu_outbox_write(outbox, frame, body, body_size, bulk, bulk_size, deadline);
    outbox->written = (int64_t)vgpu_now_ns();
    return result;
  }
  if (outbox->used + length > VGPU_OUTBOX_BYTES) {
    enum vgpu_stream_result result = flush(outbox, deadline);
    if (result != VGPU_STREAM_OK) return result;
  }
  if (outbox->failed) return VGPU_STREAM_CLOSED;
  frame->body = body_size;
  frame->bulk = bulk_size;
  frame->length = vgpu_frame_length(body_size, bulk_size);
  if (!vgpu_frame_sound(frame)) return VGPU_STREAM_UNSOUND;
  bool first = outbox->used == 0;
  keep(outbox, frame, body, bulk);
  if (first) {
    set_oldest(outbox, now);
    if (outbox->asleep) pthread_cond_signal(&outbox->kept);
    return VGPU_STREAM_OK;
  }
  if (now - outbox->oldest < VGPU_OUTBOX_NS) return VGPU_STREAM_OK;
  return flush(outbox, deadline);
}

void vgpu_outbox_renew(struct vgpu_outbox *outbox) {
  outbox->used = 0;
  outbox->written = 0;
  outbox->failed = false;
  set_oldest(outbox, 0);
}

void vgpu_outbox_destroy(struct vgpu_outbox *outbox, int64_t deadline) {
  pthread_mutex_lock(outbox->lock);
  (void)flush(outbox, deadline);
  outbox->ending = true;
  pthread_cond_signal(&outbox->kept);
  pthread_mutex_unlock(outbox->lock);
  if (outbox->flusher == VGPU_FLUSHER_RUNS) pthread_join(outbox->thread, NULL);
  pthread_cond_destroy(&outbox->kept);
  free(outbox->bytes);
}
