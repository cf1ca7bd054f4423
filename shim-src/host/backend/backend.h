/*
 * The functions of a backend: the software device, or the host's GPU. Code above this table does not depend
 * on the backend.
 */
#ifndef VGPU_HOST_BACKEND_H
#define VGPU_HOST_BACKEND_H

#include "api/structures.h"
#include "host/backend/dispatch.h"
#include "host/options.h"
#include "wire/frame.h"

struct vgpu_device_profiles;
struct vgpu_shared_region;
struct vgpu_peer;
struct vgpu_query;

/* The devices of the host that a session sees, in the session's order. */
struct vgpu_chosen_devices {
  uint32_t count;
  uint8_t index[VGPU_DEVICES_MAX]; /* the host's numbers */
};

/* The host's devices, described once before the first session. */
struct vgpu_inventory {
  uint32_t count;       /* 1..VGPU_DEVICES_MAX */
  int32_t cuda_version; /* 13000 is 13.0 */
  bool simulated;       /* true if any device is simulated */
  char nvml_version[32];
  struct vgpu_device_facts devices[VGPU_DEVICES_MAX];
  struct vgpu_device_profiles *profiles; /* of the software device */
  uint64_t profiles_bytes;
  bool is_part[VGPU_DEVICES_MAX];  /* a MIG instance of a GPU */
  int32_t minor[VGPU_DEVICES_MAX]; /* N of /dev/nvidiaN; -1: not known */
  bool chosen; /* in a worker: the session sees other devices, or another order, than the host */
  const struct vgpu_options *options;
};

/*
 * Graphs that the device itself executes. begin() starts a recording: calls on the stream
 * VGPU_RECORDING_STREAM become a graph and are not executed, up to end(), which returns NULL if the device
 * cannot make the graph.
 */
#define VGPU_RECORDING_STREAM UINT64_MAX
struct vgpu_exec_object;
struct vgpu_graph_edge;
struct vgpu_backend_graphs {
  bool (*begin)(struct vgpu_worker *worker, const struct vgpu_exec_object *exec);
  /* Before and after each frame of an executable with edges. False: no graph can be made. */
  bool (*before)(struct vgpu_worker *worker, const struct vgpu_graph_edge *edges, uint32_t count);
  bool (*after)(struct vgpu_worker *worker, uint32_t frame);
  void *(*end)(struct vgpu_worker *worker, bool keep);
  int32_t (*launch)(struct vgpu_worker *worker, void *graph, uint64_t context, uint64_t stream);
  void (*destroy)(struct vgpu_worker *worker, const struct vgpu_exec_object *exec); /* its graph */
  /*
   * The device runs launches of a graph one after the other. The frames of a launch that were run one by one,
   * or the launch of a graph that is destroyed, are followed by *mark in their stream; the next launch waits
   * for the mark.
   */
  int32_t (*mark)(struct vgpu_worker *worker, void **mark, uint64_t context, uint64_t stream);
  int32_t (*await_mark)(struct vgpu_worker *worker, void *mark, uint64_t context, uint64_t stream);
  void (*drop_mark)(struct vgpu_worker *worker, void *mark);
  /* Makes a graph with conditional nodes from its frames and stores it in exec->graph. Returns a CUresult. */
  int32_t (*build)(struct vgpu_worker *worker, struct vgpu_exec_object *exec);
};

/*
 * Resources of a device, for green contexts. The guest gets numbers, because the device's library trusts the
 * bytes inside of a resource. All return CUresults.
 */
struct vgpu_resource_split {
  struct vgpu_dev_resource input, remainder;
  struct vgpu_dev_resource *result; /* NULL: only the sizes are wanted */
  struct vgpu_sm_group *sizes;      /* one for each group; NULL: as many groups of `least` as there can be */
  uint32_t groups;                  /* room for results; set to their count if there are no sizes */
  uint32_t flags, least;
};
struct vgpu_backend_resources {
  int32_t (*of_device)(struct vgpu_worker *worker, uint32_t device, int32_t type,
                       struct vgpu_dev_resource *resource);
  int32_t (*of_context)(struct vgpu_worker *worker, uint64_t context, int32_t type,
                        struct vgpu_dev_resource *resource);
  int32_t (*split)(struct vgpu_worker *worker, struct vgpu_resource_split *split);
  /* Makes the descriptor with this number. */
  int32_t (*describe)(struct vgpu_worker *worker, uint64_t number, struct vgpu_dev_resource *resources,
                      uint32_t count);
};

