#include <stdio.h>

#include "host/backend/software/ptx/decode/decode.h"
#include "host/backend/software/ptx/wgmma.h"

static uint32_t types(struct parser *p, enum ptx_type found[3]) {
  uint32_t count = 0;
  for (uint32_t i = 1; i < p->part_count; i++) {
    enum ptx_type type = ptx_part(p, i, "b1") ? T_B32 : ptx_type_of(p->parts[i]);
    if (type == T_NONE) continue;
    if (count == 3) ptx_refuse(p, "three types expected");
    found[count++] = type;
  }
  return count;
}

static bool eight_bit_float(enum ptx_type type) {
  return type == T_E4M3 || type == T_E5M2;
}
static bool eight_bit_integer(enum ptx_type type) {
  return type == T_S8 || type == T_U8;
}

static uint32_t depth_of(enum ptx_type d, enum ptx_type a, enum ptx_type b, bool bits) {
  bool floats = d == T_F16 || d == T_F32;
  if (bits) return d == T_S32 && a == T_B32 && b == T_B32 ? 256 : 0;
  if (a == T_F16 && b == T_F16 && floats) return 16;
  if (a == T_BF16 && b == T_BF16 && d == T_F32) return 16;
  if (a == T_TF32 && b == T_TF32 && d == T_F32) return 8;
  if (eight_bit_float(a) && eight_bit_float(b) && floats) return 32;
  if (eight_bit_integer(a) && eight_bit_integer(b) && d == T_S32) return 32;
  return 0;
}

static bool known_width(uint32_t n, bool integers) {
  if (n == 0 || n > WG_N_MOST || n % 8 != 0) return false;
  return !integers || n == 8 || n == 24 || n % 16 == 0;
}

static uint32_t immediate(struct parser *p, uint32_t at, int64_t one, int64_t other, uint32_t flag) {
  const struct operand *o = &p->operands[at];
  if (o->kind != O_INTEGER || (o->value != one && o->value != other))
    ptx_refuse(p, "a scale of 1 or -1 and a transposition of 0 or 1 expected");
  return o->value == other ? flag : 0;
}

static void product(struct parser *p) {
  uint32_t m = 0, n = 0, k = 0;
  enum ptx_type t[3];
  char shape[24], end;
  bool sparse = ptx_part(p, 2, "sp");
  uint32_t at = sparse ? 3 : 2; /* what follows */
  if (p->part_count < at + 6) ptx_refuse(p, NULL);
  snprintf(shape, sizeof shape, "%.*s", (int)p->parts[at + 2].length, p->parts[at + 2].text);
  if (!ptx_part(p, at, "sync") || !ptx_part(p, at + 1, "aligned") ||
      sscanf(shape, "m%un%uk%u%c", &m, &n, &k, &end) != 3)
    ptx_refuse(p, NULL);
  if (types(p, t) != 3) ptx_refuse(p, "three types expected");
  bool bits = ptx_has(p, "b1");
  if (bits && (sparse || !ptx_has(p, "and") || !ptx_has(p, "popc"))) ptx_refuse(p, NULL);
  if (m != 64 || k != depth_of(t[0], t[1], t[2], bits) * (sparse ? 2 : 1) || !known_width(n, t[0] == T_S32))
    ptx_refuse(p, "this shape and these types");
  const struct operand *o = p->operands;
  bool scales = t[0] != T_S32, transposes = t[1] == T_F16 || t[1] == T_BF16;
  uint32_t scale_at = sparse ? 5 : 3;
  ptx_need(p, scale_at + 1, 10);
  bool registers = o[1].kind == O_VECTOR;
  uint32_t want = scale_at + 1 + (scales ? 2 : 0) + (transposes ? (registers ? 1 : 2) : 0);
  ptx_need(p, want, want);
  uint32_t flags = (bits ? (uint32_t)WG_BITS : 0) | (registers ? (uint32_t)WG_A_REGISTERS : 0);
  if (ptx_has(p, "satfinite")) flags |= WG_SATURATE;
  if (scales)
    flags |= immediate(p, scale_at + 1, 1, -1, WG_NEGATE_A) | immediate(p, scale_at + 2, 1, -1, WG_NEGATE_B);
  if (transposes && !registers) flags |= immediate(p, scale_at + 3, 0, 1, WG_TRANSPOSE_A);
  if (transposes) flags |= immediate(p, want - 1, 0, 1, WG_TRANSPOSE_B);
  uint32_t of_d = t[0] == T_F16 ? n / 4 : n / 2, refs[WG_N_MOST / 2 + 6], count = 0;
  if (o[0].kind != O_VECTOR || o[0].count != of_d || (registers && o[1].count != 4))
    ptx_refuse(p, "another number of registers");
  for (uint32_t i = 0; i < of_d; i++) {
    refs[count] = ptx_destination(p, &p->elements[o[0].first + i], T_B32) | PTX_DEFINED;
    /* d is read as well, so it cannot be the low half of a wider register */
    if (p->later_count > 0 || p->elements[o[0].first + i].kind != O_REGISTER)
      ptx_refuse(p, "registers of 32 bits expected");
    count++;
  }
  if (registers) {
    for (uint32_t i = 0; i < 4; i++) refs[count++] = ptx_source(p, &p->elements[o[1].first + i], T_B32);
  } else {
    refs[count++] = ptx_source(p, &o[1], T_B64);
  }
  if (sparse) {
    /* the first or the last two of four lanes have the metadata; with 8-bit elements all have */
    if (o[4].kind != O_INTEGER || o[4].value < 0 || o[4].value > (ptx_type_bytes(t[1]) == 1 ? 0 : 1))
      ptx_refuse(p, "another sparsity selector than there is");
    flags |= WG_SPARSE;
    refs[count++] = ptx_source(p, &o[3], T_B32);
  }
  refs[count++] = ptx_source(p, &o[2], T_B64);
  if (o[scale_at].negated) ptx_refuse(p, "a negated predicate");
  uint32_t scale = ptx_predicate(p, &o[scale_at]), x = p->x_count;
  for (uint32_t i = 0; i < count; i++) ptx_extra(p, refs[i]);
  struct ptx_instruction *in = ptx_emit(p, K_WGMMA);
  in->x = x;
  in->x_count = (uint16_t)count;
  in->a = scale;
  in->size = (uint8_t)of_d;
  in->target = n;
  in->type = sparse ? (uint8_t)o[4].value : 0;
  in->m = (uint32_t)t[1] | (uint32_t)t[2] << 8 | (uint32_t)t[0] << 16 | flags << 24;
  in->control = 1;
}

static void decode_wgmma(struct parser *p) {
  if (ptx_part(p, 1, "mma_async")) product(p);
  else if (ptx_part(p, 1, "wait_group")) ptx_emit(p, K_WGMMA_WAIT);
  else if (!ptx_part(p, 1, "fence") && !ptx_part(p, 1, "commit_group")) ptx_refuse(p, NULL);
}

const struct ptx_mnemonic ptx_wgmma_mnemonics[] = {
    {"wgmma", decode_wgmma,
     "3 m_n_k fence mma_async commit_group wait_group sp sync aligned and popc b1 satfinite"},
    {NULL, NULL, NULL}};
