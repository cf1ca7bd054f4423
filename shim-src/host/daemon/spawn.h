#ifndef VGPU_HOST_SPAWN_H
#define VGPU_HOST_SPAWN_H

#include <signal.h>
#include <sys/types.h>

#include "host/session/setup.h"

struct vgpu_spawner {
  int program; /* this program, as it was started: an upgrade does not change it */
  int descriptors[VGPU_WORKER_DESCRIPTORS]; /* by the numbers that they have in workers; -1: none */
  sigset_t signals;                         /* the mask that workers get */
};

/* Copies *host and the profiles behind it, `bytes` bytes in all. False: errno has the reason. */
bool vgpu_spawner_make(struct vgpu_spawner *spawner, const struct vgpu_host_setup *host, size_t bytes);

/* Takes over a descriptor that workers get at this number. False: errno has the reason. */
bool vgpu_spawner_give(struct vgpu_spawner *spawner, enum vgpu_worker_descriptor number, int descriptor);

/*
 * The descriptors and the memory for one worker. All of them stay the caller's. Descriptor -1 or memory of 0
 * bytes: none.
 */
struct vgpu_spawned {
  int connection, log;
  const struct vgpu_vm_memory *vm_memory;
  int exchange, line, peer; /* a worker without one of them lacks only its feature */
  int group;                /* worker_groups.h; the worker does not start if it cannot enter it */
};

/*
 * Starts a worker: executes this program again with the descriptors that setup.h numbers. Returns its pid, or
 * -1 with errno.
 */
pid_t vgpu_spawn(const struct vgpu_spawner *spawner, const struct vgpu_session_setup *session,
                 const struct vgpu_spawned *spawned);

#endif
