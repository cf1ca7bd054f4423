#include <stdio.h>

#include "host/backend/software/ptx/decode/decode.h"
#include "host/backend/software/ptx/matrix.h"

static uint32_t append(struct parser *p, const struct operand *o, enum ptx_type type, bool defined) {
  const struct operand *first = o->kind == O_VECTOR ? &p->elements[o->first] : o;
  uint32_t count = o->kind == O_VECTOR ? o->count : 1;
  uint32_t refs[16];
  if (count > 16) ptx_refuse(p, "too many registers");
  for (uint32_t i = 0; i < count; i++) {
    refs[i] = defined ? ptx_destination(p, &first[i], type) : ptx_source(p, &first[i], type);
  }
  for (uint32_t i = 0; i < count; i++) ptx_extra(p, refs[i] | (defined ? PTX_DEFINED : 0));
  return count;
}

static bool shape(struct parser *p, uint32_t *m, uint32_t *n, uint32_t *k) {
  for (uint32_t i = 1; i < p->part_count; i++) {
    char text[16];
    char end;
    if (p->parts[i].length >= sizeof text || p->parts[i].text[0] != 'm') continue;
    snprintf(text, sizeof text, "%.*s", (int)p->parts[i].length, p->parts[i].text);
    if (sscanf(text, "m%un%uk%u%c", m, n, k, &end) == 3) return true;
  }
  return false;
}

/* Returns the type of the register that has elements of a type: elements of 16 bits and less are packed. */
static enum ptx_type holder(enum ptx_type type) {
  return type == T_F64 ? T_F64 : T_B32;
}

static uint32_t element_bits(enum ptx_type type, bool four) {
  return four ? 4 : ptx_type_bytes(type) * 8;
}

/*
 * Returns the number of registers of a fragment with this many elements in all, as the ISA distributes them
 * over 32 lanes.
 */
static uint32_t registers_of(uint32_t elements, uint32_t bits) {
  uint32_t of_register = bits >= 32 ? 1 : 32 / bits;
  return (elements / PTX_LANES + of_register - 1) / of_register;
}

/* Returns the control of a product. Only products of doubles have a rounding mode. */
static uint8_t product_control(struct parser *p, bool doubles) {
  if (!doubles && ptx_rounding(p) != 0) ptx_refuse(p, "a rounding mode for these types");
  return (uint8_t)ptx_control(p);
}

