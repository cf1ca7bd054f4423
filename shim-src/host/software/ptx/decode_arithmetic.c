/* Arithmetic, logic, comparison, conversion and moves. */
#include <string.h>

#include "host/software/ptx/decode.h"

static bool is_float(enum ptx_type type) {
  return type == T_F32 || type == T_F64 || type == T_F16 || type == T_BF16 || type == T_F16X2 ||
         type == T_BF16X2;
}

static uint32_t held(enum ptx_type type) {
  uint32_t bytes = ptx_type_bytes(type);
  return bytes == 1 ? 2 : bytes;
}

/* d = op(a, b, c) of one type. */
static struct ptx_instruction *same(struct parser *p, enum ptx_operation op, enum ptx_type type,
                                    uint32_t sources, uint32_t m) {
  ptx_need(p, sources + 1, sources + 1);
  uint32_t a = ptx_source(p, &p->operands[1], type);
  uint32_t b = sources > 1 ? ptx_source(p, &p->operands[2], type) : PTX_NONE;
  uint32_t c = sources > 2 ? ptx_source(p, &p->operands[3], type) : PTX_NONE;
  uint32_t d = ptx_destination(p, &p->operands[0], type);
  struct ptx_instruction *in = ptx_emit_alu(p, op, type, held(type), d, a, b, c, m);
  if (is_float(type)) in->control = (uint16_t)ptx_control(p);
  return in;
}

/* Saturation of 32-bit floats comes after the operation; 16-bit ones have it in theirs. */
static void saturate(struct parser *p, enum ptx_type type) {
  if (type != T_F32 || !ptx_has(p, "sat")) return;
  uint32_t d = p->code[p->code_count - 1].d;
  ptx_emit_alu(p, OP_SATURATE, T_F32, 4, d, d, PTX_NONE, PTX_NONE, 0);
}

static void floats_or_integers(struct parser *p, enum ptx_operation op, uint32_t sources) {
  enum ptx_type type = ptx_last_type(p);
  same(p, op, type, sources, ptx_type_mode(p));
  saturate(p, type);
}

static void carry(struct parser *p, bool subtract, bool use, bool set) {
  enum ptx_type type = ptx_last_type(p);
  ptx_need(p, 3, 3);
  bool wide = ptx_type_bytes(type) == 8;
  if (ptx_type_bytes(type) != 4 && !wide) ptx_refuse(p, "carries are for 32 and 64 bits");
  uint32_t a = ptx_source(p, &p->operands[1], type), b = ptx_source(p, &p->operands[2], type);
  uint32_t d = ptx_destination(p, &p->operands[0], type);
  if (p->carry == PTX_NONE) p->carry = ptx_temporary(p, 0);
  struct ptx_instruction *in = ptx_emit(p, K_CARRY);
  in->d = d;
  in->a = a;
  in->b = b;
  in->size = wide ? 8 : 4;
  in->m = (subtract ? 1u : 0) | (use ? 2u : 0) | (set ? 4u : 0);
  uint32_t carry_register = p->carry;
  in->x = p->x_count;
  in->x_count = 2;
  ptx_extra(p, carry_register);
  ptx_extra(p, set ? carry_register | PTX_DEFINED : PTX_NONE);
}

static void decode_add(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  if (ptx_has(p, "cc")) carry(p, false, false, true);
  else if (ptx_has(p, "sat") && type == T_S32) same(p, OP_ADD_SAT, type, 2, 0);
  else floats_or_integers(p, OP_ADD, 2);
}
static void decode_addc(struct parser *p) {
  carry(p, false, true, ptx_has(p, "cc"));
}
static void decode_sub(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  if (ptx_has(p, "cc")) carry(p, true, false, true);
  else if (ptx_has(p, "sat") && type == T_S32) same(p, OP_SUB_SAT, type, 2, 0);
  else floats_or_integers(p, OP_SUB, 2);
}
static void decode_subc(struct parser *p) {
  carry(p, true, true, ptx_has(p, "cc"));
}

static enum ptx_type doubled(enum ptx_type type) {
  return type == T_U16 ? T_U32 : type == T_S16 ? T_S32 : type == T_U32 ? T_U64 : T_S64;
}

static void decode_mul(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  if (ptx_has(p, "wide")) {
    ptx_need(p, 3, 3);
    uint32_t a = ptx_source(p, &p->operands[1], type), b = ptx_source(p, &p->operands[2], type);
    uint32_t d = ptx_destination(p, &p->operands[0], doubled(type));
    ptx_emit_alu(p, OP_MUL_WIDE, type, 2 * ptx_type_bytes(type), d, a, b, PTX_NONE, 0);
  } else if (ptx_has(p, "hi")) {
    same(p, OP_MUL_HI, type, 2, 0);
  } else {
    floats_or_integers(p, OP_MUL, 2);
  }
}

