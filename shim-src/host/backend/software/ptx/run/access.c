#include <string.h>

#include "host/backend/software/ptx/run/single.h"
#include "host/backend/software/ptx/run/warp.h"

#define CROOKED 31u /* accesses after one that was not straight, at the same place of the code */

/* Returns the region of device memory that contains an address; NULL: none. */
static const struct ptx_region *region_of(const struct place *at, uint64_t address) {
  struct ptx_region *region = &at->worker->regions[at->pc % PTX_REGION_CACHE];
  if (address - region->address < region->size) return region;
  const struct ptx_launch *launch = at->worker->launch->launch;
  struct ptx_region found = {0};
  if (launch->find == NULL || !launch->find(launch->user, address, &found)) return NULL;
  *region = found;
  return region;
}

unsigned char *ptx_in_one(const struct place *at, uint32_t mask, uint32_t bytes, uint64_t *to,
                          uint32_t *shape) {
  const struct ptx_instruction *in = at->in;
  const struct launch_state *l = at->worker->launch;
  const struct warp *warp = at->warp;
  if (warp->block->check != NULL) return NULL; /* with checks, every access is resolved by itself */
  const unsigned char *address = ptx_operand(at, in->a);
  bool narrow = (in->m & ML_NARROW) != 0;
  uint64_t offset = in->u.offset, first;
  uint32_t lane = (uint32_t)__builtin_ctz(mask);
  struct ptx_reach reach = {.lane = lane,
                            .align = bytes - 1,
                            .shift = (uint32_t)__builtin_ctz(bytes),
                            .narrow = narrow,
                            .loads = in->kind == K_LOAD};
  if (narrow) {
    /* 32-bit windows wrap around; the few other sums are resolved one by one */
    if ((offset >> 32) != 0 && (offset >> 32) != 0xffffffff) return NULL;
    uint32_t a;
    memcpy(&a, address + lane * 4, 4);
    first = a + (uint32_t)offset;
  } else {
    memcpy(&first, address + lane * 8, 8);
    first += offset;
  }
  uint64_t size;
  unsigned char *memory;
  enum ptx_space space = in->space;
  if (space == S_GENERIC) space = ptx_space_of(first, &reach.base);
  switch (space) {
    case S_SHARED:
      size = l->shared_bytes;
      memory = warp->block->shared;
      break;
    case S_LOCAL:
      size = reach.lane_distance = l->local_bytes;
      memory = warp->block->local + (uint64_t)warp->number * PTX_LANES * size;
      break;
    case S_PARAM:
      return NULL;
    default: {
      const struct ptx_region *region = region_of(at, first);
      if (region == NULL) return NULL;
      reach.base = region->address;
      size = region->size;
      memory = region->bytes;
    }
  }
  if (size < bytes) return NULL;
  reach.limit = size - bytes;
  reach.offset = offset;
  *shape = at->worker->alu->reach(to, address, mask, &reach);
  return (*shape & REACH_OUTSIDE) != 0 ? NULL : memory;
}

/*
 * An access of one element by all lanes, side by side or at one place: one check and one copy for the warp.
 * False: nothing was done.
 */
static bool straight(const struct place *at, uint32_t element) {
  const struct ptx_instruction *in = at->in;
  const struct block *block = at->warp->block;
  bool narrow = (in->m & ML_NARROW) != 0, store = in->kind == K_STORE;
  uint8_t *crooked = &at->worker->crooked[at->pc % PTX_REGION_CACHE];
  if (*crooked > 0) {
    --*crooked;
    return false;
  }
  if ((ptx_analyses & PTX_ANALYSE_STRAIGHT) == 0 || in->size != ML_REGISTER(in->m) || block->check != NULL)
    return false;
  ptx_straight_access *access = at->worker->alu->straight[store][narrow][__builtin_ctz(in->size)];
  if (access == NULL) return false;
  const void *address = ptx_operand(at, in->a);
  struct ptx_straight s = {.offset = in->u.offset};
  enum ptx_space space = in->space;
  uint64_t first = 0;
  if (narrow) {
    if ((in->u.offset >> 32) != 0 && (in->u.offset >> 32) != 0xffffffff) return false;
  } else {
    memcpy(&first, address, sizeof first);
    first += in->u.offset;
    if (space == S_GENERIC && ptx_is_device(first)) space = S_GLOBAL;
  }
  if (space == S_GLOBAL && !narrow) {
    const struct ptx_region *region = region_of(at, first);
    if (region == NULL) return false;
    s = (struct ptx_straight){region->bytes, region->size, region->address, in->u.offset};
  } else if (space == S_SHARED || (space == S_GENERIC && first - PTX_SHARED_WINDOW < PTX_WINDOW_SIZE)) {
    s.memory = block->shared;
    s.size = at->worker->launch->shared_bytes;
    if (space == S_GENERIC) s.base = PTX_SHARED_WINDOW;
  } else {
    return false;
  }
  if (access(at->registers + (element & ~3u), address, &s)) return true;
  *crooked = CROOKED;
  return false;
}

