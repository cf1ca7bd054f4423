#include "host/backend/software/ptx/compile/emit.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/ptx/alu/alu.h"
#include "host/backend/software/ptx/modes.h"

#define MOST_INLINE 400u      /* instructions of a function in which each access has its own checks */
#define MOST_STACK (1u << 20) /* bytes */
/* Of ptx_emit.flushed: with 128 groups and 128 registers held at each, LLVM took four times as long. */
#define MOST_FLUSHED 1000u

#define SAY(...) ptx_say(&e->text, __VA_ARGS__)

void ptx_say(struct ptx_text *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text->bytes + text->used, text->room - text->used, format, arguments);
  va_end(arguments);
  if (length < 0 || (size_t)length >= text->room - text->used) text->full = true;
  else text->used += (size_t)length;
}

uint32_t ptx_emit_value(struct ptx_emit *e, const char *format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  SAY("%%v%u = %s\n", e->next, line);
  return e->next++;
}

/* The first element of a vector in each lane. */
static uint32_t spread(struct ptx_emit *e, uint32_t bits, uint32_t one) {
  return ptx_emit_value(e, "shufflevector <32 x i%u> %%v%u, <32 x i%u> poison, <32 x i32> zeroinitializer",
                        bits, one, bits);
}
uint32_t ptx_emit_spread(struct ptx_emit *e, uint32_t bits, uint32_t value) {
  return spread(e, bits,
                ptx_emit_value(e, "insertelement <32 x i%u> poison, i%u %%v%u, i32 0", bits, bits, value));
}
uint32_t ptx_emit_splat(struct ptx_emit *e, uint32_t bits, uint64_t value) {
  if (bits < 64) value &= (1ull << bits) - 1;
  return spread(e, bits,
                ptx_emit_value(e, "insertelement <32 x i%u> poison, i%u %llu, i32 0", bits, bits,
                               (unsigned long long)value));
}

/* Bits of the register at a place; a predicate has one for each lane. */
static uint32_t width_of(const struct ptx_emit *e, uint32_t place) {
  uint32_t bytes = e->plan->function->widths[place / 64];
  return bytes == 0 ? 1 : bytes * 8;
}

static uint32_t frame(struct ptx_emit *e, uint32_t place) {
  return ptx_emit_value(e, "getelementptr i8, ptr %%r, i64 %u", place);
}
static bool holds(const struct ptx_emit *e, uint32_t place) {
  const struct ptx_held *h = &e->held[place / 64];
  return h->value != 0 || h->sum.index != 0 || h->sum.line;
}
static void hold(struct ptx_emit *e, uint32_t place, uint32_t value, bool dirty) {
  if (!holds(e, place)) e->holding[e->holding_count++] = place;
  e->held[place / 64] = (struct ptx_held){.value = value, .dirty = dirty};
}
static void forget(struct ptx_emit *e) {
  e->scope++;
  while (e->holding_count > 0) e->held[e->holding[--e->holding_count] / 64] = (struct ptx_held){0};
}
static uint32_t load(struct ptx_emit *e, uint32_t place) {
  uint32_t bits = width_of(e, place), from = frame(e, place);
  if (e->plan->constant[place / 64] == PTX_UNIFORM)
    return ptx_emit_spread(e, bits, ptx_emit_value(e, "load i%u, ptr %%v%u", bits, from));
  return bits == 1 ? ptx_emit_value(e, "load i32, ptr %%v%u", from)
                   : ptx_emit_value(e, "load <32 x i%u>, ptr %%v%u, align 64", bits, from);
}
static void store(struct ptx_emit *e, uint32_t place, uint32_t value) {
  uint32_t bits = width_of(e, place), to = frame(e, place);
  if (bits == 1) SAY("store i32 %%v%u, ptr %%v%u\n", value, to);
  else SAY("store <32 x i%u> %%v%u, ptr %%v%u, align 64\n", bits, value, to);
}
/* A sum as a vector of 64 bits; or a line of 32 bits. */
static uint32_t value_of(struct ptx_emit *e, const struct ptx_sum *sum, uint32_t bits) {
  uint32_t value = ptx_emit_index(e, sum);
  if (bits == 32) return value;
  value = ptx_emit_value(e, "%s <32 x i32> %%v%u to <32 x i64>", sum->is_signed ? "sext" : "zext", value);
  if (sum->shift > 0)
    value = ptx_emit_value(e, "shl <32 x i64> %%v%u, %%v%u", value, ptx_emit_splat(e, 64, sum->shift));
  return sum->base == 0
             ? value
             : ptx_emit_value(e, "add <32 x i64> %%v%u, %%v%u", value, ptx_emit_spread(e, 64, sum->base));
}
/* The present value of a place. */
static uint32_t present(struct ptx_emit *e, uint32_t place) {
  struct ptx_held *h = &e->held[place / 64];
  if (h->value != 0) return h->value;
  bool held = holds(e, place);
  uint32_t value = held ? value_of(e, &h->sum, width_of(e, place)) : load(e, place);
  if (e->aside) return value;
  if (held) h->value = value;
  else hold(e, place, value, false);
  return value;
}
/* The frame gets the present value of a place, if it has another one. */
static void flush(struct ptx_emit *e, uint32_t place) {
  struct ptx_held *h = &e->held[place / 64];
  if (!h->dirty) return;
  store(e, place, present(e, place));
  if (!e->aside) h->dirty = false;
}

