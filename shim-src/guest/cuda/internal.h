#ifndef VGPU_GUEST_CUDA_INTERNAL_H
#define VGPU_GUEST_CUDA_INTERNAL_H

#include <pthread.h>

#include "guest/cuda/graph/graph_memory.h"
#include "guest/guest_cuda.h"
#include "guest/cuda/stream/host_function.h"
#include "guest/cuda/objects.h"
#include "guest/cuda/stream/outstanding.h"
#include "guest/cuda/memory/pool.h"
#include "guest/cuda/memory/readback.h"
#include "guest/cuda/memory/regions.h"
#include "guest/cuda/memory/staging.h"
#include "guest/cuda/memory/virtual.h"

#define VGPU_STREAM_LEGACY ((struct vgpu_stream *)1)
#define VGPU_STREAM_PER_THREAD ((struct vgpu_stream *)2)
#define VGPU_FIRST_NUMBER 16u /* numbers below are special streams */
#define VGPU_LIMITS 7         /* CUlimit 0..6 */
#define VGPU_GREATEST_PRIORITY (-5)

struct vgpu_context {
  uint64_t number;           /* number at the host; a context that is made again gets a new one */
  struct vgpu_context *next; /* next in the list of contexts that can be used again */
  int32_t ordinal;           /* of its visible device */
  uint32_t flags;
  uint32_t references; /* primary: retained and not released; a reset keeps them. Of the user: 1, more by
                          cuCtxAttach */
  bool active;         /* primary: retained since it last ended; of the user: while it lives */
  bool primary;
  bool at_host;
  bool begins; /* a thread is making it at the host, without the lock */
  int32_t cache_config;
  int32_t shared_config;
  uint64_t covered;        /* see outstanding.h: the last call that a wait for the whole context covered */
  uint64_t legacy_covered; /* the same for its default stream */
  size_t limits[VGPU_LIMITS];
  struct vgpu_gates *gates;   /* see gate.h; NULL: none was needed so far */
  struct vgpu_context *owner; /* of a green context (green.h): its primary context; NULL: of all others */
  uint32_t sms;               /* of a green context: its multiprocessors; 0: of all others */
  uint32_t greens;            /* primary: its green contexts */
  uint32_t held;              /* primary: libraries whose variables were asked for without a context */
};

/* Attributes of a stream that are only stored, by CUstreamAttrID. */
struct vgpu_stream_values {
  unsigned char access_policy[64];
  unsigned char sync_domain_map[64];
  int32_t synchronization;
  int32_t sync_domain;
};

struct vgpu_stream {
  uint64_t number;
  struct vgpu_context *context;
  uint32_t flags;
  int32_t priority;
  bool detached;    /* its green context was destroyed */
  uint64_t covered; /* see outstanding.h */
  struct vgpu_stream_values values;
};

struct vgpu_event {
  uint64_t number;
  struct vgpu_context *context;
  uint32_t flags;
  uint32_t records;   /* times it was recorded */
  uint32_t completed; /* `records` when it was last known to be complete */
  uint64_t stream;    /* number of the stream that it was last recorded on */
};

#define VGPU_FOUND_CALLABLES 1024u

/*
 * Made when a host first answers. If cuInit is called after the host was lost, a new driver replaces this
 * one; the old one is kept, because other threads may still use it. A fork()ed child forgets the driver.
 */
