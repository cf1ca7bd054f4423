#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "guest/log.h"
#include "guest/session_internal.h"
#include "wire/clock.h"
#include "wire/stream.h"

/*
 * A thread whose reply takes longer than LONG_MS lets other threads read for OTHERS_READ_NS at a time, so
 * that they need not be woken for each reply.
 */
#define LONG_MS 8
#define OTHERS_READ_NS 500000u

static const struct vgpu_send nothing_to_send;

static bool begins_work(const struct vgpu_session *session, uint32_t opcode) {
  return session->begins_work != NULL && session->begins_work(opcode);
}

static bool tells_life(const struct vgpu_session *session) {
  return (session->welcome.features & VGPU_FEATURE_ALIVE) != 0;
}

static uint64_t heard(struct vgpu_session *session) {
  uint64_t frames = atomic_load_explicit(&session->heard, memory_order_relaxed);
  return session->rings.base != NULL ? frames + vgpu_doorbell_rings(&session->doorbell) : frames;
}

static int64_t patience(const struct vgpu_session *session, int64_t deadline) {
  int64_t step = vgpu_about_now_ms() + VGPU_CALL_LIMIT_MS;
  return tells_life(session) && step < deadline ? step : deadline;
}

/* True if something else arrived from the host since `seen`, so that the wait continues. */
static bool was_heard(struct vgpu_session *session, uint64_t *seen, int64_t deadline) {
  uint64_t now = heard(session);
  if (now == *seen || vgpu_left_ms(deadline) == 0) return false;
  *seen = now;
  return true;
}

/*
 * A call behind other work gets the long limit, because a simulated device answers only after that work. The
 * end of the host needs no limit: the connection closes.
 */
static int64_t deadline_of(struct vgpu_session *session, uint32_t opcode, bool waits) {
  bool works = (waits || session->rings.base != NULL) && tells_life(session);
  works = works || begins_work(session, opcode) ||
          atomic_load(&session->launched) > atomic_load(&session->answered);
  return vgpu_about_now_ms() + (works ? VGPU_WORK_LIMIT_MS : VGPU_CALL_LIMIT_MS);
}

/* The caller holds `state`. A thread that is awake needs no signal: it checks again before it sleeps. */
static void rouse(struct vgpu_pending *waiter) {
  if (waiter->asleep) pthread_cond_signal(&waiter->wake);
}

void vgpu_session_rouse(struct vgpu_session *session) {
  for (struct vgpu_pending *waiter = session->pending; waiter != NULL; waiter = waiter->next) rouse(waiter);
  pthread_cond_broadcast(&session->line.restored);
}

void vgpu_session_lose_locked(struct vgpu_session *session, const char *reason) {
  if (!session->lost) {
    __atomic_store_n(&session->lost, true, __ATOMIC_RELEASE);
    vgpu_log("session %llu is lost: %s", (unsigned long long)session->welcome.session, reason);
    /* Wakes a thread inside poll(); the descriptor stays until the session is closed. */
    vgpu_owned_socket_shut(&session->own);
  }
  vgpu_session_rouse(session);
}

static const char *reason_of(enum vgpu_stream_result result) {
  switch (result) {
    case VGPU_STREAM_TIMEOUT:
      return "the host did not answer within the limit";
    case VGPU_STREAM_UNSOUND:
      return "the host sent a frame that breaks the protocol";
    case VGPU_STREAM_CLOSED:
      return "the host closed the connection";
    case VGPU_STREAM_OK:
      break;
  }
  return "unknown";
}

/* A broken network path is silent. On one kernel no path can break, so a silent host has frozen. */
static bool may_be_silent(const struct vgpu_session *session) {
  return session->rings.base == NULL || session->vm.bytes > 0;
}

/*
 * The caller holds `state`. A silent host may be reachable over another connection. If the host sent signs of
 * life until the deadline, the session is lost: the host has had enough time.
 */
