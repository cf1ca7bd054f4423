#include "host/daemon/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/session/confine.h"
#include "host/daemon/hand_over.h"
#include "host/log.h"
#include "host/daemon/manage.h"
#include "host/daemon/notify.h"
#include "wire/clock.h"
#include "wire/stream.h"

#define STOP_LIMIT_MS 1000 /* for workers to end when the daemon does */
#define ACCEPTS_A_TURN 32  /* of one listener; then the dead are buried and signals are read */

struct loop {
  struct vgpu_supervisor *supervisor;
  int signals;
  uint64_t next_session;
  bool stopping;
  struct vgpu_hand_over hand_over;
};

/* What the daemon grants anybody, and of that what it grants this peer. */
static struct vgpu_limits limits_of(const struct vgpu_limits *all, const struct vgpu_peer_limits *peer) {
  struct vgpu_limits limits = *all;
  if (peer->outstanding != 0) limits.outstanding = peer->outstanding;
  if (peer->calls != 0) limits.calls = peer->calls;
  limits.peer_memory = peer->memory;
  return limits;
}

/* The greeting becomes a session; the connection is taken over. */
static void begin_session(struct loop *loop, const struct vgpu_greeting *greeting) {
  struct vgpu_supervisor *supervisor = loop->supervisor;
  uint64_t session = greeting->session;
  int32_t status = vgpu_admit_session(&supervisor->admission, &supervisor->sessions, &greeting->peer,
                                      greeting->who, session, &greeting->limits);
  if (status != VGPU_STATUS_OK) {
    supervisor->sessions.turned_away++;
    vgpu_refuse(&supervisor->admission, &greeting->peer, greeting->descriptor, status, NULL);
    return;
  }
  int slot = vgpu_sessions_free_slot(&supervisor->sessions);
  struct vgpu_session_entry *entry = &supervisor->sessions.entries[slot];
  *entry = (struct vgpu_session_entry){
      .session = session, .peer = greeting->peer, .began = vgpu_now_ms(), .hello = greeting->hello};
  snprintf(entry->who, sizeof entry->who, "%s", greeting->who);
  struct vgpu_account_owner owner = {
      .guest_pid = greeting->hello.pid, .peer = greeting->peer, .peer_memory = greeting->limits.memory};
  vgpu_accounts_begin(supervisor->accounts, (uint32_t)slot, &owner);
  const struct vgpu_peers *peers = &supervisor->admission.peers;
  uint32_t peer = (uint32_t)(vgpu_peers_find(&supervisor->admission.peers, &greeting->peer) - peers->records);
  vgpu_share_begin(&supervisor->accounts->commons.share, (uint32_t)slot, peer, greeting->limits.weight);
  struct vgpu_session_setup setup = {.daemon = getpid(),
                                     .slot = (uint32_t)slot,
                                     .session = session,
                                     .peer = greeting->peer,
                                     .limits = limits_of(&supervisor->limits, &greeting->limits),
                                     .hello = greeting->hello};
  pid_t pid = vgpu_spawn(&supervisor->spawner, &setup, greeting->descriptor);
  if (pid < 0) {
    vgpu_host_log_limited("error", session, "refused %s: no worker: %s", greeting->who, strerror(errno));
    supervisor->sessions.turned_away++;
    vgpu_refuse(&supervisor->admission, &greeting->peer, greeting->descriptor, VGPU_STATUS_BUSY, NULL);
    return;
  }
  close(greeting->descriptor);
  entry->pid = pid;
  supervisor->sessions.begun++;
  __atomic_store_n(&supervisor->accounts->owners[slot].pid, (int32_t)pid, __ATOMIC_RELEASE);
  vgpu_host_log("connected", session, "%s, worker %ld", greeting->who, (long)pid);
}

