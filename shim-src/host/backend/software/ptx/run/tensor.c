#include "host/backend/software/ptx/tensor_map.h"

#include <string.h>

#include "host/backend/software/ptx/bulk.h"
#include "host/backend/software/ptx/run/bulk_memory.h"

#define GATHERED 4u    /* rows of gather4 and scatter4 */
#define ROW_MOST 2048u /* bytes: 256 elements of 8 */

static const struct {
  uint8_t bytes, type;
} elements[PTX_TENSOR_TYPES] = {
    [PTX_TENSOR_U8] = {1, T_U8},       [PTX_TENSOR_U16] = {2, T_U16},   [PTX_TENSOR_U32] = {4, T_U32},
    [PTX_TENSOR_S32] = {4, T_S32},     [PTX_TENSOR_U64] = {8, T_U64},   [PTX_TENSOR_S64] = {8, T_S64},
    [PTX_TENSOR_F16] = {2, T_F16},     [PTX_TENSOR_F32] = {4, T_F32},   [PTX_TENSOR_F32_FTZ] = {4, T_F32},
    [PTX_TENSOR_F64] = {8, T_F64},     [PTX_TENSOR_BF16] = {2, T_BF16}, [PTX_TENSOR_TF32] = {4, T_F32},
    [PTX_TENSOR_TF32_FTZ] = {4, T_F32}};

static bool wrong(const struct place *at, uint32_t lane, const char *text) {
  ptx_raise(at, PTX_TRAP, lane, 0, text);
  return false;
}

static uint32_t dimensions(const struct ptx_instruction *in) {
  uint32_t more = in->x_count - (uint32_t)BULK_MORE;
  switch (BULK_MODE(in->m)) {
    case MODE_IM2COL:
      return (more + 2) / 2;
    case MODE_ROWS:
      return 2;
    default:
      return more;
  }
}

static bool read_map(const struct place *at, uint32_t lane, uint32_t index, struct ptx_tensor_map *map) {
  uint32_t rank = dimensions(at->in), mode = BULK_MODE(at->in->m);
  uint64_t address = ptx_bulk_operand(at, index, lane, 8);
  if (!ptx_bulk_aligned(at, lane, address, 64, "the tensor map")) return false;
  const unsigned char *memory = ptx_bulk_memory(at, lane, address, sizeof *map, false);
  if (memory == NULL) return false;
  memcpy(map, memory, sizeof *map);
  if (map->last >= PTX_TENSOR_RANK || (uint32_t)map->last + 1 != rank)
    return wrong(at, lane, "a tensor map of another number of dimensions than the instruction has");
  if (map->type >= PTX_TENSOR_TYPES || map->swizzle > 3 || map->fill > 1)
    return wrong(at, lane, "a tensor map with a type, swizzle or fill mode that there is not");
  if (map->interleave != 0 || map->atomicity != 0)
    return wrong(at, lane,
                 "a tensor map with an interleaved layout, or another atom of the swizzle than 16 "
                 "bytes: not supported by this simulated device");
  if (map->form != (mode == MODE_IM2COL ? PTX_TENSOR_IM2COL : PTX_TENSOR_TILED))
    return wrong(at, lane, "a tensor map of another mode (tiled, im2col) than the instruction has");
  if (mode == MODE_IM2COL && (map->pixels == 0 || map->pixels > PTX_TENSOR_PIXELS))
    return wrong(at, lane, "a tensor map whose number of pixels in a column is out of range");
  if (mode == MODE_ROWS && map->box[1] != 1)
    return wrong(at, lane, "a tensor map whose box has not one row, as gather4 and scatter4 need");
  for (uint32_t d = 0; d < rank; d++) {
    if (map->box[d] == 0 || map->box[d] > 256 || map->steps[d] == 0 || map->steps[d] > 8)
      return wrong(at, lane, "a tensor map whose box or element strides are out of range");
  }
  /* Reductions are atomics on the elements, which must be aligned. */
  uint64_t places = map->address;
  for (uint32_t d = 1; d < rank; d++) places |= map->strides[d - 1];
  if (places % 16 != 0)
    return wrong(at, lane, "a tensor map whose address or strides are not multiples of 16 bytes");
  uint32_t inner = (uint32_t)map->box[0] * elements[map->type].bytes;
  if (inner % 16 != 0) return wrong(at, lane, "a tensor map whose rows are not a multiple of 16 bytes");
  if (map->swizzle != 0 && inner > 16u << map->swizzle)
    return wrong(at, lane, "a tensor map whose rows are longer than its swizzle");
  return true;
}

