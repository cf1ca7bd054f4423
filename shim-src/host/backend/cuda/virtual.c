/*
 * Virtual memory on the host's GPU. The driver checks most values. This file checks that addresses and memory
 * belong to this session.
 */
#include <stdlib.h>
#include <unistd.h>

#include "host/backend/cuda/session.h"

#define GRANULARITY (2ull << 20)
#define LARGEST (1ull << 44)
#define POSIX_FD 1u /* CUmemAllocationHandleType */
/* The first words of CUmemAllocationProp: type, handle types, location type, device. */
#define PINNED 1u
#define ON_DEVICE 1u

struct vgpu_cuda_reservation {
  struct vgpu_cuda_reservation *next;
  uint64_t address;
  uint64_t size;
};

/* Physical memory. It is accounted while a handle of the guest or a mapping holds it. */
struct vgpu_cuda_physical {
  struct vgpu_cuda_physical *next;
  uint64_t number; /* 0: the guest has no handle, or no longer */
  uint64_t handle; /* the driver's handle, which is kept as long as this structure */
  uint64_t size;
  uint32_t device;
  uint32_t mappings;
  struct vgpu_token token; /* by which other sessions open it; both words 0: it is not shared */
};

struct vgpu_cuda_mapping {
  struct vgpu_cuda_mapping *next;
  uint64_t address;
  uint64_t size;
  struct vgpu_cuda_physical *physical;
};

static bool is_range(uint64_t start, uint64_t size) {
  return size != 0 && size <= LARGEST && size % GRANULARITY == 0 && start % GRANULARITY == 0 &&
         start + size > start;
}

static bool has_room(const struct vgpu_worker *worker, const struct vgpu_cuda *cuda) {
  return cuda->virtual.count + cuda->ranges.count + worker->handles.count < worker->limits->session_handles;
}