uint32_t ptx_emit_read(struct ptx_emit *e, uint32_t reference, uint32_t bits) {
  reference = ptx_plan_source(e->plan, reference);
  uint32_t place = reference & ~3u;
  if ((reference & 3) == REF_FRAME) {
    /* Not by a decoder that exists; the interpreter would read a part of the register. */
    if (width_of(e, place) != bits) e->text.full = true;
    return present(e, place);
  }
  /* Addresses among constants change. */
  if (bits == 64 || reference == PTX_NONE) {
    uint32_t at = ptx_emit_value(e, "getelementptr i8, ptr %%k, i64 %u", reference == PTX_NONE ? 0 : place);
    return ptx_emit_spread(e, bits, ptx_emit_value(e, "load i%u, ptr %%v%u", bits, at));
  }
  uint64_t value = 0;
  memcpy(&value, e->constants + place, bits / 8);
  return ptx_emit_splat(e, bits, value);
}

bool ptx_emit_is_scalar(const struct ptx_emit *e, uint32_t reference) {
  reference = ptx_plan_source(e->plan, reference);
  return (reference & 3) == REF_CONSTANT ||
         ((reference & 3) == REF_FRAME && e->plan->constant[(reference & ~3u) / 64] == PTX_UNIFORM);
}
uint32_t ptx_emit_scalar(struct ptx_emit *e, uint32_t reference) {
  if (!ptx_emit_is_scalar(e, reference)) return 0;
  reference = ptx_plan_source(e->plan, reference);
  const char *where = (reference & 3) == REF_CONSTANT ? "k" : "settled";
  uint32_t at = ptx_emit_value(e, "getelementptr i8, ptr %%%s, i64 %u", where, reference & ~3u);
  return ptx_emit_value(e, "load i64, ptr %%v%u", at);
}

struct ptx_sum ptx_emit_sum_of(struct ptx_emit *e, uint32_t reference) {
  if ((reference & 3) != REF_FRAME) return (struct ptx_sum){0};
  struct ptx_sum *sum = &e->held[(reference & ~3u) / 64].sum;
  if (sum->line && sum->index == 0) sum->index = ptx_emit_index(e, sum);
  return *sum;
}

uint32_t ptx_emit_shuffle(struct ptx_emit *e, uint32_t bits, uint32_t lanes, uint32_t x, uint32_t y,
                          uint32_t count, const uint32_t *from) {
  SAY("%%v%u = shufflevector <%u x i%u> %%v%u, <%u x i%u> %%v%u, <%u x i32> <", e->next, lanes, bits, x,
      lanes, bits, y, count);
  for (uint32_t i = 0; i < count; i++) SAY("%si32 %u", i == 0 ? "" : ", ", from[i]);
  SAY(">\n");
  return e->next++;
}
uint32_t ptx_emit_piece(struct ptx_emit *e, uint32_t bits, uint32_t lanes, uint32_t x, uint32_t y,
                        uint32_t from, uint32_t count) {
  uint32_t all[PTX_LANES * PTX_FETCHED_ELEMENTS];
  for (uint32_t i = 0; i < count; i++) all[i] = from + i;
  return ptx_emit_shuffle(e, bits, lanes, x, y, count, all);
}
uint32_t ptx_emit_ramp(struct ptx_emit *e, uint32_t bits, uint32_t value, uint32_t step) {
  SAY("%%v%u = add <32 x i%u> %%v%u, <", e->next, bits, value);
  for (uint32_t i = 0; i < PTX_LANES; i++) SAY("%si%u %u", i == 0 ? "" : ", ", bits, i % 16 * step);
  SAY(">\n");
  return e->next++;
}

uint32_t ptx_emit_predicate(struct ptx_emit *e, uint32_t reference) {
  if ((reference & 3) == REF_FRAME) return present(e, reference & ~3u);
  uint32_t value;
  memcpy(&value, e->constants + (reference == PTX_NONE ? 0 : reference & ~3u), 4);
  return ptx_emit_value(e, "add i32 %u, 0", value);
}

uint32_t ptx_emit_lanes(struct ptx_emit *e, uint32_t value) {
  return ptx_emit_value(e, "bitcast i32 %%v%u to <32 x i1>", value);
}

bool ptx_emit_has_avx512(void) {
#if defined(__x86_64__) && !defined(VGPU_ONE_ALU)
  return ptx_alu_best() == &ptx_alu_v4;
#else
  return false;
#endif
}

uint32_t ptx_emit_select(struct ptx_emit *e, uint32_t bits, uint32_t lanes, uint32_t yes, uint32_t no) {
  return ptx_emit_value(e, "select <32 x i1> %%v%u, <32 x i%u> %%v%u, <32 x i%u> %%v%u", lanes, bits, yes,
                        bits, no);
}

uint32_t ptx_emit_unknown_float(struct ptx_emit *e, uint32_t bits, uint32_t raw) {
  const char *type = bits == 32 ? "float" : "double";
  return ptx_emit_value(e, "call <32 x %s> @unknown%u(<32 x %s> %%v%u)", type, bits, type, raw);
}