/* Answers with the sessions of this peer, and hangs up. */
static void tell_sessions(struct loop *loop, const struct vgpu_greeting *greeting) {
  struct vgpu_supervisor *supervisor = loop->supervisor;
  static struct vgpu_session_facts facts[VGPU_SESSIONS_MAX];
  const struct vgpu_peer_record *record = vgpu_peers_find(&supervisor->admission.peers, &greeting->peer);
  struct vgpu_sessions_reply answer = {
      .count = vgpu_sessions_list(&supervisor->sessions, supervisor->accounts, &greeting->peer, facts),
      .element_size = sizeof *facts,
      .turned_away = record->turned_away,
      .last_turned_away = record->last_turned_away,
      .turned_away_age =
          record->turned_away == 0 ? 0 : (uint32_t)((vgpu_now_ms() - record->turned_away_at) / 1000)};
  struct vgpu_refused_kernels refused =
      vgpu_sessions_refused(&supervisor->sessions, supervisor->accounts, record);
  answer.kernels_refused = refused.count;
  answer.refused_age = refused.count == 0 ? 0 : (uint32_t)((vgpu_now_ms() - refused.at) / 1000);
  memcpy(answer.refused_program, refused.program, sizeof answer.refused_program);
  memcpy(answer.refused_kernel, refused.kernel, sizeof answer.refused_kernel);
  vgpu_welcome_fill(&answer.welcome, supervisor->backend, supervisor->inventory);
  struct vgpu_frame reply = {.opcode = VGPU_OP_HELLO, .flags = VGPU_FLAG_REPLY};
  /* 32 KiB at most: what a new connection has no room for is lost, and the peer sees a cut answer. */
  vgpu_stream_write_frame(greeting->descriptor, &reply, &answer, sizeof answer, facts,
                          answer.count * (uint32_t)sizeof *facts, vgpu_now_ms());
  vgpu_let_leave(&supervisor->admission, greeting->descriptor);
}

static void refuse_greeting(struct loop *loop, const struct vgpu_greeting *greeting, int32_t status) {
  struct vgpu_supervisor *supervisor = loop->supervisor;
  const struct vgpu_hello *hello = &greeting->hello;
  struct vgpu_welcome welcome;
  vgpu_welcome_fill(&welcome, supervisor->backend, supervisor->inventory);
  bool version = status == VGPU_STATUS_VERSION;
  if (version) {
    vgpu_host_log_limited(
        "refused", greeting->session,
        "refused %s: it speaks wire version %u.%u, this host %u.%u: the %s is older, upgrade it",
        greeting->who, hello->major, hello->minor, VGPU_WIRE_MAJOR, VGPU_WIRE_MINOR,
        hello->major < VGPU_WIRE_MAJOR ? "guest" : "host");
  } else {
    vgpu_host_log_limited("refused", greeting->session,
                          "refused %s: it asks for what this host does not have", greeting->who);
  }
  supervisor->sessions.turned_away++;
  vgpu_refuse(&supervisor->admission, &greeting->peer, greeting->descriptor, status,
              version ? &welcome : NULL);
}

/* Reads on. True: the greeting is over, as a session or otherwise, and its place was given back. */
static bool read_greeting(struct loop *loop, struct vgpu_greeting *place) {
  struct vgpu_supervisor *supervisor = loop->supervisor;
  enum vgpu_greeting_result result = vgpu_greetings_read(place);
  if (result == VGPU_GREETING_PART) return false;
  struct vgpu_greeting greeting = *place;
  vgpu_greetings_remove(&supervisor->greetings, place);
  int32_t status = result == VGPU_GREETING_WHOLE ? vgpu_greeting_status(&greeting.hello) : 0;
  if (result == VGPU_GREETING_UNSOUND) {
    close(greeting.descriptor);
  } else if (status != VGPU_STATUS_OK) {
    refuse_greeting(loop, &greeting, status);
  } else if (greeting.hello.library == VGPU_LIBRARY_SESSIONS) {
    tell_sessions(loop, &greeting);
  } else {
    begin_session(loop, &greeting);
  }
  return true;
}

static void read_greetings(struct loop *loop) {
  struct vgpu_greetings *greetings = &loop->supervisor->greetings;
  for (uint32_t i = 0; i < greetings->count;) {
    if (!read_greeting(loop, &greetings->array[i])) i++;
  }
}

static void greet(struct loop *loop, int connection) {
  struct vgpu_supervisor *supervisor = loop->supervisor;
  struct vgpu_greeting greeting = {.descriptor = connection, .session = loop->next_session++};
  struct vgpu_identity identity;
  vgpu_peer_of(connection, &identity, greeting.who, sizeof greeting.who);
  greeting.peer = identity.peer;
  int32_t status =
      vgpu_admit(&supervisor->admission, &identity, greeting.who, greeting.session, &greeting.limits);
  if (status != VGPU_STATUS_OK) {
    supervisor->sessions.turned_away++;
    vgpu_refuse(&supervisor->admission, &greeting.peer, connection, status, NULL);
    return;
  }
  /* Most have greeted by now. */
  read_greeting(loop, vgpu_greetings_add(&supervisor->greetings, &greeting));
}

