#include "host/session/lifeline.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "host/log.h"
#include "wire/clock.h"

/* For what the guest has sent before it left and is soon done: launches in the log, a message. */
#define GRACE_MS 300

/*
 * A guest that has sent nothing for so many times is sent a sign of life, too. A VM that was reset answers it
 * with a reset of the connection, which nothing else would bring about: its session would hold its memory for
 * ever. Then after twice as long, and so on, for an idle guest does not read what is sent, and its socket
 * holds only so much.
 */
#define FIRST_IDLE_SIGN 4u
#define IDLE_SIGNS 1024u /* at least so often: every 51 minutes */

/* A call of a driver that works takes less, and is told of once. */
#define LONG_S 60u

/* The call that is worked on, at one time and some seconds later. */
struct tick {
  uint64_t sequence;
  int64_t since;
  bool told;
};

static void count_busy(struct vgpu_worker *worker, struct tick *tick) {
  const struct vgpu_link *link = &worker->link;
  uint32_t *busy = &worker->accounts->slots[worker->slot].busy;
  uint64_t sequence = __atomic_load_n(&link->next_sequence, __ATOMIC_RELAXED);
  bool same = __atomic_load_n(&link->working, __ATOMIC_RELAXED) && sequence == tick->sequence;
  if (!same) *tick = (struct tick){.sequence = sequence, .since = vgpu_now_ms()};
  uint32_t seconds = same ? (uint32_t)((vgpu_now_ms() - tick->since) / 1000) : 0;
  __atomic_store_n(busy, seconds, __ATOMIC_RELAXED);
  if (seconds < LONG_S || tick->told) return;
  tick->told = true;
  vgpu_host_log(
      "slow", worker->session,
      "one call has taken %u s: a long kernel or compilation, or the driver is stuck; `vgpu-hostd end "
      "%llu` ends the session",
      seconds, (unsigned long long)worker->session);
}

/* How often in a row nothing came. */
struct quiet {
  uint64_t sequence;
  uint32_t times;
};

static bool is_idle_sign_due(const struct vgpu_link *link, struct quiet *quiet) {
  uint64_t sequence = __atomic_load_n(&link->next_sequence, __ATOMIC_RELAXED);
  quiet->times = sequence == quiet->sequence ? quiet->times + 1 : 0;
  quiet->sequence = sequence;
  const uint32_t times = quiet->times;
  return times >= FIRST_IDLE_SIGN && ((times & (times - 1)) == 0 || times % IDLE_SIGNS == 0);
}

static void *watch(void *argument) {
  struct vgpu_worker *worker = argument;
  struct vgpu_link *link = &worker->link;
  struct tick tick = {0};
  struct pollfd poller = {.fd = link->descriptor, .events = POLLRDHUP};
  struct quiet quiet = {0};
  /* Bytes that come do not wake it: only the end does, and the time for a sign of life. */
  for (;;) {
    int ended = poll(&poller, 1, VGPU_ALIVE_MS);
    if (ended > 0 && (poller.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) break;
    if (ended != 0) continue;
    vgpu_link_tell_alive(link, is_idle_sign_due(link, &quiet));
    count_busy(worker, &tick);
  }
  struct timespec grace = {.tv_nsec = GRACE_MS * 1000000l};
  nanosleep(&grace, NULL);
  vgpu_host_log_flush();
  _exit(0); /* what the session held goes with the process */
}

bool vgpu_lifeline_start(struct vgpu_worker *worker) {
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  /* Enough for a line of the log. */
  pthread_attr_setstacksize(&attributes, 64 << 10);
  bool started = pthread_create(&thread, &attributes, watch, worker) == 0;
  pthread_attr_destroy(&attributes);
  return started;
}
