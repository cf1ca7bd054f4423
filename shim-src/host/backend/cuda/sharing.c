/*
 * Memory and events that sessions of one guest share, by the driver's own handles (cuIpc*). A handle goes to
 * the other session's worker in memory that the daemon passes on, so a guest never sees it, and a worker
 * never gets one of another guest. Physical memory and pools are files of the driver (virtual.c, pool.c).
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/backend/cuda/session.h"
#include "wire/shared.h"

#define LAZY_PEER_ACCESS 1u /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
#define PASSED_BYTES 4096u

/* The content of the memory that goes to the other worker. */
struct passed {
  struct vgpu_value64 handle; /* CUipcMemHandle or CUipcEventHandle */
  uint64_t bytes;             /* of the allocation */
  uint32_t device;
};

/* An object that this session has shared and not freed since. */
struct vgpu_cuda_shared {
  struct vgpu_cuda_shared *next;
  uint64_t address; /* of an allocation; 0: it is an event */
  uint64_t event;
  uint64_t context;
  struct vgpu_token token;
};

static struct vgpu_cuda_shared **find(struct vgpu_cuda *cuda, uint64_t address, uint64_t event) {
  struct vgpu_cuda_shared **link = &cuda->shared;
  while (*link != NULL && ((*link)->address != address || (*link)->event != event)) link = &(*link)->next;
  return link;
}

static void withdraw(struct vgpu_worker *worker, struct vgpu_cuda_shared **link) {
  struct vgpu_cuda_shared *shared = *link;
  vgpu_exchange_withdraw(worker, &shared->token);
  *link = shared->next;
  free(shared);
}

void vgpu_cuda_unshare(struct vgpu_worker *worker, uint64_t address, uint64_t event) {
  struct vgpu_cuda_shared **link = find(cuda_of(worker), address, event);
  if (*link != NULL) withdraw(worker, link);
}

void vgpu_cuda_unshare_context(struct vgpu_worker *worker, uint64_t context) {
  for (struct vgpu_cuda_shared **link = &cuda_of(worker)->shared; *link != NULL;) {
    if ((*link)->context == context) withdraw(worker, link);
    else link = &(*link)->next;
  }
}

static int32_t publish(struct vgpu_worker *worker, enum vgpu_exchange_kind kind, const struct passed *passed,
                       struct vgpu_cuda_shared *shared) {
  int descriptor = vgpu_shared_make("vgpu-handle", PASSED_BYTES);
  void *memory = descriptor < 0 ? NULL : vgpu_shared_map(descriptor, PASSED_BYTES);
  int32_t result = CUDA_ERROR_OUT_OF_MEMORY;
  if (memory != NULL) {
    memcpy(memory, passed, sizeof *passed);
    munmap(memory, PASSED_BYTES);
    result = vgpu_exchange_publish(worker, kind, descriptor, PASSED_BYTES, &shared->token);
  }
  if (descriptor >= 0) close(descriptor);
  return result;
}

