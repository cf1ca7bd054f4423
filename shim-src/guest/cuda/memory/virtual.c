/* The guest checks all calls, so that those which return only a status need not wait. */
#include "guest/cuda/memory/virtual.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/internal.h"

#define GRANULARITY (2ull << 20) /* as cuMemGetAllocationGranularity says */
#define LARGEST (1ull << 44)
#define HANDLE_POSIX_FD 1 /* CUmemAllocationHandleType */

struct properties {
  int32_t type; /* 1 pinned */
  int32_t handle_types;
  int32_t location_type; /* 1 device */
  int32_t location;
  void *win32;
  uint8_t compression;
  uint8_t rdma;
  uint16_t usage;
  uint8_t reserved[4];
};
_Static_assert(sizeof(struct properties) == 32, "CUmemAllocationProp");

struct access {
  int32_t location_type;
  int32_t location;
  uint32_t flags;
};

struct vgpu_reservation {
  struct vgpu_reservation *next;
  uint64_t start;
  uint64_t size;
};

struct vgpu_physical {
  struct vgpu_physical *next;
  uint64_t number; /* also the handle that the program has */
  uint64_t size;
  struct properties properties;
  uint32_t handles; /* times it was created, or retained by address */
  uint32_t mappings;
};

struct vgpu_mapping {
  struct vgpu_mapping *next;
  uint64_t start;
  uint64_t size;
  uint8_t access[VGPU_DEVICES_MAX]; /* CUmemAccess_flags of each visible device */
  struct vgpu_physical *physical;
};

/* True for a range of whole granules that does not wrap around. */
static bool is_range(uint64_t start, uint64_t size) {
  return size != 0 && size <= LARGEST && size % GRANULARITY == 0 && start % GRANULARITY == 0 &&
         start + size > start;
}

static struct vgpu_physical *find_physical(const struct vgpu_virtual *virtual, uint64_t handle) {
  struct vgpu_physical *physical = virtual->physicals;
  while (physical != NULL && (physical->number != handle || physical->handles == 0))
    physical = physical->next;
  return physical;
}

/* Mapped memory outlives its handle. The caller holds the lock. */
static void drop_if_unused(struct vgpu_virtual *virtual, struct vgpu_physical *physical) {
  if (physical->handles > 0 || physical->mappings > 0) return;
  struct vgpu_physical **link = &virtual->physicals;
  while (*link != physical) link = &(*link)->next;
  *link = physical->next;
  free(physical);
}

int cuMemAddressReserve(uint64_t *ptr, size_t size, size_t alignment, uint64_t addr, uint64_t flags) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (ptr != NULL && flags == 0 && size % GRANULARITY == 0 && size > LARGEST) return CUDA_ERROR_OUT_OF_MEMORY;
  if (ptr == NULL || flags != 0 || !is_range(0, size) || (alignment & (alignment - 1)) != 0 ||
      alignment > LARGEST) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct vgpu_reservation *reservation = malloc(sizeof *reservation);
  if (reservation == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  struct vgpu_send_cuMemAddressReserve send = {.size = size, .alignment = alignment, .address = addr};
  struct vgpu_reply_cuMemAddressReserve reply;
  result = vgpu_cuda_call(VGPU_OP_cuMemAddressReserve, &send, sizeof send, &reply, sizeof reply);
  if (result == CUDA_SUCCESS && !is_range(reply.address, size)) result = CUDA_ERROR_UNKNOWN;
  if (result != CUDA_SUCCESS) {
    free(reservation);
    return result;
  }
  pthread_mutex_lock(&driver->virtual.lock);
  *reservation =
      (struct vgpu_reservation){.next = driver->virtual.reservations, .start = reply.address, .size = size};
  driver->virtual.reservations = reservation;
  pthread_mutex_unlock(&driver->virtual.lock);
  *ptr = reply.address;
  return CUDA_SUCCESS;
}

static struct vgpu_mapping **first_mapping(struct vgpu_virtual *virtual, uint64_t start) {
  struct vgpu_mapping **link = &virtual->mappings;
  while (*link != NULL && (*link)->start + (*link)->size <= start) link = &(*link)->next;
  return link;
}

