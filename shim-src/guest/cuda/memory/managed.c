/*
 * Mapped pinned memory and managed memory. If the host shares memory with this process, a range of it can be
 * device memory at its address in this process. There is one copy of the bytes, so nothing migrates: a
 * prefetch has nothing to do, and advice is stored only for queries.
 */
#include <string.h>
#include <unistd.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/internal.h"
#include "guest/cuda/memory/managed_pool.h"

enum { READ_MOSTLY, PREFERRED, PREFETCHED };
#define NOWHERE (-2) /* CU_DEVICE_INVALID; CU_DEVICE_CPU is -1 */

bool vgpu_lent_possible(void) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  return driver != NULL && vgpu_session_maps(driver->session);
}

bool vgpu_lent_in_place(struct vgpu_driver *driver) {
  return vgpu_session_maps(driver->session) && !vgpu_session_in_vm_memory(driver->session);
}

#define TRIES 4

/*
 * Allocates the memory. `address` is its address on the device; 0: the address at which it is mapped here.
 * The process that drives the host's GPU may have other memory at that address; the next attempt maps
 * elsewhere.
 */
static void *take(struct vgpu_driver *driver, uint64_t context, uint64_t address, size_t bytes,
                  uint32_t flags, uint32_t *shared_region) {
  struct vgpu_send_shared_region_map send = {.context = context, .bytes = bytes, .flags = flags};
  struct vgpu_context *owner = NULL;
  if (!vgpu_session_maps(driver->session) ||
      (context == 0 && vgpu_cuda_owner(driver, &owner, &send.context) != CUDA_SUCCESS)) {
    return NULL;
  }
  struct {
    void *memory;
    uint32_t region;
  } refused[TRIES];
  const size_t tries = address == 0 ? TRIES : 1;
  size_t count = 0;
  void *taken = NULL, *memory;
  while (count < tries && vgpu_session_shared_region_make(driver->session, bytes, shared_region, &memory)) {
    send.address = address != 0 ? address : (uint64_t)(uintptr_t)memory;
    send.shared_region = *shared_region;
    int result = vgpu_cuda_call(VGPU_OP_shared_region_map, &send, sizeof send, NULL, 0);
    if (result == CUDA_SUCCESS) {
      taken = memory;
      break;
    }
    refused[count].memory = memory;
    refused[count++].region = *shared_region;
    if (result != CUDA_ERROR_OUT_OF_MEMORY) break;
  }
  for (size_t i = 0; i < count; i++)
    vgpu_session_shared_region_drop(driver->session, refused[i].region, refused[i].memory, bytes);
  return taken;
}

void *vgpu_lent_take(struct vgpu_driver *driver, uint64_t context, size_t bytes, uint32_t *shared_region) {
  return take(driver, context, 0, bytes, 0, shared_region);
}

void *vgpu_lent_take_for(struct vgpu_driver *driver, const void *range, size_t bytes, uint32_t flags,
                         uint32_t *shared_region) {
  return take(driver, 0, (uint64_t)(uintptr_t)range, bytes, flags, shared_region);
}

void vgpu_lent_end(const void *memory) {
  struct vgpu_send_shared_region_unmap send = {.address = (uint64_t)(uintptr_t)memory};
  (void)vgpu_cuda_call(VGPU_OP_shared_region_unmap, &send, sizeof send, NULL, 0);
}

void vgpu_lent_give(struct vgpu_driver *driver, void *memory, size_t bytes, uint32_t shared_region) {
  vgpu_lent_end(memory);
  vgpu_session_shared_region_drop(driver->session, shared_region, memory, bytes);
}