uint32_t ptx_emit_unknown(struct ptx_emit *e, uint32_t bits, uint32_t value) {
  const char *type = bits == 32 ? "float" : "double";
  uint32_t raw = ptx_emit_value(e, "bitcast <32 x i%u> %%v%u to <32 x %s>", bits, value, type);
  raw = ptx_emit_unknown_float(e, bits, raw);
  return ptx_emit_value(e, "bitcast <32 x %s> %%v%u to <32 x i%u>", type, raw, bits);
}

/*
 * Until July 2026, LLVM could give a masked VPTERNLOG with an operand in memory the truth table for another
 * operand order, if the lanes outside the mask keep one of its operands. That operand is hidden:
 * https://github.com/llvm/llvm-project/issues/157929
 */
uint32_t ptx_emit_hidden(struct ptx_emit *e, uint32_t bits, uint32_t value) {
  return bits < 32 || !ptx_emit_has_avx512() ? value : ptx_emit_unknown(e, bits, value);
}

/* Whether lanes that the guard or the arm leaves out must keep their value of a register. */
static bool merges(const struct ptx_emit *e, uint32_t place) {
  uint32_t n = e->plan->number[place / 64];
  return e->guard != 0 && (e->own || ((e->kept[0][n / 64] | e->kept[1][n / 64]) >> n % 64 & 1) != 0);
}

void ptx_emit_write(struct ptx_emit *e, uint32_t reference, uint32_t bits, uint32_t value) {
  uint32_t place = reference & ~3u;
  if (width_of(e, place) != bits) e->text.full = true;
  if (merges(e, place))
    value = ptx_emit_select(e, bits, e->guard, value, ptx_emit_hidden(e, bits, present(e, place)));
  hold(e, place, value, true);
}

void ptx_emit_write_predicate(struct ptx_emit *e, uint32_t reference, uint32_t value) {
  uint32_t place = reference & ~3u;
  if ((reference & 3) != REF_FRAME) return;
  if (width_of(e, place) != 1) e->text.full = true;
  if (merges(e, place)) {
    uint32_t old = present(e, place);
    uint32_t apart = ptx_emit_value(e, "xor i32 %%v%u, %%v%u", old, value);
    apart = ptx_emit_value(e, "and i32 %%v%u, %%v%u", apart, e->guards);
    value = ptx_emit_value(e, "xor i32 %%v%u, %%v%u", old, apart);
  }
  hold(e, place, value, true);
}

uint32_t ptx_emit_inverse(struct ptx_emit *e, uint32_t value) {
  return ptx_emit_value(e, "xor i32 %%v%u, -1", value);
}

/* The lanes that a guard and an arm name, without regard to those that are active; 0: all. */
static uint32_t guard_of(struct ptx_emit *e, const struct ptx_instruction *in) {
  if (in->guard == 0) return e->part;
  uint32_t p = present(e, in->guard & ~3u);
  if ((in->guard & 2) != 0) p = ptx_emit_inverse(e, p);
  return e->part == 0 ? p : ptx_emit_value(e, "and i32 %%v%u, %%v%u", p, e->part);
}

uint32_t ptx_emit_active(struct ptx_emit *e) {
  return e->guards == 0 ? ptx_emit_value(e, "add i32 %%mask, 0")
                        : ptx_emit_value(e, "and i32 %%v%u, %%mask", e->guards);
}

/* ---- instructions that the interpreter's functions carry out -------------- */

struct stepping {
  struct ptx_emit *e;
  bool guarded, after;
  uint32_t
      *value; /* of the places that are written, in the order of the visit; NULL: they stay in the frame */
};
static void move(void *data, uint32_t place, bool write) {
  struct stepping *s = data;
  /* Lanes that a guard leaves out keep their values. */
  if (!s->after && (!write || s->guarded)) flush(s->e, place);
  if (!s->after || !write) return;
  if (s->value != NULL) *s->value++ = load(s->e, place);
  else if (holds(s->e, place)) hold(s->e, place, load(s->e, place), false);
}
static void visit(struct ptx_emit *e, const struct ptx_instruction *in, bool after, uint32_t *value) {
  struct stepping s = {.e = e, .guarded = in->guard != 0 || e->part != 0, .after = after, .value = value};
  ptx_plan_visit(e->plan->function, in, move, &s);
}

/*
 * Calls the interpreter for an instruction whose operands are in the frame, if there are lanes for it.
 * Returns the number of the label.
 */
static uint32_t call(struct ptx_emit *e, uint32_t pc) {
  uint32_t lanes = ptx_emit_active(e), on = e->next++, some = e->next++;
  if (e->guards != 0)
    SAY("br i1 %%v%u, label %%q%u, label %%l%u\nl%u:\n", ptx_emit_value(e, "icmp eq i32 %%v%u, 0", lanes), on,
        some, some);
  uint32_t done = ptx_emit_value(
      e, "call i32 %%step(ptr nocapture %%c, ptr nocapture %%r, i32 %u, i32 %%v%u)", pc, lanes);
  uint32_t fault = ptx_emit_value(e, "icmp eq i32 %%v%u, 0", done);
  SAY("br i1 %%v%u, label %%fault, label %%q%u, !prof !1\nq%u:\n", fault, on, on);
  return on;
}

void ptx_emit_step(struct ptx_emit *e, const struct ptx_instruction *in, uint32_t pc) {
  visit(e, in, false, NULL);
  call(e, pc);
  visit(e, in, true, NULL);
}

