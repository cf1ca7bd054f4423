/* Descriptors of tensors. The host's driver makes them and checks the values; there are no other checks. */
#include "wire/tensor_map.h"

#include <string.h>

#include "host/backend/cuda/session.h"

struct descriptor {
  _Alignas(64) unsigned char bytes[VGPU_TENSOR_MAP_BYTES];
};

static int32_t encode(const struct vgpu_driver_api *api, uint32_t form, void *address,
                      struct vgpu_tensor_request *request, struct descriptor *made) {
  const struct vgpu_tensor_request *r = request;
  switch (form) {
    case VGPU_TENSOR_TILED:
      return VGPU_DRIVER(api, cuTensorMapEncodeTiled, made, r->data_type, r->rank, address, r->dim,
                         r->strides, r->box, r->element_strides, r->interleave, r->swizzle, r->promotion,
                         r->fill);
    case VGPU_TENSOR_IM2COL:
      return VGPU_DRIVER(api, cuTensorMapEncodeIm2col, made, r->data_type, r->rank, address, r->dim,
                         r->strides, r->lower, r->upper, r->channels_per_pixel, r->pixels_per_column,
                         r->element_strides, r->interleave, r->swizzle, r->promotion, r->fill);
    case VGPU_TENSOR_IM2COL_WIDE:
      return VGPU_DRIVER(api, cuTensorMapEncodeIm2colWide, made, r->data_type, r->rank, address, r->dim,
                         r->strides, r->lower[0], r->upper[0], r->channels_per_pixel, r->pixels_per_column,
                         r->element_strides, r->interleave, r->mode, r->swizzle, r->promotion, r->fill);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

int32_t vgpu_cuda_tensor_map(struct vgpu_worker *worker, const struct vgpu_send_tensor_map *send,
                             struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  struct descriptor made;
  void *address = (void *)(uintptr_t)send->address;
  if (bulk->out_capacity < sizeof made.bytes) return CUDA_ERROR_INVALID_VALUE;
  if (send->form == VGPU_TENSOR_MOVED) {
    if (bulk->in_size != sizeof made.bytes) return CUDA_ERROR_INVALID_VALUE;
    memcpy(made.bytes, bulk->in, sizeof made.bytes);
    result = VGPU_DRIVER(&cuda->api, cuTensorMapReplaceAddress, &made, address);
  } else {
    struct vgpu_tensor_request request;
    if (bulk->in_size != sizeof request) return CUDA_ERROR_INVALID_VALUE;
    memcpy(&request, bulk->in, sizeof request);
    if (request.rank == 0 || request.rank > VGPU_TENSOR_RANK_MAX) return CUDA_ERROR_INVALID_VALUE;
    result = encode(&cuda->api, send->form, address, &request, &made);
  }
  if (result != CUDA_SUCCESS) return result;
  memcpy(bulk->out, made.bytes, sizeof made.bytes);
  bulk->out_size = sizeof made.bytes;
  return CUDA_SUCCESS;
}
