#include "host/session/lifeline.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "host/log.h"
#include "wire/address.h"
#include "wire/clock.h"
#include "wire/stream.h"

/* Time for a guest that has closed its connection to have its last frames carried out. */
#define GRACE_MS 300

#define MAPPED_MS 10       /* between two checks while a guest may be ending */
#define MAPPED_LONG_MS 500 /* and while the session waits for its guest */

/*
 * After so many checks without a frame the guest gets a sign of life, then after twice as many, and so on. A
 * VM that was reset answers with a reset of the connection; without a sign its session would hold its memory
 * forever. Not more often: an idle guest does not read, and its socket has limited space.
 *
 * A VM's proxy gets a sign only when it has brought another session, which proves that the VM runs. Data for
 * a VM that is paused or restarting its device ends the thread of vhost-device-vsock 0.3.0 that serves the VM
 * (github.com/rust-vmm/vhost-device/pull/827).
 */
#define FIRST_IDLE_SIGN 4u
#define IDLE_SIGNS 1024u /* at the latest after so many: 51 minutes */
#define PROXY_SIGNS 64u  /* after a sign, other sessions of the VM cause one only after so many: 192 s */

/* A healthy driver call is faster than this; a slow one is logged once. */
#define LONG_S 60u

/* The current call, compared with the one some seconds later. */
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

/* How many times in a row nothing arrived. */
struct quiet {
  uint64_t sequence;
  uint32_t times;
  uint32_t proxy_due; /* value of `times` at which a proxy gets the next sign; 0: only once */
  uint64_t newest;    /* the session for which the proxy got its last sign; 0: none */
};

/* True if another process on this host forwards the guest's connection: a VM's proxy, or sshd. */
static bool is_brought(const struct vgpu_worker *worker) {
  return worker->peer.kind == VGPU_ADDRESS_UNIX && !worker->direct &&
         worker->accounts->owners[worker->slot].peer_pid != 0;
}

static bool is_proxy_sign_due(const struct vgpu_worker *worker, struct quiet *quiet) {
  if (quiet->newest == 0) quiet->newest = worker->session;
  if (quiet->times == 0) quiet->proxy_due = 0;
  if (quiet->times == 0 || quiet->times < quiet->proxy_due) return false;
  if (quiet->times % IDLE_SIGNS == 0) return true;
  uint64_t newest = vgpu_accounts_newest(worker->accounts, worker->slot);
  if (newest <= quiet->newest) return false;
  quiet->newest = newest;
  quiet->proxy_due = quiet->times + (quiet->times < PROXY_SIGNS ? quiet->times : PROXY_SIGNS);
  return true;
}

static bool is_idle_sign_due(const struct vgpu_worker *worker, struct quiet *quiet) {
  uint64_t sequence = __atomic_load_n(&worker->link.next_sequence, __ATOMIC_RELAXED);
  quiet->times = sequence == quiet->sequence ? quiet->times + 1 : 0;
  quiet->sequence = sequence;
  if (is_brought(worker)) return is_proxy_sign_due(worker, quiet);
  const uint32_t times = quiet->times;
  return times >= FIRST_IDLE_SIGN && ((times & (times - 1)) == 0 || times % IDLE_SIGNS == 0);
}

/* Waits a moment: a process closes its files before it has ended. */
enum sight { SIGHT_NOTHING, SIGHT_GUEST_IS_BACK, SIGHT_PEER_HAS_ENDED };

static enum sight look_at_peer(const struct vgpu_line *line) {
  struct pollfd pollers[] = {{.fd = line->channel, .events = POLLIN}, {.fd = line->peer, .events = POLLIN}};
  if (poll(pollers, 2, GRACE_MS) <= 0) return SIGHT_NOTHING;
  return pollers[0].revents != 0 ? SIGHT_GUEST_IS_BACK : SIGHT_PEER_HAS_ENDED;
}

/*
 * The guest's process maps the memory that was passed to it until the process ends or runs another program.
 */
