/*
 * Loads and stores of single elements and vectors up to 16 bytes. The lanes of each half of the warp access
 * places side by side, or one place (loads), or places anywhere in one range of memory; all else is done by
 * `step`. If the address is a line (emit_affine.c), the form is known when the code is emitted. Loads of a
 * block with one address register are one group: the first one checks the addresses, and unless they are a
 * line, reads for all.
 */
#include <string.h>

#include "host/backend/software/ptx/alu/alu.h"
#include "host/backend/software/ptx/compile/emit.h"
#include "host/backend/software/ptx/modes.h"

#define SAY(...) ptx_say(&e->text, __VA_ARGS__)
#define VALUE(...) ptx_emit_value(e, __VA_ARGS__)

#define MOST_EXTENT 4096 /* bytes between the loads of a group */
#define MOST_ELEMENTS 32u
/*
 * Most instructions of a function whose accesses to constant addresses are compiled: with the 64 of SHA-256,
 * LLVM takes three times as long.
 */
#define MOST_FIXED 1000u

struct access {
  const struct ptx_instruction *member[PTX_FETCHED_TOGETHER];
  uint32_t pc[PTX_FETCHED_TOGETHER], count, elements;
  int64_t low, high; /* from the address register to the first byte, and behind the last */
  uint32_t align;
  uint32_t step; /* bytes of each access; 0: sizes differ, or are no multiple of 1 << shift */
  bool global;
  uint32_t lanes, base, size, memory; /* values */
  /*
   * Offset of a lane's first byte in the memory: ((address + from) << shift) - origin. `bits` is the width of
   * `address`. If it is 32, address + from is zero-extended.
   */
  uint32_t address, bits, shift, origin;
  int64_t from;
  struct ptx_sum sum;
  bool summed;    /* the address is computed from `sum` */
  bool line;      /* the lanes are known to be side by side in each half, or at one place if sum.step is 0 */
  uint32_t label; /* first of LABELS numbers */
};
/*
 * Labels. Lanes: ALL of them or SOME, SIDE by side, OTHER than that, at the SAME place, ANYwhere; *_DO: and
 * all may access. store_line uses SIDE after the check, and SIDE_DO if all lanes are active. Of atomics: EACH
 * lane without a loop, or by a LOOP.
 */
enum {
  BEGIN,
  PART,
  SOME,
  ALL,
  SIDE,
  SIDE_DO,
  OTHER,
  SAME,
  SAME_DO,
  ANY,
  ANY_DO,
  EACH,
  LOOP_BEGIN,
  LOOP,
  LOOPED,
  GOT,
  SLOW,
  NONE,
  DONE,
  LABELS
};

static uint32_t total(const struct ptx_instruction *in) {
  return in->kind == K_ATOM ? in->size : (uint32_t)in->size * in->x_count;
}
static uint32_t log2_of(uint32_t bytes) {
  return (uint32_t)__builtin_ctz(bytes);
}
static int64_t offset(const struct ptx_instruction *in) {
  return (in->m & ML_NARROW) != 0 ? (int64_t)(int32_t)in->u.offset : (int64_t)in->u.offset;
}

static bool fits(const struct ptx_emit *e, const struct ptx_instruction *in) {
  bool narrow = (in->m & ML_NARROW) != 0, store = in->kind == K_STORE;
  uint32_t held = ML_REGISTER(in->m), bytes = total(in);
  uint64_t upper = in->u.offset >> 32;
  if ((in->kind != K_LOAD && !store) || (in->m & ML_VOLATILE) != 0 || in->x_count == 0) return false;
  if (in->size > held || held < 2 || bytes > 16 || (bytes & (bytes - 1)) != 0) return false;
  if (in->x_count > PTX_FETCHED_ELEMENTS || (bytes == 16 && in->size < 4)) return false;
  if ((in->a & 3) == REF_NONE || ((in->a & 3) == REF_CONSTANT && e->plan->function->code_count > MOST_FIXED))
    return false;
  if ((in->a & 3) == REF_FRAME && e->plan->function->widths[in->a / 64] != (narrow ? 4 : 8)) return false;
  for (uint32_t k = 0; k < in->x_count; k++) {
    uint32_t x = e->plan->function->x[in->x + k];
    if ((x & 3) != REF_FRAME && (!store || x == PTX_NONE || held == 8)) return false;
  }
  if (in->space == S_SHARED) return !narrow || upper == 0 || upper == 0xffffffff;
  return !narrow && (in->space == S_GLOBAL || in->space == S_GENERIC || in->space == S_CONST);
}

static bool joins(struct access *a, const struct ptx_instruction *in, uint32_t pc) {
  struct access new = *a;
  int64_t from = offset(in), to = from + total(in);
  if (a->count == PTX_FETCHED_TOGETHER || a->elements + in->x_count > MOST_ELEMENTS) return false;
  if (from > 1ll << 40 || from < -(1ll << 40)) return false;
  if (a->count > 0) {
    const struct ptx_instruction *first = a->member[0];
    if (in->a != first->a || in->space != first->space || in->guard != first->guard ||
        ((in->m ^ first->m) & ML_NARROW) != 0)
      return false;
  }
  if (a->count == 0 || from < a->low) new.low = from;
  if (a->count == 0 || to > a->high) new.high = to;
  if (a->count == 0 || total(in) > a->align) new.align = total(in);
  new.step = a->count == 0 || a->step == total(in) ? total(in) : 0;
  new.elements += in->x_count;
  new.member[new.count] = in;
  new.pc[new.count++] = pc;
  if (new.high - new.low > MOST_EXTENT) return false;
  /* The first byte's alignment tells that of all. */
  for (uint32_t i = 0; i < new.count; i++) {
    if ((offset(new.member[i]) - new.low) % total(new.member[i]) != 0) return false;
  }
  *a = new;
  return true;
}

