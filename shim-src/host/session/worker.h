/* One session: a process of its own that the daemon forked for one connection. */
#ifndef VGPU_HOST_WORKER_H
#define VGPU_HOST_WORKER_H

#include "host/session/accounts.h"
#include "host/session/areas.h"
#include "host/backend/backend.h"
#include "host/policy/bucket.h"
#include "host/backend/dispatch.h"
#include "host/session/handles.h"
#include "host/session/link.h"
#include "host/backend/software/code/code.h"
#include "host/backend/software/memory/memory.h"
#include "host/backend/software/profile/profile.h"
#include "host/backend/software/queue.h"

struct vgpu_real;

struct vgpu_limits {
  uint64_t session_memory; /* bytes; 0: only the device's */
  uint32_t session_handles;
  uint32_t sessions;
  uint64_t outstanding;    /* bytes of calls and answers that wait here for something */
  uint32_t calls;          /* frames a second; 0: no limit */
  uint64_t peer_memory;    /* bytes, of all sessions of this peer; 0: no limit */
  uint64_t session_shared; /* bytes of memory shared with the guest; 0: no rings either */
};

/* Reads whose bytes the guest will fetch. */
struct vgpu_reads {
  struct vgpu_read *first;
  size_t count;
  uint64_t bytes;
};

struct vgpu_worker {
  struct vgpu_link link;
  struct vgpu_areas areas;
  bool areas_agreed;
  uint64_t session;
  uint32_t slot; /* in accounts */
  struct vgpu_peer peer;
  uint32_t library;
  struct vgpu_accounts *accounts;
  const struct vgpu_backend *backend;
  const struct vgpu_inventory *inventory;
  const struct vgpu_device_profiles *profiles; /* software; NULL with a real device behind */
  const struct vgpu_limits *limits;
  struct vgpu_handles handles;
  struct vgpu_memory memory; /* software */
  struct vgpu_queue queue;   /* software */
  struct vgpu_reads reads;
  struct vgpu_real *real; /* the host's GPU, once something of this session needed it */
  const struct vgpu_code_options *code_options;
  struct vgpu_code code;
  struct vgpu_bucket calls;
  bool slowed; /* said in the log that it calls too often */
  int32_t deferred;
  int32_t
      spoiled; /* software: what a kernel did to a context, told with every answer until it is destroyed */
  uint64_t spoiled_context;
  unsigned char *out; /* VGPU_FRAME_MAX bytes */
};

/* Whether so many bytes more may wait: calls for their stream, reads for the guest. */
bool vgpu_worker_may_wait(const struct vgpu_worker *worker, uint64_t bytes);

/* What any host says of itself; the session's own part is left 0. */
void vgpu_welcome_fill(struct vgpu_welcome *welcome, const struct vgpu_backend *backend,
                       const struct vgpu_inventory *inventory);

/*
 * Answers `hello` and serves until the guest goes or breaks the protocol. Returns the exit status for the
 * process.
 */
int vgpu_worker_serve(struct vgpu_worker *worker, const struct vgpu_hello *hello);

/* Bytes of device memory that this session may hold, of all devices; 0: only the devices limit it. */
uint64_t vgpu_worker_memory_limit(const struct vgpu_worker *worker);

/* For the list of sessions: a kernel ran; a call ended with this error. */
void vgpu_worker_launched(struct vgpu_worker *worker);
void vgpu_worker_failed(struct vgpu_worker *worker, int32_t status);

/* Answers the control opcodes; reply body and bulk go to the given places. */
int32_t vgpu_control(struct vgpu_worker *worker, uint32_t opcode, const void *body, uint32_t body_size,
                     void *reply, uint32_t *reply_size, struct vgpu_bulk *bulk);

#endif