struct vgpu_driver {
  struct vgpu_session *session;
  struct vgpu_driver *previous;
  uint64_t epoch; /* identifies the driver among those of this process */
  bool initialised;
  int32_t device_count;
  uint32_t host_index[VGPU_DEVICES_MAX]; /* of each visible device */
  struct vgpu_device_facts facts[VGPU_DEVICES_MAX];
  struct vgpu_context primary[VGPU_DEVICES_MAX];
  pthread_mutex_t lock; /* guards contexts and objects */
  pthread_cond_t begun; /* a context that a thread was making at the host is there, or cannot be made */
  uint64_t next_number;
  struct vgpu_objects objects;
  /* Functions that were found by their numbers; they may have ended since. */
  struct vgpu_callable *found_callables[VGPU_FOUND_CALLABLES];
  struct vgpu_context *spare;
  struct vgpu_regions regions;
  struct vgpu_outstanding outstanding;
  struct vgpu_readbacks readbacks;
  struct vgpu_host_functions functions;
  bool holds;                        /* a stream may wait for a value in memory; without the lock */
  uint32_t pool_changes, pool_waits; /* see vgpu_pools_await(); without the lock */
  struct vgpu_virtual virtual;
  struct vgpu_staging staging;
  struct vgpu_device_pools pools[VGPU_DEVICES_MAX]; /* of each visible device; under `lock` */
  struct vgpu_device_pools
      managed_pools[VGPU_DEVICES_MAX + 2]; /* the same of nowhere, the processor, each device */
  pthread_mutex_t managed_lock;            /* guards the next three members; is taken before `lock` */
  struct vgpu_managed_code *managed_code;
  struct vgpu_mirrored *mirrored;
  struct vgpu_mirrored_pages *mirrored_pages;
  pthread_mutex_t graph_lock;              /* guards graphs and captures; is taken before `lock` */
  uint32_t graph_numbers;                  /* given to graphs and executables so far; under graph_lock */
  uint32_t capturing;                      /* count of captures in progress; also read without the lock */
  uint64_t captures;                       /* count of all captures so far */
  struct vgpu_graph_memories graph_memory; /* under graph_lock */
  struct vgpu_captured_stream *captured_streams;
  struct vgpu_captured_event *captured_events;
  struct vgpu_captured_stream *last_captured; /* on it the capture began that ended last; or NULL */
  pthread_mutex_t printing;                   /* taken to print, so that one kernel's output stays together */
  struct vgpu_texture *textures;              /* under `lock` */
};

/* Called after memory was freed to a pool. */
static inline void vgpu_pools_changed(struct vgpu_driver *driver) {
  __atomic_add_fetch(&driver->pool_changes, 1, __ATOMIC_RELAXED);
}

/*
 * Called after a query found work complete, or a pool's attribute was set: the next wait may release memory
 * that was freed earlier.
 */
static inline void vgpu_pools_queried(struct vgpu_driver *driver) {
  if (__atomic_load_n(&driver->pool_changes, __ATOMIC_RELAXED) != 0) vgpu_pools_changed(driver);
}

/*
 * True if pools have changed since the last wait that the host carried out. The host's driver releases what
 * pools keep when it is called to wait, so the next wait goes to the host, whether or not work is
 * outstanding. *changes is for vgpu_pools_waited().
 */
static inline bool vgpu_pools_await(const struct vgpu_driver *driver, uint32_t *changes) {
  *changes = __atomic_load_n(&driver->pool_changes, __ATOMIC_RELAXED);
  return *changes != __atomic_load_n(&driver->pool_waits, __ATOMIC_RELAXED);
}

static inline void vgpu_pools_waited(struct vgpu_driver *driver, uint32_t changes) {
  __atomic_store_n(&driver->pool_waits, changes, __ATOMIC_RELAXED);
}

/* Returns the driver, or NULL before cuInit, with *result set to NOT_INITIALIZED. */
struct vgpu_driver *vgpu_cuda_driver(int *result);

/*
 * Reads CUDA_VISIBLE_DEVICES: writes the host indices of the visible devices to `chosen`, which has room for
 * `count`, and returns how many there are.
 */
uint32_t vgpu_cuda_visible(const char *list, const struct vgpu_device_facts *facts, uint32_t count,
                           uint32_t *chosen);

/*
 * Makes a call, waits for its answer and returns only the result of this call. *reply is filled on success.
 * Calls that wait for work also report a failure of an earlier one-way call; a call that makes an object must
 * not, because the program would lose the object.
 */
int vgpu_cuda_call(uint32_t opcode, const void *send, uint32_t send_size, void *reply, uint32_t reply_size);
/*
 * Makes a call, waits until its data has arrived in `bulk`, and also reports a failure of an earlier one-way
 * call.
 */
int vgpu_cuda_call_bulk(uint32_t opcode, const void *send, uint32_t send_size, void *bulk,
                        uint32_t bulk_size);
int vgpu_cuda_post(uint32_t opcode, const void *send, uint32_t send_size, const void *bulk,
                   uint32_t bulk_size);
/*
 * Takes no lock of graphs, so that a caller that holds driver->lock can use it. Only for streams that do not
 * capture.
 */