struct changes {
  uint32_t address, guard;
  bool any;
};
static void change(void *data, uint32_t place, bool write) {
  struct changes *c = data;
  c->any = c->any || (write && (place == c->address || (c->guard != 0 && place == c->guard)));
}

/* The loads behind the first one that can be read with it: nothing between them writes memory. */
static void collect(const struct ptx_emit *e, struct access *a, const struct ptx_instruction *in,
                    uint32_t pc) {
  struct changes c = {(in->a & 3) == REF_FRAME ? in->a : PTX_NO_PC, in->guard & ~3u, false};
  for (; pc < e->end && !c.any; pc++) {
    const struct ptx_instruction *next = &e->plan->code[pc];
    bool load = next->kind == K_LOAD;
    if (load && (next->m & ML_VOLATILE) != 0 && a->count > 0) return;
    if (!load && next->kind != K_ALU && next->kind != K_SETP && next->kind != K_PRED &&
        next->kind != K_SPECIAL && next->kind != K_CARRY && next->kind != K_LOAD_KERNEL_PARAM)
      return;
    if (load && fits(e, next)) joins(a, next, pc);
    ptx_plan_visit(e->plan->function, next, change, &c);
  }
}

/* ---- values -------------------------------------------------------------- */

static void jump(struct ptx_emit *e, const struct access *a, int to) {
  SAY("br label %%l%u\n", a->label + (uint32_t)to);
}
static void choose(struct ptx_emit *e, const struct access *a, uint32_t value, int yes, int no) {
  SAY("br i1 %%v%u, label %%l%u, label %%l%u\n", value, a->label + (uint32_t)yes, a->label + (uint32_t)no);
}
/* The same, where `no` is rare. */
static void hope(struct ptx_emit *e, const struct access *a, uint32_t value, int yes, int no) {
  SAY("br i1 %%v%u, label %%l%u, label %%l%u, !prof !0\n", value, a->label + (uint32_t)yes,
      a->label + (uint32_t)no);
}
static void label(struct ptx_emit *e, const struct access *a, int which) {
  SAY("l%u:\n", a->label + (uint32_t)which);
}

/* Chooses bits, from and shift, and the sum if the address has one. `lines`: the access can use a line. */
static void find_form(struct ptx_emit *e, struct access *a, bool lines) {
  const struct ptx_instruction *in = a->member[0];
  a->bits = (in->m & ML_NARROW) != 0 ? 32 : 64;
  a->from = a->low;
  bool known = (in->a & 3) == REF_FRAME && ptx_emit_address_line(e, a->pc[0], &a->sum);
  if (known && lines) {
    int64_t step = (int64_t)a->sum.step * (1 << a->sum.shift);
    a->line = step == 0 ? in->kind == K_LOAD || (a->count == 1 && in->x_count == 1)
                        : step == (int64_t)a->step && a->step % (1u << a->sum.shift) == 0;
  }
  if (a->bits == 64 && known && !a->line) a->sum.index = ptx_emit_index(e, &a->sum);
  if (a->bits == 64 && !known) a->sum = ptx_emit_sum_of(e, in->a);
  a->summed = a->bits == 64 && (a->line || a->sum.index != 0);
  if (!a->summed) return;
  a->bits = 32;
  a->from = a->sum.is_signed ? INT32_MIN : 0; /* bias: maps signed order to unsigned */
  a->shift = a->sum.shift;
  if (a->step % (1u << a->shift) != 0) a->step = 0;
}

/* The values that all forms use. */
static void prepare(struct ptx_emit *e, struct access *a, uint32_t pc) {
  const struct ptx_instruction *in = a->member[0];
  a->global = in->space != S_SHARED;
  a->label = e->next;
  e->next += LABELS;
  jump(e, a, BEGIN);
  label(e, a, BEGIN);
  a->lanes = ptx_emit_active(e);
  if (!a->line) a->address = a->summed ? a->sum.index : ptx_emit_read(e, in->a, a->bits);
  if (a->global) {
    uint32_t region =
        VALUE("getelementptr i8, ptr %%regions, i64 %zu", pc % PTX_REGION_CACHE * sizeof(struct ptx_region));
    a->base = VALUE("load i64, ptr %%v%u", region);
    a->size = VALUE("load i64, ptr %%v%u", VALUE("getelementptr i8, ptr %%v%u, i64 8", region));
    a->memory = VALUE("load ptr, ptr %%v%u", VALUE("getelementptr i8, ptr %%v%u, i64 16", region));
  } else {
    a->base = VALUE("add i64 0, 0");
    a->size = VALUE("add i64 %%size, 0");
    a->memory = VALUE("getelementptr i8, ptr %%shared, i64 0");
  }
  a->origin = a->base;
  if (!a->summed) return;
  a->origin = VALUE("sub i64 %%v%u, %lld", a->base,
                    (long long)(a->low + (a->sum.is_signed ? -(1ll << (31 + a->shift)) : 0)));
  if (a->sum.base != 0) a->origin = VALUE("sub i64 %%v%u, %%v%u", a->origin, a->sum.base);
}
static uint32_t some(struct ptx_emit *e, const struct access *a) {
  return VALUE("call <32 x i%u> @some%u(<32 x i%u> %%v%u, i32 %%v%u)", a->bits, a->bits, a->bits, a->address,
               a->lanes);
}
/* Up to ALL or ANY, with the addresses of the lanes that access in `address`. */
static void begin(struct ptx_emit *e, struct access *a, uint32_t pc) {
  prepare(e, a, pc);
  choose(e, a, VALUE("icmp eq i32 %%v%u, -1", a->lanes), ALL, PART);
  label(e, a, PART);
  choose(e, a, VALUE("icmp eq i32 %%v%u, 0", a->lanes), NONE, SOME);
  label(e, a, SOME);
  uint32_t others = some(e, a);
  bool store = a->member[0]->kind != K_LOAD;
  jump(e, a, store ? ANY : ALL);
  label(e, a, store ? ANY : ALL);
  a->address = VALUE("phi <32 x i%u> [%%v%u, %%l%u], [%%v%u, %%l%u]", a->bits, a->address,
                     a->label + (uint32_t)(store ? OTHER : BEGIN), others, a->label + SOME);
}

