/*
 * Sharing between processes of one guest: memory and events by handles of 64 bytes (cuIpc*), physical memory
 * and pools by files. Each handle or file contains a ticket with a token that the host makes and accepts only
 * from processes of the same guest.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/device_attributes.h"
#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/internal.h"
#include "guest/cuda/memory/pool.h"
#include "guest/cuda/memory/virtual.h"

#define POSIX_FD 1 /* CUmemAllocationHandleType */
#define LAZY_PEER_ACCESS 1u
#define BETWEEN_PROCESSES 4u /* CU_EVENT_INTERPROCESS */

enum ticket_kind { TICKET_MEMORY = 1, TICKET_PHYSICAL, TICKET_EVENT, TICKET_POOL, TICKET_POOL_MEMORY };

static const char magic[8] = {'v', 'g', 'p', 'u', 's', 'h', 'r', '1'};

/* CUipcMemHandle, CUipcEventHandle, CUmemPoolPtrExportData */
struct ticket {
  char magic[8];
  uint64_t token[2];
  uint64_t bytes;
  uint32_t kind;
  uint32_t device; /* index of the device at the host */
  unsigned char reserved[24];
};
_Static_assert(sizeof(struct ticket) == 64, "CU_IPC_HANDLE_SIZE");

/*
 * True if the device can share a type of handle. `attribute`: the device attribute that says so for a GPU; a
 * simulated GPU does not need it.
 */
static bool is_shared(int32_t ordinal, int32_t attribute) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  const struct vgpu_device_facts *facts = vgpu_cuda_device_facts(ordinal);
  if (driver == NULL || facts == NULL || !vgpu_session_shares(driver->session)) return false;
  return vgpu_session_exchanges(driver->session) || (facts->attributes[attribute] & POSIX_FD) != 0;
}

bool vgpu_physical_shares_possible(int32_t ordinal) {
  return is_shared(ordinal, VGPU_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
}

bool vgpu_pool_shares_possible(int32_t ordinal) {
  return is_shared(ordinal, VGPU_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES);
}

bool vgpu_ipc_possible(void) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  return driver != NULL && vgpu_session_has_ipc(driver->session);
}

static struct ticket ticket_of(enum ticket_kind kind, uint32_t device) {
  struct ticket ticket = {.kind = kind, .device = device};
  memcpy(ticket.magic, magic, sizeof magic);
  return ticket;
}

static bool is_ticket(const struct ticket *ticket, enum ticket_kind kind) {
  return memcmp(ticket->magic, magic, sizeof magic) == 0 && ticket->kind == (uint32_t)kind;
}

/* Returns the visible device of a ticket; -1: this process does not see it. */
static int32_t ordinal_of(const struct vgpu_driver *driver, const struct ticket *ticket) {
  for (int32_t i = 0; i < driver->device_count; i++) {
    if (driver->host_index[i] == ticket->device) return i;
  }
  return -1;
}

static int ask_to_share(uint64_t context, uint64_t address, uint64_t handle, struct ticket *ticket) {
  struct vgpu_send_share_memory send = {.context = context, .address = address, .handle = handle};
  struct vgpu_reply_share_memory reply = {0};
  if (!vgpu_ipc_possible()) return CUDA_ERROR_NOT_SUPPORTED;
  int result = vgpu_cuda_call(VGPU_OP_share_memory, &send, sizeof send, &reply, sizeof reply);
  ticket->token[0] = reply.token_0;
  ticket->token[1] = reply.token_1;
  ticket->bytes = reply.bytes;
  return result;
}

static int share_address(uint64_t address, enum ticket_kind kind, void *to) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_region region;
  bool pooled = kind == TICKET_POOL_MEMORY;
  if (to == NULL || !vgpu_regions_find(&driver->regions, address, &region) ||
      region.kind != VGPU_REGION_DEVICE || region.module != 0 || region.opened ||
      (region.pool != 0) != pooled) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const struct vgpu_pool *pool = pooled ? vgpu_pool_numbered(driver, region.pool) : NULL;
  if (pooled && (pool == NULL || !pool->exportable)) return CUDA_ERROR_INVALID_VALUE;
  struct ticket ticket = ticket_of(kind, driver->host_index[region.ordinal]);
  result = ask_to_share(region.context, region.start, 0, &ticket);
  if (result == CUDA_SUCCESS) memcpy(to, &ticket, sizeof ticket);
  return result;
}

