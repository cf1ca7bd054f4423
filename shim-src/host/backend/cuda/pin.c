/* Memory that a guest shares, registered with the driver. */
#include "host/backend/cuda/session.h"

#define PORTABLE 1u /* CU_MEMHOSTREGISTER_PORTABLE: pinned for all contexts, not only this one */

void vgpu_cuda_pin(struct vgpu_worker *worker, uint64_t context, uint32_t shared_region) {
  struct vgpu_cuda *cuda;
  struct vgpu_shared_region *region = &worker->shared_regions.array[shared_region - 1];
  if (region->pinned != 0 || region->unpinnable) return;
  if (vgpu_cuda_enter(worker, context, &cuda) != CUDA_SUCCESS) return;
  if (VGPU_DRIVER(&cuda->api, cuMemHostRegister_v2, region->memory, region->bytes, PORTABLE) == CUDA_SUCCESS)
    region->pinned = context;
  else region->unpinnable = true;
}

void vgpu_cuda_unpin(struct vgpu_worker *worker, struct vgpu_shared_region *region) {
  struct vgpu_cuda *cuda;
  if (region->pinned == 0) return;
  if (vgpu_cuda_enter(worker, region->pinned, &cuda) == CUDA_SUCCESS) {
    VGPU_DRIVER(&cuda->api, cuCtxSynchronize, );
    VGPU_DRIVER(&cuda->api, cuMemHostUnregister, region->memory);
  }
  region->pinned = 0;
}
