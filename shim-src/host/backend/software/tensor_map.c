/*
 * Makes descriptors of tensors in the format of ptx/tensor_map.h. Values that a driver refuses, by its
 * documentation, are invalid. Values that only this device cannot process are not supported.
 */
#include "wire/tensor_map.h"

#include <string.h>

#include "cuda_handlers.h"
#include "host/backend/software/ptx/tensor_map.h"
#include "host/session/worker.h"
#include "cuda_results.h"

_Static_assert(sizeof(struct ptx_tensor_map) == VGPU_TENSOR_MAP_BYTES, "one form of descriptors");

/* CUtensorMapDataType is numbered differently from PTX. */
static const struct {
  uint8_t type, bytes;
  bool is_float;
} types[] = {
    {PTX_TENSOR_U8, 1, false},      {PTX_TENSOR_U16, 2, false},    {PTX_TENSOR_U32, 4, false},
    {PTX_TENSOR_S32, 4, false},     {PTX_TENSOR_U64, 8, false},    {PTX_TENSOR_S64, 8, false},
    {PTX_TENSOR_F16, 2, true},      {PTX_TENSOR_F32, 4, true},     {PTX_TENSOR_F64, 8, true},
    {PTX_TENSOR_BF16, 2, true},     {PTX_TENSOR_F32_FTZ, 4, true}, {PTX_TENSOR_TF32, 4, true},
    {PTX_TENSOR_TF32_FTZ, 4, true},
};
#define TYPES ((int32_t)(sizeof types / sizeof *types))
/* Last numbers of the enumerations in CUDA 13. */
enum { TYPE_LAST = 15, INTERLEAVE_LAST = 2, SWIZZLE_LAST = 6, PROMOTION_LAST = 3, FILL_LAST = 1 };
enum { SWIZZLE_128B = 3 };

static bool within(int32_t value, int32_t last) {
  return value >= 0 && value <= last;
}