bool ptx_emit_rest(struct ptx_emit *e, uint32_t pc, uint32_t refused) {
  /* In a loop, a guarded load can have no lanes and an invalid address each time, and then needs no call. */
  if (e->rest == 0 || e->guards != 0 || e->flushed + e->holding_count > MOST_FLUSHED) return false;
  e->flushed += e->holding_count;
  uint32_t rest = e->next++, on = e->next++;
  SAY("br i1 %%v%u, label %%l%u, label %%l%u, !prof !1\nl%u:\n", refused, rest, on, rest);
  e->aside = e->rests = true;
  for (uint32_t i = 0; i < e->holding_count; i++) flush(e, e->holding[i]);
  SAY("store i32 %%v%u, ptr %%p_seen\n", ptx_emit_value(e, "load i32, ptr %%seen"));
  uint32_t done =
      ptx_emit_value(e, "call i32 %%rest(ptr nocapture %%c, ptr nocapture %%r, i32 %u, i32 %u)", pc, e->end);
  SAY("store i32 %%v%u, ptr %%seen\n", ptx_emit_value(e, "load i32, ptr %%p_seen"));
  SAY("br i1 %%v%u, label %%fault, label %%l%u, !prof !1\nl%u:\n",
      ptx_emit_value(e, "icmp eq i32 %%v%u, 0", done), e->rest, on);
  e->aside = false;
  return true;
}

struct joining {
  struct ptx_emit *e;
  uint32_t from, to, *other, first;
};
static void join(void *data, uint32_t place, bool write) {
  struct joining *j = data;
  struct ptx_emit *e = j->e;
  if (!write) return;
  uint32_t bits = width_of(e, place), value = e->held[place / 64].value, other = *j->other++;
  if (value >= j->first) return; /* a register that is named twice */
  uint32_t phi =
      bits == 1 ? ptx_emit_value(e, "phi i32 [%%v%u, %%l%u], [%%v%u, %%q%u]", value, j->from, other, j->to)
                : ptx_emit_value(e, "phi <32 x i%u> [%%v%u, %%l%u], [%%v%u, %%q%u]", bits, value, j->from,
                                 other, j->to);
  hold(e, place, phi, true);
}

void ptx_emit_either(struct ptx_emit *e, const struct ptx_instruction *in, uint32_t pc, uint32_t slow,
                     ptx_emit_fast *fast, const void *data) {
  uint32_t other[PTX_WRITTEN], from = e->next++, step = e->next++, done = e->next++;
  SAY("br i1 %%v%u, label %%l%u, label %%l%u, !prof !1\nl%u:\n", slow, step, from, step);
  e->aside = true;
  visit(e, in, false, NULL);
  struct joining j = {.e = e, .from = from, .to = call(e, pc), .other = other};
  visit(e, in, true, other);
  SAY("br label %%l%u\nl%u:\n", done, from);
  fast(e, in, data);
  SAY("br label %%l%u\nl%u:\n", done, done);
  e->aside = false;
  j.first = e->next;
  ptx_plan_visit(e->plan->function, in, join, &j);
}

/* For the counts of loops that may wait. */
static void see(struct ptx_emit *e, const struct ptx_instruction *in) {
  bool ordered = in->kind == K_ATOM || (in->m & ML_VOLATILE) != 0;
  if (in->kind != K_LOAD && in->kind != K_ATOM) return;
  uint32_t seen = ptx_emit_value(e, "load i32, ptr %%seen");
  uint32_t more = ptx_emit_value(e, "or i32 %%v%u, %u", seen, ordered ? SPIN_ORDERED : SPIN_LOAD);
  if (e->guards != 0) {
    uint32_t none = ptx_emit_value(e, "icmp eq i32 %%v%u, 0", ptx_emit_active(e));
    more = ptx_emit_value(e, "select i1 %%v%u, i32 %%v%u, i32 %%v%u", none, seen, more);
  }
  SAY("store i32 %%v%u, ptr %%seen\n", more);
}

static void fetched(struct ptx_emit *e, const struct ptx_instruction *in, const void *data) {
  uint32_t value[PTX_FETCHED_ELEMENTS];
  ptx_emit_fetched(e, in, data, value);
  for (uint32_t k = 0; k < in->x_count; k++)
    ptx_emit_write(e, e->plan->function->x[in->x + k], ML_REGISTER(in->m) * 8, value[k]);
}

static void exchanged(struct ptx_emit *e, const struct ptx_instruction *in, const void *data) {
  const uint32_t *old = data;
  if (in->d != PTX_NONE) ptx_emit_write(e, in->d, in->size * 8u, *old);
}

static void memory(struct ptx_emit *e, const struct ptx_instruction *in, uint32_t pc) {
  see(e, in);
  const struct ptx_fetched *f = in->kind == K_LOAD ? ptx_emit_load(e, in, pc) : NULL;
  uint32_t slow, done, stores = 0, old = in->kind == K_ATOM ? ptx_emit_atomic(e, in, pc, &slow) : 0;
  if (f != NULL && f->slow == PTX_NEVER) {
    fetched(e, in, f);
  } else if (old != 0) {
    ptx_emit_either(e, in, pc, slow, exchanged, &old);
  } else if (f != NULL) {
    ptx_emit_either(e, in, pc, f->slow, fetched, f);
  } else if (in->kind == K_STORE && (stores = ptx_emit_stores(e, in, pc, &slow, &done)) > 0) {
    SAY("l%u:\n", slow);
    e->aside = true;
    for (uint32_t k = 0; k < stores; k++) {
      visit(e, in + k, false, NULL);
      call(e, pc + k);
    }
    e->aside = false;
    e->stored = pc + stores;
    SAY("br label %%l%u\nl%u:\n", done, done);
  } else {
    ptx_emit_step(e, in, pc);
  }
}

