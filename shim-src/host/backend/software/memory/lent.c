/*
 * Shared memory that is device memory, too, at the guest's address. The guest may change it while a kernel
 * looks at it: kernels are made of loads and stores of their own, and whatever else looks into device memory
 * copies it first.
 */
#include "cuda_handlers.h"
#include "host/backend/software/software.h"

int32_t vgpu_host_area_map(struct vgpu_worker *worker, const struct vgpu_send_area_map *send) {
  int32_t result = check_stream(worker, send->context, 0);
  if (result != SUCCESS) return result;
  unsigned char *memory = vgpu_areas_map(&worker->areas, send->area, send->bytes);
  if (memory == NULL) return INVALID_VALUE;
  if (vgpu_memory_lend(&worker->memory, send->address, send->bytes, memory)) return SUCCESS;
  vgpu_areas_unmap(&worker->areas, memory);
  return INVALID_VALUE;
}

int32_t vgpu_host_area_unmap(struct vgpu_worker *worker, const struct vgpu_send_area_unmap *send) {
  const unsigned char *memory = vgpu_memory_take_back(&worker->memory, send->address);
  if (memory == NULL) return INVALID_VALUE;
  vgpu_areas_unmap(&worker->areas, memory);
  return SUCCESS;
}
