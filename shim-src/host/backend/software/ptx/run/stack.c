/* alloca, stacksave, stackrestore */
#include "host/backend/software/ptx/run/warp.h"

#define LINE 16u /* unit of the stack, and the least alignment of an allocation */

static uint32_t bottom(const struct frame *frame) {
  return frame->local_base + frame->function->local_bytes;
}

uint32_t ptx_stack_top(const struct frame *frame, uint32_t lanes) {
  uint32_t most = 0;
  for (uint32_t left = frame->grows ? lanes : 0; left != 0; left &= left - 1) {
    uint32_t grown = frame->grown[__builtin_ctz(left)];
    if (grown > most) most = grown;
  }
  return bottom(frame) + most;
}

static bool allocate(const struct place *at, struct frame *frame, uint32_t lane, uint64_t size,
                     uint64_t *to) {
  uint64_t alignment = at->in->u.offset < LINE ? LINE : at->in->u.offset;
  uint64_t top = bottom(frame) + (uint64_t)frame->grown[lane], limit = at->worker->launch->local_bytes;
  uint64_t start = (top + alignment - 1) / alignment * alignment;
  if (start > limit || size > limit - start) {
    ptx_raise(at, PTX_STACK_OVERFLOW, lane, size, "alloca of more than the stack has");
    return false;
  }
  uint64_t end = (start + size + LINE - 1) / LINE * LINE;
  frame->grown[lane] = (uint32_t)((end < limit ? end : limit) - bottom(frame));
  *to = start;
  return true;
}

static bool restore(const struct place *at, struct frame *frame, uint32_t lane, uint64_t value) {
  uint64_t low = bottom(frame), high = low + frame->grown[lane];
  if (value < low || value > high) {
    ptx_raise(at, PTX_STACK_OVERFLOW, lane, value, "stackrestore of what stacksave did not give here");
    return false;
  }
  frame->grown[lane] = (uint32_t)(value - low);
  return true;
}

static uint64_t value_of(const struct place *at, uint32_t lane) {
  uint64_t value = 0;
  memcpy(&value, (const unsigned char *)ptx_operand(at, at->in->a) + lane * at->in->size, at->in->size);
  return value;
}

bool ptx_stack(const struct place *at, struct frame *frame, uint32_t mask) {
  if (!frame->grows) memset(frame->grown, 0, sizeof frame->grown);
  frame->grows = true;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    uint64_t value = at->in->m == STACK_SAVE ? 0 : value_of(at, lane);
    bool good = true;
    if (at->in->m == STACK_SAVE) value = bottom(frame) + (uint64_t)frame->grown[lane];
    else if (at->in->m == STACK_ALLOCATE) good = allocate(at, frame, lane, value, &value);
    else good = restore(at, frame, lane, value);
    if (!good) return false;
    if (at->in->m != STACK_RESTORE)
      memcpy(at->registers + (at->in->d & ~3u) + lane * at->in->size, &value, at->in->size);
  }
  return true;
}