/* Adds lanes that do not exist or have ended to `mask`: their registers may be written. */
static uint32_t writable(const struct place *at, uint32_t mask) {
  return mask | ~at->warp->exists | at->warp->exited;
}

/* Bytes 1, 2, 4, 8 to 0, 1, 2, 3. */
static uint32_t width(uint32_t bytes) {
  return (uint32_t)__builtin_ctz(bytes) & 3;
}

/* The lanes of each half load the same vector: it is read once. */
static void load_two_vectors(const struct place *at, const unsigned char *memory, const uint64_t *to,
                             uint32_t shape, uint32_t lanes) {
  const struct ptx_instruction *in = at->in;
  const uint32_t *x = at->split->frame->function->x + in->x;
  uint32_t bytes = (uint32_t)in->size * in->x_count;
  ptx_gather *gather =
      at->worker->alu->gather[width(in->size)][(in->m & ML_SIGNED) != 0][width(ML_REGISTER(in->m))];
  unsigned char both[2][PTX_WHOLE * 4];
  static const uint64_t places[PTX_LANES] = {[PTX_LANES / 2] = sizeof both[0]};
  ptx_copy_once(both[0], memory + to[0], bytes);
  ptx_copy_once(both[1], memory + to[PTX_LANES / 2], bytes);
  for (uint32_t k = 0; k < in->x_count; k++)
    gather(at->registers + (x[k] & ~3u), both[0] + k * in->size, places, shape, lanes);
}

static void load_vectors(const struct place *at, const unsigned char *memory, const uint64_t *to,
                         uint32_t shape, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const struct ptx_alu *alu = at->worker->alu;
  const uint32_t *x = at->split->frame->function->x + in->x;
  uint32_t bytes = (uint32_t)in->size * in->x_count, piece = bytes < PTX_WHOLE ? bytes : PTX_WHOLE;
  uint32_t count = piece / in->size, lanes = writable(at, mask);
  if ((shape & REACH_NO_HALVES) == 0) {
    load_two_vectors(at, memory, to, shape, lanes);
    return;
  }
  ptx_deal *deal = alu->deal[width(in->size)][(in->m & ML_SIGNED) != 0][width(ML_REGISTER(in->m))];
  _Alignas(64) unsigned char vectors[PTX_LANES * PTX_WHOLE];
  for (uint32_t k = 0; k < in->x_count; k += count) {
    alu->gather_whole[__builtin_ctz(piece)](vectors, memory + k * in->size, to, shape, FULL);
    for (uint32_t j = 0; j < count; j++)
      deal(at->registers + (x[k + j] & ~3u), vectors + j * in->size, count, lanes);
  }
}

static void store_vectors(const struct place *at, unsigned char *memory, const uint64_t *to, uint32_t shape,
                          uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const struct ptx_alu *alu = at->worker->alu;
  const uint32_t *x = at->split->frame->function->x + in->x;
  uint32_t bytes = (uint32_t)in->size * in->x_count, piece = bytes < PTX_WHOLE ? bytes : PTX_WHOLE;
  uint32_t count = piece / in->size;
  ptx_collect *collect = alu->collect[width(in->size)][width(ML_REGISTER(in->m))];
  _Alignas(64) unsigned char vectors[PTX_LANES * PTX_WHOLE];
  for (uint32_t k = 0; k < in->x_count; k += count) {
    for (uint32_t j = 0; j < count; j++) collect(vectors + j * in->size, ptx_operand(at, x[k + j]), count);
    alu->scatter_whole[__builtin_ctz(piece)](memory + k * in->size, vectors, to, shape, mask);
  }
}