/* The places of the first lanes of both halves in the range. */
struct halves {
  uint32_t low, high; /* `address + from` of these lanes */
  uint32_t first, second;
};
static struct halves halves(struct ptx_emit *e, const struct access *a, uint32_t address) {
  struct halves h;
  uint32_t *to[2] = {&h.low, &h.high}, *place[2] = {&h.first, &h.second};
  for (uint32_t k = 0; k < 2; k++) {
    uint32_t at = k == 0 ? a->sum.low : a->sum.high;
    if (!a->line) at = VALUE("extractelement <32 x i%u> %%v%u, i32 %u", a->bits, address, k * 16);
    *to[k] = at = VALUE("add i%u %%v%u, %lld", a->bits, at, (long long)a->from);
    if (a->bits == 32) at = VALUE("zext i32 %%v%u to i64", at);
    if (a->shift > 0) at = VALUE("shl i64 %%v%u, %u", at, a->shift);
    *place[k] = VALUE("sub i64 %%v%u, %%v%u", at, a->origin);
  }
  return h;
}
static uint32_t steps(struct ptx_emit *e, const struct access *a, uint32_t address, uint32_t step) {
  return VALUE("call i1 @steps%u(<32 x i%u> %%v%u, i%u %u)", a->bits, a->bits, address, a->bits,
               step >> a->shift);
}
static uint32_t within(struct ptx_emit *e, const struct access *a, const struct halves *h, uint32_t step) {
  uint32_t yes =
      VALUE("call i1 @within(i64 %%v%u, i64 %%v%u, i64 %%v%u, i64 %%v%u, i64 %lld, i64 %u)", h->first,
            h->second, a->base, a->size, (long long)(a->high - a->low) + 15 * (long long)step, a->align - 1);
  if (!a->summed || step == 0) return yes;
  /* The index of a half's last lane must not wrap at 32 bits. */
  uint32_t most = VALUE("call i32 @llvm.umax.i32(i32 %%v%u, i32 %%v%u)", h->low, h->high);
  uint32_t below = VALUE("icmp ule i32 %%v%u, %u", most, ~(15 * (step >> a->shift)));
  return VALUE("and i1 %%v%u, %%v%u", yes, below);
}
/* The lanes of a half, `count` times each, as <16 * count x i1>. */
static uint32_t mask_of(struct ptx_emit *e, const struct access *a, uint32_t half, uint32_t count) {
  uint32_t all = ptx_emit_lanes(e, a->lanes), from[16 * PTX_FETCHED_ELEMENTS];
  for (uint32_t i = 0; i < 16 * count; i++) from[i] = half * 16 + i / count;
  return ptx_emit_shuffle(e, 1, PTX_LANES, all, all, 16 * count, from);
}
/* Stores the places of all lanes in %bo, a->bits wide. Goes on at ANY_DO if all are allowed, else at SLOW. */
static void anywhere(struct ptx_emit *e, struct access *a) {
  uint32_t least = (uint32_t)__builtin_ctz(a->align);
  uint32_t r = VALUE("call {i1, i64} @anywhere%u(ptr %%bo, <32 x i%u> %%v%u, i%u %lld, i64 %u, i64 %%v%u, "
                     "i%u %u, i64 %%v%u, i64 %%v%u, i64 %lld, i64 %u)",
                     a->bits, a->bits, a->address, a->bits, (long long)a->from, a->shift, a->origin, a->bits,
                     least > a->shift ? least - a->shift : 0, a->base, a->size, (long long)(a->high - a->low),
                     a->align - 1);
  hope(e, a, VALUE("extractvalue {i1, i64} %%v%u, 0", r), ANY_DO, SLOW);
  label(e, a, ANY_DO);
  r = VALUE("extractvalue {i1, i64} %%v%u, 1", r);
  a->memory = VALUE("getelementptr i8, ptr %%v%u, i64 %%v%u", a->memory, r);
}
/* As at(), for place 0. */
static uint32_t beyond(struct ptx_emit *e, const struct access *a, int64_t from) {
  return VALUE("getelementptr i8, ptr %%v%u, i64 %lld", a->memory, (long long)from);
}
static uint32_t at(struct ptx_emit *e, const struct access *a, uint32_t place, int64_t from) {
  uint32_t p = VALUE("getelementptr i8, ptr %%v%u, i64 %%v%u", a->memory, place);
  return VALUE("getelementptr i8, ptr %%v%u, i64 %lld", p, (long long)from);
}
static uint32_t extended(struct ptx_emit *e, const struct ptx_instruction *in, const char *shape,
                         uint32_t value) {
  uint32_t bits = in->size * 8u, held = ML_REGISTER(in->m) * 8;
  if (bits == held) return value;
  char before[16], after[16];
  snprintf(before, sizeof before, shape, bits);
  snprintf(after, sizeof after, shape, held);
  return VALUE("%s %s %%v%u to %s", (in->m & ML_SIGNED) != 0 ? "sext" : "zext", before, value, after);
}
/* Every `count`th element of a vector of 32 * count, from `first` on. */
static uint32_t every(struct ptx_emit *e, uint32_t bits, uint32_t value, uint32_t first, uint32_t count) {
  uint32_t from[PTX_LANES];
  for (uint32_t i = 0; i < PTX_LANES; i++) from[i] = i * count + first;
  return count == 1 ? value : ptx_emit_shuffle(e, bits, PTX_LANES * count, value, value, PTX_LANES, from);
}
static uint32_t function_of(struct ptx_emit *e, size_t place) {
  return VALUE("load ptr, ptr %%v%u", VALUE("getelementptr i8, ptr %%alu, i64 %zu", place));
}

