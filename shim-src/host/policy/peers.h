/*
 * How fast each peer connects, and how often it was refused. A new peer takes the place of the one without a
 * session that has been quiet longest. A record's place is the peer's number in the table of turns (share.h).
 */
#ifndef VGPU_HOST_PEERS_H
#define VGPU_HOST_PEERS_H

#include <stdbool.h>

#include "host/session/accounts.h"
#include "host/log.h"
#include "host/bucket.h"

#define VGPU_PEERS_MAX VGPU_SHARE_PEERS_MAX
_Static_assert(VGPU_PEERS_MAX > VGPU_SESSIONS_MAX, "there is always a peer without a session");

struct vgpu_refused_kernels {
  uint64_t count;
  int64_t at; /* of the last one, milliseconds, as vgpu_now_ms */
  char program[64];
  char kernel[VGPU_KERNEL_NAME_BYTES];
};

struct vgpu_refused_to_peer {
  struct vgpu_refused_memory last;
  char program[64];
};

struct vgpu_peer_record {
  struct vgpu_peer peer;
  uint64_t seen;     /* nanoseconds; 0: the place is free */
  uint32_t sessions; /* of this moment; the place stays the peer's while there is any */
  bool is_new;       /* no session has begun since the peer got the place */
  struct vgpu_bucket connects;
  struct vgpu_log_budget log;
  uint64_t turned_away;
  int32_t last_turned_away;            /* enum vgpu_status */
  int64_t turned_away_at;              /* milliseconds, as vgpu_now_ms */
  struct vgpu_refused_kernels refused; /* of sessions that have ended */
  struct vgpu_refused_to_peer memory;  /* likewise */
};

struct vgpu_peers {
  struct vgpu_peer_record records[VGPU_PEERS_MAX];
};

static inline bool vgpu_peer_same(const struct vgpu_peer *one, const struct vgpu_peer *other) {
  return one->kind == other->kind && one->id == other->id;
}

/* Finds the record of a peer, or begins one. Never NULL. */
struct vgpu_peer_record *vgpu_peers_find(struct vgpu_peers *peers, const struct vgpu_peer *peer);

/* Forgets all refused allocations, because the limits have changed. */
void vgpu_peers_forget_memory(struct vgpu_peers *peers);

#endif