static void decode_mad(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  if (is_float(type)) {
    floats_or_integers(p, OP_FMA, 3);
  } else if (ptx_has(p, "wide")) {
    ptx_need(p, 4, 4);
    uint32_t a = ptx_source(p, &p->operands[1], type), b = ptx_source(p, &p->operands[2], type);
    uint32_t c = ptx_source(p, &p->operands[3], doubled(type));
    uint32_t d = ptx_destination(p, &p->operands[0], doubled(type));
    ptx_emit_alu(p, OP_MAD_WIDE, type, 2 * ptx_type_bytes(type), d, a, b, c, 0);
  } else if (ptx_has(p, "cc")) {
    /* the product, then an addition that sets the carry */
    ptx_need(p, 4, 4);
    uint32_t product = ptx_temporary(p, ptx_type_bytes(type));
    ptx_emit_alu(p, ptx_has(p, "hi") ? OP_MUL_HI : OP_MUL, type, ptx_type_bytes(type), product,
                 ptx_source(p, &p->operands[1], type), ptx_source(p, &p->operands[2], type), PTX_NONE, 0);
    p->operands[1] = (struct operand){.kind = O_REGISTER, .type = (uint8_t)type, .number = product >> 2};
    p->operands[2] = p->operands[3];
    p->operand_count = 3;
    carry(p, false, false, true);
  } else if (ptx_has(p, "hi")) {
    same(p, ptx_has(p, "sat") ? OP_MAD_HI_SAT : OP_MAD_HI, type, 3, 0);
  } else {
    same(p, OP_MAD, type, 3, 0);
  }
}
static void decode_madc(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  ptx_need(p, 4, 4);
  uint32_t product = ptx_temporary(p, ptx_type_bytes(type));
  ptx_emit_alu(p, ptx_has(p, "hi") ? OP_MUL_HI : OP_MUL, type, ptx_type_bytes(type), product,
               ptx_source(p, &p->operands[1], type), ptx_source(p, &p->operands[2], type), PTX_NONE, 0);
  p->operands[1] = (struct operand){.kind = O_REGISTER, .type = (uint8_t)type, .number = product >> 2};
  p->operands[2] = p->operands[3];
  p->operand_count = 3;
  carry(p, false, true, ptx_has(p, "cc"));
}
static void decode_fma(struct parser *p) {
  floats_or_integers(p, OP_FMA, 3);
}
static void decode_mul24(struct parser *p) {
  same(p, ptx_has(p, "hi") ? OP_MUL24_HI : OP_MUL24, ptx_last_type(p), 2, 0);
}
static void decode_mad24(struct parser *p) {
  same(p, ptx_has(p, "hi") ? OP_MAD24_HI : OP_MAD24, ptx_last_type(p), 3, 0);
}
static void decode_sad(struct parser *p) {
  same(p, OP_SAD, ptx_last_type(p), 3, 0);
}
static void decode_div(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  same(p, ptx_has(p, "approx") ? OP_DIV_APPROX : OP_DIV, type, 2, 0);
}
static void decode_rem(struct parser *p) {
  same(p, OP_REM, ptx_last_type(p), 2, 0);
}
static void decode_abs(struct parser *p) {
  same(p, OP_ABS, ptx_last_type(p), 1, ptx_type_mode(p));
}
static void decode_neg(struct parser *p) {
  same(p, OP_NEG, ptx_last_type(p), 1, ptx_type_mode(p));
}
static void minmax(struct parser *p, enum ptx_operation op) {
  enum ptx_type type = ptx_last_type(p);
  bool relu = ptx_has(p, "relu");
  if (relu && type != T_S32 && type != T_S16X2) ptx_refuse(p, "relu of this type");
  if (type == T_F32 && p->operand_count == 4) ptx_refuse(p, "three operands");
  uint32_t d = same(p, op, type, 2, ptx_type_mode(p))->d;
  if (relu) ptx_emit_alu(p, OP_MAX, type, 4, d, d, ptx_constant(p, 4, 0), PTX_NONE, 0);
}
static void decode_min(struct parser *p) {
  minmax(p, OP_MIN);
}
static void decode_max(struct parser *p) {
  minmax(p, OP_MAX);
}
static void decode_rcp(struct parser *p) {
  same(p, OP_RCP, ptx_last_type(p), 1, 0);
}
static void decode_sqrt(struct parser *p) {
  same(p, OP_SQRT, ptx_last_type(p), 1, 0);
}
static void decode_rsqrt(struct parser *p) {
  same(p, OP_RSQRT, ptx_last_type(p), 1, 0);
}
static void decode_sin(struct parser *p) {
  same(p, OP_SIN, ptx_last_type(p), 1, 0);
}
static void decode_cos(struct parser *p) {
  same(p, OP_COS, ptx_last_type(p), 1, 0);
}
static void decode_lg2(struct parser *p) {
  same(p, OP_LG2, ptx_last_type(p), 1, 0);
}
static void decode_ex2(struct parser *p) {
  same(p, OP_EX2, ptx_last_type(p), 1, ptx_type_mode(p));
}
static void decode_tanh(struct parser *p) {
  same(p, OP_TANH, ptx_last_type(p), 1, 0);
}
static void decode_copysign(struct parser *p) {
  same(p, OP_COPYSIGN, ptx_last_type(p), 2, 0);
}

