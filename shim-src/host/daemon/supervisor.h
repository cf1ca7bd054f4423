#ifndef VGPU_HOST_SUPERVISOR_H
#define VGPU_HOST_SUPERVISOR_H

#include "host/policy/admission.h"
#include "host/backend/backend.h"
#include "host/daemon/exchange.h"
#include "host/daemon/greetings.h"
#include "host/daemon/hand_over.h"
#include "host/daemon/listen.h"
#include "host/daemon/forwarded_queries.h"
#include "host/daemon/reconnects.h"
#include "host/daemon/control/metrics.h"
#include "host/daemon/sessions.h"
#include "host/daemon/spawn.h"
#include "host/daemon/worker_groups.h"
#include "host/daemon/worker_logs.h"
#include "host/session/answer.h"

/* Why hostd.conf was refused when it was last read again. The earlier rules stay in force. */
struct vgpu_refused_config {
  int64_t at; /* seconds since 1970; 0: it was not refused */
  char why[512];
};

struct vgpu_supervisor {
  struct vgpu_listeners listeners;
  struct vgpu_accounts *accounts;
  const struct vgpu_backend *backend;
  const struct vgpu_inventory *inventory;
  struct vgpu_limits limits; /* of peers without limits of their own */
  struct vgpu_admission admission;
  struct vgpu_refused_config refused_config;
  struct vgpu_greetings greetings;
  struct vgpu_sessions sessions;
  struct vgpu_greeting begins[VGPU_SESSIONS_MAX]; /* by slot, of the sessions that begin */
  struct vgpu_code_options code;
  struct vgpu_spawner spawner;
  int control;            /* listens for the administrator (manage.h); -1: none */
  char control_path[128]; /* of its file; "": no file to remove */
  struct vgpu_metrics metrics;
  struct vgpu_hand_over hand_over;
  struct vgpu_reconnects reconnects;
  struct vgpu_forwarded_queries queries;
  struct vgpu_exchange exchange;
  struct vgpu_worker_logs worker_logs;
  struct vgpu_worker_groups worker_groups;
  int signals; /* signalfd */
  uint64_t next_session;
  bool stopping;
  bool draining; /* takes no new session, and ends with the last one */
  /* Reads hostd.conf again. False: `why` has the mistake, and the rules do not change. */
  bool (*read_policy)(struct vgpu_supervisor *supervisor, char *why, unsigned long why_size);
};

/*
 * Keeps SIGTERM, SIGINT, SIGHUP and SIGCHLD for vgpu_supervise(). Call this before a socket is made: a
 * process that sees the socket may signal the daemon, and the default action would end the daemon and leave
 * the socket behind. Returns false after logging why.
 */
bool vgpu_supervisor_hold_signals(struct vgpu_supervisor *supervisor);

/* Runs until SIGTERM or SIGINT. Returns 0, or 1 after logging why. */
int vgpu_supervise(struct vgpu_supervisor *supervisor);

#endif
