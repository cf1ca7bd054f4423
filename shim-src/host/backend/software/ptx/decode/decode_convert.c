#include "host/backend/software/ptx/decode/decode.h"

#include "host/backend/software/ptx/alu/fpu.h"

static enum ptx_type bits_type(uint32_t bytes) {
  return bytes == 1 ? T_B8 : bytes == 2 ? T_B16 : bytes == 4 ? T_B32 : T_B64;
}

/* Packs the elements in one register: halves, or quarters in two steps. */
static uint32_t pack(struct parser *p, const struct operand *elements, uint32_t count, uint32_t bytes) {
  if (count == 1) return ptx_source(p, elements, bits_type(bytes));
  if (bytes < 2) ptx_refuse(p, "more elements than bytes");
  uint32_t low = pack(p, elements, count / 2, bytes / 2),
           high = pack(p, elements + count / 2, count / 2, bytes / 2);
  uint32_t d = ptx_temporary(p, bytes);
  if (bytes == 2) { /* bytes are extended to 16 bits each */
    ptx_emit_alu(p, OP_SHL, T_B16, 2, d, high, ptx_constant(p, 4, 8), PTX_NONE, 0);
    ptx_emit_alu(p, OP_OR, T_B16, 2, d, d, low, PTX_NONE, 0);
    return d;
  }
  ptx_emit_alu(p, OP_PACK, bits_type(bytes), bytes, d, low, high, PTX_NONE, 0);
  return d;
}
static void unpack(struct parser *p, const struct operand *elements, uint32_t count, uint32_t bytes,
                   uint32_t from) {
  if (bytes < 2) ptx_refuse(p, "more elements than bytes");
  for (uint32_t k = 0; k < 2; k++) {
    const struct operand *half = elements + k * count / 2;
    if (count == 2 && half->kind == O_SINK) continue;
    uint32_t d = count == 2 ? ptx_destination(p, half, bits_type(bytes / 2)) : ptx_temporary(p, bytes / 2);
    if (bytes == 2 && k == 0) {
      ptx_emit_convert(p, T_U8, T_U8, d, from, 0);
    } else if (bytes == 2) {
      ptx_emit_alu(p, OP_SHR, T_U16, 2, d, from, ptx_constant(p, 4, 8), PTX_NONE, 0);
    } else {
      ptx_emit_alu(p, k == 0 ? OP_LOW : OP_HIGH, bits_type(bytes), bytes / 2, d, from, PTX_NONE, PTX_NONE, 0);
    }
    if (count > 2) unpack(p, half, count / 2, bytes / 2, d);
  }
}

/* Moves registers element by element. All are read before any is written. */
static void move_elements(struct parser *p, const struct operand *to, const struct operand *from,
                          enum ptx_type type, uint32_t count) {
  if (to->kind != O_VECTOR || to->count != count || from->kind != O_VECTOR || from->count != count)
    ptx_refuse(p, "as many elements on both sides expected");
  uint32_t read[4], bytes = ptx_type_bytes(type);
  for (uint32_t i = 0; i < count; i++) {
    read[i] = ptx_temporary(p, bytes);
    uint32_t a = ptx_source(p, &p->elements[from->first + i], type);
    ptx_emit_alu(p, OP_MOV, type, bytes, read[i], a, PTX_NONE, PTX_NONE, 0);
  }
  for (uint32_t i = 0; i < count; i++) {
    const struct operand *element = &p->elements[to->first + i];
    if (element->kind == O_SINK) continue;
    uint32_t d = ptx_destination(p, element, type);
    ptx_emit_alu(p, OP_MOV, type, bytes, d, read[i], PTX_NONE, PTX_NONE, 0);
  }
}

