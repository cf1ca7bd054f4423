#ifndef VGPU_HOST_SOFTWARE_SOFTWARE_H
#define VGPU_HOST_SOFTWARE_SOFTWARE_H

#include "host/backend/common/box.h"
#include "host/backend/software/code/programs.h"
#include "host/backend/software/memory/memory.h"
#include "host/backend/software/memory/peer.h"
#include "host/backend/software/profile/profile.h"
#include "host/backend/software/kernel/pace.h"
#include "host/backend/software/order/queue.h"
#include "host/backend/software/texture/texture.h"
#include "host/session/worker.h"
#include "cuda_results.h"

/* Copies of device memory, for reads that the guest fetches later. */
struct vgpu_reads {
  struct vgpu_read *first;
  size_t count;
  uint64_t bytes;
};

struct vgpu_load {
  uint64_t at, computed; /* nanoseconds */
  uint32_t per_cent;
};

struct vgpu_software {
  struct vgpu_memory memory;
  struct vgpu_peers peers;
  struct vgpu_queue queue;
  struct vgpu_pace pace;
  struct vgpu_reads reads;
  struct vgpu_programs programs;
  struct vgpu_textures textures;
  struct vgpu_software_condition *conditions;
  struct vgpu_load load;
  struct ptx_compiler *compiler; /* NULL: kernels are interpreted */
};

#define SPECIAL_STREAMS 3u /* 0 default, 1 legacy, 2 per-thread */

static inline struct vgpu_software *software_of(const struct vgpu_worker *worker) {
  return worker->device;
}

static inline struct vgpu_handle *find_context(struct vgpu_worker *worker, uint64_t context) {
  return vgpu_handles_find(&worker->handles, context, VGPU_HANDLE_CONTEXT);
}

/* Returns the context that owns code and memory: for a green context its primary context. */
static inline uint64_t owner_of(struct vgpu_worker *worker, uint64_t context) {
  const struct vgpu_handle *handle = find_context(worker, context);
  return handle == NULL || handle->owner == 0 ? context : handle->owner;
}

static inline bool has_stream(struct vgpu_worker *worker, uint64_t stream) {
  return stream < SPECIAL_STREAMS || vgpu_handles_find(&worker->handles, stream, VGPU_HANDLE_STREAM) != NULL;
}

static inline int32_t check_stream(struct vgpu_worker *worker, uint64_t context, uint64_t stream) {
  if (find_context(worker, context) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  return has_stream(worker, stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Returns the load of the simulated GPUs in per cent since the session's last call. */
uint32_t vgpu_software_load(struct vgpu_worker *worker);

int32_t vgpu_software_query(struct vgpu_worker *worker, const struct vgpu_query *query, uint32_t device,
                            const uint64_t *values);

/* Reads the value of a condition of a graph. False: there is no such condition. */
bool vgpu_software_condition_value(struct vgpu_worker *worker, uint64_t handle, uint32_t *value);
/* Frees the memory of the conditions of a context that ends. */
void vgpu_software_conditions_forget(struct vgpu_worker *worker, uint64_t context);

extern const struct vgpu_backend_resources vgpu_software_resources;

/* Removes the shared state of an event that ends. */
void vgpu_event_drop(struct vgpu_worker *worker, const struct vgpu_handle *event);

/* Drops the reads that were kept for the guest: those of a context, or all if it is 0. */
void vgpu_reads_drop(struct vgpu_worker *worker, uint64_t context);

#endif