int32_t vgpu_cuda_cuMemAddressReserve(struct vgpu_worker *worker,
                                      const struct vgpu_send_cuMemAddressReserve *send,
                                      struct vgpu_reply_cuMemAddressReserve *reply) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (!is_range(0, send->size)) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_cuda_reservation *made = malloc(sizeof *made);
  if (made == NULL || !has_room(worker, cuda)) {
    free(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  uint64_t address = 0;
  result =
      VGPU_DRIVER(&cuda->api, cuMemAddressReserve, &address, send->size, send->alignment, send->address, 0);
  if (result != CUDA_SUCCESS) {
    free(made);
    return result;
  }
  *made = (struct vgpu_cuda_reservation){
      .next = cuda->virtual.reservations, .address = address, .size = send->size};
  cuda->virtual.reservations = made;
  cuda->virtual.count++;
  reply->address = address;
  return CUDA_SUCCESS;
}

/* True if the session has a mapping anywhere in the range. */
static bool has_mapping(const struct vgpu_cuda *cuda, uint64_t address, uint64_t size) {
  const struct vgpu_cuda_mapping *mapping = cuda->virtual.mappings;
  while (mapping != NULL &&
         (mapping->address >= address + size || mapping->address + mapping->size <= address))
    mapping = mapping->next;
  return mapping != NULL;
}

static int32_t free_addresses(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  return VGPU_DRIVER(api, cuMemAddressFree, ending->address, ending->size);
}

int32_t vgpu_cuda_cuMemAddressFree(struct vgpu_worker *worker,
                                   const struct vgpu_send_cuMemAddressFree *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  for (struct vgpu_cuda_reservation **link = &cuda->virtual.reservations; *link != NULL;
       link = &(*link)->next) {
    struct vgpu_cuda_reservation *found = *link;
    if (found->address != send->address || found->size != send->size) continue;
    if (has_mapping(cuda, send->address, send->size)) return CUDA_ERROR_INVALID_VALUE;
    *link = found->next;
    free(found);
    cuda->virtual.count--;
    return vgpu_cuda_end(worker, &(struct vgpu_cuda_ending){
                                     .end = free_addresses, .address = send->address, .size = send->size});
  }
  return CUDA_ERROR_INVALID_VALUE;
}

static struct vgpu_cuda_physical *find_physical(const struct vgpu_cuda *cuda, uint64_t number) {
  struct vgpu_cuda_physical *physical = number == 0 ? NULL : cuda->virtual.physicals;
  while (physical != NULL && physical->number != number) physical = physical->next;
  return physical;
}

int32_t vgpu_cuda_cuMemCreate(struct vgpu_worker *worker, const struct vgpu_send_cuMemCreate *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (send->device >= worker->inventory->count) return CUDA_ERROR_INVALID_DEVICE;
  if (send->handle == 0 || !is_range(0, send->size) || find_physical(cuda, send->handle) != NULL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct vgpu_cuda_physical *made = malloc(sizeof *made);
  if (made == NULL || !has_room(worker, cuda) ||
      !vgpu_accounts_take(worker->accounts, worker->slot, send->device, send->size,
                          worker->limits->session_memory)) {
    free(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if ((send->handle_types & ~POSIX_FD) != 0) {
    vgpu_accounts_give(worker->accounts, worker->slot, send->device, send->size);
    free(made);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  uint32_t properties[8] = {PINNED, send->handle_types, ON_DEVICE, send->device};
  uint64_t handle = 0;
  result = VGPU_DRIVER(&cuda->api, cuMemCreate, &handle, send->size, properties, 0);
  if (result != CUDA_SUCCESS) {
    vgpu_accounts_give(worker->accounts, worker->slot, send->device, send->size);
    vgpu_cuda_refused(worker, send->device, send->size, result);
    free(made);
    return result;
  }
  *made = (struct vgpu_cuda_physical){.next = cuda->virtual.physicals,
                                      .number = send->handle,
                                      .handle = handle,
                                      .size = send->size,
                                      .device = send->device};
  cuda->virtual.physicals = made;
  cuda->virtual.count++;
  return CUDA_SUCCESS;
}

static int32_t release_memory(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  return VGPU_DRIVER(api, cuMemRelease, ending->address);
}

/* Runs after mappings of it that the driver still removes. */
static int32_t drop_if_unused(struct vgpu_worker *worker, struct vgpu_cuda_physical *physical) {
  if (physical->number != 0 || physical->mappings > 0) return CUDA_SUCCESS;
  struct vgpu_cuda *cuda = cuda_of(worker);
  struct vgpu_cuda_physical **link = &cuda->virtual.physicals;
  while (*link != physical) link = &(*link)->next;
  *link = physical->next;
  vgpu_exchange_withdraw(worker, &physical->token);
  const struct vgpu_cuda_ending ending = {.end = release_memory,
                                          .address = physical->handle,
                                          .device = physical->device,
                                          .counted = physical->size};
  free(physical);
  cuda->virtual.count--;
  return vgpu_cuda_end(worker, &ending);
}

int32_t vgpu_cuda_cuMemRelease(struct vgpu_worker *worker, const struct vgpu_send_cuMemRelease *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_cuda_physical *physical = find_physical(cuda, send->handle);
  if (physical == NULL) return CUDA_ERROR_INVALID_VALUE;
  physical->number = 0;
  return drop_if_unused(worker, physical);
}

static int32_t unmap(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  return VGPU_DRIVER(api, cuMemUnmap, ending->address, ending->size);
}

int32_t vgpu_cuda_cuMemMap(struct vgpu_worker *worker, const struct vgpu_send_cuMemMap *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_cuda_physical *physical = find_physical(cuda, send->handle);
  const struct vgpu_cuda_reservation *reservation = cuda->virtual.reservations;
  while (reservation != NULL &&
         (send->address < reservation->address || send->address - reservation->address > reservation->size ||
          send->size > reservation->size - (send->address - reservation->address))) {
    reservation = reservation->next;
  }
  if (physical == NULL || reservation == NULL || send->offset != 0 || !is_range(send->address, send->size) ||
      send->size > physical->size) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  /* The driver refuses a range that is still mapped. */
  result = vgpu_cuda_await_ending_of(worker, &cuda->virtual, send->address, send->size);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_cuda_mapping *made = malloc(sizeof *made);
  if (made == NULL || !has_room(worker, cuda)) {
    free(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  result = VGPU_DRIVER(&cuda->api, cuMemMap, send->address, send->size, 0, physical->handle, 0);
  struct vgpu_range range = {
      .address = send->address, .size = send->size, .device = physical->device, .kind = VGPU_RANGE_MAPPED};
  if (result == CUDA_SUCCESS && !vgpu_ranges_add(&cuda->ranges, &range)) {
    (void)vgpu_cuda_end(
        worker, &(struct vgpu_cuda_ending){.end = unmap, .address = send->address, .size = send->size});
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) {
    free(made);
    return result;
  }
  *made = (struct vgpu_cuda_mapping){
      .next = cuda->virtual.mappings, .address = send->address, .size = send->size, .physical = physical};
  cuda->virtual.mappings = made;
  cuda->virtual.count++;
  physical->mappings++;
  return CUDA_SUCCESS;
}

/* True if whole mappings of the session fill the range. */
static bool is_mapped(const struct vgpu_cuda *cuda, uint64_t address, uint64_t size) {
  if (!is_range(address, size)) return false;
  uint64_t mapped = 0;
  for (const struct vgpu_cuda_mapping *mapping = cuda->virtual.mappings; mapping != NULL;
       mapping = mapping->next) {
    if (mapping->address >= address && mapping->address - address < size &&
        mapping->size <= size - (mapping->address - address)) {
      mapped += mapping->size;
    }
  }
  return mapped == size;
}

int32_t vgpu_cuda_cuMemUnmap(struct vgpu_worker *worker, const struct vgpu_send_cuMemUnmap *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (!is_mapped(cuda, send->address, send->size)) return CUDA_ERROR_INVALID_VALUE;
  result = vgpu_cuda_end(
      worker, &(struct vgpu_cuda_ending){
                  .end = unmap, .object = &cuda->virtual, .address = send->address, .size = send->size});
  if (result != CUDA_SUCCESS) return result;
  for (struct vgpu_cuda_mapping **link = &cuda->virtual.mappings; *link != NULL;) {
    struct vgpu_cuda_mapping *mapping = *link;
    if (mapping->address < send->address || mapping->address - send->address >= send->size) {
      link = &mapping->next;
      continue;
    }
    struct vgpu_range removed;
    vgpu_ranges_remove(&cuda->ranges, mapping->address, VGPU_RANGE_MAPPED, &removed);
    *link = mapping->next;
    cuda->virtual.count--;
    mapping->physical->mappings--;
    drop_if_unused(worker, mapping->physical);
    free(mapping);
  }
  return CUDA_SUCCESS;
}

int32_t vgpu_cuda_cuMemSetAccess(struct vgpu_worker *worker, const struct vgpu_send_cuMemSetAccess *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (send->device >= worker->inventory->count) return CUDA_ERROR_INVALID_DEVICE;
  if (!is_mapped(cuda, send->address, send->size)) return CUDA_ERROR_INVALID_VALUE;
  uint32_t access[3] = {1, send->device, send->flags}; /* CUmemAccessDesc: a device, which, how */
  return VGPU_DRIVER(&cuda->api, cuMemSetAccess, send->address, send->size, access, 1);
}

int32_t vgpu_cuda_retain_handle(struct vgpu_worker *worker, const struct vgpu_send_retain_handle *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (send->handle == 0 || find_physical(cuda, send->handle) != NULL) return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_cuda_mapping *mapping = cuda->virtual.mappings;
  while (mapping != NULL &&
         (send->address < mapping->address || send->address - mapping->address >= mapping->size)) {
    mapping = mapping->next;
  }
  if (mapping == NULL || mapping->physical->number != 0) return CUDA_ERROR_INVALID_VALUE;
  mapping->physical->number = send->handle;
  return CUDA_SUCCESS;
}

int32_t vgpu_cuda_share_physical(struct vgpu_worker *worker, uint64_t number, struct vgpu_token *token,
                                 uint64_t *bytes) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_cuda_physical *physical = find_physical(cuda, number);
  if (physical == NULL) return CUDA_ERROR_INVALID_VALUE;
  if ((physical->token.words[0] | physical->token.words[1]) == 0) {
    int file = -1;
    result =
        VGPU_DRIVER(&cuda->api, cuMemExportToShareableHandle, &file, physical->handle, (int32_t)POSIX_FD, 0);
    if (result == CUDA_SUCCESS)
      result = vgpu_exchange_publish(worker, VGPU_EXCHANGE_DRIVER, file, physical->size, &physical->token);
    if (file >= 0) close(file);
  }
  *token = physical->token;
  *bytes = physical->size;
  return result;
}

/* Counts for this session, too: the memory lives as long as any session has it. */
static int32_t adopt(struct vgpu_worker *worker, struct vgpu_cuda *cuda, struct vgpu_cuda_physical *made) {
  uint32_t properties[8] = {0};
  int32_t result = VGPU_DRIVER(&cuda->api, cuMemGetAllocationPropertiesFromHandle, properties, made->handle);
  if (result != CUDA_SUCCESS) return result;
  if (properties[2] != ON_DEVICE || properties[3] >= worker->inventory->count)
    return CUDA_ERROR_INVALID_DEVICE;
  made->device = properties[3];
  return vgpu_accounts_take(worker->accounts, worker->slot, made->device, made->size,
                            worker->limits->session_memory)
             ? CUDA_SUCCESS
             : CUDA_ERROR_OUT_OF_MEMORY;
}

int32_t vgpu_cuda_open_physical(struct vgpu_worker *worker, uint64_t number, const struct vgpu_token *token,
                                uint64_t *bytes) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (find_physical(cuda, number) != NULL) return CUDA_ERROR_INVALID_VALUE;
  int file = -1;
  result = vgpu_exchange_fetch(worker, VGPU_EXCHANGE_DRIVER, token, true, &file, bytes);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_cuda_physical *made =
      is_range(0, *bytes) && has_room(worker, cuda) ? malloc(sizeof *made) : NULL;
  result = CUDA_ERROR_OUT_OF_MEMORY;
  if (made != NULL) {
    *made = (struct vgpu_cuda_physical){.number = number, .size = *bytes};
    result = VGPU_DRIVER(&cuda->api, cuMemImportFromShareableHandle, &made->handle, (void *)(intptr_t)file,
                         (int32_t)POSIX_FD);
    if (result == CUDA_SUCCESS) {
      result = adopt(worker, cuda, made);
      if (result != CUDA_SUCCESS)
        (void)vgpu_cuda_end(worker,
                            &(struct vgpu_cuda_ending){.end = release_memory, .address = made->handle});
    }
  }
  close(file);
  if (result != CUDA_SUCCESS) {
    free(made);
    return result;
  }
  made->next = cuda->virtual.physicals;
  cuda->virtual.physicals = made;
  cuda->virtual.count++;
  return CUDA_SUCCESS;
}
