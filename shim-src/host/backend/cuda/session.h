/*
 * The state of one session for the host's GPU: the driver in this process, the session's memory, and helpers
 * that the handlers share. Results are CUresult values.
 */
#ifndef VGPU_HOST_CUDA_SESSION_H
#define VGPU_HOST_CUDA_SESSION_H

#include "cuda_handlers.h"
#include "host/backend/cuda/driver.h"
#include "host/backend/cuda/ending.h"
#include "host/backend/cuda/lent.h"
#include "host/backend/cuda/ranges.h"
#include "host/backend/cuda/readback.h"
#include "host/backend/cuda/side_call.h"
#include "host/backend/cuda/waiting_call.h"
#include "host/backend/common/code.h"
#include "host/session/exchange.h"
#include "host/session/worker.h"
#include "cuda_results.h"

/* The virtual memory of the session. */
struct vgpu_cuda_virtual {
  struct vgpu_cuda_reservation *reservations;
  struct vgpu_cuda_physical *physicals;
  struct vgpu_cuda_mapping *mappings;
  size_t count; /* of all three */
};

struct vgpu_cuda {
  struct vgpu_driver_api api;
  struct vgpu_ranges ranges;
  struct vgpu_cuda_reads reads;
  struct vgpu_cuda_virtual virtual;
  struct vgpu_stream *recording;       /* captures the work of a graph; NULL: no capture */
  struct vgpu_cuda_branches *branches; /* of the graph being captured; NULL: it is a chain */
  struct vgpu_cuda_texture *textures;
  uint32_t texture_count;
  struct vgpu_cuda_waiting_calls waiting_calls;
  uint64_t notes;                 /* that calls which wait have got so far */
  struct vgpu_cuda_shell *shells; /* graphs of the driver with conditions */
  uint32_t condition_count;       /* count in all of these */
  struct vgpu_cuda_load *loads;   /* loads that have begun */
  struct vgpu_cuda_side_call *side_calls;
  struct vgpu_cuda_endings endings;
  uint32_t greens; /* count of green contexts */
  struct vgpu_cuda_gates *gates;
  uint32_t waits_itself;             /* count of contexts whose handle says that it `waits` */
  struct vgpu_cuda_managed *managed; /* NULL: the guest uses no managed variable */
  struct vgpu_cuda_pool *pools;
  struct vgpu_cuda_shared *shared;
  int64_t corrected;        /* the time (vgpu_now_ms) when NVML corrected the account of memory; 0: never */
  uint64_t corrected_state; /* state_of() (backend.c) at that time */
};

/* NULL before the session's first call. */
static inline struct vgpu_cuda *cuda_of(const struct vgpu_worker *worker) {
  return worker->device;
}

/*
 * Registers memory that the guest shares with the driver, so that the device copies from it while this
 * process continues. If that fails, the driver still copies, but the call waits.
 */
void vgpu_cuda_pin(struct vgpu_worker *worker, uint64_t context, uint32_t shared_region);
/*
 * Ends that when the device has read the memory. False: not yet, and the memory must stay until
 * vgpu_cuda_collect_unpinned has dropped it.
 */
bool vgpu_cuda_unpin(struct vgpu_worker *worker, struct vgpu_shared_region *shared_region);
void vgpu_cuda_collect_unpinned(struct vgpu_worker *worker);
/* Ends that for a context that ends, after its earlier work. */
void vgpu_cuda_end_pin(struct vgpu_worker *worker, struct vgpu_shared_region *shared_region);

/*
 * After a call that waits: moves the text that kernels printed from this process's standard output to
 * worker->printed.
 */
void vgpu_cuda_collect_prints(struct vgpu_worker *worker);

/* virtual.c: physical memory that sessions of one guest share, as files of the driver. Return CUresults. */
int32_t vgpu_cuda_share_physical(struct vgpu_worker *worker, uint64_t number, struct vgpu_token *token,
                                 uint64_t *bytes);
int32_t vgpu_cuda_open_physical(struct vgpu_worker *worker, uint64_t number, const struct vgpu_token *token,
                                uint64_t *bytes);

/* sharing.c: ends that other sessions can open an allocation, an event, or all of a context. */
void vgpu_cuda_unshare(struct vgpu_worker *worker, uint64_t address, uint64_t event);
void vgpu_cuda_unshare_context(struct vgpu_worker *worker, uint64_t context);

/*
 * Notes that a stream now waits for `value` at this address: for a gate, or for a value of the program's own.
 */
void vgpu_cuda_gate_closes(struct vgpu_worker *worker, uint64_t context, uint64_t address, uint32_t value);
/* The context is idle, or ends: no stream of it waits for a value that a later call writes. */
void vgpu_cuda_no_wait(struct vgpu_worker *worker, uint64_t context);
/* True while work of the device may wait for a later call of the guest. */
bool vgpu_cuda_is_held(const struct vgpu_cuda *cuda);

/* Frees the words of a context's gates, before the driver destroys it. */
void vgpu_cuda_drop_gates(struct vgpu_worker *worker, uint64_t context);

/* memory.c: free memory of this session, and close memory of another session. */
int32_t vgpu_cuda_free_memory(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending);
int32_t vgpu_cuda_close_memory(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending);

/* Gives the UUID of a device; for a MIG instance its own, if the driver reports it. Returns a CUresult. */
int vgpu_cuda_uuid(const struct vgpu_driver_api *api, int32_t device, uint8_t uuid[16]);

/* A new note for the call that is carried out (worker->note). */
static inline uint64_t vgpu_cuda_note(struct vgpu_cuda *cuda) {
  return ++cuda->notes;
}

/* Opens and initialises the driver at its first use. A session that only requests facts never does. */
int32_t vgpu_cuda_open(struct vgpu_worker *worker, struct vgpu_cuda **cuda);

/* The same, and makes the guest's context current in this thread. */
int32_t vgpu_cuda_enter(struct vgpu_worker *worker, uint64_t context, struct vgpu_cuda **cuda);

/* Like vgpu_cuda_enter, and translates a stream of the guest. 0, 1 and 2 stay the same. */
int32_t vgpu_cuda_enter_stream(struct vgpu_worker *worker, uint64_t context, uint64_t number,
                               struct vgpu_cuda **cuda, struct vgpu_stream **stream);

/* Returns the object of the guest's number; NULL: the number has no object of this type. */
void *vgpu_cuda_object(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type);

/* Stores the object of a number. False: the number is used or special, or there are too many. */
bool vgpu_cuda_remember(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type,
                        uint64_t context, void *object);

/* Returns a function, or a kernel that is given for one. */
void *vgpu_cuda_function(struct vgpu_worker *worker, uint64_t number);

/* Records that the driver had no memory, so that the guest can query the reason. Ignores other results. */
void vgpu_cuda_refused(struct vgpu_worker *worker, uint32_t device, uint64_t bytes, int32_t result);

/* As vgpu_box_span(). False also if a slice has no whole number of rows: CUDA_MEMCPY3D gives it in rows. */
bool vgpu_cuda_box_span(uint64_t width, uint64_t row, uint64_t rows, uint64_t slice, uint64_t slices,
                        uint64_t *span);

/*
 * Removes all objects of a context, before the driver destroys it. Its memory counts as the session's until
 * then. Returns how much that is, all on the context's device.
 */
uint64_t vgpu_cuda_forget_context(struct vgpu_worker *worker, uint64_t context, uint32_t device);

#endif