/* ---- loads --------------------------------------------------------------- */

/* Elements of a group, in its order. */
typedef uint32_t elements[MOST_ELEMENTS];

/*
 * If the halves of a warp access distant rows of a tile, the next block accesses the following bytes of each
 * row. The processor's own prefetching does not detect this pattern, so these bytes are prefetched.
 */
static void fetch_ahead(struct ptx_emit *e, const struct access *a, const struct halves *h) {
  long long bytes = a->high - a->low + 15 * (long long)a->step;
  if (!a->global) return;
  uint32_t apart = VALUE("sub i64 %%v%u, %%v%u", h->second, h->first), fetch = e->next++, on = e->next++;
  SAY("br i1 %%v%u, label %%l%u, label %%l%u\nl%u:\n", VALUE("icmp ule i64 %%v%u, %lld", apart, bytes), on,
      fetch, fetch);
  for (uint32_t k = 0; k < 2; k++)
    SAY("call void @llvm.prefetch.p0(ptr %%v%u, i32 %d, i32 3, i32 1)\n",
        at(e, a, k == 0 ? h->first : h->second, 2 * bytes - 1), a->member[0]->kind == K_STORE);
  SAY("br label %%l%u\nl%u:\n", on, on);
}

/* Elements of the lanes' accesses, side by side from place[half] on. */
static void load_side(struct ptx_emit *e, const struct ptx_instruction *in, const uint32_t place[2],
                      uint32_t *to) {
  uint32_t bits = in->size * 8u, half = 16u * in->x_count, part[2];
  for (uint32_t k = 0; k < 2; k++)
    part[k] = VALUE("load <%u x i%u>, ptr %%v%u, align %u", half, bits, place[k], total(in));
  uint32_t all = ptx_emit_piece(e, bits, half, part[0], part[1], 0, half * 2);
  for (uint32_t k = 0; k < in->x_count; k++)
    to[k] = extended(e, in, "<32 x i%u>", every(e, bits, all, k, in->x_count));
}

/* The same where the lanes of a half access one place. */
static void load_same(struct ptx_emit *e, const struct ptx_instruction *in, const uint32_t place[2],
                      uint32_t *to) {
  uint32_t bits = in->size * 8u, held = ML_REGISTER(in->m) * 8, part[2];
  for (uint32_t k = 0; k < 2; k++)
    part[k] = VALUE("load <%u x i%u>, ptr %%v%u, align %u", in->x_count, bits, place[k], total(in));
  for (uint32_t k = 0; k < in->x_count; k++) {
    uint32_t one[2];
    for (uint32_t j = 0; j < 2; j++)
      one[j] = extended(e, in, "i%u",
                        VALUE("extractelement <%u x i%u> %%v%u, i32 %u", in->x_count, bits, part[j], k));
    to[k] = VALUE("call <32 x i%u> @halves%u(i%u %%v%u, i%u %%v%u)", held, held, held, one[0], held, one[1]);
  }
}

/* The places of a member in both halves. */
static void places(struct ptx_emit *e, const struct access *a, const struct halves *h, uint32_t member,
                   uint32_t place[2]) {
  for (uint32_t k = 0; k < 2; k++)
    place[k] = at(e, a, k == 0 ? h->first : h->second, offset(a->member[member]) - a->low);
}
static void load_all(struct ptx_emit *e, const struct access *a, const struct halves *h, bool same,
                     elements to) {
  for (uint32_t i = 0, n = 0; i < a->count; n += a->member[i++]->x_count) {
    uint32_t place[2];
    places(e, a, h, i, place);
    (same ? load_same : load_side)(e, a->member[i], place, to + n);
  }
}

/* Whether a member that is not yet read lies in a window of so many bytes. */
static bool inside(const struct access *a, uint32_t i, uint32_t done, int64_t from, uint32_t bytes) {
  const struct ptx_instruction *in = a->member[i];
  int64_t place = offset(in) - from;
  return (done >> i & 1) == 0 && place >= 0 && place + total(in) <= bytes &&
         (bytes < 16 || (in->size >= 4 && place % in->size == 0));
}
static uint32_t count_inside(const struct access *a, uint32_t done, int64_t from, uint32_t bytes) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < a->count; i++) count += inside(a, i, done, from, bytes);
  return count;
}

/* The interpreter's functions take places of 64 bits. */
static void widen_places(struct ptx_emit *e, struct access *a) {
  if (a->bits == 64) return;
  uint32_t places = VALUE("load <32 x i32>, ptr %%bo, align 64");
  SAY("store <32 x i64> %%v%u, ptr %%bo, align 64\n", VALUE("zext <32 x i32> %%v%u to <32 x i64>", places));
  a->bits = 64;
}

