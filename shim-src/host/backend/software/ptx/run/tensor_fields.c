/* tensormap.replace and tensormap.cp_fenceproxy */
#include <string.h>

#include "host/backend/software/ptx/bulk.h"
#include "host/backend/software/ptx/run/bulk_memory.h"
#include "host/backend/software/ptx/tensor_map.h"

bool ptx_map_replace(const struct place *at, uint32_t lane) {
  uint64_t address = ptx_bulk_operand(at, BULK_TO, lane, 8);
  uint32_t field = at->in->target & 0xff, d = at->in->target >> 8;
  bool wide = field == MAP_ADDRESS || field == MAP_STRIDE;
  uint64_t value = ptx_bulk_operand(at, BULK_MORE, lane, wide ? 8 : 4);
  if (!ptx_bulk_aligned(at, lane, address, 64, "the tensor map")) return false;
  unsigned char *memory = ptx_bulk_memory(at, lane, address, sizeof(struct ptx_tensor_map), true);
  if (memory == NULL) return false;
  struct ptx_tensor_map map;
  memcpy(&map, memory, sizeof map);
  switch (field) {
    case MAP_ADDRESS:
      map.address = value;
      break;
    case MAP_RANK:
      map.last = value < 255 ? (uint8_t)value : 255;
      break;
    case MAP_BOX:
      map.box[d] = value < UINT16_MAX ? (uint16_t)value : UINT16_MAX;
      break;
    case MAP_DIM:
      map.dims[d] = (uint32_t)value;
      break;
    case MAP_STRIDE:
      map.strides[d] = value;
      break;
    case MAP_STEP:
      map.steps[d] = value < 255 ? (uint8_t)value : 255;
      break;
    case MAP_TYPE:
      map.type = value < 255 ? (uint8_t)value : 255;
      break;
    case MAP_INTERLEAVE:
      map.interleave = value < 255 ? (uint8_t)value : 255;
      break;
    case MAP_SWIZZLE:
      map.swizzle = value < 255 ? (uint8_t)value : 255;
      break;
    case MAP_FILL:
      map.fill = value < 255 ? (uint8_t)value : 255;
      break;
    default:
      map.atomicity = value < 255 ? (uint8_t)value : 255;
      break;
  }
  memcpy(memory, &map, sizeof map);
  return true;
}

bool ptx_map_copy(const struct place *at, uint32_t lane) {
  uint64_t to = ptx_bulk_operand(at, BULK_TO, lane, 8), from = ptx_bulk_operand(at, BULK_FROM, lane, 8);
  if (!ptx_bulk_aligned(at, lane, to | from, 64, "the tensor map")) return false;
  const unsigned char *source = ptx_bulk_memory(at, lane, from, sizeof(struct ptx_tensor_map), false);
  unsigned char *memory =
      source == NULL ? NULL : ptx_bulk_memory(at, lane, to, sizeof(struct ptx_tensor_map), true);
  if (memory == NULL) return false;
  memcpy(memory, source, sizeof(struct ptx_tensor_map));
  return true;
}