int vgpu_cuda_post_uncaptured(uint32_t opcode, const void *send, uint32_t send_size);
/* `stays`: the bulk does not change until the caller has waited for a later call. */
int vgpu_cuda_post_bulk(uint32_t opcode, const void *send, uint32_t send_size, const void *bulk,
                        uint32_t bulk_size, bool stays);

/* These two calls have their data in shared memory. The host reads it there, or fills it completely. */
int vgpu_cuda_post_shared_region(uint32_t opcode, const void *send, uint32_t send_size,
                                 const struct vgpu_span *shared_region);
int vgpu_cuda_call_shared_region(uint32_t opcode, const void *send, uint32_t send_size,
                                 const struct vgpu_span *shared_region);

/*
 * Calls vgpu_session_pieces and returns its result as a CUresult. NOT_READY may come after any piece. Not
 * allowed during a capture.
 */
int vgpu_cuda_pieces(const struct vgpu_pieces *pieces, size_t *done);

/*
 * managed.c: shared memory that is device memory at the same address. vgpu_lent_take returns NULL if this
 * host has none. `context` is the number of the context that the memory is allocated in, 0 for the current
 * one. `bytes` are whole pages. The caller gives the memory back with vgpu_lent_give, and only when no work
 * uses it any more.
 */
bool vgpu_lent_possible(void);
void *vgpu_lent_take(struct vgpu_driver *driver, uint64_t context, size_t bytes, uint32_t *shared_region);
/*
 * registered.c: a range of the program's own memory becomes device memory at the same address and keeps its
 * content. `flags` is 0 or READ_ONLY of cuMemHostRegister. vgpu_lent_end and vgpu_session_shared_region_drop
 * end this. NULL: not possible.
 */
void *vgpu_lent_take_for(struct vgpu_driver *driver, const void *range, size_t bytes, uint32_t flags,
                         uint32_t *shared_region);
void vgpu_lent_end(const void *memory);
/* True if the program's own memory can be shared in place. Memory that a VM shares with its host cannot. */
bool vgpu_lent_in_place(struct vgpu_driver *driver);
bool vgpu_managed_free(struct vgpu_driver *driver, uint64_t address); /* false: it is not managed memory */
/*
 * vgpu_managed_make allocates managed memory as a region like `like`, which prefers a device (-1: the
 * processor, -2: none). vgpu_managed_give frees the memory of a region that was removed from the list.
 */
int vgpu_managed_make(struct vgpu_driver *driver, const struct vgpu_region *like, size_t bytes,
                      int32_t prefers, uint64_t *address);
void vgpu_managed_give(struct vgpu_driver *driver, const struct vgpu_region *region);
/* share.c: true if processes of this guest can share a device's physical memory, or its pools. */
bool vgpu_physical_shares_possible(int32_t ordinal);
bool vgpu_pool_shares_possible(int32_t ordinal);
/* True if the host can share memory and events for cuIpc*. Hosts with a real GPU can, too. */
bool vgpu_ipc_possible(void);
void vgpu_lent_give(struct vgpu_driver *driver, void *memory, size_t bytes, uint32_t shared_region);

/*
 * True if device `ordinal` can read and write the memory of device `peer`. False if they are the same device.
 */
bool vgpu_peer_possible(int32_t ordinal, int32_t peer);

/* Waits until the host has received everything that was posted before. */
int vgpu_cuda_ping(void);

/* A waiting call with every possible part; unused fields are 0. Does not take deferred failures. */
struct vgpu_cuda_exchange {
  const void *send;
  void *reply;
  const void *send_bulk;
  void *bulk;
  const struct vgpu_span *shared_region; /* the host writes the bulk there, and `bulk` is not used */
  uint32_t send_size;
  uint32_t reply_size;
  uint32_t send_bulk_size;
  uint32_t bulk_capacity;
  uint32_t bulk_size; /* set */
  bool *came;         /* as in struct vgpu_receive */
};
int vgpu_cuda_exchange(uint32_t opcode, struct vgpu_cuda_exchange *exchange);
/*
 * Like vgpu_cuda_exchange, but if the answer is NOT_READY and the call is not a query, the caller repeats the
 * call.
 */
int vgpu_cuda_exchange_once(uint32_t opcode, struct vgpu_cuda_exchange *exchange);

/*
 * Gives the calling thread's current context if it is live. Returns 0, INVALID_CONTEXT or
 * CONTEXT_IS_DESTROYED.
 */
