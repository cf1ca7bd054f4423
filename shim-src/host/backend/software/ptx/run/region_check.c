/* --software-compile=check */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/ptx/compile/plan.h"
#include "host/backend/software/ptx/run/region.h"

struct written {
  unsigned char *at;
  uint32_t bytes;
  unsigned char before[32], after[32];
};

struct journal {
  struct written *list;
  size_t count, room;
};

static bool note(struct journal *j, const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  uint32_t bytes = in->kind == K_STORE ? (uint32_t)in->size * in->x_count : in->size;
  uint64_t to[PTX_LANES];
  ptx_addresses(at, to);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    unsigned char *memory = ptx_resolve(at, in->space, lane, to[lane], bytes);
    if (memory == NULL) return false;
    if (j->count == j->room) {
      size_t room = j->room == 0 ? 1024 : j->room * 2;
      struct written *list = realloc(j->list, room * sizeof *list);
      if (list == NULL) abort();
      j->list = list;
      j->room = room;
    }
    struct written *w = &j->list[j->count++];
    w->at = memory;
    w->bytes = bytes < sizeof w->before ? bytes : sizeof w->before;
    memcpy(w->before, memory, w->bytes);
  }
  return true;
}

/* Runs one instruction for the lanes of `mask` that its guard names. False: a fault. */
static bool one(struct place *at, const struct ptx_compiled *compiled, uint32_t pc, uint32_t mask,
                struct ptx_region_call *call, struct journal *j) {
  const struct ptx_instruction *in = at->in = &compiled->plan.code[pc];
  at->pc = pc;
  mask = ptx_guarded(at, mask);
  if (mask == 0 || in->kind == K_LABEL || in->kind == K_BRA) return true;
  bool writes = in->kind == K_STORE || in->kind == K_ATOM || in->kind == K_CP_ASYNC;
  return !(writes && !note(j, at, mask)) && ptx_region_step(at, mask, call);
}

/* Whether lanes can disagree at a block's branch: it has arms, or is a loop, and no lanes wait there. */
static bool can_part(const struct ptx_plan *plan, const struct ptx_plan_block *block,
                     uint32_t reconvergence) {
  if (block->arm[0] == PTX_NO_PC) return block->loops && block->from != reconvergence;
  for (uint32_t k = 0; k < 2; k++) {
    if (block->arm[k] != PTX_NO_PC && plan->blocks[block->arm[k]].from == reconvergence) return false;
  }
  return true;
}

/*
 * Interprets the region, one instruction after the other, up to the place where compiled code leaves. Returns
 * the same result as the code.
 */
static uint32_t reference(const struct place *from, const struct ptx_compiled *compiled,
                          struct ptx_region_call *call, struct journal *j) {
  const struct ptx_plan *plan = &compiled->plan;
  struct place at = *from;
  uint32_t pc = at.pc, going = call->mask; /* the lanes that repeat a loop */
  for (bool first = true;; first = false) {
    const struct ptx_instruction *in = at.in = &plan->code[pc];
    const struct ptx_plan_block *block = &plan->blocks[plan->block_of[pc]];
    uint32_t mask = ptx_guarded(&at, call->mask);
    at.pc = pc;
    if (!block->compiled) return pc;
    if (in->kind == K_LABEL && !first && pc == call->reconvergence) return pc;
    if (ptx_plan_meets(in)) {
      uint32_t members;
      memcpy(&members, at.constants + (ptx_plan_members(plan, in) & ~3u), sizeof members);
      if ((members & call->living & ~mask) != 0) return pc;
    }
    if (in->kind == K_BRA && mask != 0) {
      bool back = in->target <= pc;
      if (call->turns == 1) return pc;
      if (mask != call->mask) {
        if (!can_part(plan, block, call->reconvergence)) return pc;
        if (!block->loops) call->turns--;
        for (uint32_t k = 0; k < 2 && !block->loops; k++) {
          if (block->arm[k] == PTX_NO_PC) continue;
          const struct ptx_plan_block *arm = &plan->blocks[block->arm[k]];
          for (uint32_t i = arm->from; i < arm->to; i++) {
            if (!one(&at, compiled, i, k == 0 ? call->mask & ~mask : mask, call, j)) return PTX_REGION_FAULT;
          }
        }
        if (!block->loops) {
          pc = plan->blocks[block->next[2]].from;
          continue;
        }
      }
      if (back && call->seen != 0) {
        if (call->spun + call->seen >= SPIN_MOST) return pc;
        call->spun += call->seen;
        call->seen = 0;
        call->rounds = 1;
      }
      call->turns--;
      going = mask;
      pc = in->target;
      continue;
    }
    if (in->kind == K_BRA) going = call->mask;
    if (!one(&at, compiled, pc, going, call, j)) return PTX_REGION_FAULT;
    pc++;
  }
}

