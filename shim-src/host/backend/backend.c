#include "host/backend/backend.h"

#include <stddef.h>
#include <string.h>

const struct vgpu_backend *vgpu_backend_named(const char *name) {
  static const struct vgpu_backend *const backends[] = {&vgpu_software_backend, &vgpu_cuda_backend};
  for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
    if (strcmp(backends[i]->name, name) == 0) return backends[i];
  }
  return NULL;
}
