/* devices= of hostd.conf, in the guest's order. The guest learns nothing about other devices. */
#ifndef VGPU_HOST_DEVICES_H
#define VGPU_HOST_DEVICES_H

#include "host/backend/backend.h"
#include "host/policy/policy.h"

/* Finds the named devices among the host's. False: `error` has the missing one and its line. */
bool vgpu_policy_find_devices(struct vgpu_policy *policy, const char *name,
                              const struct vgpu_inventory *inventory, char *error, size_t error_size);

/* If hostd.conf chooses none. */
void vgpu_devices_usual(const struct vgpu_inventory *inventory, struct vgpu_chosen_devices *devices);

#endif
