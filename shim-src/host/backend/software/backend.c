#include "host/backend/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/log.h"
#include "host/backend/software/filter.h"
#include "host/backend/software/ptx/ptx.h"
#include "host/backend/software/software.h"
#include "wire/clock.h"

/* profiles/devices/h100-80gb.json, compiled in so that the program needs no other file. */
#define DEFAULT_PROFILE "h100-80gb"
extern const char vgpu_default_profile[];

/* Finds profiles/devices in the tree in which this program was built or installed. */
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
  if (name == NULL) {
    if (vgpu_device_profiles_read("the profile " DEFAULT_PROFILE " that is compiled in", vgpu_default_profile,
                                  strlen(vgpu_default_profile), profiles, error, sizeof error) == 0) {
      return true;
    }
  } else if (vgpu_device_profiles_load(name, directories, profiles, error, sizeof error) == 0) {
    return true;
  } else if (strcmp(name, DEFAULT_PROFILE) == 0) {
    return load_profiles(NULL, profiles);
  }
  vgpu_host_log("error", 0, "%s", error);
  return false;
}

static bool same_uuid(const struct vgpu_device_profile *one, const struct vgpu_device_profile *other) {
  return memcmp(one->uuid, other->uuid, sizeof one->uuid) == 0;
}

static bool same_place(const struct vgpu_device_profile *one, const struct vgpu_device_profile *other) {
  return one->pci_domain == other->pci_domain && one->pci_bus == other->pci_bus &&
         one->pci_device == other->pci_device;
}

/* Adds the devices of another profile. A device gets another UUID or bus address if its own is in use. */
static bool add_profiles(struct vgpu_device_profiles *all, const struct vgpu_device_profiles *more) {
  if (more->count > VGPU_DEVICES_MAX - all->count) {
    vgpu_host_log("error", 0, "--profile: more than %u devices in all", VGPU_DEVICES_MAX);
    return false;
  }
  for (uint32_t i = 0; i < more->count; i++) {
    struct vgpu_device_profile *device = &all->devices[all->count];
    *device = more->devices[i];
    for (uint32_t other = 0; other < all->count; other++) {
      bool uuid = same_uuid(device, &all->devices[other]), place = same_place(device, &all->devices[other]);
      if (!uuid && !place) continue;
      if (uuid) device->uuid[15]++;
      if (place) vgpu_device_profile_set_bus(device, (device->pci_bus + 1) & 0xff);
      other = UINT32_MAX; /* start again: the new value may be in use as well */
    }
    all->count++;
  }
  return true;
}

static bool load_all(const struct vgpu_options *options, struct vgpu_device_profiles *profiles) {
  if (!load_profiles(options->profiles[0], profiles)) return false;
  struct vgpu_device_profiles *more = malloc(sizeof *more);
  bool good = more != NULL;
  for (uint32_t i = 1; good && i < options->profile_count; i++)
    good = load_profiles(options->profiles[i], more) && add_profiles(profiles, more);
  free(more);
  return good;
}

/* A device that does not run kernels has this word in its name. */
static const char *kernels_word(enum vgpu_kernels kernels) {
  return kernels == VGPU_KERNELS_SKIP ? " - kernels skipped" : "";
}

static void copy_facts(struct vgpu_device_facts *facts, const struct vgpu_device_profile *profile,
                       enum vgpu_kernels kernels) {
  memset(facts, 0, sizeof *facts);
  /* Programs look for "(simulated)" at the end of the name. */
  static const char suffix[] = " (simulated)";
  const char *word = kernels_word(kernels);
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
}

