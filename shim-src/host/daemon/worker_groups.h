/*
 * A control group for each worker (--worker-groups), so that a worker that a guest has taken over cannot use
 * up the threads and memory of others. The daemon's own group has to be delegated (Delegate= of a unit,
 * cgroups version 2). The daemon moves into a group below it: a group with processes cannot have controllers
 * for others.
 */
#ifndef VGPU_HOST_WORKER_GROUPS_H
#define VGPU_HOST_WORKER_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

#define VGPU_WORKER_TASKS 512u /* threads and processes of a worker; a driver makes some tens */
/* Bytes of a worker beside the memory limit of its peer (memory=): code, calls that wait, the driver. */
#define VGPU_WORKER_MEMORY (1ull << 30)

struct vgpu_worker_groups {
  int directory; /* of the group that was delegated; -1: workers have no groups */
};

/* Makes the daemon's group. False: `error` says why workers have no groups. */
bool vgpu_worker_groups_begin(struct vgpu_worker_groups *groups, char *error, unsigned long error_size);

/*
 * Makes the group of a slot's worker. `memory`: the peer's limit in bytes; 0: none. Returns a descriptor,
 * which the caller closes; the worker writes "0" to it when it begins. -1: errno has the reason.
 */
int vgpu_worker_groups_join(const struct vgpu_worker_groups *groups, uint32_t slot, uint64_t memory);

/* Removes the group of a worker that has ended. */
void vgpu_worker_groups_leave(const struct vgpu_worker_groups *groups, uint32_t slot);

#endif