/* Like ptx_in_one, for the sources of an asynchronous copy, which are in device memory. */
static unsigned char *sources_in_one(const struct place *at, uint32_t mask, uint32_t bytes, uint64_t *to,
                                     uint32_t *shape) {
  const unsigned char *address = ptx_operand(at, at->in->b);
  uint64_t first, offset = (uint64_t)(int64_t)(int32_t)at->in->target;
  uint32_t lane = (uint32_t)__builtin_ctz(mask);
  memcpy(&first, address + lane * 8, 8);
  const struct ptx_region *region = region_of(at, first + offset);
  if (region == NULL || region->size < bytes) return NULL;
  const struct ptx_reach reach = {.offset = offset,
                                  .base = region->address,
                                  .limit = region->size - bytes,
                                  .align = bytes - 1,
                                  .shift = (uint32_t)__builtin_ctz(bytes),
                                  .lane = lane,
                                  .loads = true};
  *shape = at->worker->alu->reach(to, address, mask, &reach);
  return (*shape & REACH_OUTSIDE) != 0 ? NULL : region->bytes;
}

static uint32_t copy_less(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  uint32_t less = 0;
  if (in->x_count > 0) memcpy(&less, ptx_operand(at, at->split->frame->function->x[in->x]), 4);
  if (in->c == PTX_NONE) return less & mask;
  const uint32_t *have = (const void *)ptx_operand(at, in->c);
  for (uint32_t i = 0; i < PTX_LANES; i++) less |= (uint32_t)(have[i] < in->size) << i;
  return less & mask;
}

bool ptx_copy_lanes(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const struct ptx_alu *alu = at->worker->alu;
  uint64_t from[PTX_LANES], to[PTX_LANES];
  uint32_t sources, places, which = (uint32_t)__builtin_ctz(in->size);
  if (copy_less(at, mask) != 0) return false;
  unsigned char *there = ptx_in_one(at, mask, in->size, to, &places);
  if (there == NULL) return false;
  const unsigned char *memory = sources_in_one(at, mask, in->size, from, &sources);
  if (memory == NULL) return false;
  _Alignas(64) unsigned char values[PTX_LANES * PTX_WHOLE];
  alu->gather_whole[which](values, memory, from, sources, FULL);
  alu->scatter_whole[which](there, values, to, places, mask);
  return true;
}

bool ptx_load(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const uint32_t *x = at->split->frame->function->x + in->x;
  uint32_t count = in->x_count, bytes = in->size * count, held = ML_REGISTER(in->m), shape = 0;
  uint64_t to[PTX_LANES];
  if (mask == FULL && count == 1 && straight(at, x[0])) return true;
  const unsigned char *memory = ptx_in_one(at, mask, bytes, to, &shape);
  if (memory != NULL) {
    if (count > 1) {
      load_vectors(at, memory, to, shape, mask);
      return true;
    }
    bool is_signed = (in->m & ML_SIGNED) != 0;
    ptx_gather *gather = at->worker->alu->gather[width(in->size)][is_signed][width(held)];
    gather(at->registers + (x[0] & ~3u), memory, to, shape, writable(at, mask));
    return true;
  }
  ptx_addresses(at, to);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    const unsigned char *from = ptx_resolve(at, in->space, lane, to[lane], bytes);
    if (from == NULL) return false;
    unsigned char whole[PTX_WHOLE * 4];
    ptx_copy_once(whole, from, bytes);
    for (uint32_t k = 0; k < count; k++) {
      const uint64_t value = ptx_extended(in, whole + k * in->size);
      memcpy(at->registers + (x[k] & ~3u) + lane * held, &value, held);
    }
  }
  return true;
}

bool ptx_store(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const uint32_t *x = at->split->frame->function->x + in->x;
  uint32_t count = in->x_count, bytes = in->size * count, held = ML_REGISTER(in->m), shape = 0;
  uint64_t to[PTX_LANES];
  if (mask == FULL && count == 1 && (x[0] & 3) == REF_FRAME && straight(at, x[0])) return true;
  unsigned char *memory = ptx_in_one(at, mask, bytes, to, &shape);
  if (memory != NULL) {
    if (count > 1) store_vectors(at, memory, to, shape, mask);
    else
      at->worker->alu->scatter[width(in->size)][width(held)](memory, ptx_operand(at, x[0]), to, shape, mask);
    return true;
  }
  ptx_addresses(at, to);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    unsigned char *here = ptx_resolve(at, in->space, lane, to[lane], bytes);
    if (here == NULL) return false;
    unsigned char whole[PTX_WHOLE * 4];
    for (uint32_t k = 0; k < count; k++)
      memcpy(whole + k * in->size, ptx_operand(at, x[k]) + lane * held, in->size);
    ptx_copy_once(here, whole, bytes);
  }
  return true;
}