/* Opens shared device memory. `pool` is the imported pool that it comes from, or NULL. */
static int open_ticket(const struct ticket *ticket, const struct vgpu_pool *pool, uint64_t *address) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (!vgpu_ipc_possible()) return CUDA_ERROR_NOT_SUPPORTED;
  struct vgpu_context *context = NULL;
  struct vgpu_send_open_memory send = {.token_0 = ticket->token[0],
                                       .token_1 = ticket->token[1],
                                       .bytes = ticket->bytes,
                                       .handle = pool != NULL && pool->of_driver ? pool->number : 0,
                                       .device = ticket->device,
                                       .pooled = pool != NULL};
  result = vgpu_cuda_owner(driver, &context, &send.context);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_reply_open_memory reply;
  result = vgpu_cuda_call(VGPU_OP_open_memory, &send, sizeof send, &reply, sizeof reply);
  if (result != CUDA_SUCCESS) return result;
  int32_t ordinal = ordinal_of(driver, ticket);
  struct vgpu_region region = {.start = reply.address,
                               .size = reply.bytes,
                               .kind = VGPU_REGION_DEVICE,
                               .context = send.context,
                               .ordinal = ordinal >= 0 ? ordinal : context->ordinal,
                               .pool = pool == NULL ? 0 : pool->number,
                               .opened = true};
  if (vgpu_regions_add(&driver->regions, &region) != VGPU_REGIONS_OK) {
    struct vgpu_send_cuMemFree_v2 back = {.context = send.context, .address = reply.address};
    vgpu_cuda_post(VGPU_OP_cuMemFree_v2, &back, sizeof back, NULL, 0);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = reply.address;
  return CUDA_SUCCESS;
}

int cuIpcGetMemHandle(void *pHandle, uint64_t dptr) {
  return share_address(dptr, TICKET_MEMORY, pHandle);
}

int cuIpcOpenMemHandle_v2(uint64_t *pdptr, struct vgpu_value64 handle, uint32_t Flags) {
  struct ticket ticket;
  memcpy(&ticket, &handle, sizeof ticket);
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (pdptr == NULL || Flags != LAZY_PEER_ACCESS || !is_ticket(&ticket, TICKET_MEMORY))
    return CUDA_ERROR_INVALID_VALUE;
  return open_ticket(&ticket, NULL, pdptr);
}

int cuIpcOpenMemHandle(uint64_t *pdptr, struct vgpu_value64 handle, uint32_t Flags) {
  return cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

int cuIpcCloseMemHandle(uint64_t dptr) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_region region;
  if (!vgpu_regions_find(&driver->regions, dptr, &region) || !region.opened || region.pool != 0 ||
      !vgpu_regions_remove(&driver->regions, dptr, VGPU_REGION_DEVICE, &region)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct vgpu_send_cuMemFree_v2 send = {.context = region.context, .address = dptr};
  return vgpu_cuda_post(VGPU_OP_cuMemFree_v2, &send, sizeof send, NULL, 0);
}

int cuIpcGetEventHandle(void *pHandle, struct vgpu_event *event) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_send_share_event send = {0};
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_has(&driver->objects, event, VGPU_OBJECT_EVENT);
  bool shared = live && (event->flags & BETWEEN_PROCESSES) != 0;
  if (live) send.event = event->number;
  pthread_mutex_unlock(&driver->lock);
  if (!live) return CUDA_ERROR_INVALID_HANDLE;
  if (pHandle == NULL || !shared) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_reply_share_event reply;
  result = vgpu_cuda_call(VGPU_OP_share_event, &send, sizeof send, &reply, sizeof reply);
  if (result != CUDA_SUCCESS) return result;
  struct ticket ticket = ticket_of(TICKET_EVENT, 0);
  ticket.token[0] = reply.token_0;
  ticket.token[1] = reply.token_1;
  memcpy(pHandle, &ticket, sizeof ticket);
  return CUDA_SUCCESS;
}

