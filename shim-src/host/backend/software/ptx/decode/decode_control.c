#include <string.h>

#include "host/backend/software/ptx/decode/decode.h"
#include "host/backend/software/ptx/modes.h"

/* A label later in the text is resolved when its scope ends. */
void ptx_branch(struct parser *p, struct word name) {
  ptx_emit(p, K_BRA);
  struct fixup *fixup = ptx_scratch(p, sizeof *fixup);
  *fixup = (struct fixup){.next = p->fixups,
                          .name = name,
                          .line = p->mnemonic_line,
                          .instruction = p->code_count - 1,
                          .scope = (uint8_t)p->scope};
  p->fixups = fixup;
}

static void decode_brx(struct parser *p) {
  ptx_need(p, 2, 2);
  const struct symbol *s = p->operands[1].symbol;
  if (p->operands[1].kind != O_SYMBOL || s->kind != SYM_TARGETS) ptx_refuse(p, "a list of targets expected");
  if (s->count > UINT16_MAX) ptx_refuse(p, "too many targets");
  uint32_t a = ptx_source(p, &p->operands[0], T_U32);
  struct ptx_instruction *in = ptx_emit(p, K_BRX);
  in->a = a;
  in->x = s->number;
  in->x_count = (uint16_t)s->count;
}

static void decode_ret(struct parser *p) {
  ptx_need(p, 0, 0);
  ptx_store_results(p);
  ptx_emit(p, K_RET);
}
static void decode_exit(struct parser *p) {
  ptx_need(p, 0, 0);
  ptx_emit(p, K_EXIT);
}
static void decode_trap(struct parser *p) {
  ptx_emit(p, K_TRAP);
}
static void decode_nothing(struct parser *p) {
  (void)p;
}

static void warp_barrier(struct parser *p) {
  ptx_need(p, 1, 1);
  uint32_t mask = ptx_source(p, &p->operands[0], T_B32);
  struct ptx_instruction *in = ptx_emit(p, K_WARP_BARRIER);
  in->m = MW_SYNC;
  in->a = mask;
}

static void block_barrier(struct parser *p);
static void decode_bar(struct parser *p) {
  if (ptx_has(p, "warp")) {
    warp_barrier(p);
    return;
  }
  if (ptx_part(p, 1, "cluster")) {
    ptx_need(p, 0, 0);
    if (!ptx_has(p, "arrive") && !ptx_has(p, "wait")) ptx_refuse(p, NULL);
    ptx_emit(p, ptx_has(p, "arrive") ? K_CLUSTER_ARRIVE : K_CLUSTER_WAIT);
    return;
  }
  if (p->guard == 0) {
    block_barrier(p);
    return;
  }
  /* Lanes that the guard excludes must not wait, so a branch skips the instruction for them. */
  uint32_t guard = p->guard, around = p->code_count;
  p->guard ^= 2;
  ptx_emit(p, K_BRA);
  p->guard = 0;
  block_barrier(p);
  ptx_finish(p);
  p->code[around].target = p->code_count;
  ptx_emit(p, K_LABEL);
  p->guard = guard;
}

static void block_barrier(struct parser *p) {
  bool reduce = ptx_has(p, "red"), arrive = ptx_has(p, "arrive");
  struct operand *o = p->operands;
  uint32_t at = reduce ? 1 : 0;
  ptx_need(p, at + 1, at + 3);
  uint32_t last = p->operand_count - 1;
  uint32_t count_at = at + 1 < p->operand_count - (reduce ? 1 : 0) ? at + 1 : 0;
  uint32_t m = arrive ? BAR_ARRIVE : BAR_SYNC, c = PTX_NONE, d = PTX_NONE;
  uint32_t a = ptx_source(p, &o[at], T_U32);
  uint32_t b = count_at > 0 ? ptx_source(p, &o[count_at], T_U32) : PTX_NONE;
  if (arrive && b == PTX_NONE) ptx_refuse(p, "a count expected");
  uint8_t size = 0;
  if (reduce) {
    c = ptx_predicate(p, &o[last]);
    if (ptx_has(p, "popc")) {
      m = BAR_POPC;
      d = ptx_destination(p, &o[0], T_U32);
      size = 4;
    } else {
      m = ptx_has(p, "and") ? BAR_AND : BAR_OR;
      d = ptx_predicate_out(p, &o[0]);
    }
    if (o[last].negated) m |= MB_NEGATED;
  }
  struct ptx_instruction *in = ptx_emit(p, K_BARRIER);
  in->a = a;
  in->b = b;
  in->c = c;
  in->d = d;
  in->m = m;
  in->size = size;
}

