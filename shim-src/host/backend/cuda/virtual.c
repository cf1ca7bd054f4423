/*
 * Virtual memory on the host's GPU. The driver checks most; what is checked here is that the addresses and
 * the memory are this session's.
 */
#include <stdlib.h>

#include "host/backend/cuda/real.h"

#define GRANULARITY (2ull << 20)
#define LARGEST (1ull << 44)

struct vgpu_real_reservation {
  struct vgpu_real_reservation *next;
  uint64_t address;
  uint64_t size;
};

/* Memory is accounted until neither a handle of the guest nor a mapping holds it. */
struct vgpu_real_physical {
  struct vgpu_real_physical *next;
  uint64_t number; /* 0: the guest has no handle (any more) */
  uint64_t handle; /* the driver's, which is kept as long as this */
  uint64_t size;
  uint32_t device;
  uint32_t mappings;
};

struct vgpu_real_mapping {
  struct vgpu_real_mapping *next;
  uint64_t address;
  uint64_t size;
  struct vgpu_real_physical *physical;
};

static bool is_range(uint64_t start, uint64_t size) {
  return size != 0 && size <= LARGEST && size % GRANULARITY == 0 && start % GRANULARITY == 0 &&
         start + size > start;
}

static bool has_room(const struct vgpu_worker *worker, const struct vgpu_real *real) {
  return real->virtual.count + real->ranges.count + worker->handles.count < worker->limits->session_handles;
}

int32_t vgpu_real_cuMemAddressReserve(struct vgpu_worker *worker,
                                      const struct vgpu_send_cuMemAddressReserve *send,
                                      struct vgpu_reply_cuMemAddressReserve *reply) {
  struct vgpu_real *real;
  int32_t result = vgpu_real_open(worker, &real);
  if (result != VGPU_REAL_SUCCESS) return result;
  if (!is_range(0, send->size)) return VGPU_REAL_INVALID_VALUE;
  struct vgpu_real_reservation *made = malloc(sizeof *made);
  if (made == NULL || !has_room(worker, real)) {
    free(made);
    return VGPU_REAL_OUT_OF_MEMORY;
  }
  uint64_t address = 0;
  result =
      VGPU_REAL(&real->api, cuMemAddressReserve, &address, send->size, send->alignment, send->address, 0);
  if (result != VGPU_REAL_SUCCESS) {
    free(made);
    return result;
  }
  *made = (struct vgpu_real_reservation){
      .next = real->virtual.reservations, .address = address, .size = send->size};
  real->virtual.reservations = made;
  real->virtual.count++;
  reply->address = address;
  return VGPU_REAL_SUCCESS;
}

int32_t vgpu_real_cuMemAddressFree(struct vgpu_worker *worker,
                                   const struct vgpu_send_cuMemAddressFree *send) {
  struct vgpu_real *real;
  int32_t result = vgpu_real_open(worker, &real);
  if (result != VGPU_REAL_SUCCESS) return result;
  for (struct vgpu_real_reservation **link = &real->virtual.reservations; *link != NULL;
       link = &(*link)->next) {
    struct vgpu_real_reservation *found = *link;
    if (found->address != send->address || found->size != send->size) continue;
    result = VGPU_REAL(&real->api, cuMemAddressFree, send->address, send->size);
    if (result != VGPU_REAL_SUCCESS) return result;
    *link = found->next;
    free(found);
    real->virtual.count--;
    return VGPU_REAL_SUCCESS;
  }
  return VGPU_REAL_INVALID_VALUE;
}

static struct vgpu_real_physical *find_physical(const struct vgpu_real *real, uint64_t number) {
  struct vgpu_real_physical *physical = number == 0 ? NULL : real->virtual.physicals;
  while (physical != NULL && physical->number != number) physical = physical->next;
  return physical;
}

