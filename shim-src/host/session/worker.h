/*
 * A session as backends see it. The daemon starts a process for each connection (setup.h). answer.h serves
 * requests.
 */
#ifndef VGPU_HOST_WORKER_H
#define VGPU_HOST_WORKER_H

#include "host/session/accounts.h"
#include "host/session/shared_regions.h"
#include "host/backend/backend.h"
#include "host/bucket.h"
#include "host/backend/dispatch.h"
#include "host/session/handles.h"
#include "host/session/link.h"
#include "host/session/parking.h"
#include "host/session/printed.h"

struct vgpu_images;
struct vgpu_upload;
struct vgpu_result;
struct vgpu_exec_object;
struct vgpu_resources;

struct vgpu_limits {
  uint64_t session_memory; /* bytes; 0: only the device's */
  uint32_t session_handles;
  uint32_t sessions;
  uint64_t outstanding;    /* bytes of calls and answers that wait in the worker */
  uint32_t calls;          /* frames a second; 0: no limit */
  uint64_t peer_memory;    /* bytes, of all sessions of this peer; 0: no limit */
  uint64_t session_shared; /* bytes of memory shared with the guest; 0: no rings either */
  uint32_t reconnect;      /* seconds that a session waits for a guest whose connection broke; 0: it ends */
  uint32_t share;          /* percent of each device; 0: by weight (policy.h) */
  bool all_processes;      /* NVML lists the processes of all peers of this kind (policy.h) */
};

/* Options that all sessions of a daemon share. */
struct vgpu_code_options {
  enum vgpu_kernels kernels;
  uint32_t checks;            /* PTX_CHECK_*: checks for kernels */
  uint32_t compile;           /* enum ptx_compile */
  int launch_log;             /* descriptor that gets a line for each launch; -1: none */
  uint64_t session_bytes;     /* memory for images, programs and graphs of one session */
  struct vgpu_images *images; /* NULL: no image is kept between sessions */
};

struct vgpu_code {
  struct vgpu_upload *uploads;
  struct vgpu_result *results;    /* made_images.c: images that the guest has not read yet */
  uint64_t last_result;           /* number of the newest result */
  struct vgpu_exec_object *execs; /* graph.c */
  uint64_t bytes;                 /* bytes that uploads, programs and graphs hold */
};

/* Requests that are carried out inside of a long one (nested.c). */
struct vgpu_nested {
  const struct vgpu_request *released; /* the outer request, released early; NULL: not released */
  unsigned char *in;        /* the link's other buffer, of VGPU_FRAME_MAX bytes; NULL: not needed so far */
  struct vgpu_request next; /* refused by the filter: carried out after the long one */
  bool has_next;
  bool over; /* the guest is gone, or broke the protocol */
};

/* True if a request can be carried out inside of a long one. */
typedef bool vgpu_request_filter(struct vgpu_worker *worker, const struct vgpu_request *request);

struct vgpu_worker {
  struct vgpu_link link;
  struct vgpu_nested nested;
  struct vgpu_parking parking;
  struct vgpu_shared_regions shared_regions;
  bool shared_regions_agreed;
  struct vgpu_vm_memory vm_memory; /* of the guest's VM */
  uint64_t session;
  uint64_t secret; /* a guest needs it to continue the session; 0: not possible */
  bool direct;     /* as in struct vgpu_session_setup */
  uint32_t slot;   /* in accounts */
  bool watched;    /* a thread watches the connection and sends signs of life (lifeline.h) */
  struct vgpu_peer peer;
  bool exchanges; /* shares memory with other sessions (exchange.h) */
  uint32_t library;
  struct vgpu_accounts *accounts;
  const struct vgpu_backend *backend;
  const struct vgpu_inventory *inventory;
  const struct vgpu_limits *limits;
  struct vgpu_handles handles;
  struct vgpu_printed printed;
  void *device; /* the backend's own state, from begin() or from its first use on; NULL: none */
  const struct vgpu_code_options *code_options;
  struct vgpu_code code;
  struct vgpu_resources *resources;   /* common/resources.c; NULL: the guest has none */
  const struct vgpu_request *request; /* the request that is being carried out */
  uint64_t note;                      /* of the backend, for a call that waits (VGPU_WAITS); initially 0 */
  /* Serves the next requests during a long one (vgpu_worker_serve_nested). NULL: there is no transport. */
  void (*serve_nested)(struct vgpu_worker *worker, vgpu_request_filter *accepts);
  struct vgpu_bucket calls;
  bool slowed; /* already logged: the guest exceeds its rate of calls */
  int32_t deferred;
  int32_t sticky; /* error of a kernel: every answer has it until the context is destroyed */
  uint64_t sticky_context;
  unsigned char *out; /* VGPU_FRAME_MAX bytes */
};

/* Bytes of device memory that this session may hold on all devices together. 0: only the devices limit it. */
uint64_t vgpu_worker_memory_limit(const struct vgpu_worker *worker);

/* Count a kernel that ran, and a call that failed, for the list of sessions. */
void vgpu_worker_launched(struct vgpu_worker *worker);
void vgpu_worker_failed(struct vgpu_worker *worker, int32_t status);
/* Counts a refused launch of a kernel, for the guest and the list of sessions. */
void vgpu_worker_refused_kernel(struct vgpu_worker *worker, const char *kernel);

#endif