static void extras(struct parser *p, uint32_t first, uint32_t second) {
  uint32_t x = p->x_count;
  ptx_extra(p, first);
  ptx_extra(p, second);
  struct ptx_instruction *in = &p->code[p->code_count - 1];
  in->x = x;
  in->x_count = 2;
}

static void decode_shfl(struct parser *p) {
  bool sync = ptx_has(p, "sync");
  bool two = p->operands[0].paired;
  uint32_t at = two ? 2 : 1;
  ptx_need(p, at + (sync ? 4 : 3), at + 4);
  uint32_t m = ptx_has(p, "up")     ? SHFL_UP
               : ptx_has(p, "down") ? SHFL_DOWN
               : ptx_has(p, "bfly") ? SHFL_BFLY
                                    : SHFL_IDX;
  uint32_t a = ptx_source(p, &p->operands[at], T_B32), b = ptx_source(p, &p->operands[at + 1], T_B32);
  uint32_t c = ptx_source(p, &p->operands[at + 2], T_B32);
  uint32_t mask = sync ? ptx_source(p, &p->operands[at + 3], T_B32) : PTX_NONE;
  uint32_t d = ptx_destination(p, &p->operands[0], T_B32);
  uint32_t q = two ? ptx_predicate_out(p, &p->operands[1]) | PTX_DEFINED : PTX_NONE;
  struct ptx_instruction *in = ptx_emit(p, K_SHFL);
  in->d = d;
  in->a = a;
  in->b = b;
  in->c = c;
  in->m = m | (sync ? MW_SYNC : 0);
  in->size = 4;
  extras(p, mask, q);
}

static void decode_vote(struct parser *p) {
  bool sync = ptx_has(p, "sync");
  ptx_need(p, sync ? 3 : 2, 3);
  bool ballot = ptx_has(p, "ballot");
  uint32_t m = ballot ? VOTE_BALLOT : ptx_has(p, "all") ? VOTE_ALL : ptx_has(p, "any") ? VOTE_ANY : VOTE_UNI;
  uint32_t a = ptx_predicate(p, &p->operands[1]);
  uint32_t mask = sync ? ptx_source(p, &p->operands[2], T_B32) : PTX_NONE;
  uint32_t d = ballot ? ptx_destination(p, &p->operands[0], T_B32) : ptx_predicate_out(p, &p->operands[0]);
  struct ptx_instruction *in = ptx_emit(p, K_VOTE);
  in->d = d;
  in->a = a;
  in->m = m | (sync ? MW_SYNC : 0) | (p->operands[1].negated ? MW_NEGATED : 0);
  in->size = ballot ? 4 : 0;
  extras(p, mask, PTX_NONE);
}

static void decode_match(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  bool two = p->operands[0].paired;
  uint32_t at = two ? 2 : 1;
  ptx_need(p, at + 2, at + 2);
  uint32_t a = ptx_source(p, &p->operands[at], type), mask = ptx_source(p, &p->operands[at + 1], T_B32);
  uint32_t d = ptx_destination(p, &p->operands[0], T_B32);
  uint32_t q = two ? ptx_predicate_out(p, &p->operands[1]) | PTX_DEFINED : PTX_NONE;
  struct ptx_instruction *in = ptx_emit(p, K_MATCH);
  in->d = d;
  in->a = a;
  in->m = MW_SYNC | (ptx_has(p, "all") ? 1 : 0);
  in->size = 4;
  in->type = (uint8_t)ptx_type_bytes(type);
  extras(p, mask, q);
}

