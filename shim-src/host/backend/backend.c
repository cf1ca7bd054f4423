#include "host/backend/backend.h"

#include <stddef.h>
#include <string.h>

#include "host/backend/software/profile/profile.h"

const struct vgpu_backend *vgpu_backend_named(const char *name) {
  static const struct vgpu_backend *const backends[] = {&vgpu_software_backend, &vgpu_cuda_backend};
  for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
    if (strcmp(backends[i]->name, name) == 0) return backends[i];
  }
  return NULL;
}

void vgpu_inventory_choose(struct vgpu_inventory *inventory, const struct vgpu_chosen_devices *devices) {
  static struct vgpu_inventory all;
  static struct vgpu_device_profiles profiles;
  bool same = devices->count == inventory->count;
  for (uint32_t i = 0; i < devices->count; i++) same = same && devices->index[i] == i;
  if (same) return;
  all = *inventory;
  inventory->chosen = true;
  inventory->count = devices->count;
  if (inventory->profiles != NULL) {
    profiles = *inventory->profiles;
    inventory->profiles->count = devices->count;
  }
  for (uint32_t i = 0; i < devices->count; i++) {
    uint8_t from = devices->index[i];
    inventory->devices[i] = all.devices[from];
    inventory->is_part[i] = all.is_part[from];
    inventory->minor[i] = all.minor[from];
    if (inventory->profiles != NULL) inventory->profiles->devices[i] = profiles.devices[from];
  }
}
