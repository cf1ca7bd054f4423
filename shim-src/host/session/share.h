/*
 * The turns to compute: on the processors of the software device, and on each of the host's GPUs. A turn
 * lasts some milliseconds. The next turn goes to the peer with the least weighted time so far, and within
 * a peer to the session with the least. As many threads compute at a time as there are processors (one
 * session for each GPU), so a guest that computes little never waits behind the queue of the kernel's
 * scheduler. A peer that has used clearly less than all that compute goes first at once, and another thread's
 * turn ends early.
 *
 * No worker writes what another one reads except the state of its own seat, so there is no lock, and two
 * threads may take the last turn at once. A worker that a guest has taken over can lie about its own session
 * only: that it computes, waits, or has used nothing. Whatever the other seats say, a peer gets a turn when
 * it has had none for twice the time in which each peer should have one. After such a turn it waits only once
 * that time for the next, which gives it its share (share.c, period).
 *
 * Time counts only while another session waits: the use of an idle device is free.
 */
#ifndef VGPU_HOST_SHARE_H
#define VGPU_HOST_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/frame.h"

#define VGPU_SEATS_MAX 256u       /* one for each session's slot */
#define VGPU_SHARE_PEERS_MAX 512u /* peers with a count of their own */
#define VGPU_WEIGHT_USUAL 100u
#define VGPU_TURN_NS 2000000u /* of a processor */

/* A session's state at one device. Only its worker writes it. */
struct vgpu_seat {
  uint32_t holding; /* threads that compute */
  uint32_t waiting; /* threads that wait for a turn */
  uint32_t call;    /* a futex whose value is always 0: the waking process cannot write to it */
  uint64_t taken;   /* when the last turn was taken, vgpu_now_ns */
  uint64_t idle;    /* since when a session with a turn is idle, vgpu_now_ns; 0: it computes */
  uint64_t used;    /* nanoseconds of the peer, divided by weight; only differences have a meaning */
  uint64_t own;     /* the same, beside other sessions of the peer */
};

/* Written by the daemon, and read by workers. */
struct vgpu_share {
  uint32_t turns;   /* at a time, of each device */
  uint32_t turn_ns; /* length of one */
  bool exclusive; /* a GPU's kernels cannot be interrupted: no peer goes first while another one has a turn */
  struct vgpu_seat_owner {
    uint32_t peer; /* below VGPU_SHARE_PEERS_MAX */
    uint32_t weight;
    uint32_t percent; /* of the device, whatever the weights of other peers are; 0: weight holds */
  } owners[VGPU_SEATS_MAX];
  uint64_t base[VGPU_DEVICES_MAX][VGPU_SHARE_PEERS_MAX]; /* `used` of sessions that have ended */
};

struct vgpu_accounts;

/* One session's turns at one device. The software device's processors are device 0. */
struct vgpu_turns {
  struct vgpu_accounts *accounts;
  uint32_t slot;
  uint32_t device; /* of the host */
};

/* For the daemon: a number passes from a peer without a session to another peer. */
void vgpu_share_new_peer(struct vgpu_accounts *accounts, uint32_t peer);

/* For the daemon: a session begins in a slot, and ends. */
void vgpu_share_begin(struct vgpu_accounts *accounts, uint32_t slot, uint32_t peer, uint32_t weight,
                      uint32_t percent);
void vgpu_share_end(struct vgpu_accounts *accounts, uint32_t slot);

/* Waits for a turn of the calling thread. */
void vgpu_share_enter(const struct vgpu_turns *turns);

/*
 * vgpu_share_enter() in steps. The thread counts as waiting from vgpu_share_want() on, which it may call
 * before its last turn is over. It repeats vgpu_share_await() until it has a turn or gives up. `since`: when
 * it began to wait (vgpu_now_ns).
 */
void vgpu_share_want(const struct vgpu_turns *turns);
bool vgpu_share_await(const struct vgpu_turns *turns, uint64_t since, uint64_t limit_ns);
void vgpu_share_give_up(const struct vgpu_turns *turns);

/* Takes a turn if one is free. */
bool vgpu_share_try(const struct vgpu_turns *turns);

/* For a thread that has a turn: true if it should end the turn early. */
bool vgpu_share_crowded(const struct vgpu_turns *turns);

/* For a session that has a turn and nothing to do: other sessions may take the turn soon. */
void vgpu_share_idle(const struct vgpu_turns *turns);
void vgpu_share_busy(const struct vgpu_turns *turns);
/* True if other sessions may have taken the turn since. */
bool vgpu_share_lost(const struct vgpu_turns *turns);

/* True if another peer has a session, active or not. */
bool vgpu_share_has_others(const struct vgpu_turns *turns);

/* For a thread that has a turn: true if a session of another peer has a turn or waits for one. */
bool vgpu_share_wanted(const struct vgpu_turns *turns);

/* Ends the turn and charges it. */
void vgpu_share_leave(const struct vgpu_turns *turns, uint64_t used);

#endif
