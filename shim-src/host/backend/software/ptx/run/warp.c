#include <stdio.h>
#include <string.h>

#include "host/backend/software/ptx/special.h"
#include "host/backend/software/ptx/run/region.h"
#include "host/backend/software/ptx/run/warp.h"

enum run ptx_raise(const struct place *at, enum ptx_status status, uint32_t lane, uint64_t address,
                   const char *text) {
  struct launch_state *l = at->worker->launch;
  pthread_mutex_lock(&l->lock);
  if (l->fault.status == PTX_OK) {
    l->fault.status = status;
    l->fault.address = address;
    l->fault.line = at->in == NULL ? 0 : at->in->line;
    memcpy(l->fault.block, at->warp->block->id, sizeof l->fault.block);
    for (int k = 0; k < 3; k++) l->fault.thread[k] = at->warp->tid[k][lane & 31];
    snprintf(l->fault.text, sizeof l->fault.text, "%s", text);
  }
  __atomic_store_n(&l->stop, 1, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&l->lock);
  return RUN_FAULT;
}

/*
 * Returns the next leaf that can continue; NULL: none. If leaves wait for lanes of the warp that wait
 * elsewhere, one of these leaves continues without the lanes (*forced).
 */
static struct split *ready(struct warp *warp, bool *forced) {
  *forced = false;
  if (warp->leaf_count == 1 && warp->leaves[0]->state != SPLIT_WARP)
    return warp->leaves[0]->state == SPLIT_READY ? warp->leaves[0] : NULL;
  for (uint32_t i = 0; i < warp->leaf_count; i++) {
    uint32_t k = (warp->at + i) % warp->leaf_count;
    if (warp->leaves[k]->state == SPLIT_READY) {
      warp->at = k;
      return warp->leaves[k];
    }
  }
  uint32_t count = warp->leaf_count;
  for (uint32_t k = 0; k < count; k++) {
    /* those lanes may wait at a join for this leaf */
    if (warp->leaves[k]->state == SPLIT_WARP && ptx_release(warp, warp->leaves[k])) {
      warp->at = count;
      return warp->leaves[count];
    }
  }
  for (uint32_t k = 0; k < count; k++) {
    if (warp->leaves[k]->state != SPLIT_WARP) continue;
    for (uint32_t i = 0; i < warp->leaf_count; i++) {
      /* lanes at a block's barrier can still come when it opens */
      if (warp->leaves[i]->state == SPLIT_BARRIER || warp->leaves[i]->state == SPLIT_EVENT) return NULL;
    }
    warp->at = k;
    *forced = true;
    return warp->leaves[k];
  }
  return NULL;
}

/*
 * Counts a repetition. If the loop has repeated for long, lanes that wait for it continue without it. True:
 * it may wait for another warp or block, which gets its turn. A loop that reads the clock again and again
 * gives up its turn at once: on a GPU all warps wait for a time together.
 */
static bool go_round(struct warp *warp, struct split *split, uint32_t *seen) {
  bool timed = (*seen & SPIN_CLOCK) != 0 && split->timed;
  if (timed) warp->block->timed = true;
  split->timed = (*seen & SPIN_CLOCK) != 0;
  split->spun += *seen & ~(uint32_t)SPIN_CLOCK;
  *seen = 0;
  if (split->spun < SPIN_MOST) return timed;
  split->spun = 0;
  warp->block->waits = true;
  ptx_release(warp, split);
  ptx_release_waiting(warp->block);
  return true;
}

static void end_turn(const struct worker *worker, uint32_t function, uint32_t left) {
  ptx_region_heat(worker->launch, function, 0, PTX_TURNS - left);
}

enum run ptx_run_warp(struct warp *warp, uint32_t budget, uint32_t turns, uint32_t seen) {
  struct worker *worker = warp->block->worker;
  struct place at = {.warp = warp, .worker = worker, .constants = worker->constants};
  uint32_t function = warp->leaves[0]->frame->number;
again:
  if (warp->leaf_count == 0) {
    end_turn(worker, function, turns);
    return RUN_DONE;
  }
  if (--turns == 0) goto next_split;
  if (warp->at >= warp->leaf_count) warp->at = 0;
  bool forced;
  struct split *split = ready(warp, &forced);
  if (split == NULL) {
    end_turn(worker, function, turns);
    return RUN_BLOCKED;
  }
  split->state = SPLIT_READY;
  function = split->frame->number;
  const struct ptx_instruction *code = split->frame->function->code;
  at.split = split;
  at.registers = split->frame->registers;
  uint32_t pc = split->pc, all = split->mask;
  uint32_t idle = ~warp->exists | warp->exited;

