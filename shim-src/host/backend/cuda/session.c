#include "host/backend/cuda/session.h"

#include <stdlib.h>
#include <string.h>

#include "host/backend/cuda/load.h"
#include "host/backend/cuda/managed.h"
#include "host/backend/cuda/slice.h"
#include "host/backend/cuda/texture/texture.h"
#include "host/log.h"

#define SPECIAL_STREAMS 3u /* 0 default, 1 legacy, 2 per-thread */

/* The guest's number of the context that is current in this thread. */
static _Thread_local uint64_t current;

/*
 * Checks that the driver's devices are those that were chosen, in the same order, because a device's number
 * is the same for guest and driver.
 */
static bool shows_what_was_chosen(const struct vgpu_worker *worker, const struct vgpu_driver_api *api) {
  const struct vgpu_inventory *inventory = worker->inventory;
  int count = 0;
  if (!inventory->chosen) return true;
  bool same = VGPU_DRIVER(api, cuDeviceGetCount, &count) == CUDA_SUCCESS && count == (int)inventory->count;
  for (int i = 0; same && i < count; i++) {
    uint8_t uuid[16];
    int32_t device;
    same = VGPU_DRIVER(api, cuDeviceGet, &device, i) == CUDA_SUCCESS &&
           vgpu_cuda_uuid(api, device, uuid) == 0 &&
           memcmp(uuid, inventory->devices[i].uuid, sizeof uuid) == 0;
  }
  if (!same)
    vgpu_host_log("error", worker->session,
                  "the driver shows this worker %d devices, and not the %u that hostd.conf chose: no GPU",
                  count, inventory->count);
  return same;
}

int vgpu_cuda_uuid(const struct vgpu_driver_api *api, int32_t device, uint8_t uuid[16]) {
  int result = VGPU_DRIVER(api, cuDeviceGetUuid_v2, uuid, device);
  return result == CUDA_SUCCESS ? result : VGPU_DRIVER(api, cuDeviceGetUuid, uuid, device);
}

int32_t vgpu_cuda_open(struct vgpu_worker *worker, struct vgpu_cuda **cuda) {
  *cuda = cuda_of(worker);
  if (*cuda != NULL) return CUDA_SUCCESS;
  struct vgpu_cuda *made = calloc(1, sizeof *made);
  if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  char error[512];
  const char *library = worker->inventory->options->cuda_library;
  if (!vgpu_driver_load(library, &made->api, error, sizeof error)) {
    vgpu_host_log("error", worker->session, "%s", error);
    free(made);
    return CUDA_ERROR_NO_DEVICE;
  }
  int result = made->api.cuInit(0);
  if (result != CUDA_SUCCESS) {
    vgpu_host_log("error", worker->session, "cuInit of the host's driver failed with %d", result);
    free(made); /* tried again at the next call: the driver may be available then */
    return result;
  }
  if (!shows_what_was_chosen(worker, &made->api)) {
    free(made);
    return CUDA_ERROR_NO_DEVICE;
  }
  worker->device = *cuda = made;
  return CUDA_SUCCESS;
}

void vgpu_cuda_refused(struct vgpu_worker *worker, uint32_t device, uint64_t bytes, int32_t result) {
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return;
  size_t unused = 0, total = 0;
  if (VGPU_DRIVER(&cuda_of(worker)->api, cuMemGetInfo_v2, &unused, &total) != CUDA_SUCCESS) unused = 0;
  struct vgpu_refused_memory refused = {
      .bytes = bytes,
      .limit = worker->accounts->total[vgpu_accounts_device(worker->accounts, worker->slot, device)],
      .free = unused,
      .by = VGPU_MEMORY_LIMIT_DEVICE};
  vgpu_accounts_refused(worker->accounts, worker->slot, &refused);
}

int32_t vgpu_cuda_enter(struct vgpu_worker *worker, uint64_t context, struct vgpu_cuda **cuda) {
  int32_t result = vgpu_cuda_open(worker, cuda);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, context, VGPU_HANDLE_CONTEXT);
  if (handle == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (current == context) return CUDA_SUCCESS;
  result = VGPU_DRIVER(&(*cuda)->api, cuCtxSetCurrent, (struct vgpu_context *)handle->driver);
  if (result == CUDA_SUCCESS) current = context;
  return result;
}

void *vgpu_cuda_object(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type) {
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, number, type);
  return handle == NULL ? NULL : handle->driver;
}

bool vgpu_cuda_remember(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type,
                        uint64_t context, void *object) {
  if (number < SPECIAL_STREAMS) return false;
  struct vgpu_handle *handle = vgpu_handles_add(&worker->handles, number, type);
  if (handle == NULL) return false;
  handle->context = context;
  handle->driver = object;
  return true;
}

int32_t vgpu_cuda_enter_stream(struct vgpu_worker *worker, uint64_t context, uint64_t number,
                               struct vgpu_cuda **cuda, struct vgpu_stream **stream) {
  int32_t result = vgpu_cuda_enter(worker, context, cuda);
  if (result != CUDA_SUCCESS) return result;
  if (number == VGPU_RECORDING_STREAM && (*cuda)->recording != NULL) {
    *stream = (*cuda)->recording;
    return CUDA_SUCCESS;
  }
  if (number < SPECIAL_STREAMS) {
    *stream = (struct vgpu_stream *)(uintptr_t)number;
    return CUDA_SUCCESS;
  }
  *stream = vgpu_cuda_object(worker, number, VGPU_HANDLE_STREAM);
  return *stream == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

uint64_t vgpu_cuda_forget_context(struct vgpu_worker *worker, uint64_t context, uint32_t device) {
  vgpu_cuda_slice_end();
  vgpu_cuda_managed_drop(worker, context);
  vgpu_cuda_drop_reads(worker, context);
  vgpu_cuda_drop_waiting_calls(worker, context);
  vgpu_cuda_drop_loads(worker, context);
  vgpu_cuda_drop_side_calls(worker, vgpu_cuda_object(worker, context, VGPU_HANDLE_CONTEXT));
  vgpu_cuda_drop_gates(worker, context);
  vgpu_cuda_no_wait(worker, context);
  vgpu_cuda_unshare_context(worker, context);
  for (uint32_t i = 0; i < worker->shared_regions.begun; i++) {
    if (worker->shared_regions.array[i].pinned == context)
      vgpu_cuda_end_lent(worker, &worker->shared_regions.array[i]);
  }
  struct vgpu_range removed;
  uint64_t counted = 0;
  while (vgpu_ranges_remove_of(&cuda_of(worker)->ranges, context, &removed)) {
    if (removed.device == device) counted += removed.counted;
    else vgpu_accounts_give(worker->accounts, worker->slot, removed.device, removed.counted);
  }
  vgpu_graph_drop_context(worker, context);
  vgpu_cuda_textures_drop(worker, context);
  vgpu_cuda_arrays_drop(worker, context);
  vgpu_handles_remove_context(&worker->handles, context);
  if (current == context) {
    VGPU_DRIVER(&cuda_of(worker)->api, cuCtxSetCurrent, NULL);
    current = 0;
  }
  return counted;
}