static void predicates(struct parser *p, uint32_t table, uint32_t sources) {
  ptx_need(p, sources + 1, sources + 1);
  uint32_t a = ptx_predicate(p, &p->operands[1]);
  uint32_t b = sources > 1 ? ptx_predicate(p, &p->operands[2]) : PTX_NONE;
  uint32_t d = ptx_predicate_out(p, &p->operands[0]);
  struct ptx_instruction *in = ptx_emit(p, K_PRED);
  in->d = d;
  in->a = a;
  in->b = b;
  in->m = table;
}
static void logic(struct parser *p, enum ptx_operation op, uint32_t table) {
  enum ptx_type type = ptx_last_type(p);
  if (type == T_PRED) predicates(p, table, op == OP_NOT ? 1 : 2);
  else same(p, op, type, op == OP_NOT || op == OP_CNOT ? 1 : 2, 0);
}
enum { TABLE_AND, TABLE_OR, TABLE_XOR, TABLE_NOT, TABLE_MOV };
static void decode_and(struct parser *p) {
  logic(p, OP_AND, TABLE_AND);
}
static void decode_or(struct parser *p) {
  logic(p, OP_OR, TABLE_OR);
}
static void decode_xor(struct parser *p) {
  logic(p, OP_XOR, TABLE_XOR);
}
static void decode_not(struct parser *p) {
  logic(p, OP_NOT, TABLE_NOT);
}
static void decode_cnot(struct parser *p) {
  logic(p, OP_CNOT, 0);
}

static void shift(struct parser *p, enum ptx_operation op) {
  enum ptx_type type = ptx_last_type(p);
  ptx_need(p, 3, 3);
  uint32_t a = ptx_source(p, &p->operands[1], type), b = ptx_source(p, &p->operands[2], T_U32);
  uint32_t d = ptx_destination(p, &p->operands[0], type);
  ptx_emit_alu(p, op, type, held(type), d, a, b, PTX_NONE, 0);
}
static void decode_shl(struct parser *p) {
  shift(p, OP_SHL);
}
static void decode_shr(struct parser *p) {
  shift(p, OP_SHR);
}
static void decode_shf(struct parser *p) {
  ptx_need(p, 4, 4);
  uint32_t a = ptx_source(p, &p->operands[1], T_B32), b = ptx_source(p, &p->operands[2], T_B32);
  uint32_t c = ptx_source(p, &p->operands[3], T_U32), d = ptx_destination(p, &p->operands[0], T_B32);
  ptx_emit_alu(p, ptx_has(p, "l") ? OP_SHF_L : OP_SHF_R, T_B32, 4, d, a, b, c, ptx_type_mode(p));
}

