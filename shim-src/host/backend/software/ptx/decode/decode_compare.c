#include <string.h>

#include "host/backend/software/ptx/decode/decode.h"

static void decode_selp(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  ptx_need(p, 4, 4);
  uint32_t a = ptx_source(p, &p->operands[1], type), b = ptx_source(p, &p->operands[2], type);
  uint32_t c = ptx_predicate(p, &p->operands[3]);
  uint32_t d = ptx_destination(p, &p->operands[0], type);
  ptx_emit_alu(p, OP_SELP, type, ptx_held(type), d, a, b, c, 0);
}
static void decode_slct(struct parser *p) {
  /* slct{.ftz}.type.ctype */
  enum ptx_type type = T_NONE, by = ptx_last_type(p);
  for (uint32_t i = 1; i < p->part_count && type == T_NONE; i++) type = ptx_type_of(p->parts[i]);
  ptx_need(p, 4, 4);
  uint32_t a = ptx_source(p, &p->operands[1], type), b = ptx_source(p, &p->operands[2], type);
  uint32_t c = ptx_source(p, &p->operands[3], by), d = ptx_destination(p, &p->operands[0], type);
  uint32_t bytes = ptx_held(type);
  enum ptx_type row = by == T_F32 ? (bytes == 2   ? T_F16
                                     : bytes == 4 ? T_F32
                                                  : T_F64)
                                  : (bytes == 2   ? T_S16
                                     : bytes == 4 ? T_S32
                                                  : T_S64);
  struct ptx_instruction *in = ptx_emit_alu(p, OP_SLCT, row, bytes, d, a, b, c, 0);
  if (by == T_F32) in->control = (uint8_t)ptx_control(p);
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
  if (compare == NULL) ptx_refuse(p, "this type");
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
  uint32_t d = ptx_same(p, OP_LOP3, T_B32, 3, m)->d;
  if (!two) return;
  uint32_t zero = ptx_constant(p, 4, 0), q = ptx_predicate(p, &with), to = ptx_predicate_out(p, &result);
  struct ptx_instruction *in = ptx_emit_compare(p, C_NE, T_U32, to, d, zero);
  in->c = q;
  in->m = combination(p, &with);
}

/*
 * Returns an operand of a comparison. The processor's mode does not flush halves, but adding -0 with .ftz
 * does.
 */
static uint32_t compared(struct parser *p, uint32_t value, enum ptx_type type) {
  if ((type != T_F16 && type != T_F16X2) || !ptx_has(p, "ftz")) return value;
  uint32_t bytes = ptx_type_bytes(type), d = ptx_temporary(p, bytes);
  uint32_t zero = ptx_constant(p, bytes, type == T_F16 ? 0x8000 : 0x80008000);
  ptx_emit_alu(p, OP_ADD, type, bytes, d, value, zero, PTX_NONE, M_FTZ)->control = 1;
  return d;
}

static ptx_compare_pair *pair_comparer(struct parser *p, int comparison, enum ptx_type type) {
  ptx_compare_pair *compare = ptx_alu_best()->compare_pair[comparison][type];
  if (compare == NULL) ptx_refuse(p, "this type");
  return compare;
}
static bool is_pair(enum ptx_type type) {
  return type == T_F16X2 || type == T_BF16X2;
}

static void decode_setp(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  int compare = comparison(p);
  struct operand *o = p->operands;
  bool two = o[0].paired;
  uint32_t at = two ? 2 : 1;
  ptx_need(p, at + 2, at + 3);
  bool combined = p->operand_count > at + 2;
  bool pairs = is_pair(type);
  if (pairs && !two) ptx_refuse(p, "two predicates expected");
  uint32_t a = compared(p, ptx_source(p, &o[at], type), type);
  uint32_t b = compared(p, ptx_source(p, &o[at + 1], type), type);
  uint32_t c = combined ? ptx_predicate(p, &o[at + 2]) : PTX_NONE;
  uint32_t m = combined ? combination(p, &o[at + 2]) : 0;
  uint32_t d = ptx_predicate_out(p, &o[0]);
  uint32_t q = two ? ptx_predicate_out(p, &o[1]) : PTX_NONE;
  struct ptx_instruction *in = ptx_emit(p, pairs ? K_SETP_PAIR : K_SETP);
  if (pairs) in->u.compare_pair = pair_comparer(p, compare, type);
  else in->u.compare = comparer(p, compare, type);
  in->d = d;
  in->a = a;
  in->b = b;
  in->c = c;
  in->m = m;
  if (ptx_is_float(type)) in->control = (uint8_t)ptx_control(p);
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
  bool pairs = is_pair(from);
  uint32_t bytes = ptx_held(to);
  if (pairs && to != from && to != T_U32 && to != T_S32) ptx_refuse(p, "pairs to this type");
  if (bytes != 2 && bytes != 4 && bytes != 8) ptx_refuse(p, "this type");
  uint32_t a = ptx_source(p, &o[1], from), b = ptx_source(p, &o[2], from);
  uint32_t c = combined ? ptx_predicate(p, &o[3]) : PTX_NONE;
  uint32_t m = combined ? combination(p, &o[3]) : 0;
  uint32_t d = ptx_destination(p, &o[0], to);
  a = compared(p, a, from);
  b = compared(p, b, from);
  uint32_t yes = to == T_F32                      ? 8u
                 : to == T_F16 || to == T_F16X2   ? 16u
                 : to == T_BF16 || to == T_BF16X2 ? 24u
                                                  : 0;
  struct ptx_instruction *in = ptx_emit(p, pairs ? K_SET_PAIR : K_SET);
  if (pairs) in->u.compare_pair = pair_comparer(p, compare, from);
  else in->u.compare = comparer(p, compare, from);
  in->d = d;
  in->a = a;
  in->b = b;
  in->c = c;
  in->m = m | yes;
  in->size = (uint8_t)bytes;
  if (ptx_is_float(from)) in->control = (uint8_t)ptx_control(p);
}

static void decode_testp(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  ptx_need(p, 2, 2);
  uint32_t a = ptx_source(p, &p->operands[1], type), d = ptx_predicate_out(p, &p->operands[0]);
  ptx_emit_compare(p, comparison(p), type, d, a, a);
}

const struct ptx_mnemonic ptx_compare_mnemonics[] = {
    {"setp", decode_setp, "1 eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor ftz"},
    {"selp", decode_selp, "1"},
    {"lop3", decode_lop3, "1 and or"},
    {"slct", decode_slct, "2 ftz"},
    {"set", decode_set, "2 eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor ftz"},
    {"testp", decode_testp, "1 finite infinite number notanumber normal subnormal"},
    {NULL, NULL, NULL},
};
