/* The daemon's loop: accepts, forks a worker for each session, buries the dead. */
#ifndef VGPU_HOST_SUPERVISOR_H
#define VGPU_HOST_SUPERVISOR_H

#include "host/admission.h"
#include "host/backend.h"
#include "host/listen.h"
#include "host/worker.h"

struct vgpu_supervisor {
  struct vgpu_listeners listeners;
  struct vgpu_accounts *accounts;
  const struct vgpu_backend *backend;
  const struct vgpu_inventory *inventory;
  struct vgpu_limits limits; /* of who has none of its own */
  struct vgpu_admission admission;
  struct vgpu_code_options code;
  bool filter; /* system calls of workers */
};

/* Runs until SIGTERM or SIGINT. 0, or 1 after saying why. */
int vgpu_supervise(struct vgpu_supervisor *supervisor);

#endif
