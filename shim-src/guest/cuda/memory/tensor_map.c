/* Only the host's driver knows the hardware's format, so the host makes tensor maps. */
#include "wire/tensor_map.h"

#include <string.h>

#include "api/device_attributes.h"
#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/internal.h"

#define ALIGNMENT 64u /* of a CUtensorMap */

static int ask(void *map, const void *address, uint32_t form, const void *request, uint32_t size) {
  struct vgpu_send_tensor_map send = {.address = (uint64_t)(uintptr_t)address, .form = form};
  unsigned char made[VGPU_TENSOR_MAP_BYTES];
  struct vgpu_cuda_exchange exchange = {.send = &send,
                                        .send_size = sizeof send,
                                        .send_bulk = request,
                                        .send_bulk_size = size,
                                        .bulk = made,
                                        .bulk_capacity = sizeof made};
  int result = vgpu_cuda_exchange(VGPU_OP_tensor_map, &exchange);
  if (result != CUDA_SUCCESS) return result;
  if (exchange.bulk_size != sizeof made) return CUDA_ERROR_UNKNOWN;
  memcpy(map, made, sizeof made);
  return CUDA_SUCCESS;
}

static bool is_place(const void *map) {
  return map != NULL && (uintptr_t)map % ALIGNMENT == 0;
}

/* The fields of all kinds. The host's driver checks the values. */
static int begin(struct vgpu_tensor_request *request, const void *map, uint32_t least_rank, int32_t type,
                 uint32_t rank, const uint64_t *dim, const uint64_t *strides, const uint32_t *element_strides,
                 int32_t interleave, int32_t swizzle, int32_t promotion, int32_t fill) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!is_place(map) || rank < least_rank || rank > VGPU_TENSOR_RANK_MAX || dim == NULL ||
      (strides == NULL && rank > 1) || element_strides == NULL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *request = (struct vgpu_tensor_request){.data_type = type,
                                          .rank = rank,
                                          .interleave = interleave,
                                          .swizzle = swizzle,
                                          .promotion = promotion,
                                          .fill = fill};
  memcpy(request->dim, dim, rank * sizeof *dim);
  if (rank > 1) memcpy(request->strides, strides, (rank - 1) * sizeof *strides);
  memcpy(request->element_strides, element_strides, rank * sizeof *element_strides);
  return CUDA_SUCCESS;
}

int cuTensorMapEncodeTiled(void *tensorMap, int32_t tensorDataType, uint32_t tensorRank, void *globalAddress,
                           const uint64_t *globalDim, const uint64_t *globalStrides, const uint32_t *boxDim,
                           const uint32_t *elementStrides, int32_t interleave, int32_t swizzle,
                           int32_t l2Promotion, int32_t oobFill) {
  struct vgpu_tensor_request request;
  int result = begin(&request, tensorMap, 1, tensorDataType, tensorRank, globalDim, globalStrides,
                     elementStrides, interleave, swizzle, l2Promotion, oobFill);
  if (result != CUDA_SUCCESS) return result;
  if (boxDim == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(request.box, boxDim, tensorRank * sizeof *boxDim);
  return ask(tensorMap, globalAddress, VGPU_TENSOR_TILED, &request, sizeof request);
}

int cuTensorMapEncodeIm2col(void *tensorMap, int32_t tensorDataType, uint32_t tensorRank, void *globalAddress,
                            const uint64_t *globalDim, const uint64_t *globalStrides,
                            const int32_t *pixelBoxLowerCorner, const int32_t *pixelBoxUpperCorner,
                            uint32_t channelsPerPixel, uint32_t pixelsPerColumn,
                            const uint32_t *elementStrides, int32_t interleave, int32_t swizzle,
                            int32_t l2Promotion, int32_t oobFill) {
  struct vgpu_tensor_request request;
  int result = begin(&request, tensorMap, 3, tensorDataType, tensorRank, globalDim, globalStrides,
                     elementStrides, interleave, swizzle, l2Promotion, oobFill);
  if (result != CUDA_SUCCESS) return result;
  if (pixelBoxLowerCorner == NULL || pixelBoxUpperCorner == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(request.lower, pixelBoxLowerCorner, (tensorRank - 2) * sizeof *pixelBoxLowerCorner);
  memcpy(request.upper, pixelBoxUpperCorner, (tensorRank - 2) * sizeof *pixelBoxUpperCorner);
  request.channels_per_pixel = channelsPerPixel;
  request.pixels_per_column = pixelsPerColumn;
  return ask(tensorMap, globalAddress, VGPU_TENSOR_IM2COL, &request, sizeof request);
}

int cuTensorMapEncodeIm2colWide(void *tensorMap, int32_t tensorDataType, uint32_t tensorRank,
                                void *globalAddress, const uint64_t *globalDim, const uint64_t *globalStrides,
                                int32_t pixelBoxLowerCornerWidth, int32_t pixelBoxUpperCornerWidth,
                                uint32_t channelsPerPixel, uint32_t pixelsPerColumn,
                                const uint32_t *elementStrides, int32_t interleave, int32_t mode,
                                int32_t swizzle, int32_t l2Promotion, int32_t oobFill) {
  struct vgpu_tensor_request request;
  int result = begin(&request, tensorMap, 3, tensorDataType, tensorRank, globalDim, globalStrides,
                     elementStrides, interleave, swizzle, l2Promotion, oobFill);
  if (result != CUDA_SUCCESS) return result;
  request.lower[0] = pixelBoxLowerCornerWidth;
  request.upper[0] = pixelBoxUpperCornerWidth;
  request.channels_per_pixel = channelsPerPixel;
  request.pixels_per_column = pixelsPerColumn;
  request.mode = mode;
  return ask(tensorMap, globalAddress, VGPU_TENSOR_IM2COL_WIDE, &request, sizeof request);
}

int cuTensorMapReplaceAddress(void *tensorMap, void *globalAddress) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!is_place(tensorMap)) return CUDA_ERROR_INVALID_VALUE;
  return ask(tensorMap, globalAddress, VGPU_TENSOR_MOVED, tensorMap, VGPU_TENSOR_MAP_BYTES);
}

/* CUtensorMapAllocClass */
enum { CLASS_AUTO = 0, CLASS_SMALL = 1, CLASS_LARGE = 2 };

/*
 * The class has no effect on a device whose least size of a large tensor is INT_MAX. On other devices the
 * descriptor would have to change, and the call is refused.
 */
int cuTensorMapSetAllocationClass(void *tensorMap, int32_t allocClass, int32_t *outAllocClass) {
  int32_t device, least;
  int result = vgpu_cuda_ready();
  if (result == CUDA_SUCCESS) result = cuCtxGetDevice(&device);
  if (result != CUDA_SUCCESS) return result;
  if (!is_place(tensorMap) || allocClass < CLASS_AUTO || allocClass > CLASS_LARGE)
    return CUDA_ERROR_INVALID_VALUE;
  result = cuDeviceGetAttribute(&least, VGPU_ATTRIBUTE_TENSOR_MAP_LARGE_TENSOR_MIN_SIZE, device);
  if (result != CUDA_SUCCESS) return result;
  if (least != INT32_MAX) return CUDA_ERROR_NOT_SUPPORTED;
  if (outAllocClass != NULL) *outAllocClass = CLASS_SMALL;
  return CUDA_SUCCESS;
}
