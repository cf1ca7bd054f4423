/*
 * A session's side of the host's GPU: the driver in this process, the session's memory, and the helpers
 * that the handlers share. Results are CUresult values.
 */
#ifndef VGPU_HOST_CUDA_SESSION_H
#define VGPU_HOST_CUDA_SESSION_H

#include "cuda_handlers.h"
#include "host/backend/cuda/driver.h"
#include "host/backend/cuda/ending.h"
#include "host/backend/cuda/ranges.h"
#include "host/backend/cuda/readback.h"
#include "host/backend/cuda/turn.h"
#include "host/session/worker.h"
#include "cuda_results.h"

/* Virtual memory of the session. */
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
  struct vgpu_stream *recording; /* captures the work of a graph; NULL: none does */
  struct vgpu_cuda_texture *textures;
  uint32_t texture_count;
  struct vgpu_cuda_turns turns;
  struct vgpu_cuda_shell *shells; /* graphs of the driver that have conditions */
  uint32_t condition_count;       /* of all of these */
  struct vgpu_cuda_load *loads;   /* that have begun */
  struct vgpu_cuda_endings endings;
};

/*
 * Registers memory that the guest shares with the driver, so that copies from it are done by the device while
 * this process goes on. Where the driver does not, it copies all the same, and waits.
 */
void vgpu_cuda_pin(struct vgpu_worker *worker, uint64_t context, uint32_t shared_region);
/* The same undone, once the device has read what it was to read. False: later, and the memory must stay until
 * vgpu_cuda_collect_unpinned has dropped it. */
bool vgpu_cuda_unpin(struct vgpu_worker *worker, struct vgpu_shared_region *shared_region);
void vgpu_cuda_collect_unpinned(struct vgpu_worker *worker);
/* For a context that ends: undone in its turn. */
void vgpu_cuda_end_pin(struct vgpu_worker *worker, struct vgpu_shared_region *shared_region);

/* After a call that waits: what kernels printed, from this process's standard output to worker->printed. */
void vgpu_cuda_collect_prints(struct vgpu_worker *worker);

/* Of a MIG instance its own, where the driver tells it. A CUresult. */
int vgpu_cuda_uuid(const struct vgpu_driver_api *api, int32_t device, uint8_t uuid[16]);

/* Opens and initialises the driver on first use: a session that only asks for facts never does. */
int32_t vgpu_cuda_open(struct vgpu_worker *worker, struct vgpu_cuda **cuda);

/* The same, and makes the guest's context current in this thread. */
int32_t vgpu_cuda_enter(struct vgpu_worker *worker, uint64_t context, struct vgpu_cuda **cuda);

/* Like vgpu_cuda_enter, and translates a stream of the guest: 0, 1 and 2 stay what they are. */
int32_t vgpu_cuda_enter_stream(struct vgpu_worker *worker, uint64_t context, uint64_t number,
                               struct vgpu_cuda **cuda, struct vgpu_stream **stream);

/* The object behind the guest's number; NULL if the number has no object of this type. */
void *vgpu_cuda_object(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type);

/* Remembers what a number stands for; false: the number is taken, special, or there are too many. */
bool vgpu_cuda_remember(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type,
                        uint64_t context, void *object);

/* A function, or a kernel that stands for one. */
void *vgpu_cuda_function(struct vgpu_worker *worker, uint64_t number);

/* Remembers, for the guest that asks why, that the driver itself had no memory left. Other results: nothing.
 */
void vgpu_cuda_refused(struct vgpu_worker *worker, uint32_t device, uint64_t bytes, int32_t result);

/* Bytes from the first of a box to its last; rows and slices may not lie on top of each other. */
bool vgpu_cuda_box_span(uint64_t width, uint64_t row, uint64_t rows, uint64_t slice, uint64_t slices,
                        uint64_t *span);

/*
 * Everything that belongs to a context, before the driver ends it. Its memory is the session's until then:
 * returns how much, all on the context's device.
 */
uint64_t vgpu_cuda_forget_context(struct vgpu_worker *worker, uint64_t context, uint32_t device);

#endif