static void decode_mov(struct parser *p) {
  ptx_need(p, 2, 2);
  enum ptx_type type = ptx_last_type(p);
  struct operand *to = &p->operands[0], *from = &p->operands[1];
  if (type == T_PRED) {
    ptx_emit_predicates(p, TABLE_MOV, 1);
    return;
  }
  uint32_t bytes = ptx_type_bytes(type), vector = ptx_has(p, "v2") ? 2 : ptx_has(p, "v4") ? 4 : 1;
  if (vector > 1 && (bytes < 2 || bytes > 8)) ptx_refuse(p, "a vector of this type");
  /* 128 bits are two registers of 64 bits, as is {low, high}. */
  if (type == T_B128 || vector > 1) {
    move_elements(p, to, from, type == T_B128 ? T_B64 : type, type == T_B128 ? 2 : vector);
    return;
  }
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

/* cvt.pack.sat.type.s32{.b32} d, a, b{, c}: a and b to fewer bits, below them those of c */
static void decode_cvt_pack(struct parser *p) {
  static const char *const names[] = {"u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"};
  uint32_t which = 0;
  while (which < 8 && !ptx_part(p, 3, names[which])) which++;
  bool halves = which < 2;
  if (which == 8 || !ptx_part(p, 2, "sat") || !ptx_part(p, 4, "s32") || ptx_part(p, 5, "b32") == halves)
    ptx_refuse(p, "these types");
  ptx_need(p, halves ? 3 : 4, halves ? 3 : 4);
  uint32_t a = ptx_source(p, &p->operands[1], T_S32), b = ptx_source(p, &p->operands[2], T_S32);
  uint32_t c = halves ? ptx_constant(p, 4, 0) : ptx_source(p, &p->operands[3], T_B32);
  uint32_t d = ptx_destination(p, &p->operands[0], T_B32);
  uint32_t bits = 16u >> which / 2;
  ptx_emit_alu(p, OP_CVT_PACK, T_B32, 4, d, a, b, c, bits | (which % 2 != 0 ? (uint32_t)M_SIGNED_A : 0));
}

/* .satfinite: beyond the largest number it is that number. NaN stays NaN. */
static void make_finite(struct parser *p, enum ptx_type type, uint32_t d) {
  uint32_t most = type == T_F16X2    ? 0x7bff7bffu
                  : type == T_BF16X2 ? 0x7f7f7f7fu
                  : type == T_F16    ? 0x7bffu
                  : type == T_BF16   ? 0x7f7fu
                                     : 0x7f7fe000u; /* tf32 */
  uint32_t sign = type == T_F16X2 || type == T_BF16X2 ? 0x80008000u : type == T_TF32 ? 0x80000000u : 0x8000u;
  enum ptx_type as = type == T_TF32 ? T_F32 : type;
  uint32_t bytes = ptx_type_bytes(as);
  ptx_emit_alu(p, OP_MIN, as, bytes, d, d, ptx_constant(p, bytes, most), PTX_NONE, M_NAN)->control = 1;
  ptx_emit_alu(p, OP_MAX, as, bytes, d, d, ptx_constant(p, bytes, most | sign), PTX_NONE, M_NAN)->control = 1;
}

/*
 * Rounding to integers and to 16 bits is part of the operation; the processor's mode does the rest. With
 * .ftz, the mode flushes the result of a conversion from f64 and the operand of a conversion to f64.
 */
static uint8_t convert_control(struct parser *p, enum ptx_type to, enum ptx_type from, uint32_t m) {
  bool halves = from == T_F16 || (from == T_BF16 && (m & M_SAT) == 0);
  bool upwards = (m & M_ROUND) == M_RM || (m & M_ROUND) == M_RP; /* from subnormals to other numbers */
  if (!ptx_is_float(from)) return (uint8_t)(ptx_is_float(to) ? ptx_control(p) | PTX_CONTROL_EITHER : 0);
  if ((halves && to == T_F32) || to == T_TF32) return 0; /* exact, or with bits alone */
  if (ptx_is_integer(to)) return from == T_F64 ? 1 : 1 | PTX_CONTROL_EITHER;
  if (from == T_F32 && (to == T_F16 || to == T_BF16) && !upwards)
    return (uint8_t)(ptx_control(p) | PTX_CONTROL_EITHER);
  bool zeros = (m & M_FTZ) != 0 || (!upwards && (m & M_INTEGRAL) != 0); /* made of subnormals in any case */
  if (from == to) return from == T_F32 && zeros ? 1 | PTX_CONTROL_EITHER : 1;
  return (uint8_t)ptx_control(p);
}

static void decode_cvt(struct parser *p) {
  if (ptx_part(p, 1, "pack")) {
    decode_cvt_pack(p);
    return;
  }
  enum ptx_type from, to;
  ptx_two_types(p, &to, &from);
  if (from == T_NONE) ptx_refuse(p, "two types expected");
  if (ptx_has(p, "rs")) ptx_refuse(p, "rounding by chance");
  uint32_t m = ptx_type_mode(p) | ptx_rounding(p);
  if ((to == T_F16X2 || to == T_BF16X2 || to == T_E4M3X2 || to == T_E5M2X2) && from == T_F32) {
    ptx_need(p, 3, 3);
    uint32_t a = ptx_source(p, &p->operands[1], T_F32), b = ptx_source(p, &p->operands[2], T_F32);
    uint32_t d = ptx_destination(p, &p->operands[0], to);
    bool halves = to == T_F16X2 || to == T_BF16X2;
    if (halves) m &= ~(uint32_t)M_SAT;
    ptx_emit_alu(p, OP_CVT_PAIR, to, ptx_type_bytes(to), d, a, b, PTX_NONE, m);
    if (halves && ptx_has(p, "satfinite")) make_finite(p, to, d);
    return;
  }
  ptx_need(p, 2, 2);
  bool finite = ptx_has(p, "satfinite") && to != T_E4M3X2 && to != T_E5M2X2;
  if (finite && to != T_F16 && to != T_BF16 && to != T_TF32) ptx_refuse(p, "satfinite");
  if (finite) m &= ~(uint32_t)M_SAT;
  if (ptx_is_float(from) && from == to && ptx_rounding(p) != 0) m |= M_INTEGRAL;
  if (ptx_is_float(from) && ptx_is_integer(to)) m &= ~(uint32_t)M_SAT;
  uint32_t a = ptx_source(p, &p->operands[1], from), d = ptx_destination(p, &p->operands[0], to);
  struct ptx_instruction *in = ptx_emit_convert(p, to, from, d, a, m);
  in->control = convert_control(p, to, from, m);
  if (finite) make_finite(p, to, d);
}

const struct ptx_mnemonic ptx_convert_mnemonics[] = {
    {"mov", decode_mov, "1 v2 v4"},
    {"cvt", decode_cvt, "3 rn rz rm rp rna rs rni rzi rmi rpi ftz sat satfinite relu pack u4 s4 u2 s2"},
    {NULL, NULL, NULL},
};