int32_t vgpu_real_cuMemCreate(struct vgpu_worker *worker, const struct vgpu_send_cuMemCreate *send) {
  struct vgpu_real *real;
  int32_t result = vgpu_real_open(worker, &real);
  if (result != VGPU_REAL_SUCCESS) return result;
  if (send->device >= worker->inventory->count) return VGPU_REAL_INVALID_DEVICE;
  if (send->handle == 0 || !is_range(0, send->size) || find_physical(real, send->handle) != NULL) {
    return VGPU_REAL_INVALID_VALUE;
  }
  struct vgpu_real_physical *made = malloc(sizeof *made);
  if (made == NULL || !has_room(worker, real) ||
      !vgpu_accounts_take(worker->accounts, worker->slot, send->device, send->size,
                          worker->limits->session_memory)) {
    free(made);
    return VGPU_REAL_OUT_OF_MEMORY;
  }
  uint32_t properties[8] = {1, 0, 1, send->device}; /* CUmemAllocationProp: pinned, no handles, on a device */
  uint64_t handle = 0;
  result = VGPU_REAL(&real->api, cuMemCreate, &handle, send->size, properties, 0);
  if (result != VGPU_REAL_SUCCESS) {
    vgpu_accounts_give(worker->accounts, worker->slot, send->device, send->size);
    free(made);
    return result;
  }
  *made = (struct vgpu_real_physical){.next = real->virtual.physicals,
                                      .number = send->handle,
                                      .handle = handle,
                                      .size = send->size,
                                      .device = send->device};
  real->virtual.physicals = made;
  real->virtual.count++;
  return VGPU_REAL_SUCCESS;
}

static int32_t drop_if_unused(struct vgpu_worker *worker, struct vgpu_real_physical *physical) {
  if (physical->number != 0 || physical->mappings > 0) return VGPU_REAL_SUCCESS;
  struct vgpu_real *real = worker->real;
  struct vgpu_real_physical **link = &real->virtual.physicals;
  while (*link != physical) link = &(*link)->next;
  *link = physical->next;
  int32_t result = VGPU_REAL(&real->api, cuMemRelease, physical->handle);
  vgpu_accounts_give(worker->accounts, worker->slot, physical->device, physical->size);
  free(physical);
  real->virtual.count--;
  return result;
}

int32_t vgpu_real_cuMemRelease(struct vgpu_worker *worker, const struct vgpu_send_cuMemRelease *send) {
  struct vgpu_real *real;
  int32_t result = vgpu_real_open(worker, &real);
  if (result != VGPU_REAL_SUCCESS) return result;
  struct vgpu_real_physical *physical = find_physical(real, send->handle);
  if (physical == NULL) return VGPU_REAL_INVALID_VALUE;
  physical->number = 0;
  return drop_if_unused(worker, physical);
}

int32_t vgpu_real_cuMemMap(struct vgpu_worker *worker, const struct vgpu_send_cuMemMap *send) {
  struct vgpu_real *real;
  int32_t result = vgpu_real_open(worker, &real);
  if (result != VGPU_REAL_SUCCESS) return result;
  struct vgpu_real_physical *physical = find_physical(real, send->handle);
  const struct vgpu_real_reservation *reservation = real->virtual.reservations;
  while (reservation != NULL &&
         (send->address < reservation->address || send->address - reservation->address > reservation->size ||
          send->size > reservation->size - (send->address - reservation->address))) {
    reservation = reservation->next;
  }
  if (physical == NULL || reservation == NULL || send->offset != 0 || !is_range(send->address, send->size) ||
      send->size > physical->size) {
    return VGPU_REAL_INVALID_VALUE;
  }
  struct vgpu_real_mapping *made = malloc(sizeof *made);
  if (made == NULL || !has_room(worker, real)) {
    free(made);
    return VGPU_REAL_OUT_OF_MEMORY;
  }
  result = VGPU_REAL(&real->api, cuMemMap, send->address, send->size, 0, physical->handle, 0);
  struct vgpu_range range = {
      .address = send->address, .size = send->size, .device = physical->device, .kind = VGPU_RANGE_MAPPED};
  if (result == VGPU_REAL_SUCCESS && !vgpu_ranges_add(&real->ranges, &range)) {
    VGPU_REAL(&real->api, cuMemUnmap, send->address, send->size);
    result = VGPU_REAL_OUT_OF_MEMORY;
  }
  if (result != VGPU_REAL_SUCCESS) {
    free(made);
    return result;
  }
  *made = (struct vgpu_real_mapping){
      .next = real->virtual.mappings, .address = send->address, .size = send->size, .physical = physical};
  real->virtual.mappings = made;
  real->virtual.count++;
  physical->mappings++;
  return VGPU_REAL_SUCCESS;
}