/* Neighbours are read together, up to 8 bytes of a lane, or 16 of a vector. */
static void load_anywhere(struct ptx_emit *e, struct access *a, elements to) {
  for (uint32_t done = 0; done != (1u << a->count) - 1;) {
    int64_t from = INT64_MAX;
    bool whole = false;
    for (uint32_t i = 0; i < a->count; i++) {
      if ((done >> i & 1) != 0 || offset(a->member[i]) > from) continue;
      whole = (whole && offset(a->member[i]) == from) || total(a->member[i]) == 16;
      from = offset(a->member[i]);
    }
    uint32_t bytes = whole ? 16 : 8;
    while (bytes > 1 && (from + bytes > a->high ||
                         count_inside(a, done, from, bytes) <= count_inside(a, done, from, bytes / 2)))
      bytes /= 2;
    uint32_t wide = bytes * 8, window = 0, narrow = 0, broad = 0, words[2] = {0, 0};
    uint32_t far = beyond(e, a, from - a->low);
    if (bytes < 16) {
      window = VALUE("call <32 x i%u> @gather%u_%u(ptr %%v%u, ptr %%bo)", wide, wide, a->bits, far);
      e->gathers |= a->bits == 64 ? wide : wide << 4;
    } else {
      widen_places(e, a);
      SAY("call void %%v%u(ptr %%bd, ptr %%v%u, ptr %%bo, i32 %u, i32 -1)\n",
          function_of(e, offsetof(struct ptx_alu, gather_whole) + 4 * sizeof(ptx_gather *)), far,
          (uint32_t)REACH_NO_HALVES | REACH_NO_STEPS);
    }
    for (uint32_t i = 0, n = 0; i < a->count; n += a->member[i++]->x_count) {
      const struct ptx_instruction *in = a->member[i];
      if (!inside(a, i, done, from, bytes)) continue;
      for (uint32_t k = 0; k < in->x_count; k++) {
        uint32_t bits = in->size * 8u, byte = (uint32_t)(offset(in) - from) + k * in->size, value = window;
        if (bytes == 16) {
          uint32_t *all = bits == 32 ? &narrow : &broad;
          if (*all == 0) *all = VALUE("load <%u x i%u>, ptr %%bd, align 64", 4096 / bits, bits);
          value = every(e, bits, *all, byte / in->size, 16u / in->size);
        } else {
          uint32_t have = wide;
          if (wide == 64 && bits < 64 && byte / 4 == (byte + in->size - 1) / 4) {
            /* Words first: to shorten vectors of 64 bits for each element takes twice as long. */
            if (narrow == 0) narrow = VALUE("bitcast <32 x i64> %%v%u to <64 x i32>", window);
            uint32_t *word = &words[byte / 4];
            if (*word == 0) *word = every(e, 32, narrow, byte / 4, 2);
            value = *word;
            have = 32;
            byte %= 4;
          }
          if (byte > 0)
            value = VALUE("lshr <32 x i%u> %%v%u, %%v%u", have, value, ptx_emit_splat(e, have, byte * 8));
          if (bits < have) value = VALUE("trunc <32 x i%u> %%v%u to <32 x i%u>", have, value, bits);
        }
        to[n + k] = extended(e, in, "<32 x i%u>", value);
      }
      done |= 1u << i;
    }
  }
}

/*
 * Begins an access at a line. The result is true if the places of all lanes are valid, also those of inactive
 * lanes; otherwise, as at the end of an allocation, `step` must do the access.
 */
static uint32_t begin_line(struct ptx_emit *e, struct access *a, uint32_t pc, struct halves *h) {
  prepare(e, a, pc);
  *h = halves(e, a, 0);
  return within(e, a, h, a->sum.step == 0 ? 0 : a->step);
}

/* The loads of a group at a line are carried out at their own places. */
static void load_line(struct ptx_emit *e, struct access *a, uint32_t pc) {
  bool same = a->sum.step == 0;
  struct halves h;
  uint32_t slow = VALUE("xor i1 %%v%u, true", begin_line(e, a, pc, &h));
  if (!same) fetch_ahead(e, a, &h);
  /*
   * Not where an address can be refused each time: in larger functions, accesses to global memory may evict
   * each other from the cache of regions, which has no window of generic addresses.
   */
  bool cached = a->member[0]->space != S_GENERIC && e->plan->function->code_count <= PTX_REGION_CACHE;
  if ((cached || !a->global) && ptx_emit_rest(e, pc, slow)) slow = PTX_NEVER;
  for (uint32_t i = 0; i < a->count; i++) {
    struct ptx_fetched *f = &e->fetched[e->fetched_count++ % PTX_FETCHED];
    *f = (struct ptx_fetched){.pc = a->pc[i], .slow = slow, .same = same};
    places(e, a, &h, i, f->place);
  }
}

static void load_group(struct ptx_emit *e, struct access *a, uint32_t pc) {
  elements arm[3];
  static const int from[3] = {SIDE_DO, SAME_DO, ANY_DO};
  bool fixed = (a->member[0]->a & 3) == REF_CONSTANT; /* one address for all lanes */
  find_form(e, a, true);
  if (a->line) {
    load_line(e, a, pc);
    return;
  }
  bool has[3] = {!fixed && a->step != 0, true, !fixed};
  begin(e, a, pc);
  struct halves h = halves(e, a, a->address);
  if (has[0]) {
    choose(e, a, steps(e, a, a->address, a->step), SIDE, OTHER);
    label(e, a, SIDE);
    uint32_t allowed = within(e, a, &h, a->step);
    fetch_ahead(e, a, &h);
    hope(e, a, allowed, SIDE_DO, SLOW);
    label(e, a, SIDE_DO);
    load_all(e, a, &h, false, arm[0]);
    jump(e, a, DONE);
  } else {
    jump(e, a, OTHER);
  }
  label(e, a, OTHER);
  if (has[2]) choose(e, a, steps(e, a, a->address, 0), SAME, ANY);
  else jump(e, a, SAME);
  label(e, a, SAME);
  hope(e, a, within(e, a, &h, 0), SAME_DO, SLOW);
  label(e, a, SAME_DO);
  load_all(e, a, &h, true, arm[1]);
  jump(e, a, DONE);
  if (has[2]) {
    label(e, a, ANY);
    anywhere(e, a);
    load_anywhere(e, a, arm[2]);
    jump(e, a, DONE);
  }
  label(e, a, SLOW);
  jump(e, a, DONE);
  label(e, a, NONE);
  jump(e, a, DONE);
  label(e, a, DONE);
  uint32_t slow = e->next++;
  SAY("%%v%u = phi i1 [true, %%l%u], [false, %%l%u]", slow, a->label + SLOW, a->label + NONE);
  for (uint32_t k = 0; k < 3; k++) {
    if (has[k]) SAY(", [false, %%l%u]", a->label + (uint32_t)from[k]);
  }
  SAY("\n");
  for (uint32_t i = 0, n = 0; i < a->count; i++) {
    struct ptx_fetched *f = &e->fetched[e->fetched_count++ % PTX_FETCHED];
    *f = (struct ptx_fetched){.pc = a->pc[i], .slow = slow};
    for (uint32_t k = 0; k < a->member[i]->x_count; k++, n++) {
      f->value[k] = e->next++;
      /* Not poison behind NONE: a lane that is not active can have a true guard, and takes the value. */
      SAY("%%v%u = phi <32 x i%u> [poison, %%l%u], [zeroinitializer, %%l%u]", f->value[k],
          ML_REGISTER(a->member[i]->m) * 8, a->label + SLOW, a->label + NONE);
      for (uint32_t j = 0; j < 3; j++) {
        if (has[j]) SAY(", [%%v%u, %%l%u]", arm[j][n], a->label + (uint32_t)from[j]);
      }
      SAY("\n");
    }
  }
}

