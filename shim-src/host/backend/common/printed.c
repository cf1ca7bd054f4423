#include "cuda_handlers.h"
#include "cuda_results.h"
#include "host/session/worker.h"

int32_t vgpu_common_printed(struct vgpu_worker *worker, const struct vgpu_send_printed *send,
                            struct vgpu_bulk *bulk) {
  (void)send;
  bulk->out_size = (uint32_t)vgpu_printed_take(&worker->printed, bulk->out, bulk->out_capacity);
  return CUDA_SUCCESS;
}
