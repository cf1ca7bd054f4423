#include "cuda_calls.h"
#include "guest/cuda/begins_work.h"

/*
 * True for calls without a time bound: kernels, fills and copies within the device, waits for a value in
 * memory, compilation, and memory or contexts that the driver frees after all work.
 */
bool vgpu_cuda_begins_work(uint32_t opcode) {
  switch (opcode) {
    case VGPU_OP_cuLaunchKernelEx:
    case VGPU_OP_cuGraphLaunch:
    case VGPU_OP_cuMemsetD8_v2:
    case VGPU_OP_cuMemsetD16_v2:
    case VGPU_OP_cuMemsetD32_v2:
    case VGPU_OP_cuMemsetD8Async:
    case VGPU_OP_cuMemsetD16Async:
    case VGPU_OP_cuMemsetD32Async:
    case VGPU_OP_cuMemsetD2D8Async:
    case VGPU_OP_cuMemcpyDtoD_v2:
    case VGPU_OP_cuMemcpyDtoDAsync_v2:
    case VGPU_OP_copy_box:
    case VGPU_OP_memory_op:
    case VGPU_OP_cuMemFree_v2:
    case VGPU_OP_cuMemPoolDestroy:
    case VGPU_OP_cuMemPoolTrimTo:
    case VGPU_OP_cuMemRelease:
    case VGPU_OP_cuMemUnmap:
    case VGPU_OP_cuCtxCreate_v2:
    case VGPU_OP_cuCtxDestroy_v2:
    case VGPU_OP_cuModuleUnload:
    case VGPU_OP_cuLibraryUnload:
    case VGPU_OP_cuModuleLoadDataEx:
    case VGPU_OP_cuModuleGetFunction:
    case VGPU_OP_cuLibraryLoadData:
    case VGPU_OP_cuLibraryGetModule:
    case VGPU_OP_cuLibraryGetKernel:
    case VGPU_OP_link_images:
    case VGPU_OP_function_load:
      return true;
    default:
      return false;
  }
}
