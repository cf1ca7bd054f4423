#include "host/daemon/control/orders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host/daemon/control/manage.h"
#include "host/daemon/notify.h"
#include "host/log.h"
#include "wire/clock.h"

bool vgpu_order_reload(struct vgpu_supervisor *supervisor, char *why, unsigned long why_size) {
  struct vgpu_refused_config *refused = &supervisor->refused_config;
  if (!supervisor->read_policy(supervisor, why, why_size)) {
    refused->at = (int64_t)time(NULL);
    snprintf(refused->why, sizeof refused->why, "%s", why);
    vgpu_host_log("error", 0, "not reloaded, the former rules stay in force: %s; see vgpu-hostd.conf(5)",
                  why);
    return false;
  }
  refused->at = 0;
  vgpu_peers_forget_memory(&supervisor->admission.peers);
  vgpu_host_log("reloaded", 0, "hostd.conf was read again; open sessions keep their rules");
  return true;
}

void vgpu_order_reload_and_tell(struct vgpu_supervisor *supervisor) {
  char why[512], state[64];
  snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%llu",
           (unsigned long long)(vgpu_now_ns() / 1000));
  vgpu_notify(state);
  (void)vgpu_order_reload(supervisor, why, sizeof why);
  vgpu_notify("READY=1");
}

static void begin_to_drain(struct vgpu_supervisor *supervisor) {
  supervisor->draining = true;
  vgpu_host_log("draining", 0, "draining: no new session; this daemon ends with the last of its %u",
                vgpu_sessions_count(&supervisor->sessions));
  vgpu_notify("STATUS=Draining");
}

/* Closes the addresses, so that a successor can listen there. */
void vgpu_order_drain(struct vgpu_supervisor *supervisor) {
  if (supervisor->draining) return;
  vgpu_listeners_close(&supervisor->listeners, true);
  vgpu_greetings_abandon(&supervisor->greetings);
  begin_to_drain(supervisor);
}

/* Moves the control socket to PATH.PID: the successor takes the paths of control and metrics. */
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

bool vgpu_order_hand_over(struct vgpu_supervisor *supervisor, int administrator, char *why,
                          unsigned long why_size) {
  if (supervisor->draining || supervisor->hand_over.pipe >= 0) {
    snprintf(why, why_size, "this daemon is draining or handing over already");
    return false;
  }
  step_aside(supervisor);
  if (!vgpu_hand_over_begin(&supervisor->hand_over, &supervisor->listeners, &supervisor->reconnects,
                            &supervisor->spawner.signals, why, why_size)) {
    step_back(supervisor);
    return false;
  }
  supervisor->hand_over.administrator = administrator;
  vgpu_host_log("handing over", 0, "a successor starts");
  return true;
}

static void answer_administrator(struct vgpu_supervisor *supervisor, const char *answer) {
  vgpu_manage_answer(supervisor->hand_over.administrator, answer, strlen(answer));
  supervisor->hand_over.administrator = -1;
}

void vgpu_hand_over_follow(struct vgpu_supervisor *supervisor) {
  if (supervisor->hand_over.pipe < 0) return;
  switch (vgpu_hand_over_read(&supervisor->hand_over)) {
    case VGPU_HAND_OVER_WAIT:
      return;
    case VGPU_HAND_OVER_FAILED:
      vgpu_reconnects_close(&supervisor->reconnects);
      step_back(supervisor);
      vgpu_host_log(
          "error", 0,
          "the successor did not start, and this daemon continues; the messages of the successor are above");
      answer_administrator(supervisor,
                           "error: the successor did not start; the former daemon continues, and the log "
                           "says why\n");
      return;
    case VGPU_HAND_OVER_SERVES:
      break;
  }
  char state[96];
  snprintf(state, sizeof state, "MAINPID=%ld\nSTATUS=Serving sessions",
           (long)supervisor->hand_over.successor);
  vgpu_notify(state);
  unsetenv("NOTIFY_SOCKET"); /* the unit now belongs to the successor */
  /* The socket files belong to the successor, too. */
  vgpu_listeners_close(&supervisor->listeners, false);
  vgpu_metrics_close(&supervisor->metrics);
  vgpu_host_log("handed over", 0, "the successor, process %ld, serves now",
                (long)supervisor->hand_over.successor);
  answer_administrator(supervisor, "ok\n");
  begin_to_drain(supervisor); /* a guest that has connected already is served here */
}
