#include "host/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/confine.h"
#include "host/log.h"
#include "host/software/ptx/ptx.h"
#include "host/notify.h"
#include "wire/clock.h"

#define STOP_LIMIT_MS 1000 /* for workers to end when the daemon does */

struct loop {
  struct vgpu_supervisor *supervisor;
  int signals;
  sigset_t before; /* the signal mask workers get back */
  uint64_t next_session;
  bool stopping;
};

/* The first free slot, or -1 when there are as many sessions as may be. */
static int free_slot(const struct vgpu_supervisor *supervisor) {
  const struct vgpu_account *slots = supervisor->accounts->slots;
  for (uint32_t i = 0; i < supervisor->limits.sessions; i++) {
    if (slots[i].pid == 0) return (int)i;
  }
  return -1;
}

/* The kernel should end a worker that filled the machine's memory, not the daemon or a neighbour. */
static void offer_to_oom_killer(void) {
  int descriptor = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  ssize_t written = write(descriptor, "900", 3);
  (void)written; /* not allowed everywhere, and not needed */
  close(descriptor);
}

/* What the daemon grants anybody, and of that what it grants this peer. */
static struct vgpu_limits limits_of(const struct vgpu_limits *all, const struct vgpu_peer_limits *peer) {
  struct vgpu_limits limits = *all;
  if (peer->outstanding != 0) limits.outstanding = peer->outstanding;
  if (peer->calls != 0) limits.calls = peer->calls;
  limits.peer_memory = peer->memory;
  return limits;
}

_Noreturn static void run_worker(struct loop *loop, int connection, uint32_t slot, pid_t daemon,
                                 const struct vgpu_limits *limits) {
  struct vgpu_supervisor *supervisor = loop->supervisor;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != daemon) _exit(1); /* it died before the line above */
  vgpu_listeners_close(&supervisor->listeners, false);
  vgpu_leaving_abandon(&supervisor->admission);
  close(loop->signals);
  signal(SIGPIPE, SIG_IGN);
  sigprocmask(SIG_SETMASK, &loop->before, NULL);
  offer_to_oom_killer();
  struct vgpu_worker worker = {.link = {.descriptor = connection},
                               .session = supervisor->accounts->slots[slot].session,
                               .slot = slot,
                               .accounts = supervisor->accounts,
                               .backend = supervisor->backend,
                               .inventory = supervisor->inventory,
                               .profiles = supervisor->inventory->profiles,
                               .limits = limits,
                               .memory = {.watched = (supervisor->code.checks & PTX_CHECK_INIT) != 0},
                               .code_options = &supervisor->code};
  int32_t *denied = &supervisor->accounts->slots[slot].denied;
  if (!vgpu_confine(supervisor->backend->number, supervisor->filter, denied)) {
    vgpu_host_log("error", worker.session, "cannot confine the worker: %s", strerror(errno));
    _exit(1);
  }
  int status = vgpu_worker_serve(&worker);
  _exit(status); /* what it held goes with the process */
}

/* Takes the connection over. */
static void begin_session(struct loop *loop, int connection) {
  struct vgpu_supervisor *supervisor = loop->supervisor;
  uint64_t session = loop->next_session++;
  char who[96];
  struct vgpu_identity identity;
  struct vgpu_peer_limits peer;
  vgpu_peer_of(connection, &identity, who, sizeof who);
  int32_t status = vgpu_admit(&supervisor->admission, supervisor->accounts, &identity, who, session, &peer);
  int slot = status == VGPU_STATUS_OK ? free_slot(supervisor) : -1;
  if (status == VGPU_STATUS_OK && slot < 0) {
    status = VGPU_STATUS_BUSY;
    vgpu_tell_refusal(&supervisor->admission, session, "%s: there are already %u sessions", who,
                      supervisor->limits.sessions);
  }
  if (status != VGPU_STATUS_OK) {
    vgpu_refuse(&supervisor->admission, connection, status);
    return;
  }
  struct vgpu_account *account = &supervisor->accounts->slots[slot];
  struct vgpu_limits limits = limits_of(&supervisor->limits, &peer);
  *account = (struct vgpu_account){
      .session = session, .denied = -1, .peer = identity.peer, .peer_memory = limits.peer_memory};
  vgpu_accounts_begin(supervisor->accounts, (uint32_t)slot);
  pid_t daemon = getpid();
  pid_t pid = fork();
  if (pid == 0) run_worker(loop, connection, (uint32_t)slot, daemon, &limits);
  if (pid < 0) {
    vgpu_host_log("error", session, "refused %s: fork: %s", who, strerror(errno));
    vgpu_refuse(&supervisor->admission, connection, VGPU_STATUS_BUSY);
    return;
  }
  close(connection);
  __atomic_store_n(&account->pid, (int32_t)pid, __ATOMIC_RELEASE);
  vgpu_host_log("connected", session, "%s, worker %ld", who, (long)pid);
}

