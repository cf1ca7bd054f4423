/* What the files of the software device share. Results are CUresult values. */
#ifndef VGPU_HOST_SOFTWARE_SOFTWARE_H
#define VGPU_HOST_SOFTWARE_SOFTWARE_H

#include "host/session/worker.h"

enum {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  NOT_SUPPORTED = 801,
};

#define SPECIAL_STREAMS 3u /* 0 default, 1 legacy, 2 per-thread */

static inline struct vgpu_handle *find_context(struct vgpu_worker *worker, uint64_t context) {
  return vgpu_handles_find(&worker->handles, context, VGPU_HANDLE_CONTEXT);
}

static inline bool has_stream(struct vgpu_worker *worker, uint64_t stream) {
  return stream < SPECIAL_STREAMS || vgpu_handles_find(&worker->handles, stream, VGPU_HANDLE_STREAM) != NULL;
}

static inline int32_t check_stream(struct vgpu_worker *worker, uint64_t context, uint64_t stream) {
  if (find_context(worker, context) == NULL) return INVALID_CONTEXT;
  return has_stream(worker, stream) ? SUCCESS : INVALID_HANDLE;
}

/* Forgets the reads that were kept for a context's guest; 0: of all. */
void vgpu_reads_drop(struct vgpu_worker *worker, uint64_t context);

#endif
