/*
 * A session: the calls of one guest library in one process to its host. Any thread may call. Never shared
 * over fork(). No function here aborts, prints, raises a signal or waits without a limit.
 */
#ifndef VGPU_GUEST_SESSION_H
#define VGPU_GUEST_SESSION_H

#include "wire/frame.h"

struct vgpu_session;

/* The outcome of transporting a call. The result of the call itself is its status. */
enum vgpu_outcome {
  VGPU_ANSWERED = 0,
  VGPU_NO_HOST = 1,  /* no configuration, nothing listens, no WELCOME within the limit, or refused */
  VGPU_LOST = 2,     /* the host ended, froze or broke the protocol; every later call returns the same */
  VGPU_TOO_LARGE = 3 /* body or bulk beyond the limits: a mistake of the caller */
};

/*
 * A function of the library that returns true if the call begins work of unknown length, such as a kernel.
 * NULL: no call does.
 */
typedef bool (*vgpu_begins_work)(uint32_t opcode);

/*
 * Connects to the first configured host (config.h) that answers and exchanges greetings, all within
 * VGPU_CONNECT_LIMIT_MS. With VGPU_ANSWERED the caller must close *session with vgpu_session_close. Otherwise
 * *session is NULL, and vgpu_transport_last() has the reason. The caller holds the process's lock.
 */
enum vgpu_outcome vgpu_session_open(struct vgpu_session **session, enum vgpu_library library,
                                    vgpu_begins_work begins_work);

/*
 * Ends the session. The host frees everything that the session held. No other thread may be inside a call.
 * `session` may be NULL.
 */
void vgpu_session_close(struct vgpu_session *session);

/*
 * Informs the host that this process may end soon: the session then ends with its connection. Calls still
 * work. `session` may be NULL.
 */
void vgpu_session_goodbye(struct vgpu_session *session);

/*
 * Like vgpu_session_goodbye, while other threads are inside calls. If the connection is broken, the session
 * is lost, and calls that wait for another connection end with VGPU_LOST.
 */
void vgpu_session_dismiss(struct vgpu_session *session);

/*
 * True if the session keeps the bulk of one-way calls until the host has received it. Bulk with `stays` is
 * kept without a copy.
 */
bool vgpu_session_keeps(const struct vgpu_session *session);

/*
 * Called in a fork()ed child: closes the child's descriptors. The parent's session is not touched. `session`
 * may be NULL.
 */
void vgpu_session_abandon(struct vgpu_session *session);

/* Returns the host's WELCOME. Never NULL; valid as long as the session. */
const struct vgpu_welcome *vgpu_session_welcome(const struct vgpu_session *session);

bool vgpu_session_is_lost(struct vgpu_session *session);

/*
 * For a lost session that cannot be closed because threads may still be inside calls: frees the place of its
 * rings in VM memory, if they are there. Memory that the program has pinned stays until the program frees it.
 */
void vgpu_session_leave_vm(struct vgpu_session *session);

/* True if the last answer said that there is output of kernels to fetch (VGPU_FLAG_PRINTED). */
bool vgpu_session_has_printed(struct vgpu_session *session);

/* Returns and clears the first failure of a one-way call that was not reported yet; 0: none. */
int32_t vgpu_session_take_deferred(struct vgpu_session *session);

/* Puts back a failure from vgpu_session_take_deferred that the caller cannot report. */
void vgpu_session_keep_deferred(struct vgpu_session *session, int32_t failure);

struct vgpu_send {
  const void *body;
  uint32_t body_size;
  uint32_t bulk_size;
  const void *bulk;
  /* Shared memory that contains the call's data, or that receives it; NULL: none. */
  const struct vgpu_span *shared_region;
  /* For a one-way call: the caller does not change the bulk until a later waiting call is answered. */
  bool stays;
};

struct vgpu_receive {
  void *body;
  uint32_t body_size;     /* a reply with status 0 must have exactly this many bytes */
  uint32_t bulk_capacity; /* a longer bulk loses the session */
  void *bulk;             /* unused with send->shared_region */
  uint32_t bulk_size;     /* output: bytes that arrived */
  /* Set (atomic release) when the reply has arrived, before later replies are read. May be NULL. */
  bool *came;
};

/*
 * Makes a call and waits for its reply. `send` and `receive` may be NULL. With VGPU_ANSWERED *status is the
 * call's result. *receive is filled only if that is 0, and otherwise not changed.
 */
