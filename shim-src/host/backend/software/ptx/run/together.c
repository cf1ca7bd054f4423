/*
 * Warps of a block that go from barrier to barrier together, in compiled code. They need no splits, and a
 * barrier needs no count: all warps that have not ended are at the same barrier, or each continues as a split
 * from where it is.
 */
#include <string.h>

#include "host/backend/software/ptx/run/block.h"
#include "host/backend/software/ptx/run/region.h"

/* True for a barrier of all threads of a block without a result, with the same number for each. */
static bool is_plain_barrier(const struct ptx_compiled *compiled, const unsigned char *constants,
                             const struct ptx_instruction *in) {
  if (in->kind != K_BARRIER || in->guard != 0 || in->b != PTX_NONE || (in->m & 7) != BAR_SYNC) return false;
  uint32_t reference = ptx_plan_source(&compiled->plan, in->a), number;
  if ((reference & 3) != REF_CONSTANT) return false;
  memcpy(&number, constants + (reference & ~3u), sizeof number);
  return number < CLUSTER_BARRIER;
}

/*
 * The warps continue as splits: those before the nth at the barrier, at which they have not arrived yet, the
 * nth at `pc`, and the others at block->together.
 */
static enum run part(struct block *block, uint32_t n, uint32_t pc, uint32_t barrier) {
  const uint32_t from = block->together;
  block->together = PTX_NO_PC;
  for (uint32_t i = 0; i < block->warp_count; i++) {
    struct warp *warp = &block->warps[i];
    if (warp->frame == NULL) continue; /* it has not begun, or has ended */
    if (ptx_split_warp(warp, i < n ? barrier : i == n ? pc : from) == NULL) return RUN_FAULT;
  }
  return RUN_BLOCKED;
}

static void end(struct warp *warp) {
  if (warp->frame != NULL) ptx_free_frame(warp->block->worker, warp->frame);
  warp->frame = NULL;
  warp->fresh = false;
  warp->exited = warp->exists;
  warp->block->live -= ptx_count(warp->exists);
}

enum run ptx_region_block(struct block *block, const struct ptx_compiled *compiled,
                          struct ptx_region_call *call) {
  uint32_t pc = block->together, meets = PTX_NO_PC;
  if (compiled == NULL || compiled->plan.entry[pc] == PTX_NO_PC) return part(block, 0, pc, meets);
  struct worker *worker = block->worker;
  struct split root = {.pc = pc, .reconvergence = PTX_NO_PC};
  struct place at = {.split = &root,
                     .worker = worker,
                     .constants = worker->constants,
                     .pc = pc,
                     .in = &compiled->plan.code[pc]};
  call->at = &at;
  call->entry = compiled->plan.entry[pc];
  call->reconvergence = PTX_NO_PC;
  ptx_use_control(worker, compiled->plan.control);
  struct frame **spare = &worker->free_frames[block->launch->function];
  for (uint32_t n = 0; n < block->warp_count; n++) {
    struct warp *warp = &block->warps[n];
    /* Warps that end without a barrier use the same frame, one after another. */
    struct frame *frame = warp->fresh ? *spare : warp->frame;
    if (frame == NULL && !warp->fresh) continue; /* it has ended */
    if (frame == NULL || !frame->settled) {
      if (!ptx_begin_warp(warp)) return RUN_FAULT;
      frame = warp->frame;
    }
    if (warp->fresh) warp->exited = 0;
    root.frame = frame;
    at.warp = warp;
    at.registers = frame->registers;
    call->settled = at.registers;
    call->mask = call->living = warp->exists;
    call->spun = warp->fresh ? 0 : warp->spun;
    /* Kept across barriers: a loop that polls by a load before its barrier must count as waiting (SPIN_*). */
    call->seen = warp->fresh ? 0 : warp->seen;
    call->turns = PTX_TURNS;
    call->rounds = 0;
    call->tid = warp->tid[0];
    pc = call->compares ? ptx_region_compare(&at, compiled, call)
                        : compiled->run(call, at.registers, at.constants);
    if (pc == PTX_REGION_FAULT) return RUN_FAULT;
    const struct ptx_instruction *in = &compiled->plan.code[pc];
    if (in->guard == 0 && (in->kind == K_RET || in->kind == K_EXIT)) {
      end(warp);
      continue;
    }
    if (warp->frame == NULL) *spare = frame->next;
    warp->frame = frame;
    warp->fresh = false;
    warp->spun = call->spun;
    warp->seen = call->seen;
    if (meets == PTX_NO_PC && is_plain_barrier(compiled, worker->constants, in)) meets = pc;
    if (pc == meets) continue;
    ptx_settle_barriers(block);
    return part(block, n, pc, meets);
  }
  ptx_settle_barriers(block); /* blocks of a cluster may have waited for warps that have ended */
  if (block->live == 0) return RUN_DONE;
  block->together = meets + 1;
  while (compiled->plan.code[block->together].kind == K_LABEL) block->together++;
  return RUN_YIELD;
}
