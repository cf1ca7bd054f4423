/* Where threads wait for each other: barriers of a block, operations with a member mask. */
#include <string.h>

#include "host/software/ptx/check.h"
#include "host/software/ptx/warp.h"

/* Threads that came to a barrier may all be there now. */
static void settle_barrier(struct block *block, uint32_t number) {
  struct barrier *barrier = &block->barriers[number];
  uint32_t expected = barrier->expected > 0 ? barrier->expected : block->live;
  if (barrier->arrived == 0 || barrier->arrived < expected) return;
  for (uint32_t i = 0; i < block->warp_count; i++) {
    struct warp *warp = &block->warps[i];
    for (uint32_t k = 0; k < warp->leaf_count; k++) {
      struct split *split = warp->leaves[k];
      if (split->state != SPLIT_BARRIER) continue;
      const struct ptx_instruction *in = &split->frame->function->code[split->pc];
      struct place at = {.warp = warp,
                         .split = split,
                         .registers = split->frame->registers,
                         .constants = block->launch->module->constants,
                         .in = in};
      uint32_t id;
      memcpy(&id, ptx_operand(&at, in->a) + 4 * (uint32_t)__builtin_ctz(split->mask), 4);
      if (id != number) continue;
      uint32_t mask = split->mask;
      switch (in->m & 7) {
        case BAR_POPC: {
          uint32_t r[PTX_LANES];
          for (int n = 0; n < PTX_LANES; n++) r[n] = barrier->count;
          ptx_blend(at.registers + (in->d & ~3u), r, mask, 4);
          break;
        }
        case BAR_AND:
          ptx_set_predicate(&at, in->d, barrier->count == barrier->asked ? FULL : 0, mask);
          break;
        case BAR_OR:
          ptx_set_predicate(&at, in->d, barrier->count > 0 ? FULL : 0, mask);
          break;
        default:
          break;
      }
      split->state = SPLIT_READY;
      split->pc++;
      if (block->check != NULL) ptx_check_pass(warp, number, barrier->expected == 0);
    }
  }
  if (block->check != NULL) ptx_check_open(block, number);
  *barrier = (struct barrier){0};
}

void ptx_settle_barriers(struct block *block) {
  for (uint32_t i = 0; i < PTX_BARRIERS; i++) {
    if (block->barriers[i].arrived > 0) settle_barrier(block, i);
  }
}

enum run ptx_barrier(const struct place *at, struct split *split, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  struct warp *warp = at->warp;
  uint32_t lane = (uint32_t)__builtin_ctz(mask), id, expected = 0;
  memcpy(&id, ptx_operand(at, in->a) + lane * 4, 4);
  if (in->b != PTX_NONE) memcpy(&expected, ptx_operand(at, in->b) + lane * 4, 4);
  if (id >= PTX_BARRIERS || (id == CLUSTER_BARRIER && (in->a & 3) != REF_CONSTANT)) {
    return ptx_raise(at, PTX_TRAP, lane, 0, "a barrier beyond 15");
  }
  struct barrier *b = &warp->block->barriers[id];
  uint32_t came = (uint32_t)__builtin_popcount(mask);
  /* Counts are of whole warps: lanes that do not exist or have ended count with the last that come. */
  if (expected > 0 && (mask | warp->exited | ~warp->exists) == FULL) came = PTX_LANES;
  if (warp->block->check != NULL) ptx_check_arrive(warp, id);
  b->expected = expected;
  b->arrived += came;
  if ((in->m & 7) >= BAR_POPC) {
    uint32_t p = ptx_predicate(at, in->c);
    if ((in->m & MB_NEGATED) != 0) p = ~p;
    b->count += (uint32_t)__builtin_popcount(p & mask);
    b->asked += (uint32_t)__builtin_popcount(mask);
  }
  if ((in->m & 7) == BAR_ARRIVE) split->pc = at->pc + 1;
  else {
    split->state = SPLIT_BARRIER;
    split->pc = at->pc;
  }
  settle_barrier(warp->block, id);
  return RUN_DONE;
}

void ptx_together(const struct place *at, uint32_t mask) {
  switch (at->in->kind) {
    case K_SHFL:
      ptx_shuffle(at, mask);
      break;
    case K_VOTE:
      ptx_vote(at, mask);
      break;
    case K_MATCH:
      ptx_match(at, mask);
      break;
    case K_REDUX:
      ptx_reduce(at, mask);
      break;
    case K_ELECT:
      ptx_elect(at, mask);
      break;
    case K_WARP_BARRIER:
      if (at->warp->block->check != NULL) ptx_check_met(at->warp, mask);
      break;
    default:
      break;
  }
}

/*
 * An operation with a member mask: when all members that still run are here, or wait at the same place in
 * other splits, it is done for all of them. Otherwise this split waits. With `force`, whoever is here does
 * it.
 */
bool ptx_meet(const struct place *at, struct split *split, uint32_t mask, bool force) {
  struct warp *warp = at->warp;
  const struct ptx_instruction *in = at->in;
  uint32_t reference = in->kind == K_WARP_BARRIER ? in->a : split->frame->function->x[in->x];
  uint32_t members;
  memcpy(&members, ptx_operand(at, reference) + 4 * (uint32_t)__builtin_ctz(mask), 4);
  uint32_t needed = members & warp->exists & ~warp->exited;
  if ((needed & ~mask) == 0) {
    ptx_together(at, mask);
    return true;
  }
  uint32_t present = mask;
  for (uint32_t i = 0; i < warp->leaf_count; i++) {
    const struct split *other = warp->leaves[i];
    if (other == split || other->state != SPLIT_WARP) continue;
    const struct ptx_instruction *its = &other->frame->function->code[other->pc];
    bool here = other->frame == split->frame && other->pc == at->pc;
    if (here || (in->kind == K_WARP_BARRIER && its->kind == K_WARP_BARRIER)) present |= other->mask;
  }
  if ((needed & ~present) != 0 && !force) {
    split->state = SPLIT_WARP;
    return false;
  }
  for (uint32_t i = 0; i < warp->leaf_count; i++) {
    struct split *other = warp->leaves[i];
    if (other == split || other->state != SPLIT_WARP) continue;
    const struct ptx_instruction *its = &other->frame->function->code[other->pc];
    bool here = other->frame == split->frame && other->pc == at->pc;
    if (!here && !(in->kind == K_WARP_BARRIER && its->kind == K_WARP_BARRIER)) continue;
    other->state = SPLIT_READY;
    other->pc++;
  }
  ptx_together(at, present);
  return true;
}