enum vgpu_outcome vgpu_session_call(struct vgpu_session *session, uint32_t opcode,
                                    const struct vgpu_send *send, struct vgpu_receive *receive,
                                    int32_t *status);

/*
 * Makes a one-way call. VGPU_ANSWERED: the call is sent; vgpu_session_take_deferred reports its failure
 * later.
 */
enum vgpu_outcome vgpu_session_post(struct vgpu_session *session, uint32_t opcode,
                                    const struct vgpu_send *send);

/*
 * vgpu_session_pieces makes the same call for `total` bytes in pieces of at most VGPU_BULK_MAX bytes, several
 * at a time where that is safe. `make` fills the body of the piece that begins at `offset`. It stops at the
 * first piece that is not answered with status 0; the *done bytes before that piece have arrived.
 */
struct vgpu_pieces {
  uint32_t opcode;
  uint32_t body_size; /* up to VGPU_PIECE_BODY */
  unsigned char *destination;
  size_t total;
  void (*make)(void *context, size_t offset, uint32_t bytes, void *body);
  void *context;
};
#define VGPU_PIECE_BODY 64u
enum vgpu_outcome vgpu_session_pieces(struct vgpu_session *session, const struct vgpu_pieces *pieces,
                                      size_t *done, int32_t *status);

/*
 * Returns the best length of a piece of `total` bytes. Data that is copied twice is fastest if it stays in
 * the processor's caches and both ends copy at the same time.
 */
uint32_t vgpu_session_piece(const struct vgpu_session *session, size_t total);

/* True if a shared region can also be device memory, at its address in the guest. */
bool vgpu_session_maps(const struct vgpu_session *session);

/* True if the host moves the bytes of managed variables (managed_mirror). */
bool vgpu_session_mirrors(const struct vgpu_session *session);

/* True if the host has the driver's graphs: it takes edges, and orders the launches of an executable. */
bool vgpu_session_has_graphs(const struct vgpu_session *session);
/* True if the host has the call function_load. */
bool vgpu_session_loads(const struct vgpu_session *session);
/* True if the host has the calls upload_room and gate_reached. */
bool vgpu_session_has_gates(const struct vgpu_session *session);

/* True if the host registers memory that the device only reads. */
bool vgpu_session_reads_only(const struct vgpu_session *session);
/*
 * True if shared regions are in memory that this VM shares with its host, which is not ordinary memory of
 * this kernel.
 */
bool vgpu_session_in_vm_memory(const struct vgpu_session *session);
/*
 * True if other processes of this guest can open what this session shares: its memory
 * (vgpu_session_exchanges), physical memory and pools (vgpu_session_shares), memory and events of cuIpc*
 * (vgpu_session_has_ipc).
 */
bool vgpu_session_exchanges(const struct vgpu_session *session);
bool vgpu_session_shares(const struct vgpu_session *session);
bool vgpu_session_has_ipc(const struct vgpu_session *session);

/*
 * Makes zeroed memory that the host maps, too, and gives its number for spans. False: this session cannot
 * have more. When no call uses the memory any more, the caller frees it with vgpu_session_shared_region_drop,
 * which waits for the host.
 */
bool vgpu_session_shared_region_make(struct vgpu_session *session, size_t bytes, uint32_t *shared_region,
                                     void **memory);
void vgpu_session_shared_region_drop(struct vgpu_session *session, uint32_t shared_region, void *memory,
                                     size_t bytes);

/*
 * Fetches the facts of all devices in one round trip. Fills at most `capacity` elements and sets *count. With
 * VGPU_ANSWERED *status is an enum vgpu_status.
 */
enum vgpu_outcome vgpu_session_device_facts(struct vgpu_session *session, struct vgpu_device_facts *facts,
                                            uint32_t capacity, uint32_t *count, int32_t *status);

/* Fetches the memory use and load of one device. `device` is the host's index. */
enum vgpu_outcome vgpu_session_device_usage(struct vgpu_session *session, uint32_t device,
                                            struct vgpu_usage_reply *usage, int32_t *status);

/*
 * Fetches the processes of this guest on one device. `device` is the host's index. Fills at most `capacity`
 * elements and sets *count.
 */
enum vgpu_outcome vgpu_session_device_processes(struct vgpu_session *session, uint32_t device,
                                                struct vgpu_process_facts *processes, uint32_t capacity,
                                                uint32_t *count, int32_t *status);

#endif
