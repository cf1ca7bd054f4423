/* Inside of libcuda: the driver's state in this process and the helpers its files share. */
#ifndef VGPU_GUEST_CUDA_INTERNAL_H
#define VGPU_GUEST_CUDA_INTERNAL_H

#include <pthread.h>

#include "guest/cuda/graph/graph_memory.h"
#include "guest/cuda/guest_cuda.h"
#include "guest/cuda/stream/host_function.h"
#include "guest/cuda/objects.h"
#include "guest/cuda/stream/outstanding.h"
#include "guest/cuda/memory/pool.h"
#include "guest/cuda/memory/readback.h"
#include "guest/cuda/memory/regions.h"
#include "guest/cuda/memory/virtual.h"

#define VGPU_STREAM_LEGACY ((struct vgpu_stream *)1)
#define VGPU_STREAM_PER_THREAD ((struct vgpu_stream *)2)
#define VGPU_FIRST_NUMBER 16u /* numbers below are special streams */
#define VGPU_LIMITS 7         /* CUlimit 0..6 */
#define VGPU_GREATEST_PRIORITY (-5)

struct vgpu_context {
  uint64_t number;           /* what the host knows it by; a context made again gets a new one */
  struct vgpu_context *next; /* of those that can be used again */
  int32_t ordinal;           /* visible device */
  uint32_t flags;
  uint32_t references; /* primary: retained so often; user's: 1 while it lives */
  bool primary;
  bool at_host;
  int32_t cache_config;
  int32_t shared_config;
  uint64_t covered;        /* see outstanding.h: what a wait for all of it covered */
  uint64_t legacy_covered; /* likewise for its default stream */
  size_t limits[VGPU_LIMITS];
};

/* Attributes of a stream that are only kept, by CUstreamAttrID; each as the program gave it. */
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
  uint64_t covered; /* see outstanding.h */
  struct vgpu_stream_values values;
};

struct vgpu_event {
  uint64_t number;
  struct vgpu_context *context;
  uint32_t flags;
  uint32_t records;   /* times recorded */
  uint32_t completed; /* `records` when it was last known to be complete */
  uint64_t stream;    /* number of the one it was last recorded on */
};

/*
 * Made when a host answers, replaced (and the old one kept, other threads may be in it) when cuInit is
 * called after the host was lost, forgotten in a fork()ed child.
 */
struct vgpu_driver {
  struct vgpu_session *session;
  struct vgpu_driver *previous;
  uint64_t epoch; /* tells one driver of this process from the next */
  bool initialised;
  int32_t device_count;
  uint32_t host_index[VGPU_DEVICES_MAX]; /* of each visible device */
  struct vgpu_device_facts facts[VGPU_DEVICES_MAX];
  struct vgpu_context primary[VGPU_DEVICES_MAX];
  pthread_mutex_t lock; /* contexts and objects */
  uint64_t next_number;
  struct vgpu_objects objects;
  struct vgpu_context *spare;
  struct vgpu_regions regions;
  struct vgpu_outstanding outstanding;
  struct vgpu_readbacks readbacks;
  struct vgpu_host_functions functions;
  struct vgpu_virtual virtual;
  struct vgpu_device_pools pools[VGPU_DEVICES_MAX]; /* of each visible device; under `lock` */
  pthread_mutex_t managed_lock;                     /* the next; before `lock` */
  struct vgpu_managed_code *managed_code;
  pthread_mutex_t graph_lock;              /* graphs and captures; before `lock` */
  uint32_t capturing;                      /* captures under way; read without the lock */
  uint64_t captures;                       /* so far */
  struct vgpu_graph_memories graph_memory; /* under graph_lock */
  struct vgpu_captured_stream *captured_streams;
  struct vgpu_captured_event *captured_events;
  pthread_mutex_t printing;      /* one thread at a time, so that what one kernel printed stays together */
  struct vgpu_texture *textures; /* under `lock` */
};

/* The driver after cuInit; NULL with *result set (NOT_INITIALIZED) before it. */
struct vgpu_driver *vgpu_cuda_driver(int *result);

/* Picks what CUDA_VISIBLE_DEVICES shows: fills `chosen` with host indices, returns how many. */
uint32_t vgpu_cuda_visible(const char *list, const struct vgpu_device_facts *facts, uint32_t count,
                           uint32_t *chosen);

/*
 * A waiting call; *reply is filled on success. The result is its own: a failure of an earlier one-way call is
 * told by what waits for work. A call that makes something would lose what it made.
 */
int vgpu_cuda_call(uint32_t opcode, const void *send, uint32_t send_size, void *reply, uint32_t reply_size);
/* Until the data is there: told is a failure of an earlier one-way call, too. */
int vgpu_cuda_call_bulk(uint32_t opcode, const void *send, uint32_t send_size, void *bulk,
                        uint32_t bulk_size);
