/*
 * Which of the host's devices a guest sees: devices= of hostd.conf. The order is the guest's: its device 0 is
 * the first one named. A guest is told nothing of the others.
 */
#ifndef VGPU_HOST_DEVICES_H
#define VGPU_HOST_DEVICES_H

#include "host/backend/backend.h"
#include "host/policy/policy.h"

/* Finds what the file names among the devices of this host, once the file is read. False: `error` says what
 * is not there, in which line. */
bool vgpu_policy_find_devices(struct vgpu_policy *policy, const char *name,
                              const struct vgpu_inventory *inventory, char *error, size_t error_size);

/* The devices that a peer sees when hostd.conf does not choose any for it. */
void vgpu_devices_usual(const struct vgpu_inventory *inventory, struct vgpu_chosen_devices *devices);

#endif
