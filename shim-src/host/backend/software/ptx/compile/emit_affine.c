/*
 * Finds registers that form a line in each half of a warp: lane k holds the value of lane 0 plus k * step. An
 * address that is a line is computed as two scalars, and its lanes need not be compared.
 *
 * A register can be a line if the same unguarded instruction wrote it last on every path to its use, from
 * constants, numbers of the launch, the indices of block and thread, and other such registers. Its value does
 * not depend on when it is computed or on the path of a lane, so the code computes the two scalars wherever
 * it needs them and does not read the register.
 *
 * %laneid is always a line. %tid is one if each row of the block has a multiple of 16 threads.
 */
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/ptx/alu/alu.h"
#include "host/backend/software/ptx/compile/emit.h"
#include "host/backend/software/ptx/modes.h"
#include "host/backend/software/ptx/special.h"

#define VALUE(...) ptx_emit_value(e, __VA_ARGS__)

/* Unknown writer: several instructions can have written a place last, or one that cannot compute a line. */
#define MANY (PTX_NO_PC - 1)
#define MOST_COST 32u /* instructions to compute a line */
#define MOST_CELLS (1u << 22)

enum { UNSEEN, BUSY, NOT, LINE };

/* The result of an instruction, as far as it is known. */
struct ptx_affine {
  uint32_t source[3]; /* of a, b, c: the instruction that computed it; PTX_NO_PC: not known */
  uint8_t state, cost;
  uint32_t scope;     /* for which the values of `sum` were emitted */
  struct ptx_sum sum; /* in other scopes, only its form is valid */
};

/* ---- the instruction that computed an operand ----------------------------- */

struct writing {
  const struct ptx_plan *plan;
  uint32_t *last, by; /* by number of a place */
};
static void write(void *data, uint32_t place, bool writes) {
  struct writing *w = data;
  if (writes) w->last[w->plan->number[place / 64]] = w->by;
}

/* Goes through a block from `last` on, and notes the sources of its instructions. */
static void follow(struct ptx_emit *e, const struct ptx_plan_block *block, uint32_t *last) {
  const struct ptx_plan *p = e->plan;
  for (uint32_t pc = block->from; pc < block->to; pc++) {
    const struct ptx_instruction *in = &p->code[pc];
    const uint32_t operands[3] = {in->a, in->b, in->c};
    for (uint32_t k = 0; k < 3; k++) {
      uint32_t *source = &e->affine[pc].source[k];
      *source = PTX_NO_PC;
      if ((operands[k] & 3) == REF_FRAME) *source = last[p->number[operands[k] / 64]];
      if (*source == MANY) *source = PTX_NO_PC;
    }
    bool can = in->guard == 0 && in->x_count == 0 && (in->kind == K_ALU || in->kind == K_SPECIAL);
    struct writing w = {p, last, can ? pc : MANY};
    ptx_plan_visit(p->function, in, write, &w);
  }
}

static bool merge(uint32_t *to, const uint32_t *from, uint32_t count) {
  bool changed = false;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t now = to[i] == PTX_NO_PC || to[i] == from[i] ? from[i] : from[i] == PTX_NO_PC ? to[i] : MANY;
    changed = changed || now != to[i];
    to[i] = now;
  }
  return changed;
}

bool ptx_affine_find(struct ptx_emit *e) {
  const struct ptx_plan *p = e->plan;
  const size_t count = p->place_count, cells = (count + 1) * (p->block_count + 1);
  e->affine = calloc(p->function->code_count + 1, sizeof *e->affine);
  uint32_t *start = cells > MOST_CELLS ? NULL : malloc(cells * sizeof *start);
  if (e->affine == NULL) {
    free(start);
    return false;
  }
  if (start == NULL) { /* the function is compiled without lines */
    for (uint32_t pc = 0; pc < p->function->code_count; pc++)
      for (uint32_t k = 0; k < 3; k++) e->affine[pc].source[k] = PTX_NO_PC;
    return true;
  }
  memset(start, 0xff, cells * sizeof *start); /* PTX_NO_PC: no path has come here */
  uint32_t *last = start + p->block_count * count;
  for (uint32_t i = 0; i < count; i++) start[i] = MANY; /* what is read before it is written */
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t b = 0; b < p->block_count; b++) {
      const struct ptx_plan_block *block = &p->blocks[b];
      memcpy(last, start + b * count, count * sizeof *last);
      follow(e, block, last);
      for (uint32_t k = 0; k < 2; k++) {
        if (block->next[k] != PTX_NO_PC)
          changed = merge(start + block->next[k] * count, last, (uint32_t)count) || changed;
      }
      if (p->code[block->to - 1].kind != K_BRX) continue;
      for (uint32_t i = 0; i < count; i++) last[i] = MANY; /* any block may follow */
      for (uint32_t to = 0; to < p->block_count; to++)
        changed = merge(start + to * count, last, (uint32_t)count) || changed;
    }
  }
  free(start);
  return true;
}

