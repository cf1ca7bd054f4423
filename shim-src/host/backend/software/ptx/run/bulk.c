#include "host/backend/software/ptx/bulk.h"

#include <stdio.h>
#include <string.h>

#include "host/backend/software/ptx/run/bulk_memory.h"

/* Checks recognise accesses by the kind of instruction; a bulk copy both reads and writes. */
static struct place doing(const struct place *at, struct ptx_instruction *as, bool writes) {
  *as = *at->in;
  as->kind = writes ? K_ASYNC_WRITE : K_ASYNC_READ;
  struct place place = *at;
  place.in = as;
  return place;
}

static unsigned char *outside(const struct place *at, uint32_t lane, uint64_t address, uint64_t bytes,
                              bool writes, const char *where) {
  char text[120];
  snprintf(text, sizeof text, "a bulk %s of %llu bytes at 0x%llx %s", writes ? "write" : "read",
           (unsigned long long)bytes, (unsigned long long)address, where);
  ptx_raise(at, PTX_ILLEGAL_ADDRESS, lane, address, text);
  return NULL;
}

unsigned char *ptx_bulk_memory(const struct place *at, uint32_t lane, uint64_t address, uint64_t bytes,
                               bool writes) {
  struct ptx_instruction as;
  struct place place = doing(at, &as, writes);
  const struct launch_state *l = at->worker->launch;
  if (address - PTX_SHARED_WINDOW < PTX_WINDOW_SIZE) {
    uint64_t offset = address - PTX_SHARED_WINDOW;
    struct block *block = ptx_shared_block(at, &offset);
    if (block == NULL || offset > l->shared_bytes || bytes > l->shared_bytes - offset)
      return outside(at, lane, address, bytes, writes, "is outside of the block's shared memory");
    if (block->check != NULL) ptx_check_shared(&place, block, lane, offset, (uint32_t)bytes);
    return block->shared + offset;
  }
  if (address - PTX_PARAM_WINDOW < PTX_WINDOW_SIZE) {
    uint64_t offset = address - PTX_PARAM_WINDOW;
    if (writes || offset > l->info->parameter_bytes || bytes > l->info->parameter_bytes - offset)
      return outside(at, lane, address, bytes, writes, "is outside of the parameters");
    return (unsigned char *)(uintptr_t)l->launch->parameters + offset;
  }
  if (bytes > UINT32_MAX) return outside(at, lane, address, bytes, writes, "is too large");
  return ptx_in_global(&place, lane, address, (uint32_t)bytes);
}

uint64_t ptx_bulk_operand(const struct place *at, uint32_t index, uint32_t lane, uint32_t bytes) {
  uint64_t value = 0;
  uint32_t reference = at->split->frame->function->x[at->in->x + index];
  if (reference != PTX_NONE) memcpy(&value, ptx_operand(at, reference) + (size_t)lane * bytes, bytes);
  return value;
}

bool ptx_bulk_has(const struct place *at, uint32_t index) {
  return at->split->frame->function->x[at->in->x + index] != PTX_NONE;
}

bool ptx_bulk_aligned(const struct place *at, uint32_t lane, uint64_t value, uint32_t alignment,
                      const char *what) {
  if (value % alignment == 0) return true;
  char text[120];
  snprintf(text, sizeof text, "%s of a bulk copy, 0x%llx, is not a multiple of %u", what,
           (unsigned long long)value, alignment);
  ptx_raise(at, PTX_MISALIGNED_ADDRESS, lane, value, text);
  return false;
}

bool ptx_bulk_complete(const struct place *at, uint32_t lane, uint64_t barrier, uint64_t bytes) {
  struct ptx_instruction arrive = *at->in;
  arrive.kind = K_ATOM;
  arrive.size = 8;
  arrive.space = S_GENERIC;
  arrive.type = T_B64;
  arrive.m = (uint32_t)A_ARRIVE << 4;
  arrive.d = PTX_NONE;
  struct place place = *at;
  place.in = &arrive;
  unsigned char *to = ptx_resolve(&place, S_GENERIC, lane, barrier, 8);
  if (to == NULL) return false;
  ptx_exchange(&arrive, to, 0, (uint64_t)0 - bytes);
  return true;
}

/* Copies bytes. Bytes that a mask of 16 excludes do not change. */
static void copy_bytes(unsigned char *to, const unsigned char *from, uint64_t bytes, uint32_t mask) {
  if (mask == 0xffff) {
    memmove(to, from, bytes);
    return;
  }
  for (uint64_t i = 0; i < bytes; i++) {
    if ((mask >> (i & 15) & 1) != 0) to[i] = from[i];
  }
}