/* ---- instructions -------------------------------------------------------- */

/* An operand of the interpreter's function, as an address. */
static uint32_t address_of(struct ptx_emit *e, uint32_t reference) {
  if ((reference & 3) != REF_FRAME)
    return ptx_emit_value(e, "getelementptr i8, ptr %%k, i64 %u", reference & ~3u);
  flush(e, reference & ~3u);
  return frame(e, reference & ~3u);
}

/* present() computes the value on demand; most addresses never need it. */
static void hold_sum(struct ptx_emit *e, const struct ptx_instruction *in, const struct ptx_sum *sum) {
  uint32_t bits = in->size * 8u, place = in->d & ~3u;
  if (merges(e, place)) {
    ptx_emit_write(e, in->d, bits, value_of(e, sum, bits));
    return;
  }
  hold(e, place, 0, true);
  e->held[place / 64].sum = *sum;
}

static void arithmetic(struct ptx_emit *e, const struct ptx_instruction *in, uint32_t pc) {
  struct ptx_sum sum;
  if (in->size == 8 && !merges(e, in->d & ~3u) && width_of(e, in->d & ~3u) == 64 &&
      ptx_emit_sum(e, in, &sum)) {
    hold_sum(e, in, &sum);
    return;
  }
  uint32_t bits = in->size * 8u, value = ptx_emit_native(e, in);
  if (value == 0) {
    uint32_t a = address_of(e, in->a), b = address_of(e, in->b), c = address_of(e, in->c);
    uint32_t at = ptx_emit_value(e, "getelementptr i8, ptr %%code, i64 %zu",
                                 pc * sizeof *in + offsetof(struct ptx_instruction, u));
    uint32_t lanes = ptx_emit_value(e, "load ptr, ptr %%v%u", at);
    SAY("call void %%v%u(ptr nocapture %%bd, ptr nocapture readonly %%v%u, ptr nocapture readonly %%v%u, "
        "ptr nocapture readonly %%v%u, i32 %u)\n",
        lanes, a, b, c, in->m);
    value = ptx_emit_value(e, "load <32 x i%u>, ptr %%bd, align 64", bits);
  }
  ptx_emit_write(e, in->d, bits, value);
}

static uint32_t combined(struct ptx_emit *e, const struct ptx_instruction *in, uint32_t t) {
  static const char *const how[4] = {NULL, "and", "or", "xor"};
  if ((in->m & 3) == 0) return t;
  uint32_t c = ptx_emit_predicate(e, in->c);
  if ((in->m & 4) != 0) c = ptx_emit_inverse(e, c);
  return ptx_emit_value(e, "%s i32 %%v%u, %%v%u", how[in->m & 3], t, c);
}

static bool comparison(struct ptx_emit *e, const struct ptx_instruction *in) {
  uint32_t lanes = ptx_emit_native_compare(e, in);
  if (lanes == 0) return false;
  uint32_t t = ptx_emit_value(e, "bitcast <32 x i1> %%v%u to i32", lanes);
  uint32_t first = combined(e, in, t);
  if (in->x_count > 0) {
    /* The interpreter writes the second one before, and the first one may be the same register. */
    uint32_t second = combined(e, in, ptx_emit_inverse(e, t));
    ptx_emit_write_predicate(e, e->plan->function->x[in->x], second);
  }
  ptx_emit_write_predicate(e, in->d, first);
  return true;
}

static void predicates(struct ptx_emit *e, const struct ptx_instruction *in) {
  static const char *const how[] = {[P_AND] = "and", [P_OR] = "or", [P_XOR] = "xor"};
  uint32_t r = ptx_emit_predicate(e, in->a);
  if (in->m <= P_XOR) {
    uint32_t b = ptx_emit_predicate(e, in->b);
    r = ptx_emit_value(e, "%s i32 %%v%u, %%v%u", how[in->m], r, b);
  } else if (in->m == P_NOT) {
    r = ptx_emit_inverse(e, r);
  }
  ptx_emit_write_predicate(e, in->d, r);
}

static void parameter(struct ptx_emit *e, const struct ptx_instruction *in) {
  uint32_t held = ML_REGISTER(in->m) * 8, bits = in->size * 8u;
  for (uint32_t k = 0; k < in->x_count; k++) {
    uint32_t at = ptx_emit_value(e, "getelementptr i8, ptr %%parameters, i64 %llu",
                                 (unsigned long long)in->u.offset + k * in->size);
    uint32_t one = ptx_emit_value(e, "load i%u, ptr %%v%u, align 1", bits, at);
    if (bits < held)
      one = ptx_emit_value(e, "%s i%u %%v%u to i%u", (in->m & ML_SIGNED) != 0 ? "sext" : "zext", bits, one,
                           held);
    ptx_emit_write(e, e->plan->function->x[in->x + k], held, ptx_emit_spread(e, held, one));
  }
}

