#include "host/daemon/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "host/daemon/control/manage.h"
#include "host/daemon/control/orders.h"
#include "host/daemon/guests.h"
#include "host/daemon/notify.h"
#include "host/daemon/workers.h"
#include "host/log.h"
#include "wire/clock.h"

#define STOP_LIMIT_MS 1000 /* time for workers to end together with the daemon */

static void read_signals(struct vgpu_supervisor *supervisor) {
  struct signalfd_siginfo info;
  while (read(supervisor->signals, &info, sizeof info) == (ssize_t)sizeof info) {
    if (info.ssi_signo == SIGHUP) vgpu_order_reload_and_tell(supervisor);
    else if (info.ssi_signo != SIGCHLD)
      supervisor->stopping = true; /* ended workers are handled in each turn */
  }
}

static void end_workers(struct vgpu_supervisor *supervisor) {
  vgpu_workers_signal(supervisor, SIGTERM);
  int64_t deadline = vgpu_now_ms() + STOP_LIMIT_MS;
  while (vgpu_sessions_count(&supervisor->sessions) > 0 && vgpu_left_ms(deadline) > 0) {
    struct pollfd poller = {.fd = supervisor->signals, .events = POLLIN};
    poll(&poller, 1, vgpu_left_ms(deadline));
    read_signals(supervisor);
    vgpu_workers_bury(supervisor);
  }
  vgpu_workers_signal(supervisor, SIGKILL);
}

static bool is_drained(const struct vgpu_supervisor *supervisor) {
  return supervisor->draining && vgpu_sessions_count(&supervisor->sessions) == 0 &&
         supervisor->greetings.count == 0;
}

/* Returns the sooner of two waits of poll(), in milliseconds; -1 is forever. */
static int sooner(int one, int other) {
  return one < 0 || (other >= 0 && other < one) ? other : one;
}

/* Until the next worker may start. A worker's log line wakes the daemon earlier. */
#define BEGIN_LOOK_MS 2

/* Ended workers come first, so that their slots are free for new connections. */
static bool wait_and_serve(struct vgpu_supervisor *supervisor) {
  struct pollfd pollers[6 + VGPU_METRICS_POLL_MAX + VGPU_LISTEN_MAX + VGPU_LEAVING_MAX + VGPU_GREETINGS_MAX];
  pollers[0] = (struct pollfd){.fd = supervisor->signals, .events = POLLIN};
  uint32_t count = supervisor->listeners.count;
  for (uint32_t i = 0; i < count; i++) {
    pollers[i + 1] = (struct pollfd){.fd = supervisor->listeners.array[i].descriptor, .events = POLLIN};
  }
  uint32_t leaving = vgpu_leaving_poll(&supervisor->admission, &pollers[count + 1]);
  uint32_t greeting = vgpu_greetings_poll(&supervisor->greetings, &pollers[count + 1 + leaving]);
  uint32_t all = 1 + count + leaving + greeting;
  pollers[all] = (struct pollfd){.fd = supervisor->control, .events = POLLIN};
  pollers[all + 1] = (struct pollfd){.fd = supervisor->hand_over.pipe, .events = POLLIN};
  pollers[all + 2] = (struct pollfd){.fd = supervisor->exchange.poll, .events = POLLIN};
  pollers[all + 3] = (struct pollfd){.fd = supervisor->reconnects.successors, .events = POLLIN};
  pollers[all + 4] = (struct pollfd){.fd = supervisor->worker_logs.poll, .events = POLLIN};
  uint32_t metrics = vgpu_metrics_poll(&supervisor->metrics, &pollers[all + 5]);
  int limit = sooner(vgpu_leaving_wait(&supervisor->admission), vgpu_greetings_wait(&supervisor->greetings));
  limit = sooner(limit, vgpu_metrics_wait(&supervisor->metrics));
  limit = sooner(limit, vgpu_forwarded_queries_wait(&supervisor->queries));
  if (supervisor->hand_over.pipe >= 0) limit = sooner(limit, vgpu_left_ms(supervisor->hand_over.deadline));
  limit = sooner(limit, vgpu_worker_logs_left_out(&supervisor->admission.peers));
  if (supervisor->sessions.begins > 0) limit = sooner(limit, BEGIN_LOOK_MS);
  if (poll(pollers, all + 5 + metrics, limit) < 0) return errno == EINTR;
  read_signals(supervisor);
  if ((pollers[all + 4].revents & POLLIN) != 0)
    vgpu_worker_logs_serve(&supervisor->worker_logs, &supervisor->sessions);
  vgpu_workers_bury(supervisor);
  vgpu_metrics_serve(&supervisor->metrics, &pollers[all + 5], supervisor);
  vgpu_forwarded_queries_end(&supervisor->queries, &supervisor->admission);
  vgpu_hand_over_follow(supervisor);
  if (supervisor->stopping || is_drained(supervisor)) return false;
  if ((pollers[all].revents & POLLIN) != 0) {
    vgpu_manage_serve(supervisor->control, supervisor);
    if (is_drained(supervisor)) return false;
  }
  if ((pollers[all + 2].revents & POLLIN) != 0) vgpu_exchange_serve(&supervisor->exchange);
  vgpu_leaving_close(&supervisor->admission, &pollers[count + 1], leaving);
  vgpu_guests_read(supervisor);
  if (pollers[all + 3].revents != 0) vgpu_guests_return(supervisor);
  /* A hand-over in this turn has closed listeners. */
  for (uint32_t i = 0; i < supervisor->listeners.count; i++) {
    if ((pollers[i + 1].revents & POLLIN) != 0) vgpu_guests_accept(supervisor, pollers[i + 1].fd);
  }
  vgpu_guests_begin(supervisor);
  return true;
}

bool vgpu_supervisor_hold_signals(struct vgpu_supervisor *supervisor) {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  sigaddset(&wanted, SIGTERM);
  sigaddset(&wanted, SIGHUP);
  sigaddset(&wanted, SIGINT);
  sigprocmask(SIG_BLOCK, &wanted, NULL);
  signal(SIGPIPE, SIG_IGN);
  supervisor->signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  if (supervisor->signals < 0) vgpu_host_log("error", 0, "signalfd: %s", strerror(errno));
  return supervisor->signals >= 0;
}

int vgpu_supervise(struct vgpu_supervisor *supervisor) {
  supervisor->next_session = 1;
  vgpu_exchange_begin(&supervisor->exchange);
  supervisor->hand_over = (struct vgpu_hand_over){.pipe = -1, .administrator = -1};
  if (!vgpu_worker_logs_begin(&supervisor->worker_logs)) {
    vgpu_host_log("error", 0, "epoll: %s", strerror(errno));
    return 1;
  }
  /* The unit is active already; until this report its main process is the predecessor. */
  if (!vgpu_hand_over_tell()) vgpu_notify("READY=1\nSTATUS=Serving sessions");
  while (!supervisor->stopping && wait_and_serve(supervisor)) continue;
  vgpu_notify("STOPPING=1");
  vgpu_host_log("stopping", 0, "stopping");
  vgpu_listeners_close(&supervisor->listeners, true);
  vgpu_leaving_abandon(&supervisor->admission);
  vgpu_greetings_abandon(&supervisor->greetings);
  vgpu_guests_abandon(supervisor);
  end_workers(supervisor);
  close(supervisor->signals);
  return 0;
}