static void fail_locked(struct vgpu_session *session, enum vgpu_stream_result result, int64_t deadline,
                        uint64_t count) {
  bool over = result == VGPU_STREAM_UNSOUND ||
              (result == VGPU_STREAM_TIMEOUT && (vgpu_left_ms(deadline) == 0 || !may_be_silent(session)));
  if (over) vgpu_session_lose_locked(session, reason_of(result));
  else if (count == vgpu_line_count(&session->line)) vgpu_line_break(session, reason_of(result));
}

static enum vgpu_stream_result read_bytes(struct vgpu_session *session, size_t *at, void *bytes, size_t size,
                                          int64_t deadline) {
  if (session->rings.base == NULL) return vgpu_read_ahead_read(&session->ahead, bytes, size, deadline);
  const struct vgpu_ring *replies = &session->rings.replies;
  vgpu_ring_take(replies, bytes, vgpu_ring_at(replies) + *at, size);
  *at += size;
  return VGPU_STREAM_OK;
}

/* Checks the span in a reply: it must be the span of the call, filled or in part. */
static bool span_sound(const struct vgpu_span *asked, const struct vgpu_span *got) {
  return got->shared_region == asked->shared_region && got->offset == asked->offset &&
         got->length <= asked->length;
}

static enum vgpu_stream_result read_values(struct vgpu_session *session, const struct vgpu_frame *frame,
                                           struct vgpu_pending *waiter, int64_t deadline) {
  struct vgpu_receive *receive = waiter->receive;
  const struct vgpu_span *shared_region = waiter->shared_region;
  struct vgpu_span span;
  uint32_t body_size = receive == NULL ? 0 : receive->body_size;
  uint32_t capacity = shared_region != NULL ? sizeof span : receive == NULL ? 0 : receive->bulk_capacity;
  bool flagged = (frame->flags & VGPU_FLAG_SHARED_REGION) != 0;
  if (frame->body != body_size || frame->bulk > capacity || flagged != (shared_region != NULL) ||
      (flagged && frame->bulk != sizeof span)) {
    return VGPU_STREAM_UNSOUND;
  }
  size_t at = sizeof *frame;
  enum vgpu_stream_result result = VGPU_STREAM_OK;
  if (frame->body > 0) result = read_bytes(session, &at, receive->body, frame->body, deadline);
  if (result == VGPU_STREAM_OK && frame->bulk > 0) {
    result = read_bytes(session, &at, flagged ? (void *)&span : receive->bulk, frame->bulk, deadline);
  }
  if (result != VGPU_STREAM_OK) return result;
  if (flagged && !span_sound(shared_region, &span)) return VGPU_STREAM_UNSOUND;
  if (receive != NULL) receive->bulk_size = flagged ? (uint32_t)span.length : frame->bulk;
  return VGPU_STREAM_OK;
}

static void note_came(const struct vgpu_pending *waiter) {
  const struct vgpu_receive *receive = waiter->receive;
  if (receive != NULL && receive->came != NULL) __atomic_store_n(receive->came, true, __ATOMIC_RELEASE);
}

static enum vgpu_stream_result read_reply(struct vgpu_session *session, const struct vgpu_frame *frame,
                                          struct vgpu_pending *waiter, int64_t deadline) {
  waiter->status = frame->status;
  bool ring = session->rings.base != NULL;
  enum vgpu_stream_result result = VGPU_STREAM_OK;
  if (frame->status == 0) result = read_values(session, frame, waiter, deadline);
  if (result != VGPU_STREAM_OK) return result;
  if (ring) {
    vgpu_ring_read(&session->rings.replies, frame->length, &session->doorbell);
    return VGPU_STREAM_OK;
  }
  size_t rest = frame->status == 0 ? vgpu_stream_padding(frame) : frame->length - sizeof *frame;
  return vgpu_read_ahead_skip(&session->ahead, rest, deadline);
}

static void count_heard(struct vgpu_session *session) {
  uint64_t frames = atomic_load_explicit(&session->heard, memory_order_relaxed);
  atomic_store_explicit(&session->heard, frames + 1, memory_order_relaxed);
}

