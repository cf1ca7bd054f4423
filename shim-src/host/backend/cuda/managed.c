/* Managed variables are not available here, because the guest cannot map the driver's memory. */
#include "cuda_handlers.h"
#include "host/session/worker.h"
#include "cuda_results.h"

int32_t vgpu_cuda_managed_variables(struct vgpu_worker *worker,
                                    const struct vgpu_send_managed_variables *send,
                                    struct vgpu_reply_managed_variables *reply, struct vgpu_bulk *bulk) {
  (void)worker, (void)send, (void)reply, (void)bulk;
  return CUDA_ERROR_NOT_SUPPORTED;
}

int32_t vgpu_cuda_managed_place(struct vgpu_worker *worker, const struct vgpu_send_managed_place *send) {
  (void)worker, (void)send;
  return CUDA_ERROR_NOT_SUPPORTED;
}