static int32_t judge(const struct vgpu_tensor_request *r, uint64_t address) {
  if (!within(r->data_type, TYPE_LAST) || !within(r->interleave, INTERLEAVE_LAST) ||
      !within(r->swizzle, SWIZZLE_LAST) || !within(r->promotion, PROMOTION_LAST) ||
      !within(r->fill, FILL_LAST))
    return CUDA_ERROR_INVALID_VALUE;
  if (r->data_type >= TYPES || r->interleave != 0 || r->swizzle > SWIZZLE_128B)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (address % 16 != 0 || (r->fill != 0 && !types[r->data_type].is_float)) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t d = 0; d < r->rank; d++) {
    if (r->dim[d] == 0 || r->dim[d] > 1ull << 32 || r->element_strides[d] == 0 || r->element_strides[d] > 8)
      return CUDA_ERROR_INVALID_VALUE;
    if (d > 0 && (r->strides[d - 1] % 16 != 0 || r->strides[d - 1] >= 1ull << 40))
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

/* Encodes the fields that both forms have. `row` is the number of elements in a row of shared memory. */
static int32_t encode(const struct vgpu_tensor_request *r, uint64_t address, uint32_t row,
                      struct ptx_tensor_map *map) {
  int32_t result = judge(r, address);
  if (result != CUDA_SUCCESS) return result;
  uint32_t bytes = row * types[r->data_type].bytes;
  if (row == 0 || row > 256 || bytes % 16 != 0 || (r->swizzle != 0 && bytes > 16u << r->swizzle))
    return CUDA_ERROR_INVALID_VALUE;
  *map = (struct ptx_tensor_map){.address = address,
                                 .last = (uint8_t)(r->rank - 1),
                                 .type = types[r->data_type].type,
                                 .swizzle = (uint8_t)r->swizzle,
                                 .fill = (uint8_t)r->fill};
  for (uint32_t d = 0; d < r->rank; d++) {
    map->dims[d] = (uint32_t)r->dim[d];
    map->box[d] = d == 0 ? (uint16_t)row : 1;
    map->steps[d] = (uint8_t)r->element_strides[d];
    if (d > 0) map->strides[d - 1] = r->strides[d - 1];
  }
  return CUDA_SUCCESS;
}

static int32_t tiled(const struct vgpu_tensor_request *r, uint64_t address, struct ptx_tensor_map *map) {
  for (uint32_t d = 1; d < r->rank; d++) {
    if (r->box[d] == 0 || r->box[d] > 256) return CUDA_ERROR_INVALID_VALUE;
  }
  int32_t result = encode(r, address, r->box[0], map);
  for (uint32_t d = 1; result == CUDA_SUCCESS && d < r->rank; d++) map->box[d] = (uint16_t)r->box[d];
  return result;
}

static int32_t im2col(const struct vgpu_tensor_request *r, uint64_t address, struct ptx_tensor_map *map) {
  /* With more dimensions there are fewer bits for each corner. */
  static const int32_t limits[] = {[3] = 1 << 15, [4] = 1 << 7, [5] = 1 << 4};
  if (r->rank < 3 || r->pixels_per_column == 0 || r->pixels_per_column > PTX_TENSOR_PIXELS)
    return CUDA_ERROR_INVALID_VALUE;
  int32_t limit = limits[r->rank];
  for (uint32_t d = 0; d < r->rank - 2; d++) {
    if (r->lower[d] < -limit || r->lower[d] >= limit || r->upper[d] < -limit || r->upper[d] >= limit)
      return CUDA_ERROR_INVALID_VALUE;
  }
  int32_t result = encode(r, address, r->channels_per_pixel, map);
  if (result != CUDA_SUCCESS) return result;
  map->form = PTX_TENSOR_IM2COL;
  map->pixels = (uint16_t)r->pixels_per_column;
  for (uint32_t d = 0; d < r->rank - 2; d++) {
    map->lower[d] = (int16_t)r->lower[d];
    map->upper[d] = (int16_t)r->upper[d];
  }
  return CUDA_SUCCESS;
}

static bool any_copies_tensors(const struct vgpu_inventory *inventory) {
  for (uint32_t i = 0; i < inventory->count; i++) {
    if (inventory->devices[i].compute_major >= 9) return true;
  }
  return false;
}

int32_t vgpu_software_tensor_map(struct vgpu_worker *worker, const struct vgpu_send_tensor_map *send,
                                 struct vgpu_bulk *bulk) {
  struct ptx_tensor_map map;
  if (!any_copies_tensors(worker->inventory)) return CUDA_ERROR_NOT_SUPPORTED;
  if (bulk->out_capacity < sizeof map) return CUDA_ERROR_INVALID_VALUE;
  int32_t result = CUDA_ERROR_INVALID_VALUE;
  if (send->form == VGPU_TENSOR_MOVED) {
    if (bulk->in_size != sizeof map || send->address % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
    memcpy(&map, bulk->in, sizeof map);
    map.address = send->address;
    result = CUDA_SUCCESS;
  } else if (send->form == VGPU_TENSOR_TILED || send->form == VGPU_TENSOR_IM2COL) {
    struct vgpu_tensor_request request;
    if (bulk->in_size != sizeof request) return CUDA_ERROR_INVALID_VALUE;
    memcpy(&request, bulk->in, sizeof request);
    if (request.rank == 0 || request.rank > VGPU_TENSOR_RANK_MAX) return CUDA_ERROR_INVALID_VALUE;
    result = (send->form == VGPU_TENSOR_TILED ? tiled : im2col)(&request, send->address, &map);
  } else if (send->form == VGPU_TENSOR_IM2COL_WIDE) {
    result = CUDA_ERROR_NOT_SUPPORTED; /* for compute capability 10 */
  }
  if (result != CUDA_SUCCESS) return result;
  memcpy(bulk->out, &map, sizeof map);
  bulk->out_size = sizeof map;
  return CUDA_SUCCESS;
}
