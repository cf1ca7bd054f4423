/*
 * The host's devices that a guest sees: devices= of hostd.conf, in the guest's order. The guest learns
 * nothing about other devices.
 */
#ifndef VGPU_HOST_DEVICES_H
#define VGPU_HOST_DEVICES_H

#include "host/backend/backend.h"
#include "host/policy/policy.h"

/*
 * Finds the devices that the file names among those of this host, after the file was read. False: `error`
 * names the missing device and its line.
 */
bool vgpu_policy_find_devices(struct vgpu_policy *policy, const char *name,
                              const struct vgpu_inventory *inventory, char *error, size_t error_size);

/* Gives the devices that a peer sees if hostd.conf chooses none for it. */
void vgpu_devices_usual(const struct vgpu_inventory *inventory, struct vgpu_chosen_devices *devices);

#endif
