/* Registers memory that a guest shares with the driver. */
#include "host/backend/cuda/managed.h"
#include "host/backend/cuda/session.h"

#define PORTABLE 1u /* CU_MEMHOSTREGISTER_PORTABLE: pinned for all contexts, not only this one */

void vgpu_cuda_pin(struct vgpu_worker *worker, uint64_t context, uint32_t shared_region) {
  struct vgpu_cuda *cuda;
  struct vgpu_shared_region *region = &worker->shared_regions.array[shared_region - 1];
  if (region->pinned != 0 || region->unpinnable) return;
  if (vgpu_cuda_enter(worker, context, &cuda) != CUDA_SUCCESS) return;
  if (vgpu_cuda_is_ending(worker, region->memory)) return; /* its context is ending */
  if (VGPU_DRIVER(&cuda->api, cuMemHostRegister_v2, region->memory, region->bytes, PORTABLE) == CUDA_SUCCESS)
    region->pinned = context;
  else region->unpinnable = true;
}

static int32_t unregister(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  VGPU_DRIVER(api, cuCtxSynchronize, );
  return VGPU_DRIVER(api, cuMemHostUnregister, ending->object);
}

void vgpu_cuda_end_pin(struct vgpu_worker *worker, struct vgpu_shared_region *region) {
  struct vgpu_cuda *cuda;
  uint64_t context = region->pinned;
  if (context == 0) return;
  region->pinned = 0;
  if (vgpu_cuda_enter(worker, context, &cuda) != CUDA_SUCCESS) return;
  (void)vgpu_cuda_end(
      worker, &(struct vgpu_cuda_ending){.end = unregister,
                                         .context = vgpu_cuda_object(worker, context, VGPU_HANDLE_CONTEXT),
                                         .object = region->memory,
                                         .address = (uintptr_t)region->memory,
                                         .size = region->bytes});
}

static bool is_used(void *worker, const void *memory) {
  return vgpu_cuda_is_ending(worker, memory);
}

bool vgpu_cuda_unpin(struct vgpu_worker *worker, struct vgpu_shared_region *region) {
  if (cuda_of(worker) != NULL) vgpu_cuda_managed_forget(worker, region);
  vgpu_cuda_end_pin(worker, region);
  return !is_used(worker, region->memory);
}

void vgpu_cuda_collect_unpinned(struct vgpu_worker *worker) {
  if (worker->shared_regions.leaving > 0) vgpu_shared_regions_left(&worker->shared_regions, is_used, worker);
}
