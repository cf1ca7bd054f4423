#include "host/backend/software/ptx/decode/decode.h"

static uint32_t video_selector(const struct operand *o) {
  return o->lane_part <= PART_H1 ? o->lane_part : 0;
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

/* vmad.dtype.atype.btype{.po}{.sat}{.scale} d, {-}a{.part}, {-}b{.part}, {-}c */
static void decode_mad(struct parser *p) {
  ptx_need(p, 4, 4);
  struct operand a = p->operands[1], b = p->operands[2], c = p->operands[3];
  for (uint32_t i = 1; i < 4; i++) {
    enum ptx_type type = i < p->part_count ? ptx_type_of(p->parts[i]) : T_NONE;
    if (type != T_U32 && type != T_S32) ptx_refuse(p, "three types, .u32 or .s32, expected");
  }
  bool one = ptx_has(p, "po"), product = a.negated != b.negated;
  if (one + product + c.negated > 1 || (one && a.negated)) ptx_refuse(p, "these negated operands");
  uint32_t m = 13 | video_selector(&a) << 4 | video_selector(&b) << 8;
  if (ptx_part(p, 2, "s32")) m |= 1u << 16;
  if (ptx_part(p, 3, "s32")) m |= 1u << 17;
  if (ptx_has(p, "sat")) m |= 1u << 19;
  m |= (ptx_has(p, "shr7") ? 1u : ptx_has(p, "shr15") ? 2u : 0u) << 20;
  m |= (one ? 1u : 0u) << 24 | (product ? 1u : 0u) << 25 | (c.negated ? 1u : 0u) << 26;
  a.lane_part = b.lane_part = PART_NONE;
  a.negated = b.negated = c.negated = false;
  uint32_t x = ptx_source(p, &a, T_B32), y = ptx_source(p, &b, T_B32), z = ptx_source(p, &c, T_B32);
  ptx_emit_alu(p, OP_VIDEO, T_B32, 4, ptx_destination(p, &p->operands[0], T_B32), x, y, z, m);
}

/*
 * Returns the parts of a and b that the operation uses: a digit each, from the highest part down, a's before
 * b's. Without a selector the operand uses its own parts, `own`.
 */
static uint32_t selected(struct parser *p, const struct operand *o, bool quad, uint32_t own, uint32_t a,
                         uint32_t b) {
  if (o->lane_part == PART_NONE) return own;
  if (o->lane_part != (quad ? PART_BYTES : PART_HALVES)) ptx_refuse(p, "a selector of other parts");
  uint32_t digits = o->selectors, permutation = 0;
  for (uint32_t i = 0; i < 4; i++) {
    uint32_t byte = quad ? digits >> (4 * i) & 15 : (digits >> (4 * (i / 2)) & 15) * 2 + i % 2;
    permutation |= byte << (4 * i);
  }
  uint32_t d = ptx_temporary(p, 4);
  ptx_emit_alu(p, OP_PRMT, T_B32, 4, d, a, b, ptx_constant(p, 4, permutation), 0);
  return d;
}

/* Returns the parts of d that are written: .h1, .b20 and so on; by default all. */
static uint32_t masked(struct parser *p, const struct operand *d, bool quad) {
  if (d->lane_part == PART_NONE) return quad ? 15 : 3;
  bool bytes = (d->lane_part >= PART_B0 && d->lane_part <= PART_B3) || d->lane_part == PART_BYTES;
  if (bytes != quad) ptx_refuse(p, "a mask of other parts");
  if (d->lane_part <= PART_H1) return 1u << (d->lane_part - (quad ? PART_B0 : PART_H0));
  uint32_t mask = 0, last = 8;
  for (uint32_t i = 4; i-- > 0;) {
    uint32_t digit = d->selectors >> (4 * i) & 15;
    if (digit == 0 && i > 0) continue; /* not written: the digits must fall */
    if (digit >= last || digit >= (quad ? 4u : 2u)) ptx_refuse(p, "a mask of other parts");
    last = digit;
    mask |= 1u << digit;
  }
  return mask;
}

/* vop2.dtype.atype.btype{.sat|.add} d{.mask}, a{.asel}, b{.bsel}, c; vset2.atype.btype.cmp{.add} likewise */
static void decode_simd(struct parser *p) {
  static const char *const names[] = {"vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset"};
  static const char *const compares[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  struct word word = p->parts[0];
  bool quad = word.text[word.length - 1] == '4';
  word.length--;
  uint32_t op = 0, first = 1;
  while (!ptx_word_is(word, names[op])) op++;
  bool set = op == V_EQ;
  if (set) {
    while (op <= V_GE && !ptx_part(p, 3, compares[op - V_EQ])) op++;
    if (op > V_GE) ptx_refuse(p, "a comparison expected");
    first = 0; /* its result has no type */
  }
  enum ptx_type types[3] = {T_U32, T_NONE, T_NONE};
  for (uint32_t i = set ? 1 : 0; i < 3; i++) {
    uint32_t index = i + first;
    types[i] = index < p->part_count ? ptx_type_of(p->parts[index]) : T_NONE;
    if (types[i] != T_U32 && types[i] != T_S32) ptx_refuse(p, "this type");
  }
  ptx_need(p, 4, 4);
  struct operand d = p->operands[0], a = p->operands[1], b = p->operands[2];
  uint32_t m = op | (quad ? V_QUAD : 0u) | masked(p, &d, quad) << V_MASK;
  if (types[0] == T_S32) m |= V_SIGNED_D;
  if (types[1] == T_S32) m |= V_SIGNED_A;
  if (types[2] == T_S32) m |= V_SIGNED_B;
  if (ptx_has(p, "sat")) m |= V_SAT;
  if (ptx_part(p, p->part_count - 1, "add")) m |= V_SUM;
  if (a.negated || b.negated) ptx_refuse(p, "negated operands");
  struct operand plain_a = a, plain_b = b;
  plain_a.lane_part = plain_b.lane_part = d.lane_part = PART_NONE;
  uint32_t x = ptx_source(p, &plain_a, T_B32), y = ptx_source(p, &plain_b, T_B32);
  uint32_t va = selected(p, &a, quad, x, x, y), vb = selected(p, &b, quad, y, x, y);
  uint32_t c = ptx_source(p, &p->operands[3], T_B32), to = ptx_destination(p, &d, T_B32);
  ptx_emit_alu(p, OP_VIDEO_SIMD, T_B32, 4, to, va, vb, c, m);
}

const struct ptx_mnemonic ptx_video_mnemonics[] = {
    {"vadd", decode_video, "3 sat add min max"},
    {"vsub", decode_video, "3 sat add min max"},
    {"vabsdiff", decode_video, "3 sat add min max"},
    {"vmin", decode_video, "3 sat add min max"},
    {"vmax", decode_video, "3 sat add min max"},
    {"vshl", decode_video, "3 sat clamp wrap add min max"},
    {"vshr", decode_video, "3 sat clamp wrap add min max"},
    {"vset", decode_video, "2 eq ne lt le gt ge add min max"},
    {"vmad", decode_mad, "3 po sat shr7 shr15"},
    {"vadd2", decode_simd, "3 sat add"},
    {"vadd4", decode_simd, "3 sat add"},
    {"vsub2", decode_simd, "3 sat add"},
    {"vsub4", decode_simd, "3 sat add"},
    {"vavrg2", decode_simd, "3 sat add"},
    {"vavrg4", decode_simd, "3 sat add"},
    {"vabsdiff2", decode_simd, "3 sat add"},
    {"vabsdiff4", decode_simd, "3 sat add"},
    {"vmin2", decode_simd, "3 sat add"},
    {"vmin4", decode_simd, "3 sat add"},
    {"vmax2", decode_simd, "3 sat add"},
    {"vmax4", decode_simd, "3 sat add"},
    {"vset2", decode_simd, "2 eq ne lt le gt ge add"},
    {"vset4", decode_simd, "2 eq ne lt le gt ge add"},
    {NULL, NULL, NULL},
};