static bool is_sign_of_life(const struct vgpu_frame *frame) {
  return frame->opcode == VGPU_OP_ALIVE && frame->flags == VGPU_FLAG_REPLY && frame->sequence == 0 &&
         frame->length == sizeof *frame;
}

/* Reads the next header of a reply. Signs of life before it prolong the wait. */
static enum vgpu_stream_result read_header(struct vgpu_session *session, struct vgpu_frame *frame,
                                           int64_t deadline) {
  enum vgpu_stream_result result;
  if (session->rings.base != NULL) {
    uint64_t seen = heard(session);
    do {
      result = vgpu_ring_read_header(&session->rings.replies, frame, &session->doorbell,
                                     patience(session, deadline));
    } while (result == VGPU_STREAM_TIMEOUT && was_heard(session, &seen, deadline));
    if (result == VGPU_STREAM_OK) count_heard(session);
    return result;
  }
  do {
    result = vgpu_read_ahead_read_header(&session->ahead, frame, patience(session, deadline));
    if (result == VGPU_STREAM_OK) count_heard(session);
  } while (result == VGPU_STREAM_OK && tells_life(session) && is_sign_of_life(frame) &&
           vgpu_left_ms(deadline) > 0);
  return result;
}

static struct vgpu_pending *find_waiter(struct vgpu_session *session, uint64_t sequence) {
  for (struct vgpu_pending *waiter = session->pending; waiter != NULL; waiter = waiter->next) {
    if (waiter->sequence == sequence && !waiter->done) return waiter;
  }
  return NULL;
}

/* Finds the thread that waits for a reply. Usually it is the reader itself, which needs no lock. */
static struct vgpu_pending *waiter_of(struct vgpu_session *session, struct vgpu_pending *self,
                                      uint64_t sequence) {
  if (self->sequence == sequence) return self;
  pthread_mutex_lock(&session->state);
  struct vgpu_pending *waiter = find_waiter(session, sequence);
  pthread_mutex_unlock(&session->state);
  return waiter;
}

/*
 * `state` is held at entry and exit, and released in between. A waiter stays in the list: it leaves only when
 * it is done, or when the session is lost and no thread reads.
 */
static void read_one(struct vgpu_session *session, struct vgpu_pending *self, int64_t deadline) {
  const uint64_t count = session->line.count;
  session->reading = true;
  pthread_mutex_unlock(&session->state);
  struct vgpu_frame frame;
  struct vgpu_pending *waiter = NULL;
  enum vgpu_stream_result result = read_header(session, &frame, deadline);
  if (result == VGPU_STREAM_OK) {
    waiter = waiter_of(session, self, frame.sequence);
    bool expected = waiter != NULL && waiter->opcode == frame.opcode &&
                    (frame.flags & ~(VGPU_FLAG_SHARED_REGION | VGPU_FLAG_PRINTED)) == VGPU_FLAG_REPLY;
    result = expected ? read_reply(session, &frame, waiter, deadline) : VGPU_STREAM_UNSOUND;
    if (result == VGPU_STREAM_OK) note_came(waiter);
  }
  pthread_mutex_lock(&session->state);
  session->reading = false;
  if (result != VGPU_STREAM_OK) fail_locked(session, result, deadline, count);
  /* A thread that reconnects waits until no thread reads; this may have been the last reply. */
  if (session->line.broken) pthread_cond_broadcast(&session->line.restored);
  if (result != VGPU_STREAM_OK) return;
  bool printed = (frame.flags & VGPU_FLAG_PRINTED) != 0;
  if (printed != atomic_load_explicit(&session->printed, memory_order_relaxed))
    atomic_store_explicit(&session->printed, printed, memory_order_relaxed);
  if (frame.deferred != 0 && session->deferred == 0) session->deferred = frame.deferred;
  atomic_store_explicit(&session->received, frame.sequence, memory_order_relaxed);
  if (frame.sequence > atomic_load(&session->answered)) atomic_store(&session->answered, frame.sequence);
  waiter->outcome = VGPU_ANSWERED;
  waiter->done = true;
  rouse(waiter);
  self->lets_others_read = waiter != self && vgpu_about_now_ms() - self->begun >= LONG_MS;
}