void ptx_emit_fetched(struct ptx_emit *e, const struct ptx_instruction *in, const struct ptx_fetched *f,
                      uint32_t value[PTX_FETCHED_ELEMENTS]) {
  if (f->place[0] == 0) memcpy(value, f->value, sizeof f->value);
  else (f->same ? load_same : load_side)(e, in, f->place, value);
}

const struct ptx_fetched *ptx_emit_load(struct ptx_emit *e, const struct ptx_instruction *in, uint32_t pc) {
  for (uint32_t pass = 0; pass < 2; pass++) {
    for (uint32_t i = 0; i < PTX_FETCHED; i++) {
      if (e->fetched[i].slow != 0 && e->fetched[i].pc == pc) return &e->fetched[i];
    }
    struct access a = {0};
    if (pass != 0 || !fits(e, in)) return NULL;
    collect(e, &a, in, pc);
    if (a.count == 0) return NULL;
    load_group(e, &a, pc);
  }
  return NULL;
}

/* ---- stores -------------------------------------------------------------- */

/* The vectors of all lanes as in memory. */
static uint32_t interleaved(struct ptx_emit *e, const struct ptx_instruction *in) {
  uint32_t bits = in->size * 8u, held = ML_REGISTER(in->m) * 8, count = in->x_count, value[4];
  for (uint32_t k = 0; k < count; k++) {
    value[k] = ptx_emit_read(e, e->plan->function->x[in->x + k], held);
    if (bits < held) value[k] = VALUE("trunc <32 x i%u> %%v%u to <32 x i%u>", held, value[k], bits);
  }
  for (uint32_t width = 32; count > 1; count /= 2, width *= 2) {
    for (uint32_t k = 0; k < count / 2; k++) {
      uint32_t from[PTX_LANES * PTX_FETCHED_ELEMENTS];
      for (uint32_t i = 0; i < width * 2; i++) from[i] = i / 2 + i % 2 * width;
      value[k] = ptx_emit_shuffle(e, bits, width, value[k], value[k + count / 2], width * 2, from);
    }
  }
  return value[0];
}

static void store_sides(struct ptx_emit *e, const struct access *a, const struct halves *h, bool masked) {
  for (uint32_t n = 0; n < a->count; n++) {
    const struct ptx_instruction *in = a->member[n];
    uint32_t bits = in->size * 8u, half = 16u * in->x_count, value = interleaved(e, in);
    for (uint32_t k = 0; k < 2; k++) {
      uint32_t part = ptx_emit_piece(e, bits, half * 2, value, value, k * half, half);
      uint32_t to = at(e, a, k == 0 ? h->first : h->second, offset(in) - a->low);
      if (masked)
        SAY("call void @llvm.masked.store.v%ui%u.p0(<%u x i%u> %%v%u, ptr %%v%u, i32 %u, <%u x i1> %%v%u)\n",
            half, bits, half, bits, part, to, total(in), half, mask_of(e, a, k, in->x_count));
      else SAY("store <%u x i%u> %%v%u, ptr %%v%u, align %u\n", half, bits, part, to, total(in));
    }
  }
  jump(e, a, DONE);
}

/* The lanes of a half store to one place: only the last active one does. */
static void store_same(struct ptx_emit *e, const struct access *a, const struct halves *h) {
  const struct ptx_instruction *in = a->member[0];
  uint32_t bits = in->size * 8u, on = e->next;
  e->next += 4;
  SAY("store <32 x i%u> %%v%u, ptr %%bd, align 64\n", bits, interleaved(e, in));
  for (uint32_t k = 0; k < 2; k++) {
    uint32_t lanes = k == 0 ? VALUE("and i32 %%v%u, 65535", a->lanes) : VALUE("lshr i32 %%v%u, 16", a->lanes);
    SAY("br i1 %%v%u, label %%l%u, label %%l%u\nl%u:\n", VALUE("icmp eq i32 %%v%u, 0", lanes), on + 2 * k,
        on + 2 * k + 1, on + 2 * k + 1);
    uint32_t lane = VALUE("xor i32 %%v%u, 31", VALUE("call i32 @llvm.ctlz.i32(i32 %%v%u, i1 true)", lanes));
    lane = VALUE("add i32 %%v%u, %u", lane, 16 * k);
    uint32_t value =
        VALUE("load i%u, ptr %%v%u", bits, VALUE("getelementptr i%u, ptr %%bd, i32 %%v%u", bits, lane));
    SAY("store i%u %%v%u, ptr %%v%u, align %u\nbr label %%l%u\nl%u:\n", bits, value,
        at(e, a, k == 0 ? h->first : h->second, 0), in->size, on + 2 * k, on + 2 * k);
  }
  jump(e, a, DONE);
}

