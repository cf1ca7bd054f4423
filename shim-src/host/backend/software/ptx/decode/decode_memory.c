#include <string.h>

#include "host/backend/software/ptx/decode/decode.h"
#include "host/backend/software/ptx/modes.h"

static enum ptx_space space_of(struct parser *p) {
  for (uint32_t i = 1; i < p->part_count; i++) {
    const struct word *w = &p->parts[i];
    if (ptx_word_is(*w, "global")) return S_GLOBAL;
    if (ptx_word_is(*w, "shared") || ptx_word_is(*w, "shared::cta") || ptx_word_is(*w, "shared::cluster"))
      return S_SHARED;
    if (ptx_word_is(*w, "local")) return S_LOCAL;
    if (ptx_word_is(*w, "const")) return S_CONST;
    if (ptx_word_is(*w, "param") || ptx_word_is(*w, "param::entry") || ptx_word_is(*w, "param::func"))
      return S_PARAM;
  }
  return S_GENERIC;
}

static uint32_t spread(struct parser *p, uint32_t index, struct operand **first) {
  struct operand *o = &p->operands[index];
  if (o->kind != O_VECTOR) {
    *first = o;
    return 1;
  }
  *first = &p->elements[o->first];
  return o->count;
}

/* Returns the width of the registers of a load or store. All have one width, which is at least the type's. */
static uint32_t register_bytes(struct parser *p, const struct operand *o, uint32_t count, uint32_t bytes,
                               bool load) {
  uint32_t held = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (o[i].kind == O_SINK && load) continue;
    if (o[i].kind != O_REGISTER) return 0;
    uint32_t have = p->registers[o[i].number];
    if (o[i].type == T_PRED || o[i].lane_part != 0) ptx_refuse(p, "a register expected");
    if (have < bytes) ptx_refuse(p, "a register that is too narrow");
    if (held != 0 && held != have) ptx_refuse(p, "registers of different widths");
    held = have;
  }
  return held == 0 ? (bytes == 1 ? 2 : bytes) : held;
}

static void access(struct parser *p, bool load) {
  enum ptx_type type = ptx_last_type(p);
  enum ptx_space space = space_of(p);
  /* 128 bits are two registers of 64 bits. A vector of 16 bytes is one access. */
  bool wide = type == T_B128;
  if (wide) type = T_B64;
  uint32_t bytes = ptx_type_bytes(type);
  if (bytes == 0 || bytes > 8) ptx_refuse(p, "this type");
  ptx_need(p, 2, 3); /* a cache policy may follow */
  uint32_t value_at = load ? 0 : 1, address_at = load ? 1 : 0;
  struct operand *first;
  uint32_t count = spread(p, value_at, &first);
  if (count != 1 && count != 2 && count != 4 && count != 8) ptx_refuse(p, "a vector of 2, 4 or 8 expected");
  if (wide && (count != 2 || p->operands[value_at].type != T_B128))
    ptx_refuse(p, "a register of 128 bits expected");
  struct operand *address = &p->operands[address_at];
  /* ld r, a[2]: an element of a variable, without brackets */
  if (address->kind == O_SYMBOL) address->kind = O_ADDRESS;
  if (address->kind != O_ADDRESS || address->count > 0) ptx_refuse(p, "an address expected");
  uint32_t held = register_bytes(p, first, count, bytes, load);
  if (held == 0) held = bytes == 1 ? 2 : bytes; /* the value is a constant */
  uint32_t refs[8];
  for (uint32_t i = 0; i < count; i++) {
    if (load) {
      refs[i] = first[i].kind == O_SINK ? ptx_temporary(p, held) : first[i].number << 2 | REF_FRAME;
    } else if (first[i].kind == O_REGISTER) {
      refs[i] = first[i].number << 2 | REF_FRAME;
      if (p->registers[first[i].number] != held) ptx_refuse(p, "registers of different widths");
    } else {
      refs[i] = ptx_source(p, &first[i],
                           held == 2 && bytes == 1 ? T_B16
                           : held == bytes         ? type
                           : held == 8             ? T_B64
                           : held == 4             ? T_B32
                                                   : T_B16);
    }
  }
  struct symbol *s = address->symbol;
  /* A function's parameter address is that of a copy in local memory (ptx_parameter_address). */
  if (space == S_PARAM && s == NULL && !p->function->entry) space = S_LOCAL;
  enum ptx_kind kind = load ? K_LOAD : K_STORE;
  uint64_t offset = 0;
  uint32_t base = PTX_NONE, narrow = 0, size = 0;
  if (s != NULL && s->kind == SYM_KERNEL_PARAM) {
    if (!load) ptx_refuse(p, "kernel parameters are not written");
    uint64_t at = s->offset + (uint64_t)address->value;
    if (at > p->function->parameter_bytes || bytes * count > p->function->parameter_bytes - at) {
      ptx_refuse(p, "outside of the parameters");
    }
    kind = K_LOAD_KERNEL_PARAM;
    offset = at;
  } else if (s != NULL && s->kind == SYM_PARAM) {
    uint64_t at = (uint64_t)address->value;
    if (at > s->size || bytes * count > s->size - at) ptx_refuse(p, "outside of the parameter");
    kind = load ? K_LOAD_PARAM : K_STORE_PARAM;
    offset = s->offset + at;
    size = (uint32_t)s->size;
  } else {
    enum ptx_type width = T_B64;
    base = ptx_address(p, address, space, &offset, &width);
    narrow = width == T_B32 ? ML_NARROW : 0;
  }
  struct ptx_instruction *in = ptx_emit(p, kind);
  in->u.offset = offset;
  in->a = base;
  in->target = size;
  in->space = (uint8_t)space;
  in->type = (uint8_t)type;
  in->size = (uint8_t)bytes;
  bool ordered = ptx_has(p, "volatile") || ptx_has(p, "relaxed") || ptx_has(p, "acquire") ||
                 ptx_has(p, "release") || ptx_has(p, "mmio");
  in->m = narrow | (ptx_is_signed(type) ? ML_SIGNED : 0) | held << 4 | (ordered ? ML_VOLATILE : 0);
  in->x = p->x_count;
  in->x_count = (uint16_t)count;
  uint32_t defined = load ? PTX_DEFINED : 0;
  for (uint32_t i = 0; i < count; i++) ptx_extra(p, refs[i] | defined);
}

