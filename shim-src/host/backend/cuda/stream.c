/* Attributes of streams and contexts on the host's GPU, and waits of streams for values in memory. */
#include <string.h>

#include "host/backend/cuda/session.h"

#define STACK_SIZE 0u /* CU_LIMIT_STACK_SIZE */

int32_t vgpu_cuda_cuCtxSetLimit(struct vgpu_worker *worker, const struct vgpu_send_cuCtxSetLimit *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, send->context, VGPU_HANDLE_CONTEXT);
  uint64_t value = send->value;
  /* A loaded kernel must not find less than the guest's library has made ready for it. */
  if (send->limit == STACK_SIZE && handle != NULL && value < handle->stack) value = handle->stack;
  return VGPU_DRIVER(&cuda->api, cuCtxSetLimit, (int32_t)send->limit, value);
}

int32_t vgpu_cuda_cuCtxResetPersistingL2Cache(struct vgpu_worker *worker,
                                              const struct vgpu_send_cuCtxResetPersistingL2Cache *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  return result == CUDA_SUCCESS ? VGPU_DRIVER(&cuda->api, cuCtxResetPersistingL2Cache, ) : result;
}

static int32_t enter_event(struct vgpu_worker *worker, uint64_t context, uint64_t number,
                           struct vgpu_cuda **cuda, struct vgpu_event **event) {
  int32_t result = vgpu_cuda_enter(worker, context, cuda);
  if (result != CUDA_SUCCESS) return result;
  *event = vgpu_cuda_object(worker, number, VGPU_HANDLE_EVENT);
  return *event == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

int32_t vgpu_cuda_cuCtxRecordEvent(struct vgpu_worker *worker,
                                   const struct vgpu_send_cuCtxRecordEvent *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_event *event;
  int32_t result = enter_event(worker, send->context, send->event, &cuda, &event);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_context *context = vgpu_cuda_object(worker, send->context, VGPU_HANDLE_CONTEXT);
  return VGPU_DRIVER(&cuda->api, cuCtxRecordEvent, context, event);
}

int32_t vgpu_cuda_cuCtxWaitEvent(struct vgpu_worker *worker, const struct vgpu_send_cuCtxWaitEvent *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_event *event;
  int32_t result = enter_event(worker, send->context, send->event, &cuda, &event);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_context *context = vgpu_cuda_object(worker, send->context, VGPU_HANDLE_CONTEXT);
  return VGPU_DRIVER(&cuda->api, cuCtxWaitEvent, context, event);
}

int32_t vgpu_cuda_cuStreamSetAttribute(struct vgpu_worker *worker,
                                       const struct vgpu_send_cuStreamSetAttribute *send,
                                       struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
  if (result != CUDA_SUCCESS) return result;
  uint64_t value[8];
  if (bulk->in_size != sizeof value) return CUDA_ERROR_INVALID_VALUE;
  memcpy(value, bulk->in, sizeof value);
  return VGPU_DRIVER(&cuda->api, cuStreamSetAttribute, stream, (int32_t)send->attribute, value);
}

/* CUstreamBatchMemOpType */
enum { WAIT_32 = 1, WRITE_32 = 2, WAIT_64 = 4, WRITE_64 = 5, BARRIER = 6 };

int32_t vgpu_cuda_memory_op(struct vgpu_worker *worker, const struct vgpu_send_memory_op *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
  if (result != CUDA_SUCCESS) return result;
  bool wide = send->operation == WAIT_64 || send->operation == WRITE_64;
  if (send->operation != BARRIER && !vgpu_ranges_hold(&cuda->ranges, send->address, wide ? 8 : 4)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (send->operation) {
    case WAIT_32:
      result = VGPU_DRIVER(&cuda->api, cuStreamWaitValue32_v2, stream, send->address, (uint32_t)send->value,
                           send->flags);
      break;
    case WAIT_64:
      result =
          VGPU_DRIVER(&cuda->api, cuStreamWaitValue64_v2, stream, send->address, send->value, send->flags);
      break;
    case WRITE_32:
      return VGPU_DRIVER(&cuda->api, cuStreamWriteValue32_v2, stream, send->address, (uint32_t)send->value,
                         send->flags);
    case WRITE_64:
      return VGPU_DRIVER(&cuda->api, cuStreamWriteValue64_v2, stream, send->address, send->value,
                         send->flags);
    case BARRIER: {
      uint32_t operation[12] = {BARRIER}; /* CUstreamBatchMemOpParams */
      return VGPU_DRIVER(&cuda->api, cuStreamBatchMemOp_v2, stream, 1, operation, 0);
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (result == CUDA_SUCCESS)
    vgpu_cuda_gate_closes(worker, send->context, send->address, (uint32_t)send->value);
  return result;
}