int cuIpcOpenEventHandle(struct vgpu_event **phEvent, struct vgpu_value64 handle) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct ticket ticket;
  memcpy(&ticket, &handle, sizeof ticket);
  if (phEvent == NULL || !is_ticket(&ticket, TICKET_EVENT)) return CUDA_ERROR_INVALID_VALUE;
  if (!vgpu_ipc_possible()) return CUDA_ERROR_NOT_SUPPORTED;
  struct vgpu_context *context = NULL;
  struct vgpu_send_open_event send = {.token_0 = ticket.token[0], .token_1 = ticket.token[1]};
  result = vgpu_cuda_owner(driver, &context, &send.context);
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&driver->lock);
  send.event = vgpu_cuda_next_number(driver);
  pthread_mutex_unlock(&driver->lock);
  result = vgpu_cuda_call(VGPU_OP_open_event, &send, sizeof send, NULL, 0);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_event *event = malloc(sizeof *event);
  bool added = false;
  pthread_mutex_lock(&driver->lock);
  if (event != NULL) {
    *event = (struct vgpu_event){.number = send.event, .context = context, .flags = BETWEEN_PROCESSES | 2u};
    added = vgpu_objects_add(&driver->objects, event, VGPU_OBJECT_EVENT);
  }
  pthread_mutex_unlock(&driver->lock);
  if (added) {
    *phEvent = event;
    return CUDA_SUCCESS;
  }
  free(event);
  struct vgpu_send_cuEventDestroy_v2 back = {.event = send.event};
  vgpu_cuda_post(VGPU_OP_cuEventDestroy_v2, &back, sizeof back, NULL, 0);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- by file descriptor ---------------------------------------------------- */

