/* Calls run in the order of their arrival (exceptions: queue.h). Results are CUresult values. */
#include <string.h>

#include "cuda_handlers.h"
#include "host/backend/software/memory/pool.h"
#include "host/backend/software/order/queue.h"
#include "host/backend/software/software.h"

#define LIMIT_STACK_SIZE 0u /* CU_LIMIT_STACK_SIZE */

static int32_t make_context(struct vgpu_worker *worker, uint64_t number, uint32_t device, uint32_t flags) {
  if (device >= worker->inventory->count) return CUDA_ERROR_INVALID_DEVICE;
  struct vgpu_handle *context = vgpu_handles_add(&worker->handles, number, VGPU_HANDLE_CONTEXT);
  if (context == NULL)
    return find_context(worker, number) != NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
  context->context = number;
  context->device = device;
  context->flags = flags;
  vgpu_accounts_context(worker->accounts, worker->slot, device, 1);
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuCtxCreate_v2(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuCtxCreate_v2 *send) {
  return make_context(worker, send->context, send->device, send->flags);
}

int32_t vgpu_software_cuDevicePrimaryCtxRetain(struct vgpu_worker *worker,
                                               const struct vgpu_send_cuDevicePrimaryCtxRetain *send) {
  return make_context(worker, send->context, send->device, send->flags);
}

static void give_back(struct vgpu_worker *worker, const struct vgpu_allocation *freed) {
  vgpu_exchange_withdraw(worker, &freed->token);
  if (freed->pool != 0) vgpu_pool_take_back(worker, freed);
  else vgpu_accounts_give(worker->accounts, worker->slot, freed->device, freed->size);
}

static void end_greens(struct vgpu_worker *worker, uint64_t primary) {
  for (size_t at = 0; at < worker->handles.capacity; at++) {
    const struct vgpu_handle *handle = &worker->handles.places[at];
    if (handle->number == 0 || handle->type != VGPU_HANDLE_CONTEXT || handle->owner != primary) continue;
    const struct vgpu_send_cuCtxDestroy_v2 end = {.context = handle->number};
    (void)vgpu_software_cuCtxDestroy_v2(worker, &end);
    at = (size_t)-1; /* the table has changed */
  }
}

int32_t vgpu_software_cuCtxDestroy_v2(struct vgpu_worker *worker,
                                      const struct vgpu_send_cuCtxDestroy_v2 *send) {
  vgpu_software_conditions_forget(worker, send->context);
  struct vgpu_handle *context = find_context(worker, send->context);
  if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  /* A green context counts as part of its primary context. */
  if (context->owner == 0) vgpu_accounts_context(worker->accounts, worker->slot, context->device, -1);
  end_greens(worker, send->context);
  vgpu_queue_drop(worker, send->context);
  vgpu_reads_drop(worker, send->context);
  vgpu_programs_drop_context(worker, send->context);
  vgpu_textures_drop(worker, send->context);
  vgpu_peers_forget(worker, send->context);
  vgpu_handles_remove_context(&worker->handles, send->context);
  struct vgpu_allocation freed;
  while (vgpu_memory_free_one_of(&software_of(worker)->memory, send->context, &freed))
    give_back(worker, &freed);
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuCtxResetPersistingL2Cache(struct vgpu_worker *worker,
                                                  const struct vgpu_send_cuCtxResetPersistingL2Cache *send) {
  return find_context(worker, send->context) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* The guest stores the limit. Only kernels with stack memory by size, or recursion, need it here. */
int32_t vgpu_software_cuCtxSetLimit(struct vgpu_worker *worker, const struct vgpu_send_cuCtxSetLimit *send) {
  struct vgpu_handle *context = find_context(worker, send->context);
  if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  const uint64_t most = 512u << 10; /* the most local memory that a thread may have */
  if (send->limit == LIMIT_STACK_SIZE) context->stack = (uint32_t)(send->value < most ? send->value : most);
  return CUDA_SUCCESS;
}

int32_t vgpu_software_upload_room(struct vgpu_worker *worker, const struct vgpu_send_upload_room *send) {
  (void)worker, (void)send;
  return CUDA_ERROR_NOT_SUPPORTED; /* VGPU_FEATURE_GATES is not agreed upon */
}

int32_t vgpu_software_gate_reached(struct vgpu_worker *worker, const struct vgpu_send_gate_reached *send,
                                   struct vgpu_bulk *bulk) {
  (void)worker, (void)send, (void)bulk;
  return CUDA_ERROR_NOT_SUPPORTED; /* likewise */
}

int32_t vgpu_software_cuMemAlloc_v2(struct vgpu_worker *worker, const struct vgpu_send_cuMemAlloc_v2 *send,
                                    struct vgpu_reply_cuMemAlloc_v2 *reply) {
  struct vgpu_handle *context = find_context(worker, send->context);
  if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  uint64_t size = vgpu_memory_rounded(send->bytes);
  if (size == 0) return send->bytes == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
  if (software_of(worker)->memory.count + worker->handles.count >= worker->limits->session_handles)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (!vgpu_accounts_take(worker->accounts, worker->slot, context->device, size,
                          worker->limits->session_memory)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  reply->address =
      vgpu_memory_allocate(&software_of(worker)->memory, context->device, send->context, 0, size);
  if (reply->address == 0) {
    vgpu_accounts_give(worker->accounts, worker->slot, context->device, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuMemFree_v2(struct vgpu_worker *worker, const struct vgpu_send_cuMemFree_v2 *send) {
  struct vgpu_allocation freed;
  if (!vgpu_memory_free(&software_of(worker)->memory, send->address, &freed)) return CUDA_ERROR_INVALID_VALUE;
  give_back(worker, &freed);
  return CUDA_SUCCESS;
}

/* Runs when its stream reaches it. Takes memory of no pool, too. */
int32_t vgpu_software_cuMemFreeAsync(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuMemFreeAsync *send) {
  int32_t result = check_stream(worker, send->context, send->stream);
  struct vgpu_allocation freed;
  if (result != CUDA_SUCCESS) return result;
  if (!vgpu_memory_free(&software_of(worker)->memory, send->address, &freed)) return CUDA_ERROR_INVALID_VALUE;
  give_back(worker, &freed);
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuMemGetInfo_v2(struct vgpu_worker *worker,
                                      const struct vgpu_send_cuMemGetInfo_v2 *send,
                                      struct vgpu_reply_cuMemGetInfo_v2 *reply) {
  struct vgpu_handle *context = find_context(worker, send->context);
  if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  struct vgpu_room room =
      vgpu_accounts_room(worker->accounts, worker->slot, context->device, worker->limits->session_memory);
  reply->total = room.total;
  reply->free = room.free;
  return CUDA_SUCCESS;
}