/* The copied box of a tensor, row by row. In im2col mode a row is the channels of one pixel. */
struct tile {
  const struct place *at;
  uint32_t lane;
  const struct ptx_tensor_map *map;
  uint32_t bytes; /* of an element */
  uint32_t row;   /* bytes of a row in the box */
  uint32_t pitch; /* distance of rows in shared memory */
  uint32_t rows;  /* count of all rows */
  int64_t origin[PTX_TENSOR_RANK];
  struct block *block; /* block whose shared memory is used */
  uint64_t offset;     /* there */
  uint64_t span;       /* bytes used there */
};

static uint64_t extent(const struct ptx_tensor_map *map, uint32_t d) {
  return map->dims[d] == 0 ? 1ull << 32 : map->dims[d];
}

/* Bits 4 to 6 of an address change with bits 7 to 9. */
static uint64_t swizzled(uint64_t offset, uint32_t swizzle) {
  return offset ^ (offset >> 3 & ((16u << swizzle) - 16));
}

static uint32_t along(const struct ptx_tensor_map *map, uint32_t d) {
  return d == 0 ? 1 : ((uint32_t)map->box[d] + map->steps[d] - 1) / map->steps[d];
}

static bool begin(struct tile *t, uint64_t address) {
  const struct ptx_tensor_map *map = t->map;
  const struct launch_state *l = t->at->worker->launch;
  t->bytes = elements[map->type].bytes;
  t->row = map->box[0] * t->bytes;
  /* a row narrower than the swizzle leaves the rest of its atom free */
  t->pitch = map->swizzle != 0 ? 16u << map->swizzle : t->row;
  uint32_t mode = BULK_MODE(t->at->in->m);
  uint64_t rows = mode == MODE_IM2COL ? map->pixels : mode == MODE_ROWS ? GATHERED : 1;
  for (uint32_t d = 0; d <= map->last; d++) {
    t->origin[d] = (int32_t)ptx_bulk_operand(t->at, BULK_MORE + d, t->lane, 4);
    if (mode == MODE_TILE) rows *= along(map, d);
  }
  if (!ptx_bulk_aligned(t->at, t->lane, address, 128, "the place in shared memory")) return false;
  t->offset = address - PTX_SHARED_WINDOW;
  t->block = address - PTX_SHARED_WINDOW < PTX_WINDOW_SIZE ? ptx_shared_block(t->at, &t->offset) : NULL;
  t->span = rows * t->pitch;
  t->rows = (uint32_t)rows;
  /* A swizzle depends on the tile's place, but exchanges places only within a row. */
  uint64_t end = t->offset + t->span;
  if (t->block == NULL || end > l->shared_bytes) {
    ptx_raise(t->at, PTX_ILLEGAL_ADDRESS, t->lane, address,
              "a tile that is outside of the block's shared memory");
    return false;
  }
  return true;
}

static void fill(const struct tile *t, unsigned char *to) {
  static const unsigned char nans[2][8] = {{0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f},
                                           {0xff, 0x7f, 0xff, 0x7f, 0xff, 0x7f, 0xff, 0x7f}};
  static const unsigned char wide[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f};
  uint32_t type = elements[t->map->type].type;
  bool floats = type == T_F16 || type == T_BF16 || type == T_F32 || type == T_F64;
  if (t->map->fill == 0 || !floats) {
    memset(to, 0, t->row);
    return;
  }
  const unsigned char *nan = type == T_F64 ? wide : nans[t->bytes == 2];
  for (uint32_t i = 0; i < t->row; i += 8) memcpy(to + i, nan, 8);
}