/* True if mappings cover exactly this range. The caller holds the lock. */
static bool covers(struct vgpu_virtual *virtual, uint64_t start, uint64_t size) {
  uint64_t at = start;
  for (struct vgpu_mapping *mapping = *first_mapping(virtual, start); at < start + size;
       mapping = mapping->next) {
    if (mapping == NULL || mapping->start != at) return false;
    at += mapping->size;
  }
  return at == start + size;
}

int cuMemAddressFree(uint64_t ptr, size_t size) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_virtual *virtual = &driver->virtual;
  pthread_mutex_lock(&virtual->lock);
  struct vgpu_reservation **link = &virtual->reservations;
  while (*link != NULL && ((*link)->start != ptr || (*link)->size != size)) link = &(*link)->next;
  struct vgpu_reservation *found = *link;
  const struct vgpu_mapping *inside = found == NULL ? NULL : *first_mapping(virtual, ptr);
  if (found == NULL || (inside != NULL && inside->start < ptr + size)) {
    result = CUDA_ERROR_INVALID_VALUE;
  } else {
    *link = found->next;
    free(found);
  }
  pthread_mutex_unlock(&virtual->lock);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_send_cuMemAddressFree send = {.address = ptr, .size = size};
  return vgpu_cuda_post(VGPU_OP_cuMemAddressFree, &send, sizeof send, NULL, 0);
}

int cuMemCreate(uint64_t *handle, size_t size, const void *prop, uint64_t flags) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (handle == NULL || prop == NULL || flags != 0 || !is_range(0, size)) return CUDA_ERROR_INVALID_VALUE;
  struct properties properties;
  memcpy(&properties, prop, sizeof properties);
  if (properties.type != 1 || properties.location_type < 1 || properties.location_type > 4) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  /* Host memory is not carried; the attributes say so. */
  if (properties.location_type != 1) return CUDA_ERROR_NOT_SUPPORTED;
  if ((properties.handle_types & ~HANDLE_POSIX_FD) != 0) return CUDA_ERROR_NOT_PERMITTED;
  if (properties.location < 0 || properties.location >= driver->device_count)
    return CUDA_ERROR_INVALID_DEVICE;
  properties.compression = 0;
  properties.rdma = 0;
  struct vgpu_physical *physical = malloc(sizeof *physical);
  if (physical == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&driver->lock);
  uint64_t number = vgpu_cuda_next_number(driver);
  pthread_mutex_unlock(&driver->lock);
  /* Waits: a program must learn whether there is enough memory. */
  struct vgpu_send_cuMemCreate send = {
      .handle = number, .size = size, .device = driver->host_index[properties.location]};
  if (properties.handle_types != 0 && vgpu_physical_shares_possible(properties.location))
    send.handle_types = HANDLE_POSIX_FD;
  result = vgpu_cuda_call(VGPU_OP_cuMemCreate, &send, sizeof send, NULL, 0);
  if (result != CUDA_SUCCESS) {
    free(physical);
    return result;
  }
  pthread_mutex_lock(&driver->virtual.lock);
  *physical = (struct vgpu_physical){.next = driver->virtual.physicals,
                                     .number = number,
                                     .size = size,
                                     .properties = properties,
                                     .handles = 1};
  driver->virtual.physicals = physical;
  pthread_mutex_unlock(&driver->virtual.lock);
  *handle = number;
  return CUDA_SUCCESS;
}

int cuMemRelease(uint64_t handle) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  pthread_mutex_lock(&driver->virtual.lock);
  struct vgpu_physical *physical = find_physical(&driver->virtual, handle);
  bool last = physical != NULL && --physical->handles == 0;
  if (last) drop_if_unused(&driver->virtual, physical);
  pthread_mutex_unlock(&driver->virtual.lock);
  if (physical == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!last) return CUDA_SUCCESS;
  struct vgpu_send_cuMemRelease send = {.handle = handle};
  return vgpu_cuda_post(VGPU_OP_cuMemRelease, &send, sizeof send, NULL, 0);
}