static void decode_mma(struct parser *p) {
  uint32_t m, n, k;
  if (!ptx_has(p, "sync") || !shape(p, &m, &n, &k)) ptx_refuse(p, NULL);
  bool sparse = ptx_has(p, "sp") || ptx_has(p, "sp::ordered_metadata");
  bool one = ptx_has(p, "b1"), either = ptx_has(p, "xor");
  if (one && ((!either && !ptx_has(p, "and")) || !ptx_has(p, "popc"))) ptx_refuse(p, NULL);
  enum ptx_type types[4];
  uint32_t count = 0;
  uint32_t fours_said = 0;
  for (uint32_t i = 1; i < p->part_count; i++) {
    bool s4 = ptx_part(p, i, "s4"), u4 = ptx_part(p, i, "u4");
    enum ptx_type type = s4 ? T_S8 : u4 ? T_U8 : ptx_part(p, i, "b1") ? T_B32 : ptx_type_of(p->parts[i]);
    if (type == T_NONE) continue;
    if (count == 4) ptx_refuse(p, "four types expected");
    fours_said += s4 || u4;
    types[count++] = type;
  }
  if (count != 4 || types[0] != types[3]) ptx_refuse(p, "four types expected");
  bool four = fours_said == 2;
  if (fours_said == 1) ptx_refuse(p, "these types");
  enum ptx_type a = types[1], b = types[2], c = types[3];
  bool halves =
      a == T_F16 && b == T_F16 && (c == T_F16 || c == T_F32) && m == 16 && n == 8 && (k == 8 || k == 16);
  bool volta = a == T_F16 && b == T_F16 && (c == T_F16 || c == T_F32) && m == 8 && n == 8 && k == 4;
  bool bfloats = a == T_BF16 && b == T_BF16 && c == T_F32 && m == 16 && n == 8 && (k == 8 || k == 16);
  bool tf32 = a == T_TF32 && b == T_TF32 && c == T_F32 && m == 16 && n == 8 && (k == 4 || k == 8);
  bool doubles = a == T_F64 && b == T_F64 && c == T_F64 && n == 8 &&
                 ((m == 8 && k == 4) || (m == 16 && (k == 4 || k == 8 || k == 16)));
  bool fp8 = (a == T_E4M3 || a == T_E5M2) && (b == T_E4M3 || b == T_E5M2) && (c == T_F32 || c == T_F16);
  bool ones = one && a == T_B32 && b == T_B32 && c == T_S32 && n == 8 &&
              ((m == 8 && k == 128) || (m == 16 && (k == 128 || k == 256)));
  bool a8 = a == T_S8 || a == T_U8, b8 = b == T_S8 || b == T_U8;
  bool eights =
      a8 && b8 && !four && c == T_S32 && n == 8 && ((m == 16 && (k == 16 || k == 32)) || (m == 8 && k == 16));
  bool fours =
      a8 && b8 && four && c == T_S32 && n == 8 && ((m == 16 && (k == 32 || k == 64)) || (m == 8 && k == 32));
  bool dense = halves || volta || bfloats || tf32 || doubles || eights || fours || ones ||
               (fp8 && m == 16 && n == 8 && (k == 16 || k == 32));
  bool half_empty =
      m == 16 && n == 8 &&
      ((a == T_F16 && b == T_F16 && (c == T_F16 || c == T_F32) && (k == 16 || k == 32)) ||
       (a == T_BF16 && b == T_BF16 && c == T_F32 && (k == 16 || k == 32)) ||
       (a == T_TF32 && b == T_TF32 && c == T_F32 && (k == 8 || k == 16)) || (fp8 && c == T_F32 && k == 64) ||
       (a8 && b8 && c == T_S32 && (k == (four ? 128u : 32u) || k == 64)));
  if (sparse ? !half_empty : !dense) ptx_refuse(p, "these types");
  ptx_need(p, sparse ? 6 : 4, sparse ? 6 : 4);
  uint32_t x = p->x_count;
  uint32_t have[4];
  have[0] = append(p, &p->operands[0], holder(c), true);
  have[1] = append(p, &p->operands[1], holder(a), false);
  have[2] = append(p, &p->operands[2], holder(b), false);
  have[3] = append(p, &p->operands[3], holder(c), false);
  uint32_t bits = one ? 1 : element_bits(a, four), of_c = registers_of(m * n, element_bits(c, false));
  uint32_t want_a = volta ? 2 : registers_of(sparse ? m * k / 2 : m * k, bits),
           want_b = volta ? 2 : registers_of(k * n, bits);
  if (volta) of_c = c == T_F16 ? 4 : 8;
  if (have[0] != of_c || have[1] != want_a || have[2] != want_b || have[3] != of_c) {
    ptx_refuse(p, "another number of registers");
  }
  /* Only m8n8k4 has a choice of layouts. */
  uint32_t flags = 0, layout = 0;
  for (uint32_t i = 1; i < p->part_count; i++) {
    bool row = ptx_part(p, i, "row"), column = ptx_part(p, i, "col");
    if (!row && !column) continue;
    if (layout == 0 && column) flags |= MX_A_COLUMNS;
    if (layout == 1 && row) flags |= MX_B_ROWS;
    layout++;
  }
  if (!volta && flags != 0) ptx_refuse(p, "this layout");
  if (four) flags |= MX_FOUR;
  if (one) flags |= MX_BITS;
  if (sparse) {
    /* which of four lanes (or of two pairs) has the metadata; 0 if all have it */
    const struct operand *selector = &p->operands[5];
    uint32_t registers = m * k / 2 * bits / 1024; /* of a */
    int64_t most = k == (a == T_TF32 ? 8u : 16u) ? 3 : registers == 4 && bits <= 8 ? 0 : 1;
    if (selector->kind != O_INTEGER || selector->value < 0 || selector->value > most)
      ptx_refuse(p, "another sparsity selector than there is");
    flags |= MX_SPARSE;
    ptx_extra(p, ptx_source(p, &p->operands[4], T_B32));
  }
  if (ptx_has(p, "satfinite")) flags |= MX_SATURATE;
  struct ptx_instruction *in = ptx_emit(p, K_MMA);
  in->x = x;
  in->x_count = (uint16_t)(p->x_count - x);
  in->target = m | n << 8 | k << 16;
  in->m = (uint32_t)a | (uint32_t)b << 8 | (uint32_t)c << 16 | flags << 24;
  in->size = (uint8_t)of_c;
  in->type = sparse ? (uint8_t)p->operands[5].value : either ? 1 : 0;
  in->control = product_control(p, doubles);
}

