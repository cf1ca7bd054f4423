#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/internal.h"

int cuMemAlloc_v2(uint64_t *dptr, size_t bytesize) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (dptr == NULL || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_context *context = NULL;
  struct vgpu_send_cuMemAlloc_v2 send = {.bytes = bytesize};
  result = vgpu_cuda_owner(driver, &context, &send.context);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_reply_cuMemAlloc_v2 reply;
  result = vgpu_cuda_call(VGPU_OP_cuMemAlloc_v2, &send, sizeof send, &reply, sizeof reply);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_region region = {.start = reply.address,
                               .size = bytesize,
                               .kind = VGPU_REGION_DEVICE,
                               .context = send.context,
                               .ordinal = context->ordinal};
  if (vgpu_regions_add(&driver->regions, &region) != VGPU_REGIONS_OK) {
    /* The guest cannot store the address, so the host must free it. */
    struct vgpu_send_cuMemFree_v2 back = {.context = send.context, .address = reply.address};
    vgpu_cuda_post(VGPU_OP_cuMemFree_v2, &back, sizeof back, NULL, 0);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *dptr = reply.address;
  return CUDA_SUCCESS;
}

#define PITCH 512u

int cuMemAllocPitch_v2(uint64_t *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                       uint32_t ElementSizeBytes) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (dptr == NULL || pPitch == NULL || WidthInBytes == 0 || Height == 0 ||
      (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  size_t pitch, bytes;
  if (__builtin_add_overflow(WidthInBytes, (size_t)(PITCH - 1), &pitch)) return CUDA_ERROR_INVALID_VALUE;
  pitch -= pitch % PITCH;
  if (__builtin_mul_overflow(pitch, Height, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  result = cuMemAlloc_v2(dptr, bytes);
  if (result == CUDA_SUCCESS) *pPitch = pitch;
  return result;
}

int cuMemFree_v2(uint64_t dptr) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (dptr == 0) return CUDA_SUCCESS;
  struct vgpu_region region;
  if (vgpu_graph_memory_free(driver, dptr, &result)) return result;
  if (vgpu_regions_find(&driver->regions, dptr, &region) && region.module != 0)
    return CUDA_ERROR_INVALID_VALUE;
  /* Memory that another process opened is closed instead, unless it came through a pool. */
  if (vgpu_regions_find(&driver->regions, dptr, &region) && region.opened && region.pool == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (vgpu_managed_free(driver, dptr)) return CUDA_SUCCESS;
  if (!vgpu_regions_remove(&driver->regions, dptr, VGPU_REGION_DEVICE, &region)) {
    struct vgpu_context *context;
    result = vgpu_cuda_current(driver, &context);
    return result == CUDA_ERROR_CONTEXT_IS_DESTROYED ? result : CUDA_ERROR_INVALID_VALUE;
  }
  struct vgpu_send_cuMemFree_v2 send = {.context = region.context, .address = dptr};
  /* Memory of a pool belongs to no context, so name the one whose work may still use it. */
  if (region.pool != 0) {
    vgpu_pools_changed(driver);
    result = vgpu_cuda_context_number(&send.context);
  }
  if (result != CUDA_SUCCESS) return result;
  return vgpu_cuda_post(VGPU_OP_cuMemFree_v2, &send, sizeof send, NULL, 0);
}

int cuMemGetAddressRange_v2(uint64_t *pbase, size_t *psize, uint64_t dptr) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  /* A callback may call nothing. libgomp learns from this error that it runs in one. */
  if (vgpu_host_function_runs()) return CUDA_ERROR_NOT_PERMITTED;
  struct vgpu_region region;
  if (!vgpu_regions_find(&driver->regions, dptr, &region) || region.kind == VGPU_REGION_REGISTERED) {
    return CUDA_ERROR_NOT_FOUND;
  }
  if (pbase != NULL) *pbase = region.start;
  if (psize != NULL) *psize = region.size;
  return CUDA_SUCCESS;
}

/* CUmemAllocationProp begins with type, handle types, location type, location id. */
int cuMemGetAllocationGranularity(size_t *granularity, const void *prop, int32_t option) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (granularity == NULL || prop == NULL || option < 0 || option > 1) return CUDA_ERROR_INVALID_VALUE;
  const int32_t *fields = prop;
  if (fields[0] != 1 || fields[2] != 1) return CUDA_ERROR_INVALID_VALUE; /* pinned, on a device */
  if (vgpu_cuda_device_facts(fields[3]) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  *granularity = 2u << 20; /* a large page, on every GPU that has virtual memory management */
  return CUDA_SUCCESS;
}