static void instruction(struct ptx_emit *e, uint32_t pc) {
  const struct ptx_instruction *in = &e->plan->code[pc];
  e->opaque = in->control > 1;
  e->own = in->guard != 0;
  e->guards = guard_of(e, in);
  e->guard = e->guards == 0 ? 0 : ptx_emit_lanes(e, e->guards);
  struct ptx_sum sum;
  bool done = ptx_emit_line(e, pc, &sum);
  if (done) hold_sum(e, in, &sum);
  else done = in->kind == K_SPECIAL && ptx_emit_special(e, in);
  bool steps = ptx_plan_steps(e->plan, in);
  if (!done && steps) memory(e, in, pc);
  switch (done || steps ? K_LABEL : in->kind) {
    case K_ALU:
      arithmetic(e, in, pc);
      break;
    case K_SETP:
      if (!comparison(e, in)) ptx_emit_step(e, in, pc);
      break;
    case K_PRED:
      predicates(e, in);
      break;
    case K_LOAD_KERNEL_PARAM:
      parameter(e, in);
      break;
    default: /* nothing for a label, or a barrier of the warp, whose lanes are together */
      if (ptx_plan_meets(in) && in->kind != K_WARP_BARRIER) ptx_emit_meeting(e, in, pc);
  }
  e->guard = e->guards = 0;
}

/* ---- control flow -------------------------------------------------------- */

static bool in_set(const struct ptx_plan *p, const uint64_t *set, uint32_t b, uint32_t n) {
  return (set[(size_t)b * p->words + n / 64] >> n % 64 & 1) != 0;
}

/* The frame gets what was written and is in a set of a block. */
static void keep(struct ptx_emit *e, const uint64_t *set, uint32_t b) {
  for (uint32_t i = 0; i < e->holding_count; i++) {
    if (in_set(e->plan, set, b, e->plan->number[e->holding[i] / 64])) flush(e, e->holding[i]);
  }
}

static void leave(struct ptx_emit *e, uint32_t pc) {
  SAY("store i32 %u, ptr %%pc\nbr label %%leave\n", pc);
}

static void go(struct ptx_emit *e, uint32_t b, uint32_t k) {
  const struct ptx_plan *p = e->plan;
  uint32_t next = p->blocks[b].next[k];
  if (next == PTX_NO_PC) SAY("br label %%fault\n"); /* behind the last instruction, which is a ret */
  else if (p->blocks[next].compiled) SAY("br label %%b%u\n", next);
  else leave(e, p->blocks[next].from);
}

static void straight(struct ptx_emit *e, uint32_t from, uint32_t to) {
  memset(e->fetched, 0, sizeof e->fetched);
  e->end = to;
  e->stored = 0;
  for (uint32_t pc = from; pc < to; pc++) {
    if (pc >= e->stored) instruction(e, pc);
  }
  memset(e->fetched, 0, sizeof e->fetched);
}

/* Counts a branch, or leaves at it, also if the i1 `also` is true. Goes on at the label `on`. */
static void count(struct ptx_emit *e, uint32_t b, bool back, char on, uint32_t also) {
  uint32_t turns = ptx_emit_value(e, "load i32, ptr %%turns");
  uint32_t left = ptx_emit_value(e, "sub i32 %%v%u, 1", turns);
  uint32_t over = ptx_emit_value(e, "icmp eq i32 %%v%u, 0", left);
  if (also != 0) over = ptx_emit_value(e, "or i1 %%v%u, %%v%u", over, also);
  if (back) {
    uint32_t seen = ptx_emit_value(e, "load i32, ptr %%seen");
    uint32_t any = ptx_emit_value(e, "icmp ne i32 %%v%u, 0", seen);
    uint32_t spun = ptx_emit_value(e, "load i32, ptr %%spun");
    uint32_t sum = ptx_emit_value(e, "add i32 %%v%u, %%v%u", spun, seen);
    uint32_t most = ptx_emit_value(e, "icmp uge i32 %%v%u, %u", sum, SPIN_MOST);
    uint32_t waits = ptx_emit_value(e, "and i1 %%v%u, %%v%u", any, most);
    uint32_t stop = ptx_emit_value(e, "or i1 %%v%u, %%v%u", over, waits);
    SAY("br i1 %%v%u, label %%x%u, label %%%c%u, !prof !1\n%c%u:\n", stop, b, on, b, on, b);
    SAY("store i32 %%v%u, ptr %%spun\nstore i32 0, ptr %%seen\n", sum);
    uint32_t rounds = ptx_emit_value(e, "load i32, ptr %%rounds");
    uint32_t once = ptx_emit_value(e, "zext i1 %%v%u to i32", any);
    SAY("store i32 %%v%u, ptr %%rounds\n", ptx_emit_value(e, "or i32 %%v%u, %%v%u", rounds, once));
  } else {
    SAY("br i1 %%v%u, label %%x%u, label %%%c%u, !prof !1\n%c%u:\n", over, b, on, b, on, b);
  }
  SAY("store i32 %%v%u, ptr %%turns\n", left);
}