static void bits_to_word(struct parser *p, enum ptx_operation op) {
  enum ptx_type type = ptx_last_type(p);
  ptx_need(p, 2, 2);
  uint32_t a = ptx_source(p, &p->operands[1], type), d = ptx_destination(p, &p->operands[0], T_U32);
  ptx_emit_alu(p, op, type, 4, d, a, PTX_NONE, PTX_NONE, ptx_type_mode(p));
}
static void decode_popc(struct parser *p) {
  bits_to_word(p, OP_POPC);
}
static void decode_clz(struct parser *p) {
  bits_to_word(p, OP_CLZ);
}
static void decode_bfind(struct parser *p) {
  bits_to_word(p, OP_BFIND);
}
static void decode_brev(struct parser *p) {
  same(p, OP_BREV, ptx_last_type(p), 1, 0);
}
static void decode_bfe(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  ptx_need(p, 4, 4);
  uint32_t a = ptx_source(p, &p->operands[1], type), b = ptx_source(p, &p->operands[2], T_U32);
  uint32_t c = ptx_source(p, &p->operands[3], T_U32), d = ptx_destination(p, &p->operands[0], type);
  ptx_emit_alu(p, OP_BFE, type, held(type), d, a, b, c, 0);
}
static void decode_bfi(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  ptx_need(p, 5, 5);
  uint32_t a = ptx_source(p, &p->operands[1], type), b = ptx_source(p, &p->operands[2], type);
  uint32_t position = ptx_source(p, &p->operands[3], T_U32), length = ptx_source(p, &p->operands[4], T_U32);
  uint32_t both = ptx_temporary(p, 4);
  ptx_emit_alu(p, OP_PACK, T_B16, 4, both, position, length, PTX_NONE, 0);
  uint32_t d = ptx_destination(p, &p->operands[0], type);
  ptx_emit_alu(p, OP_BFI, type, held(type), d, a, b, both, 0);
}
static void decode_prmt(struct parser *p) {
  static const char *const modes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
  uint32_t m = 0;
  for (uint32_t i = 0; i < 6; i++) {
    if (ptx_has(p, modes[i])) m = i + 1;
  }
  same(p, OP_PRMT, T_B32, 3, m);
}
static void dot(struct parser *p, enum ptx_operation op) {
  enum ptx_type a_type = T_NONE, b_type = T_NONE;
  for (uint32_t i = 1; i < p->part_count; i++) {
    enum ptx_type type = ptx_type_of(p->parts[i]);
    if (type == T_NONE) continue;
    if (a_type == T_NONE) a_type = type;
    else b_type = type;
  }
  uint32_t m = (a_type == T_S32 ? (uint32_t)M_SIGNED_A : 0) | (b_type == T_S32 ? (uint32_t)M_SIGNED_B : 0) |
               (ptx_has(p, "hi") ? (uint32_t)M_HIGH : 0);
  same(p, op, T_B32, 3, m);
}
static void decode_dp4a(struct parser *p) {
  dot(p, OP_DP4A);
}
static void decode_dp2a(struct parser *p) {
  dot(p, OP_DP2A);
}
static void decode_fns(struct parser *p) {
  same(p, OP_FNS, T_B32, 3, 0);
}
static void decode_szext(struct parser *p) {
  same(p, OP_SZEXT, ptx_last_type(p), 2, ptx_type_mode(p));
}
static void decode_bmsk(struct parser *p) {
  same(p, OP_BMSK, T_B32, 2, ptx_type_mode(p));
}

static void decode_selp(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  ptx_need(p, 4, 4);
  uint32_t a = ptx_source(p, &p->operands[1], type), b = ptx_source(p, &p->operands[2], type);
  uint32_t c = ptx_predicate(p, &p->operands[3]);
  uint32_t d = ptx_destination(p, &p->operands[0], type);
  ptx_emit_alu(p, OP_SELP, type, held(type), d, a, b, c, 0);
}
static void decode_slct(struct parser *p) {
  /* slct{.ftz}.type.ctype */
  enum ptx_type type = T_NONE, by = ptx_last_type(p);
  for (uint32_t i = 1; i < p->part_count && type == T_NONE; i++) type = ptx_type_of(p->parts[i]);
  ptx_need(p, 4, 4);
  uint32_t a = ptx_source(p, &p->operands[1], type), b = ptx_source(p, &p->operands[2], type);
  uint32_t c = ptx_source(p, &p->operands[3], by), d = ptx_destination(p, &p->operands[0], type);
  uint32_t bytes = held(type);
  enum ptx_type row = by == T_F32 ? (bytes == 2   ? T_F16
                                     : bytes == 4 ? T_F32
                                                  : T_F64)
                                  : (bytes == 2   ? T_S16
                                     : bytes == 4 ? T_S32
                                                  : T_S64);
  struct ptx_instruction *in = ptx_emit_alu(p, OP_SLCT, row, bytes, d, a, b, c, 0);
  if (by == T_F32) in->control = (uint16_t)ptx_control(p);
}

static int comparison(struct parser *p) {
  static const struct {
    char name[12];
    uint8_t comparison;
  } names[] = {{"eq", C_EQ},         {"ne", C_NE},
               {"lt", C_LT},         {"le", C_LE},
               {"gt", C_GT},         {"ge", C_GE},
               {"lo", C_LT},         {"ls", C_LE},
               {"hi", C_GT},         {"hs", C_GE},
               {"equ", C_EQU},       {"neu", C_NEU},
               {"ltu", C_LTU},       {"leu", C_LEU},
               {"gtu", C_GTU},       {"geu", C_GEU},
               {"num", C_NUM},       {"nan", C_NAN},
               {"finite", C_FINITE}, {"infinite", C_INFINITE},
               {"number", C_NUMBER}, {"notanumber", C_NOTANUMBER},
               {"normal", C_NORMAL}, {"subnormal", C_SUBNORMAL}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (ptx_part(p, 1, names[i].name)) return names[i].comparison;
  }
  ptx_refuse(p, "an unknown comparison");
}
static ptx_compare *comparer(struct parser *p, int comparison, enum ptx_type type) {
  ptx_compare *compare = ptx_alu_best()->compare[comparison][type];
  if (compare == NULL) ptx_refuse(p, "not supported for this type");
  return compare;
}