static size_t whole_pages(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

int vgpu_managed_make(struct vgpu_driver *driver, const struct vgpu_region *like, size_t bytes,
                      int32_t prefers, uint64_t *address) {
  struct vgpu_region region = *like;
  void *memory =
      vgpu_lent_take(driver, like->pool == 0 ? 0 : like->context, whole_pages(bytes), &region.shared_region);
  if (memory == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  region.start = (uint64_t)(uintptr_t)memory;
  region.size = bytes;
  region.kind = VGPU_REGION_MANAGED;
  region.lent = true;
  region.advice[PREFERRED] = prefers;
  region.advice[PREFETCHED] = NOWHERE;
  if (vgpu_regions_add(&driver->regions, &region) != VGPU_REGIONS_OK) {
    vgpu_lent_give(driver, memory, whole_pages(bytes), region.shared_region);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = region.start;
  return CUDA_SUCCESS;
}

void vgpu_managed_give(struct vgpu_driver *driver, const struct vgpu_region *region) {
  void *memory = (void *)(uintptr_t)region->start;
  /* Pending reads into this memory must have arrived, or failed, before it is unmapped. */
  (void)vgpu_readback_flush(driver, memory, region->size);
  vgpu_lent_give(driver, memory, whole_pages(region->size), region->shared_region);
}

int cuMemAllocManaged(uint64_t *dptr, size_t bytesize, uint32_t flags) {
  int result;
  struct vgpu_context *context = NULL;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  result = vgpu_cuda_current(driver, &context);
  if (result != CUDA_SUCCESS) return result;
  context = vgpu_cuda_owner_of(context);
  /* Flags: 1 used on any stream, 2 only by the host until cuStreamAttachMemAsync. */
  if (dptr == NULL || bytesize == 0 || bytesize > SIZE_MAX / 2 || (flags != 1 && flags != 2)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!vgpu_session_maps(driver->session)) return CUDA_ERROR_NOT_SUPPORTED;
  const struct vgpu_region like = {
      .flags = flags, .context = vgpu_cuda_context_own_number(driver, context), .ordinal = context->ordinal};
  return vgpu_managed_make(driver, &like, bytesize, NOWHERE, dptr);
}

bool vgpu_managed_free(struct vgpu_driver *driver, uint64_t address) {
  struct vgpu_region region;
  if (vgpu_regions_find(&driver->regions, address, &region) && region.module != 0) return false;
  if (!vgpu_regions_remove(&driver->regions, address, VGPU_REGION_MANAGED, &region)) return false;
  vgpu_managed_give(driver, &region);
  return true;
}

static int advise(uint64_t address, size_t bytes, unsigned which, int32_t value) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  return vgpu_regions_advise(&driver->regions, address, bytes, which, value) ? CUDA_SUCCESS
                                                                             : CUDA_ERROR_INVALID_VALUE;
}

/* True for the ordinal of a device, or -1 for the processor. */
static bool is_place(int32_t place) {
  return place == -1 || vgpu_cuda_device_facts(place) != NULL;
}

int cuMemAdvise(uint64_t devPtr, size_t count, int32_t advice, int32_t device) {
  if (count == 0) return CUDA_ERROR_INVALID_VALUE;
  switch (advice) {
    case 1: /* set READ_MOSTLY, unset it */
    case 2:
      return advise(devPtr, count, READ_MOSTLY, advice == 1);
    case 3: /* PREFERRED_LOCATION */
      return is_place(device) ? advise(devPtr, count, PREFERRED, device) : CUDA_ERROR_INVALID_DEVICE;
    case 4:
      return advise(devPtr, count, PREFERRED, NOWHERE);
    case 5: /* ACCESSED_BY: every device can always access it */
    case 6: {
      if (!is_place(device)) return CUDA_ERROR_INVALID_DEVICE;
      struct vgpu_region region;
      int result;
      struct vgpu_driver *driver = vgpu_cuda_driver(&result);
      if (driver == NULL) return result;
      bool managed =
          vgpu_regions_find(&driver->regions, devPtr, &region) && region.kind == VGPU_REGION_MANAGED;
      return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

/* CUmemLocation: 1 is a device; 2 and higher are host memory of any NUMA node. */
static bool place_of(struct vgpu_value8 location, int32_t *place) {
  int32_t fields[2];
  memcpy(fields, &location, sizeof fields);
  *place = fields[0] == 1 ? fields[1] : -1;
  return fields[0] >= 0 && fields[0] <= 4 && is_place(*place);
}

int cuMemAdvise_v2(uint64_t devPtr, size_t count, int32_t advice, struct vgpu_value8 location) {
  int32_t place;
  if (!place_of(location, &place)) return CUDA_ERROR_INVALID_VALUE;
  return cuMemAdvise(devPtr, count, advice, place);
}

static int prefetch(uint64_t address, size_t count, int32_t place, struct vgpu_stream *stream) {
  uint64_t number, context;
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (count == 0) return CUDA_ERROR_INVALID_VALUE;
  result = vgpu_cuda_stream_identity(driver, stream, &number, &context);
  return result == CUDA_SUCCESS ? advise(address, count, PREFETCHED, place) : result;
}

int cuMemPrefetchAsync(uint64_t devPtr, size_t count, int32_t dstDevice, struct vgpu_stream *hStream) {
  return is_place(dstDevice) ? prefetch(devPtr, count, dstDevice, hStream) : CUDA_ERROR_INVALID_DEVICE;
}

int cuMemPrefetchAsync_v2(uint64_t devPtr, size_t count, struct vgpu_value8 location, uint32_t flags,
                          struct vgpu_stream *hStream) {
  int32_t place;
  if (flags != 0 || !place_of(location, &place)) return CUDA_ERROR_INVALID_VALUE;
  return prefetch(devPtr, count, place, hStream);
}

int cuMemRangeGetAttribute(void *data, size_t dataSize, int32_t attribute, uint64_t devPtr, size_t count) {
  int result;
  struct vgpu_region region;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (data == NULL || count == 0 || dataSize < sizeof(int32_t) || dataSize % sizeof(int32_t) != 0 ||
      !vgpu_regions_find(&driver->regions, devPtr, &region) || region.kind != VGPU_REGION_MANAGED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  int32_t *values = data, place = region.advice[attribute == 2 || attribute >= 5 ? PREFERRED : PREFETCHED];
  if (attribute >= 7) place = region.advice[PREFETCHED];
  switch (attribute) {
    case 1: /* READ_MOSTLY */
      values[0] = region.advice[READ_MOSTLY];
      return CUDA_SUCCESS;
    case 2: /* PREFERRED_LOCATION */
    case 4: /* LAST_PREFETCH_LOCATION */
    case 6: /* device numbers, and their kinds: CUmemLocationType */
    case 8:
      values[0] = place;
      return CUDA_SUCCESS;
    case 5:
    case 7:
      values[0] = place == NOWHERE ? 0 : place == -1 ? 2 : 1;
      return CUDA_SUCCESS;
    case 3: /* ACCESSED_BY: devices, then NOWHERE to fill the array */
      for (size_t i = 0; i < dataSize / sizeof *values; i++) values[i] = i == 0 ? region.ordinal : NOWHERE;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

int cuMemRangeGetAttributes(void **data, size_t *dataSizes, int32_t *attributes, size_t numAttributes,
                            uint64_t devPtr, size_t count) {
  if (data == NULL || dataSizes == NULL || attributes == NULL || numAttributes == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  int result = CUDA_SUCCESS;
  for (size_t i = 0; i < numAttributes && result == CUDA_SUCCESS; i++)
    result = cuMemRangeGetAttribute(data[i], dataSizes[i], attributes[i], devPtr, count);
  return result;
}

enum { LOCATION_HOST = 2 }; /* CUmemLocationType */

/*
 * Managed memory is memory of the host, wherever it was prefetched to. Here no device reaches pageable memory
 * (PAGEABLE_MEMORY_ACCESS), so a range of it is invalid.
 */
int cuMemGetLocationInfo(uint64_t ptr, size_t size, size_t summaryGranularity, size_t samplingGranularity,
                         void *location_out) {
  int result;
  struct vgpu_region region;
  struct vgpu_location *locations = location_out;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (!vgpu_lent_possible()) return CUDA_ERROR_NOT_SUPPORTED;
  if (locations == NULL || summaryGranularity == 0 || summaryGranularity > size ||
      samplingGranularity > summaryGranularity || !vgpu_regions_find(&driver->regions, ptr, &region) ||
      region.kind != VGPU_REGION_MANAGED || size > region.size - (ptr - region.start)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < (size - 1) / summaryGranularity + 1; i++)
    locations[i] = (struct vgpu_location){.type = LOCATION_HOST};
  return CUDA_SUCCESS;
}

/* Memory is always usable as if attached to all streams. */
int cuStreamAttachMemAsync(struct vgpu_stream *hStream, uint64_t dptr, size_t length, uint32_t flags) {
  uint64_t number, context;
  int result;
  struct vgpu_region region;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  result = vgpu_cuda_stream_identity(driver, hStream, &number, &context);
  if (result != CUDA_SUCCESS) return result;
  bool managed = vgpu_regions_find(&driver->regions, dptr, &region) && region.kind == VGPU_REGION_MANAGED &&
                 (length == 0 || length == region.size);
  return managed && (flags == 1 || flags == 2 || flags == 4) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
