/*
 * A session's side of the host's GPU: the driver in this process, the session's memory, and the helpers
 * that the handlers share. Results are CUresult values.
 */
#ifndef VGPU_HOST_CUDA_REAL_H
#define VGPU_HOST_CUDA_REAL_H

#include "cuda_handlers.h"
#include "host/backend/cuda/library.h"
#include "host/backend/cuda/ranges.h"
#include "host/backend/cuda/readback.h"
#include "host/session/worker.h"

enum {
  VGPU_REAL_SUCCESS = 0,
  VGPU_REAL_INVALID_VALUE = 1,
  VGPU_REAL_OUT_OF_MEMORY = 2,
  VGPU_REAL_NO_DEVICE = 100,
  VGPU_REAL_INVALID_DEVICE = 101,
  VGPU_REAL_INVALID_CONTEXT = 201,
  VGPU_REAL_INVALID_HANDLE = 400,
  VGPU_REAL_NOT_READY = 600,
};

/* Virtual memory of the session. */
struct vgpu_real_virtual {
  struct vgpu_real_reservation *reservations;
  struct vgpu_real_physical *physicals;
  struct vgpu_real_mapping *mappings;
  size_t count; /* of all three */
};

struct vgpu_real {
  struct vgpu_real_api api;
  struct vgpu_ranges ranges;
  struct vgpu_real_reads reads;
  struct vgpu_real_virtual virtual;
};

/* Opens and initialises the driver on first use: a session that only asks for facts never does. */
int32_t vgpu_real_open(struct vgpu_worker *worker, struct vgpu_real **real);

/* The same, and makes the guest's context current in this thread. */
int32_t vgpu_real_enter(struct vgpu_worker *worker, uint64_t context, struct vgpu_real **real);

/* Like vgpu_real_enter, and translates a stream of the guest: 0, 1 and 2 stay what they are. */
int32_t vgpu_real_enter_stream(struct vgpu_worker *worker, uint64_t context, uint64_t number,
                               struct vgpu_real **real, struct vgpu_stream **stream);

/* What the guest's number stands for, NULL if it is none of this type. */
void *vgpu_real_object(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type);

/* Remembers what a number stands for; false: the number is taken, special, or there are too many. */
bool vgpu_real_remember(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type,
                        uint64_t context, void *object);

/* A function, or a kernel that stands for one. */
void *vgpu_real_function(struct vgpu_worker *worker, uint64_t number);

/*
 * Asks until it no longer says NOT_READY, for about a second at most: a guest that still has to wait is
 * told NOT_READY and asks again, so no call is away for long.
 */
int32_t vgpu_real_wait(int (*query)(const struct vgpu_real *real, void *what), const struct vgpu_real *real,
                       void *what);
int vgpu_real_query_stream(const struct vgpu_real *real, void *stream);

/* Everything that belongs to a context, before the driver ends it. */
void vgpu_real_forget_context(struct vgpu_worker *worker, uint64_t context);

#endif