/* m: 0 alone; 1 and, 2 or, 3 xor; 4: c is negated */
static uint32_t combination(struct parser *p, const struct operand *c) {
  uint32_t m = ptx_has(p, "and") ? 1 : ptx_has(p, "or") ? 2 : ptx_has(p, "xor") ? 3 : 0;
  if (m == 0) ptx_refuse(p, "a combination expected");
  return m | (c->negated ? 4u : 0);
}

/* lop3.b32 d, a, b, c, table; lop3.BoolOp.b32 d|p, a, b, c, table, q: p says whether d is not zero, and or or
 * q */
static void decode_lop3(struct parser *p) {
  bool two = p->operands[0].paired, combined = ptx_has(p, "and") || ptx_has(p, "or");
  if (two != combined) ptx_refuse(p, "a predicate result and .and or .or belong together");
  ptx_need(p, two ? 7 : 5, two ? 7 : 5);
  struct operand result = p->operands[1], with = p->operands[p->operand_count - 1];
  if (two) memmove(&p->operands[1], &p->operands[2], 4 * sizeof *p->operands);
  if (p->operands[4].kind != O_INTEGER) ptx_refuse(p, "the table must be a number");
  uint32_t m = (uint32_t)p->operands[4].value & 0xff;
  p->operand_count = 4;
  uint32_t d = same(p, OP_LOP3, T_B32, 3, m)->d;
  if (!two) return;
  uint32_t zero = ptx_constant(p, 4, 0), q = ptx_predicate(p, &with), to = ptx_predicate_out(p, &result);
  struct ptx_instruction *in = ptx_emit(p, K_SETP);
  in->u.compare = comparer(p, C_NE, T_U32);
  in->d = to;
  in->a = d;
  in->b = zero;
  in->c = q;
  in->m = combination(p, &with);
}

static void decode_setp(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  int compare = comparison(p);
  struct operand *o = p->operands;
  bool two = o[0].paired;
  uint32_t at = two ? 2 : 1;
  ptx_need(p, at + 2, at + 3);
  bool combined = p->operand_count > at + 2;
  bool pairs = type == T_F16X2 || type == T_BF16X2;
  if (pairs) {
    /* two comparisons, one for each half */
    enum ptx_type part = type == T_F16X2 ? T_F16 : T_BF16;
    if (!two) ptx_refuse(p, "two predicates expected");
    uint32_t a = ptx_source(p, &o[at], type), b = ptx_source(p, &o[at + 1], type);
    uint32_t c = combined ? ptx_predicate(p, &o[at + 2]) : PTX_NONE;
    uint32_t m = combined ? combination(p, &o[at + 2]) : 0;
    for (uint32_t k = 0; k < 2; k++) {
      uint32_t x = ptx_temporary(p, 2), y = ptx_temporary(p, 2);
      ptx_emit_alu(p, k == 0 ? OP_LOW : OP_HIGH, T_B32, 2, x, a, PTX_NONE, PTX_NONE, 0);
      ptx_emit_alu(p, k == 0 ? OP_LOW : OP_HIGH, T_B32, 2, y, b, PTX_NONE, PTX_NONE, 0);
      uint32_t d = ptx_predicate_out(p, &o[k]);
      struct ptx_instruction *in = ptx_emit(p, K_SETP);
      in->u.compare = comparer(p, compare, part);
      in->d = d;
      in->a = x;
      in->b = y;
      in->c = c;
      in->m = m;
      in->control = (uint16_t)ptx_control(p);
    }
    return;
  }
  uint32_t a = ptx_source(p, &o[at], type), b = ptx_source(p, &o[at + 1], type);
  uint32_t c = combined ? ptx_predicate(p, &o[at + 2]) : PTX_NONE;
  uint32_t m = combined ? combination(p, &o[at + 2]) : 0;
  uint32_t d = ptx_predicate_out(p, &o[0]);
  uint32_t q = two ? ptx_predicate_out(p, &o[1]) : PTX_NONE;
  struct ptx_instruction *in = ptx_emit(p, K_SETP);
  in->u.compare = comparer(p, compare, type);
  in->d = d;
  in->a = a;
  in->b = b;
  in->c = c;
  in->m = m;
  if (is_float(type)) in->control = (uint16_t)ptx_control(p);
  if (two) {
    in->x_count = 1;
    uint32_t at_x = ptx_extra(p, q | PTX_DEFINED);
    p->code[p->code_count - 1].x = at_x;
  }
}

