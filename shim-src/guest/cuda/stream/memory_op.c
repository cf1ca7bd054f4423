/* Operations of streams and nodes that wait for a value in device memory, or write one. */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/stream/capture.h"

/* CUstreamBatchMemOpType */
enum { WAIT_32 = 1, WRITE_32 = 2, FLUSH_REMOTE = 3, WAIT_64 = 4, WRITE_64 = 5, BARRIER = 6 };
#define WAIT_FLUSH (1u << 30)
#define MOST_OPERATIONS 256u

static int check(struct vgpu_driver *driver, const struct vgpu_memory_operation *operation) {
  switch (operation->type) {
    case WAIT_32:
    case WAIT_64:
      if ((operation->flags & WAIT_FLUSH) != 0)
        return CUDA_ERROR_NOT_SUPPORTED; /* as its attribute reports */
      if (operation->flags > 3) return CUDA_ERROR_INVALID_VALUE;
      break;
    case WRITE_32:
    case WRITE_64:
      if (operation->flags > 1) return CUDA_ERROR_INVALID_VALUE;
      break;
    case FLUSH_REMOTE:
      return CUDA_ERROR_NOT_SUPPORTED;
    case BARRIER:
      return operation->barrier_flags > 1 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t size = operation->type == WAIT_64 || operation->type == WRITE_64 ? 8 : 4;
  return operation->address % size == 0 && vgpu_regions_is_device(&driver->regions, operation->address, size)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

/* Returns the operation as it is sent. */
static struct vgpu_send_memory_op frame_of(const struct vgpu_memory_operation *operation, uint64_t context) {
  bool narrow = operation->type == WAIT_32 || operation->type == WRITE_32;
  return (struct vgpu_send_memory_op){.context = context,
                                      .address = operation->address,
                                      .value = narrow ? (uint32_t)operation->value : operation->value,
                                      .operation = operation->type,
                                      .flags = operation->flags};
}

int vgpu_work_memory_ops(struct vgpu_driver *driver, const struct vgpu_memory_ops_params *params,
                         struct vgpu_work *work) {
  uint64_t context = 0;
  uint32_t count = params->count;
  if (count == 0 || count > MOST_OPERATIONS || params->operations == NULL || params->flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  int result = vgpu_cuda_context_given(driver, params->context, &context);
  for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    result = check(driver, &params->operations[i]);
  }
  if (result != CUDA_SUCCESS) return result;
  __atomic_store_n(&driver->holds, true, __ATOMIC_RELEASE);
  *work = (struct vgpu_work){.kind = VGPU_NODE_MEMORY_OPS,
                             .step = VGPU_STEP_FRAME,
                             .opcode = VGPU_OP_memory_op,
                             .body_size = sizeof(struct vgpu_send_memory_op),
                             .frames = count,
                             .kept_size = count * (uint32_t)sizeof *params->operations,
                             .given.memory_ops = *params};
  work->bytes = malloc(vgpu_work_bytes(work));
  if (work->bytes == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  for (uint32_t i = 0; i < count; i++) {
    const struct vgpu_send_memory_op send = frame_of(&params->operations[i], context);
    memcpy(work->bytes + i * sizeof send, &send, sizeof send);
  }
  memcpy(work->bytes + vgpu_work_bytes(work) - work->kept_size, params->operations, work->kept_size);
  return CUDA_SUCCESS;
}

bool vgpu_memory_ops_alike(const struct vgpu_work *a, const struct vgpu_work *b) {
  struct vgpu_send_memory_op old, new;
  for (uint32_t i = 0; i < a->frames; i++) {
    memcpy(&old, a->bytes + i * sizeof old, sizeof old);
    memcpy(&new, b->bytes + i * sizeof new, sizeof new);
    bool waits = old.operation == WAIT_32 || old.operation == WAIT_64;
    if (old.operation != new.operation || old.context != new.context) return false;
    if (!waits && old.flags != new.flags) return false;
  }
  return true;
}

static int carry_out(struct vgpu_stream *stream, struct vgpu_memory_operation *operations, uint32_t count) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  uint64_t context = 0, number = 0;
  result = vgpu_cuda_stream_place(driver, stream, &number, &context);
  /* All operations are checked before the first one is sent. */
  for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) result = check(driver, &operations[i]);
  if (result != CUDA_SUCCESS || count == 0) return result;
  struct vgpu_node_params node = {.type = VGPU_NODE_MEMORY_OPS,
                                  .of.memory_ops = {.count = count, .operations = operations}};
  if (vgpu_capture_node(driver, stream, &node, &result)) return result;
  __atomic_store_n(&driver->holds, true, __ATOMIC_RELEASE);
  for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    struct vgpu_send_memory_op send = frame_of(&operations[i], context);
    send.stream = number;
    result = vgpu_cuda_post(VGPU_OP_memory_op, &send, sizeof send, NULL, 0);
  }
  return result;
}

static int one(struct vgpu_stream *stream, uint32_t type, uint64_t address, uint64_t value, uint32_t flags) {
  struct vgpu_memory_operation operation = {.type = type, .address = address, .value = value, .flags = flags};
  return carry_out(stream, &operation, 1);
}

int cuStreamWaitValue32_v2(struct vgpu_stream *stream, uint64_t addr, uint32_t value, uint32_t flags) {
  return one(stream, WAIT_32, addr, value, flags);
}

int cuStreamWaitValue64_v2(struct vgpu_stream *stream, uint64_t addr, uint64_t value, uint32_t flags) {
  return one(stream, WAIT_64, addr, value, flags);
}

int cuStreamWriteValue32_v2(struct vgpu_stream *stream, uint64_t addr, uint32_t value, uint32_t flags) {
  return one(stream, WRITE_32, addr, value, flags);
}

int cuStreamWriteValue64_v2(struct vgpu_stream *stream, uint64_t addr, uint64_t value, uint32_t flags) {
  return one(stream, WRITE_64, addr, value, flags);
}

int cuStreamBatchMemOp_v2(struct vgpu_stream *stream, uint32_t count, void *paramArray, uint32_t flags) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (count > MOST_OPERATIONS || (count > 0 && paramArray == NULL) || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_memory_operation operations[MOST_OPERATIONS];
  if (count > 0) memcpy(operations, paramArray, count * sizeof *operations);
  return carry_out(stream, operations, count);
}