static void accept_some(struct loop *loop, int listener) {
  for (int i = 0; i < ACCEPTS_A_TURN; i++) {
    int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0) {
      greet(loop, connection);
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      vgpu_host_log_limited("error", 0, "accept: %s", strerror(errno));
      struct timespec nap = {.tv_nsec = 50000000}; /* out of descriptors: do not spin */
      nanosleep(&nap, NULL);
    }
    return;
  }
}

/* Gives a dead worker's slot back; its memory went with the process. */
static void bury(struct loop *loop, pid_t pid, int status) {
  struct vgpu_supervisor *supervisor = loop->supervisor;
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    struct vgpu_session_entry *entry = &supervisor->sessions.entries[i];
    if (entry->pid != pid) continue;
    uint64_t session = entry->session;
    const struct vgpu_account *account = &supervisor->accounts->slots[i];
    int32_t denied = account->denied;
    if (account->kernels_refused != 0) {
      struct vgpu_peer_record *record = vgpu_peers_find(&supervisor->admission.peers, &entry->peer);
      vgpu_sessions_add_refused(entry, account, &record->refused);
    }
    entry->pid = 0;
    supervisor->sessions.ended++;
    vgpu_accounts_end(supervisor->accounts, i);
    vgpu_images_end(supervisor->code.images, i);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS && denied >= 0) {
      char *name = vgpu_confine_name(denied);
      vgpu_host_log("seccomp", session, "ended: worker killed by signal %d: seccomp, system call %d (%s)",
                    SIGSYS, denied, name == NULL ? "?" : name);
      free(name);
    } else if (WIFSIGNALED(status)) {
      vgpu_host_log("ended", session, "ended: worker killed by signal %d", WTERMSIG(status));
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
      vgpu_host_log("error", session, "ended: its worker could not be started");
    } else {
      vgpu_host_log("ended", session, "ended");
    }
    return;
  }
}

static void bury_all(struct loop *loop) {
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) bury(loop, pid, status);
}

/* A worker that is not buried yet keeps its number: nobody else can have it. */
static void signal_workers(const struct loop *loop, int number) {
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    pid_t pid = loop->supervisor->sessions.entries[i].pid;
    if (pid != 0) kill(pid, number);
  }
}

static bool end_session(void *argument, unsigned long long session) {
  struct loop *loop = argument;
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    const struct vgpu_session_entry *entry = &loop->supervisor->sessions.entries[i];
    if (entry->pid == 0 || entry->session != session) continue;
    vgpu_host_log("ending", session, "the administrator ends it");
    kill(entry->pid, SIGKILL);
    return true;
  }
  return false;
}

static bool reload(void *argument, char *why, unsigned long why_size) {
  struct loop *loop = argument;
  if (!loop->supervisor->read_policy(loop->supervisor, why, why_size)) {
    vgpu_host_log("error", 0, "not reloaded, the former rules hold: %s; see vgpu-hostd.conf(5)", why);
    return false;
  }
  vgpu_host_log("reloaded", 0, "the rules are read again; sessions go on as they began");
  return true;
}

static void reload_and_tell(struct loop *loop) {
  char why[512], state[64];
  snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%llu",
           (unsigned long long)(vgpu_now_ns() / 1000));
  vgpu_notify(state);
  (void)reload(loop, why, sizeof why);
  vgpu_notify("READY=1");
}

static void begin_to_drain(struct loop *loop) {
  loop->supervisor->draining = true;
  vgpu_host_log("draining", 0, "draining: no new session; this daemon ends with the last of its %u",
                vgpu_sessions_count(&loop->supervisor->sessions));
  vgpu_notify("STATUS=Draining");
}

/* A successor may listen at the same addresses from now on. */
static void drain(void *argument) {
  struct loop *loop = argument;
  if (loop->supervisor->draining) return;
  vgpu_listeners_close(&loop->supervisor->listeners, true);
  vgpu_greetings_abandon(&loop->supervisor->greetings);
  begin_to_drain(loop);
}