static bool is_unmapped(const struct vgpu_link *link) {
  struct pollfd poller = {.fd = link->line.channel, .events = POLLIN};
  for (int looks = 0; looks < GRACE_MS / MAPPED_MS; looks++) {
    if (!vgpu_link_mapped(link)) return true;
    if (poll(&poller, 1, MAPPED_MS) == 1) return false;
  }
  return false;
}

/* True if the end of this connection proves the end of the guest. */
static bool is_gone(const struct vgpu_worker *worker, short events) {
  const struct vgpu_line *line = &worker->link.line;
  if (!vgpu_line_survives(line)) return true;
  if (worker->link.ring_memory >= 0) return is_unmapped(&worker->link);
  if (line->peer_is_guest) return look_at_peer(line) == SIGHT_PEER_HAS_ENDED;
  switch (worker->peer.kind) {
    case VGPU_ADDRESS_VSOCK:
      /*
       * The kernel closes the connection of a process that has ended. A VM that was saved, moved or reset
       * closes nothing.
       */
      return (events & POLLERR) == 0;
    case VGPU_ADDRESS_UNIX:
      /*
       * If the forwarding process (sshd, a VM's monitor) lives, it closes the connection because its guest
       * has. If the process itself has ended, the guest may live.
       */
      return line->peer >= 0 && look_at_peer(line) == SIGHT_NOTHING;
    default:
      return false;
  }
}

_Noreturn static void leave(void) {
  vgpu_host_log_flush();
  _exit(0); /* the kernel frees everything that the session holds */
}

struct watch {
  bool down;
  int64_t since;
};

static void set_waiting(struct vgpu_worker *worker, int64_t since) {
  __atomic_store_n(&worker->accounts->slots[worker->slot].waiting_since, since, __ATOMIC_RELAXED);
}

_Noreturn static void end_for(struct vgpu_worker *worker, int connection) {
  struct vgpu_frame no = {.opcode = VGPU_OP_HELLO, .flags = VGPU_FLAG_REPLY, .status = VGPU_STATUS_REFUSED};
  vgpu_host_log("violation", worker->session,
                "its rings were changed: the VM was restored from a snapshot, or the guest wrote to them; "
                "the session ends");
  (void)vgpu_stream_write_frame(connection, &no, NULL, 0, NULL, 0, vgpu_now_ms());
  leave();
}

/* Greets the guest on its new connection. */
static void greet_again(struct vgpu_worker *worker, int connection, uint64_t received) {
  struct {
    struct vgpu_welcome welcome;
    struct vgpu_resumed resumed;
  } answer;
  vgpu_welcome_fill(&answer.welcome, worker->backend, worker->inventory);
  answer.welcome.session = worker->session;
  answer.welcome.features = VGPU_FEATURE_RESUME;
  answer.resumed =
      (struct vgpu_resumed){.next = __atomic_load_n(&worker->link.next_sequence, __ATOMIC_RELAXED)};
  const bool rings = worker->link.rings.base != NULL;
  if (rings) {
    if (!vgpu_link_intact(&worker->link)) end_for(worker, connection);
    vgpu_link_mark(&worker->link);
    answer.resumed.mark = worker->link.mark;
  }
  struct vgpu_frame reply = {.opcode = VGPU_OP_HELLO, .flags = VGPU_FLAG_REPLY};
  /* The socket of a new connection is empty: this does not block. */
  if (vgpu_stream_write_frame(connection, &reply, &answer, sizeof answer, NULL, 0, vgpu_now_ms()) ==
      VGPU_STREAM_OK) {
    if (rings) vgpu_link_renew(&worker->link, connection, received);
    else vgpu_line_offer(&worker->link.line, connection, received);
  } else {
    close(connection);
  }
}

/*
 * Takes a connection from the daemon, which has checked the guest's identity. True: it is the newest
 * connection now.
 */