/* ---- lines ---------------------------------------------------------------- */

static bool line(struct ptx_emit *e, uint32_t pc, bool values, struct ptx_sum *r);

static uint32_t operand(const struct ptx_instruction *in, uint32_t k) {
  return k == 0 ? in->a : k == 1 ? in->b : in->c;
}

/* An operand of an instruction. `values`: with its scalars, else only its form. */
struct reading {
  struct ptx_emit *e;
  uint32_t pc;
  bool values;
};
static bool read(const struct reading *r, uint32_t k, uint32_t bytes, struct ptx_sum *sum) {
  struct ptx_emit *e = r->e;
  uint32_t reference = operand(&e->plan->code[r->pc], k), value, place = reference & ~3u;
  *sum = (struct ptx_sum){.line = true};
  if (bytes == 4 && ptx_emit_constant(e, reference, &value)) {
    if (r->values) sum->low = sum->high = VALUE("add i32 %u, 0", value);
    return true;
  }
  if ((reference & 3) != REF_FRAME || e->plan->function->widths[place / 64] != bytes) return false;
  if (e->plan->constant[place / 64] == PTX_NONE) {
    uint32_t source = e->affine[r->pc].source[k];
    return source != PTX_NO_PC && line(e, source, r->values, sum);
  }
  if (bytes == 4 && r->values)
    sum->low = sum->high =
        VALUE("load i32, ptr %%v%u", VALUE("getelementptr i8, ptr %%settled, i64 %u", place));
  return bytes == 4;
}

/* A scalar operation on both halves. */
static void both(const struct reading *r, const char *how, const struct ptx_sum *a, const struct ptx_sum *b,
                 struct ptx_sum *to) {
  struct ptx_emit *e = r->e;
  if (!r->values) return;
  bool equal = a->low == a->high && b->low == b->high;
  uint32_t low = VALUE("%s i32 %%v%u, %%v%u", how, a->low, b->low);
  to->high = equal ? low : VALUE("%s i32 %%v%u, %%v%u", how, a->high, b->high);
  to->low = low;
}
static bool times(const struct reading *r, struct ptx_sum *to) {
  const struct ptx_instruction *in = &r->e->plan->code[r->pc];
  struct ptx_sum a, b;
  uint32_t factor;
  if (!read(r, 0, 4, &a) || !read(r, 1, 4, &b)) return false;
  if (ptx_emit_constant(r->e, in->b, &factor)) to->step = (int32_t)((uint32_t)a.step * factor);
  else if (ptx_emit_constant(r->e, in->a, &factor)) to->step = (int32_t)((uint32_t)b.step * factor);
  else if (a.step != 0 || b.step != 0) return false;
  both(r, "mul", &a, &b, to);
  return true;
}
static void add(const struct reading *r, const char *how, const struct ptx_sum *a, const struct ptx_sum *b,
                struct ptx_sum *to) {
  int32_t step = (int32_t)((uint32_t)a->step + (how[0] == 's' ? 0 - (uint32_t)b->step : (uint32_t)b->step));
  both(r, how, a, b, to);
  to->step = step;
}

/*
 * AND, OR, XOR and shifts. A `whole` line starts at a multiple of 16, so only its low 4 bits differ between
 * lanes. The result is a line if the constant keeps all of these bits or drops all of them.
 */