/* Emits a load or store of registers. The caller sets what else the kind needs. */
static struct ptx_instruction *emit_access(struct parser *p, enum ptx_kind kind, bool load,
                                           enum ptx_type registers, uint32_t stride) {
  bool shared = ptx_has(p, "shared") || ptx_has(p, "shared::cta");
  enum ptx_space space = shared ? S_SHARED : ptx_has(p, "global") ? S_GLOBAL : S_GENERIC;
  uint64_t offset;
  enum ptx_type width;
  uint32_t base = ptx_address(p, &p->operands[load ? 1 : 0], space, &offset, &width), x = p->x_count;
  uint32_t count = append(p, &p->operands[load ? 0 : 1], registers, load);
  struct ptx_instruction *in = ptx_emit(p, kind);
  in->u.offset = offset;
  in->a = base;
  in->b = stride;
  in->x = x;
  in->x_count = (uint16_t)count;
  in->m = width == T_B32 ? 1u : 0;
  in->space = (uint8_t)space;
  return in;
}

static void decode_ldmatrix(struct parser *p) {
  bool load = ptx_part(p, 0, "ldmatrix");
  uint32_t count = ptx_has(p, "x1") ? 1 : ptx_has(p, "x2") ? 2 : ptx_has(p, "x4") ? 4 : 0;
  if (count == 0 || !ptx_has(p, "m8n8") || !ptx_has(p, "b16")) ptx_refuse(p, NULL);
  ptx_need(p, 2, 2);
  struct ptx_instruction *in = emit_access(p, load ? K_LDMATRIX : K_STMATRIX, load, T_B32, PTX_NONE);
  if (in->x_count != count) ptx_refuse(p, "another number of registers");
  if (ptx_has(p, "trans")) in->m |= MX_TRANSPOSED;
  in->type = T_B32;
}

static void decode_movmatrix(struct parser *p) {
  ptx_need(p, 2, 2);
  uint32_t a = ptx_source(p, &p->operands[1], T_B32), d = ptx_destination(p, &p->operands[0], T_B32);
  struct ptx_instruction *in = ptx_emit(p, K_MOVMATRIX);
  in->a = a;
  in->d = d;
  in->size = 4;
}

static void wmma_memory(struct parser *p, bool load, uint32_t m, uint32_t n, uint32_t k) {
  enum ptx_type type = ptx_last_type(p);
  uint32_t which = ptx_part(p, 2, "a") ? 0 : ptx_part(p, 2, "b") ? 1 : 2;
  uint32_t rows = which == 1 ? k : m, columns = which == 0 ? k : n;
  ptx_need(p, 2, 3);
  bool by_rows = ptx_has(p, "row");
  uint32_t stride = p->operand_count > 2 ? ptx_source(p, &p->operands[2], T_U32)
                                         : ptx_constant(p, 4, by_rows ? columns : rows);
  struct ptx_instruction *in = emit_access(p, load ? K_WMMA_LOAD : K_WMMA_STORE, load, holder(type), stride);
  if (in->x_count < registers_of(rows * columns, element_bits(type, false)))
    ptx_refuse(p, "another number of registers");
  in->m |= (by_rows ? MX_BY_ROWS : 0) | (which == 1 ? MX_OF_B : 0);
  in->target = rows | columns << 8;
  in->type = (uint8_t)type;
}

/*
 * Returns the type of part i. 1-bit and 4-bit elements are read as the type that holds them, with *bits set.
 */
static enum ptx_type packed_type(struct parser *p, uint32_t i, uint32_t *bits) {
  bool s4 = ptx_part(p, i, "s4"), u4 = ptx_part(p, i, "u4"), one = ptx_part(p, i, "b1");
  if (s4 || u4 || one) *bits = one ? 1 : 4;
  return s4 ? T_S8 : u4 ? T_U8 : one ? T_B32 : ptx_type_of(p->parts[i]);
}