static bool take_connection(struct vgpu_worker *worker) {
  struct vgpu_line *line = &worker->link.line;
  struct vgpu_line_message message;
  int connection, peer;
  switch (vgpu_line_receive(line->channel, &message, &connection, &peer)) {
    case VGPU_LINE_CAME:
      break;
    case VGPU_LINE_LOST: /* the guest sees its connection close and tries again */
      vgpu_host_log_limited("full", worker->session,
                            "lost a new connection: no free descriptor (RLIMIT_NOFILE)");
      return false;
    case VGPU_LINE_ENDED:
    default:
      line->channel = -1; /* the daemon has ended; this process ends with it */
      return false;
  }
  int unused = line->peer_is_guest ? peer : line->peer;
  if (!line->peer_is_guest) line->peer = peer;
  if (unused >= 0) close(unused);
  greet_again(worker, connection, message.received);
  return true;
}

static void go_down(struct vgpu_worker *worker, struct watch *watch, short events) {
  if (is_gone(worker, events)) {
    if (worker->link.rings.base != NULL) vgpu_doorbell_give_up(&worker->link.doorbell);
    struct timespec grace = {.tv_nsec = GRACE_MS * 1000000l};
    nanosleep(&grace, NULL);
    leave();
  }
  if (worker->link.rings.base != NULL) vgpu_link_mark(&worker->link);
  else vgpu_line_ended(&worker->link.line);
  *watch = (struct watch){.down = true, .since = vgpu_now_ms()};
  set_waiting(worker, watch->since);
  vgpu_host_log_limited("waiting", worker->session, "the connection broke; waiting %u s for its guest",
                        worker->link.line.limit_s);
}

static void come_up(struct vgpu_worker *worker, struct watch *watch) {
  if (watch->down)
    vgpu_host_log_limited("continued", worker->session, "its guest is back after %lld ms",
                          (long long)(vgpu_now_ms() - watch->since));
  watch->down = false;
  set_waiting(worker, 0);
}

static int pause_of(const struct vgpu_worker *worker, const struct watch *watch) {
  if (!watch->down) return VGPU_ALIVE_MS;
  int left = vgpu_left_ms(watch->since + (int64_t)worker->link.line.limit_s * 1000);
  int most = worker->link.ring_memory >= 0 ? MAPPED_LONG_MS : VGPU_ALIVE_MS;
  return left < most ? left : most;
}

static void *watch(void *argument) {
  struct vgpu_worker *worker = argument;
  struct vgpu_link *link = &worker->link;
  struct tick tick = {0};
  struct quiet quiet = {0};
  struct watch state = {0};
  /* Wakes for the end of the connection, for a new one and for the next sign of life, not for data. */
  for (;;) {
    struct pollfd pollers[] = {
        {.fd = state.down ? -1 : vgpu_line_newest(&link->line), .events = POLLRDHUP},
        {.fd = link->line.agreed ? link->line.channel : -1, .events = POLLIN},
        {.fd = state.down && link->line.peer_is_guest ? link->line.peer : -1, .events = POLLIN}};
    int ended = poll(pollers, 3, pause_of(worker, &state));
    if (ended < 0) continue;
    if (pollers[1].revents != 0 && take_connection(worker)) {
      come_up(worker, &state);
      continue;
    }
    if (pollers[2].revents != 0 || (state.down && !vgpu_link_mapped(link))) leave();
    if ((pollers[0].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
      go_down(worker, &state, pollers[0].revents);
    if (state.down && vgpu_left_ms(state.since + (int64_t)link->line.limit_s * 1000) == 0) {
      vgpu_host_log("gone", worker->session, "its guest did not come back within %u s", link->line.limit_s);
      leave();
    }
    if (ended != 0) continue;
    vgpu_link_tell_alive(link, is_idle_sign_due(worker, &quiet));
    count_busy(worker, &tick);
  }
}

bool vgpu_lifeline_start(struct vgpu_worker *worker) {
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, 64 << 10);
  bool started = pthread_create(&thread, &attributes, watch, worker) == 0;
  pthread_attr_destroy(&attributes);
  return started;
}