int vgpu_cuda_post(uint32_t opcode, const void *send, uint32_t send_size, const void *bulk,
                   uint32_t bulk_size);
/* `stays`: the bulk stays as it is until the caller has waited for a later call. */
int vgpu_cuda_post_bulk(uint32_t opcode, const void *send, uint32_t send_size, const void *bulk,
                        uint32_t bulk_size, bool stays);

/* The same calls with the data in shared memory: the host reads it there, or fills it completely. */
int vgpu_cuda_post_shared_region(uint32_t opcode, const void *send, uint32_t send_size,
                                 const struct vgpu_span *shared_region);
int vgpu_cuda_call_shared_region(uint32_t opcode, const void *send, uint32_t send_size,
                                 const struct vgpu_span *shared_region);

/* vgpu_session_pieces, its result as a CUresult: NOT_READY may come after any piece. Not while capturing. */
int vgpu_cuda_pieces(const struct vgpu_pieces *pieces, size_t *done);

/*
 * managed.c: shared memory that is device memory at the same address; NULL: this host has none. `context` is
 * the number of the one it is taken in, 0 the current one. `bytes` are whole pages. It must be given back
 * while no work uses it.
 */
bool vgpu_lent_possible(void);
void *vgpu_lent_take(struct vgpu_driver *driver, uint64_t context, size_t bytes, uint32_t *shared_region);
/*
 * The same for a range of the program's own memory (registered.c): it becomes device memory at the same
 * address and keeps its content. Ended by vgpu_lent_end and vgpu_session_shared_region_drop.
 */
void *vgpu_lent_take_for(struct vgpu_driver *driver, const void *range, size_t bytes,
                         uint32_t *shared_region);
void vgpu_lent_end(const void *memory);
/* Whether the program's own memory can be shared where it is: not in the memory that a VM has of its host. */
bool vgpu_lent_in_place(struct vgpu_driver *driver);
bool vgpu_managed_free(struct vgpu_driver *driver, uint64_t address); /* false: it is no managed memory */
/* share.c: whether processes can share anything here. */
bool vgpu_shares_possible(void);
void vgpu_lent_give(struct vgpu_driver *driver, void *memory, size_t bytes, uint32_t shared_region);

/* Waits until the host has taken in all that was posted before. */
int vgpu_cuda_ping(void);

/* A waiting call with all there can be; fill what is wanted, 0 the rest. Does not take deferred failures. */
struct vgpu_cuda_exchange {
  const void *send;
  void *reply;
  const void *send_bulk;
  void *bulk;
  const struct vgpu_span *shared_region; /* the host puts the bulk there; then `bulk` is not used */
  uint32_t send_size;
  uint32_t reply_size;
  uint32_t send_bulk_size;
  uint32_t bulk_capacity;
  uint32_t bulk_size; /* set */
};
int vgpu_cuda_exchange(uint32_t opcode, struct vgpu_cuda_exchange *exchange);

/* The calling thread's current context if it still lives: 0, INVALID_CONTEXT or CONTEXT_IS_DESTROYED. */
int vgpu_cuda_current(struct vgpu_driver *driver, struct vgpu_context **context);

/* The number of the current context. If the host does not have the context yet, it is made there first. */
int vgpu_cuda_context_number(uint64_t *number);

/* The same for a context that a parameter names; NULL is the current one. */
int vgpu_cuda_context_given(struct vgpu_driver *driver, struct vgpu_context *context, uint64_t *number);

/* With driver->lock held. */
int vgpu_cuda_context_at_host(struct vgpu_driver *driver, struct vgpu_context *context);

/* The number that it has or will have at the host. Takes driver->lock. */
uint64_t vgpu_cuda_context_own_number(struct vgpu_driver *driver, struct vgpu_context *context);
uint64_t vgpu_cuda_next_number(struct vgpu_driver *driver);

/*
 * The stream of a call that puts work on it: its number for the wire (0, 1, 2 for the default ones) or
 * INVALID_HANDLE. Waits for host functions that the work comes after.
 */
int vgpu_cuda_stream_number(struct vgpu_driver *driver, struct vgpu_stream *stream, uint64_t *number);

/* Number of a stream and of its context (the current one for a default stream); waits for nothing. */
int vgpu_cuda_stream_identity(struct vgpu_driver *driver, struct vgpu_stream *stream, uint64_t *number,
                              uint64_t *context);

/* Waits until all is done that a context, by its number, has to do; brings nothing that was read. */
int vgpu_cuda_wait_context(uint64_t context);

/* A graph that was launched on a stream has recorded the event, if it lives. */
void vgpu_event_recorded(struct vgpu_driver *driver, struct vgpu_event *event, uint64_t stream);

/* Asks the host to wait for a stream, as its numbers travel; brings what was read back on it. */
int vgpu_cuda_wait_stream(struct vgpu_driver *driver, uint64_t context, uint64_t stream);

#endif