static void flush(const struct tile *t, unsigned char *row, uint32_t from, uint32_t to) {
  bool tf32 = t->map->type == PTX_TENSOR_TF32 || t->map->type == PTX_TENSOR_TF32_FTZ;
  bool ftz = t->map->type == PTX_TENSOR_F32_FTZ || t->map->type == PTX_TENSOR_TF32_FTZ;
  if (!tf32 && !ftz) return;
  for (uint32_t i = from; i < to; i += 4) {
    uint32_t bits;
    memcpy(&bits, row + i, 4);
    if (ftz && (bits & 0x7f800000) == 0) bits &= 0x80000000;
    if (tf32 && (bits & 0x7f800000) != 0x7f800000) bits = (bits + 0x1000) & 0xffffe000;
    memcpy(row + i, &bits, 4);
  }
}

static void to_shared(const struct tile *t, uint64_t offset, const unsigned char *row, uint32_t from,
                      uint32_t to) {
  if (t->map->swizzle == 0) {
    memcpy(t->block->shared + offset + from, row + from, to - from);
    return;
  }
  for (uint32_t i = from; i < to; i += 16)
    memcpy(t->block->shared + swizzled(offset + i, t->map->swizzle), row + i, 16);
}

static void from_shared(const struct tile *t, uint64_t offset, unsigned char *row) {
  for (uint32_t i = 0; i < t->row; i += 16)
    memcpy(row + i, t->block->shared + swizzled(offset + i, t->map->swizzle), 16);
}

static bool one_row(const struct tile *t, const int64_t *coordinate, uint64_t offset) {
  const struct ptx_tensor_map *map = t->map;
  _Alignas(16) unsigned char row[ROW_MOST];
  int64_t first = coordinate[0] < 0 ? -coordinate[0] : 0;
  int64_t last = (int64_t)extent(map, 0) - coordinate[0];
  if (last > map->box[0]) last = map->box[0];
  uint64_t address = map->address;
  for (uint32_t d = 1; d <= map->last; d++) {
    if (coordinate[d] < 0 || coordinate[d] >= (int64_t)extent(map, d)) last = 0;
    address += (uint64_t)coordinate[d] * map->strides[d - 1];
  }
  bool load = BULK_OPERATION(t->at->in->m) == BULK_LOAD_TILE, none = first >= last;
  if (!load && none) return true;
  uint32_t from = none ? 0 : (uint32_t)first * t->bytes, to = none ? 0 : (uint32_t)last * t->bytes;
  unsigned char *memory = NULL;
  if (!none) {
    address += (uint64_t)(coordinate[0] + first) * t->bytes;
    memory = ptx_bulk_memory(t->at, t->lane, address, to - from, !load);
    if (memory == NULL) return false;
  }
  if (load) {
    if (to - from < t->row) fill(t, row);
    if (!none) memcpy(row + from, memory, to - from);
    flush(t, row, from, to);
    to_shared(t, offset, row, 0, t->row);
    return true;
  }
  from_shared(t, offset, row);
  if (BULK_OPERATION(t->at->in->m) == BULK_REDUCE_TILE) {
    struct ptx_instruction as = {
        .size = (uint8_t)t->bytes, .type = elements[map->type].type, .m = BULK_ATOMIC(t->at->in->m) << 4};
    ptx_bulk_reduce(&as, memory, row + from, to - from);
  } else {
    memcpy(memory, row + from, to - from);
  }
  return true;
}

static void in_box(const struct tile *t, uint32_t i, int64_t *coordinate) {
  for (uint32_t d = 1; d <= t->map->last; d++) {
    uint32_t count = along(t->map, d);
    coordinate[d] = t->origin[d] + (int64_t)(i % count) * t->map->steps[d];
    i /= count;
  }
}

/*
 * Along W, H and D within the bounding box, then in the next image. Filter offsets move the pixel that is
 * read, but not the box: each element of a filter uses the same count of pixels.
 */
