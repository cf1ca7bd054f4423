#include "guest/line.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "guest/log.h"
#include "guest/session_internal.h"
#include "wire/clock.h"
#include "wire/greeting.h"

#define USUAL_S 30u
#define MOST_S 86400u
#define FIRST_PAUSE_MS 20
#define LONGEST_PAUSE_MS 1000
#define READER_LIMIT_MS 1000 /* to read the replies that arrived before the end */
#define LASTED_MS 5000       /* a connection that lasted this long restarts the time limit */
#define GOODBYE_MS 100
#define CLOSED_BY_PROGRAM "the program closed the descriptors of this library"

uint32_t vgpu_line_wanted(void) {
  const char *text = secure_getenv("VGPU_RECONNECT");
  if (text == NULL || *text == '\0') return USUAL_S;
  char *end = NULL;
  errno = 0;
  unsigned long seconds = strtoul(text, &end, 10);
  if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && seconds <= MOST_S)
    return (uint32_t)seconds;
  vgpu_log("VGPU_RECONNECT \"%s\" is not a number of seconds from 0 to %u: using %u", text, MOST_S, USUAL_S);
  return USUAL_S;
}

static bool is_there(const struct vgpu_session *session) {
  return vgpu_owned_socket_holds(&session->own) && vgpu_owned_socket_holds(&session->line.sleeper) &&
         vgpu_owned_socket_holds(&session->line.waker);
}