static bool bits(const struct reading *r, const struct ptx_emit_operation *o, struct ptx_sum *to) {
  static const char *const how[OP_OPERATIONS] = {
      [OP_AND] = "and", [OP_OR] = "or", [OP_XOR] = "xor", [OP_SHL] = "shl", [OP_SHR] = "lshr"};
  const struct ptx_instruction *in = &r->e->plan->code[r->pc];
  struct ptx_sum a, b;
  uint32_t by = 0;
  bool shifts = o->op == OP_SHL || o->op == OP_SHR, fixed = ptx_emit_constant(r->e, in->b, &by);
  if (!read(r, 0, 4, &a) || !read(r, 1, 4, &b) || (shifts && (!fixed || by > 31))) return false;
  if (o->op == OP_SHL) {
    to->step = (int32_t)((uint32_t)a.step << by);
  } else if (a.step != 0 || b.step != 0) {
    if (!a.whole || !fixed) return false;
    bool keeps = o->op == OP_AND ? by % 16 == 15 : o->op != OP_SHR && by % 16 == 0;
    bool drops = o->op == OP_AND ? by % 16 == 0 : o->op == OP_SHR && by >= 4;
    if (!keeps && !drops) return false;
    to->step = to->whole = keeps;
  }
  both(r, o->op == OP_SHR && ptx_is_signed(o->type) ? "ashr" : how[o->op], &a, &b, to);
  return true;
}

static bool word(const struct reading *r, const struct ptx_emit_operation *o, struct ptx_sum *to) {
  struct ptx_sum a, b;
  switch (o->op) {
    case OP_NONE:
      if (ptx_type_bytes(o->from) == 4) return read(r, 0, 4, to);
      if (!read(r, 0, 8, to) || to->shift != 0 || to->based) return false;
      to->is_signed = false;
      return true;
    case OP_MOV:
      return read(r, 0, 4, to);
    case OP_ADD:
    case OP_SUB:
      if (!read(r, 0, 4, &a) || !read(r, 1, 4, &b)) return false;
      add(r, o->op == OP_ADD ? "add" : "sub", &a, &b, to);
      return true;
    case OP_MUL:
      return times(r, to);
    case OP_MAD:
      if (!times(r, to) || !read(r, 2, 4, &a)) return false;
      b = *to;
      add(r, "add", &b, &a, to);
      return true;
    case OP_AND:
    case OP_OR:
    case OP_XOR:
    case OP_SHL:
    case OP_SHR:
      return bits(r, o, to);
    default:
      return false;
  }
}

static bool base(const struct reading *r, uint32_t k, struct ptx_sum *to) {
  struct ptx_emit *e = r->e;
  uint32_t reference = operand(&e->plan->code[r->pc], k);
  if (!ptx_emit_is_scalar(e, reference)) return false;
  if (r->values) {
    uint32_t scalar = ptx_emit_scalar(e, reference);
    to->base = to->base == 0 ? scalar : VALUE("add i64 %%v%u, %%v%u", to->base, scalar);
  }
  to->based = true;
  return true;
}

/* An address; or an index that is extended to 64 bits. */
static bool wide(const struct reading *r, const struct ptx_emit_operation *o, struct ptx_sum *to) {
  const struct ptx_instruction *in = &r->e->plan->code[r->pc];
  uint32_t factor;
  switch (o->op) {
    case OP_NONE:
      if (ptx_type_bytes(o->from) == 8) return read(r, 0, 8, to);
      if ((o->from != T_U32 && o->from != T_S32) || !read(r, 0, 4, to)) return false;
      to->is_signed = o->from == T_S32;
      return true;
    case OP_MOV:
      return read(r, 0, 8, to);
    case OP_MUL_WIDE:
    case OP_MAD_WIDE:
      if ((o->type != T_U32 && o->type != T_S32) || !ptx_emit_constant(r->e, in->b, &factor) || factor == 0 ||
          factor >> PTX_SUM_SHIFT > 1 || (factor & (factor - 1)) != 0 || !read(r, 0, 4, to))
        return false;
      to->is_signed = o->type == T_S32;
      to->shift = (uint32_t)__builtin_ctz(factor);
      return o->op == OP_MUL_WIDE || base(r, 2, to);
    case OP_SHL:
      if (!ptx_emit_constant(r->e, in->b, &factor) || !read(r, 0, 8, to) || to->based ||
          factor > PTX_SUM_SHIFT - to->shift)
        return false;
      to->shift += factor;
      return true;
    case OP_ADD:
      if (read(r, 0, 8, to)) return base(r, 1, to);
      return read(r, 1, 8, to) && base(r, 0, to);
    default:
      return false;
  }
}

