/*
 * The device memory that each session holds: one table in memory that the daemon shares with its workers.
 * Every session sees the same free memory, and none can take more than is free. Only the daemon assigns and
 * releases slots, and it never waits for a worker.
 *
 * A worker that a guest has taken over can write only its own slot. All else is mapped read-only. Such a
 * worker can therefore report less use than it has, and nothing worse; share.h says what it can do to the
 * turns to compute.
 */
#ifndef VGPU_HOST_ACCOUNTS_H
#define VGPU_HOST_ACCOUNTS_H

#include <stdbool.h>
#include <stddef.h>

#include "host/backend/backend.h"
#include "host/session/share.h"
#include "wire/frame.h"

#define VGPU_SESSIONS_MAX 256u

/* Sessions with the same key belong to the same guest. */
struct vgpu_peer {
  uint32_t kind; /* enum vgpu_address_kind */
  uint32_t id;   /* unix: user id; vsock: CID; tcp: 0 */
};

struct vgpu_account_owner {
  int32_t pid; /* of the worker; 0: the slot is free */
  uint32_t guest_pid;
  uint32_t peer_pid; /* unix: of the process that connected; 0: not known. It stays when the session ends. */
  uint64_t session;  /* its number, which only grows; kept after the session ends */
  struct vgpu_peer peer;
  uint64_t peer_memory; /* that all sessions of the peer may hold, device and host memory; 0: no limit */
  struct vgpu_chosen_devices devices; /* count 0: all of the host's */
};

#define VGPU_ACCOUNTS_PAGE 65536u /* a multiple of the page size of each architecture */

/* The last allocation of a session, or of a peer, that was refused. */
struct vgpu_refused_memory {
  uint64_t count;
  int64_t at; /* milliseconds, as vgpu_now_ms */
  uint64_t bytes, limit, free;
  uint32_t by; /* enum vgpu_memory_limit */
};

/*
 * The data that a session's worker reports. Only this worker can write it. The daemon passes it on to the
 * administrator; none of its decisions depend on it.
 */
struct vgpu_account {
  union {
    struct {
      uint64_t used[VGPU_DEVICES_MAX];
      /* Measured with NVML, beyond `used`: the driver's contexts, code, heaps, and memory that pools keep. */
      uint64_t driver[VGPU_DEVICES_MAX];
      uint64_t held; /* memory of the host that the session holds: pinned and managed memory, whole pages */
      uint32_t contexts[VGPU_DEVICES_MAX];
      int32_t denied;       /* number of the system call for which the kernel ended the worker; -1: none */
      int32_t last_refusal; /* the last error; 0: none */
      uint32_t carrier;     /* enum vgpu_carrier; 0: the greeting is not answered yet */
      uint32_t interprets;  /* 1: the process that compiles its kernels could not start, or has ended */
      uint32_t busy; /* seconds that the current call has taken so far; 0: below the limit for a report */
      int64_t waiting_since; /* the time (vgpu_now_ms) when the connection broke; 0: it is not broken */
      uint64_t computed;     /* nanoseconds: processor time of the software device, or time of a GPU's turns
                                (share.h) */
      struct vgpu_seat seats[VGPU_DEVICES_MAX];    /* the state of its turns to compute */
      uint64_t launches;                           /* kernels that ran */
      uint64_t calls;                              /* frames that were carried out */
      uint64_t refused;                            /* frames that ended with an error */
      uint64_t kernels_refused;                    /* launches of kernels that this host cannot run */
      int64_t kernel_refused_at;                   /* of the last one, as vgpu_now_ms */
      char refused_kernel[VGPU_KERNEL_NAME_BYTES]; /* of the last one */
      struct vgpu_refused_memory memory_refused;
    };
    unsigned char page[VGPU_ACCOUNTS_PAGE];
  };
};
_Static_assert(sizeof(struct vgpu_account) == VGPU_ACCOUNTS_PAGE, "a page for each slot");

struct vgpu_accounts {
  union {
    struct {
      uint32_t device_count;
      uint32_t slots_begun; /* later slots were never assigned: sums skip them */
      uint64_t total[VGPU_DEVICES_MAX];
      struct vgpu_account_owner owners[VGPU_SESSIONS_MAX];
    };
    unsigned char page[VGPU_ACCOUNTS_PAGE];
  };
  struct vgpu_account slots[VGPU_SESSIONS_MAX];
  struct vgpu_share share; /* written by the daemon, too */
};
_Static_assert(offsetof(struct vgpu_accounts, slots) == VGPU_ACCOUNTS_PAGE, "slots begin at a page");
_Static_assert(VGPU_SEATS_MAX == VGPU_SESSIONS_MAX, "a seat for each slot");