static void accept_all(struct loop *loop, int listener) {
  for (;;) {
    int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0) {
      begin_session(loop, connection);
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      vgpu_host_log("error", 0, "accept: %s", strerror(errno));
      struct timespec nap = {.tv_nsec = 50000000}; /* out of descriptors: do not spin */
      nanosleep(&nap, NULL);
    }
    return;
  }
}

/* Gives a dead worker's slot back; its memory went with the process. */
static void bury(struct loop *loop, pid_t pid, int status) {
  struct vgpu_account *slots = loop->supervisor->accounts->slots;
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    if (slots[i].pid != (int32_t)pid) continue;
    uint64_t session = slots[i].session;
    memset(slots[i].used, 0, sizeof slots[i].used);
    memset(slots[i].contexts, 0, sizeof slots[i].contexts);
    __atomic_store_n(&slots[i].pid, 0, __ATOMIC_RELEASE);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS && slots[i].denied >= 0) {
      char *name = vgpu_confine_name(slots[i].denied);
      vgpu_host_log("seccomp", session, "ended: worker killed by signal %d: seccomp, system call %d (%s)",
                    SIGSYS, slots[i].denied, name == NULL ? "?" : name);
      free(name);
    } else if (WIFSIGNALED(status)) {
      vgpu_host_log("ended", session, "ended: worker killed by signal %d", WTERMSIG(status));
    } else {
      vgpu_host_log("ended", session, "ended");
    }
  }
}

static void bury_all(struct loop *loop) {
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) bury(loop, pid, status);
}

static bool any_worker(const struct loop *loop) {
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    if (loop->supervisor->accounts->slots[i].pid != 0) return true;
  }
  return false;
}

static void signal_workers(const struct loop *loop, int number) {
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    int32_t pid = loop->supervisor->accounts->slots[i].pid;
    if (pid != 0) kill(pid, number);
  }
}

static void read_signals(struct loop *loop) {
  struct signalfd_siginfo info;
  while (read(loop->signals, &info, sizeof info) == (ssize_t)sizeof info) {
    if (info.ssi_signo == SIGCHLD) bury_all(loop);
    else loop->stopping = true;
  }
}

static void end_workers(struct loop *loop) {
  signal_workers(loop, SIGTERM);
  int64_t deadline = vgpu_now_ms() + STOP_LIMIT_MS;
  while (any_worker(loop) && vgpu_left_ms(deadline) > 0) {
    struct pollfd poller = {.fd = loop->signals, .events = POLLIN};
    poll(&poller, 1, vgpu_left_ms(deadline));
    read_signals(loop);
    bury_all(loop);
  }
  signal_workers(loop, SIGKILL);
}

int vgpu_supervise(struct vgpu_supervisor *supervisor) {
  struct loop loop = {.supervisor = supervisor, .next_session = 1};
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  sigaddset(&wanted, SIGTERM);
  sigaddset(&wanted, SIGINT);
  sigprocmask(SIG_BLOCK, &wanted, &loop.before);
  signal(SIGPIPE, SIG_IGN);
  loop.signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  if (loop.signals < 0) {
    vgpu_host_log("error", 0, "signalfd: %s", strerror(errno));
    return 1;
  }
  vgpu_notify("READY=1\nSTATUS=Serving sessions");
  while (!loop.stopping) {
    struct pollfd pollers[1 + VGPU_LISTEN_MAX + VGPU_LEAVING_MAX] = {{.fd = loop.signals, .events = POLLIN}};
    uint32_t count = supervisor->listeners.count;
    for (uint32_t i = 0; i < count; i++) {
      pollers[i + 1] = (struct pollfd){.fd = supervisor->listeners.array[i].descriptor, .events = POLLIN};
    }
    uint32_t leaving = vgpu_leaving_poll(&supervisor->admission, &pollers[count + 1]);
    if (poll(pollers, 1 + count + leaving, vgpu_leaving_wait(&supervisor->admission)) < 0 && errno != EINTR) {
      break;
    }
    vgpu_leaving_close(&supervisor->admission, &pollers[count + 1], leaving);
    if ((pollers[0].revents & POLLIN) != 0) read_signals(&loop);
    for (uint32_t i = 0; i < count && !loop.stopping; i++) {
      if ((pollers[i + 1].revents & POLLIN) != 0) accept_all(&loop, pollers[i + 1].fd);
    }
  }
  vgpu_notify("STOPPING=1");
  vgpu_host_log("stopping", 0, "stopping");
  vgpu_listeners_close(&supervisor->listeners, true);
  vgpu_leaving_abandon(&supervisor->admission);
  end_workers(&loop);
  close(loop.signals);
  return 0;
}
