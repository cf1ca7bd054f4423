#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "host/backend/backend.h"
#include "host/log.h"
#include "host/daemon/hand_over.h"
#include "host/daemon/control/manage.h"
#include "host/daemon/user.h"
#include "host/options.h"
#include "host/policy/devices.h"
#include "host/session/images.h"
#include "host/daemon/supervisor.h"

#define DESCRIPTORS_WANTED 4096u

/* The rules in force, and those of a file that is read again. Static because of their size. */
static struct vgpu_policy policies[2];

/*
 * Reads hostd.conf. Returns 0, or 2 with the reason in `error`. *used is NULL if there is no file: every peer
 * may then connect. `inventory`: devices for the names in the file; NULL: not known yet.
 */
static int read_policy(const struct vgpu_options *options, const struct vgpu_inventory *inventory,
                       struct vgpu_policy *policy, const struct vgpu_policy **used, char *error,
                       size_t error_size) {
  const char *path = options->config == NULL ? VGPU_POLICY_FILE : options->config;
  *used = NULL;
  switch (vgpu_policy_read(policy, path, error, error_size)) {
    case VGPU_POLICY_GOOD:
      if (inventory != NULL && !vgpu_policy_find_devices(policy, path, inventory, error, error_size))
        return 2;
      *used = policy;
      return 0;
    case VGPU_POLICY_ABSENT:
      if (options->config == NULL) return 0;
      break;
    case VGPU_POLICY_BAD:
      break;
  }
  return 2;
}

static int read_policy_first(const struct vgpu_options *options, const struct vgpu_inventory *inventory,
                             const struct vgpu_policy **used) {
  char error[512];
  int status = read_policy(options, inventory, &policies[0], used, error, sizeof error);
  if (status != 0) vgpu_host_log("error", 0, "%s; see vgpu-hostd.conf(5)", error);
  return status;
}

static bool read_policy_again(struct vgpu_supervisor *supervisor, char *why, unsigned long why_size) {
  struct vgpu_policy *other = &policies[supervisor->admission.policy == &policies[0] ? 1 : 0];
  const struct vgpu_policy *used, *former = supervisor->admission.policy;
  const char *path = supervisor->admission.policy_name;
  if (read_policy(supervisor->inventory->options, supervisor->inventory, other, &used, why, why_size) != 0)
    return false;
  /* While an editor replaces the file, it may be missing, empty or short. Rules must not follow from that. */
  if (used == NULL && former != NULL) {
    snprintf(why, why_size, "%s: the file is gone; only a restart allows every peer", path);
    return false;
  }
  if (used != NULL &&
      (!vgpu_policy_is_written(path, why, why_size) ||
       read_policy(supervisor->inventory->options, supervisor->inventory, other, &used, why, why_size) != 0 ||
       used == NULL))
    return false;
  if (used != NULL && used->count == 0 && former != NULL && former->count > 0) {
    snprintf(why, why_size, "%s: no line allows or denies any peer; \"deny any\" denies everybody", path);
    return false;
  }
  if (strcmp(former == NULL ? "" : former->user, used == NULL ? "" : used->user) != 0)
    vgpu_host_log("user", 0,
                  "workers keep their user; the one that hostd.conf names takes effect after `systemctl "
                  "restart vgpu-hostd`");
  supervisor->admission.policy = used;
  return true;
}

static int check_config(const struct vgpu_options *options, const struct vgpu_inventory *inventory) {
  const struct vgpu_policy *used;
  const char *path = options->config == NULL ? VGPU_POLICY_FILE : options->config;
  int status = read_policy_first(options, inventory, &used);
  if (status != 0) return status;
  if (used == NULL) printf("no %s: every peer that can connect is allowed\n", path);
  else if (used->count == 0) printf("%s: valid, but no line allows any peer\n", path);
  else
    printf("%s: valid, %u rule%s; a peer that no rule allows is refused\n", path, used->count,
           used->count == 1 ? "" : "s");
  return 0;
}