static void differs(const struct place *at, const char *what, uint64_t have, uint64_t want) {
  char text[160];
  snprintf(text, sizeof text, "compiled code differs from the interpreter: %s 0x%llx, not 0x%llx", what,
           (unsigned long long)have, (unsigned long long)want);
  ptx_raise(at, PTX_TRAP, 0, 0, text);
}

/* True if a register is equal in the lanes of `mask`. `bytes` is 0 for a predicate. */
static bool same_register(const unsigned char *a, const unsigned char *b, uint32_t bytes, uint32_t mask) {
  if (bytes == 0) {
    uint32_t p, q;
    memcpy(&p, a, 4);
    memcpy(&q, b, 4);
    return ((p ^ q) & mask) == 0;
  }
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    if (memcmp(a + lane * bytes, b + lane * bytes, bytes) != 0) return false;
  }
  return true;
}

static bool has(const uint64_t *set, uint32_t n) {
  return (set[n / 64] >> n % 64 & 1) != 0;
}

uint32_t ptx_region_compare(const struct place *at, const struct ptx_compiled *compiled,
                            struct ptx_region_call *call) {
  const struct ptx_function *f = at->split->frame->function;
  struct journal j = {0};
  struct ptx_region_call expected = *call;
  at->worker->launch->launch->compiler->counts.compared++; /* one thread runs a launch that is compared */
  unsigned char *before = malloc(f->frame_bytes * 2u + 1);
  if (before == NULL) abort();
  unsigned char *after = before + f->frame_bytes;
  memcpy(before, at->registers, f->frame_bytes);
  uint32_t want = reference(at, compiled, &expected, &j);
  if (want == PTX_REGION_FAULT) {
    free(before);
    free(j.list);
    return want;
  }
  memcpy(after, at->registers, f->frame_bytes);
  for (size_t i = 0; i < j.count; i++) memcpy(j.list[i].after, j.list[i].at, j.list[i].bytes);
  for (size_t i = j.count; i-- > 0;) memcpy(j.list[i].at, j.list[i].before, j.list[i].bytes);
  memcpy(at->registers, before, f->frame_bytes);
  uint32_t pc = ptx_region_code_run(at, compiled, call);
  uint32_t inactive = at->warp->exists & ~at->warp->exited & ~call->mask;
  bool equal = pc == want;
  if (!equal) differs(at, "it leaves at pc", pc, want);
  const uint32_t counts[2][4] = {{call->turns, call->seen, call->spun, call->rounds},
                                 {expected.turns, expected.seen, expected.spun, expected.rounds}};
  for (uint32_t i = 0; i < 4 && equal; i++) {
    equal = counts[0][i] == counts[1][i];
    if (!equal) differs(at, "a count is", counts[0][i], counts[1][i]);
  }
  /*
   * Registers that are needed later must have the interpreter's value in the lanes that ran, and their former
   * value in the lanes that wait elsewhere. Others may have any value.
   */
  uint64_t waiting[PTX_PLAN_WORDS];
  ptx_region_waiting(at, compiled, waiting);
  const uint64_t *live = pc < f->code_count ? ptx_plan_live(&compiled->plan, pc) : NULL;
  for (uint32_t place = 64; place < f->frame_bytes && equal; place += 64) {
    uint32_t bytes = f->widths[place / 64];
    if (bytes == PTX_NO_REGISTER) continue;
    const unsigned char *now = at->registers + place;
    const uint32_t n = compiled->plan.number[place / 64];
    equal = n == PTX_NO_PC ||
            ((!has(waiting, n) || same_register(now, before + place, bytes, inactive)) &&
             (live == NULL || !has(live, n) || same_register(now, after + place, bytes, call->mask)));
    if (!equal) differs(at, "wrong is the register at", place, pc);
  }
  for (size_t i = 0; i < j.count && equal; i++) {
    const struct written *w = &j.list[i];
    equal = memcmp(w->at, w->after, w->bytes) == 0;
    if (!equal) differs(at, "it does not write what belongs to", (uint64_t)(uintptr_t)i, w->bytes);
  }
  free(before);
  free(j.list);
  return equal ? pc : PTX_REGION_FAULT;
}
