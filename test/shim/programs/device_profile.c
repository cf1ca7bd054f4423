/*
 * device_profile NAME|PATH [DIRECTORY...]: loads a device profile as vgpu-hostd does and prints the result as
 * one JSON document. Exits with status 1 and the loader's message on stderr if that fails.
 */
#include "host/backend/software/profile/profile.h"

#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv) {
  static struct vgpu_device_profiles profiles;
  char error[1024] = "";

  if (argc < 2) return 2;
  /* argv ends with NULL, as the list of directories must. */
  if (vgpu_device_profiles_load(argv[1], (const char *const *)&argv[2], &profiles, error, sizeof error) !=
      0) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  printf("{\"cudaVersion\": %d, \"driverVersion\": \"%s\", \"devices\": [", profiles.cuda_version,
         profiles.nvml_version);
  for (uint32_t i = 0; i < profiles.count; i++) {
    const struct vgpu_device_profile *device = &profiles.devices[i];
    printf("%s{\"name\": \"%s\", \"uuid\": \"", i ? ", " : "", device->name);
    for (int b = 0; b < 16; b++) printf("%02x", device->uuid[b]);
    printf("\", \"memory\": %" PRIu64 ", \"compute\": \"%u.%u\", \"pci\": \"%04x:%02x:%02x.0\", ",
           device->total_memory, device->compute_major, device->compute_minor, device->pci_domain,
           device->pci_bus, device->pci_device);
    printf("\"temperature\": %u, \"power\": %u, \"powerLimit\": %u, \"attributes\": {", device->temperature,
           device->power, device->power_limit);
    int printed = 0;
    for (unsigned n = 0; n < VGPU_ATTRIBUTES_MAX; n++) {
      if (device->attribute_known[n / 8] >> (n % 8) & 1)
        printf("%s\"%u\": %d", printed++ ? ", " : "", n, device->attributes[n]);
    }
    printf("}}");
  }
  printf("]}\n");
  return 0;
}
