/* One session. The daemon starts a process for each connection (setup.h). */
#ifndef VGPU_HOST_WORKER_H
#define VGPU_HOST_WORKER_H

#include "host/session/accounts.h"
#include "host/session/shared_regions.h"
#include "host/backend/backend.h"
#include "host/policy/bucket.h"
#include "host/backend/dispatch.h"
#include "host/backend/common/code.h"
#include "host/backend/common/handles.h"
#include "host/session/link.h"
#include "host/session/parking.h"
#include "host/session/printed.h"

struct vgpu_software;
struct ptx_compiler;
struct vgpu_cuda;

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
};

/* Requests that are taken while an earlier one is still being carried out: meanwhile.c */
struct vgpu_meanwhile {
  const struct vgpu_request *released; /* the earlier one, which is released before its time */
  unsigned char *in;        /* VGPU_FRAME_MAX bytes: the other buffer of the link, from the first time */
  struct vgpu_request next; /* taken, and to be carried out afterwards */
  bool has_next;
  bool over; /* the guest is gone, or broke the protocol */
};

/* True if a request can be carried out while a call takes long. */
typedef bool vgpu_takes(struct vgpu_worker *worker, const struct vgpu_request *request);

struct vgpu_worker {
  struct vgpu_link link;
  struct vgpu_meanwhile meanwhile;
  struct vgpu_parking parking;
  struct vgpu_shared_regions shared_regions;
  bool shared_regions_agreed;
  struct vgpu_vm_memory vm_memory; /* of the guest's VM */
  uint64_t session;
  uint64_t secret; /* a guest needs it to continue the session; 0: not possible */
  bool direct;     /* as in struct vgpu_session_setup */
  uint32_t slot;   /* in accounts */
  bool watched;    /* a thread notices that the guest is gone, and gives signs of life (lifeline.h) */
  struct vgpu_peer peer;
  bool exchanges; /* shares memory with other sessions (exchange.h) */
  uint32_t library;
  struct vgpu_accounts *accounts;
  const struct vgpu_backend *backend;
  const struct vgpu_inventory *inventory;
  const struct vgpu_limits *limits;
  struct vgpu_handles handles;
  struct vgpu_printed printed;
  struct vgpu_software *software; /* of that backend */
  struct ptx_compiler *compiler;  /* of the same; NULL: kernels are interpreted */
  struct vgpu_cuda *cuda;         /* of the other backend, from its first use in this session */
  const struct vgpu_code_options *code_options;
  struct vgpu_code code;
  const struct vgpu_request *request; /* the request that is being carried out */
  uint64_t note; /* of its backend, which keeps it for a call that waits (VGPU_WAITS); at first 0 */
  /* A long call runs this to serve the calls behind it (vgpu_worker_meanwhile). NULL: there is no transport.
   */
  void (*take_requests)(struct vgpu_worker *worker, vgpu_takes *takes);
  struct vgpu_bucket calls;
  bool slowed; /* the log already says that it calls too often */
  int32_t deferred;
  int32_t sticky; /* the error of a kernel in a context, in every answer until the context is destroyed */
  uint64_t sticky_context;
  unsigned char *out; /* VGPU_FRAME_MAX bytes */
};

/* Fills a WELCOME with the data of this host. The fields about a session stay 0. */
void vgpu_welcome_fill(struct vgpu_welcome *welcome, const struct vgpu_backend *backend,
                       const struct vgpu_inventory *inventory);

/*
 * Answers `hello` and serves the guest until it leaves or breaks the protocol. Returns the exit status of the
 * process.
 */
int vgpu_worker_serve(struct vgpu_worker *worker, const struct vgpu_hello *hello);

/*
 * The bytes of device memory that this session may hold on all devices together; 0: only the devices limit
 * it.
 */
uint64_t vgpu_worker_memory_limit(const struct vgpu_worker *worker);

/* Waits for the guest's next request. A broken protocol is logged. */
enum vgpu_received vgpu_worker_receive(struct vgpu_worker *worker, struct vgpu_request *request);
/*
 * Carries a request out and answers it, or parks it; not before its time (limits.calls). False: the guest is
 * gone.
 */
bool vgpu_worker_answer(struct vgpu_worker *worker, const struct vgpu_request *request);

/*
 * Carries out the requests that have arrived while a one-way call takes long, in their order, up to the first
 * one that `takes` does not want. It waits for none. No call may change what the long one uses.
 */
void vgpu_worker_meanwhile(struct vgpu_worker *worker, vgpu_takes *takes);

/* Count, for the list of sessions, a kernel that ran and a call that ended with an error. */
void vgpu_worker_launched(struct vgpu_worker *worker);
void vgpu_worker_failed(struct vgpu_worker *worker, int32_t status);
/* Records that a launch of `kernel` was refused because this host cannot run it. A guest can ask for it. */
void vgpu_worker_refused_kernel(struct vgpu_worker *worker, const char *kernel);

/* Answers the control opcodes. The reply's body and bulk go to the given places. */
int32_t vgpu_control(struct vgpu_worker *worker, uint32_t opcode, const void *body, uint32_t body_size,
                     void *reply, uint32_t *reply_size, struct vgpu_bulk *bulk);

#endif