/* 4-bit and 1-bit elements: 8 rows of 16 bytes, whose distance the program counts in elements. */
static void load_packed(struct parser *p, uint32_t bits) {
  bool of_b = ptx_part(p, 2, "b");
  if (!ptx_part(p, 1, "load") || (!of_b && !ptx_part(p, 2, "a")) || ptx_has(p, of_b ? "row" : "col"))
    ptx_refuse(p, "this layout");
  ptx_need(p, 2, 3);
  uint32_t stride = ptx_constant(p, 4, 16);
  if (p->operand_count > 2) {
    uint32_t elements = ptx_source(p, &p->operands[2], T_U32);
    stride = ptx_emit_two(p, OP_SHR, T_U32, elements, ptx_constant(p, 4, bits == 4 ? 1 : 3));
  }
  struct ptx_instruction *in = emit_access(p, K_WMMA_LOAD, true, T_B32, stride);
  if (in->x_count != 1) ptx_refuse(p, "another number of registers");
  in->m |= of_b ? MX_OF_B : MX_BY_ROWS;
  in->target = of_b ? 16 | 8 << 8 : 8 | 16 << 8;
  in->type = T_U8;
}

/* wmma.mma.{xor|and}.popc.row.col.m8n8k128.s32.b1.b1.s32 and .m8n8k32.s32.{s4|u4}.{s4|u4}.s32 */
static void multiply_packed(struct parser *p, uint32_t k, uint32_t bits, enum ptx_type a, enum ptx_type b) {
  bool one = bits == 1, either = ptx_has(p, "xor");
  if (one && ((!either && !ptx_has(p, "and")) || !ptx_has(p, "popc"))) ptx_refuse(p, NULL);
  if (one && ptx_has(p, "satfinite")) ptx_refuse(p, "the modifier .satfinite");
  if (a != b || (a == T_B32) != one) ptx_refuse(p, "these types");
  ptx_need(p, 4, 4);
  uint32_t x = p->x_count;
  static const uint8_t want[] = {2, 1, 1, 2};
  for (uint32_t i = 0; i < 4; i++) {
    if (append(p, &p->operands[i], T_B32, i == 0) != want[i]) ptx_refuse(p, "another number of registers");
  }
  uint32_t flags = MX_WMMA | (one ? MX_BITS : MX_FOUR) | (either ? MX_EITHER : 0);
  if (ptx_has(p, "satfinite")) flags |= MX_SATURATE;
  struct ptx_instruction *in = ptx_emit(p, K_MMA);
  in->x = x;
  in->x_count = (uint16_t)(p->x_count - x);
  in->target = 8 | 8 << 8 | k << 16;
  in->m = (uint32_t)a | (uint32_t)b << 8 | (uint32_t)T_S32 << 16 | flags << 24;
  in->type = T_S32;
}

/* False: the shape is not one of 4-bit or 1-bit elements. Their sums are loaded and stored like others. */
static bool decode_packed(struct parser *p, uint32_t m, uint32_t n, uint32_t k) {
  if (m != 8 || n != 8 || (k != 32 && k != 128)) return false;
  enum ptx_type types[4];
  uint32_t count = 0, bits = 32;
  for (uint32_t i = 1; i < p->part_count; i++) {
    enum ptx_type type = packed_type(p, i, &bits);
    if (type == T_NONE) continue;
    if (count == 4) ptx_refuse(p, "too many types");
    types[count++] = type;
  }
  if (bits != (k == 32 ? 4u : 1u)) {
    if (bits != 32 || count != 1 || types[0] != T_S32 || ptx_part(p, 1, "mma")) ptx_refuse(p, "these types");
    wmma_memory(p, ptx_part(p, 1, "load"), m, n, k);
    return true;
  }
  if (ptx_part(p, 1, "mma") && count == 4 && types[0] == T_S32 && types[3] == T_S32)
    multiply_packed(p, k, bits, types[1], types[2]);
  else if (count == 1) load_packed(p, bits);
  else ptx_refuse(p, "these types");
  return true;
}

