#include <string.h>

#include "host/backend/software/ptx/run/check.h"
#include "host/backend/software/ptx/run/warp.h"

static void give_result(const struct barrier *barrier, const struct split *split,
                        const struct worker *worker) {
  const struct ptx_instruction *in = &split->frame->function->code[split->pc];
  const struct place at = {.registers = split->frame->registers};
  if ((in->m & 7) < BAR_POPC) return;
  if ((in->m & 7) == BAR_POPC) {
    uint32_t r[PTX_LANES];
    for (int n = 0; n < PTX_LANES; n++) r[n] = barrier->count;
    ptx_blend(worker, at.registers + (in->d & ~3u), r, split->mask, 4);
    return;
  }
  bool all = (in->m & 7) == BAR_AND ? barrier->count == barrier->asked : barrier->count > 0;
  ptx_set_predicate(&at, in->d, all ? FULL : 0, split->mask);
}

static inline bool complete(const struct block *block, const struct barrier *barrier) {
  uint32_t expected = barrier->expected > 0 ? barrier->expected : block->live;
  return barrier->arrived > 0 && barrier->arrived >= expected;
}

static void open_barrier(struct block *block, uint32_t number) {
  struct barrier *barrier = &block->barriers[number];
  for (uint32_t i = 0; i < block->warp_count; i++) {
    struct warp *warp = &block->warps[i];
    for (uint32_t k = 0; k < warp->leaf_count; k++) {
      struct split *split = warp->leaves[k];
      if (split->state != SPLIT_BARRIER || split->barrier != number) continue;
      if (barrier->asked > 0) give_result(barrier, split, block->worker);
      split->state = SPLIT_READY;
      split->pc++;
      if (block->check != NULL) ptx_check_pass(warp, number, barrier->expected == 0);
      if (warp->leaf_count > 1 && ptx_unite(warp, split)) k--;
    }
  }
  if (block->check != NULL) ptx_check_open(block, number);
  *barrier = (struct barrier){0};
  block->arrived_at &= ~(1u << number);
}

void ptx_open_barriers(struct block *block) {
  ptx_cluster_settle(block);
  for (uint32_t i = 0; block->events && i < block->warp_count; i++) {
    for (uint32_t k = 0; k < block->warps[i].leaf_count; k++) {
      struct split *split = block->warps[i].leaves[k];
      if (split->state == SPLIT_EVENT) split->state = SPLIT_READY;
    }
  }
  block->events = false;
  for (uint32_t left = block->arrived_at; left != 0; left &= left - 1) {
    uint32_t number = (uint32_t)__builtin_ctz(left);
    if (complete(block, &block->barriers[number])) open_barrier(block, number);
  }
}

enum run ptx_barrier(const struct place *at, struct split *split, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  struct warp *warp = at->warp;
  uint32_t lane = (uint32_t)__builtin_ctz(mask), id, expected = 0;
  memcpy(&id, ptx_operand(at, in->a) + lane * 4, 4);
  if (in->b != PTX_NONE) memcpy(&expected, ptx_operand(at, in->b) + lane * 4, 4);
  if (id >= CLUSTER_BARRIER) {
    return ptx_raise(at, PTX_TRAP, lane, 0, "a barrier beyond 15");
  }
  struct barrier *b = &warp->block->barriers[id];
  uint32_t came = ptx_count(mask);
  /* Counts are of whole warps: lanes that do not exist or have ended count when the warp's last lane arrives.
   */
  if (expected > 0 && (mask | warp->exited | ~warp->exists) == FULL) came = PTX_LANES;
  if (warp->block->check != NULL) ptx_check_arrive(warp, id);
  b->expected = expected;
  b->arrived += came;
  warp->block->arrived_at |= 1u << id;
  if ((in->m & 7) >= BAR_POPC) {
    uint32_t p = ptx_predicate(at, in->c);
    if ((in->m & MB_NEGATED) != 0) p = ~p;
    b->count += (uint32_t)__builtin_popcount(p & mask);
    b->asked += (uint32_t)__builtin_popcount(mask);
  }
  if ((in->m & 7) == BAR_ARRIVE) split->pc = at->pc + 1;
  else {
    split->state = SPLIT_BARRIER;
    split->barrier = (uint8_t)id;
    split->pc = at->pc;
  }
  if (complete(warp->block, b)) open_barrier(warp->block, id);
  return RUN_DONE;
}

static uint32_t member_masks(const struct ptx_function *function, const struct ptx_instruction *in) {
  return in->kind == K_WARP_BARRIER ? in->a : function->x[in->x];
}

