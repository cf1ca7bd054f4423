/*
 * A daemon that is older than conditional graphs and managed variables: it does not know the calls that came
 * with them.
 */
#include "host/session/answer.h"

#define CALLS 933u /* first number of an unknown call */

const uint32_t vgpu_call_features = 0;

const struct vgpu_dispatch_row *vgpu_find_row(const void *context, uint32_t opcode) {
  const struct vgpu_worker *worker = context;
  switch (opcode & VGPU_OP_RANGE_MASK) {
    case VGPU_OP_CUDA:
      return worker->library == VGPU_LIBRARY_CUDA && (opcode & ~VGPU_OP_RANGE_MASK) < CALLS
                 ? vgpu_dispatch_cuda(opcode)
                 : NULL;
    case VGPU_OP_NVML:
      return worker->library == VGPU_LIBRARY_NVML ? vgpu_dispatch_nvml(opcode) : NULL;
    default:
      return NULL;
  }
}