/* Lanes disagree at a branch: both arms are carried out, each for its lanes. */
static void part(struct ptx_emit *e, uint32_t b, uint32_t taken) {
  const struct ptx_plan *p = e->plan;
  SAY("h%u:\n", b);
  uint32_t meets = 0; /* an arm begins where others wait */
  for (uint32_t k = 0; k < 2; k++) {
    if (p->blocks[b].arm[k] == PTX_NO_PC) continue;
    uint32_t here = ptx_emit_value(e, "icmp eq i32 %%reconvergence, %u", p->blocks[p->blocks[b].arm[k]].from);
    meets = meets == 0 ? here : ptx_emit_value(e, "or i1 %%v%u, %%v%u", meets, here);
  }
  count(e, b, false, 's', meets);
  uint32_t others = ptx_emit_value(e, "and i32 %%v%u, %%mask", ptx_emit_inverse(e, taken));
  for (uint32_t k = 0; k < 2; k++) {
    if (p->blocks[b].arm[k] == PTX_NO_PC) continue;
    const struct ptx_plan_block *arm = &p->blocks[p->blocks[b].arm[k]];
    e->part = k == 0 ? others : taken;
    e->kept[0] = p->live + (size_t)p->blocks[b].next[2] * p->words;
    e->kept[1] = k == 0 ? p->live + (size_t)p->blocks[b].next[1] * p->words : e->kept[0];
    straight(e, arm->from, arm->to - (p->code[arm->to - 1].kind == K_BRA));
    e->part = 0;
  }
  keep(e, p->live, p->blocks[b].next[2]);
  go(e, b, 2);
}

/*
 * Lanes disagree at the end of a loop: it is repeated for those that branch. The others wait at its end,
 * where their guard is false, so the code can leave there at any time.
 */
static void repeat(struct ptx_emit *e, uint32_t b, uint32_t taken) {
  const struct ptx_plan_block *block = &e->plan->blocks[b];
  uint32_t active = e->next++, again = e->next++;
  forget(e);
  SAY("h%u:\nbr label %%y%u\ny%u:\n%%v%u = phi i32 [%%v%u, %%h%u], [%%v%u, %%w%u]\n", b, b, b, active, taken,
      b, again, b);
  count(e, b, true, 's', ptx_emit_value(e, "icmp eq i32 %%reconvergence, %u", block->from));
  e->part = active;
  e->kept[0] = e->kept[1] = e->plan->live_end + (size_t)b * e->plan->words;
  straight(e, block->from, block->to - 1);
  SAY("%%v%u = add i32 %%v%u, 0\n", again, guard_of(e, &e->plan->code[block->to - 1]));
  e->part = 0;
  keep(e, e->plan->live_end, b);
  forget(e);
  SAY("br i1 %%v%u, label %%n%u, label %%w%u\nw%u:\nbr label %%y%u\n",
      ptx_emit_value(e, "icmp eq i32 %%v%u, 0", again), b, b, b, b);
}

static void branch(struct ptx_emit *e, uint32_t b, uint32_t pc) {
  const struct ptx_plan *p = e->plan;
  const struct ptx_instruction *in = &p->code[pc];
  bool back = in->target <= pc;
  uint32_t guards = guard_of(e, in);
  keep(e, p->live_end, b);
  if (guards != 0) {
    uint32_t taken = ptx_emit_value(e, "and i32 %%v%u, %%mask", guards);
    uint32_t none = ptx_emit_value(e, "icmp eq i32 %%v%u, 0", taken);
    SAY("br i1 %%v%u, label %%n%u, label %%t%u\nt%u:\n", none, b, b, b);
    uint32_t all = ptx_emit_value(e, "icmp eq i32 %%v%u, %%mask", taken);
    bool arms = p->blocks[b].arm[0] != PTX_NO_PC;
    SAY("br i1 %%v%u, label %%a%u, label %%%c%u\n", all, b, arms || p->blocks[b].loops ? 'h' : 'x', b);
    if (arms) part(e, b, taken);
    else if (p->blocks[b].loops) repeat(e, b, taken);
    SAY("a%u:\n", b);
  }
  count(e, b, back, 'g', 0);
  go(e, b, 1);
  SAY("x%u:\n", b);
  leave(e, pc);
  if (guards != 0) {
    SAY("n%u:\n", b);
    go(e, b, 0);
  }
}

static void block(struct ptx_emit *e, uint32_t b) {
  const struct ptx_plan *p = e->plan;
  const struct ptx_plan_block *block = &p->blocks[b];
  uint32_t pc = block->from;
  SAY("b%u:\n", b);
  if (p->code[pc].kind == K_LABEL) {
    uint32_t meets = ptx_emit_value(e, "icmp eq i32 %%reconvergence, %u", pc);
    SAY("br i1 %%v%u, label %%m%u, label %%e%u\nm%u:\n", meets, b, b, b);
    leave(e, pc);
    pc++;
  } else if (block->meets) {
    uint32_t members;
    memcpy(&members, e->constants + (ptx_plan_members(p, &p->code[pc]) & ~3u), sizeof members);
    uint32_t away = ptx_emit_value(e, "and i32 %%v%u, %%living", ptx_emit_value(e, "xor i32 %%mask, -1"));
    uint32_t missing = ptx_emit_value(e, "and i32 %%v%u, %u", away, members);
    uint32_t none = ptx_emit_value(e, "icmp eq i32 %%v%u, 0", missing);
    SAY("br i1 %%v%u, label %%e%u, label %%m%u\nm%u:\n", none, b, b, b);
    leave(e, pc);
  } else {
    SAY("br label %%e%u\n", b);
  }
  SAY("e%u:\n", b);
  bool branches = p->code[block->to - 1].kind == K_BRA;
  /* Arms use values that the block has computed. */
  e->rest = block->arm[0] != PTX_NO_PC ? 0 : e->next++;
  e->rests = false;
  straight(e, pc, block->to - branches);
  if (e->rests) {
    keep(e, p->live_end, b);
    SAY("br label %%l%u\nl%u:\n", e->rest, e->rest);
    forget(e);
  }
  e->rest = 0;
  if (branches) {
    branch(e, b, block->to - 1);
  } else {
    keep(e, p->live_end, b);
    go(e, b, 0);
  }
  forget(e);
}