/* Returns the lanes of `lanes` whose member mask is that of `lane`: they do the operation together. */
static uint32_t of_one_mask(const uint32_t masks[PTX_LANES], uint32_t lanes, uint32_t lane) {
  uint32_t same = 0;
  for (uint32_t i = 0; i < PTX_LANES; i++) same |= (uint32_t)(masks[i] == masks[lane]) << i;
  return same & lanes;
}

/*
 * True for the same operation with the same qualifiers, wherever it is in the text. A barrier of a warp meets
 * any other one.
 */
static bool same_operation(const struct ptx_instruction *a, const struct ptx_instruction *b) {
  return a->kind == b->kind && (a->kind == K_WARP_BARRIER || (a->m == b->m && a->type == b->type));
}

static void join_meeting(struct meeting *meeting, const struct place *at, uint32_t mask) {
  meeting->parties[meeting->count].at = *at;
  meeting->parties[meeting->count++].mask = mask;
}

void ptx_alone(const struct place *at, uint32_t mask) {
  struct meeting meeting = {.count = 0};
  join_meeting(&meeting, at, mask);
  ptx_together(&meeting, mask);
}

/*
 * The `done` lanes of a split continue after its operation; the others wait. Lanes that the guard excludes
 * are done.
 */
static bool settle_split(struct warp *warp, struct split *split, uint32_t done) {
  if ((split->mask & ~done) == 0) {
    split->state = SPLIT_READY;
    split->pc++;
    return true;
  }
  if ((split->mask & done) != 0 && !ptx_part_lanes(warp, split, split->mask & done)) return false;
  split->state = SPLIT_WARP;
  return true;
}

/*
 * Lanes with the same mask do the operation together, when all members that still run are here or wait at the
 * same operation in other splits. Lanes that must wait stay; the others continue. `force`: without the
 * members that are not here.
 */
enum run ptx_meet(const struct place *at, struct split *split, uint32_t mask, bool force) {
  struct warp *warp = at->warp;
  const struct ptx_instruction *in = at->in;
  uint32_t masks[PTX_LANES], lane = (uint32_t)__builtin_ctz(mask), living = warp->exists & ~warp->exited;
  uint32_t reference = member_masks(split->frame->function, in);
  struct meeting meeting;
  meeting.count = 0;
  join_meeting(&meeting, at, mask);
  split->pc = at->pc;
  const uint32_t *own = (const void *)ptx_operand(at, reference);
  memcpy(&masks[lane], &own[lane], sizeof *masks);
  bool one_mask = (reference & 3) == REF_CONSTANT;
  if (!one_mask) {
    memcpy(masks, own, sizeof masks);
    one_mask = of_one_mask(masks, mask, lane) == mask;
  }
  if (one_mask && (masks[lane] & living & ~mask) == 0) {
    ptx_together(&meeting, mask);
    split->pc++;
    return RUN_DONE;
  }
  memcpy(masks, own, sizeof masks);
  uint32_t present = mask, done = 0;
  for (uint32_t i = 0; i < warp->leaf_count; i++) {
    struct split *other = warp->leaves[i];
    if (other == split || other->state != SPLIT_WARP) continue;
    const struct ptx_function *function = other->frame->function;
    struct place there = *at;
    there.split = other;
    there.registers = other->frame->registers;
    there.in = &function->code[other->pc];
    there.pc = other->pc;
    if (!same_operation(in, there.in)) continue;
    ptx_blend(there.worker, masks, ptx_operand(&there, member_masks(function, there.in)), other->mask, 4);
    present |= other->mask;
    join_meeting(&meeting, &there, other->mask);
  }
  for (uint32_t left = present; left != 0;) {
    lane = (uint32_t)__builtin_ctz(left);
    uint32_t group = of_one_mask(masks, left, lane);
    left &= ~group;
    bool all_here = (masks[lane] & living & ~present) == 0;
    if (!all_here && !(force && (group & mask) != 0)) continue;
    ptx_together(&meeting, group);
    done |= group;
  }
  for (uint32_t i = 1; i < meeting.count; i++) {
    struct split *other = meeting.parties[i].at.split;
    if ((other->mask & done) != 0 && !settle_split(warp, other, done)) return RUN_FAULT;
  }
  if (!settle_split(warp, split, done | (split->mask & ~mask))) return RUN_FAULT;
  return split->state == SPLIT_READY ? RUN_DONE : RUN_BLOCKED;
}