static void decode_wmma(struct parser *p) {
  uint32_t m, n, k;
  if (!shape(p, &m, &n, &k)) ptx_refuse(p, NULL);
  if ((ptx_has(p, "xor") || ptx_has(p, "and") || ptx_has(p, "popc")) &&
      !(ptx_part(p, 1, "mma") && ptx_has(p, "b1")))
    ptx_refuse(p, NULL);
  if (decode_packed(p, m, n, k)) return;
  bool known = (m == 16 && n == 16 && (k == 16 || k == 8)) || (m == 8 && n == 32 && k == 16) ||
               (m == 32 && n == 8 && k == 16) || (m == 8 && n == 8 && k == 4);
  if (!known) ptx_refuse(p, NULL);
  if (ptx_part(p, 1, "load") || ptx_part(p, 1, "store")) {
    enum ptx_type type = ptx_last_type(p);
    if (type != T_F16 && type != T_F32 && type != T_BF16 && type != T_TF32 && type != T_S8 && type != T_U8 &&
        type != T_S32 && type != T_F64) {
      ptx_refuse(p, "this type");
    }
    if (ptx_rounding(p) != 0) ptx_refuse(p, "a rounding mode");
    wmma_memory(p, ptx_part(p, 1, "load"), m, n, k);
    return;
  }
  /* wmma.mma: .f32.f32 for halves (of d and c), or d.a.b.c */
  enum ptx_type types[4], a = T_F16, b = T_F16, c, d;
  uint32_t count = 0;
  for (uint32_t i = 1; i < p->part_count; i++) {
    enum ptx_type type = ptx_type_of(p->parts[i]);
    if (type == T_NONE) continue;
    if (count == 4) ptx_refuse(p, "too many types");
    types[count++] = type;
  }
  if (count == 2) {
    d = types[0];
    c = types[1];
  } else if (count == 4) {
    d = types[0];
    a = types[1];
    b = types[2];
    c = types[3];
  } else {
    ptx_refuse(p, "two or four types expected");
  }
  bool floats =
      (a == T_F16 && b == T_F16 && (c == T_F16 || c == T_F32) && (d == T_F16 || d == T_F32)) ||
      (((a == T_BF16 && b == T_BF16) || (a == T_TF32 && b == T_TF32)) && c == T_F32 && d == T_F32) ||
      (a == T_F64 && b == T_F64 && c == T_F64 && d == T_F64);
  bool eights = (a == T_S8 || a == T_U8) && a == b && c == T_S32 && d == T_S32;
  if ((!floats && !eights) || !ptx_part(p, 1, "mma")) ptx_refuse(p, "these types");
  ptx_need(p, 4, 4);
  uint32_t x = p->x_count, have[4];
  have[0] = append(p, &p->operands[0], holder(d), true);
  have[1] = append(p, &p->operands[1], holder(a), false);
  have[2] = append(p, &p->operands[2], holder(b), false);
  have[3] = append(p, &p->operands[3], holder(c), false);
  if (have[0] < registers_of(m * n, element_bits(d, false)) ||
      have[1] < registers_of(m * k, element_bits(a, false)) ||
      have[2] < registers_of(k * n, element_bits(b, false)) ||
      have[3] < registers_of(m * n, element_bits(c, false))) {
    ptx_refuse(p, "another number of registers");
  }
  uint32_t flags = MX_WMMA | (ptx_has(p, "satfinite") ? (uint32_t)MX_SATURATE : 0);
  struct ptx_instruction *in = ptx_emit(p, K_MMA);
  in->x = x;
  in->x_count = (uint16_t)(p->x_count - x);
  in->target = m | n << 8 | k << 16;
  in->m = (uint32_t)a | (uint32_t)b << 8 | (uint32_t)c << 16 | flags << 24;
  in->u.offset = have[0] | have[1] << 8 | have[2] << 16;
  in->type = (uint8_t)d;
  in->control = product_control(p, a == T_F64);
}

const struct ptx_mnemonic ptx_matrix_mnemonics[] = {
    {"mma", decode_mma,
     "4 m_n_k sync aligned row col sp sp::ordered_metadata satfinite rn rz rm rp xor and popc s4 u4 b1"},
    {"ldmatrix", decode_ldmatrix, "1 m_n_k sync aligned x1 x2 x4 trans shared shared::cta"},
    {"stmatrix", decode_ldmatrix, "1 m_n_k sync aligned x1 x2 x4 trans shared shared::cta"},
    {"movmatrix", decode_movmatrix, "1 m_n_k sync aligned trans"},
    {"wmma", decode_wmma,
     "4 m_n_k load store mma a b c d sync aligned row col rn rz rm rp satfinite global shared shared::cta s4 "
     "u4 b1 xor "
     "and popc"},
    {NULL, NULL, NULL},
};