/* Nobody is served any more, nor greets. */
static bool is_drained(const struct vgpu_supervisor *supervisor) {
  return supervisor->draining && vgpu_sessions_count(&supervisor->sessions) == 0 &&
         supervisor->greetings.count == 0;
}

/* The successor has the paths of the control socket and of the metrics. This daemon is asked at PATH.PID. */
static void step_aside(struct vgpu_supervisor *supervisor) {
  const struct vgpu_options *options = supervisor->inventory->options;
  if (supervisor->metrics.listener >= 0) unlink(options->metrics);
  if (supervisor->control < 0) return;
  snprintf(supervisor->control_path, sizeof supervisor->control_path, "%s.%ld", options->control,
           (long)getpid());
  (void)rename(options->control, supervisor->control_path);
}

static void step_back(struct vgpu_supervisor *supervisor) {
  const struct vgpu_options *options = supervisor->inventory->options;
  if (supervisor->metrics.listener >= 0) {
    vgpu_metrics_close(&supervisor->metrics);
    supervisor->metrics.listener = vgpu_manage_open("metrics", options->metrics, 0666);
  }
  if (supervisor->control < 0) return;
  (void)rename(supervisor->control_path, options->control);
  snprintf(supervisor->control_path, sizeof supervisor->control_path, "%s", options->control);
}

static bool hand_over(void *argument, int administrator, char *why, unsigned long why_size) {
  struct loop *loop = argument;
  struct vgpu_supervisor *supervisor = loop->supervisor;
  if (supervisor->draining || loop->hand_over.pipe >= 0) {
    snprintf(why, why_size, "this daemon drains, or hands over already");
    return false;
  }
  step_aside(supervisor);
  if (!vgpu_hand_over_begin(&loop->hand_over, &supervisor->listeners, &loop->supervisor->spawner.signals, why,
                            why_size)) {
    step_back(supervisor);
    return false;
  }
  loop->hand_over.administrator = administrator;
  vgpu_host_log("handing over", 0, "a successor starts");
  return true;
}

static void answer_administrator(struct loop *loop, const char *answer) {
  vgpu_manage_answer(loop->hand_over.administrator, answer, strlen(answer));
  loop->hand_over.administrator = -1;
}

static void follow_hand_over(struct loop *loop) {
  struct vgpu_supervisor *supervisor = loop->supervisor;
  if (loop->hand_over.pipe < 0) return;
  switch (vgpu_hand_over_read(&loop->hand_over)) {
    case VGPU_HAND_OVER_WAIT:
      return;
    case VGPU_HAND_OVER_FAILED:
      step_back(supervisor);
      vgpu_host_log("error", 0,
                    "the successor did not start, and this daemon goes on; what it said is above");
      answer_administrator(loop, "error: the successor did not start; the former daemon goes on, and the log "
                                 "says why\n");
      return;
    case VGPU_HAND_OVER_SERVES:
      break;
  }
  char state[96];
  snprintf(state, sizeof state, "MAINPID=%ld\nSTATUS=Serving sessions", (long)loop->hand_over.successor);
  vgpu_notify(state);
  unsetenv("NOTIFY_SOCKET"); /* the unit is the successor's now */
  /* The files of the sockets and of the metrics are, too. */
  vgpu_listeners_close(&supervisor->listeners, false);
  vgpu_metrics_close(&supervisor->metrics);
  vgpu_host_log("handed over", 0, "process %ld serves now", (long)loop->hand_over.successor);
  answer_administrator(loop, "ok\n");
  begin_to_drain(loop); /* who has connected already greets here, and is served here */
}

static void read_signals(struct loop *loop) {
  struct signalfd_siginfo info;
  while (read(loop->signals, &info, sizeof info) == (ssize_t)sizeof info) {
    if (info.ssi_signo == SIGHUP) reload_and_tell(loop);
    else if (info.ssi_signo != SIGCHLD) loop->stopping = true; /* SIGCHLD: the turn buries */
  }
}

static void end_workers(struct loop *loop) {
  signal_workers(loop, SIGTERM);
  int64_t deadline = vgpu_now_ms() + STOP_LIMIT_MS;
  while (vgpu_sessions_count(&loop->supervisor->sessions) > 0 && vgpu_left_ms(deadline) > 0) {
    struct pollfd poller = {.fd = loop->signals, .events = POLLIN};
    poll(&poller, 1, vgpu_left_ms(deadline));
    read_signals(loop);
    bury_all(loop);
  }
  signal_workers(loop, SIGKILL);
}

