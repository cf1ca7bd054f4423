/*
 * What stands behind a host: the software device or the host's GPU. Each carried call has a handler of
 * either kind (dispatch.h); here is what is asked of a backend beside the calls.
 */
#ifndef VGPU_HOST_BACKEND_H
#define VGPU_HOST_BACKEND_H

#include "host/backend/dispatch.h"
#include "host/options.h"
#include "wire/frame.h"

struct vgpu_device_profiles;

/* All that a host says about its devices; made once, before the first session. */
struct vgpu_inventory {
  uint32_t count;       /* 1..VGPU_DEVICES_MAX */
  int32_t cuda_version; /* 13000 is 13.0 */
  bool simulated;       /* of any device */
  char nvml_version[32];
  struct vgpu_device_facts devices[VGPU_DEVICES_MAX];
  struct vgpu_device_profiles *profiles; /* software */
  const struct vgpu_options *options;
};

struct vgpu_backend {
  enum vgpu_backend_number number;
  const char *name;    /* as --device has it */
  bool memory_is_ours; /* device memory is this process's: what a guest shares can be device memory, too */

  /* In the daemon, before it forks workers. 0, or an exit status after saying why. */
  int (*take_inventory)(const struct vgpu_options *options, struct vgpu_inventory *inventory);

  /* In a worker: fills all but `processes`. An enum vgpu_status. */
  int32_t (*usage)(struct vgpu_worker *worker, uint32_t device, struct vgpu_usage_reply *reply);
};

extern const struct vgpu_backend vgpu_software_backend;
extern const struct vgpu_backend vgpu_cuda_backend;

#endif