void ptx_bulk_reduce(const struct ptx_instruction *as, unsigned char *to, const unsigned char *from,
                     uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += as->size) {
    uint64_t value = 0;
    memcpy(&value, from + i, as->size);
    ptx_exchange(as, to + i, value, 0);
  }
}

static bool copy(const struct place *at, uint32_t lane) {
  const struct ptx_instruction *in = at->in;
  uint64_t to = ptx_bulk_operand(at, BULK_TO, lane, 8), from = ptx_bulk_operand(at, BULK_FROM, lane, 8);
  uint64_t barrier = ptx_bulk_operand(at, BULK_BARRIER, lane, 8);
  uint32_t bytes = (uint32_t)ptx_bulk_operand(at, BULK_SIZE, lane, 4);
  if (!ptx_bulk_aligned(at, lane, to, 16, "the destination") ||
      !ptx_bulk_aligned(at, lane, from, 16, "the source") ||
      !ptx_bulk_aligned(at, lane, bytes, 16, "the size"))
    return false;
  const unsigned char *source = ptx_bulk_memory(at, lane, from, bytes, false);
  if (source == NULL) return false;
  uint32_t mask = ptx_bulk_has(at, BULK_BYTES) ? (uint32_t)ptx_bulk_operand(at, BULK_BYTES, lane, 2) : 0xffff;
  uint32_t blocks = ptx_bulk_has(at, BULK_BLOCKS) ? (uint32_t)ptx_bulk_operand(at, BULK_BLOCKS, lane, 2) : 0;
  struct ptx_instruction as = *in;
  as.m = BULK_ATOMIC(in->m) << 4;
  uint64_t rank = blocks == 0 ? 0 : (uint32_t)__builtin_ctz(blocks) + 1;
  do {
    /* for each block of the mask, the same place in its memory */
    uint64_t shift = rank << PTX_RANK_SHIFT, clear = blocks == 0 ? 0 : PTX_RANK_MASK;
    unsigned char *memory = ptx_bulk_memory(at, lane, (to & ~clear) | shift, bytes, true);
    if (memory == NULL) return false;
    if (BULK_OPERATION(in->m) == BULK_REDUCE) ptx_bulk_reduce(&as, memory, source, bytes);
    else copy_bytes(memory, source, bytes, mask);
    if (ptx_bulk_has(at, BULK_BARRIER) && !ptx_bulk_complete(at, lane, (barrier & ~clear) | shift, bytes))
      return false;
    blocks &= blocks - 1;
    rank = blocks == 0 ? 0 : (uint32_t)__builtin_ctz(blocks) + 1;
  } while (blocks != 0);
  return true;
}

/* st.async and red.async: write a few registers to memory. */
static bool put(const struct place *at, uint32_t lane) {
  const struct ptx_instruction *in = at->in;
  uint64_t to = ptx_bulk_operand(at, BULK_TO, lane, 8), barrier = ptx_bulk_operand(at, BULK_BARRIER, lane, 8);
  uint32_t count = in->x_count - (uint32_t)BULK_MORE, bytes = in->size * count;
  if (!ptx_bulk_aligned(at, lane, to, bytes, "the destination")) return false;
  unsigned char *memory = ptx_bulk_memory(at, lane, to, bytes, true);
  if (memory == NULL) return false;
  struct ptx_instruction as = *in;
  as.m = BULK_ATOMIC(in->m) << 4;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t value = ptx_bulk_operand(at, BULK_MORE + i, lane, in->size);
    if (BULK_OPERATION(in->m) == BULK_REDUCE_ASYNC) ptx_exchange(&as, memory, value, 0);
    else memcpy(memory + i * in->size, &value, in->size);
  }
  return ptx_bulk_complete(at, lane, barrier, bytes);
}

bool ptx_bulk(const struct place *at, uint32_t mask) {
  /* All lanes of a warp copy a map together: one lane does it. */
  if (BULK_OPERATION(at->in->m) == BULK_MAP_COPY) mask &= 0u - mask;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    bool done;
    switch (BULK_OPERATION(at->in->m)) {
      case BULK_COPY:
      case BULK_REDUCE:
        done = copy(at, lane);
        break;
      case BULK_STORE_ASYNC:
      case BULK_REDUCE_ASYNC:
        done = put(at, lane);
        break;
      case BULK_MAP_REPLACE:
        done = ptx_map_replace(at, lane);
        break;
      case BULK_MAP_COPY:
        done = ptx_map_copy(at, lane);
        break;
      default:
        done = ptx_tensor(at, lane);
        break;
    }
    if (!done) return false;
  }
  return true;
}