static void decode_redux(struct parser *p) {
  static const char *const names[] = {"and", "or", "xor", "add", "min", "max"};
  static const uint8_t operations[] = {A_AND, A_OR, A_XOR, A_ADD, A_MIN, A_MAX};
  enum ptx_type type = ptx_last_type(p);
  bool nan = ptx_has(p, "NaN"), magnitude = ptx_has(p, "abs");
  ptx_need(p, 3, 3);
  uint32_t op = A_ATOMICS;
  for (uint32_t i = 0; i < 6; i++) {
    if (ptx_has(p, names[i])) op = operations[i];
  }
  if (op == A_ATOMICS) ptx_refuse(p, "an unknown operation");
  if (type == T_F32 ? op != A_MIN && op != A_MAX : nan || magnitude) ptx_refuse(p, "this type");
  uint32_t a = ptx_source(p, &p->operands[1], T_B32), mask = ptx_source(p, &p->operands[2], T_B32);
  uint32_t d = ptx_destination(p, &p->operands[0], T_B32);
  struct ptx_instruction *in = ptx_emit(p, K_REDUX);
  in->d = d;
  in->a = a;
  in->m = MW_SYNC | op | (nan ? MW_NAN : 0) | (magnitude ? MW_MAGNITUDE : 0);
  in->type = (uint8_t)type;
  in->size = 4;
  extras(p, mask, PTX_NONE);
}

static void decode_elect(struct parser *p) {
  ptx_need(p, 3, 3);
  uint32_t mask = ptx_source(p, &p->operands[2], T_B32);
  uint32_t d = ptx_destination(p, &p->operands[0], T_B32);
  uint32_t q = ptx_predicate_out(p, &p->operands[1]) | PTX_DEFINED;
  struct ptx_instruction *in = ptx_emit(p, K_ELECT);
  in->d = d;
  in->m = MW_SYNC;
  in->size = 4;
  extras(p, mask, q);
}

static void decode_activemask(struct parser *p) {
  ptx_need(p, 1, 1);
  uint32_t d = ptx_destination(p, &p->operands[0], T_B32);
  struct ptx_instruction *in = ptx_emit(p, K_ACTIVEMASK);
  in->d = d;
  in->size = 4;
}

static void decode_nanosleep(struct parser *p) {
  /* Lets other warps and blocks run. */
  ptx_emit(p, K_NANOSLEEP);
}

const struct ptx_mnemonic ptx_control_mnemonics[] = {
    {"brx", decode_brx, "0 idx uni"},
    {"call", ptx_decode_call, NULL},
    {"ret", decode_ret, NULL},
    {"exit", decode_exit, NULL},
    {"trap", decode_trap, NULL},
    {"bar", decode_bar, "1 sync arrive red popc and or warp cta"},
    {"barrier", decode_bar, "1 sync arrive red popc and or cta cluster wait aligned release acquire relaxed"},
    {"shfl", decode_shfl, "1 sync up down bfly idx"},
    {"vote", decode_vote, "1 sync all any uni ballot"},
    {"match", decode_match, "1 sync any all"},
    {"redux", decode_redux, "1 sync and or xor add min max abs NaN"},
    {"elect", decode_elect, "0 sync"},
    {"activemask", decode_activemask, "1"},
    {"brkpt", decode_trap, NULL},
    {"nanosleep", decode_nanosleep, NULL},
    {"pmevent", decode_nothing, NULL},
    {"setmaxnreg", decode_nothing, NULL},
    {"griddepcontrol", decode_nothing, NULL},
    {NULL, NULL, NULL},
};