static void decode_ld(struct parser *p) {
  if (ptx_has(p, "async")) ptx_refuse(p, NULL);
  access(p, true);
}
static void decode_st(struct parser *p) {
  if (ptx_has(p, "bulk")) ptx_refuse(p, NULL);
  if (ptx_has(p, "async")) ptx_decode_async(p, false);
  else access(p, false);
}

static void append_wide(struct parser *p, uint32_t index, bool defined) {
  struct operand *halves;
  uint32_t refs[2];
  if (spread(p, index, &halves) != 2 || p->operands[index].type != T_B128)
    ptx_refuse(p, "a register of 128 bits expected");
  for (uint32_t i = 0; i < 2; i++)
    refs[i] =
        defined ? ptx_destination(p, &halves[i], T_B64) | PTX_DEFINED : ptx_source(p, &halves[i], T_B64);
  for (uint32_t i = 0; i < 2; i++) ptx_extra(p, refs[i]);
}

/* With 128 bits there are only exchanges, with or without a comparison. */
static void wide_atomic(struct parser *p, uint32_t op, enum ptx_space space) {
  if (op != A_CAS && op != A_EXCH) ptx_refuse(p, "this type");
  ptx_need(p, op == A_CAS ? 4 : 3, 5); /* a cache policy may follow */
  uint64_t offset;
  enum ptx_type width;
  uint32_t base = ptx_address(p, &p->operands[1], space, &offset, &width), x = p->x_count;
  append_wide(p, 0, true);
  append_wide(p, 2, false);
  if (op == A_CAS) append_wide(p, 3, false);
  struct ptx_instruction *in = ptx_emit(p, K_ATOM);
  in->u.offset = offset;
  in->a = base;
  in->x = x;
  in->x_count = (uint16_t)(p->x_count - x);
  in->size = 16;
  in->space = (uint8_t)space;
  in->type = T_B128;
  in->m = (width == T_B32 ? ML_NARROW : 0) | op << 4;
}

