/*
 * "Pinned" host memory is plain memory of the guest. If the host is on the same machine, it is shared memory,
 * so that a copy needs no frame for its bytes.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_api.h"
#include "guest/cuda/internal.h"
#include "guest/cuda/memory/registered.h"

#define DEVICE_MAP 2u           /* CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP */
#define OTHER_DEVICE 4u         /* CU_MEMHOSTREGISTER_IOMEMORY: cannot be carried */
#define READ_ONLY 8u            /* CU_MEMHOSTREGISTER_READ_ONLY */
#define READ_ONLY_SUPPORTED 113 /* CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED */

static int current_context(struct vgpu_driver **driver, struct vgpu_context **context) {
  int result;
  *driver = vgpu_cuda_driver(&result);
  if (*driver == NULL) return result;
  result = vgpu_cuda_current(*driver, context);
  if (result == CUDA_SUCCESS) *context = vgpu_cuda_owner_of(*context);
  return result;
}

static size_t whole_pages(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

/* Shorter copies travel in their frame. */
#define SHORTEST_SHARED ((size_t)64 << 10)

/* If device memory is host memory, a pinned pointer is valid in a kernel. */
static void *take_memory(struct vgpu_driver *driver, size_t bytes, uint32_t *shared_region, bool *lent) {
  void *memory = vgpu_lent_take(driver, 0, bytes, shared_region);
  *lent = memory != NULL;
  if (*lent) return memory;
  *shared_region = 0;
  if (bytes >= SHORTEST_SHARED &&
      vgpu_session_shared_region_make(driver->session, bytes, shared_region, &memory))
    return memory;
  memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

static void give_memory(struct vgpu_driver *driver, void *memory, size_t bytes, uint32_t shared_region,
                        bool lent) {
  if (lent) vgpu_lent_give(driver, memory, bytes, shared_region);
  else if (shared_region != 0) vgpu_session_shared_region_drop(driver->session, shared_region, memory, bytes);
  else munmap(memory, bytes);
}

int cuMemHostAlloc(void **pp, size_t bytesize, uint32_t Flags) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = current_context(&driver, &context);
  if (result != CUDA_SUCCESS) return result;
  /* Flags: 1 portable, 2 mapped into the device, 4 write-combined. */
  if (pp == NULL || bytesize > SIZE_MAX / 2 || (Flags & ~7u) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytesize == 0) {
    *pp = NULL;
    return CUDA_SUCCESS;
  }
  uint32_t shared_region;
  bool lent;
  void *memory = take_memory(driver, whole_pages(bytesize), &shared_region, &lent);
  if (memory == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  struct vgpu_region region = {.start = (uint64_t)(uintptr_t)memory,
                               .size = bytesize,
                               .kind = VGPU_REGION_PINNED,
                               /* With unified addressing the device can always access the memory. */
                               .flags = lent ? Flags | DEVICE_MAP : Flags,
                               .context = vgpu_cuda_context_own_number(driver, context),
                               .ordinal = context->ordinal,
                               .shared_region = shared_region,
                               .lent = lent};
  if (vgpu_regions_add(&driver->regions, &region) != VGPU_REGIONS_OK) {
    give_memory(driver, memory, whole_pages(bytesize), shared_region, lent);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *pp = memory;
  return CUDA_SUCCESS;
}

int cuMemAllocHost_v2(void **pp, size_t bytesize) {
  return cuMemHostAlloc(pp, bytesize, 0);
}

int cuMemFreeHost(void *p) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (p == NULL) return CUDA_SUCCESS;
  struct vgpu_region region;
  if (!vgpu_regions_remove(&driver->regions, (uint64_t)(uintptr_t)p, VGPU_REGION_PINNED, &region)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  /* Pending reads into this memory must have arrived, or failed, before it is unmapped. */
  vgpu_readback_flush(driver, p, region.size);
  give_memory(driver, p, whole_pages(region.size), region.shared_region, region.lent);
  return CUDA_SUCCESS;
}

/* Registered memory is shared only when the program asks for its device address, here or with DEVICEMAP. */
int cuMemHostGetDevicePointer_v2(uint64_t *pdptr, void *p, uint32_t Flags) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_region region;
  if (pdptr == NULL || Flags != 0 || !vgpu_regions_find(&driver->regions, (uint64_t)(uintptr_t)p, &region) ||
      vgpu_region_on_device(&region)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!region.lent && (region.kind != VGPU_REGION_REGISTERED || !vgpu_registered_lend(driver, &region)))
    return CUDA_ERROR_NOT_SUPPORTED;
  *pdptr = (uint64_t)(uintptr_t)p;
  return CUDA_SUCCESS;
}

int cuMemHostGetFlags(uint32_t *pFlags, void *p) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_region region;
  if (pFlags == NULL || !vgpu_regions_find(&driver->regions, (uint64_t)(uintptr_t)p, &region) ||
      vgpu_region_on_device(&region)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pFlags = region.flags;
  return CUDA_SUCCESS;
}

int cuMemHostRegister_v2(void *p, size_t bytesize, uint32_t Flags) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = current_context(&driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (p == NULL || bytesize == 0 || (Flags & ~15u) != 0) return CUDA_ERROR_INVALID_VALUE;
  int can_read_only = 0;
  if ((Flags & READ_ONLY) != 0)
    result = cuDeviceGetAttribute(&can_read_only, READ_ONLY_SUPPORTED, context->ordinal);
  if (result != CUDA_SUCCESS) return result;
  if ((Flags & OTHER_DEVICE) != 0 || ((Flags & READ_ONLY) != 0 && can_read_only == 0))
    return CUDA_ERROR_NOT_SUPPORTED;
  struct vgpu_region region = {.start = (uint64_t)(uintptr_t)p,
                               .size = bytesize,
                               .kind = VGPU_REGION_REGISTERED,
                               .flags = Flags,
                               .context = vgpu_cuda_context_own_number(driver, context),
                               .ordinal = context->ordinal};
  switch (vgpu_regions_add(&driver->regions, &region)) {
    case VGPU_REGIONS_OK:
      /* If this fails, cuMemHostGetDevicePointer refuses, but copies work. */
      if ((Flags & DEVICE_MAP) != 0) (void)vgpu_registered_lend(driver, &region);
      return CUDA_SUCCESS;
    case VGPU_REGIONS_NO_MEMORY:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case VGPU_REGIONS_OVERLAP:
      break;
  }
  return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

int cuMemHostRegister(void *p, size_t bytesize, uint32_t Flags) {
  return cuMemHostRegister_v2(p, bytesize, Flags);
}

int cuMemHostUnregister(void *p) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_region region;
  const uint64_t start = (uint64_t)(uintptr_t)p;
  if (!vgpu_regions_remove(&driver->regions, start, VGPU_REGION_REGISTERED, &region)) {
    /* The memory is known, but not registered, or does not begin here. */
    return p == NULL || vgpu_regions_find(&driver->regions, start, &region)
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  vgpu_readback_flush(driver, p, region.size);
  vgpu_registered_take_back(driver, &region);
  return CUDA_SUCCESS;
}