/*
 * For the daemon: makes the table. `writable` and `readable` (NULL: not wanted) are descriptors of it for the
 * workers; the second one can never be made writable. NULL with errno.
 */
struct vgpu_accounts *vgpu_accounts_make(const uint64_t *totals, uint32_t device_count, int *writable,
                                         int *readable);

/*
 * For a worker: maps the whole table for reading, and its slot for writing. Closes both descriptors. NULL
 * with errno.
 */
struct vgpu_accounts *vgpu_accounts_map(int writable, int readable, uint32_t slot);

/* For the daemon: assigns a slot, with all counts 0, and releases it when its worker has ended. */
void vgpu_accounts_begin(struct vgpu_accounts *accounts, uint32_t slot,
                         const struct vgpu_account_owner *owner);
void vgpu_accounts_end(struct vgpu_accounts *accounts, uint32_t slot);

/*
 * For a worker: the newest session whose connection the same process brought as that of `slot`. It may have
 * ended; when its slot was assigned again to another process, it is not seen.
 */
uint64_t vgpu_accounts_newest(const struct vgpu_accounts *accounts, uint32_t slot);

/* The session of the peer that the worker with process number `pid` serves. NULL: there is none. */
const struct vgpu_account_owner *vgpu_accounts_owner(const struct vgpu_accounts *accounts,
                                                     const struct vgpu_peer *peer, int32_t pid);

/* The number of slots that were ever assigned. */
uint32_t vgpu_accounts_slots(const struct vgpu_accounts *accounts);

/* The host's number of a device. `device` is its number in the session of this slot. */
uint32_t vgpu_accounts_device(const struct vgpu_accounts *accounts, uint32_t slot, uint32_t device);

uint64_t vgpu_account_bytes(const struct vgpu_account *account, uint32_t device);

/* The bytes in use on a device of the host, by all sessions. */
uint64_t vgpu_accounts_used(const struct vgpu_accounts *accounts, uint32_t device);

/*
 * In the functions below `device` is a number of the session, not of the host.
 *
 * The size of a device, and the free part of it, as a session may be told them: both within its limits, in
 * bytes. `session_limit`: 0 is no limit.
 */
struct vgpu_room {
  uint64_t total;
  uint64_t free;
};
struct vgpu_room vgpu_accounts_room(const struct vgpu_accounts *accounts, uint32_t slot, uint32_t device,
                                    uint64_t session_limit);

/*
 * Takes bytes of a device for a slot. False: the device, the session's limit (0: none) or its peer's limit
 * has no room. The refusal is remembered, so that the guest can ask for the reason.
 */
bool vgpu_accounts_take(struct vgpu_accounts *accounts, uint32_t slot, uint32_t device, uint64_t bytes,
                        uint64_t session_limit);
/* The same without vgpu_accounts_before_refusal, for bytes that the driver has allocated already. */
bool vgpu_accounts_take_uncorrected(struct vgpu_accounts *accounts, uint32_t slot, uint32_t device,
                                    uint64_t bytes, uint64_t session_limit);
/*
 * Counts the memory of the host that a slot holds now. False, and the count stays unchanged: the peer's
 * limit, which includes device memory, has no room. The refusal is remembered.
 */
bool vgpu_accounts_hold(struct vgpu_accounts *accounts, uint32_t slot, uint64_t held);

/* Raises a slot's count to the `bytes` that NVML measured for a device. A lower number changes nothing. */
void vgpu_accounts_correct(struct vgpu_accounts *accounts, uint32_t slot, uint32_t device, uint64_t bytes);
/*
 * For a worker: `correct` is called before an allocation is refused, which is then tried again. Memory that
 * the driver has released may be counted until then.
 */
void vgpu_accounts_before_refusal(void (*correct)(void *context), void *context);

/* `more` is 1 or -1. */
void vgpu_accounts_context(struct vgpu_accounts *accounts, uint32_t slot, uint32_t device, int32_t more);
void vgpu_accounts_give(struct vgpu_accounts *accounts, uint32_t slot, uint32_t device, uint64_t bytes);

/* For the slot's worker: remembers an allocation that was refused. `refused` needs no count and no time. */
void vgpu_accounts_refused(struct vgpu_accounts *accounts, uint32_t slot,
                           const struct vgpu_refused_memory *refused);

#endif
