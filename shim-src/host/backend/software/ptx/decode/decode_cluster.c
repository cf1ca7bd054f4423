#include "host/backend/software/ptx/decode/decode.h"
#include "host/backend/software/ptx/special.h"

uint32_t ptx_sum(struct parser *p, enum ptx_type type, uint32_t a, uint64_t value) {
  if (value == 0) return a;
  return ptx_emit_two(p, OP_ADD, type, a, ptx_constant(p, ptx_type_bytes(type), value));
}

bool ptx_says_shared(struct parser *p, uint32_t part) {
  return ptx_part(p, part, "shared") || ptx_part(p, part, "shared::cta") ||
         ptx_part(p, part, "shared::cluster");
}

/* Computes the same place in the shared memory of another block; program.h describes the window. */
static void decode_mapa(struct parser *p) {
  ptx_need(p, 3, 3);
  bool wide = ptx_last_type(p) == T_U64;
  enum ptx_type type = wide ? T_U64 : T_U32, bits = wide ? T_B64 : T_B32;
  uint32_t bytes = wide ? 8 : 4;
  const struct operand *o = p->operands;
  uint32_t a = ptx_source(p, &o[1], type), rank = ptx_source(p, &o[2], T_U32);
  if (wide) {
    uint32_t d = ptx_temporary(p, 8);
    ptx_emit_convert(p, T_U64, T_U32, d, rank, 0);
    rank = d;
  }
  /* A variable of this block that is named as a generic address. */
  bool named = o[1].kind == O_SYMBOL && !ptx_says_shared(p, 1);
  if (named && wide) a = ptx_sum(p, T_U64, a, PTX_SHARED_WINDOW);
  uint32_t place = ptx_emit_two(p, OP_AND, bits, a, ptx_constant(p, bytes, ~PTX_RANK_MASK));
  uint32_t block =
      ptx_emit_two(p, OP_SHL, bits, ptx_sum(p, type, rank, 1), ptx_constant(p, 4, PTX_RANK_SHIFT));
  uint32_t d = ptx_destination(p, &o[0], type);
  ptx_emit_alu(p, OP_OR, bits, bytes, d, place, block, PTX_NONE, 0);
}

static void decode_getctarank(struct parser *p) {
  ptx_need(p, 2, 2);
  enum ptx_type type = ptx_last_type(p) == T_U64 ? T_U64 : T_U32;
  uint32_t a = ptx_source(p, &p->operands[1], type), bits = a;
  if (type == T_U64) {
    bits = ptx_temporary(p, 4);
    ptx_emit_convert(p, T_U32, T_U64, bits, a, 0);
  }
  uint32_t rank = ptx_emit_two(p, OP_SHR, T_U32, bits, ptx_constant(p, 4, PTX_RANK_SHIFT));
  uint32_t own = ptx_temporary(p, 0),
           mine = ptx_source(p, &(struct operand){.kind = O_SPECIAL, .number = SR_CLUSTER_CTARANK}, T_U32);
  ptx_emit_compare(p, C_EQ, T_U32, own, rank, ptx_constant(p, 4, 0));
  uint32_t other = ptx_sum(p, T_U32, rank, UINT32_MAX);
  uint32_t d = ptx_destination(p, &p->operands[0], T_U32);
  ptx_emit_alu(p, OP_SELP, T_U32, 4, d, mine, other, own, 0);
}

const struct ptx_mnemonic ptx_cluster_mnemonics[] = {
    {"mapa", decode_mapa, "1 shared shared::cta shared::cluster"},
    {"getctarank", decode_getctarank, "1 shared shared::cta shared::cluster"},
    {NULL, NULL, NULL}};
