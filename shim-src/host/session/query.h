/* The getters of NVML that a guest asks (wire/query.h). */
#ifndef VGPU_HOST_QUERY_H
#define VGPU_HOST_QUERY_H

#include "host/session/worker.h"
#include "wire/query.h"

/* Codes of nvmlReturn_t that the host itself returns. */
enum vgpu_nvml_result {
  VGPU_NVML_SUCCESS = 0,
  VGPU_NVML_INVALID_ARGUMENT = 2,
  VGPU_NVML_NOT_SUPPORTED = 3,
  VGPU_NVML_NOT_FOUND = 6,
  VGPU_NVML_INSUFFICIENT_SIZE = 7,
};

/* Checks a request, has the backend answer it, and packs the answer. Returns an enum vgpu_status. */
int32_t vgpu_query_answer(struct vgpu_worker *worker, const struct vgpu_query_request *request,
                          struct vgpu_query_reply *reply, struct vgpu_bulk *bulk);

#endif