static void decode_set(struct parser *p) {
  /* set.compare{.bool}{.ftz}.dtype.stype */
  enum ptx_type from = ptx_last_type(p), to = T_NONE;
  for (uint32_t i = 2; i + 1 < p->part_count && to == T_NONE; i++) to = ptx_type_of(p->parts[i]);
  if (to == T_NONE) ptx_refuse(p, "two types expected");
  int compare = comparison(p);
  struct operand *o = p->operands;
  ptx_need(p, 3, 4);
  bool combined = p->operand_count == 4;
  bool pairs = from == T_F16X2 || from == T_BF16X2;
  uint32_t a = ptx_source(p, &o[1], from), b = ptx_source(p, &o[2], from);
  uint32_t c = combined ? ptx_predicate(p, &o[3]) : PTX_NONE;
  uint32_t m = combined ? combination(p, &o[3]) : 0;
  uint32_t d = ptx_destination(p, &o[0], to);
  uint32_t parts[2];
  for (uint32_t k = 0; k < (pairs ? 2u : 1u); k++) {
    uint32_t x = a, y = b;
    enum ptx_type part = from;
    uint32_t bytes = held(to);
    uint32_t yes = to == T_F32 ? 8u : to == T_F16 ? 16u : to == T_BF16 ? 24u : 0;
    if (pairs) {
      part = from == T_F16X2 ? T_F16 : T_BF16;
      x = ptx_temporary(p, 2);
      y = ptx_temporary(p, 2);
      ptx_emit_alu(p, k == 0 ? OP_LOW : OP_HIGH, T_B32, 2, x, a, PTX_NONE, PTX_NONE, 0);
      ptx_emit_alu(p, k == 0 ? OP_LOW : OP_HIGH, T_B32, 2, y, b, PTX_NONE, PTX_NONE, 0);
      bytes = 2;
      yes = to == T_F16X2 ? 16u : to == T_BF16X2 ? 24u : 0;
      parts[k] = ptx_temporary(p, 2);
    }
    struct ptx_instruction *in = ptx_emit(p, K_SET);
    in->u.compare = comparer(p, compare, part);
    in->d = pairs ? parts[k] : d;
    in->a = x;
    in->b = y;
    in->c = c;
    in->m = m | yes;
    in->size = (uint8_t)bytes;
    if (is_float(from)) in->control = (uint16_t)ptx_control(p);
  }
  if (pairs) ptx_emit_alu(p, OP_PACK, T_B32, 4, d, parts[0], parts[1], PTX_NONE, 0);
}

static void decode_testp(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  ptx_need(p, 2, 2);
  uint32_t a = ptx_source(p, &p->operands[1], type), d = ptx_predicate_out(p, &p->operands[0]);
  struct ptx_instruction *in = ptx_emit(p, K_SETP);
  in->u.compare = comparer(p, comparison(p), type);
  in->d = d;
  in->a = in->b = a;
}

static enum ptx_type bits_type(uint32_t bytes) {
  return bytes == 2 ? T_B16 : bytes == 4 ? T_B32 : T_B64;
}

/* {a, b} to one register: halves, or quarters in two steps. */
static uint32_t pack(struct parser *p, const struct operand *elements, uint32_t count, uint32_t bytes) {
  if (count == 1) return ptx_source(p, elements, bits_type(bytes));
  if (bytes < 4) ptx_refuse(p, "a vector of bytes");
  uint32_t low = pack(p, elements, count / 2, bytes / 2),
           high = pack(p, elements + count / 2, count / 2, bytes / 2);
  uint32_t d = ptx_temporary(p, bytes);
  ptx_emit_alu(p, OP_PACK, bits_type(bytes), bytes, d, low, high, PTX_NONE, 0);
  return d;
}
static void unpack(struct parser *p, const struct operand *elements, uint32_t count, uint32_t bytes,
                   uint32_t from) {
  if (bytes < 4) ptx_refuse(p, "a vector of bytes");
  for (uint32_t k = 0; k < 2; k++) {
    enum ptx_operation op = k == 0 ? OP_LOW : OP_HIGH;
    if (count == 2) {
      if (elements[k].kind == O_SINK) continue;
      uint32_t d = ptx_destination(p, &elements[k], bits_type(bytes / 2));
      ptx_emit_alu(p, op, bits_type(bytes), bytes / 2, d, from, PTX_NONE, PTX_NONE, 0);
    } else {
      uint32_t part = ptx_temporary(p, bytes / 2);
      ptx_emit_alu(p, op, bits_type(bytes), bytes / 2, part, from, PTX_NONE, PTX_NONE, 0);
      unpack(p, elements + k * count / 2, count / 2, bytes / 2, part);
    }
  }
}