static void store_each(struct ptx_emit *e, const struct access *a);
static void store_line(struct ptx_emit *e, struct access *a, uint32_t pc) {
  bool words = ptx_emit_has_avx512();
  struct halves h;
  hope(e, a, begin_line(e, a, pc, &h), SIDE, SLOW);
  label(e, a, SIDE);
  if (a->sum.step == 0) {
    store_same(e, a, &h);
    return;
  }
  choose(e, a, VALUE("icmp eq i32 %%v%u, -1", a->lanes), SIDE_DO, SOME);
  label(e, a, SIDE_DO);
  fetch_ahead(e, a, &h);
  store_sides(e, a, &h, false);
  label(e, a, SOME);
  for (uint32_t n = 0; n < a->count; n++) words = words && a->member[n]->size >= 4;
  if (words) {
    store_sides(e, a, &h, true);
    return;
  }
  uint32_t first = VALUE("call <32 x i64> @halves64(i64 %%v%u, i64 %%v%u)", h.first, h.second);
  SAY("store <32 x i64> %%v%u, ptr %%bo, align 64\n", ptx_emit_ramp(e, 64, first, a->step));
  a->bits = 64;
  store_each(e, a);
}

static void store_anywhere(struct ptx_emit *e, const struct access *a) {
  bool whole = false;
  for (uint32_t n = 0; n < a->count; n++) whole = whole || total(a->member[n]) == 16;
  if (!whole) {
    choose(e, a, VALUE("icmp eq i32 %%v%u, -1", a->lanes), EACH, LOOP_BEGIN);
    label(e, a, EACH);
    for (uint32_t n = 0; n < a->count; n++) {
      const struct ptx_instruction *in = a->member[n];
      uint32_t bits = total(in) * 8, value = interleaved(e, in);
      if (in->x_count > 1)
        value =
            VALUE("bitcast <%u x i%u> %%v%u to <32 x i%u>", 32u * in->x_count, in->size * 8u, value, bits);
      SAY("call void @scatter%u_%u(ptr %%v%u, ptr %%bo, <32 x i%u> %%v%u)\n", bits, a->bits,
          beyond(e, a, offset(in) - a->low), bits, value);
      e->scatters |= a->bits == 64 ? bits : bits << 4;
    }
    jump(e, a, DONE);
    label(e, a, LOOP_BEGIN);
  }
  struct access wide = *a;
  widen_places(e, &wide);
  store_each(e, &wide);
}

/* The lanes that store, one after the other, to the places in %bo. */
static void store_each(struct ptx_emit *e, const struct access *a) {
  for (uint32_t n = 0; n < a->count; n++) {
    const struct ptx_instruction *in = a->member[n];
    uint32_t bits = in->size * 8u, held = ML_REGISTER(in->m);
    size_t place = offsetof(struct ptx_alu, scatter_whole) + log2_of(total(in)) * sizeof(ptx_scatter *);
    if (in->x_count > 1) {
      SAY("store <%u x i%u> %%v%u, ptr %%bd, align 64\n", 32u * in->x_count, bits, interleaved(e, in));
    } else {
      SAY("store <32 x i%u> %%v%u, ptr %%bd, align 64\n", held * 8,
          ptx_emit_read(e, e->plan->function->x[in->x], held * 8));
      place =
          offsetof(struct ptx_alu, scatter) + (log2_of(in->size) * 4 + log2_of(held)) * sizeof(ptx_scatter *);
    }
    uint32_t to = beyond(e, a, offset(in) - a->low);
    SAY("call void %%v%u(ptr %%v%u, ptr %%bd, ptr %%bo, i32 %u, i32 %%v%u)\n", function_of(e, place), to,
        (uint32_t)REACH_NO_HALVES | REACH_NO_STEPS, a->lanes);
  }
  jump(e, a, DONE);
}

uint32_t ptx_emit_stores(struct ptx_emit *e, const struct ptx_instruction *in, uint32_t pc, uint32_t *slow,
                         uint32_t *done) {
  struct access a = {0};
  for (const struct ptx_instruction *next = in; pc + a.count < e->end; next++) {
    if (next->kind != K_STORE || !fits(e, next) || !joins(&a, next, pc + a.count)) break;
    for (uint32_t k = 0; k < next->x_count; k++) { /* before there are several paths */
      uint32_t x = e->plan->function->x[next->x + k];
      if ((x & 3) == REF_FRAME) ptx_emit_read(e, x, ML_REGISTER(next->m) * 8);
    }
  }
  if (a.count == 0) return 0;
  find_form(e, &a, true);
  if (a.line) {
    store_line(e, &a, pc);
  } else {
    begin(e, &a, pc);
    struct access any = a;
    anywhere(e, &any);
    store_anywhere(e, &any);
    label(e, &a, ALL);
    uint32_t address = a.summed ? a.sum.index : ptx_emit_read(e, in->a, a.bits);
    struct halves h = halves(e, &a, address);
    if (a.step != 0) choose(e, &a, steps(e, &a, address, a.step), SIDE, OTHER);
    else jump(e, &a, OTHER);
    label(e, &a, OTHER);
    jump(e, &a, ANY);
    if (a.step != 0) {
      label(e, &a, SIDE);
      hope(e, &a, within(e, &a, &h, a.step), SIDE_DO, SLOW);
      label(e, &a, SIDE_DO);
      fetch_ahead(e, &a, &h);
      store_sides(e, &a, &h, false);
    }
  }
  label(e, &a, NONE);
  jump(e, &a, DONE);
  *slow = a.label + SLOW;
  *done = a.label + DONE;
  return a.count;
}

