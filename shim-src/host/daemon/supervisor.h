/*
 * The daemon and its loop. What a turn has to do is elsewhere: guests.h takes connections in, workers.h
 * buries the dead, control/orders.h obeys the administrator.
 */
#ifndef VGPU_HOST_SUPERVISOR_H
#define VGPU_HOST_SUPERVISOR_H

#include "host/policy/admission.h"
#include "host/backend/backend.h"
#include "host/daemon/exchange.h"
#include "host/daemon/greetings.h"
#include "host/daemon/hand_over.h"
#include "host/daemon/listen.h"
#include "host/daemon/control/metrics.h"
#include "host/daemon/sessions.h"
#include "host/daemon/spawn.h"
#include "host/session/worker.h"

struct vgpu_supervisor {
  struct vgpu_listeners listeners;
  struct vgpu_accounts *accounts;
  const struct vgpu_backend *backend;
  const struct vgpu_inventory *inventory;
  struct vgpu_limits limits; /* of who has none of its own */
  struct vgpu_admission admission;
  struct vgpu_greetings greetings;
  struct vgpu_sessions sessions;
  struct vgpu_code_options code;
  struct vgpu_spawner spawner;
  int control;            /* listens for the administrator (manage.h); -1: none */
  char control_path[128]; /* of its file; "": there is none to remove */
  struct vgpu_metrics metrics;
  struct vgpu_hand_over hand_over;
  struct vgpu_exchange exchange;
  int signals; /* signalfd */
  uint64_t next_session;
  bool stopping;
  bool draining; /* takes no new session, and ends with the last one */
  /* Reads hostd.conf again; false: `why` says what is wrong with it, and the former rules stay. */
  bool (*read_policy)(struct vgpu_supervisor *supervisor, char *why, unsigned long why_size);
};

/* Runs until SIGTERM or SIGINT. 0, or 1 after saying why. */
int vgpu_supervise(struct vgpu_supervisor *supervisor);

#endif