static void begin(struct ptx_emit *e) {
  static const struct {
    const char *name, *type;
    size_t offset;
  } fields[] = {
      {"parameters", "ptr", offsetof(struct ptx_region_call, parameters)},
      {"shared", "ptr", offsetof(struct ptx_region_call, shared)},
      {"size", "i64", offsetof(struct ptx_region_call, shared_bytes)},
      {"regions", "ptr", offsetof(struct ptx_region_call, regions)},
      {"step", "ptr", offsetof(struct ptx_region_call, step)},
      {"rest", "ptr", offsetof(struct ptx_region_call, rest)},
      {"code", "ptr", offsetof(struct ptx_region_call, code)},
      {"alu", "ptr", offsetof(struct ptx_region_call, alu)},
      {"tid", "ptr", offsetof(struct ptx_region_call, tid)},
      {"block", "ptr", offsetof(struct ptx_region_call, block)},
      {"settled", "ptr", offsetof(struct ptx_region_call, settled)},
      {"living", "i32", offsetof(struct ptx_region_call, living)},
      {"mask", "i32", offsetof(struct ptx_region_call, mask)},
      {"entry", "i32", offsetof(struct ptx_region_call, entry)},
      {"reconvergence", "i32", offsetof(struct ptx_region_call, reconvergence)},
  };
  static const struct {
    const char *name;
    size_t offset;
  } counts[] = {{"turns", offsetof(struct ptx_region_call, turns)},
                {"seen", offsetof(struct ptx_region_call, seen)},
                {"spun", offsetof(struct ptx_region_call, spun)},
                {"rounds", offsetof(struct ptx_region_call, rounds)}};
  const struct ptx_plan *p = e->plan;
  SAY("define i32 @" PTX_REGION_SYMBOL
      "(ptr noalias %%c, ptr noalias align 64 %%r, ptr noalias %%k) nounwind "
      "\"no-jump-tables\"=\"true\" \"probe-stack\"=\"inline-asm\" \"warn-stack-size\"=\"%u\" {\n",
      MOST_STACK);
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    SAY("%%p_%s = getelementptr i8, ptr %%c, i64 %zu\n%%%s = load %s, ptr %%p_%s\n", fields[i].name,
        fields[i].offset, fields[i].name, fields[i].type, fields[i].name);
  for (size_t i = 0; i < 4; i++) {
    const char *name = counts[i].name;
    SAY("%%p_%s = getelementptr i8, ptr %%c, i64 %zu\n%%i_%s = load i32, ptr %%p_%s\n%%%s = alloca i32\n",
        name, counts[i].offset, name, name, name);
    SAY("store i32 %%i_%s, ptr %%%s\n", name, name);
  }
  SAY("%%bd = alloca <64 x i64>, align 64\n%%bo = alloca <32 x i64>, align 64\n%%pc = alloca i32\n");
  SAY("switch i32 %%entry, label %%fault [\n");
  for (uint32_t b = 0; b < p->block_count; b++) {
    if (p->blocks[b].entered) SAY("i32 %u, label %%in%u\n", b, b);
  }
  SAY("]\nfault:\nret i32 %u\nleave:\n", PTX_REGION_FAULT);
  for (size_t i = 0; i < 4; i++) {
    uint32_t v = ptx_emit_value(e, "load i32, ptr %%%s", counts[i].name);
    SAY("store i32 %%v%u, ptr %%p_%s\n", v, counts[i].name);
  }
  uint32_t pc = ptx_emit_value(e, "load i32, ptr %%pc");
  SAY("ret i32 %%v%u\n", pc);
  for (uint32_t b = 0; b < p->block_count; b++) {
    if (p->blocks[b].entered) SAY("in%u:\nbr label %%e%u\n", b, b);
  }
}

bool ptx_emit_function(struct ptx_emit *e) {
  e->held = calloc(e->plan->function->frame_bytes / 64 + 1, sizeof *e->held);
  e->holding = malloc((e->plan->place_count + 1) * sizeof *e->holding);
  e->text.full = !ptx_affine_find(e) || e->held == NULL || e->holding == NULL;
  e->next = e->scope = 1;
  ptx_emit_prelude(&e->text, e->plan->function->code_count > MOST_INLINE);
  begin(e);
  for (uint32_t b = 0; b < e->plan->block_count && !e->text.full; b++) {
    if (e->plan->blocks[b].compiled) block(e, b);
  }
  SAY("}\n");
  ptx_emit_anywhere(&e->text, e->gathers, false);
  ptx_emit_anywhere(&e->text, e->scatters, true);
  SAY("!0 = !{!\"branch_weights\", i32 4000, i32 1}\n!1 = !{!\"branch_weights\", i32 1, i32 4000}\n");
  free(e->held);
  free(e->holding);
  free(e->affine);
  return !e->text.full;
}