/* ---- atomics ------------------------------------------------------------- */

/*
 * One thread runs all blocks that can use a block's shared memory, so an atomic is a load and a store of each
 * lane, in the order of the lanes.
 */
static uint32_t exchange(struct ptx_emit *e, const struct access *a, const char *operation, uint32_t bits,
                         uint32_t lane, uint32_t by) {
  uint32_t place =
      VALUE("load i%u, ptr %%v%u", a->bits, VALUE("getelementptr i%u, ptr %%bo, i64 %%v%u", a->bits, lane));
  if (a->bits == 32) place = VALUE("zext i32 %%v%u to i64", place);
  uint32_t word = VALUE("getelementptr i8, ptr %%v%u, i64 %%v%u", a->memory, place);
  uint32_t old = VALUE("load i%u, ptr %%v%u", bits, word);
  if (operation[0] != 0) by = VALUE("%s i%u %%v%u, %%v%u", operation, bits, old, by);
  SAY("store i%u %%v%u, ptr %%v%u\n", bits, by, word);
  return old;
}
uint32_t ptx_emit_atomic(struct ptx_emit *e, const struct ptx_instruction *in, uint32_t pc, uint32_t *slow) {
  static const char *const how[16] = {
      [A_AND] = "and", [A_OR] = "or", [A_XOR] = "xor", [A_ADD] = "add", [A_EXCH] = ""};
  struct access a = {0};
  const char *operation = how[MA_OPERATION(in->m)];
  uint32_t bits = in->size * 8u, upper = (uint32_t)(in->u.offset >> 32);
  bool narrow = (in->m & ML_NARROW) != 0;
  if (operation == NULL || in->space != S_SHARED || (bits != 32 && bits != 64) || in->type >= T_F16 ||
      (in->a & 3) != REF_FRAME || e->plan->function->widths[in->a / 64] != (narrow ? 4 : 8) ||
      (narrow && upper != 0 && upper != ~0u) || !joins(&a, in, pc))
    return 0;
  uint32_t b = ptx_emit_read(e, in->b, bits);
  find_form(e, &a, false);
  begin(e, &a, pc);
  anywhere(e, &a);
  choose(e, &a, VALUE("icmp eq i32 %%v%u, -1", a.lanes), EACH, LOOP_BEGIN);
  /* All lanes: without a loop, 32 of them take half of the time. */
  label(e, &a, EACH);
  uint32_t all = VALUE("add <32 x i%u> zeroinitializer, zeroinitializer", bits);
  for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
    uint32_t by = VALUE("extractelement <32 x i%u> %%v%u, i32 %u", bits, b, lane);
    uint32_t old = exchange(e, &a, operation, bits, VALUE("add i64 %u, 0", lane), by);
    all = VALUE("insertelement <32 x i%u> %%v%u, i%u %%v%u, i32 %u", bits, all, bits, old, lane);
  }
  jump(e, &a, GOT);
  label(e, &a, LOOP_BEGIN);
  SAY("store <32 x i%u> %%v%u, ptr %%bd, align 64\n", bits, b);
  uint32_t olds = VALUE("getelementptr i8, ptr %%bd, i64 256"), left = e->next++, rest = e->next++;
  SAY("br label %%l%u\nl%u:\n%%v%u = phi i32 [%%v%u, %%l%u], [%%v%u, %%l%u]\n", a.label + LOOP,
      a.label + LOOP, left, a.lanes, a.label + LOOP_BEGIN, rest, a.label + LOOP);
  uint32_t lane = VALUE("zext i32 %%v%u to i64", VALUE("call i32 @llvm.cttz.i32(i32 %%v%u, i1 true)", left));
  uint32_t by =
      VALUE("load i%u, ptr %%v%u", bits, VALUE("getelementptr i%u, ptr %%bd, i64 %%v%u", bits, lane));
  uint32_t old = exchange(e, &a, operation, bits, lane, by);
  SAY("store i%u %%v%u, ptr %%v%u\n", bits, old,
      VALUE("getelementptr i%u, ptr %%v%u, i64 %%v%u", bits, olds, lane));
  uint32_t less = VALUE("sub i32 %%v%u, 1", left);
  SAY("%%v%u = and i32 %%v%u, %%v%u\n", rest, left, less);
  choose(e, &a, VALUE("icmp eq i32 %%v%u, 0", rest), LOOPED, LOOP);
  label(e, &a, LOOPED);
  uint32_t those = VALUE("load <32 x i%u>, ptr %%v%u, align 64", bits, olds);
  jump(e, &a, GOT);
  label(e, &a, GOT);
  uint32_t value = VALUE("phi <32 x i%u> [%%v%u, %%l%u], [%%v%u, %%l%u]", bits, all, a.label + EACH, those,
                         a.label + LOOPED);
  jump(e, &a, DONE);
  label(e, &a, ALL);
  jump(e, &a, OTHER);
  label(e, &a, OTHER);
  jump(e, &a, ANY);
  label(e, &a, SLOW);
  jump(e, &a, DONE);
  label(e, &a, NONE);
  jump(e, &a, DONE);
  label(e, &a, DONE);
  *slow = VALUE("phi i1 [true, %%l%u], [false, %%l%u], [false, %%l%u]", a.label + SLOW, a.label + NONE,
                a.label + GOT);
  /* As for a group of loads, not poison behind NONE. */
  return VALUE("phi <32 x i%u> [poison, %%l%u], [zeroinitializer, %%l%u], [%%v%u, %%l%u]", bits,
               a.label + SLOW, a.label + NONE, value, a.label + GOT);
}