static void atomic(struct parser *p, bool result) {
  static const char *const names[A_ATOMICS] = {"and", "or",  "xor", "cas", "exch",
                                               "add", "inc", "dec", "min", "max"};
  uint32_t op = A_ATOMICS;
  for (uint32_t i = 1; i < p->part_count && op == A_ATOMICS; i++) {
    for (uint32_t k = 0; k < A_ATOMICS; k++) {
      if (ptx_word_is(p->parts[i], names[k])) op = k;
    }
  }
  if (op == A_ATOMICS || ptx_has(p, "async")) ptx_refuse(p, NULL);
  enum ptx_type type = ptx_last_type(p);
  uint32_t bytes = ptx_type_bytes(type);
  if (result && type == T_B128) {
    wide_atomic(p, op, space_of(p));
    return;
  }
  if (bytes != 2 && bytes != 4 && bytes != 8) ptx_refuse(p, "this width");
  bool floats = type == T_F32 || type == T_F64 || type == T_F16 || type == T_F16X2 || type == T_BF16 ||
                type == T_BF16X2;
  if (floats && op != A_ADD && !((op == A_MIN || op == A_MAX) && bytes < 8 && type != T_F32))
    ptx_refuse(p, "this type");
  if (bytes == 2 && !floats && op != A_CAS && op != A_EXCH) ptx_refuse(p, "this type");
  uint32_t vector = ptx_has(p, "v2") ? 2 : ptx_has(p, "v4") ? 4 : ptx_has(p, "v8") ? 8 : 1;
  bool halves = floats && type != T_F32 && type != T_F64, noftz = ptx_has(p, "noftz");
  if (halves && !noftz) ptx_wrong(p, ".noftz is missing");
  if (!halves && noftz) ptx_wrong(p, ".noftz with this type");
  if (halves && op != A_ADD && vector == 1) ptx_wrong(p, "a vector is missing: .v2, .v4 or .v8");
  if (vector > 1 && (!floats || bytes * vector > 16)) ptx_refuse(p, "a vector of this type");
  uint32_t at = result ? 1 : 0;
  ptx_need(p, at + (op == A_CAS ? 3 : 2), at + 4);
  enum ptx_space space = space_of(p);
  uint64_t offset;
  enum ptx_type width;
  uint32_t base = ptx_address(p, &p->operands[at], space, &offset, &width);
  /* Each element is an atomic of its own. Results are written when all elements have been read. */
  struct operand *values, *results = NULL;
  uint32_t count = spread(p, at + 1, &values), refs[8];
  if (count != vector || (result && spread(p, 0, &results) != vector)) ptx_refuse(p, "a vector expected");
  uint32_t c = op == A_CAS ? ptx_source(p, &p->operands[at + 2], type) : PTX_NONE;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t b = ptx_source(p, &values[i], type);
    refs[i] = !result ? PTX_NONE : vector > 1 ? ptx_temporary(p, bytes) : ptx_destination(p, results, type);
    struct ptx_instruction *in = ptx_emit(p, K_ATOM);
    in->u.offset = offset + (uint64_t)i * bytes;
    in->a = base;
    in->b = b;
    in->c = c;
    in->d = refs[i];
    in->size = (uint8_t)bytes;
    in->space = (uint8_t)space;
    in->type = (uint8_t)type;
    in->m = (width == T_B32 ? ML_NARROW : 0) | op << 4;
    if (floats) in->control = 1;
  }
  for (uint32_t i = 0; result && vector > 1 && i < count; i++) {
    enum ptx_type plain = bytes == 2 ? T_B16 : T_B32;
    uint32_t d = ptx_destination(p, &results[i], plain);
    ptx_emit_alu(p, OP_MOV, plain, bytes, d, refs[i], PTX_NONE, PTX_NONE, 0);
    ptx_finish(p);
  }
}
static void decode_atom(struct parser *p) {
  atomic(p, true);
}
static void decode_red(struct parser *p) {
  if (ptx_has(p, "async")) ptx_decode_async(p, true);
  else atomic(p, false);
}

static void decode_cvta(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  ptx_need(p, 2, 2);
  if (ptx_type_bytes(type) != 4 && ptx_type_bytes(type) != 8) ptx_refuse(p, ".u32 or .u64 expected");
  enum ptx_space space = space_of(p);
  uint32_t a = ptx_source(p, &p->operands[1], type), d = ptx_destination(p, &p->operands[0], type);
  if (space == S_PARAM && !p->function->entry) space = S_LOCAL;
  uint64_t window = space == S_SHARED  ? PTX_SHARED_WINDOW
                    : space == S_LOCAL ? PTX_LOCAL_WINDOW
                    : space == S_PARAM ? PTX_PARAM_WINDOW
                                       : 0;
  if (window != 0 && ptx_type_bytes(type) != 8) ptx_refuse(p, "generic addresses have 64 bits");
  if (window == 0) {
    ptx_emit_alu(p, OP_MOV, type, ptx_type_bytes(type), d, a, PTX_NONE, PTX_NONE, 0);
  } else {
    enum ptx_operation op = ptx_has(p, "to") ? OP_SUB : OP_ADD;
    ptx_emit_alu(p, op, T_U64, 8, d, a, ptx_constant(p, 8, window), PTX_NONE, 0);
  }
}