static void next_pixel(const struct ptx_tensor_map *map, int64_t *pixel) {
  for (uint32_t d = 1; d < map->last; d++) {
    pixel[d] += map->steps[d];
    if (pixel[d] <= (int64_t)extent(map, d) - 1 + map->upper[d - 1]) return;
    pixel[d] = map->lower[d - 1];
  }
  pixel[map->last]++;
}

/* Copies all rows. Returns their bytes, with those outside the tensor; 0: a fault was raised. */
static uint64_t all_rows(const struct tile *t) {
  uint32_t mode = BULK_MODE(t->at->in->m), last = t->map->last;
  int64_t coordinate[PTX_TENSOR_RANK] = {0}, pixel[PTX_TENSOR_RANK];
  memcpy(pixel, t->origin, sizeof pixel);
  coordinate[0] = t->origin[0];
  for (uint32_t i = 0; i < t->rows; i++) {
    if (mode == MODE_TILE) {
      in_box(t, i, coordinate);
    } else if (mode == MODE_ROWS) {
      coordinate[1] = (int32_t)ptx_bulk_operand(t->at, BULK_MORE + 1 + i, t->lane, 4);
    } else {
      for (uint32_t d = 1; d <= last; d++) coordinate[d] = pixel[d];
      for (uint32_t d = 1; d < last; d++)
        coordinate[d] += (int64_t)ptx_bulk_operand(t->at, BULK_MORE + last + d, t->lane, 2);
      next_pixel(t->map, pixel);
    }
    if (!one_row(t, coordinate, t->offset + (uint64_t)i * t->pitch)) return 0;
  }
  return (uint64_t)t->rows * t->row;
}

static bool known_reduction(const struct ptx_tensor_map *map, uint32_t op) {
  uint32_t type = elements[map->type].type;
  bool floats = type == T_F16 || type == T_BF16 || type == T_F32 || type == T_F64;
  if (map->type <= PTX_TENSOR_U16) return false;
  if (op == A_ADD) return true;
  if (op == A_MIN || op == A_MAX) return type != T_F32 && type != T_F64;
  return !floats && (op != A_INC || type == T_U32) && (op != A_DEC || type == T_U32);
}

bool ptx_tensor(const struct place *at, uint32_t lane) {
  bool load = BULK_OPERATION(at->in->m) == BULK_LOAD_TILE;
  struct ptx_tensor_map map;
  if (!read_map(at, lane, load ? BULK_FROM : BULK_TO, &map)) return false;
  if (BULK_OPERATION(at->in->m) == BULK_REDUCE_TILE && !known_reduction(&map, BULK_ATOMIC(at->in->m)))
    return wrong(at, lane, "a reduction that the tensor's type does not have");
  uint64_t place = ptx_bulk_operand(at, load ? BULK_TO : BULK_FROM, lane, 8);
  uint64_t barrier = ptx_bulk_operand(at, BULK_BARRIER, lane, 8);
  bool many = ptx_bulk_has(at, BULK_BLOCKS);
  uint32_t blocks = many ? (uint32_t)ptx_bulk_operand(at, BULK_BLOCKS, lane, 2) : 1;
  for (; blocks != 0; blocks &= blocks - 1) {
    if (many) {
      uint64_t rank = ((uint64_t)(uint32_t)__builtin_ctz(blocks) + 1) << PTX_RANK_SHIFT;
      place = (place & ~PTX_RANK_MASK) | rank;
      barrier = (barrier & ~PTX_RANK_MASK) | rank;
    }
    struct tile tile = {.at = at, .lane = lane, .map = &map};
    if (!begin(&tile, place)) return false;
    if (tile.block->check != NULL) ptx_bulk_memory(at, lane, place, tile.span, load);
    uint64_t bytes = all_rows(&tile);
    if (bytes == 0) return false;
    if (load && !ptx_bulk_complete(at, lane, barrier, bytes)) return false;
  }
  return true;
}
