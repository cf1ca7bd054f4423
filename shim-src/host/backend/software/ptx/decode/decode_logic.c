#include "host/backend/software/ptx/decode/decode.h"

void ptx_emit_predicates(struct parser *p, uint32_t table, uint32_t sources) {
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
  if (type == T_PRED) ptx_emit_predicates(p, table, op == OP_NOT ? 1 : 2);
  else ptx_same(p, op, type, op == OP_NOT || op == OP_CNOT ? 1 : 2, 0);
}
PTX_DECODER(and, logic(p, OP_AND, TABLE_AND))
PTX_DECODER(or, logic(p, OP_OR, TABLE_OR))
PTX_DECODER(xor, logic(p, OP_XOR, TABLE_XOR))
PTX_DECODER(not, logic(p, OP_NOT, TABLE_NOT))
PTX_DECODER(cnot, logic(p, OP_CNOT, 0))

static void shift(struct parser *p, enum ptx_operation op) {
  enum ptx_type type = ptx_last_type(p);
  ptx_need(p, 3, 3);
  uint32_t a = ptx_source(p, &p->operands[1], type), b = ptx_source(p, &p->operands[2], T_U32);
  uint32_t d = ptx_destination(p, &p->operands[0], type);
  ptx_emit_alu(p, op, type, ptx_held(type), d, a, b, PTX_NONE, 0);
}
PTX_DECODER(shl, shift(p, OP_SHL))
PTX_DECODER(shr, shift(p, OP_SHR))
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
PTX_DECODER(popc, bits_to_word(p, OP_POPC))
PTX_DECODER(clz, bits_to_word(p, OP_CLZ))
PTX_DECODER(bfind, bits_to_word(p, OP_BFIND))
PTX_DECODER(brev, ptx_same(p, OP_BREV, ptx_last_type(p), 1, 0))
static void decode_bfe(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  ptx_need(p, 4, 4);
  uint32_t a = ptx_source(p, &p->operands[1], type), b = ptx_source(p, &p->operands[2], T_U32);
  uint32_t c = ptx_source(p, &p->operands[3], T_U32), d = ptx_destination(p, &p->operands[0], type);
  ptx_emit_alu(p, OP_BFE, type, ptx_held(type), d, a, b, c, 0);
}
static void decode_bfi(struct parser *p) {
  enum ptx_type type = ptx_last_type(p);
  ptx_need(p, 5, 5);
  uint32_t a = ptx_source(p, &p->operands[1], type), b = ptx_source(p, &p->operands[2], type);
  uint32_t position = ptx_source(p, &p->operands[3], T_U32), length = ptx_source(p, &p->operands[4], T_U32);
  uint32_t both = ptx_temporary(p, 4);
  ptx_emit_alu(p, OP_PACK, T_B16, 4, both, position, length, PTX_NONE, 0);
  uint32_t d = ptx_destination(p, &p->operands[0], type);
  ptx_emit_alu(p, OP_BFI, type, ptx_held(type), d, a, b, both, 0);
}
static void decode_prmt(struct parser *p) {
  static const char *const modes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
  uint32_t m = 0;
  for (uint32_t i = 0; i < 6; i++) {
    if (ptx_has(p, modes[i])) m = i + 1;
  }
  ptx_same(p, OP_PRMT, T_B32, 3, m);
}
PTX_DECODER(fns, ptx_same(p, OP_FNS, T_B32, 3, 0))
PTX_DECODER(szext, ptx_same(p, OP_SZEXT, ptx_last_type(p), 2, ptx_type_mode(p)))
PTX_DECODER(bmsk, ptx_same(p, OP_BMSK, T_B32, 2, ptx_type_mode(p)))

const struct ptx_mnemonic ptx_logic_mnemonics[] = {
    {"and", decode_and, "1"},
    {"shl", decode_shl, "1"},
    {"shr", decode_shr, "1"},
    {"or", decode_or, "1"},
    {"xor", decode_xor, "1"},
    {"not", decode_not, "1"},
    {"prmt", decode_prmt, "1 f4e b4e rc8 ecl ecr rc16"},
    {"popc", decode_popc, "1"},
    {"clz", decode_clz, "1"},
    {"bfind", decode_bfind, "1 shiftamt"},
    {"brev", decode_brev, "1"},
    {"bfe", decode_bfe, "1"},
    {"bfi", decode_bfi, "1"},
    {"shf", decode_shf, "1 l r wrap clamp"},
    {"cnot", decode_cnot, "1"},
    {"fns", decode_fns, "1"},
    {"szext", decode_szext, "1 wrap clamp"},
    {"bmsk", decode_bmsk, "1 wrap clamp"},
    {NULL, NULL, NULL},
};
