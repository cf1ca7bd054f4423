/*
 * Shared memory that is device memory, too, at the guest's address. The guest may change it while a kernel
 * reads it. Kernels read it with single loads, so that is safe; all other code copies device memory before it
 * uses it.
 */
#include "cuda_handlers.h"
#include "host/backend/software/code/module.h"
#include "host/backend/software/software.h"

int32_t vgpu_software_shared_region_map(struct vgpu_worker *worker,
                                        const struct vgpu_send_shared_region_map *send) {
  int32_t result = check_stream(worker, send->context, 0);
  if (result != CUDA_SUCCESS) return result;
  if (send->flags != 0) return CUDA_ERROR_INVALID_VALUE;
  unsigned char *memory = vgpu_shared_regions_map(&worker->shared_regions, send->shared_region, send->bytes);
  if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (vgpu_memory_lend(&software_of(worker)->memory, send->address, send->bytes, memory)) return CUDA_SUCCESS;
  vgpu_shared_regions_unmap(&worker->shared_regions, memory);
  return CUDA_ERROR_INVALID_VALUE;
}

int32_t vgpu_software_shared_region_unmap(struct vgpu_worker *worker,
                                          const struct vgpu_send_shared_region_unmap *send) {
  if (vgpu_managed_uses(worker, send->address)) return CUDA_ERROR_INVALID_VALUE;
  const unsigned char *memory = vgpu_memory_take_back(&software_of(worker)->memory, send->address);
  if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
  vgpu_shared_regions_unmap(&worker->shared_regions, memory);
  return CUDA_SUCCESS;
}
