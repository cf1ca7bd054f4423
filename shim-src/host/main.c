/* vgpu-hostd: owns the device and serves guests. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend.h"
#include "host/log.h"
#include "host/options.h"
#include "host/supervisor.h"

/* The launch log is opened here, where files may be opened, for the workers to write to. */
static bool prepare_code(const struct vgpu_options *options, struct vgpu_code_options *code) {
  if (options->image_cache > 0) {
    code->images = vgpu_images_make(options->image_cache);
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

static int serve(const struct vgpu_options *options, const struct vgpu_backend *backend,
                 const struct vgpu_inventory *inventory) {
  struct vgpu_supervisor supervisor = {
      .backend = backend,
      .inventory = inventory,
      .limits = {.session_memory = options->session_memory,
                 .session_handles = options->session_handles,
                 .sessions = options->sessions},
      .code = {.kernels = options->kernels, .launch_log = -1, .session_bytes = options->session_code}};
  if (!prepare_code(options, &supervisor.code)) return 1;
  uint64_t totals[VGPU_DEVICES_MAX];
  for (uint32_t i = 0; i < inventory->count; i++) totals[i] = inventory->devices[i].total_memory;
  supervisor.accounts = vgpu_accounts_make(totals, inventory->count);
  if (supervisor.accounts == NULL) {
    vgpu_host_log("error", 0, "no shared memory: %s", strerror(errno));
    return 1;
  }
  if (!vgpu_listeners_open(&supervisor.listeners, options)) {
    vgpu_listeners_close(&supervisor.listeners, true);
    return 1;
  }
  for (uint32_t i = 0; i < inventory->count; i++) {
    vgpu_host_log("device", 0, "device %u: %s, %llu MiB", i, inventory->devices[i].name,
                  (unsigned long long)(totals[i] >> 20));
  }
  return vgpu_supervise(&supervisor);
}

int main(int count, char **words) {
  struct vgpu_options options;
  switch (vgpu_options_parse(count, words, &options)) {
    case VGPU_OPTIONS_DONE:
      return 0;
    case VGPU_OPTIONS_BAD:
      return 2;
    case VGPU_OPTIONS_RUN:
      break;
  }
  vgpu_host_log_json(options.json);
  const struct vgpu_backend *backend =
      options.device == VGPU_DEVICE_CUDA ? &vgpu_cuda_backend : &vgpu_software_backend;
  struct vgpu_inventory *inventory = calloc(1, sizeof *inventory);
  if (inventory == NULL) return 1;
  inventory->options = &options;
  int status = backend->take_inventory(&options, inventory);
  if (status == 0) status = serve(&options, backend, inventory);
  free(inventory->profiles);
  free(inventory);
  return status;
}
