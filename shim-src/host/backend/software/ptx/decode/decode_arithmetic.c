#include "host/backend/software/ptx/decode/decode.h"

bool ptx_is_float(enum ptx_type type) {
  return type == T_F32 || type == T_F64 || type == T_F16 || type == T_BF16 || type == T_F16X2 ||
         type == T_BF16X2;
}

uint32_t ptx_held(enum ptx_type type) {
  uint32_t bytes = ptx_type_bytes(type);
  return bytes == 1 ? 2 : bytes;
}

struct ptx_instruction *ptx_same(struct parser *p, enum ptx_operation op, enum ptx_type type,
                                 uint32_t sources, uint32_t m) {
  ptx_need(p, sources + 1, sources + 1);
  uint32_t a = ptx_source(p, &p->operands[1], type);
  uint32_t b = sources > 1 ? ptx_source(p, &p->operands[2], type) : PTX_NONE;
  uint32_t c = sources > 2 ? ptx_source(p, &p->operands[3], type) : PTX_NONE;
  uint32_t d = ptx_destination(p, &p->operands[0], type);
  struct ptx_instruction *in = ptx_emit_alu(p, op, type, ptx_held(type), d, a, b, c, m);
  if (ptx_is_float(type)) in->control = (uint8_t)ptx_control(p);
  return in;
}

void ptx_saturate(struct parser *p, enum ptx_type type) {
  if (type != T_F32 || !ptx_has(p, "sat")) return;
  uint32_t d = p->code[p->code_count - 1].d;
  uint8_t control = p->code[p->code_count - 1].control;
  ptx_emit_alu(p, OP_SATURATE, T_F32, 4, d, d, PTX_NONE, PTX_NONE, 0)->control = control;
}

void ptx_two_types(struct parser *p, enum ptx_type *first, enum ptx_type *second) {
  *first = *second = T_NONE;
  for (uint32_t i = 1; i < p->part_count; i++) {
    enum ptx_type type = ptx_type_of(p->parts[i]);
    if (type == T_NONE) continue;
    if (*first == T_NONE) *first = type;
    else *second = type;
  }
}

/*
 * Emits an operation on two floats in each register of 64 bits, each half by itself. False: the instruction
 * has another type.
 */