/* The sooner of two waits of poll(), where -1 is for ever. */
static int sooner(int one, int other) {
  return one < 0 || (other >= 0 && other < one) ? other : one;
}

/* One turn. The dead are buried first, so that their slots are free for who comes now. */
static bool wait_and_serve(struct loop *loop) {
  struct vgpu_supervisor *supervisor = loop->supervisor;
  struct pollfd pollers[3 + VGPU_METRICS_POLL_MAX + VGPU_LISTEN_MAX + VGPU_LEAVING_MAX + VGPU_GREETINGS_MAX];
  pollers[0] = (struct pollfd){.fd = loop->signals, .events = POLLIN};
  uint32_t count = supervisor->listeners.count;
  for (uint32_t i = 0; i < count; i++) {
    pollers[i + 1] = (struct pollfd){.fd = supervisor->listeners.array[i].descriptor, .events = POLLIN};
  }
  uint32_t leaving = vgpu_leaving_poll(&supervisor->admission, &pollers[count + 1]);
  uint32_t greeting = vgpu_greetings_poll(&supervisor->greetings, &pollers[count + 1 + leaving]);
  uint32_t all = 1 + count + leaving + greeting;
  /* Without a control socket: a descriptor that poll() passes over. */
  pollers[all] = (struct pollfd){.fd = supervisor->control, .events = POLLIN};
  pollers[all + 1] = (struct pollfd){.fd = loop->hand_over.pipe, .events = POLLIN};
  uint32_t metrics = vgpu_metrics_poll(&supervisor->metrics, &pollers[all + 2]);
  int limit = sooner(vgpu_leaving_wait(&supervisor->admission), vgpu_greetings_wait(&supervisor->greetings));
  limit = sooner(limit, vgpu_metrics_wait(&supervisor->metrics));
  if (loop->hand_over.pipe >= 0) limit = sooner(limit, vgpu_left_ms(loop->hand_over.deadline));
  if (poll(pollers, all + 2 + metrics, limit) < 0) return errno == EINTR;
  read_signals(loop);
  bury_all(loop);
  vgpu_metrics_serve(&supervisor->metrics, &pollers[all + 2], supervisor);
  follow_hand_over(loop);
  if (loop->stopping || is_drained(supervisor)) return false;
  if ((pollers[all].revents & POLLIN) != 0) {
    const struct vgpu_orders orders = {
        .end = end_session, .reload = reload, .drain = drain, .hand_over = hand_over, .loop = loop};
    vgpu_manage_serve(supervisor->control, supervisor, &orders);
    if (is_drained(supervisor)) return false;
  }
  vgpu_leaving_close(&supervisor->admission, &pollers[count + 1], leaving);
  read_greetings(loop);
  /* None is left in a turn in which they were given up. */
  for (uint32_t i = 0; i < supervisor->listeners.count; i++) {
    if ((pollers[i + 1].revents & POLLIN) != 0) accept_some(loop, pollers[i + 1].fd);
  }
  return true;
}

int vgpu_supervise(struct vgpu_supervisor *supervisor) {
  struct loop loop = {
      .supervisor = supervisor, .next_session = 1, .hand_over = {.pipe = -1, .administrator = -1}};
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  sigaddset(&wanted, SIGTERM);
  sigaddset(&wanted, SIGHUP);
  sigaddset(&wanted, SIGINT);
  sigprocmask(SIG_BLOCK, &wanted, NULL);
  signal(SIGPIPE, SIG_IGN);
  loop.signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  if (loop.signals < 0) {
    vgpu_host_log("error", 0, "signalfd: %s", strerror(errno));
    return 1;
  }
  /* Of a successor the unit is active already, and its main process is the predecessor until that hears of
   * this. */
  if (!vgpu_hand_over_tell()) vgpu_notify("READY=1\nSTATUS=Serving sessions");
  while (!loop.stopping && wait_and_serve(&loop)) continue;
  vgpu_notify("STOPPING=1");
  vgpu_host_log("stopping", 0, "stopping");
  vgpu_listeners_close(&supervisor->listeners, true);
  vgpu_leaving_abandon(&supervisor->admission);
  vgpu_greetings_abandon(&supervisor->greetings);
  end_workers(&loop);
  close(loop.signals);
  return 0;
}
