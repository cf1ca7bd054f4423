#include "host/backend/software/ptx/analysis/graph.h"
#include "host/backend/software/ptx/analysis/uniform.h"
#include "host/backend/software/ptx/special.h"

enum { UNKNOWN, WRITTEN_ONCE, WRITTEN_MORE, UNIFORM };

struct uniform {
  uint8_t *state; /* of each register */
  bool only;      /* all operands of the present instruction are uniform, and its results can be */
};

static void count(void *data, uint32_t *reference, bool define) {
  struct uniform *u = data;
  if (!define) return;
  uint8_t *state = &u->state[(*reference & ~PTX_DEFINED) >> 2];
  *state = *state == UNKNOWN ? WRITTEN_ONCE : WRITTEN_MORE;
}

static void check(void *data, uint32_t *reference, bool define) {
  struct uniform *u = data;
  if (u->state[(*reference & ~PTX_DEFINED) >> 2] != (define ? WRITTEN_ONCE : UNIFORM)) u->only = false;
}

static void mark(void *data, uint32_t *reference, bool define) {
  struct uniform *u = data;
  if (define) u->state[(*reference & ~PTX_DEFINED) >> 2] = UNIFORM;
}

/* Special registers that are numbers of the launch. */
static bool of_launch(uint32_t number) {
  return (number >= SR_NTID_X && number <= SR_NTID_Z) || (number >= SR_NCTAID_X && number <= SR_NCTAID_Z) ||
         number == SR_DYNAMIC_SMEM_SIZE || number == SR_TOTAL_SMEM_SIZE || number == SR_DYNAMIC_SHARED;
}

/*
 * Guards need no check: a register that is only written with a guard is perhaps read before, or never. The
 * processor's float unit is not set for these instructions.
 */
static bool pure(const struct ptx_instruction *in) {
  if (in->control != 0) return false;
  return in->kind == K_ALU || in->kind == K_LOAD_KERNEL_PARAM || (in->kind == K_SPECIAL && of_launch(in->m));
}

void ptx_move_uniform(struct parser *p, struct ptx_interval *of) {
  uint32_t end = p->code_count - 1, moved = 0;
  struct uniform u = {.state = ptx_scratch(p, p->register_count + 1)};
  for (uint32_t pc = 0; pc <= end; pc++) ptx_each_reference(p, &p->code[pc], count, &u);
  for (uint32_t i = 0; i < p->register_count; i++) {
    if (of[i].from == 0 && of[i].to == end) u.state[i] = WRITTEN_MORE; /* perhaps it is read before */
  }
  bool *moves = ptx_scratch(p, p->code_count);
  for (uint32_t pc = 0; pc <= end; pc++) {
    u.only = pure(&p->code[pc]);
    if (u.only) ptx_each_reference(p, &p->code[pc], check, &u);
    if (!u.only) continue;
    ptx_each_reference(p, &p->code[pc], mark, &u);
    moves[pc] = true;
    moved++;
  }
  p->function->settles = moved;
  if (moved == 0) return;
  struct ptx_instruction *code = ptx_scratch(p, p->code_count * sizeof *code);
  uint32_t *now = ptx_scratch(p, p->code_count * sizeof *now), first = 0, next = moved;
  for (uint32_t pc = 0; pc <= end; pc++) {
    now[pc] = next; /* of one that moves: the instruction after it */
    code[moves[pc] ? first++ : next++] = p->code[pc];
  }
  ptx_move_targets(p, code, p->code_count, now);
  for (uint32_t i = 0; i < p->register_count; i++) {
    if (of[i].from > of[i].to) continue;
    of[i] = u.state[i] == UNIFORM ? (struct ptx_interval){0, end}
                                  : (struct ptx_interval){now[of[i].from], now[of[i].to]};
  }
}