static void decode_mov(struct parser *p) {
  ptx_need(p, 2, 2);
  enum ptx_type type = ptx_last_type(p);
  struct operand *to = &p->operands[0], *from = &p->operands[1];
  if (type == T_PRED) {
    predicates(p, TABLE_MOV, 1);
    return;
  }
  uint32_t bytes = ptx_type_bytes(type);
  if (from->kind == O_VECTOR) {
    if (from->count != 2 && from->count != 4) ptx_refuse(p, "a vector of 2 or 4 expected");
    uint32_t a = pack(p, &p->elements[from->first], from->count, bytes);
    uint32_t d = ptx_destination(p, to, type);
    ptx_emit_alu(p, OP_MOV, bits_type(bytes), bytes, d, a, PTX_NONE, PTX_NONE, 0);
    return;
  }
  if (to->kind == O_VECTOR) {
    if (to->count != 2 && to->count != 4) ptx_refuse(p, "a vector of 2 or 4 expected");
    unpack(p, &p->elements[to->first], to->count, bytes, ptx_source(p, from, type));
    return;
  }
  uint32_t a = ptx_source(p, from, type);
  if (bytes == 1 || bytes == 16) ptx_refuse(p, "this width");
  uint32_t d = ptx_destination(p, to, type);
  ptx_emit_alu(p, OP_MOV, type, bytes, d, a, PTX_NONE, PTX_NONE, 0);
}

static bool integer_type(enum ptx_type type) {
  return (type >= T_U8 && type <= T_S64);
}

/* cvt.pack.sat.type.s32{.b32} d, a, b{, c}: a and b to fewer bits, below them those of c */
static void decode_cvt_pack(struct parser *p) {
  static const char *const names[] = {"u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"};
  uint32_t which = 0;
  while (which < 8 && !ptx_part(p, 3, names[which])) which++;
  bool halves = which < 2;
  if (which == 8 || !ptx_part(p, 2, "sat") || !ptx_part(p, 4, "s32") || ptx_part(p, 5, "b32") == halves)
    ptx_refuse(p, "not supported for these types");
  ptx_need(p, halves ? 3 : 4, halves ? 3 : 4);
  uint32_t a = ptx_source(p, &p->operands[1], T_S32), b = ptx_source(p, &p->operands[2], T_S32);
  uint32_t c = halves ? ptx_constant(p, 4, 0) : ptx_source(p, &p->operands[3], T_B32);
  uint32_t d = ptx_destination(p, &p->operands[0], T_B32);
  uint32_t bits = 16u >> which / 2;
  ptx_emit_alu(p, OP_CVT_PACK, T_B32, 4, d, a, b, c, bits | (which % 2 != 0 ? (uint32_t)M_SIGNED_A : 0));
}

static void decode_cvt(struct parser *p) {
  if (ptx_part(p, 1, "pack")) {
    decode_cvt_pack(p);
    return;
  }
  enum ptx_type from = T_NONE, to = T_NONE;
  for (uint32_t i = 1; i < p->part_count; i++) {
    enum ptx_type type = ptx_type_of(p->parts[i]);
    if (type == T_NONE) continue;
    if (to == T_NONE) to = type;
    else from = type;
  }
  if (from == T_NONE) ptx_refuse(p, "two types expected");
  if (ptx_has(p, "rs")) ptx_refuse(p, "rounding by chance");
  uint32_t m = ptx_type_mode(p) | ptx_rounding(p);
  if ((to == T_F16X2 || to == T_BF16X2 || to == T_E4M3X2 || to == T_E5M2X2) && from == T_F32) {
    ptx_need(p, 3, 3);
    uint32_t a = ptx_source(p, &p->operands[1], T_F32), b = ptx_source(p, &p->operands[2], T_F32);
    uint32_t d = ptx_destination(p, &p->operands[0], to);
    if (ptx_has(p, "satfinite") && (to == T_F16X2 || to == T_BF16X2)) ptx_refuse(p, "satfinite");
    ptx_emit_alu(p, OP_CVT_PAIR, to, ptx_type_bytes(to), d, a, b, PTX_NONE, m);
    return;
  }
  ptx_need(p, 2, 2);
  if (ptx_has(p, "satfinite") && to != T_E4M3X2 && to != T_E5M2X2) ptx_refuse(p, "satfinite");
  if (is_float(from) && from == to && ptx_rounding(p) != 0) m |= M_INTEGRAL;
  if (is_float(from) && integer_type(to)) m &= ~(uint32_t)M_SAT;
  uint32_t a = ptx_source(p, &p->operands[1], from), d = ptx_destination(p, &p->operands[0], to);
  struct ptx_instruction *in = ptx_emit_convert(p, to, from, d, a, m);
  if (is_float(from) || is_float(to)) {
    /* rounding to integers is done by name, so is that to 16 bits; the rest is the processor's */
    in->control = (uint16_t)(is_float(from) && integer_type(to) ? 1 : ptx_control(p));
    if (from == to) in->control = 1;
    /* .ftz of a conversion from f64 flushes results, of one to f64 operands: both are the processor's */
  }
  if (to == T_F32 && integer_type(from)) saturate(p, to);
}