static bool float_pairs(struct parser *p, enum ptx_operation op, uint32_t sources) {
  if (!ptx_has(p, "f32x2")) return false;
  static const char *const others[] = {"sat", "relu", "cc", "lo", "hi", "wide"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (ptx_has(p, others[i])) ptx_refuse(p, "this modifier with .f32x2");
  enum ptx_type type, second;
  ptx_two_types(p, &type, &second);
  if (type != T_NONE) ptx_refuse(p, "a type beside .f32x2");
  ptx_need(p, sources + 1, sources + 1);
  uint32_t read[3], halves[2];
  for (uint32_t i = 0; i < sources; i++) read[i] = ptx_source(p, &p->operands[i + 1], T_B64);
  for (uint32_t k = 0; k < 2; k++) {
    uint32_t part[3] = {PTX_NONE, PTX_NONE, PTX_NONE};
    for (uint32_t i = 0; i < sources; i++) {
      part[i] = ptx_temporary(p, 4);
      ptx_emit_alu(p, k == 0 ? OP_LOW : OP_HIGH, T_B64, 4, part[i], read[i], PTX_NONE, PTX_NONE, 0);
    }
    halves[k] = ptx_temporary(p, 4);
    struct ptx_instruction *in =
        ptx_emit_alu(p, op, T_F32, 4, halves[k], part[0], part[1], part[2], ptx_type_mode(p));
    in->control = (uint8_t)ptx_control(p);
  }
  uint32_t d = ptx_destination(p, &p->operands[0], T_B64);
  ptx_emit_alu(p, OP_PACK, T_B64, 8, d, halves[0], halves[1], PTX_NONE, 0);
  return true;
}

static void floats_or_integers(struct parser *p, enum ptx_operation op, uint32_t sources) {
  enum ptx_type type = ptx_last_type(p);
  ptx_same(p, op, type, sources, ptx_type_mode(p));
  ptx_saturate(p, type);
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

static void sum(struct parser *p, bool subtract) {
  const enum ptx_operation op = subtract ? OP_SUB : OP_ADD, limited = subtract ? OP_SUB_SAT : OP_ADD_SAT;
  if (float_pairs(p, op, 2)) return;
  enum ptx_type type = ptx_last_type(p);
  if (ptx_has(p, "cc")) carry(p, subtract, false, true);
  else if (ptx_has(p, "sat") && type == T_S32) ptx_same(p, limited, type, 2, 0);
  else floats_or_integers(p, op, 2);
}
PTX_DECODER(add, sum(p, false))
PTX_DECODER(sub, sum(p, true))
PTX_DECODER(addc, carry(p, false, true, ptx_has(p, "cc")))
PTX_DECODER(subc, carry(p, true, true, ptx_has(p, "cc")))

static enum ptx_type doubled(enum ptx_type type) {
  return type == T_U16 ? T_U32 : type == T_S16 ? T_S32 : type == T_U32 ? T_U64 : T_S64;
}

static void decode_mul(struct parser *p) {
  if (float_pairs(p, OP_MUL, 2)) return;
  enum ptx_type type = ptx_last_type(p);
  if (ptx_has(p, "wide")) {
    ptx_need(p, 3, 3);
    uint32_t a = ptx_source(p, &p->operands[1], type), b = ptx_source(p, &p->operands[2], type);
    uint32_t d = ptx_destination(p, &p->operands[0], doubled(type));
    ptx_emit_alu(p, OP_MUL_WIDE, type, 2 * ptx_type_bytes(type), d, a, b, PTX_NONE, 0);
  } else if (ptx_has(p, "hi")) {
    ptx_same(p, OP_MUL_HI, type, 2, 0);
  } else {
    floats_or_integers(p, OP_MUL, 2);
  }
}

/* Emits the product, then an addition with the carry. */
static void carry_product(struct parser *p, bool use, bool set) {
  enum ptx_type type = ptx_last_type(p);
  ptx_need(p, 4, 4);
  uint32_t product = ptx_temporary(p, ptx_type_bytes(type));
  ptx_emit_alu(p, ptx_has(p, "hi") ? OP_MUL_HI : OP_MUL, type, ptx_type_bytes(type), product,
               ptx_source(p, &p->operands[1], type), ptx_source(p, &p->operands[2], type), PTX_NONE, 0);
  p->operands[1] = (struct operand){.kind = O_REGISTER, .type = (uint8_t)type, .number = product >> 2};
  p->operands[2] = p->operands[3];
  p->operand_count = 3;
  carry(p, false, use, set);
}

static void decode_mad(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  if (ptx_is_float(type)) {
    floats_or_integers(p, OP_FMA, 3);
  } else if (ptx_has(p, "wide")) {
    ptx_need(p, 4, 4);
    uint32_t a = ptx_source(p, &p->operands[1], type), b = ptx_source(p, &p->operands[2], type);
    uint32_t c = ptx_source(p, &p->operands[3], doubled(type));
    uint32_t d = ptx_destination(p, &p->operands[0], doubled(type));
    ptx_emit_alu(p, OP_MAD_WIDE, type, 2 * ptx_type_bytes(type), d, a, b, c, 0);
  } else if (ptx_has(p, "cc")) {
    carry_product(p, false, true);
  } else if (ptx_has(p, "hi")) {
    ptx_same(p, ptx_has(p, "sat") ? OP_MAD_HI_SAT : OP_MAD_HI, type, 3, 0);
  } else {
    ptx_same(p, OP_MAD, type, 3, 0);
  }
}
PTX_DECODER(madc, carry_product(p, true, ptx_has(p, "cc")))
static void decode_fma(struct parser *p) {
  if (!float_pairs(p, OP_FMA, 3)) floats_or_integers(p, OP_FMA, 3);
}
PTX_DECODER(mul24, ptx_same(p, ptx_has(p, "hi") ? OP_MUL24_HI : OP_MUL24, ptx_last_type(p), 2, 0))
static void decode_mad24(struct parser *p) {
  enum ptx_operation hi = ptx_has(p, "sat") ? OP_MAD24_HI_SAT : OP_MAD24_HI;
  ptx_same(p, ptx_has(p, "hi") ? hi : OP_MAD24, ptx_last_type(p), 3, 0);
}
PTX_DECODER(sad, ptx_same(p, OP_SAD, ptx_last_type(p), 3, 0))
static void decode_div(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  ptx_same(p, ptx_has(p, "approx") ? OP_DIV_APPROX : OP_DIV, type, 2, 0);
}
PTX_DECODER(rem, ptx_same(p, OP_REM, ptx_last_type(p), 2, 0))
PTX_DECODER(abs, ptx_same(p, OP_ABS, ptx_last_type(p), 1, ptx_type_mode(p)))
PTX_DECODER(neg, ptx_same(p, OP_NEG, ptx_last_type(p), 1, ptx_type_mode(p)))

/* Or the greatest. */
static void least_of_three(struct parser *p, enum ptx_operation op) {
  if (ptx_has(p, "abs") || ptx_has(p, "xorsign")) ptx_refuse(p, "magnitudes of three operands");
  uint32_t a = ptx_source(p, &p->operands[1], T_F32), b = ptx_source(p, &p->operands[2], T_F32);
  uint32_t c = ptx_source(p, &p->operands[3], T_F32), of_two = ptx_temporary(p, 4);
  uint8_t control = (uint8_t)ptx_control(p);
  uint32_t m = ptx_type_mode(p);
  ptx_emit_alu(p, op, T_F32, 4, of_two, a, b, PTX_NONE, m)->control = control;
  uint32_t d = ptx_destination(p, &p->operands[0], T_F32);
  ptx_emit_alu(p, op, T_F32, 4, d, of_two, c, PTX_NONE, m)->control = control;
}

static void minmax(struct parser *p, enum ptx_operation op) {
  enum ptx_type type = ptx_last_type(p);
  bool relu = ptx_has(p, "relu");
  if (relu && type != T_S32 && type != T_S16X2) ptx_refuse(p, "relu of this type");
  if (type == T_F32 && p->operand_count == 4) {
    least_of_three(p, op);
    return;
  }
  uint32_t d = ptx_same(p, op, type, 2, ptx_type_mode(p))->d;
  if (relu) ptx_emit_alu(p, OP_MAX, type, 4, d, d, ptx_constant(p, 4, 0), PTX_NONE, 0);
}
PTX_DECODER(min, minmax(p, OP_MIN))
PTX_DECODER(max, minmax(p, OP_MAX))
PTX_DECODER(rcp, ptx_same(p, OP_RCP, ptx_last_type(p), 1, 0))
PTX_DECODER(sqrt, ptx_same(p, OP_SQRT, ptx_last_type(p), 1, 0))
PTX_DECODER(rsqrt, ptx_same(p, OP_RSQRT, ptx_last_type(p), 1, 0))
PTX_DECODER(sin, ptx_same(p, OP_SIN, ptx_last_type(p), 1, 0))
PTX_DECODER(cos, ptx_same(p, OP_COS, ptx_last_type(p), 1, 0))
PTX_DECODER(lg2, ptx_same(p, OP_LG2, ptx_last_type(p), 1, ptx_type_mode(p)))
PTX_DECODER(ex2, ptx_same(p, OP_EX2, ptx_last_type(p), 1, ptx_type_mode(p)))
PTX_DECODER(tanh, ptx_same(p, OP_TANH, ptx_last_type(p), 1, 0))
PTX_DECODER(copysign, ptx_same(p, OP_COPYSIGN, ptx_last_type(p), 2, 0))

static void dot(struct parser *p, enum ptx_operation op) {
  enum ptx_type a_type, b_type;
  ptx_two_types(p, &a_type, &b_type);
  uint32_t m = (a_type == T_S32 ? (uint32_t)M_SIGNED_A : 0) | (b_type == T_S32 ? (uint32_t)M_SIGNED_B : 0) |
               (ptx_has(p, "hi") ? (uint32_t)M_HIGH : 0);
  ptx_same(p, op, T_B32, 3, m);
}
PTX_DECODER(dp4a, dot(p, OP_DP4A))
PTX_DECODER(dp2a, dot(p, OP_DP2A))
const struct ptx_mnemonic ptx_arithmetic_mnemonics[] = {
    {"add", decode_add, "1 rn rz rm rp ftz sat cc f32x2"},
    {"fma", decode_fma, "1 rn rz rm rp ftz sat relu f32x2"},
    {"mul", decode_mul, "1 lo hi wide rn rz rm rp ftz sat f32x2"},
    {"mad", decode_mad, "1 lo hi wide rn rz rm rp ftz sat cc"},
    {"sub", decode_sub, "1 rn rz rm rp ftz sat cc f32x2"},
    {"max", decode_max, "1 ftz NaN xorsign abs relu"},
    {"min", decode_min, "1 ftz NaN xorsign abs relu"},
    {"div", decode_div, "1 rn rz rm rp approx full ftz"},
    {"rem", decode_rem, "1"},
    {"abs", decode_abs, "1 ftz"},
    {"neg", decode_neg, "1 ftz"},
    {"rcp", decode_rcp, "1 rn rz rm rp approx ftz"},
    {"sqrt", decode_sqrt, "1 rn rz rm rp approx ftz"},
    {"rsqrt", decode_rsqrt, "1 approx ftz"},
    {"sin", decode_sin, "1 approx ftz"},
    {"cos", decode_cos, "1 approx ftz"},
    {"lg2", decode_lg2, "1 approx ftz"},
    {"ex2", decode_ex2, "1 approx ftz"},
    {"tanh", decode_tanh, "1 approx"},
    {"copysign", decode_copysign, "1"},
    {"dp4a", decode_dp4a, "2"},
    {"dp2a", decode_dp2a, "2 lo hi"},
    {"sad", decode_sad, "1"},
    {"mul24", decode_mul24, "1 lo hi"},
    {"mad24", decode_mad24, "1 lo hi sat"},
    {"addc", decode_addc, "1 cc"},
    {"subc", decode_subc, "1 cc"},
    {"madc", decode_madc, "1 lo hi cc"},
    {NULL, NULL, NULL},
};