static int take_inventory(const struct vgpu_options *options, struct vgpu_inventory *inventory) {
  struct vgpu_device_profiles *profiles = calloc(1, sizeof *profiles);
  if (profiles == NULL) return 1;
  if (!load_all(options, profiles)) {
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
  inventory->profiles_bytes = sizeof *profiles;
  return 0;
}

#define LOAD_PERIOD_NS 200000000u

static bool any_computes(const struct vgpu_accounts *accounts) {
  const uint32_t slots = vgpu_accounts_slots(accounts);
  for (uint32_t i = 0; i < slots; i++) {
    if (__atomic_load_n(&accounts->slots[i].seats[0].holding, __ATOMIC_RELAXED) > 0) return true;
  }
  return false;
}

static uint64_t computed_by_all(const struct vgpu_accounts *accounts) {
  uint64_t sum = 0;
  uint32_t slots = vgpu_accounts_slots(accounts);
  for (uint32_t i = 0; i < slots; i++) sum += __atomic_load_n(&accounts->slots[i].computed, __ATOMIC_RELAXED);
  return sum;
}

/*
 * Returns the part of the time since the last call in which kernels of any session ran, in per cent. Calls
 * within 0.2 s get the same answer, because NVML samples at intervals.
 */
uint32_t vgpu_software_load(struct vgpu_worker *worker) {
  struct vgpu_load *load = &software_of(worker)->load;
  const uint64_t now = vgpu_now_ns(), computed = computed_by_all(worker->accounts);
  const uint64_t passed = now - load->at;
  if (load->at != 0 && passed < LOAD_PERIOD_NS) return load->per_cent;
  uint64_t grown = computed > load->computed ? computed - load->computed
                                             : 0; /* sessions that have ended no longer count */
  if (load->at == 0) load->per_cent = any_computes(worker->accounts) ? 100 : 0;
  else load->per_cent = grown >= passed ? 100 : (uint32_t)(grown * 100 / passed);
  load->at = now;
  load->computed = computed;
  return load->per_cent;
}

static int32_t usage(struct vgpu_worker *worker, uint32_t device, struct vgpu_usage_reply *reply) {
  const struct vgpu_device_profile *profile = &worker->inventory->profiles->devices[device];
  *reply = (struct vgpu_usage_reply){
      .total = profile->total_memory,
      .used =
          vgpu_accounts_used(worker->accounts, vgpu_accounts_device(worker->accounts, worker->slot, device)),
      .gpu_utilisation = vgpu_software_load(worker),
      .temperature = profile->temperature,
      .power = profile->power,
      .power_limit = profile->power_limit};
  return VGPU_STATUS_OK;
}

/* False: no memory. */
static bool has_state(struct vgpu_worker *worker) {
  if (worker->device == NULL) worker->device = calloc(1, sizeof(struct vgpu_software));
  return worker->device != NULL;
}

static void prepare(struct vgpu_worker *worker, bool filtered) {
  const struct vgpu_code_options *options = worker->code_options;
  uint32_t llvm;
  /* vgpu-hostd status reports that none of these kernels are compiled. */
  if (options->compile == PTX_COMPILE_NEVER || options->checks != 0 || ptx_compiler_possible(&llvm) != NULL)
    return;
  if (!has_state(worker)) return;
  software_of(worker)->compiler = ptx_compiler_start((enum ptx_compile)options->compile,
                                                     filtered ? vgpu_software_confine_compiler : NULL);
  if (software_of(worker)->compiler != NULL) return;
  worker->accounts->slots[worker->slot].interprets = 1;
  vgpu_host_log("compile", worker->session, "the compiler process cannot start: kernels are interpreted");
}

static bool begin(struct vgpu_worker *worker) {
  if (!has_state(worker)) return false;
  software_of(worker)->memory.watched = (worker->code_options->checks & PTX_CHECK_INIT) != 0;
  return true;
}

const struct vgpu_backend vgpu_software_backend = {.name = "software",
                                                   .number = VGPU_BACKEND_SOFTWARE,
                                                   .memory_is_ours = true,
                                                   .take_inventory = take_inventory,
                                                   .prepare = prepare,
                                                   .make_filter = vgpu_software_filter,
                                                   .begin = begin,
                                                   .run = vgpu_pace_run,
                                                   .usage = usage,
                                                   .query = vgpu_software_query,
                                                   .resources = &vgpu_software_resources,
                                                   .condition = vgpu_software_condition_value};
