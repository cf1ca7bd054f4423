/* What streams and contexts are set to on the host's GPU, and values in memory that streams wait for. */
#include <string.h>

#include "host/backend/cuda/real.h"

int32_t vgpu_real_cuCtxSetLimit(struct vgpu_worker *worker, const struct vgpu_send_cuCtxSetLimit *send) {
  struct vgpu_real *real;
  int32_t result = vgpu_real_enter(worker, send->context, &real);
  return result == VGPU_REAL_SUCCESS ? VGPU_REAL(&real->api, cuCtxSetLimit, (int32_t)send->limit, send->value)
                                     : result;
}

int32_t vgpu_real_cuCtxResetPersistingL2Cache(struct vgpu_worker *worker,
                                              const struct vgpu_send_cuCtxResetPersistingL2Cache *send) {
  struct vgpu_real *real;
  int32_t result = vgpu_real_enter(worker, send->context, &real);
  return result == VGPU_REAL_SUCCESS ? VGPU_REAL(&real->api, cuCtxResetPersistingL2Cache, ) : result;
}

static int32_t enter_event(struct vgpu_worker *worker, uint64_t context, uint64_t number,
                           struct vgpu_real **real, struct vgpu_event **event) {
  int32_t result = vgpu_real_enter(worker, context, real);
  if (result != VGPU_REAL_SUCCESS) return result;
  *event = vgpu_real_object(worker, number, VGPU_HANDLE_EVENT);
  return *event == NULL ? VGPU_REAL_INVALID_HANDLE : VGPU_REAL_SUCCESS;
}

int32_t vgpu_real_cuCtxRecordEvent(struct vgpu_worker *worker,
                                   const struct vgpu_send_cuCtxRecordEvent *send) {
  struct vgpu_real *real;
  struct vgpu_event *event;
  int32_t result = enter_event(worker, send->context, send->event, &real, &event);
  if (result != VGPU_REAL_SUCCESS) return result;
  return VGPU_REAL(&real->api, cuCtxRecordEvent, NULL, event);
}

int32_t vgpu_real_cuCtxWaitEvent(struct vgpu_worker *worker, const struct vgpu_send_cuCtxWaitEvent *send) {
  struct vgpu_real *real;
  struct vgpu_event *event;
  int32_t result = enter_event(worker, send->context, send->event, &real, &event);
  if (result != VGPU_REAL_SUCCESS) return result;
  return VGPU_REAL(&real->api, cuCtxWaitEvent, NULL, event);
}

int32_t vgpu_real_cuStreamSetAttribute(struct vgpu_worker *worker,
                                       const struct vgpu_send_cuStreamSetAttribute *send,
                                       struct vgpu_bulk *bulk) {
  struct vgpu_real *real;
  struct vgpu_stream *stream;
  int32_t result = vgpu_real_enter_stream(worker, send->context, send->stream, &real, &stream);
  if (result != VGPU_REAL_SUCCESS) return result;
  uint64_t value[8];
  if (bulk->in_size != sizeof value) return VGPU_REAL_INVALID_VALUE;
  memcpy(value, bulk->in, sizeof value);
  return VGPU_REAL(&real->api, cuStreamSetAttribute, stream, (int32_t)send->attribute, value);
}

/* CUstreamBatchMemOpType */
enum { WAIT_32 = 1, WRITE_32 = 2, WAIT_64 = 4, WRITE_64 = 5, BARRIER = 6 };

int32_t vgpu_real_memory_op(struct vgpu_worker *worker, const struct vgpu_send_memory_op *send) {
  struct vgpu_real *real;
  struct vgpu_stream *stream;
  int32_t result = vgpu_real_enter_stream(worker, send->context, send->stream, &real, &stream);
  if (result != VGPU_REAL_SUCCESS) return result;
  bool wide = send->operation == WAIT_64 || send->operation == WRITE_64;
  if (send->operation != BARRIER && !vgpu_ranges_hold(&real->ranges, send->address, wide ? 8 : 4)) {
    return VGPU_REAL_INVALID_VALUE;
  }
  switch (send->operation) {
    case WAIT_32:
      return VGPU_REAL(&real->api, cuStreamWaitValue32_v2, stream, send->address, (uint32_t)send->value,
                       send->flags);
    case WAIT_64:
      return VGPU_REAL(&real->api, cuStreamWaitValue64_v2, stream, send->address, send->value, send->flags);
    case WRITE_32:
      return VGPU_REAL(&real->api, cuStreamWriteValue32_v2, stream, send->address, (uint32_t)send->value,
                       send->flags);
    case WRITE_64:
      return VGPU_REAL(&real->api, cuStreamWriteValue64_v2, stream, send->address, send->value, send->flags);
    case BARRIER: {
      uint32_t operation[12] = {BARRIER}; /* CUstreamBatchMemOpParams */
      return VGPU_REAL(&real->api, cuStreamBatchMemOp_v2, stream, 1, operation, 0);
    }
    default:
      return VGPU_REAL_INVALID_VALUE;
  }
}
