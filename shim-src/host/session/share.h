/*
 * The turns to compute on the software device. A turn on a processor lasts some milliseconds. The next one
 * goes to the peer that has had the least time so far, by weight, and within a peer to the session with the
 * least. As many threads compute at a time as there are processors, so a guest that computes little never
 * waits behind the queue of the kernel's scheduler. A peer that has used clearly less than all that compute
 * goes first at once, and another thread's turn ends early. The table is in memory that the daemon shares
 * with its workers.
 *
 * Time counts only while another session waits: the use of an idle processor is free. A session that has
 * waited five seconds for a turn continues without one, so that a table with wrong values stops no session.
 *
 * A GPU has its own time slices between processes, which only its driver decides.
 */
#ifndef VGPU_HOST_SHARE_H
#define VGPU_HOST_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "host/session/shared_lock.h"

#define VGPU_SEATS_MAX 256u       /* one for each session's slot */
#define VGPU_SHARE_PEERS_MAX 512u /* peers that are counted apart */
#define VGPU_WEIGHT_USUAL 100u

struct vgpu_seat {
  uint32_t holding; /* threads of the session that compute */
  uint32_t waiting; /* threads that want to */
  uint32_t call;    /* a futex: changes when one of them may look again */
  uint32_t peer;    /* index below */
  uint32_t weight;
  uint64_t used; /* nanoseconds of a processor */
};

struct vgpu_share {
  struct vgpu_shared_lock lock; /* only workers take it */
  uint32_t processors;
  uint32_t running, waiting; /* sums of the seats */
  uint32_t stale;            /* the sums have to be made again: a worker is gone */
  uint64_t clock;            /* virtual time: what the peer had used that was given the last turn */
  struct vgpu_seat seats[VGPU_SEATS_MAX];
  uint64_t peer_used[VGPU_SHARE_PEERS_MAX]; /* nanoseconds, divided by weight */
};

/* In memory that is zero. */
void vgpu_share_make(struct vgpu_share *share, uint32_t processors);

/* By the daemon: the number of a peer that had no session is given to another one. */
void vgpu_share_new_peer(struct vgpu_share *share, uint32_t peer);

/* By the daemon: a session begins in the seat; it is over. Neither waits. */
void vgpu_share_begin(struct vgpu_share *share, uint32_t seat, uint32_t peer, uint32_t weight);
void vgpu_share_end(struct vgpu_share *share, uint32_t seat);

/* Waits for a turn of the calling thread. */
void vgpu_share_enter(struct vgpu_share *share, uint32_t seat);

/* Takes a turn if there is one to be had at once. */
bool vgpu_share_try(struct vgpu_share *share, uint32_t seat);

/* For a thread that has a turn, without the lock: true if it should end the turn early. */
bool vgpu_share_crowded(const struct vgpu_share *share, uint32_t seat);

/* The turn is over, after so many nanoseconds. */
void vgpu_share_leave(struct vgpu_share *share, uint32_t seat, uint64_t used);

#endif
