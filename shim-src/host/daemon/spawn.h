/* Starting workers: this program again, with the descriptors that setup.h numbers. */
#ifndef VGPU_HOST_SPAWN_H
#define VGPU_HOST_SPAWN_H

#include <signal.h>
#include <sys/types.h>

#include "host/session/setup.h"

struct vgpu_spawner {
  int program; /* this program, as it was started: an upgrade does not change it */
  int descriptors[VGPU_WORKER_DESCRIPTORS]; /* at the numbers that workers have them; -1: none */
  sigset_t signals;                         /* the mask that workers get */
};

/* `host` and `bytes` (with the profiles behind it) are copied. False with errno. */
bool vgpu_spawner_make(struct vgpu_spawner *spawner, const struct vgpu_host_setup *host, size_t bytes);

/* Gives workers a descriptor at this number; takes it over. False with errno. */
bool vgpu_spawner_give(struct vgpu_spawner *spawner, enum vgpu_worker_descriptor number, int descriptor);

/*
 * The descriptors and the memory for one worker. All of them stay the caller's. A descriptor of -1 or memory
 * of 0 bytes: none.
 */
struct vgpu_spawned {
  int connection;
  const struct vgpu_vm_memory *vm_memory;
  int exchange, line, peer; /* without one of them a worker does without what it is for */
};

/* The pid of a new worker, or -1 with errno. */
pid_t vgpu_spawn(const struct vgpu_spawner *spawner, const struct vgpu_session_setup *session,
                 const struct vgpu_spawned *spawned);

#endif