/* Bytes of the session's mappings that lie wholly in the range: all of it, or the range is not theirs. */
static bool is_mapped(const struct vgpu_real *real, uint64_t address, uint64_t size) {
  if (!is_range(address, size)) return false;
  uint64_t mapped = 0;
  for (const struct vgpu_real_mapping *mapping = real->virtual.mappings; mapping != NULL;
       mapping = mapping->next) {
    if (mapping->address >= address && mapping->address - address < size &&
        mapping->size <= size - (mapping->address - address)) {
      mapped += mapping->size;
    }
  }
  return mapped == size;
}

int32_t vgpu_real_cuMemUnmap(struct vgpu_worker *worker, const struct vgpu_send_cuMemUnmap *send) {
  struct vgpu_real *real;
  int32_t result = vgpu_real_open(worker, &real);
  if (result != VGPU_REAL_SUCCESS) return result;
  if (!is_mapped(real, send->address, send->size)) return VGPU_REAL_INVALID_VALUE;
  result = VGPU_REAL(&real->api, cuMemUnmap, send->address, send->size);
  if (result != VGPU_REAL_SUCCESS) return result;
  for (struct vgpu_real_mapping **link = &real->virtual.mappings; *link != NULL;) {
    struct vgpu_real_mapping *mapping = *link;
    if (mapping->address < send->address || mapping->address - send->address >= send->size) {
      link = &mapping->next;
      continue;
    }
    struct vgpu_range removed;
    vgpu_ranges_remove(&real->ranges, mapping->address, VGPU_RANGE_MAPPED, &removed);
    *link = mapping->next;
    real->virtual.count--;
    mapping->physical->mappings--;
    drop_if_unused(worker, mapping->physical);
    free(mapping);
  }
  return VGPU_REAL_SUCCESS;
}

int32_t vgpu_real_cuMemSetAccess(struct vgpu_worker *worker, const struct vgpu_send_cuMemSetAccess *send) {
  struct vgpu_real *real;
  int32_t result = vgpu_real_open(worker, &real);
  if (result != VGPU_REAL_SUCCESS) return result;
  if (send->device >= worker->inventory->count) return VGPU_REAL_INVALID_DEVICE;
  if (!is_mapped(real, send->address, send->size)) return VGPU_REAL_INVALID_VALUE;
  uint32_t access[3] = {1, send->device, send->flags}; /* CUmemAccessDesc: a device, which, how */
  return VGPU_REAL(&real->api, cuMemSetAccess, send->address, send->size, access, 1);
}

int32_t vgpu_real_retain_handle(struct vgpu_worker *worker, const struct vgpu_send_retain_handle *send) {
  struct vgpu_real *real;
  int32_t result = vgpu_real_open(worker, &real);
  if (result != VGPU_REAL_SUCCESS) return result;
  if (send->handle == 0 || find_physical(real, send->handle) != NULL) return VGPU_REAL_INVALID_VALUE;
  const struct vgpu_real_mapping *mapping = real->virtual.mappings;
  while (mapping != NULL &&
         (send->address < mapping->address || send->address - mapping->address >= mapping->size)) {
    mapping = mapping->next;
  }
  if (mapping == NULL || mapping->physical->number != 0) return VGPU_REAL_INVALID_VALUE;
  mapping->physical->number = send->handle;
  return VGPU_REAL_SUCCESS;
}