/* Adds a mapping. The caller holds the lock. */
static int add_mapping(struct vgpu_driver *driver, struct vgpu_physical *physical, uint64_t start,
                       uint64_t size) {
  struct vgpu_virtual *virtual = &driver->virtual;
  const struct vgpu_reservation *reservation = virtual->reservations;
  while (reservation != NULL &&
         (start < reservation->start || start + size > reservation->start + reservation->size)) {
    reservation = reservation->next;
  }
  struct vgpu_mapping **link = first_mapping(virtual, start);
  if (reservation == NULL || size > physical->size || (*link != NULL && (*link)->start < start + size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct vgpu_mapping *mapping = malloc(sizeof *mapping);
  if (mapping == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  struct vgpu_region region = {
      .start = start, .size = size, .kind = VGPU_REGION_MAPPED, .ordinal = physical->properties.location};
  if (vgpu_regions_add(&driver->regions, &region) != VGPU_REGIONS_OK) {
    free(mapping);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *mapping = (struct vgpu_mapping){.next = *link, .start = start, .size = size, .physical = physical};
  *link = mapping;
  physical->mappings++;
  return CUDA_SUCCESS;
}

int cuMemMap(uint64_t ptr, size_t size, size_t offset, uint64_t handle, uint64_t flags) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (offset != 0 || flags != 0 || !is_range(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&driver->virtual.lock);
  struct vgpu_physical *physical = find_physical(&driver->virtual, handle);
  result = physical == NULL ? CUDA_ERROR_INVALID_VALUE : add_mapping(driver, physical, ptr, size);
  pthread_mutex_unlock(&driver->virtual.lock);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_send_cuMemMap send = {.address = ptr, .size = size, .handle = handle};
  return vgpu_cuda_call(VGPU_OP_cuMemMap, &send, sizeof send, NULL, 0);
}

int cuMemUnmap(uint64_t ptr, size_t size) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (!is_range(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_virtual *virtual = &driver->virtual;
  pthread_mutex_lock(&virtual->lock);
  if (!covers(virtual, ptr, size)) {
    result = CUDA_ERROR_INVALID_VALUE;
  } else {
    struct vgpu_mapping **link = first_mapping(virtual, ptr);
    while (*link != NULL && (*link)->start < ptr + size) {
      struct vgpu_mapping *mapping = *link;
      struct vgpu_region region;
      *link = mapping->next;
      vgpu_regions_remove(&driver->regions, mapping->start, VGPU_REGION_MAPPED, &region);
      mapping->physical->mappings--;
      drop_if_unused(virtual, mapping->physical);
      free(mapping);
    }
  }
  pthread_mutex_unlock(&virtual->lock);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_send_cuMemUnmap send = {.address = ptr, .size = size};
  return vgpu_cuda_post(VGPU_OP_cuMemUnmap, &send, sizeof send, NULL, 0);
}

static int check_access(const struct vgpu_driver *driver, const struct access *access,
                        const struct vgpu_mapping *mapping) {
  int32_t home = mapping->physical->properties.location;
  if (access->flags != 0 && access->flags != 1 && access->flags != 3) return CUDA_ERROR_INVALID_VALUE;
  if (access->location_type != 1) return CUDA_ERROR_INVALID_VALUE;
  if (access->location < 0 || access->location >= driver->device_count) return CUDA_ERROR_INVALID_DEVICE;
  return access->location == home || vgpu_peer_possible(access->location, home) ? CUDA_SUCCESS
                                                                                : CUDA_ERROR_INVALID_DEVICE;
}

static bool is_accessible(const struct vgpu_mapping *mapping) {
  static const uint8_t none[VGPU_DEVICES_MAX];
  return memcmp(mapping->access, none, sizeof none) != 0;
}

int cuMemSetAccess(uint64_t ptr, size_t size, const void *desc, size_t count) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (desc == NULL || count == 0 || count > VGPU_DEVICES_MAX || !is_range(ptr, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct access accesses[VGPU_DEVICES_MAX];
  memcpy(accesses, desc, count * sizeof *accesses);
  struct vgpu_virtual *virtual = &driver->virtual;
  pthread_mutex_lock(&virtual->lock);
  if (!covers(virtual, ptr, size)) result = CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    struct vgpu_mapping *mapping = *first_mapping(virtual, ptr);
    for (; mapping != NULL && mapping->start < ptr + size && result == CUDA_SUCCESS;
         mapping = mapping->next) {
      result = check_access(driver, &accesses[i], mapping);
      if (result == CUDA_SUCCESS) mapping->access[accesses[i].location] = (uint8_t)accesses[i].flags;
    }
  }
  for (struct vgpu_mapping *mapping = *first_mapping(virtual, ptr);
       result == CUDA_SUCCESS && mapping != NULL && mapping->start < ptr + size; mapping = mapping->next) {
    vgpu_regions_set_access(&driver->regions, mapping->start, mapping->size, is_accessible(mapping));
  }
  pthread_mutex_unlock(&virtual->lock);
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    struct vgpu_send_cuMemSetAccess send = {.address = ptr,
                                            .size = size,
                                            .device = driver->host_index[accesses[i].location],
                                            .flags = accesses[i].flags};
    result = vgpu_cuda_post(VGPU_OP_cuMemSetAccess, &send, sizeof send, NULL, 0);
  }
  return result;
}

/* Finds the mapping that contains an address. The caller holds the lock. */
static struct vgpu_mapping *find_mapping(struct vgpu_virtual *virtual, uint64_t address) {
  struct vgpu_mapping *mapping = *first_mapping(virtual, address);
  return mapping != NULL && mapping->start <= address ? mapping : NULL;
}

int cuMemGetAccess(uint64_t *flags, const void *location, uint64_t ptr) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (flags == NULL || location == NULL) return CUDA_ERROR_INVALID_VALUE;
  int32_t place[2]; /* type, id */
  memcpy(place, location, sizeof place);
  if (place[0] != 1) return CUDA_ERROR_INVALID_VALUE;
  if (place[1] < 0 || place[1] >= driver->device_count) return CUDA_ERROR_INVALID_DEVICE;
  pthread_mutex_lock(&driver->virtual.lock);
  const struct vgpu_mapping *mapping = find_mapping(&driver->virtual, ptr);
  if (mapping != NULL) *flags = mapping->access[place[1]];
  pthread_mutex_unlock(&driver->virtual.lock);
  return mapping == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

int cuMemRetainAllocationHandle(uint64_t *handle, void *addr) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (handle == NULL) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&driver->virtual.lock);
  struct vgpu_mapping *mapping = find_mapping(&driver->virtual, (uint64_t)(uintptr_t)addr);
  bool again = mapping != NULL && mapping->physical->handles == 0;
  if (mapping != NULL) {
    mapping->physical->handles++;
    *handle = mapping->physical->number;
  }
  pthread_mutex_unlock(&driver->virtual.lock);
  if (mapping == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!again) return CUDA_SUCCESS;
  /* The host has dropped the handle and knows only the mapping. */
  struct vgpu_send_retain_handle send = {.address = (uint64_t)(uintptr_t)addr, .handle = *handle};
  return vgpu_cuda_post(VGPU_OP_retain_handle, &send, sizeof send, NULL, 0);
}

int cuMemGetAllocationPropertiesFromHandle(void *prop, uint64_t handle) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (prop == NULL) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&driver->virtual.lock);
  const struct vgpu_physical *physical = find_physical(&driver->virtual, handle);
  if (physical != NULL) memcpy(prop, &physical->properties, sizeof physical->properties);
  pthread_mutex_unlock(&driver->virtual.lock);
  return physical == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

int32_t vgpu_physical_exportable(struct vgpu_driver *driver, uint64_t handle) {
  pthread_mutex_lock(&driver->virtual.lock);
  const struct vgpu_physical *physical = find_physical(&driver->virtual, handle);
  bool can = physical != NULL && (physical->properties.handle_types & HANDLE_POSIX_FD) != 0;
  int32_t ordinal = can ? physical->properties.location : -1;
  pthread_mutex_unlock(&driver->virtual.lock);
  return ordinal;
}

bool vgpu_physical_adopt(struct vgpu_driver *driver, uint64_t number, uint64_t size, int32_t ordinal) {
  struct vgpu_physical *physical = malloc(sizeof *physical);
  if (physical == NULL) return false;
  pthread_mutex_lock(&driver->virtual.lock);
  *physical = (struct vgpu_physical){
      .next = driver->virtual.physicals,
      .number = number,
      .size = size,
      .properties = {.type = 1, .handle_types = HANDLE_POSIX_FD, .location_type = 1, .location = ordinal},
      .handles = 1};
  driver->virtual.physicals = physical;
  pthread_mutex_unlock(&driver->virtual.lock);
  return true;
}
