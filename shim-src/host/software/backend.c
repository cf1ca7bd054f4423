/* The software device as a backend: what a profile says about it. */
#include "host/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/log.h"
#include "host/software/profile.h"
#include "host/worker.h"

#define DEFAULT_PROFILE "h100-80gb"
#define TENSOR_MAP_ACCESS_SUPPORTED 127 /* CUdevice_attribute */

/* profiles/devices of the tree this program was built in or installed with. */
static bool beside_program(char *path, size_t size, const char *relative) {
  ssize_t length = readlink("/proc/self/exe", path, size - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  char *slash = strrchr(path, '/');
  return slash != NULL && snprintf(slash + 1, size - (size_t)(slash + 1 - path), "%s", relative) <
                              (int)(size - (size_t)(slash + 1 - path));
}

static bool load_profiles(const char *name, struct vgpu_device_profiles *profiles) {
  char built[4200], installed[4200], error[512] = "";
  const char *directories[4] = {"/etc/vgpu/devices"};
  size_t count = 1;
  if (beside_program(built, sizeof built, "../../profiles/devices")) directories[count++] = built;
  if (beside_program(installed, sizeof installed, "../share/vgpu/devices")) directories[count++] = installed;
  directories[count] = NULL;
  if (vgpu_device_profiles_load(name, directories, profiles, error, sizeof error) == 0) return true;
  vgpu_host_log("error", 0, "%s", error);
  return false;
}

static void copy_facts(struct vgpu_device_facts *facts, const struct vgpu_device_profile *profile,
                       enum vgpu_kernels kernels) {
  memset(facts, 0, sizeof *facts);
  /* Whoever reads the name looks for its last word: that is the same whatever stands before it. */
  static const char suffix[] = " (simulated)";
  const char *word = vgpu_kernels_word(kernels);
  size_t length = strnlen(profile->name, sizeof profile->name - 1), word_length = strlen(word);
  size_t room = sizeof facts->name - sizeof suffix - word_length;
  if (length > room) length = room;
  memcpy(facts->name, profile->name, length);
  memcpy(facts->name + length, word, word_length);
  memcpy(facts->name + length + word_length, suffix, sizeof suffix);
  memcpy(facts->uuid, profile->uuid, sizeof facts->uuid);
  facts->total_memory = profile->total_memory;
  facts->pci_domain = profile->pci_domain;
  facts->pci_bus = profile->pci_bus;
  facts->pci_device = profile->pci_device;
  facts->compute_major = profile->compute_major;
  facts->compute_minor = profile->compute_minor;
  facts->simulated = 1;
  memcpy(facts->attribute_known, profile->attribute_known, sizeof facts->attribute_known);
  memcpy(facts->attributes, profile->attributes, sizeof facts->attributes);
  /* The form of a tensor's descriptor is the hardware's own, and no kernel that reads one is run here. */
  facts->attributes[TENSOR_MAP_ACCESS_SUPPORTED] = 0;
}

static int take_inventory(const struct vgpu_options *options, struct vgpu_inventory *inventory) {
  /* Kept for as long as the daemon lives. */
  struct vgpu_device_profiles *profiles = calloc(1, sizeof *profiles);
  if (profiles == NULL) return 1;
  if (!load_profiles(options->profile == NULL ? DEFAULT_PROFILE : options->profile, profiles)) {
    free(profiles);
    return 2;
  }
  inventory->count = profiles->count;
  inventory->cuda_version = profiles->cuda_version;
  inventory->simulated = true;
  memcpy(inventory->nvml_version, profiles->nvml_version, sizeof inventory->nvml_version);
  for (uint32_t i = 0; i < profiles->count; i++)
    copy_facts(&inventory->devices[i], &profiles->devices[i], options->kernels);
  inventory->profiles = profiles;
  return 0;
}

static int32_t usage(struct vgpu_worker *worker, uint32_t device, struct vgpu_usage_reply *reply) {
  const struct vgpu_device_profile *profile = &worker->profiles->devices[device];
  /* Nothing computes here, so nothing is utilised; that is the truth about a software device. */
  *reply = (struct vgpu_usage_reply){.total = profile->total_memory,
                                     .used = vgpu_accounts_used(worker->accounts, device),
                                     .temperature = profile->temperature,
                                     .power = profile->power,
                                     .power_limit = profile->power_limit};
  return VGPU_STATUS_OK;
}

const struct vgpu_backend vgpu_software_backend = {
    .number = VGPU_BACKEND_SOFTWARE, .name = "software", .take_inventory = take_inventory, .usage = usage};