static void begin_sleep(struct vgpu_pending *self) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&self->wake, &attributes);
  pthread_condattr_destroy(&attributes);
  self->asleep = true;
}

static void end_sleep(struct vgpu_pending *self) {
  self->asleep = false;
  pthread_cond_destroy(&self->wake);
}

/* One thread must read while any waits. A waiter that is still sending checks before it sleeps. */
static void hand_over_reading(struct vgpu_session *session) {
  if (session->reading) return;
  for (struct vgpu_pending *waiter = session->pending; waiter != NULL; waiter = waiter->next) {
    if (!waiter->asleep || waiter->done || waiter->lets_others_read) continue;
    pthread_cond_signal(&waiter->wake);
    return;
  }
}

/* Sleeps while other threads read. The caller holds `state`. */
static void let_others_read(struct vgpu_session *session, struct vgpu_pending *self) {
  const uint64_t until = vgpu_now_ns() + OTHERS_READ_NS, seen = atomic_load(&session->heard);
  const struct timespec at = {.tv_sec = (time_t)(until / 1000000000u),
                              .tv_nsec = (long)(until % 1000000000u)};
  hand_over_reading(session);
  begin_sleep(self);
  (void)pthread_cond_timedwait(&self->wake, &session->state, &at);
  end_sleep(self);
  self->lets_others_read = atomic_load(&session->heard) != seen;
}

/*
 * Sleeps until another thread has read this thread's reply, until this thread must read, or until the session
 * is lost. The caller holds `state`.
 */
static void sleep_until(struct vgpu_session *session, struct vgpu_pending *self, int64_t deadline) {
  int result = 0;
  begin_sleep(self);
  const uint64_t count = session->line.count;
  uint64_t seen = heard(session);
  do {
    if (session->lost) {
      pthread_cond_wait(&self->wake, &session->state); /* the reading thread is about to leave */
      result = 0;
    } else {
      int64_t until = patience(session, deadline);
      struct timespec at = {.tv_sec = until / 1000, .tv_nsec = (until % 1000) * 1000000};
      result = pthread_cond_timedwait(&self->wake, &session->state, &at);
    }
  } while (result == ETIMEDOUT && !self->done && was_heard(session, &seen, deadline));
  end_sleep(self);
  if (result == ETIMEDOUT && !self->done) fail_locked(session, VGPU_STREAM_TIMEOUT, deadline, count);
}

static void wait_for_reply(struct vgpu_session *session, struct vgpu_pending *self, int64_t deadline) {
  while (!self->done) {
    if (session->lost && !session->reading) {
      self->outcome = VGPU_LOST;
      break;
    }
    if (session->line.broken && !session->lost) (void)vgpu_line_wait(session);
    else if (self->lets_others_read) let_others_read(session, self);
    else if (session->reading) sleep_until(session, self, deadline);
    else read_one(session, self, deadline);
  }
  struct vgpu_pending **link = &session->pending;
  while (*link != self) link = &(*link)->next;
  *link = self->next;
  hand_over_reading(session);
}

/* Waits for another connection after a failed write. True: write again. False: the session is lost. */
static bool writes_again(struct vgpu_session *session, enum vgpu_stream_result result, int64_t deadline,
                         uint64_t count) {
  pthread_mutex_lock(&session->state);
  fail_locked(session, result, deadline, count);
  bool again = vgpu_line_wait(session);
  pthread_mutex_unlock(&session->state);
  return again;
}

static enum vgpu_stream_result write_to_ring(struct vgpu_session *session, struct vgpu_frame *frame,
                                             const struct vgpu_send *send, const void *bulk,
                                             uint32_t bulk_size, int64_t deadline) {
  enum vgpu_stream_result result;
  uint64_t count;
  do {
    count = vgpu_line_count(&session->line);
    uint64_t seen = heard(session);
    do {
      result = vgpu_ring_write_frame(&session->rings.requests, frame, send->body, send->body_size, bulk,
                                     bulk_size, &session->doorbell, patience(session, deadline));
    } while (result == VGPU_STREAM_TIMEOUT && was_heard(session, &seen, deadline));
  } while (result != VGPU_STREAM_OK && writes_again(session, result, deadline, count));
  return result;
}