static void decode_isspacep(struct parser *p) {
  ptx_need(p, 2, 2);
  uint32_t a = ptx_source(p, &p->operands[1], T_B64), d = ptx_predicate_out(p, &p->operands[0]);
  struct ptx_instruction *in = ptx_emit(p, K_ISSPACEP);
  in->d = d;
  in->a = a;
  in->space = (uint8_t)space_of(p);
  in->m = ptx_has(p, "shared::cluster");
}

/* The stack behind the functions' variables is as large as its limit (cuCtxSetLimit). */
static void decode_stack(struct parser *p) {
  bool save = ptx_part(p, 0, "stacksave"), restore = ptx_part(p, 0, "stackrestore");
  enum ptx_type type = ptx_last_type(p);
  ptx_need(p, save || restore ? 1 : 2, save || restore ? 1 : 3);
  if (type != T_U32 && type != T_U64) ptx_refuse(p, ".u32 or .u64 expected");
  int64_t alignment = 1;
  if (p->operand_count == 3) {
    const struct operand *o = &p->operands[2];
    alignment = o->kind == O_INTEGER ? o->value : 0;
    if (alignment <= 0 || alignment > 4096 || (alignment & (alignment - 1)) != 0)
      ptx_refuse(p, "the alignment must be a power of two up to 4096");
  }
  uint32_t a = save ? PTX_NONE : ptx_source(p, &p->operands[restore ? 0 : 1], type);
  uint32_t d = restore ? PTX_NONE : ptx_destination(p, &p->operands[0], type);
  struct ptx_instruction *in = ptx_emit(p, K_STACK);
  in->d = d;
  in->a = a;
  in->m = save ? STACK_SAVE : restore ? STACK_RESTORE : STACK_ALLOCATE;
  in->size = (uint8_t)ptx_type_bytes(type);
  in->u.offset = (uint64_t)alignment;
  p->function->grows = true;
}

/* Hints to caches: the address is not read. */
static void decode_nothing(struct parser *p) {
  (void)p;
}

/* Other blocks run on other threads of this machine, so its fences order a guest's accesses. */
static void decode_fence(struct parser *p) {
  bool light = ptx_has(p, "acq_rel") || ptx_has(p, "acquire") || ptx_has(p, "release") || ptx_has(p, "proxy");
  ptx_emit(p, K_FENCE)->m = light ? 0 : MF_SC;
}

static void decode_createpolicy(struct parser *p) {
  uint32_t d = ptx_destination(p, &p->operands[0], T_B64);
  ptx_emit_alu(p, OP_MOV, T_B64, 8, d, ptx_constant(p, 8, 0), PTX_NONE, PTX_NONE, 0);
}

static void decode_cp(struct parser *p) {
  if (ptx_has(p, "bulk")) {
    ptx_decode_bulk(p);
    return;
  }
  if (!ptx_part(p, 1, "async") || ptx_has(p, "reduce")) ptx_refuse(p, NULL);
  /* Copies are done at once: groups wait for nothing, and an mbarrier for no further arrival. */
  if (ptx_has(p, "mbarrier")) {
    ptx_need(p, 1, 1);
    if (ptx_has(p, "noinc")) ptx_mbarrier_arrive(p);
    return;
  }
  if (ptx_has(p, "commit_group") || ptx_has(p, "wait_group") || ptx_has(p, "wait_all")) return;
  ptx_need(p, 3, 5);
  uint64_t to_offset, from_offset;
  enum ptx_type to_width, from_width;
  uint32_t to = ptx_address(p, &p->operands[0], S_SHARED, &to_offset, &to_width);
  uint32_t from = ptx_address(p, &p->operands[1], S_GLOBAL, &from_offset, &from_width);
  if (p->operands[2].kind != O_INTEGER) ptx_refuse(p, "the size must be a number");
  int64_t bytes = p->operands[2].value;
  if (bytes != 4 && bytes != 8 && bytes != 16) ptx_refuse(p, "4, 8 or 16 bytes expected");
  uint32_t have = PTX_NONE, ignore = PTX_NONE;
  bool policy = ptx_has(p, "L2::cache_hint");
  if (p->operand_count > 3 && !(policy && p->operand_count == 4)) {
    struct operand *o = &p->operands[3];
    if (o->kind == O_REGISTER && o->type == T_PRED) {
      ignore = ptx_predicate(p, o);
      if (o->negated) ptx_refuse(p, "a negated predicate");
    } else {
      have = ptx_source(p, o, T_U32);
    }
  }
  if (from_width != T_B64) ptx_refuse(p, "global addresses have 64 bits");
  struct ptx_instruction *in = ptx_emit(p, K_CP_ASYNC);
  in->space = S_SHARED;
  in->u.offset = to_offset;
  in->a = to;
  in->b = from;
  in->c = have;
  in->size = (uint8_t)bytes;
  in->m = to_width == T_B32 ? ML_NARROW : 0;
  in->target = (uint32_t)(int32_t)from_offset;
  if ((int64_t)from_offset != (int32_t)from_offset) ptx_refuse(p, "an offset beyond 32 bits");
  if (ignore != PTX_NONE) {
    uint32_t at = ptx_extra(p, ignore);
    in = &p->code[p->code_count - 1];
    in->x = at;
    in->x_count = 1;
  }
}

