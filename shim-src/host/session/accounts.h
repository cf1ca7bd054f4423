/*
 * Who holds how much device memory: one table in memory that the daemon shares with its workers, so that
 * every session sees the same free memory and none can take more than there is. The daemon alone gives
 * out and takes back slots, and never waits for a worker.
 */
#ifndef VGPU_HOST_ACCOUNTS_H
#define VGPU_HOST_ACCOUNTS_H

#include <pthread.h>
#include <stdbool.h>

#include "host/session/share.h"
#include "wire/frame.h"

#define VGPU_SESSIONS_MAX 256u

/* Sessions with the same key belong to the same guest. */
struct vgpu_peer {
  uint32_t kind; /* enum vgpu_address_kind */
  uint32_t id;   /* unix: user id; vsock: CID; tcp: 0 */
};

/* Written by workers: the daemon believes none of it where it acts (sessions.h has its own list). */
struct vgpu_account {
  int32_t pid; /* of the worker; 0: the slot is free */
  uint32_t guest_pid;
  int32_t denied; /* number of the system call that ended the worker; -1: none */
  uint64_t session;
  struct vgpu_peer peer;
  uint64_t peer_memory; /* that all sessions of the peer may hold; 0: no limit */
  uint64_t used[VGPU_DEVICES_MAX];
  uint32_t contexts[VGPU_DEVICES_MAX];
  uint64_t launches;    /* kernels that ran */
  uint64_t calls;       /* frames that were carried out */
  uint64_t refused;     /* of those, how many ended with an error */
  int32_t last_refusal; /* that error; 0: none */
};

struct vgpu_accounts {
  pthread_mutex_t lock; /* robust, between processes; only workers take it */
  uint32_t device_count;
  uint32_t slots_begun; /* those behind were never given out: nobody need look at 256 to add up one or two */
  uint64_t total[VGPU_DEVICES_MAX];
  struct vgpu_account slots[VGPU_SESSIONS_MAX];
  struct vgpu_share share; /* of the software device's processors; a seat for each slot */
};
_Static_assert(VGPU_SEATS_MAX == VGPU_SESSIONS_MAX, "a seat for each slot");

/* NULL with errno. */
struct vgpu_accounts *vgpu_accounts_make(const uint64_t *totals, uint32_t device_count);

/* By the daemon, before a slot is given out. */
void vgpu_accounts_begin(struct vgpu_accounts *accounts, uint32_t slot);

/* Slots 0 up to this one can be in use. Never more than there are: a worker can write anything there. */
uint32_t vgpu_accounts_slots(const struct vgpu_accounts *accounts);

/* Devices of the table. Never more than it has room for, likewise. */
uint32_t vgpu_accounts_devices(const struct vgpu_accounts *accounts);

/* Bytes in use on a device, of all sessions. */
uint64_t vgpu_accounts_used(const struct vgpu_accounts *accounts, uint32_t device);

/*
 * What a session may be told of a device, all within its limits: how large it is for it, and how much of that
 * is free now. `session_limit`: 0 is none.
 */
struct vgpu_room {
  uint64_t total;
  uint64_t free;
};
struct vgpu_room vgpu_accounts_room(const struct vgpu_accounts *accounts, uint32_t slot, uint32_t device,
                                    uint64_t session_limit);

/* Takes bytes of a device for a slot; false when the device, the session's limit (0: none) or its
 * peer's has no room. */
bool vgpu_accounts_take(struct vgpu_accounts *accounts, uint32_t slot, uint32_t device, uint64_t bytes,
                        uint64_t session_limit);
void vgpu_accounts_give(struct vgpu_accounts *accounts, uint32_t slot, uint32_t device, uint64_t bytes);

#endif
