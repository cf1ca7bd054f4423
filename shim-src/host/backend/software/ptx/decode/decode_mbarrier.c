/*
 * mbarrier, in our own format (atomic.c), so that all operations but arriving use existing atomics and
 * arithmetic. A copy that counts its bytes (decode_bulk.c) completes them at once.
 */
#include "host/backend/software/ptx/decode/decode.h"
#include "host/backend/software/ptx/modes.h"

#define COUNT_AND_MISSING 0x100001 /* the same number twice */

static enum ptx_space space_of(struct parser *p) {
  bool shared = ptx_has(p, "shared") || ptx_has(p, "shared::cta") || ptx_has(p, "shared::cluster");
  return shared ? S_SHARED : S_GENERIC;
}

/* Emits an atomic. d, if there is one, becomes the value before the operation with b. */
static void atomic(struct parser *p, const struct operand *address, enum ptx_atomic op, uint32_t b,
                   uint32_t c, uint32_t d) {
  uint64_t offset;
  enum ptx_type width;
  enum ptx_space space = space_of(p);
  uint32_t base = ptx_address(p, address, space, &offset, &width);
  struct ptx_instruction *in = ptx_emit(p, K_ATOM);
  in->u.offset = offset;
  in->a = base;
  in->b = b;
  in->c = c;
  in->d = d;
  in->size = 8;
  in->space = (uint8_t)space;
  in->type = T_B64;
  in->m = (width == T_B32 ? ML_NARROW : 0) | (uint32_t)op << 4;
}

static uint32_t widened(struct parser *p, const struct operand *o) {
  uint32_t narrow = ptx_source(p, o, T_U32), d = ptx_temporary(p, 8);
  ptx_emit_convert(p, T_U64, T_U32, d, narrow, 0);
  return d;
}

/* {state,} [address] {, count}, with expect_tx {state,} [address], bytes */
static void arrive(struct parser *p, bool drop) {
  bool expects = ptx_has(p, "expect_tx");
  ptx_need(p, expects ? 2 : 1, 3);
  const struct operand *o = p->operands;
  uint32_t at = o[0].kind == O_ADDRESS ? 0 : 1, bytes = PTX_NONE, count = PTX_NONE;
  bool more = at + 1 < p->operand_count;
  if (expects) bytes = widened(p, &o[at + 1]);
  count = more && !expects ? widened(p, &o[at + 1]) : ptx_constant(p, 8, 1);
  if (drop) count = ptx_emit_two(p, OP_MUL, T_U64, count, ptx_constant(p, 8, 0x100000001ull));
  uint32_t d = at == 1 ? ptx_destination(p, &o[0], T_B64) : PTX_NONE;
  atomic(p, &o[at], A_ARRIVE, count, bytes, d);
}

/* [address], bytes */
static void count_bytes(struct parser *p, bool expect) {
  ptx_need(p, 2, 2);
  const struct operand *o = p->operands;
  uint32_t bytes = widened(p, &o[1]), zero = ptx_constant(p, 8, 0);
  if (!expect) bytes = ptx_emit_two(p, OP_SUB, T_U64, zero, bytes);
  atomic(p, &o[0], A_ARRIVE, zero, bytes, PTX_NONE);
}

/* p, [address], state or parity {, time limit}: true if that phase is over */
static void wait(struct parser *p) {
  ptx_need(p, 3, 4);
  const struct operand *o = p->operands;
  uint32_t phase = ptx_has(p, "parity")
                       ? ptx_emit_two(p, OP_SHL, T_B64, widened(p, &o[2]), ptx_constant(p, 4, 63))
                       : ptx_source(p, &o[2], T_B64);
  uint32_t now = ptx_temporary(p, 8);
  atomic(p, &o[1], A_OR, ptx_constant(p, 8, 0), PTX_NONE, now);
  uint32_t differs = ptx_emit_two(p, OP_XOR, T_B64, now, phase), zero = ptx_constant(p, 8, 0);
  uint32_t d = ptx_predicate_out(p, &o[0]);
  ptx_emit_compare(p, C_LT, T_S64, d, differs, zero);
  /*
   * A thread that must wait sleeps, so that others can arrive. A thread whose wait is over lets others see
   * that before it continues, because it may use the mbarrier's memory again.
   */
  uint32_t guard = p->guard;
  p->guard = d | 3u; /* unless d */
  ptx_emit(p, K_NANOSLEEP);
  p->guard = d | 1u; /* if d */
  ptx_emit(p, K_PASS);
  p->guard = guard;
}

void ptx_mbarrier_arrive(struct parser *p) {
  arrive(p, false);
}

void ptx_decode_mbarrier(struct parser *p) {
  const struct operand *o = p->operands;
  if (ptx_part(p, 1, "init")) {
    ptx_need(p, 2, 2);
    uint32_t both = ptx_emit_two(p, OP_MUL, T_U64, widened(p, &o[1]), ptx_constant(p, 8, COUNT_AND_MISSING));
    atomic(p, &o[0], A_EXCH, both, PTX_NONE, PTX_NONE);
  } else if (ptx_part(p, 1, "inval")) {
    /* Writes nothing: a thread that has not yet looked still finds the last phase over. */
    ptx_need(p, 1, 1);
    atomic(p, &o[0], A_OR, ptx_constant(p, 8, 0), PTX_NONE, PTX_NONE);
  } else if (ptx_part(p, 1, "arrive") || ptx_part(p, 1, "arrive_drop")) {
    arrive(p, ptx_part(p, 1, "arrive_drop"));
  } else if (ptx_part(p, 1, "test_wait") || ptx_part(p, 1, "try_wait")) {
    wait(p);
  } else if (ptx_part(p, 1, "pending_count")) {
    ptx_need(p, 2, 2);
    uint32_t state = ptx_source(p, &o[1], T_B64);
    uint32_t missing = ptx_emit_two(p, OP_AND, T_B64, state, ptx_constant(p, 8, 0xfffff));
    ptx_emit_convert(p, T_U32, T_U64, ptx_destination(p, &o[0], T_U32), missing, 0);
  } else if (ptx_part(p, 1, "expect_tx") || ptx_part(p, 1, "complete_tx")) {
    count_bytes(p, ptx_part(p, 1, "expect_tx"));
  } else {
    ptx_refuse(p, NULL);
  }
}
