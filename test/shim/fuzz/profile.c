/* Fuzzes device profiles: the JSON that an administrator may write. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/backend/software/profile/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct vgpu_device_profiles profiles;
  static int file = -1;
  static char path[64];
  if (file < 0) {
    file = memfd_create("profile", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  }
  if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size) return 0;
  char error[512] = "";
  if (vgpu_device_profiles_load(path, NULL, &profiles, error, sizeof error) != 0) {
    if (error[0] == '\0') abort();
    return 0;
  }
  if (profiles.count < 1 || profiles.count > VGPU_DEVICES_MAX) abort();
  for (uint32_t i = 0; i < profiles.count; i++) {
    if (memchr(profiles.devices[i].name, 0, sizeof profiles.devices[i].name) == NULL) abort();
  }
  return 0;
}