static void wake(const struct vgpu_line *line) {
  if (vgpu_owned_socket_holds(&line->waker))
    (void)send(line->waker.descriptor, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool has_rings(const struct vgpu_session *session) {
  return session->rings.base != NULL;
}

static bool is_beside(const struct vgpu_session *session) {
  return has_rings(session) && session->vm.bytes == 0;
}

bool vgpu_line_wait(struct vgpu_session *session) {
  while (session->line.broken && !session->lost) pthread_cond_wait(&session->line.restored, &session->state);
  return !session->lost;
}

void vgpu_line_break(struct vgpu_session *session, const char *reason) {
  struct vgpu_line *line = &session->line;
  const bool there = vgpu_owned_socket_holds(&session->own);
  if (!line->survives || session->lost || !there) {
    vgpu_session_lose_locked(session, there ? reason : CLOSED_BY_PROGRAM);
    return;
  }
  if (line->broken) return;
  __atomic_store_n(&line->broken, true, __ATOMIC_RELEASE);
  vgpu_log("session %llu: %s; connecting again", (unsigned long long)session->welcome.session, reason);
  vgpu_owned_socket_shut(&session->own); /* wakes all threads that use the socket */
  vgpu_session_rouse(session);
}

bool vgpu_line_renewed(struct vgpu_session *session, uint64_t count) {
  pthread_mutex_lock(&session->state);
  if (count == session->line.count) vgpu_line_break(session, "the host closed the connection");
  bool renewed = vgpu_line_wait(session);
  pthread_mutex_unlock(&session->state);
  return renewed;
}

static void nap(struct vgpu_session *session, int milliseconds) {
  int64_t until = vgpu_now_ms() + milliseconds;
  struct timespec at = {.tv_sec = until / 1000, .tv_nsec = (until % 1000) * 1000000};
  pthread_mutex_lock(&session->state);
  if (!session->lost && !session->line.ending)
    pthread_cond_timedwait(&session->line.restored, &session->state, &at);
  pthread_mutex_unlock(&session->state);
}

enum answer {
  ANSWER_BACK,
  ANSWER_LATER,
  ANSWER_NEVER,
  ANSWER_DIFFERS /* this process and the host do not have the same state of the session */
};

static bool continues(const struct vgpu_session *session, const struct vgpu_resumed *resumed) {
  /* The host has more frames than were sent: this machine was restored from a snapshot. */
  if (resumed->next > __atomic_load_n(&session->next_sequence, __ATOMIC_RELAXED)) return false;
  return !has_rings(session) ||
         __atomic_load_n(vgpu_rings_mark(&session->rings), __ATOMIC_SEQ_CST) == resumed->mark;
}

/*
 * Greets on a new connection. `received` is the sequence of the last reply that arrived or, with rings, the
 * number of descriptors. *next becomes the first frame that the host has not received.
 */
static enum answer greet(struct vgpu_session *session, int descriptor, uint64_t received, uint64_t *next,
                         int64_t deadline) {
  const uint32_t rings = has_rings(session) ? VGPU_FEATURE_RESUME_RINGS : 0;
  struct {
    struct vgpu_hello hello;
    struct vgpu_resume resume;
  } greeting = {.hello = {.major = VGPU_WIRE_MAJOR,
                          .minor = VGPU_WIRE_MINOR,
                          .features = VGPU_FEATURE_RESUME | rings,
                          .frame_max = VGPU_FRAME_MAX,
                          .library = (uint32_t)session->line.library,
                          .join = session->welcome.session,
                          .join_secret = session->welcome.secret},
                .resume = {.received = received, .machine = vgpu_machine()}};
  struct {
    struct vgpu_welcome welcome;
    struct vgpu_resumed resumed;
  } answer = {.resumed = {0}};
  const uint32_t told = sizeof answer.welcome + (rings != 0 ? sizeof answer.resumed : VGPU_RESUMED_FIRST);
  vgpu_hello_introduce(&greeting.hello);
  struct vgpu_frame frame = {.opcode = VGPU_OP_HELLO};
  (void)vgpu_stream_write_frame(descriptor, &frame, &greeting, sizeof greeting, NULL, 0, deadline);
  enum vgpu_stream_result result = vgpu_stream_read_header(descriptor, &frame, deadline);
  if (result == VGPU_STREAM_UNSOUND) return ANSWER_NEVER;
  if (result != VGPU_STREAM_OK) return ANSWER_LATER;
  if (frame.opcode != VGPU_OP_HELLO || frame.flags != VGPU_FLAG_REPLY || frame.sequence != 0)
    return ANSWER_NEVER;
  if (frame.status != VGPU_STATUS_OK) return frame.status == VGPU_STATUS_BUSY ? ANSWER_LATER : ANSWER_NEVER;
  if (frame.body < told) return ANSWER_NEVER;
  result = vgpu_stream_read(descriptor, &answer, told, deadline);
  if (result == VGPU_STREAM_OK)
    result = vgpu_stream_skip(descriptor, frame.length - sizeof frame - told, deadline);
  if (result != VGPU_STREAM_OK) return ANSWER_LATER;
  if (memcmp(answer.welcome.magic, VGPU_WIRE_MAGIC, sizeof answer.welcome.magic) != 0 ||
      answer.welcome.session != session->welcome.session) {
    return ANSWER_NEVER;
  }
  if (!continues(session, &answer.resumed)) return ANSWER_DIFFERS;
  *next = answer.resumed.next;
  return ANSWER_BACK;
}

/* Marks the connection as whole again. The caller holds `state`. */
static void note_restored(struct vgpu_line *line) {
  __atomic_store_n(&line->count, line->count + 1, __ATOMIC_RELEASE);
  line->up_at = vgpu_now_ms();
  __atomic_store_n(&line->broken, false, __ATOMIC_RELEASE);
  pthread_cond_broadcast(&line->restored);
}

static bool restore_doorbell(struct vgpu_session *session, int descriptor) {
  struct vgpu_line *line = &session->line;
  pthread_mutex_lock(&session->state);
  bool up = !session->lost && !line->ending && vgpu_doorbell_renew(&session->doorbell, descriptor);
  if (up) note_restored(line);
  pthread_mutex_unlock(&session->state);
  if (up) vgpu_doorbell_ring(&session->doorbell);
  return up;
}

/* The new connection gets the old one's descriptor number, so other threads need no new number. */
static bool restore(struct vgpu_session *session, int descriptor, uint64_t next) {
  struct vgpu_line *line = &session->line;
  pthread_mutex_lock(&session->sending);
  pthread_mutex_lock(&session->state);
  while (session->reading) pthread_cond_wait(&line->restored, &session->state);
  bool up = !session->lost && !line->ending && vgpu_owned_socket_replace(&session->own, descriptor);
  if (up) {
    session->ahead.begin = session->ahead.end = 0;
    vgpu_outbox_renew(&session->outbox);
    note_restored(line);
  }
  uint64_t count = line->count;
  pthread_mutex_unlock(&session->state);
  if (up) {
    /* Threads that wait for replies read them meanwhile. */
    enum vgpu_stream_result result =
        vgpu_resend_send(&line->kept, session->own.descriptor, next, vgpu_now_ms() + VGPU_WORK_LIMIT_MS);
    pthread_mutex_lock(&session->state);
    if (result != VGPU_STREAM_OK && count == line->count)
      vgpu_line_break(session, "the new connection broke");
    pthread_mutex_unlock(&session->state);
  }
  pthread_mutex_unlock(&session->sending);
  return up;
}

static void set_candidate(struct vgpu_session *session, int descriptor) {
  pthread_mutex_lock(&session->state);
  __atomic_store_n(&session->line.candidate, descriptor, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&session->state);
}

/* The host is on this kernel. If no process listens at its address, the host and its workers have ended. */
static bool has_ended(const struct vgpu_session *session, int error) {
  return is_beside(session) && (error == ECONNREFUSED || error == ENOENT);
}

static enum answer connect_again(struct vgpu_session *session, uint64_t descriptors) {
  struct vgpu_line *line = &session->line;
  int64_t deadline = vgpu_now_ms() + VGPU_CONNECT_LIMIT_MS;
  uint64_t next = 0;
  int descriptor = vgpu_stream_connect(&line->address, deadline);
  if (descriptor < 0) return has_ended(session, errno) ? ANSWER_NEVER : ANSWER_LATER;
  set_candidate(session, descriptor);
  uint64_t received = has_rings(session) ? descriptors : atomic_load(&session->received);
  enum answer answer = greet(session, descriptor, received, &next, deadline);
  if (answer == ANSWER_BACK && next > line->taken) {
    line->taken = next;
    line->since = vgpu_now_ms();
  }
  if (answer == ANSWER_BACK) {
    bool up = has_rings(session) ? restore_doorbell(session, descriptor) : restore(session, descriptor, next);
    if (!up) answer = ANSWER_LATER;
  }
  set_candidate(session, -1);
  close(descriptor);
  return answer;
}

static bool is_over(struct vgpu_session *session) {
  pthread_mutex_lock(&session->state);
  bool over = session->lost || session->line.ending;
  pthread_mutex_unlock(&session->state);
  return over;
}

static void give_up(struct vgpu_session *session, const char *reason) {
  pthread_mutex_lock(&session->state);
  __atomic_store_n(&session->line.survives, false, __ATOMIC_RELEASE);
  vgpu_session_lose_locked(session, reason);
  pthread_mutex_unlock(&session->state);
}

static void let_reader_leave(struct vgpu_session *session) {
  pthread_mutex_lock(&session->state);
  while (session->reading) pthread_cond_wait(&session->line.restored, &session->state);
  pthread_mutex_unlock(&session->state);
}

/*
 * Connects again, until the session has a connection or is lost. A connection that broke at once, without an
 * answer, does not restart the time limit.
 */
static void reconnect(struct vgpu_session *session) {
  struct vgpu_line *line = &session->line;
  uint64_t descriptors = 0;
  if (has_rings(session)) descriptors = vgpu_doorbell_end(&session->doorbell);
  else let_reader_leave(session);
  const int64_t began = vgpu_now_ms();
  const uint64_t answered = atomic_load(&session->answered);
  if (line->since == 0 || answered != line->answered || began - line->up_at > LASTED_MS) line->since = began;
  line->answered = answered;
  int pause = FIRST_PAUSE_MS;
  for (;;) {
    if (is_over(session)) return;
    if (!is_there(session)) {
      give_up(session, CLOSED_BY_PROGRAM);
      return;
    }
    enum answer answer = connect_again(session, descriptors);
    if (answer == ANSWER_BACK) {
      vgpu_log("session %llu continues after %lld ms", (unsigned long long)session->welcome.session,
               (long long)(vgpu_now_ms() - began));
      return;
    }
    if (answer == ANSWER_DIFFERS) {
      give_up(session,
              "the connection broke, and the host has another state of the session: this machine was "
              "put back to an earlier state, or sees other memory than its host");
      return;
    }
    if (answer == ANSWER_NEVER) {
      give_up(session, "the connection broke, and the host does not know the session any more");
      return;
    }
    int left = vgpu_left_ms(line->since + line->limit_ms);
    if (left == 0) {
      give_up(session, "the connection broke, and the host did not take the session up again in time "
                       "(VGPU_RECONNECT)");
      return;
    }
    nap(session, pause < left ? pause : left);
    pause = pause * 2 < LONGEST_PAUSE_MS ? pause * 2 : LONGEST_PAUSE_MS;
  }
}

/*
 * Marks the connection as broken when it has ended. A reading thread finds the end itself, after the last
 * reply; if no thread reads, no thread waits for a reply. With rings nothing can be lost.
 */
static bool has_broken(struct vgpu_session *session, int64_t *noticed) {
  pthread_mutex_lock(&session->state);
  if (*noticed == 0) *noticed = vgpu_now_ms();
  if (has_rings(session) || session->pending == NULL || vgpu_now_ms() - *noticed > READER_LIMIT_MS)
    vgpu_line_break(session, "the connection broke");
  bool broken = session->line.broken;
  pthread_mutex_unlock(&session->state);
  if (broken) *noticed = 0;
  return broken;
}

/*
 * Keeps the thread of a lost session until vgpu_line_end() joins it: a thread that is never joined keeps its
 * stack, and thread checkers report a leak.
 */
static void wait_for_end(struct vgpu_session *session) {
  pthread_mutex_lock(&session->state);
  while (!session->line.ending) pthread_cond_wait(&session->line.restored, &session->state);
  pthread_mutex_unlock(&session->state);
}

static void *keep_up(void *context) {
  struct vgpu_session *session = context;
  struct vgpu_line *line = &session->line;
  int64_t noticed = 0;
  prctl(PR_SET_NAME, "vgpu-line");
  while (!is_over(session)) {
    struct pollfd pollers[] = {{.fd = session->own.descriptor, .events = POLLRDHUP},
                               {.fd = line->sleeper.descriptor, .events = POLLIN}};
    if (poll(pollers, 2, -1) < 0) continue;
    if (!is_there(session)) {
      give_up(session, CLOSED_BY_PROGRAM);
    } else if (__atomic_load_n(&line->broken, __ATOMIC_ACQUIRE) ||
               (pollers[0].revents != 0 && has_broken(session, &noticed))) {
      reconnect(session);
    } else if (pollers[0].revents != 0) {
      nap(session, FIRST_PAUSE_MS);
    }
  }
  wait_for_end(session);
  return NULL;
}

/* Signals are blocked: the program's handlers must not run in this thread. */
static bool start(struct vgpu_session *session) {
  sigset_t all, before;
  sigfillset(&all);
  bool blocked = pthread_sigmask(SIG_SETMASK, &all, &before) == 0;
  bool runs = blocked && pthread_create(&session->line.thread, NULL, keep_up, session) == 0;
  if (blocked) pthread_sigmask(SIG_SETMASK, &before, NULL);
  return runs;
}

void vgpu_line_begin(struct vgpu_session *session, const struct vgpu_address *address,
                     enum vgpu_library library) {
  struct vgpu_line *line = &session->line;
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&line->restored, &attributes);
  pthread_condattr_destroy(&attributes);
  line->candidate = line->sleeper.descriptor = line->waker.descriptor = -1;
  if ((session->welcome.features & VGPU_FEATURE_RESUME) == 0) return;
  line->address = *address;
  line->library = library;
  int pair[2];
  bool can = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0;
  if (can) {
    vgpu_owned_socket_take(&line->sleeper, pair[0]);
    vgpu_owned_socket_take(&line->waker, pair[1]);
  }
  line->survives = true;
  can = can && (is_beside(session) ? line->mapped : true);
  if (can && !has_rings(session)) can = vgpu_resend_init(&line->kept, &session->answered);
  line->runs = can && start(session);
  if (line->runs) return;
  vgpu_resend_destroy(&line->kept);
  vgpu_line_goodbye(session);
  line->survives = false;
}

/*
 * Writes the goodbye. The caller holds `sending`. If full rings have no room, the host notices the end of
 * this process, but later.
 */
static enum vgpu_stream_result write_goodbye(struct vgpu_session *session, struct vgpu_frame *frame,
                                             int64_t deadline) {
  return has_rings(session) ? vgpu_ring_write_frame(&session->rings.requests, frame, NULL, 0, NULL, 0,
                                                    &session->doorbell, deadline)
                            : vgpu_outbox_write(&session->outbox, frame, NULL, 0, NULL, 0, deadline);
}

void vgpu_line_goodbye(struct vgpu_session *session) {
  struct vgpu_line *line = &session->line;
  if (!__atomic_load_n(&line->survives, __ATOMIC_ACQUIRE)) return;
  /* Another thread may hold `sending` for long, but the program ends now. */
  int64_t deadline = vgpu_now_ms() + GOODBYE_MS;
  while (pthread_mutex_trylock(&session->sending) != 0) {
    if (vgpu_left_ms(deadline) == 0) return;
    struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL);
  }
  struct vgpu_frame frame = {
      .opcode = VGPU_OP_GOODBYE, .flags = VGPU_FLAG_ONEWAY, .sequence = session->next_sequence};
  bool there = !vgpu_session_is_lost(session) && !__atomic_load_n(&line->broken, __ATOMIC_ACQUIRE);
  enum vgpu_stream_result result = VGPU_STREAM_OK;
  if (there) result = write_goodbye(session, &frame, deadline);
  bool said = there && (result == VGPU_STREAM_OK || !has_rings(session));
  if (said) vgpu_session_number(session);
  pthread_mutex_lock(&session->state);
  /* Calls after the goodbye still work, but only until this connection ends. */
  if (said) __atomic_store_n(&line->survives, false, __ATOMIC_RELEASE);
  if (result != VGPU_STREAM_OK && !has_rings(session))
    vgpu_session_lose_locked(session, "the host takes no goodbye");
  pthread_mutex_unlock(&session->state);
  pthread_mutex_unlock(&session->sending);
}

void vgpu_line_give_up(struct vgpu_session *session, const char *reason) {
  struct vgpu_line *line = &session->line;
  pthread_mutex_lock(&session->state);
  if (line->broken && !session->lost) {
    __atomic_store_n(&line->survives, false, __ATOMIC_RELEASE);
    vgpu_session_lose_locked(session, reason);
  }
  pthread_mutex_unlock(&session->state);
}

void vgpu_line_end(struct vgpu_session *session) {
  struct vgpu_line *line = &session->line;
  pthread_mutex_lock(&session->state);
  line->ending = true;
  int candidate = __atomic_load_n(&line->candidate, __ATOMIC_ACQUIRE);
  if (candidate >= 0) shutdown(candidate, SHUT_RDWR);
  pthread_cond_broadcast(&line->restored);
  pthread_mutex_unlock(&session->state);
  if (line->runs) {
    wake(line);
    pthread_join(line->thread, NULL);
  }
  vgpu_resend_destroy(&line->kept);
  vgpu_owned_socket_close(&line->sleeper);
  vgpu_owned_socket_close(&line->waker);
  pthread_cond_destroy(&line->restored);
}