static bool prepare_workers(const struct vgpu_options *options, struct vgpu_supervisor *supervisor,
                            const uint64_t *totals, int images) {
  const struct vgpu_inventory *inventory = supervisor->inventory;
  size_t bytes = sizeof(struct vgpu_host_setup) + inventory->profiles_bytes;
  struct vgpu_host_setup *setup = calloc(1, bytes);
  char error[256];
  if (setup == NULL) return false;
  snprintf(setup->backend, sizeof setup->backend, "%s", supervisor->backend->name);
  snprintf(setup->cuda_library, sizeof setup->cuda_library, "%s", options->cuda_library);
  snprintf(setup->nvml_library, sizeof setup->nvml_library, "%s", options->nvml_library);
  setup->filter = !options->no_seccomp;
  const struct vgpu_policy *policy = supervisor->admission.policy;
  const char *user = options->user;
  char where[256] = "--user ";
  if (user == NULL && policy != NULL && policy->user[0] != '\0') {
    user = policy->user;
    snprintf(where, sizeof where, "%s: user=", supervisor->admission.policy_name);
  }
  if (!vgpu_user_choose(user, where, supervisor->backend, &setup->user, error, sizeof error)) {
    vgpu_host_log("error", 0, "%s", error);
    free(setup);
    return false;
  }
  setup->inventory = *inventory;
  setup->code = supervisor->code;
  setup->image_cache = options->image_cache;
  if (inventory->profiles_bytes > 0) memcpy(setup->profiles, inventory->profiles, inventory->profiles_bytes);
  if (setup->filter &&
      !vgpu_confine_prepare(supervisor->backend->make_filter, &setup->program, error, sizeof error)) {
    vgpu_host_log("error", 0, "%s", error);
    free(setup);
    return false;
  }
  int writable = -1, readable = -1;
  struct vgpu_spawner *spawner = &supervisor->spawner;
  supervisor->accounts = vgpu_accounts_make(totals, inventory->count, &writable, &readable);
  if (supervisor->accounts != NULL && supervisor->backend->turn_ns != 0) {
    struct vgpu_share *share = &supervisor->accounts->share;
    share->turns = 1;
    share->turn_ns = supervisor->backend->turn_ns;
    share->exclusive = true;
  }
  bool made = supervisor->accounts != NULL && vgpu_spawner_make(spawner, setup, bytes) &&
              vgpu_spawner_give(spawner, VGPU_WORKER_ACCOUNTS_WRITE, writable) &&
              vgpu_spawner_give(spawner, VGPU_WORKER_ACCOUNTS_READ, readable) &&
              (images < 0 || vgpu_spawner_give(spawner, VGPU_WORKER_IMAGES, images)) &&
              (supervisor->code.launch_log < 0 ||
               vgpu_spawner_give(spawner, VGPU_WORKER_LAUNCH_LOG, supervisor->code.launch_log));
  free(setup);
  if (!made) vgpu_host_log("error", 0, "cannot make the memory that workers share: %s", strerror(errno));
  return made;
}

/* Opens the launch log for the workers, which can open no files. */
static bool prepare_code(const struct vgpu_options *options, struct vgpu_code_options *code, int *images) {
  if (options->image_cache > 0) {
    code->images = vgpu_images_make(options->image_cache, images);
    if (code->images == NULL) {
      vgpu_host_log("error", 0, "no address space for %llu bytes of --image-cache: %s",
                    (unsigned long long)options->image_cache, strerror(errno));
      return false;
    }
  }
  if (options->launch_log == NULL) return true;
  code->launch_log = open(options->launch_log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (code->launch_log >= 0) return true;
  vgpu_host_log("error", 0, "--launch-log \"%s\": %s", options->launch_log, strerror(errno));
  return false;
}

/* Raises the limit of descriptors: those in flight to guests count for all workers together (unix(7)). */
static void raise_descriptor_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= DESCRIPTORS_WANTED) return;
  vgpu_host_log(
      "descriptors", 0,
      "only %llu descriptors (RLIMIT_NOFILE, LimitNOFILE= of a unit): with many sessions the socket "
      "carries frames instead of shared memory; at least %u are recommended",
      (unsigned long long)limit.rlim_cur, DESCRIPTORS_WANTED);
}