static enum vgpu_stream_result write_frame(struct vgpu_session *session, struct vgpu_frame *frame,
                                           const struct vgpu_send *send, int64_t deadline) {
  const void *bulk = send->bulk;
  uint32_t bulk_size = send->bulk_size;
  if (send->shared_region != NULL) {
    frame->flags |= VGPU_FLAG_SHARED_REGION;
    bulk = send->shared_region;
    bulk_size = sizeof *send->shared_region;
  }
  if (session->rings.base != NULL) return write_to_ring(session, frame, send, bulk, bulk_size, deadline);
  if ((frame->flags & VGPU_FLAG_ONEWAY) != 0) {
    return vgpu_outbox_post(&session->outbox, frame, send->body, send->body_size, bulk, bulk_size, deadline);
  }
  return vgpu_outbox_write(&session->outbox, frame, send->body, send->body_size, bulk, bulk_size, deadline);
}

/*
 * Puts the waiter into the list. Called before its frame is sent, so that the reply finds the waiter. False:
 * the session is lost.
 */
static bool enter_list(struct vgpu_session *session, struct vgpu_pending *self, uint64_t sequence) {
  pthread_mutex_lock(&session->state);
  bool lost = session->lost;
  if (!lost) {
    self->sequence = sequence;
    self->next = session->pending;
    session->pending = self;
  }
  pthread_mutex_unlock(&session->state);
  return !lost;
}

/*
 * Returns the number of the calling thread, by which the host knows that a thread repeats a call, or waits
 * for memory that it freed.
 */
static uint32_t lane(void) {
  static atomic_uint lanes;
  static _Thread_local uint32_t own;
  if (own == 0) own = atomic_fetch_add(&lanes, 1) + 1;
  return own;
}

static bool makes_room(uint32_t opcode) {
  return opcode == VGPU_OP_PING;
}

/*
 * Takes `sending`. If sent frames are kept, makes room for one more by a ping, whose answer shows that the
 * host has received all earlier frames. False: the session is lost.
 */
static bool enter_sending(struct vgpu_session *session, uint32_t opcode, const struct vgpu_send *send,
                          bool stays) {
  struct vgpu_resend *kept = &session->line.kept;
  pthread_mutex_lock(&session->sending);
  if (kept->bytes == NULL) return true;
  bool last = makes_room(opcode);
  while (!vgpu_resend_fits(kept, send->body_size, send->bulk_size, stays, last)) {
    pthread_mutex_unlock(&session->sending);
    int32_t status;
    struct timespec pause = {.tv_nsec = 1000000};
    if (last) nanosleep(&pause, NULL); /* the pings of other threads have used the reserve */
    else if (vgpu_session_call(session, VGPU_OP_PING, NULL, NULL, &status) != VGPU_ANSWERED) return false;
    if (vgpu_session_is_lost(session)) return false;
    pthread_mutex_lock(&session->sending);
  }
  return true;
}

/* If the session keeps the frame, a broken connection is no failure: the frame is sent again. */
static enum vgpu_stream_result send_numbered(struct vgpu_session *session, struct vgpu_frame *frame,
                                             const struct vgpu_send *send, bool stays, int64_t deadline) {
  struct vgpu_line *line = &session->line;
  if (line->kept.bytes == NULL) return write_frame(session, frame, send, deadline);
  vgpu_frame_acknowledge(frame, atomic_load_explicit(&session->received, memory_order_relaxed));
  vgpu_resend_add(&line->kept, frame, send->body, send->body_size, send->bulk, send->bulk_size, stays);
  if (__atomic_load_n(&line->broken, __ATOMIC_ACQUIRE)) return VGPU_STREAM_OK;
  const uint64_t count = vgpu_line_count(line);
  enum vgpu_stream_result result = write_frame(session, frame, send, deadline);
  if (result == VGPU_STREAM_OK || result == VGPU_STREAM_UNSOUND) return result;
  pthread_mutex_lock(&session->state);
  fail_locked(session, result, deadline, count);
  bool lost = session->lost;
  pthread_mutex_unlock(&session->state);
  return lost ? result : VGPU_STREAM_OK;
}

