/*
 * A session: the calls of one guest library in one process to its host. Any thread may call. Never shared
 * over fork(). No function here aborts, prints, raises a signal or waits without a limit.
 */
#ifndef VGPU_GUEST_SESSION_H
#define VGPU_GUEST_SESSION_H

#include "wire/frame.h"

struct vgpu_session;

/* The transport's outcome. The call's own result is its status. */
enum vgpu_outcome {
  VGPU_ANSWERED = 0,
  VGPU_NO_HOST = 1,  /* no configuration, nothing listens, no WELCOME within the limit, or refused */
  VGPU_LOST = 2,     /* the host ended, froze or broke the protocol; every later call returns the same */
  VGPU_TOO_LARGE = 3 /* body or bulk beyond the limits: a mistake of the caller */
};

/* True if the call begins work of unknown length, such as a kernel. NULL: no call does. */
typedef bool (*vgpu_begins_work)(uint32_t opcode);

/*
 * Connects to the first configured host that answers, within VGPU_CONNECT_LIMIT_MS. With VGPU_ANSWERED the
 * caller closes *session; otherwise it is NULL, and vgpu_transport_last() has the reason. Needs the process's
 * lock.
 */
enum vgpu_outcome vgpu_session_open(struct vgpu_session **session, enum vgpu_library library,
                                    vgpu_begins_work begins_work);

/* The host frees everything of the session. No other thread may be inside a call. NULL is allowed. */
void vgpu_session_close(struct vgpu_session *session);

/* The session then ends with its connection; until then calls still work. NULL is allowed. */
void vgpu_session_goodbye(struct vgpu_session *session);

/* For use while threads are inside calls: if the connection is broken, their calls end with VGPU_LOST. */
void vgpu_session_dismiss(struct vgpu_session *session);

/* True if one-way bulk is kept until the host has received it, without a copy if it `stays`. */
bool vgpu_session_keeps(const struct vgpu_session *session);

/* Called in a fork()ed child. */
void vgpu_session_abandon(struct vgpu_session *session);

/* Never NULL. */
const struct vgpu_welcome *vgpu_session_welcome(const struct vgpu_session *session);

bool vgpu_session_is_lost(struct vgpu_session *session);

/* For a lost session in which threads may still be: frees the rings' place in VM memory. */
void vgpu_session_leave_vm(struct vgpu_session *session);

/* True if there is output of kernels to fetch (VGPU_FLAG_PRINTED). */
bool vgpu_session_has_printed(struct vgpu_session *session);

/* Returns and clears the first unreported failure of a one-way call; 0: none. */
int32_t vgpu_session_take_deferred(struct vgpu_session *session);

/* Puts back a failure that the caller cannot report. */
void vgpu_session_keep_deferred(struct vgpu_session *session, int32_t failure);

struct vgpu_send {
  const void *body;
  uint32_t body_size;
  uint32_t bulk_size;
  const void *bulk;
  /* Memory that has the call's data or receives it; NULL: none. */
  const struct vgpu_span *shared_region;
  /* One-way: the bulk does not change until a later waiting call is answered. */
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

/* `send` and `receive` may be NULL. *receive is filled only with VGPU_ANSWERED and status 0. */
enum vgpu_outcome vgpu_session_call(struct vgpu_session *session, uint32_t opcode,
                                    const struct vgpu_send *send, struct vgpu_receive *receive,
                                    int32_t *status);

/* One-way. VGPU_ANSWERED: the call is sent; vgpu_session_take_deferred reports its failure later. */
enum vgpu_outcome vgpu_session_post(struct vgpu_session *session, uint32_t opcode,
                                    const struct vgpu_send *send);

/*
 * Makes a call for `total` bytes in pieces of at most VGPU_BULK_MAX, several at a time where that is safe.
 * `make` fills the body for `offset`. Stops at the first piece without status 0; *done bytes have arrived.
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

/* Data that is copied twice is fastest if it stays in the caches and both ends copy at once. */
uint32_t vgpu_session_piece(const struct vgpu_session *session, size_t total);

bool vgpu_session_maps(const struct vgpu_session *session);

bool vgpu_session_mirrors(const struct vgpu_session *session);

/* True if the host takes edges and orders the launches of an executable. */
bool vgpu_session_has_graphs(const struct vgpu_session *session);
/* The host has function_load. */
bool vgpu_session_loads(const struct vgpu_session *session);

bool vgpu_session_reads_only(const struct vgpu_session *session);
/* True if shared regions are in VM memory: no ordinary memory of this kernel. */
bool vgpu_session_in_vm_memory(const struct vgpu_session *session);
bool vgpu_session_exchanges(const struct vgpu_session *session);
bool vgpu_session_shares(const struct vgpu_session *session);
bool vgpu_session_has_ipc(const struct vgpu_session *session);

/*
 * Zeroed memory that the host maps, too, and its number for spans. False: no more. To free it call
 * vgpu_session_shared_region_drop when no call uses it; that waits for the host.
 */
bool vgpu_session_shared_region_make(struct vgpu_session *session, size_t bytes, uint32_t *shared_region,
                                     void **memory);
void vgpu_session_shared_region_drop(struct vgpu_session *session, uint32_t shared_region, void *memory,
                                     size_t bytes);

/* All devices in one round trip; at most `capacity` elements. *status: enum vgpu_status. */
enum vgpu_outcome vgpu_session_device_facts(struct vgpu_session *session, struct vgpu_device_facts *facts,
                                            uint32_t capacity, uint32_t *count, int32_t *status);

enum vgpu_outcome vgpu_session_device_usage(struct vgpu_session *session, uint32_t device,
                                            struct vgpu_usage_reply *usage, int32_t *status);

/* Processes of this guest on one device; at most `capacity` elements. */
enum vgpu_outcome vgpu_session_device_processes(struct vgpu_session *session, uint32_t device,
                                                struct vgpu_process_facts *processes, uint32_t capacity,
                                                uint32_t *count, int32_t *status);

#endif
