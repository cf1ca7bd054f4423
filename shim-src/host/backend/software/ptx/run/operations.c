#include <string.h>

#include "host/backend/software/ptx/run/warp.h"

void ptx_set_lanes(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const struct ptx_alu *alu = at->worker->alu;
  const unsigned char *a = ptx_operand(at, in->a), *b = ptx_operand(at, in->b);
  static const uint64_t truths[4] = {~0ull, 0x3f800000u, 0x3c00u, 0x3f80u};
  uint64_t yes = truths[in->m >> 3 & 3];
  unsigned char *d = at->registers + (in->d & ~3u), *to = mask == FULL ? d : at->worker->scratch;
  if (in->kind == K_SET_PAIR) {
    uint64_t t = in->u.compare_pair(a, b), high = ptx_combined(at, (uint32_t)(t >> 32));
    alu->spread_pair(to, ptx_combined(at, (uint32_t)t) | high << 32, yes & 0xffff);
  } else {
    alu->spread[__builtin_ctz(in->size)](to, ptx_combined(at, in->u.compare(a, b)), yes);
  }
  if (mask != FULL) ptx_blend(at->worker, d, to, mask, in->size);
}

/*
 * m: 1 subtract, 2 with the carry, 4 sets it. A subtraction adds the complement and 1 or the carry, so its
 * carry is NOT borrow. ptxas does the same (it folds sub.cc 3, 5 and addc 7, 0 to 7).
 */
void ptx_carry(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const uint32_t *x = at->split->frame->function->x + in->x;
  uint32_t before = (in->m & 2) != 0 ? ptx_predicate(at, x[0]) : (in->m & 1) != 0 ? FULL : 0, after = 0;
  const unsigned char *a = ptx_operand(at, in->a), *b = ptx_operand(at, in->b);
  unsigned char *d = at->registers + (in->d & ~3u);
  for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
    if ((mask >> lane & 1) == 0) continue;
    uint64_t p = 0, q = 0;
    memcpy(&p, a + lane * in->size, in->size);
    memcpy(&q, b + lane * in->size, in->size);
    if ((in->m & 1) != 0) q = in->size == 4 ? (uint32_t)~q : ~q;
    unsigned __int128 wide = (unsigned __int128)p + q + (before >> lane & 1);
    after |= ((uint32_t)(wide >> (in->size * 8)) & 1) << lane;
    uint64_t value = (uint64_t)wide;
    memcpy(d + lane * in->size, &value, in->size);
  }
  if ((in->m & 4) != 0) ptx_set_predicate(at, x[1], after, mask);
}

void ptx_predicates(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  uint32_t a = ptx_predicate(at, in->a), r;
  switch (in->m) {
    case P_AND:
      r = a & ptx_predicate(at, in->b);
      break;
    case P_OR:
      r = a | ptx_predicate(at, in->b);
      break;
    case P_XOR:
      r = a ^ ptx_predicate(at, in->b);
      break;
    case P_NOT:
      r = ~a;
      break;
    default:
      r = a;
  }
  ptx_set_predicate(at, in->d, r, mask);
}

void ptx_kernel_parameter(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const uint32_t *x = at->split->frame->function->x + in->x;
  const unsigned char *from = (const unsigned char *)at->worker->launch->launch->parameters + in->u.offset;
  uint32_t held = ML_REGISTER(in->m);
  for (uint32_t k = 0; k < in->x_count; k++, from += in->size) {
    const uint64_t value = ptx_extended(in, from);
    unsigned char *d = at->registers + (x[k] & ~3u);
    if (mask == FULL && held == 8) {
      for (uint32_t i = 0; i < PTX_LANES; i++) memcpy(d + i * 8, &value, 8);
    } else if (mask == FULL && held == 4) {
      for (uint32_t i = 0; i < PTX_LANES; i++) memcpy(d + i * 4, &value, 4);
    } else {
      for (uint32_t i = 0; i < PTX_LANES; i++) {
        if ((mask >> i & 1) != 0) memcpy(d + i * held, &value, held);
      }
    }
  }
}

/* Parameters of calls are lane-major. The parameters of two lanes are `target` bytes apart. */
void ptx_call_parameter(const struct place *at, uint32_t mask, bool load) {
  const struct ptx_instruction *in = at->in;
  const uint32_t *x = at->split->frame->function->x + in->x;
  uint32_t held = ML_REGISTER(in->m);
  for (uint32_t k = 0; k < in->x_count; k++) {
    for (uint32_t left = mask; left != 0; left &= left - 1) {
      uint32_t lane = (uint32_t)__builtin_ctz(left);
      unsigned char *memory = at->registers + in->u.offset + lane * in->target + k * in->size;
      if (!load) {
        memcpy(memory, ptx_operand(at, x[k]) + lane * held, in->size);
        continue;
      }
      const uint64_t value = ptx_extended(in, memory);
      memcpy(at->registers + (x[k] & ~3u) + lane * held, &value, held);
    }
  }
}

void ptx_window(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const uint64_t *a = (const void *)ptx_operand(at, in->a);
  uint32_t r = 0;
  for (uint32_t i = 0; i < PTX_LANES; i++) {
    uint64_t rank = (a[i] & PTX_RANK_MASK) >> PTX_RANK_SHIFT, base;
    bool own = rank == 0 || rank == ptx_cluster_rank(at->warp->block) + 1 || in->m != 0;
    bool is = ptx_space_of(a[i], &base) == in->space && (in->space != S_SHARED || own);
    r |= (uint32_t)is << i;
  }
  ptx_set_predicate(at, in->d, r, mask);
}
