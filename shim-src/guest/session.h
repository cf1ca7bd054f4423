/*
 * How a guest library talks to its host. One session is one connection of one library in one process;
 * libcuda and libnvidia-ml have one each. Any thread may call; a session is never shared over fork().
 *
 * Nothing here aborts, prints, raises a signal or waits without a limit.
 */
#ifndef VGPU_GUEST_SESSION_H
#define VGPU_GUEST_SESSION_H

#include "wire/frame.h"

struct vgpu_session;

/* The outcome of transporting a call. The result of the call itself is its status. */
enum vgpu_outcome {
  VGPU_ANSWERED = 0,
  VGPU_NO_HOST = 1,  /* no configuration, nothing listens, no WELCOME within the limit, or refused */
  VGPU_LOST = 2,     /* the host went away, froze or spoke nonsense; every later call says the same */
  VGPU_TOO_LARGE = 3 /* body or bulk beyond the limits: a mistake of the caller */
};

/* Of the library: does this call begin work that takes as long as it takes? NULL: none does. */
typedef bool (*vgpu_begins_work)(uint32_t opcode);

/*
 * Connects to VGPU_HOST, else to `host=` of /etc/vgpu/guest.conf, and shakes hands, all within
 * VGPU_CONNECT_LIMIT_MS. On VGPU_ANSWERED *session is to be closed with vgpu_session_close; on anything
 * else it is NULL. The caller holds the process's lock; why it failed is in vgpu_transport_last().
 */
enum vgpu_outcome vgpu_session_open(struct vgpu_session **session, enum vgpu_library library,
                                    vgpu_begins_work begins_work);

/* Ends the session; the host frees what it held. No other thread may be inside a call. NULL is allowed. */
void vgpu_session_close(struct vgpu_session *session);

/*
 * The process ends, or may: from here on the end of its connection is the end of the session. Calls still
 * work. NULL is allowed.
 */
void vgpu_session_goodbye(struct vgpu_session *session);

/* True if bulk of one-way calls is kept until the host has it: what `stays` is not copied. */
bool vgpu_session_keeps(const struct vgpu_session *session);

/* In a fork()ed child: gives back the descriptor without touching the parent's session. */
void vgpu_session_abandon(struct vgpu_session *session);

/* The host's WELCOME. Never NULL; valid as long as the session. */
const struct vgpu_welcome *vgpu_session_welcome(const struct vgpu_session *session);

bool vgpu_session_is_lost(struct vgpu_session *session);

/*
 * Of a lost session that is not closed, because threads may still be in it: gives back the place that its
 * rings have in this VM's memory, if they lie there. What the program has pinned stays its own until it frees
 * it.
 */
void vgpu_session_leave_vm(struct vgpu_session *session);

/* The first failure of a one-way call that was not returned yet, which it clears; 0 if none. */
/* Whether the last answer with that flag says that kernels have printed what was not fetched. */
bool vgpu_session_has_printed(struct vgpu_session *session);

int32_t vgpu_session_take_deferred(struct vgpu_session *session);

/* Gives back one that was taken by who has nobody to tell it to. */
void vgpu_session_keep_deferred(struct vgpu_session *session, int32_t failure);

struct vgpu_send {
  const void *body;
  uint32_t body_size;
  uint32_t bulk_size;
  const void *bulk;
  /* Shared memory where the data lies instead, or is to be put if the call brings some; NULL: none. */
  const struct vgpu_span *shared_region;
  /* Of a one-way call: the bulk stays as it is until a later waiting call was answered. */
  bool stays;
};

struct vgpu_receive {
  void *body;
  uint32_t body_size;     /* a reply with status 0 must have exactly this many bytes */
  uint32_t bulk_capacity; /* a longer bulk loses the session */
  void *bulk;             /* unused when send->shared region says where it goes */
  uint32_t bulk_size;     /* set: bytes that came */
};

/*
 * A waiting call. `send` and `receive` may be NULL for nothing. With VGPU_ANSWERED *status is the call's
 * result and, when it is 0, *receive is filled; with a status other than 0 *receive is left alone.
 */
enum vgpu_outcome vgpu_session_call(struct vgpu_session *session, uint32_t opcode,
                                    const struct vgpu_send *send, struct vgpu_receive *receive,
                                    int32_t *status);

/* A one-way call: VGPU_ANSWERED means sent. Its failure comes back by vgpu_session_take_deferred. */
enum vgpu_outcome vgpu_session_post(struct vgpu_session *session, uint32_t opcode,
                                    const struct vgpu_send *send);

/*
 * The same call for `total` bytes piece by piece, several on their way at a time where that is safe; never
 * more than VGPU_BULK_MAX each. `make` fills the body of the piece that begins at `offset`. Stops at the
 * first piece that is not answered with status 0; *done bytes came before it, in order.
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

/* How long a piece should be: what is copied twice goes quickest through the processors' caches. */
uint32_t vgpu_session_piece(const struct vgpu_session *session);

/* True if shared regions can be device memory, too, at the guest's own address. */
bool vgpu_session_maps(const struct vgpu_session *session);
/* True if shared regions lie in memory that this VM has of its host, and are no memory of the kernel here. */
bool vgpu_session_in_vm_memory(const struct vgpu_session *session);
/* Whether other processes of this guest can open what is shared. */
bool vgpu_session_exchanges(const struct vgpu_session *session);

/*
 * Memory that the host sees too, zeroed, and its number for spans; false: this session cannot have any
 * more. Given back by vgpu_session_shared_region_drop, once nothing names it any more; it waits for the host.
 */
bool vgpu_session_shared_region_make(struct vgpu_session *session, size_t bytes, uint32_t *shared_region,
                                     void **memory);
void vgpu_session_shared_region_drop(struct vgpu_session *session, uint32_t shared_region, void *memory,
                                     size_t bytes);

/*
 * Facts of all devices in one round trip: fills at most `capacity` elements, sets *count.
 * With VGPU_ANSWERED *status is an enum vgpu_status.
 */
enum vgpu_outcome vgpu_session_device_facts(struct vgpu_session *session, struct vgpu_device_facts *facts,
                                            uint32_t capacity, uint32_t *count, int32_t *status);

/* Memory in use and load of one device (host's index), as the host has them now. */
enum vgpu_outcome vgpu_session_device_usage(struct vgpu_session *session, uint32_t device,
                                            struct vgpu_usage_reply *usage, int32_t *status);

/* Processes of this guest on one device; fills at most `capacity` elements, sets *count. */
enum vgpu_outcome vgpu_session_device_processes(struct vgpu_session *session, uint32_t device,
                                                struct vgpu_process_facts *processes, uint32_t capacity,
                                                uint32_t *count, int32_t *status);

#endif
