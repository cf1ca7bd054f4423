/* Streams that wait for a value in device memory, or write one. */
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/internal.h"

/* CUstreamBatchMemOpType */
enum { WAIT_32 = 1, WRITE_32 = 2, FLUSH_REMOTE = 3, WAIT_64 = 4, WRITE_64 = 5, BARRIER = 6 };
#define WAIT_FLUSH (1u << 30)
#define MOST_OPERATIONS 256u

/* CUstreamBatchMemOpParams: 48 bytes; the flags of a barrier lie where others have nothing. */
struct operation {
  uint32_t type;
  uint32_t barrier_flags;
  uint64_t address;
  uint64_t value;
  uint32_t flags;
  uint32_t unused;
  uint64_t rest[2];
};
_Static_assert(sizeof(struct operation) == 48, "CUstreamBatchMemOpParams");

static int check(struct vgpu_driver *driver, const struct operation *operation) {
  switch (operation->type) {
    case WAIT_32:
    case WAIT_64:
      if ((operation->flags & WAIT_FLUSH) != 0) return VGPU_CUDA_NOT_SUPPORTED; /* as the attribute says */
      if (operation->flags > 3) return VGPU_CUDA_INVALID_VALUE;
      break;
    case WRITE_32:
    case WRITE_64:
      if (operation->flags > 1) return VGPU_CUDA_INVALID_VALUE;
      break;
    case FLUSH_REMOTE:
      return VGPU_CUDA_NOT_SUPPORTED;
    case BARRIER:
      return operation->barrier_flags > 1 ? VGPU_CUDA_INVALID_VALUE : VGPU_CUDA_SUCCESS;
    default:
      return VGPU_CUDA_INVALID_VALUE;
  }
  uint64_t size = operation->type == WAIT_64 || operation->type == WRITE_64 ? 8 : 4;
  return operation->address % size == 0 && vgpu_regions_is_device(&driver->regions, operation->address, size)
             ? VGPU_CUDA_SUCCESS
             : VGPU_CUDA_INVALID_VALUE;
}

static int carry_out(struct vgpu_stream *stream, const struct operation *operations, uint32_t count) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_send_memory_op send = {0};
  result = vgpu_cuda_context_number(&send.context);
  if (result == VGPU_CUDA_SUCCESS) result = vgpu_cuda_stream_number(driver, stream, &send.stream);
  /* All are looked at before one is sent. */
  for (uint32_t i = 0; i < count && result == VGPU_CUDA_SUCCESS; i++) result = check(driver, &operations[i]);
  for (uint32_t i = 0; i < count && result == VGPU_CUDA_SUCCESS; i++) {
    send.operation = operations[i].type;
    send.address = operations[i].address;
    send.value = operations[i].value;
    send.flags = operations[i].flags;
    if (send.operation == WAIT_32 || send.operation == WRITE_32) send.value = (uint32_t)send.value;
    result = vgpu_cuda_post(VGPU_OP_memory_op, &send, sizeof send, NULL, 0);
  }
  return result;
}

static int one(struct vgpu_stream *stream, uint32_t type, uint64_t address, uint64_t value, uint32_t flags) {
  struct operation operation = {.type = type, .address = address, .value = value, .flags = flags};
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
  if (result != VGPU_CUDA_SUCCESS) return result;
  if (count > MOST_OPERATIONS || (count > 0 && paramArray == NULL) || flags != 0)
    return VGPU_CUDA_INVALID_VALUE;
  struct operation operations[MOST_OPERATIONS];
  if (count > 0) memcpy(operations, paramArray, count * sizeof *operations);
  return carry_out(stream, operations, count);
}
