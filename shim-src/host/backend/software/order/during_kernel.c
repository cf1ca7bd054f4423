#include "host/backend/software/order/during_kernel.h"

#include <string.h>

#include "cuda_calls.h"
#include "host/backend/software/order/place.h"
#include "host/backend/software/software.h"

static bool has_room(const struct vgpu_worker *worker, const struct vgpu_request *request) {
  /* A call whose bytes are in memory that the guest can change must not wait. */
  return (request->frame.flags & VGPU_FLAG_SHARED_REGION) == 0 &&
         vgpu_queue_has_room(worker, request->frame.length);
}

bool vgpu_accepts_during_kernel(struct vgpu_worker *worker, const struct vgpu_request *request) {
  const struct vgpu_dispatch_row *row = request->row;
  if (row == NULL || row->send_size != request->frame.body) return false;
  struct vgpu_place place;
  bool placed = vgpu_place_find(worker, row, request->body, &place);
  bool waits = placed && vgpu_queue_holds(worker, &place);
  switch (row->opcode) {
    case VGPU_OP_cuEventCreate:
    case VGPU_OP_cuEventElapsedTime_v2:
    case VGPU_OP_cuEventQuery:
    case VGPU_OP_cuKernelGetAttribute:
    case VGPU_OP_cuLibraryGetKernel:
    case VGPU_OP_cuMemGetInfo_v2:
    case VGPU_OP_cuModuleGetFunction:
    case VGPU_OP_cuModuleGetGlobal_v2:
    case VGPU_OP_cuStreamCreate:
    case VGPU_OP_cuStreamQuery:
    case VGPU_OP_read_fetch:
    case VGPU_OP_gate_open:
    case VGPU_OP_function_load:
    case VGPU_OP_cuEventSynchronize:
    case VGPU_OP_cuCtxSynchronize:
    case VGPU_OP_cuMemcpyDtoHAsync_v2:
    case VGPU_OP_cuMemcpyDtoH_v2:
    case VGPU_OP_cuStreamSynchronize:
    case VGPU_OP_read_rows:
      return true;
    case VGPU_OP_cuLaunchKernelEx:
    case VGPU_OP_cuMemFreeAsync:
      return waits && has_room(worker, request);
    case VGPU_OP_copy_box:
    case VGPU_OP_cuCtxRecordEvent:
    case VGPU_OP_cuCtxWaitEvent:
    case VGPU_OP_cuEventDestroy_v2:
    case VGPU_OP_cuEventRecordWithFlags:
    case VGPU_OP_cuMemcpyDtoDAsync_v2:
    case VGPU_OP_cuMemcpyDtoD_v2:
    case VGPU_OP_cuMemcpyHtoDAsync_v2:
    case VGPU_OP_cuMemcpyHtoD_v2:
    case VGPU_OP_cuMemsetD16Async:
    case VGPU_OP_cuMemsetD16_v2:
    case VGPU_OP_cuMemsetD2D8Async:
    case VGPU_OP_cuMemsetD32Async:
    case VGPU_OP_cuMemsetD32_v2:
    case VGPU_OP_cuMemsetD8Async:
    case VGPU_OP_cuMemsetD8_v2:
    case VGPU_OP_cuStreamDestroy_v2:
    case VGPU_OP_cuStreamSetAttribute:
    case VGPU_OP_cuStreamWaitEvent:
    case VGPU_OP_memory_op:
    case VGPU_OP_read_later:
    case VGPU_OP_write_rows:
      return !waits || has_room(worker, request);
    default:
      return false;
  }
}