/* Makes a file that contains only the ticket, sealed against changes. Returns its descriptor, or -1. */
static int file_with(const struct ticket *ticket) {
  int descriptor = memfd_create("vgpu-handle", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return -1;
  if (write(descriptor, ticket, sizeof *ticket) == (ssize_t)sizeof *ticket &&
      fcntl(descriptor, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    return descriptor;
  }
  close(descriptor);
  return -1;
}

static bool read_ticket(void *handle, enum ticket_kind kind, struct ticket *ticket) {
  int descriptor = (int)(intptr_t)handle;
  return pread(descriptor, ticket, sizeof *ticket, 0) == (ssize_t)sizeof *ticket && is_ticket(ticket, kind);
}

static int hand_out(const struct ticket *ticket, void *to) {
  int descriptor = file_with(ticket);
  if (descriptor < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(to, &descriptor, sizeof descriptor);
  return CUDA_SUCCESS;
}

int cuMemExportToShareableHandle(void *shareableHandle, uint64_t handle, int32_t handleType, uint64_t flags) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (shareableHandle == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (handleType != POSIX_FD) return CUDA_ERROR_NOT_SUPPORTED;
  int32_t ordinal = vgpu_physical_exportable(driver, handle);
  if (ordinal < 0) return CUDA_ERROR_INVALID_VALUE;
  if (!vgpu_physical_shares_possible(ordinal)) return CUDA_ERROR_NOT_SUPPORTED;
  struct ticket ticket = ticket_of(TICKET_PHYSICAL, driver->host_index[ordinal]);
  result = ask_to_share(0, 0, handle, &ticket);
  return result == CUDA_SUCCESS ? hand_out(&ticket, shareableHandle) : result;
}

int cuMemImportFromShareableHandle(uint64_t *handle, void *osHandle, int32_t shHandleType) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct ticket ticket;
  if (shHandleType != POSIX_FD || !vgpu_session_shares(driver->session)) return CUDA_ERROR_NOT_SUPPORTED;
  if (handle == NULL || !read_ticket(osHandle, TICKET_PHYSICAL, &ticket)) return CUDA_ERROR_INVALID_VALUE;
  int32_t ordinal = ordinal_of(driver, &ticket);
  if (ordinal < 0) return CUDA_ERROR_INVALID_DEVICE;
  pthread_mutex_lock(&driver->lock);
  struct vgpu_send_open_memory send = {.token_0 = ticket.token[0],
                                       .token_1 = ticket.token[1],
                                       .bytes = ticket.bytes,
                                       .handle = vgpu_cuda_next_number(driver),
                                       .device = ticket.device};
  pthread_mutex_unlock(&driver->lock);
  struct vgpu_reply_open_memory reply;
  result = vgpu_cuda_call(VGPU_OP_open_memory, &send, sizeof send, &reply, sizeof reply);
  if (result != CUDA_SUCCESS) return result;
  if (vgpu_physical_adopt(driver, send.handle, reply.bytes, ordinal)) {
    *handle = send.handle;
    return CUDA_SUCCESS;
  }
  struct vgpu_send_cuMemRelease back = {.handle = send.handle};
  vgpu_cuda_post(VGPU_OP_cuMemRelease, &back, sizeof back, NULL, 0);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- pools: a pool is handed on once, then its allocations one by one ------- */

int cuMemPoolExportToShareableHandle(void *handle_out, struct vgpu_pool *pool, int32_t handleType,
                                     uint64_t flags) {
  struct vgpu_driver *driver;
  struct vgpu_pool taken;
  int result = vgpu_pool_take(pool, &driver, &taken);
  if (result != CUDA_SUCCESS) return result;
  if (handle_out == NULL || flags != 0 || !taken.exportable) return CUDA_ERROR_INVALID_VALUE;
  if (handleType != POSIX_FD) return CUDA_ERROR_NOT_SUPPORTED;
  struct ticket ticket = ticket_of(TICKET_POOL, driver->host_index[taken.ordinal]);
  if (!vgpu_session_exchanges(driver->session)) {
    struct vgpu_send_share_pool send = {.pool = taken.number};
    struct vgpu_reply_share_pool reply = {0};
    result = vgpu_cuda_call(VGPU_OP_share_pool, &send, sizeof send, &reply, sizeof reply);
    if (result != CUDA_SUCCESS) return result;
    ticket.token[0] = reply.token_0;
    ticket.token[1] = reply.token_1;
  }
  return hand_out(&ticket, handle_out);
}

int cuMemPoolImportFromShareableHandle(struct vgpu_pool **pool_out, void *handle, int32_t handleType,
                                       uint64_t flags) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct ticket ticket;
  if (handleType != POSIX_FD) return CUDA_ERROR_NOT_SUPPORTED;
  if (pool_out == NULL || flags != 0 || !read_ticket(handle, TICKET_POOL, &ticket))
    return CUDA_ERROR_INVALID_VALUE;
  int32_t ordinal = ordinal_of(driver, &ticket);
  if (ordinal < 0) return CUDA_ERROR_INVALID_DEVICE;
  const struct vgpu_pool_origin origin = {.kind = (ticket.token[0] | ticket.token[1]) != 0 ? VGPU_POOL_OPENED
                                                                                           : VGPU_POOL_OWN,
                                          .token = {ticket.token[0], ticket.token[1]}};
  pthread_mutex_lock(&driver->lock);
  result = vgpu_pool_make(driver, ordinal, &origin, pool_out);
  if (result == CUDA_SUCCESS) (*pool_out)->imported = true;
  pthread_mutex_unlock(&driver->lock);
  return result;
}

int cuMemPoolExportPointer(void *shareData_out, uint64_t ptr) {
  return share_address(ptr, TICKET_POOL_MEMORY, shareData_out);
}

int cuMemPoolImportPointer(uint64_t *ptr_out, struct vgpu_pool *pool, void *shareData) {
  struct vgpu_driver *driver;
  struct vgpu_pool taken;
  struct ticket ticket;
  int result = vgpu_pool_take(pool, &driver, &taken);
  if (result != CUDA_SUCCESS) return result;
  if (ptr_out == NULL || shareData == NULL || !taken.imported) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&ticket, shareData, sizeof ticket);
  if (!is_ticket(&ticket, TICKET_POOL_MEMORY)) return CUDA_ERROR_INVALID_VALUE;
  return open_ticket(&ticket, &taken, ptr_out);
}