int vgpu_cuda_current(struct vgpu_driver *driver, struct vgpu_context **context);

/*
 * Gives the context that owns what the calling thread makes, and its number at the host: the current context,
 * or the primary context of a green context.
 */
int vgpu_cuda_owner(struct vgpu_driver *driver, struct vgpu_context **context, uint64_t *number);
/* Returns the owner for a live context: the context itself, or the primary context of a green context. */
struct vgpu_context *vgpu_cuda_owner_of(struct vgpu_context *context);

/*
 * Gives the number of the current context. If the host does not have the context yet, it is made there first.
 */
int vgpu_cuda_context_number(uint64_t *number);

/*
 * Like vgpu_cuda_context_number, but for a context that is a parameter of the program's call. NULL is the
 * current context.
 */
int vgpu_cuda_context_given(struct vgpu_driver *driver, struct vgpu_context *context, uint64_t *number);

/*
 * Makes the context at the host if it is not there yet. The caller holds driver->lock, which is released
 * while the host makes the context: the host first ends what was freed, and that may wait for a gate that
 * needs the lock.
 */
int vgpu_cuda_context_at_host(struct vgpu_driver *driver, struct vgpu_context *context);

/*
 * Makes a primary context at the host for a library and gives its number; the program need not have retained
 * the context. *holds says whether the library holds the context already, and becomes true. The hold ends
 * with the context, or with vgpu_cuda_let_primary_go.
 */
int vgpu_cuda_hold_primary(struct vgpu_driver *driver, struct vgpu_context *context, bool *holds,
                           uint64_t *number);
void vgpu_cuda_let_primary_go(struct vgpu_driver *driver, struct vgpu_context *context);

/* Returns the number that the context has, or will have, at the host. Takes driver->lock. */
uint64_t vgpu_cuda_context_own_number(struct vgpu_driver *driver, struct vgpu_context *context);
uint64_t vgpu_cuda_next_number(struct vgpu_driver *driver);

/*
 * Gives the wire number of the stream of a call that queues work (0, 1 and 2 are the default streams).
 * Returns a CUresult: INVALID_HANDLE and STREAM_DETACHED are possible. Waits if too many calls are behind
 * host functions.
 */
int vgpu_cuda_stream_number(struct vgpu_driver *driver, struct vgpu_stream *stream, uint64_t *number);

/*
 * Like vgpu_cuda_stream_number, and gives the number of the context in which the work runs: the stream's own,
 * so that the thread needs no current context; for a default stream the current one.
 */
int vgpu_cuda_stream_place(struct vgpu_driver *driver, struct vgpu_stream *stream, uint64_t *number,
                           uint64_t *context);

/* Returns how many multiprocessors a stream of a green context can use; 0: all of the device. */
uint32_t vgpu_cuda_stream_sms(struct vgpu_driver *driver, const struct vgpu_stream *stream);

/*
 * Gives the numbers of a stream and of its context (the current context for a default stream). Does not wait.
 */
int vgpu_cuda_stream_identity(struct vgpu_driver *driver, struct vgpu_stream *stream, uint64_t *number,
                              uint64_t *context);

/* Waits until all work of a context, named by its number, is done. Does not deliver bytes that were read. */
int vgpu_cuda_wait_context(uint64_t context);

/* Notes that a graph that was launched on `stream` has recorded the event, if the event is live. */
void vgpu_event_recorded(struct vgpu_driver *driver, struct vgpu_event *event, uint64_t stream);

/*
 * Waits at the host for a stream, named by its wire numbers, and delivers the bytes that were read on the
 * stream.
 */
int vgpu_cuda_wait_stream(struct vgpu_driver *driver, uint64_t context, uint64_t stream);

/*
 * Makes an event of this library's own, numbered `event`, and records it on a stream that does not capture.
 */
int vgpu_cuda_post_event(uint64_t context, uint64_t event, uint64_t stream);

/*
 * Waits until new work of a stream could begin: for the work of the stream and of the streams that it is
 * ordered after.
 */
int vgpu_cuda_wait_turn(struct vgpu_driver *driver, uint64_t context, uint64_t stream);

/*
 * Waits for the legacy stream of the current context, and so for its blocking streams. If nothing was called
 * since the last such wait, the host is not asked.
 */
int vgpu_cuda_wait_legacy(struct vgpu_driver *driver);

#endif