/* Publishes an object that is not shared yet, and remembers its token. */
static int32_t share(struct vgpu_worker *worker, enum vgpu_exchange_kind kind, const struct passed *passed,
                     const struct vgpu_cuda_shared *what, struct vgpu_token *token) {
  struct vgpu_cuda_shared *shared = malloc(sizeof *shared);
  if (shared == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *shared = *what;
  int32_t result = publish(worker, kind, passed, shared);
  if (result != CUDA_SUCCESS) {
    free(shared);
    return result;
  }
  shared->next = cuda_of(worker)->shared;
  cuda_of(worker)->shared = shared;
  *token = shared->token;
  return result;
}

int32_t vgpu_cuda_share_memory(struct vgpu_worker *worker, const struct vgpu_send_share_memory *send,
                               struct vgpu_reply_share_memory *reply) {
  struct vgpu_cuda *cuda;
  struct vgpu_token token = {{0, 0}};
  if (send->handle != 0) {
    int32_t shared = vgpu_cuda_share_physical(worker, send->handle, &token, &reply->bytes);
    reply->token_0 = token.words[0];
    reply->token_1 = token.words[1];
    return shared;
  }
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_range *range = vgpu_ranges_find(&cuda->ranges, send->address);
  bool pooled = range != NULL && range->kind == VGPU_RANGE_POOLED; /* it belongs to no context */
  if (range == NULL || (range->kind != VGPU_RANGE_ALLOCATION && !pooled)) return CUDA_ERROR_INVALID_VALUE;
  if (!pooled) result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_cuda_shared **there = find(cuda, range->address, 0);
  if (*there != NULL) {
    token = (*there)->token;
  } else {
    struct passed passed = {.bytes = range->size, .device = range->device};
    result = pooled ? VGPU_DRIVER(&cuda->api, cuMemPoolExportPointer, &passed.handle, range->address)
                    : VGPU_DRIVER(&cuda->api, cuIpcGetMemHandle, &passed.handle, range->address);
    if (result == CUDA_SUCCESS)
      result =
          share(worker, VGPU_EXCHANGE_MEMORY, &passed,
                &(struct vgpu_cuda_shared){.address = range->address, .context = range->context}, &token);
    if (result != CUDA_SUCCESS) return result;
  }
  *reply = (struct vgpu_reply_share_memory){
      .token_0 = token.words[0], .token_1 = token.words[1], .bytes = range->size};
  return CUDA_SUCCESS;
}

/* Gets what another session of the guest, or with `own` this one, has shared. */
static int32_t fetch(struct vgpu_worker *worker, enum vgpu_exchange_kind kind, const struct vgpu_token *token,
                     bool own, struct passed *passed) {
  int descriptor;
  uint64_t bytes;
  int32_t result = vgpu_exchange_fetch(worker, kind, token, own, &descriptor, &bytes);
  if (result != CUDA_SUCCESS) return result;
  void *memory = bytes != PASSED_BYTES ? NULL : vgpu_shared_map(descriptor, PASSED_BYTES);
  close(descriptor);
  if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(passed, memory, sizeof *passed);
  munmap(memory, PASSED_BYTES);
  return CUDA_SUCCESS;
}

/* Memory of a pool that was opened counts for this session, too: it is freed here as well. */
static int32_t open_pooled(struct vgpu_worker *worker, const struct vgpu_handle *pool,
                           const struct vgpu_send_open_memory *send, struct vgpu_reply_open_memory *reply) {
  struct vgpu_cuda *cuda;
  struct passed passed;
  const struct vgpu_token token = {{send->token_0, send->token_1}};
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result == CUDA_SUCCESS) result = fetch(worker, VGPU_EXCHANGE_MEMORY, &token, true, &passed);
  if (result != CUDA_SUCCESS) return result;
  if (passed.bytes != send->bytes || passed.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_range range = {
      .size = passed.bytes, .counted = passed.bytes, .device = pool->device, .kind = VGPU_RANGE_POOLED};
  if (cuda->ranges.count + worker->handles.count >= worker->limits->session_handles ||
      !vgpu_accounts_take(worker->accounts, worker->slot, range.device, range.counted,
                          worker->limits->session_memory))
    return CUDA_ERROR_OUT_OF_MEMORY;
  result = VGPU_DRIVER(&cuda->api, cuMemPoolImportPointer, &range.address, pool->driver, &passed.handle);
  if (result == CUDA_SUCCESS && !vgpu_ranges_add(&cuda->ranges, &range)) {
    (void)vgpu_cuda_end(worker, &(struct vgpu_cuda_ending){
                                    .end = vgpu_cuda_free_memory,
                                    .context = vgpu_cuda_object(worker, send->context, VGPU_HANDLE_CONTEXT),
                                    .address = range.address});
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) vgpu_accounts_give(worker->accounts, worker->slot, range.device, range.counted);
  *reply = (struct vgpu_reply_open_memory){.address = range.address, .bytes = range.size};
  return result;
}

/* Opened memory counts for the session that allocated it, and for nobody else: it stays one memory. */
int32_t vgpu_cuda_open_memory(struct vgpu_worker *worker, const struct vgpu_send_open_memory *send,
                              struct vgpu_reply_open_memory *reply) {
  struct vgpu_cuda *cuda;
  struct passed passed;
  const struct vgpu_token token = {{send->token_0, send->token_1}};
  const struct vgpu_handle *pool = vgpu_handles_find(&worker->handles, send->handle, VGPU_HANDLE_POOL);
  if (pool != NULL) return open_pooled(worker, pool, send, reply);
  if (send->handle != 0) return vgpu_cuda_open_physical(worker, send->handle, &token, &reply->bytes);
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result == CUDA_SUCCESS) result = fetch(worker, VGPU_EXCHANGE_MEMORY, &token, false, &passed);
  if (result != CUDA_SUCCESS) return result;
  if (passed.bytes != send->bytes || passed.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (cuda->ranges.count + worker->handles.count >= worker->limits->session_handles)
    return CUDA_ERROR_OUT_OF_MEMORY;
  struct vgpu_range range = {
      .size = passed.bytes, .context = send->context, .device = passed.device, .kind = VGPU_RANGE_OPENED};
  result = VGPU_DRIVER(&cuda->api, cuIpcOpenMemHandle_v2, &range.address, passed.handle, LAZY_PEER_ACCESS);
  if (result != CUDA_SUCCESS) return result;
  if (!vgpu_ranges_add(&cuda->ranges, &range)) {
    (void)vgpu_cuda_end(worker, &(struct vgpu_cuda_ending){
                                    .end = vgpu_cuda_close_memory,
                                    .context = vgpu_cuda_object(worker, send->context, VGPU_HANDLE_CONTEXT),
                                    .address = range.address});
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *reply = (struct vgpu_reply_open_memory){.address = range.address, .bytes = range.size};
  return CUDA_SUCCESS;
}

int32_t vgpu_cuda_share_event(struct vgpu_worker *worker, const struct vgpu_send_share_event *send,
                              struct vgpu_reply_share_event *reply) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_handle *event = vgpu_handles_find(&worker->handles, send->event, VGPU_HANDLE_EVENT);
  if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_token token;
  struct vgpu_cuda_shared **there = find(cuda, 0, send->event);
  if (*there != NULL) {
    token = (*there)->token;
  } else {
    struct passed passed = {.bytes = 0};
    result = VGPU_DRIVER(&cuda->api, cuIpcGetEventHandle, &passed.handle, (struct vgpu_event *)event->driver);
    if (result == CUDA_SUCCESS)
      result = share(worker, VGPU_EXCHANGE_EVENT, &passed,
                     &(struct vgpu_cuda_shared){.event = send->event, .context = event->context}, &token);
    if (result != CUDA_SUCCESS) return result;
  }
  *reply = (struct vgpu_reply_share_event){.token_0 = token.words[0], .token_1 = token.words[1]};
  return CUDA_SUCCESS;
}

int32_t vgpu_cuda_open_event(struct vgpu_worker *worker, const struct vgpu_send_open_event *send) {
  struct vgpu_cuda *cuda;
  struct passed passed;
  struct vgpu_event *event = NULL;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result == CUDA_SUCCESS)
    result = fetch(worker, VGPU_EXCHANGE_EVENT, &(struct vgpu_token){{send->token_0, send->token_1}}, false,
                   &passed);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(&cuda->api, cuIpcOpenEventHandle, &event, passed.handle);
  if (result != CUDA_SUCCESS) return result;
  if (vgpu_cuda_remember(worker, send->event, VGPU_HANDLE_EVENT, send->context, event)) return result;
  VGPU_DRIVER(&cuda->api, cuEventDestroy_v2, event);
  return CUDA_ERROR_OUT_OF_MEMORY;
}