struct vgpu_backend {
  const char *name;                /* as in --device */
  enum vgpu_backend_number number; /* of its handlers */
  bool memory_is_ours; /* device memory is in this process, so a guest can share memory as device memory */

  uint32_t turn_ns; /* length of a turn on each device, one session at a time (share.h); 0: turns are of
                       processors, for all devices */

  /*
   * For the daemon, before it starts workers. Returns 0, or an exit status after it has printed the reason.
   */
  int (*take_inventory)(const struct vgpu_options *options, struct vgpu_inventory *inventory);

  bool reads_itself; /* its library opens files of /proc/self, which must not belong to root */

  /*
   * For the daemon, after take_inventory(): checks that a confined process can use the device, and reports to
   * stdout. NULL: confinement does not affect the device.
   */
  int (*self_check)(const struct vgpu_options *options, const struct vgpu_inventory *inventory);

  /* Fills in at most `most` groups that may open the device's files. NULL: the backend has no such files. */
  uint32_t (*device_groups)(uint32_t *groups, uint32_t most);

  /*
   * For a worker of a peer (NULL: of none): limits the device files and caches that it can open, permanently.
   * False with errno. NULL: it opens none.
   */
  bool (*limit_files)(const struct vgpu_inventory *inventory, const struct vgpu_peer *peer);

  /* For a worker, before it maps memory of its session. NULL: nothing is to do. */
  void (*keep_addresses)(void);

  /* For a worker, before it is confined; `filtered`: with a filter of system calls. NULL: nothing is to do.
   */
  void (*prepare)(struct vgpu_worker *worker, bool filtered);

  /* Makes the libseccomp filter with the system calls of a worker. NULL: no memory. */
  void *(*make_filter)(void);

  /*
   * In a worker. begin() comes first; false: no memory. run() carries out a call whose sizes are checked. It
   * may queue a one-way call; for a call that must wait for the device it returns VGPU_WAITS, and gets the
   * call again later. usage() fills everything except `processes` and returns an enum vgpu_status.
   */
  bool (*begin)(struct vgpu_worker *worker);
  int32_t (*run)(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row, const void *body,
                 void *reply, struct vgpu_bulk *bulk);
  /* Frees the data of worker->note. NULL: the backend keeps none. */
  void (*call_over)(struct vgpu_worker *worker, uint64_t note);
  uint64_t awake_ns; /* a call that waits is repeated without a pause for this time */
  int32_t (*usage)(struct vgpu_worker *worker, uint32_t device, struct vgpu_usage_reply *reply);
  void (*idle)(struct vgpu_worker *worker); /* called when no request has arrived; may be NULL */

  /*
   * Answers a getter of NVML for a device of the session. `values` has numbers, of other devices too, and
   * addresses of zeroed memory. Returns an nvmlReturn_t.
   */
  int32_t (*query)(struct vgpu_worker *worker, const struct vgpu_query *query, uint32_t device,
                   const uint64_t *values);

  /*
   * Called before shared memory of the guest is freed. False: the device still reads it, and the backend
   * frees it later. NULL: the device never reads it.
   */
  bool (*forget_shared)(struct vgpu_worker *worker, struct vgpu_shared_region *shared_region);

  const struct vgpu_backend_resources *resources;
  const struct vgpu_backend_graphs *graphs; /* NULL: each launch carries out all nodes */

  /* For a backend without graphs: the value of a condition. False: the condition does not exist any more. */
  bool (*condition)(struct vgpu_worker *worker, uint64_t handle, uint32_t *value);
};

extern const struct vgpu_backend vgpu_software_backend;
extern const struct vgpu_backend vgpu_cuda_backend;

/* For a worker: keeps only the devices that its session sees, in this order. */
void vgpu_inventory_choose(struct vgpu_inventory *inventory, const struct vgpu_chosen_devices *devices);

/* The backend with this --device name. NULL: none. */
const struct vgpu_backend *vgpu_backend_named(const char *name);

#endif