  for (;;) {
    const struct ptx_instruction *in = &code[pc];
    uint32_t mask = all;
    at.in = in;
    at.pc = pc;
    uint8_t kind = __atomic_load_n(&in->dispatch, __ATOMIC_RELAXED);
    if (in->guard != 0 && kind != K_REGION) { /* compiled code evaluates guards itself */
      mask = ptx_guarded(&at, all);
      if (mask == 0) {
        pc++;
        continue;
      }
    }
    ptx_use_control(worker, in->control);
  execute:
    switch (kind) {
      case K_REGION: {
        const struct ptx_compiled *compiled = ptx_code_of(worker->launch, split->frame->function);
        /* The clock is the interpreter's. */
        if (compiled == NULL || (seen & SPIN_CLOCK) != 0) {
          mask = ptx_guarded(&at, all);
          if (mask == 0) break;
          kind = in->kind;
          goto execute;
        }
        struct ptx_region_call call;
        ptx_region_prepare_call(&call, warp->block, compiled);
        call.turns = turns;
        call.seen = seen;
        pc = ptx_region_run(&at, compiled, all, &call);
        if (pc == PTX_REGION_FAULT) return RUN_FAULT;
        turns = call.turns;
        seen = call.seen;
        continue;
      }
      case K_ALU: {
        unsigned char *d = at.registers + (in->d & ~3u);
        if ((mask | idle) == FULL) {
          in->u.lanes(d, ptx_operand(&at, in->a), ptx_operand(&at, in->b), ptx_operand(&at, in->c), in->m);
        } else {
          in->u.lanes(worker->scratch, ptx_operand(&at, in->a), ptx_operand(&at, in->b),
                      ptx_operand(&at, in->c), in->m);
          ptx_blend(worker, d, worker->scratch, mask, in->size);
        }
        break;
      }
      case K_SETP:
        ptx_compare_lanes(&at, mask);
        break;
      case K_SPECIAL:
        ptx_special(&at);
        if (in->m >= SR_CLOCK && in->m <= SR_GLOBALTIMER_HI) seen |= SPIN_CLOCK;
        if ((mask | idle) == FULL) {
          memcpy(at.registers + (in->d & ~3u), worker->scratch, (size_t)in->size * PTX_LANES);
        } else {
          ptx_blend(worker, at.registers + (in->d & ~3u), worker->scratch, mask, in->size);
        }
        break;
      case K_SETP_PAIR:
      case K_SET:
      case K_SET_PAIR:
      case K_CARRY:
      case K_PRED:
      case K_LOAD_KERNEL_PARAM:
      case K_CP_ASYNC:
      case K_ISSPACEP:
      case K_LOCAL_ADDRESS:
      case K_LDMATRIX:
      case K_STMATRIX:
      case K_MOVMATRIX:
      case K_MMA:
      case K_WMMA_LOAD:
      case K_WMMA_STORE:
        if (!ptx_step(&at, mask)) return RUN_FAULT;
        break;
      case K_LABEL:
        if (pc == split->reconvergence && split->parent != NULL) {
          ptx_arrive(split, all);
          ptx_end_split(warp, split);
          goto again;
        }
        break;
      case K_BRA:
        if (--turns == 0) {
          split->pc = pc;
          goto next_split;
        }
        if (seen != 0 && in->target <= pc && go_round(warp, split, &seen)) {
          split->pc = pc;
          budget = 1;
          goto next_split;
        }
        if (mask == all) {
          pc = in->target;
          continue;
        }
        split->pc = pc;
        if (!ptx_diverge(warp, split, mask, in->target, pc + 1, in->join)) {
          return ptx_raise(&at, PTX_STACK_OVERFLOW, 0, 0, "branches are nested too deep");
        }
        goto again;
      case K_BRX: {
        if (--turns == 0) {
          split->pc = pc;
          goto next_split;
        }
        /* the lanes of the first target leave; the others repeat this instruction */
        const uint32_t *index = (const void *)ptx_operand(&at, in->a);
        uint32_t lane = (uint32_t)__builtin_ctz(mask), taken = 0;
        if (in->x_count == 0 || index[lane] >= in->x_count) {
          return ptx_raise(&at, PTX_TRAP, lane, 0, "an index beyond the list of targets");
        }
        for (uint32_t left = mask; left != 0; left &= left - 1) {
          uint32_t other = (uint32_t)__builtin_ctz(left);
          if (index[other] == index[lane]) taken |= 1u << other;
        }
        uint32_t target = split->frame->function->x[in->x + index[lane]];
        if (taken == all) {
          pc = target;
          continue;
        }
        split->pc = pc;
        uint32_t rest = mask & ~taken;
        if (!ptx_diverge(warp, split, taken, target, rest != 0 ? pc : pc + 1, in->join)) {
          return ptx_raise(&at, PTX_STACK_OVERFLOW, 0, 0, "branches are nested too deep");
        }
        goto again;
      }
      case K_CALL:
      case K_CALL_INDIRECT: {
        const struct ptx_function *callee =
            in->kind == K_CALL ? worker->launch->module->functions[in->target] : NULL;
        if (callee != NULL && callee->builtin) {
          if (!ptx_builtin(&at, mask, callee)) return RUN_FAULT;
          break;
        }
        split->pc = pc;
        if (!ptx_call(&at, split, mask, pc + 1)) return RUN_FAULT;
        if (callee != NULL) ptx_region_heat(worker->launch, in->target, 1, 0);
        goto again;
      }
      case K_RET:
        /* A split that meets its siblings elsewhere cannot come here. At the root, its lanes end. */
        split->pc = pc + 1;
        if (split->parent == NULL) ptx_leave(warp, split, mask);
        else {
          struct split *up = split;
          /* parents in the same frame wait for joins that are not reached */
          while (up->parent != NULL && up->parent->frame == split->frame) up = up->parent;
          if (up->parent == NULL) {
            ptx_leave(warp, split, mask);
          } else {
            struct split bridge = {.parent = up->parent, .frame = split->frame};
            ptx_give_back(&bridge, mask);
            up->parent->arrived |= mask;
            split->mask &= ~mask;
          }
        }
        if (split->mask == 0) {
          ptx_end_split(warp, split);
          ptx_settle_barriers(warp->block);
        }
        goto again;
      case K_EXIT:
        split->pc = pc + 1;
        ptx_leave(warp, split, mask);
        if (split->mask == 0) ptx_end_split(warp, split);
        ptx_settle_barriers(warp->block);
        goto again;
      case K_TRAP:
        return ptx_raise(&at, PTX_TRAP, (uint32_t)__builtin_ctz(mask), 0, "a trap instruction");
      case K_LOAD:
        if (!ptx_load(&at, mask)) return RUN_FAULT;
        seen |= (in->m & ML_VOLATILE) != 0 ? SPIN_ORDERED : SPIN_LOAD;
        break;
      case K_STORE:
        if (!ptx_store(&at, mask)) return RUN_FAULT;
        break;
      case K_LOAD_PARAM:
        ptx_call_parameter(&at, mask, true);
        break;
      case K_STORE_PARAM:
        ptx_call_parameter(&at, mask, false);
        break;
      case K_ATOM:
        if (!ptx_atomic(&at, mask)) return RUN_FAULT;
        seen |= SPIN_ORDERED;
        break;
      case K_STACK:
        if (!ptx_stack(&at, split->frame, mask)) return RUN_FAULT;
        break;
      case K_ACTIVEMASK: {
        uint32_t r[PTX_LANES];
        for (int i = 0; i < PTX_LANES; i++) r[i] = mask;
        ptx_blend(worker, at.registers + (in->d & ~3u), r, mask, 4);
        break;
      }
      case K_BARRIER: {
        split->pc = pc;
        if (ptx_barrier(&at, split, mask) == RUN_FAULT) return RUN_FAULT;
        if (split->state == SPLIT_READY && split->mask == all) {
          pc = split->pc;
          continue;
        }
        goto again;
      }
      case K_SHFL:
      case K_VOTE:
      case K_MATCH:
      case K_REDUX:
      case K_ELECT:
      case K_WARP_BARRIER:
        if ((in->m & MW_SYNC) == 0) {
          ptx_alone(&at, mask);
          break;
        }
        switch (ptx_meet(&at, split, mask, forced)) {
          case RUN_DONE:
            break;
          case RUN_FAULT:
            return ptx_raise(&at, PTX_STACK_OVERFLOW, 0, 0, "branches are nested too deep");
          default:
            goto again;
        }
        forced = false;
        break;
      case K_FENCE:
        if (in->m == MF_SC) __atomic_thread_fence(__ATOMIC_SEQ_CST);
        else __atomic_thread_fence(__ATOMIC_ACQ_REL);
        break;
      case K_WGMMA:
        if (!ptx_wgmma(&at, mask)) return RUN_FAULT;
        break;
      case K_CLUSTER_ARRIVE:
        ptx_cluster_arrive(warp, mask);
        break;
      case K_CLUSTER_WAIT:
      case K_WGMMA_WAIT:
        if (in->kind == K_WGMMA_WAIT ? ptx_wgmma_done(warp) : (warp->at_cluster & mask) == 0) break;
        split->pc = pc;
        split->state = SPLIT_EVENT;
        warp->block->events = true;
        goto again;
      case K_BULK:
        if (!ptx_bulk(&at, mask)) return RUN_FAULT;
        break;
      case K_TEXTURE:
        if (!ptx_texture(&at, mask)) return RUN_FAULT;
        break;
      case K_NANOSLEEP:
        split->pc = pc + 1;
        seen = SPIN_SLEEP;
        if (go_round(warp, split, &seen)) budget = 1;
        goto next_split;
      case K_PASS:
        /* Each leaf of this warp has one turn, then each other warp. */
        split->pc = pc + 1;
        if (budget > warp->leaf_count) budget = warp->leaf_count;
        goto next_split;
      default:
        return ptx_raise(&at, PTX_UNSUPPORTED, 0, 0, "an instruction without execution");
    }
    pc++;
  }

next_split:
  end_turn(worker, function, turns);
  /* Other leaves of the warp get a turn, then other warps of the block. */
  turns = PTX_TURNS;
  warp->at = (warp->at + 1) % warp->leaf_count;
  if (__atomic_load_n(&worker->launch->stop, __ATOMIC_RELAXED) != 0) return RUN_FAULT;
  if (--budget == 0) return RUN_YIELD;
  goto again;
}
