/*
 * Memory and events that sessions of one guest share. Memory that a session opens counts against its own
 * limit, too, because the session may keep it after its creator has ended.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_handlers.h"
#include "host/backend/software/memory/virtual.h"
#include "host/backend/software/software.h"
#include "wire/shared.h"

#define EVENT_BYTES 4096u
#define BETWEEN_PROCESSES 4u /* CU_EVENT_INTERPROCESS */

static bool is_set(const struct vgpu_token *token) {
  return (token->words[0] | token->words[1]) != 0;
}

static int32_t share_allocation(struct vgpu_worker *worker, uint64_t address, struct vgpu_token *token,
                                uint64_t *bytes) {
  struct vgpu_memory *memory = &software_of(worker)->memory;
  const struct vgpu_allocation *known = vgpu_memory_holding(memory, address);
  if (known == NULL || known->reserved || known->lent) return CUDA_ERROR_INVALID_VALUE;
  *bytes = known->size;
  *token = known->token;
  if (is_set(token)) return CUDA_SUCCESS;
  if (!worker->exchanges || known->shared)
    return CUDA_ERROR_NOT_SUPPORTED; /* opened from another session, and only that session may share it */
  struct vgpu_allocation *allocation;
  uint64_t file_bytes;
  int descriptor = vgpu_memory_share(memory, address, &allocation, &file_bytes);
  if (descriptor < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  int32_t result = vgpu_exchange_publish(worker, VGPU_EXCHANGE_MEMORY, descriptor, file_bytes, token);
  if (result == CUDA_SUCCESS) allocation->token = *token;
  close(descriptor);
  return result;
}

int32_t vgpu_software_share_memory(struct vgpu_worker *worker, const struct vgpu_send_share_memory *send,
                                   struct vgpu_reply_share_memory *reply) {
  struct vgpu_token token = {{0, 0}};
  int32_t result = send->handle != 0 ? vgpu_virtual_share(worker, send->handle, &token, &reply->bytes)
                                     : share_allocation(worker, send->address, &token, &reply->bytes);
  reply->token_0 = token.words[0];
  reply->token_1 = token.words[1];
  return result;
}

static int32_t open_allocation(struct vgpu_worker *worker, const struct vgpu_send_open_memory *send,
                               uint32_t device, int descriptor, uint64_t file_bytes, uint64_t *address) {
  uint64_t size = send->bytes;
  if (size == 0 || size > file_bytes || size != vgpu_memory_rounded(size) ||
      (size + 4095) / 4096 * 4096 != file_bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (software_of(worker)->memory.count + worker->handles.count >= worker->limits->session_handles ||
      !vgpu_accounts_take(worker->accounts, worker->slot, device, size, worker->limits->session_memory))
    return CUDA_ERROR_OUT_OF_MEMORY;
  *address = vgpu_memory_open(&software_of(worker)->memory, device, send->context, size, descriptor);
  if (*address != 0) return CUDA_SUCCESS;
  vgpu_accounts_give(worker->accounts, worker->slot, device, size);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

int32_t vgpu_software_open_memory(struct vgpu_worker *worker, const struct vgpu_send_open_memory *send,
                                  struct vgpu_reply_open_memory *reply) {
  const struct vgpu_handle *context = find_context(worker, send->context);
  /* Physical memory belongs to no context. */
  if (context == NULL && send->handle == 0) return CUDA_ERROR_INVALID_CONTEXT;
  struct vgpu_token token = {{send->token_0, send->token_1}};
  uint32_t device = send->device;
  if (device >= worker->inventory->count) return CUDA_ERROR_INVALID_VALUE;
  int descriptor;
  uint64_t bytes;
  const bool physical = send->handle != 0;
  int32_t result = vgpu_exchange_fetch(worker, physical ? VGPU_EXCHANGE_PHYSICAL : VGPU_EXCHANGE_MEMORY,
                                       &token, physical || send->pooled != 0, &descriptor, &bytes);
  if (result != CUDA_SUCCESS) return result;
  result = physical ? vgpu_virtual_open(worker, send->handle, send->device, descriptor, bytes)
                    : open_allocation(worker, send, device, descriptor, bytes, &reply->address);
  close(descriptor);
  reply->bytes = physical ? bytes : send->bytes;
  return result;
}

/* ---- events --------------------------------------------------------------- */

/* Mapped by sessions that share the event, not by the guest. */
struct shared_event {
  uint32_t pending; /* what vgpu_event_pending() counts */
  uint32_t reserved;
  uint64_t session; /* number of the session that made it */
  struct vgpu_token token;
};

void vgpu_event_drop(struct vgpu_worker *worker, const struct vgpu_handle *event) {
  struct shared_event *page = event->object;
  if (page == NULL) return;
  if (page->session == worker->session) vgpu_exchange_withdraw(worker, &page->token);
  munmap(page, EVENT_BYTES);
}

int32_t vgpu_software_share_event(struct vgpu_worker *worker, const struct vgpu_send_share_event *send,
                                  struct vgpu_reply_share_event *reply) {
  struct vgpu_handle *event = vgpu_handles_find(&worker->handles, send->event, VGPU_HANDLE_EVENT);
  if (event == NULL || (event->flags & BETWEEN_PROCESSES) == 0) return CUDA_ERROR_INVALID_HANDLE;
  struct shared_event *page = event->object;
  if (page != NULL) { /* shared or opened before */
    reply->token_0 = page->token.words[0];
    reply->token_1 = page->token.words[1];
    return page->session == worker->session ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!worker->exchanges) return CUDA_ERROR_NOT_SUPPORTED;
  int descriptor = vgpu_shared_make("vgpu-event", EVENT_BYTES);
  page = descriptor < 0 ? NULL : vgpu_shared_map(descriptor, EVENT_BYTES);
  struct vgpu_token token = {{0, 0}};
  int32_t result = page == NULL
                       ? CUDA_ERROR_OUT_OF_MEMORY
                       : vgpu_exchange_publish(worker, VGPU_EXCHANGE_EVENT, descriptor, EVENT_BYTES, &token);
  if (result == CUDA_SUCCESS) {
    *page = (struct shared_event){.pending = event->pending, .session = worker->session, .token = token};
    event->object = page;
    software_of(worker)->queue.outside = true;
  } else if (page != NULL) {
    munmap(page, EVENT_BYTES);
  }
  if (descriptor >= 0) close(descriptor);
  reply->token_0 = token.words[0];
  reply->token_1 = token.words[1];
  return result;
}

int32_t vgpu_software_open_event(struct vgpu_worker *worker, const struct vgpu_send_open_event *send) {
  if (find_context(worker, send->context) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (send->event < VGPU_FIRST_HANDLE) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_token token = {{send->token_0, send->token_1}};
  int descriptor;
  uint64_t bytes;
  int32_t result = vgpu_exchange_fetch(worker, VGPU_EXCHANGE_EVENT, &token, false, &descriptor, &bytes);
  if (result != CUDA_SUCCESS) return result;
  struct shared_event *page = bytes != EVENT_BYTES ? NULL : vgpu_shared_map(descriptor, bytes);
  close(descriptor);
  struct vgpu_handle *event =
      page == NULL ? NULL : vgpu_handles_add(&worker->handles, send->event, VGPU_HANDLE_EVENT);
  if (event == NULL) {
    if (page != NULL) munmap(page, EVENT_BYTES);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  event->context = send->context;
  event->flags = BETWEEN_PROCESSES | 2u;
  event->object = page;
  software_of(worker)->queue.outside = true;
  return CUDA_SUCCESS;
}