static uint32_t video_selector(const struct operand *o) {
  return o->lane_part > 4 ? o->lane_part - 4u : 0;
}
static void decode_video(struct parser *p) {
  /* vop.dtype.atype.btype{.sat}{.op2} d, a{.part}, b{.part}{, c} */
  static const char *const names[] = {"vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset"};
  static const char *const compares[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  uint32_t op = 0;
  for (uint32_t i = 0; i < 8; i++) {
    if (ptx_part(p, 0, names[i])) op = i;
  }
  enum ptx_type types[3] = {T_U32, T_NONE, T_NONE};
  uint32_t count = op == 7 ? 1 : 0;
  for (uint32_t i = 1; i < p->part_count && count < 3; i++) {
    enum ptx_type type = ptx_type_of(p->parts[i]);
    if (type != T_NONE) types[count++] = type;
  }
  if (op == 7) {
    for (uint32_t i = 0; i < 6; i++) {
      if (ptx_has(p, compares[i])) op = 7 + i;
    }
  }
  ptx_need(p, 3, 4);
  struct operand a = p->operands[1], b = p->operands[2], d = p->operands[0];
  uint32_t m = op | video_selector(&a) << 4 | video_selector(&b) << 8 | video_selector(&d) << 12;
  if (types[1] == T_S32) m |= 1u << 16;
  if (types[2] == T_S32) m |= 1u << 17;
  if (types[0] == T_S32) m |= 1u << 18;
  if (ptx_has(p, "sat")) m |= 1u << 19;
  if (p->operand_count == 4 && video_selector(&d) == 0) {
    m |= (ptx_part(p, p->part_count - 1, "add") ? 1u : ptx_part(p, p->part_count - 1, "min") ? 2u : 3u) << 20;
  }
  if (ptx_has(p, "wrap")) m |= 1u << 23;
  a.lane_part = b.lane_part = d.lane_part = 0;
  if (a.negated || b.negated) ptx_refuse(p, "negated operands");
  uint32_t x = ptx_source(p, &a, T_B32), y = ptx_source(p, &b, T_B32);
  uint32_t z = p->operand_count == 4 ? ptx_source(p, &p->operands[3], T_B32) : ptx_constant(p, 4, 0);
  uint32_t to = ptx_destination(p, &d, T_B32);
  ptx_emit_alu(p, OP_VIDEO, T_B32, 4, to, x, y, z, m);
}

const struct ptx_mnemonic ptx_arithmetic_mnemonics[] = {
    {"mov", decode_mov},     {"add", decode_add},           {"fma", decode_fma},
    {"mul", decode_mul},     {"cvt", decode_cvt},           {"and", decode_and},
    {"setp", decode_setp},   {"shl", decode_shl},           {"shr", decode_shr},
    {"mad", decode_mad},     {"sub", decode_sub},           {"or", decode_or},
    {"xor", decode_xor},     {"not", decode_not},           {"selp", decode_selp},
    {"max", decode_max},     {"min", decode_min},           {"prmt", decode_prmt},
    {"lop3", decode_lop3},   {"div", decode_div},           {"rem", decode_rem},
    {"abs", decode_abs},     {"neg", decode_neg},           {"rcp", decode_rcp},
    {"sqrt", decode_sqrt},   {"rsqrt", decode_rsqrt},       {"sin", decode_sin},
    {"cos", decode_cos},     {"lg2", decode_lg2},           {"ex2", decode_ex2},
    {"tanh", decode_tanh},   {"copysign", decode_copysign}, {"popc", decode_popc},
    {"clz", decode_clz},     {"bfind", decode_bfind},       {"brev", decode_brev},
    {"bfe", decode_bfe},     {"bfi", decode_bfi},           {"shf", decode_shf},
    {"dp4a", decode_dp4a},   {"dp2a", decode_dp2a},         {"sad", decode_sad},
    {"mul24", decode_mul24}, {"mad24", decode_mad24},       {"addc", decode_addc},
    {"subc", decode_subc},   {"madc", decode_madc},         {"slct", decode_slct},
    {"set", decode_set},     {"testp", decode_testp},       {"cnot", decode_cnot},
    {"fns", decode_fns},     {"szext", decode_szext},       {"bmsk", decode_bmsk},
    {"vadd", decode_video},  {"vsub", decode_video},        {"vabsdiff", decode_video},
    {"vmin", decode_video},  {"vmax", decode_video},        {"vshl", decode_video},
    {"vshr", decode_video},  {"vset", decode_video},        {NULL, NULL},
};