static int serve(const struct vgpu_reconnects *returns, const struct vgpu_options *options,
                 const struct vgpu_backend *backend, const struct vgpu_inventory *inventory,
                 const struct vgpu_policy *used) {
  static struct vgpu_supervisor supervisor; /* large */
  supervisor = (struct vgpu_supervisor){
      .backend = backend,
      .inventory = inventory,
      .sessions = {.limit = options->sessions},
      .control = -1,
      .reconnects = *returns,
      .metrics = {.listener = -1},
      .worker_groups = {.directory = -1},
      .read_policy = read_policy_again,
      .limits = {.session_memory = options->session_memory,
                 .session_handles = options->session_handles,
                 .sessions = options->sessions,
                 .outstanding = options->outstanding,
                 .calls = options->calls,
                 .session_shared = options->session_shared},
      .admission = {.policy = used,
                    .policy_name = options->config == NULL ? VGPU_POLICY_FILE : options->config},
      .code = {.kernels = options->kernels,
               .checks = options->checks,
               .compile = options->compile,
               .launch_log = -1,
               .session_bytes = options->session_code}};
  int images = -1;
  char why[256];
  raise_descriptor_limit();
  if (options->worker_groups && !vgpu_worker_groups_begin(&supervisor.worker_groups, why, sizeof why))
    vgpu_host_log("groups", 0, "no control group for each worker: %s", why);
  if (!prepare_code(options, &supervisor.code, &images)) return 1;
  vgpu_devices_usual(inventory, &supervisor.admission.usual_devices);
  uint64_t totals[VGPU_DEVICES_MAX];
  for (uint32_t i = 0; i < inventory->count; i++) totals[i] = inventory->devices[i].total_memory;
  if (!prepare_workers(options, &supervisor, totals, images) || !vgpu_supervisor_hold_signals(&supervisor))
    return 1;
  if (!vgpu_listeners_open(&supervisor.listeners, options)) {
    vgpu_listeners_close(&supervisor.listeners, true);
    return 1;
  }
  if (options->control != NULL) {
    supervisor.control = vgpu_manage_open("control", options->control, 0600);
    snprintf(supervisor.control_path, sizeof supervisor.control_path, "%s", options->control);
  }
  if (options->metrics != NULL)
    supervisor.metrics.listener = vgpu_manage_open("metrics", options->metrics, 0666);
  if ((options->control != NULL && supervisor.control < 0) ||
      (options->metrics != NULL && supervisor.metrics.listener < 0)) {
    if (supervisor.control >= 0) unlink(supervisor.control_path);
    vgpu_listeners_close(&supervisor.listeners, true);
    return 1;
  }
  for (uint32_t i = 0; i < inventory->count; i++) {
    vgpu_host_log("device", 0, "device %u: %s, %llu MiB", i, inventory->devices[i].name,
                  (unsigned long long)(totals[i] >> 20));
  }
  int status = vgpu_supervise(&supervisor);
  if (supervisor.control >= 0) unlink(supervisor.control_path);
  if (supervisor.metrics.listener >= 0) unlink(options->metrics);
  return status;
}

/*
 * Sets the variable with which this process and its workers find the MPS control daemon that hostd.conf
 * names.
 */
static bool use_mps(const struct vgpu_policy *policy) {
  if (policy == NULL || policy->mps[0] == '\0') return true;
  if (access(policy->mps, X_OK) != 0) {
    vgpu_host_log(
        "error", 0,
        "workers mps=%s: %s; under systemd /tmp and /home are hidden: use a directory elsewhere, or "
        "BindPaths= in a drop-in (systemctl edit vgpu-hostd)",
        policy->mps, strerror(errno));
    return false;
  }
  return setenv("CUDA_MPS_PIPE_DIRECTORY", policy->mps, 1) == 0;
}

static int self_check(const struct vgpu_options *options, const struct vgpu_backend *backend,
                      const struct vgpu_inventory *inventory) {
  if (backend->self_check != NULL) return backend->self_check(options, inventory);
  printf("--device %s needs nothing of this machine: nothing to check\n", backend->name);
  return 0;
}

int main(int count, char **words) {
  if (count == 2 && strcmp(words[1], VGPU_WORKER_WORD) == 0) return vgpu_worker_main();
  vgpu_hand_over_remember(words);
  struct vgpu_reconnects returns;
  vgpu_reconnects_inherit(&returns);
  struct vgpu_options options;
  switch (vgpu_options_parse(count, words, &options)) {
    case VGPU_OPTIONS_DONE:
      if (fflush(stdout) == 0) return 0;
      perror("vgpu-hostd: cannot write to standard output");
      return 1;
    case VGPU_OPTIONS_BAD:
      return 2;
    case VGPU_OPTIONS_RUN:
      break;
  }
  if (options.order[0] != '\0') {
    return vgpu_manage_ask(options.control == NULL ? VGPU_CONTROL_PATH : options.control, options.order,
                           options.watch);
  }
  vgpu_host_log_json(options.json);
  if (options.check_config && options.device == NULL) return check_config(&options, NULL);
  const struct vgpu_policy *used;
  /* First without devices: a mistake in the file is reported without starting a driver. */
  int status = read_policy_first(&options, NULL, &used);
  if (status != 0) return status;
  const struct vgpu_backend *backend = vgpu_backend_named(options.device);
  if (!use_mps(used)) return 1;
  struct vgpu_inventory *inventory = calloc(1, sizeof *inventory);
  if (inventory == NULL) return 1;
  inventory->options = &options;
  status = backend->take_inventory(&options, inventory);
  if (status == 0 && options.self_check) status = self_check(&options, backend, inventory);
  else if (status == 0 && options.check_config) status = check_config(&options, inventory);
  else if (status == 0) status = read_policy_first(&options, inventory, &used);
  if (status == 0 && !options.self_check && !options.check_config)
    status = serve(&returns, &options, backend, inventory, used);
  free(inventory->profiles);
  free(inventory);
  return status;
}