const struct ptx_mnemonic ptx_memory_mnemonics[] = {
    {"ld", decode_ld,
     "1 global local shared shared::cta shared::cluster const param param::entry param::func weak volatile "
     "relaxed acquire mmio cta cluster gpu sys ca cg cs lu cv nc unified async L1::evict_normal "
     "L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate L2::evict_normal L2::evict_last "
     "L2::evict_first L2::cache_hint L2::64B L2::128B L2::256B v2 v4 v8"},
    {"st", decode_st,
     "1 global local shared shared::cta shared::cluster const param param::entry param::func weak volatile "
     "relaxed release mmio cta cluster gpu sys wb cg cs wt async bulk mbarrier::complete_tx::bytes "
     "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate L2::evict_normal "
     "L2::evict_last L2::evict_first L2::cache_hint L2::64B L2::128B L2::256B v2 v4 v8"},
    {"atom", decode_atom,
     "1 global local shared shared::cta shared::cluster const param param::entry param::func relaxed acquire "
     "release acq_rel cta cluster gpu sys and or xor add inc dec min max cas exch noftz async "
     "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate L2::evict_normal "
     "L2::evict_last L2::evict_first L2::cache_hint L2::64B L2::128B L2::256B v2 v4 v8"},
    {"red", decode_red,
     "1 global local shared shared::cta shared::cluster const param param::entry param::func relaxed acquire "
     "release acq_rel cta cluster gpu sys and or xor add inc dec min max noftz async "
     "mbarrier::complete_tx::bytes L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last "
     "L1::no_allocate L2::evict_normal L2::evict_last L2::evict_first L2::cache_hint L2::64B L2::128B "
     "L2::256B v2 v4 v8"},
    {"cvta", decode_cvta,
     "1 to global local shared shared::cta shared::cluster const param param::entry param::func"},
    {"isspacep", decode_isspacep,
     "0 global local shared shared::cta shared::cluster const param param::entry param::func"},
    {"ldu", decode_ld, "1 global v2 v4 v8"},
    {"alloca", decode_stack, "1"},
    {"stacksave", decode_stack, "1"},
    {"stackrestore", decode_stack, "1"},
    {"prefetch", decode_nothing, NULL},
    {"prefetchu", decode_nothing, NULL},
    {"applypriority", decode_nothing, NULL},
    {"discard", decode_nothing, NULL},
    {"createpolicy", decode_createpolicy, NULL},
    {"cp", decode_cp,
     "1 async reduce bulk tensor 1d 2d 3d 4d 5d prefetch global shared shared::cta shared::cluster tile "
     "im2col im2col_no_offs im2col::w im2col::w::128 tile::gather4 tile::scatter4 "
     "mbarrier::complete_tx::bytes multicast::cluster bulk_group read commit_group wait_group wait_all ca cg "
     "mbarrier arrive noinc noftz and or xor add inc dec min max cp_mask L2 L1::evict_normal "
     "L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate L2::evict_normal L2::evict_last "
     "L2::evict_first L2::cache_hint L2::64B L2::128B L2::256B"},
    {"mbarrier", ptx_decode_mbarrier,
     "1 init inval arrive arrive_drop test_wait try_wait pending_count expect_tx complete_tx parity "
     "noComplete shared shared::cta shared::cluster release acquire relaxed cta cluster"},
    {"membar", decode_fence, NULL},
    {"fence", decode_fence, NULL},
    {NULL, NULL, NULL},
};