static bool special(const struct reading *r, struct ptx_sum *to) {
  struct ptx_emit *e = r->e;
  const struct ptx_instruction *in = &e->plan->code[r->pc];
  *to = (struct ptx_sum){.line = true, .step = in->m == SR_TID_X || in->m == SR_LANEID};
  to->whole = to->step != 0;
  if (in->m >= SR_CTAID_X && in->m <= SR_CTAID_Z) {
    if (r->values)
      to->low = to->high = VALUE("load i32, ptr %%v%u",
                                 VALUE("getelementptr i8, ptr %%block, i64 %u", (in->m - SR_CTAID_X) * 4));
    return true;
  }
  if (in->m == SR_LANEID) {
    if (r->values) to->low = VALUE("add i32 0, 0"), to->high = VALUE("add i32 16, 0");
    return true;
  }
  if (in->m < SR_TID_X || in->m > SR_TID_Z || !e->rows) return false;
  for (uint32_t k = 0; r->values && k < 2; k++) {
    uint32_t at = ((in->m - SR_TID_X) * PTX_LANES + k * 16) * 4;
    *(k == 0 ? &to->low : &to->high) =
        VALUE("load i32, ptr %%v%u", VALUE("getelementptr i8, ptr %%tid, i64 %u", at));
  }
  return true;
}

/* Of 32 or 64 bits. */
static bool is_integer(uint32_t type) {
  return type == T_B32 || type == T_U32 || type == T_S32 || type == T_B64 || type == T_U64 || type == T_S64;
}
static bool evaluate(const struct reading *r, struct ptx_sum *to) {
  const struct ptx_instruction *in = &r->e->plan->code[r->pc];
  struct ptx_emit_operation o;
  *to = (struct ptx_sum){.line = true};
  if (in->guard != 0 || (in->d & 3) != REF_FRAME ||
      r->e->plan->function->widths[(in->d & ~3u) / 64] != in->size)
    return false;
  if (in->kind == K_SPECIAL) return in->size == 4 && special(r, to);
  if (in->kind != K_ALU || in->control != 0 || !ptx_emit_identify(in, &o) || !is_integer(o.type) ||
      (o.op == OP_NONE && (!is_integer(o.from) || (in->m & M_SAT) != 0)))
    return false;
  return in->size == 4 ? word(r, &o, to) : in->size == 8 && wide(r, &o, to);
}

static bool line(struct ptx_emit *e, uint32_t pc, bool values, struct ptx_sum *r) {
  struct ptx_affine *a = &e->affine[pc];
  if (a->state == UNSEEN) {
    a->state = BUSY; /* a register that depends on itself */
    bool is = evaluate(&(struct reading){e, pc, false}, &a->sum);
    uint32_t cost = 1;
    for (uint32_t k = 0; k < 3; k++) cost += a->source[k] == PTX_NO_PC ? 0 : e->affine[a->source[k]].cost;
    a->cost = (uint8_t)(cost < 255 ? cost : 255);
    a->state = is && cost <= MOST_COST ? LINE : NOT;
  }
  if (a->state != LINE) return false;
  if (values && a->scope != e->scope) {
    evaluate(&(struct reading){e, pc, true}, &a->sum);
    a->scope = e->scope;
  }
  *r = a->sum;
  return true;
}

bool ptx_emit_line(struct ptx_emit *e, uint32_t pc, struct ptx_sum *r) {
  return line(e, pc, true, r);
}
bool ptx_emit_address_line(struct ptx_emit *e, uint32_t pc, struct ptx_sum *r) {
  uint32_t source = e->affine[pc].source[0];
  return source != PTX_NO_PC && line(e, source, true, r);
}

uint32_t ptx_emit_index(struct ptx_emit *e, const struct ptx_sum *sum) {
  if (sum->index != 0) return sum->index;
  if (sum->low == sum->high && sum->step == 0) return ptx_emit_spread(e, 32, sum->low);
  uint32_t first = VALUE("call <32 x i32> @halves32(i32 %%v%u, i32 %%v%u)", sum->low, sum->high);
  return sum->step == 0 ? first : ptx_emit_ramp(e, 32, first, (uint32_t)sum->step);
}