/* Sends one frame. `self` is the waiter for the reply; NULL for a one-way call. */
static enum vgpu_outcome send_frame(struct vgpu_session *session, uint32_t opcode, uint32_t flags,
                                    const struct vgpu_send *send, struct vgpu_pending *self,
                                    int64_t deadline) {
  struct vgpu_frame frame = {.opcode = opcode, .flags = flags, .lane = lane()};
  bool stays = self != NULL || send->stays; /* a waiting caller does not change the bulk */
  if (!enter_sending(session, opcode, send, stays)) return VGPU_LOST;
  frame.sequence = vgpu_session_number(session);
  if (begins_work(session, opcode)) atomic_store(&session->launched, frame.sequence);
  bool lost = self == NULL ? vgpu_session_is_lost(session) : !enter_list(session, self, frame.sequence);
  enum vgpu_stream_result result =
      lost ? VGPU_STREAM_OK : send_numbered(session, &frame, send, stays, deadline);
  pthread_mutex_unlock(&session->sending);
  if (lost) return VGPU_LOST;
  if (result != VGPU_STREAM_OK) {
    pthread_mutex_lock(&session->state);
    vgpu_session_lose_locked(session, reason_of(result));
    pthread_mutex_unlock(&session->state);
    if (self == NULL) return VGPU_LOST;
  }
  return VGPU_ANSWERED;
}

static bool fits(const struct vgpu_session *session, const struct vgpu_send *send) {
  return send->body_size <= VGPU_BODY_MAX && send->bulk_size <= VGPU_BULK_MAX &&
         (send->shared_region == NULL || (send->bulk_size == 0 && session->rings.base != NULL));
}

enum vgpu_outcome vgpu_session_post(struct vgpu_session *session, uint32_t opcode,
                                    const struct vgpu_send *send) {
  if (send == NULL) send = &nothing_to_send;
  if (!fits(session, send)) return VGPU_TOO_LARGE;
  return send_frame(session, opcode, VGPU_FLAG_ONEWAY, send, NULL, deadline_of(session, opcode, false));
}

enum vgpu_outcome vgpu_session_begin(struct vgpu_session *session, uint32_t opcode,
                                     const struct vgpu_send *send, struct vgpu_receive *receive,
                                     struct vgpu_pending *self) {
  if (send == NULL) send = &nothing_to_send;
  if (!fits(session, send)) return VGPU_TOO_LARGE;
  *self = (struct vgpu_pending){
      .opcode = opcode,
      .receive = receive,
      .shared_region = receive == NULL || receive->bulk_capacity == 0 ? NULL : send->shared_region,
      .outcome = VGPU_LOST,
      .begun = vgpu_about_now_ms(),
      .deadline = deadline_of(session, opcode, true)};
  return send_frame(session, opcode, 0, send, self, self->deadline);
}

bool vgpu_session_has_printed(struct vgpu_session *session) {
  return atomic_load_explicit(&session->printed, memory_order_relaxed);
}

enum vgpu_outcome vgpu_session_finish(struct vgpu_session *session, struct vgpu_pending *self,
                                      int32_t *status) {
  pthread_mutex_lock(&session->state);
  wait_for_reply(session, self, self->deadline);
  pthread_mutex_unlock(&session->state);
  *status = self->status;
  return self->outcome;
}

enum vgpu_outcome vgpu_session_call(struct vgpu_session *session, uint32_t opcode,
                                    const struct vgpu_send *send, struct vgpu_receive *receive,
                                    int32_t *status) {
  struct vgpu_pending self;
  enum vgpu_outcome outcome = vgpu_session_begin(session, opcode, send, receive, &self);
  return outcome == VGPU_ANSWERED ? vgpu_session_finish(session, &self, status) : outcome;
}
