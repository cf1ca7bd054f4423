#include "host/backend/cuda/real.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "host/log.h"
#include "wire/clock.h"

#define SPECIAL_STREAMS 3u /* 0 default, 1 legacy, 2 per-thread */
#define WAIT_MS 1000
#define SPINS 200 /* most waits of a small kernel end here */
#define NAP_NS 20000

/* The context of this thread, as the driver has it. */
static _Thread_local uint64_t current;

int32_t vgpu_real_open(struct vgpu_worker *worker, struct vgpu_real **real) {
  *real = worker->real;
  if (*real != NULL) return VGPU_REAL_SUCCESS;
  struct vgpu_real *made = calloc(1, sizeof *made);
  if (made == NULL) return VGPU_REAL_OUT_OF_MEMORY;
  char error[512];
  const char *library = worker->inventory->options->cuda_library;
  if (!vgpu_real_api_load(library, &made->api, error, sizeof error)) {
    vgpu_host_log("error", worker->session, "%s", error);
    free(made);
    return VGPU_REAL_NO_DEVICE;
  }
  int result = made->api.cuInit(0);
  if (result != VGPU_REAL_SUCCESS) {
    vgpu_host_log("error", worker->session, "cuInit of the host's driver failed with %d", result);
    free(made); /* asked again at the next call: a driver may come back */
    return result;
  }
  worker->real = *real = made;
  return VGPU_REAL_SUCCESS;
}

int32_t vgpu_real_enter(struct vgpu_worker *worker, uint64_t context, struct vgpu_real **real) {
  int32_t result = vgpu_real_open(worker, real);
  if (result != VGPU_REAL_SUCCESS) return result;
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, context, VGPU_HANDLE_CONTEXT);
  if (handle == NULL) return VGPU_REAL_INVALID_CONTEXT;
  if (current == context) return VGPU_REAL_SUCCESS;
  result = VGPU_REAL(&(*real)->api, cuCtxSetCurrent, (struct vgpu_context *)handle->real);
  if (result == VGPU_REAL_SUCCESS) current = context;
  return result;
}

void *vgpu_real_object(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type) {
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, number, type);
  return handle == NULL ? NULL : handle->real;
}

bool vgpu_real_remember(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type,
                        uint64_t context, void *object) {
  if (number < SPECIAL_STREAMS) return false;
  struct vgpu_handle *handle = vgpu_handles_add(&worker->handles, number, type);
  if (handle == NULL) return false;
  handle->context = context;
  handle->real = object;
  return true;
}

int32_t vgpu_real_enter_stream(struct vgpu_worker *worker, uint64_t context, uint64_t number,
                               struct vgpu_real **real, struct vgpu_stream **stream) {
  int32_t result = vgpu_real_enter(worker, context, real);
  if (result != VGPU_REAL_SUCCESS) return result;
  if (number < SPECIAL_STREAMS) {
    *stream = (struct vgpu_stream *)(uintptr_t)number;
    return VGPU_REAL_SUCCESS;
  }
  *stream = vgpu_real_object(worker, number, VGPU_HANDLE_STREAM);
  return *stream == NULL ? VGPU_REAL_INVALID_HANDLE : VGPU_REAL_SUCCESS;
}

int32_t vgpu_real_wait(int (*query)(const struct vgpu_real *real, void *what), const struct vgpu_real *real,
                       void *what) {
  int32_t result = query(real, what);
  for (int i = 0; result == VGPU_REAL_NOT_READY && i < SPINS; i++) result = query(real, what);
  int64_t deadline = vgpu_now_ms() + WAIT_MS;
  while (result == VGPU_REAL_NOT_READY && vgpu_now_ms() < deadline) {
    struct timespec nap = {.tv_nsec = NAP_NS};
    nanosleep(&nap, NULL);
    result = query(real, what);
  }
  return result;
}

int vgpu_real_query_stream(const struct vgpu_real *real, void *stream) {
  return VGPU_REAL(&real->api, cuStreamQuery, stream);
}

void vgpu_real_forget_context(struct vgpu_worker *worker, uint64_t context) {
  vgpu_real_drop_reads(worker, context);
  struct vgpu_range removed;
  while (vgpu_ranges_remove_of(&worker->real->ranges, context, &removed)) {
    vgpu_accounts_give(worker->accounts, worker->slot, removed.device, removed.counted);
  }
  vgpu_graph_drop_context(worker, context);
  vgpu_handles_remove_context(&worker->handles, context);
  if (current == context) {
    VGPU_REAL(&worker->real->api, cuCtxSetCurrent, NULL);
    current = 0;
  }
}
