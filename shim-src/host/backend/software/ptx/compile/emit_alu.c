/* Arithmetic as LLVM's vectors. What is not here is done by the interpreter's own functions. */
#include <string.h>

#include "host/backend/software/ptx/alu/alu.h"
#include "host/backend/software/ptx/compile/emit.h"

bool ptx_emit_identify(const struct ptx_instruction *in, struct ptx_emit_operation *o) {
  const struct ptx_alu *alu = ptx_alu_best();
  for (uint32_t op = 1; op < OP_OPERATIONS; op++) {
    for (enum ptx_type type = 0; type < T_TYPES; type++) {
      if (alu->operation[op][type] != in->u.lanes) continue;
      *o = (struct ptx_emit_operation){.op = op, .type = type};
      return true;
    }
  }
  for (enum ptx_type to = 0; to < T_TYPES; to++) {
    for (enum ptx_type from = 0; from < T_TYPES; from++) {
      if (alu->convert[to][from] != in->u.lanes) continue;
      *o = (struct ptx_emit_operation){.op = OP_NONE, .type = to, .from = from};
      return true;
    }
  }
  return false;
}

static uint32_t two(struct ptx_emit *e, const char *op, uint32_t bits, uint32_t x, uint32_t y) {
  return ptx_emit_value(e, "%s <32 x i%u> %%v%u, %%v%u", op, bits, x, y);
}
static uint32_t compare(struct ptx_emit *e, const char *how, uint32_t bits, uint32_t x, uint32_t y) {
  return ptx_emit_value(e, "icmp %s <32 x i%u> %%v%u, %%v%u", how, bits, x, y);
}
static uint32_t choose(struct ptx_emit *e, uint32_t bits, uint32_t yes, uint32_t x, uint32_t y) {
  return ptx_emit_select(e, bits, yes, x, y);
}
static uint32_t cast(struct ptx_emit *e, const char *how, uint32_t from, uint32_t x, uint32_t to) {
  return ptx_emit_value(e, "%s <32 x i%u> %%v%u to <32 x i%u>", how, from, x, to);
}
static const char *float_of(uint32_t bits) {
  return bits == 32 ? "float" : "double";
}
/*
 * An operand of float arithmetic. If the processor rounds or flushes in another way than LLVM does, LLVM must
 * not know anything of the value, however it was computed: it would compute with that.
 */
static uint32_t to_float(struct ptx_emit *e, uint32_t bits, uint32_t x) {
  uint32_t raw = e->floats[x % PTX_FLOATS].bits == x
                     ? e->floats[x % PTX_FLOATS].raw
                     : ptx_emit_value(e, "bitcast <32 x i%u> %%v%u to <32 x %s>", bits, x, float_of(bits));
  return e->opaque ? ptx_emit_unknown_float(e, bits, raw) : raw;
}
/*
 * A float result as bits; a NaN has those of a GPU. Arithmetic takes the raw result, because two more
 * instructions between the additions of a sum take twice as long as the additions.
 */
static uint32_t from_float(struct ptx_emit *e, uint32_t x) {
  uint32_t r = ptx_emit_value(e, "bitcast <32 x float> %%v%u to <32 x i32>", x);
  uint32_t nan = ptx_emit_value(e, "fcmp uno <32 x float> %%v%u, %%v%u", x, x);
  r = choose(e, 32, nan, ptx_emit_splat(e, 32, 0x7fffffff), r);
  e->floats[r % PTX_FLOATS].bits = r;
  e->floats[r % PTX_FLOATS].raw = x;
  return r;
}
static uint32_t float_two(struct ptx_emit *e, const char *op, uint32_t x, uint32_t y) {
  uint32_t fx = to_float(e, 32, x), fy = to_float(e, 32, y);
  return from_float(e, ptx_emit_value(e, "%s <32 x float> %%v%u, %%v%u", op, fx, fy));
}

/* Bit operations flush subnormals explicitly. */
static uint32_t flushed(struct ptx_emit *e, uint32_t x, uint32_t m) {
  if ((m & M_FTZ) == 0) return x;
  uint32_t exponent = two(e, "and", 32, x, ptx_emit_splat(e, 32, 0x7f800000));
  uint32_t zero = compare(e, "eq", 32, exponent, ptx_emit_splat(e, 32, 0));
  return choose(e, 32, zero, two(e, "and", 32, x, ptx_emit_splat(e, 32, 0x80000000)), x);
}
static uint32_t is_nan32(struct ptx_emit *e, uint32_t x) {
  uint32_t rest = two(e, "and", 32, x, ptx_emit_splat(e, 32, 0x7fffffff));
  return compare(e, "ugt", 32, rest, ptx_emit_splat(e, 32, 0x7f800000));
}
static uint32_t key32(struct ptx_emit *e, uint32_t x) {
  uint32_t sign = two(e, "ashr", 32, x, ptx_emit_splat(e, 32, 31));
  return two(e, "xor", 32, x, two(e, "lshr", 32, sign, ptx_emit_splat(e, 32, 1)));
}
static uint32_t extreme_f32(struct ptx_emit *e, uint32_t x, uint32_t y, bool least, uint32_t m) {
  x = flushed(e, x, m);
  y = flushed(e, y, m);
  uint32_t nx = is_nan32(e, x), ny = is_nan32(e, y);
  uint32_t first = compare(e, least ? "slt" : "sgt", 32, key32(e, x), key32(e, y));
  uint32_t r = choose(e, 32, nx, y, choose(e, 32, ny, x, choose(e, 32, first, x, y)));
  uint32_t none = ptx_emit_value(e, "%s <32 x i1> %%v%u, %%v%u", (m & M_NAN) != 0 ? "or" : "and", nx, ny);
  return choose(e, 32, none, ptx_emit_splat(e, 32, 0x7fffffff), r);
}

/* Amounts from the width on count as the width. */
static uint32_t shift(struct ptx_emit *e, const char *op, uint32_t bits, uint32_t x, uint32_t amount) {
  uint32_t n = bits == 32   ? amount
               : bits == 64 ? cast(e, "zext", 32, amount, 64)
                            : cast(e, "trunc", 32, amount, 16);
  uint32_t far = compare(e, "ugt", 32, amount, ptx_emit_splat(e, 32, bits - 1));
  bool arithmetic = op[0] == 'a';
  n = choose(e, bits, far, ptx_emit_splat(e, bits, arithmetic ? bits - 1 : 0), n);
  uint32_t r = two(e, op, bits, x, n);
  return arithmetic ? r : choose(e, bits, far, ptx_emit_splat(e, bits, 0), r);
}

static uint32_t lop3(struct ptx_emit *e, uint32_t x, uint32_t y, uint32_t z, uint32_t m) {
  uint32_t r = ptx_emit_splat(e, 32, 0), ones = ptx_emit_splat(e, 32, 0xffffffff);
  uint32_t not [3] = {two(e, "xor", 32, x, ones), two(e, "xor", 32, y, ones), two(e, "xor", 32, z, ones)};
  switch (m & 0xff) { /* those that compilers write most */
    case 0x96:
      return two(e, "xor", 32, two(e, "xor", 32, x, y), z);
    case 0xca:
      return two(e, "or", 32, two(e, "and", 32, x, y), two(e, "and", 32, not [0], z));
    case 0xe8:
      return two(e, "or", 32, two(e, "and", 32, x, y), two(e, "and", 32, two(e, "or", 32, x, y), z));
    case 0xfe:
      return two(e, "or", 32, two(e, "or", 32, x, y), z);
    case 0x80:
      return two(e, "and", 32, two(e, "and", 32, x, y), z);
    default:
      break;
  }
  for (uint32_t k = 0; k < 8; k++) {
    if ((m >> k & 1) == 0) continue;
    uint32_t term = two(e, "and", 32, (k & 4) != 0 ? x : not [0], (k & 2) != 0 ? y : not [1]);
    r = two(e, "or", 32, r, two(e, "and", 32, term, (k & 1) != 0 ? z : not [2]));
  }
  return r;
}

/* Returns the upper half of a value of 2 * bits. */
static uint32_t upper_half(struct ptx_emit *e, uint32_t bits, uint32_t x) {
  return cast(e, "trunc", bits * 2, two(e, "lshr", bits * 2, x, ptx_emit_splat(e, bits * 2, bits)), bits);
}
static uint32_t low_bits(struct ptx_emit *e, uint32_t x, uint64_t bits) {
  return two(e, "and", 32, x, ptx_emit_splat(e, 32, bits));
}
/* So many of the lowest bits are set. */
static uint32_t ones(struct ptx_emit *e, uint32_t length) {
  uint32_t all = ptx_emit_splat(e, 32, ~0u);
  return two(e, "xor", 32, shift(e, "shl", 32, all, length), all);
}

static uint32_t bit_field(struct ptx_emit *e, uint32_t x, uint32_t position, uint32_t length) {
  uint32_t value = shift(e, "lshr", 32, x, low_bits(e, position, 0xff));
  return two(e, "and", 32, value, ones(e, low_bits(e, length, 0xff)));
}
/* c: the position, and above it the length. */
static uint32_t insert_field(struct ptx_emit *e, uint32_t x, uint32_t to, uint32_t c) {
  uint32_t position = low_bits(e, c, 0xff), length = two(e, "lshr", 32, c, ptx_emit_splat(e, 32, 8));
  uint32_t mask = shift(e, "shl", 32, ones(e, length), position);
  uint32_t apart = two(e, "xor", 32, to, shift(e, "shl", 32, x, position));
  return two(e, "xor", 32, to, two(e, "and", 32, apart, mask));
}

/*
 * Variable amounts are hidden from LLVM. If LLVM 19 proves only late that an amount is 0, as in
 * fshl(x, y, fshl(0, 1, n)), it emits a shift by 32, whose result is undefined, with AVX2, and with
 * AVX-512 without VBMI2, as x86-64-v4 is. LLVM 14 does not.
 */
static uint32_t funnel(struct ptx_emit *e, const struct ptx_instruction *in, bool left) {
  uint32_t low = ptx_emit_read(e, in->a, 32), high = ptx_emit_read(e, in->b, 32), amount;
  uint32_t n = ptx_emit_read(e, in->c, 32);
  if ((in->m & M_WRAP) != 0) {
    if (!ptx_emit_constant(e, in->c, &amount)) n = ptx_emit_unknown(e, 32, n);
    else if (amount % 32 == 0) return left ? high : low;
    return ptx_emit_value(
        e, "call <32 x i32> @llvm.fsh%c.v32i32(<32 x i32> %%v%u, <32 x i32> %%v%u, <32 x i32> %%v%u)",
        left ? 'l' : 'r', high, low, n);
  }
  uint32_t most = ptx_emit_splat(e, 32, 32);
  n = choose(e, 32, compare(e, "ugt", 32, n, most), most, n);
  uint32_t wide = two(e, "shl", 64, cast(e, "zext", 32, high, 64), ptx_emit_splat(e, 64, 32));
  uint32_t both = two(e, "or", 64, wide, cast(e, "zext", 32, low, 64)), by = cast(e, "zext", 32, n, 64);
  if (!left) return cast(e, "trunc", 64, two(e, "lshr", 64, both, by), 32);
  return upper_half(e, 32, two(e, "shl", 64, both, by));
}

/*
 * Even bytes and odd bytes are words of 16 bits. For these, the processor multiplies and adds neighbours in
 * one instruction.
 */
static uint32_t dot4(struct ptx_emit *e, uint32_t x, uint32_t y, uint32_t sum, uint32_t m) {
  uint32_t eight = ptx_emit_value(e, "bitcast <8 x i32> %%v%u to <16 x i16>",
                                  ptx_emit_piece(e, 32, 32, ptx_emit_splat(e, 32, 0x00080008), sum, 0, 8));
  uint32_t part[4];
  for (uint32_t k = 0; k < 4; k++) {
    uint32_t words[2][2];
    for (uint32_t i = 0; i < 2; i++) {
      const char *down = (m & (i == 0 ? (uint32_t)M_SIGNED_A : (uint32_t)M_SIGNED_B)) != 0 ? "ashr" : "lshr";
      uint32_t all = i == 0 ? x : y, bytes = ptx_emit_piece(e, 32, 32, all, all, k * 8, 8);
      bytes = ptx_emit_value(e, "bitcast <8 x i32> %%v%u to <16 x i16>", bytes);
      uint32_t up = ptx_emit_value(e, "shl <16 x i16> %%v%u, %%v%u", bytes, eight);
      words[0][i] = ptx_emit_value(e, "%s <16 x i16> %%v%u, %%v%u", down, up, eight);
      words[1][i] = ptx_emit_value(e, "%s <16 x i16> %%v%u, %%v%u", down, bytes, eight);
    }
    uint32_t two_sums[2];
    for (uint32_t odd = 0; odd < 2; odd++)
      two_sums[odd] =
          ptx_emit_value(e, "call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %%v%u, <16 x i16> %%v%u)",
                         words[odd][0], words[odd][1]);
    part[k] = ptx_emit_value(e, "add <8 x i32> %%v%u, %%v%u", two_sums[0], two_sums[1]);
  }
  uint32_t low = ptx_emit_piece(e, 32, 8, part[0], part[1], 0, 16),
           high = ptx_emit_piece(e, 32, 8, part[2], part[3], 0, 16);
  return two(e, "add", 32, sum, ptx_emit_piece(e, 32, 16, low, high, 0, 32));
}

static uint32_t integer(struct ptx_emit *e, const struct ptx_instruction *in,
                        const struct ptx_emit_operation *o) {
  uint32_t bits = ptx_type_bytes(o->type) * 8;
  bool with_sign = ptx_is_signed(o->type);
#define A ptx_emit_read(e, in->a, bits)
#define B ptx_emit_read(e, in->b, bits)
#define C ptx_emit_read(e, in->c, bits)
  switch (o->op) {
    case OP_ADD:
      return two(e, "add", bits, A, B);
    case OP_SUB:
      return two(e, "sub", bits, A, B);
    case OP_MUL:
      return two(e, "mul", bits, A, B);
    case OP_MAD:
      return two(e, "add", bits, two(e, "mul", bits, A, B), C);
    case OP_MUL_HI:
    case OP_MUL_WIDE:
    case OP_MAD_WIDE: {
      if (o->op == OP_MUL_HI && bits != 32) return 0;
      const char *extend = with_sign ? "sext" : "zext";
      uint32_t x = cast(e, extend, bits, A, bits * 2), y = cast(e, extend, bits, B, bits * 2);
      uint32_t product = two(e, "mul", bits * 2, x, y);
      if (o->op == OP_MUL_HI) return upper_half(e, bits, product);
      if (o->op == OP_MUL_WIDE) return product;
      return two(e, "add", bits * 2, product, ptx_emit_read(e, in->c, bits * 2));
    }
    case OP_MIN:
    case OP_MAX: {
      uint32_t x = A, y = B;
      const char *how = o->op == OP_MIN ? (with_sign ? "slt" : "ult") : with_sign ? "sgt" : "ugt";
      return choose(e, bits, compare(e, how, bits, x, y), x, y);
    }
    case OP_ABS: {
      uint32_t x = A, zero = ptx_emit_splat(e, bits, 0);
      return choose(e, bits, compare(e, "slt", bits, x, zero), two(e, "sub", bits, zero, x), x);
    }
    case OP_NEG:
      return two(e, "sub", bits, ptx_emit_splat(e, bits, 0), A);
    case OP_SHR:
      return shift(e, with_sign ? "ashr" : "lshr", bits, A, ptx_emit_read(e, in->b, 32));
    default:
      return 0;
  }
}

static uint32_t plain_bits(struct ptx_emit *e, const struct ptx_instruction *in,
                           const struct ptx_emit_operation *o) {
  uint32_t bits = in->size * 8u;
  switch (o->op) {
    case OP_MOV:
      return A;
    case OP_AND:
      return two(e, "and", bits, A, B);
    case OP_OR:
      return two(e, "or", bits, A, B);
    case OP_XOR:
      return two(e, "xor", bits, A, B);
    case OP_NOT:
      return two(e, "xor", bits, A, ptx_emit_splat(e, bits, ~0ull));
    case OP_CNOT: {
      uint32_t zero = compare(e, "eq", bits, A, ptx_emit_splat(e, bits, 0));
      return ptx_emit_value(e, "zext <32 x i1> %%v%u to <32 x i%u>", zero, bits);
    }
    case OP_SHL:
      return shift(e, "shl", bits, A, ptx_emit_read(e, in->b, 32));
    case OP_SELP: {
      uint32_t lanes = ptx_emit_lanes(e, ptx_emit_predicate(e, in->c));
      bool constant = (in->a & in->b & 3) == REF_CONSTANT;
      return constant ? choose(e, bits, lanes, A, B)
                      : choose(e, bits, lanes, ptx_emit_hidden(e, bits, A), ptx_emit_hidden(e, bits, B));
    }
    case OP_LOP3:
      return lop3(e, A, B, C, in->m);
    case OP_SHF_L:
    case OP_SHF_R:
      return funnel(e, in, o->op == OP_SHF_L);
    case OP_BMSK: {
      uint32_t position = A, length = B, wraps = (in->m & M_WRAP) != 0;
      if (wraps) position = low_bits(e, position, 31), length = low_bits(e, length, 31);
      return shift(e, "shl", 32, ones(e, length), position);
    }
    case OP_BFE:
      return o->type == T_U32 ? bit_field(e, A, B, C) : 0;
    case OP_BFI:
      return o->type == T_B32 ? insert_field(e, A, B, C) : 0;
    case OP_POPC:
      if (o->type != T_B32) return 0;
      return ptx_emit_value(e, "call <32 x i32> @llvm.ctpop.v32i32(<32 x i32> %%v%u)", A);
    case OP_DP4A:
      return dot4(e, A, B, C, in->m);
    case OP_PACK: {
      if (o->type == T_B16) {
        uint32_t x = low_bits(e, A, 0xff), y = low_bits(e, B, 0xff);
        return two(e, "or", 32, x, two(e, "shl", 32, y, ptx_emit_splat(e, 32, 8)));
      }
      uint32_t half = bits / 2, x = ptx_emit_read(e, in->a, half), y = ptx_emit_read(e, in->b, half);
      uint32_t up = two(e, "shl", bits, cast(e, "zext", half, y, bits), ptx_emit_splat(e, bits, half));
      return two(e, "or", bits, cast(e, "zext", half, x, bits), up);
    }
    case OP_LOW:
      return cast(e, "trunc", bits * 2, ptx_emit_read(e, in->a, bits * 2), bits);
    case OP_HIGH:
      return upper_half(e, bits, ptx_emit_read(e, in->a, bits * 2));
    default:
      return 0;
  }
}

static uint32_t floating(struct ptx_emit *e, const struct ptx_instruction *in,
                         const struct ptx_emit_operation *o) {
  uint32_t bits = o->type == T_F32 ? 32 : 64;
  /* A NaN of 64 bits is that of an operand, and LLVM may exchange them or change their signs. */
  if (bits == 64 && o->op != OP_ABS && o->op != OP_NEG) return 0;
  switch (o->op) {
    case OP_ADD:
      return float_two(e, "fadd", A, B);
    case OP_SUB:
      return float_two(e, "fsub", A, B);
    case OP_MUL:
      return float_two(e, "fmul", A, B);
    case OP_DIV:
      return float_two(e, "fdiv", A, B);
    case OP_FMA: {
      uint32_t x = to_float(e, 32, A), y = to_float(e, 32, B), z = to_float(e, 32, C);
      return from_float(e, ptx_emit_value(e,
                                          "call <32 x float> @llvm.fma.v32f32(<32 x float> %%v%u, <32 x "
                                          "float> %%v%u, <32 x float> %%v%u)",
                                          x, y, z));
    }
    case OP_SQRT: {
      uint32_t x = to_float(e, 32, A);
      return from_float(e, ptx_emit_value(e, "call <32 x float> @llvm.sqrt.v32f32(<32 x float> %%v%u)", x));
    }
    case OP_ABS:
    case OP_NEG: {
      uint64_t sign = 1ull << (bits - 1);
      uint32_t x = A;
      if (bits == 32) x = flushed(e, x, in->m);
      uint32_t r = o->op == OP_ABS ? two(e, "and", bits, x, ptx_emit_splat(e, bits, sign - 1))
                                   : two(e, "xor", bits, x, ptx_emit_splat(e, bits, sign));
      return bits == 64 ? r : choose(e, 32, is_nan32(e, x), ptx_emit_splat(e, 32, 0x7fffffff), r);
    }
    case OP_MIN:
    case OP_MAX:
      if ((in->m & M_XORSIGN) != 0) return 0;
      return extreme_f32(e, A, B, o->op == OP_MIN, in->m);
    default:
      return 0;
  }
}
#undef A
#undef B
#undef C

/* Between floats and 16 bits, if that does not round, or to the nearest. */
static uint32_t halved(struct ptx_emit *e, const struct ptx_instruction *in,
                       const struct ptx_emit_operation *o) {
  if ((in->m & (M_SAT | M_RELU)) != 0) return 0;
  if (o->type == T_F32 && o->from == T_F16) {
    uint32_t x = ptx_emit_read(e, in->a, 16);
    return from_float(e, ptx_emit_value(e, "call <32 x float> @widen(<32 x i16> %%v%u)", x));
  }
  if (o->type == T_F32 && o->from == T_BF16) {
    uint32_t x = cast(e, "zext", 16, ptx_emit_read(e, in->a, 16), 32);
    x = flushed(e, two(e, "shl", 32, x, ptx_emit_splat(e, 32, 16)), in->m);
    return choose(e, 32, is_nan32(e, x), ptx_emit_splat(e, 32, 0x7fffffff), x);
  }
  if (o->type != T_F16 || o->from != T_F32 || (in->m & M_ROUND) > M_RN) return 0;
  uint32_t x = to_float(e, 32, ptx_emit_read(e, in->a, 32));
  uint32_t nan = ptx_emit_value(e, "fcmp uno <32 x float> %%v%u, %%v%u", x, x);
  uint32_t h = ptx_emit_value(e, "call <32 x i16> @narrow(<32 x float> %%v%u)", x);
  return choose(e, 16, nan, ptx_emit_splat(e, 16, 0x7fff), h);
}

static uint32_t converted(struct ptx_emit *e, const struct ptx_instruction *in,
                          const struct ptx_emit_operation *o) {
  uint32_t half = halved(e, in, o);
  if (half != 0) return half;
  if (!ptx_is_integer(o->from) || (in->m & M_SAT) != 0) return 0;
  uint32_t bytes = ptx_type_bytes(o->from), from = bytes * 8, held = bytes == 1 ? 16 : from;
  uint32_t x = ptx_emit_read(e, in->a, held);
  const char *extend = ptx_is_signed(o->from) ? "sext" : "zext";
  if (o->type == T_F32 || o->type == T_F64) {
    uint32_t to = o->type == T_F32 ? 32 : 64;
    /* LLVM converts u32 in several operations, which are correct only if they round to nearest: rounded down,
     * 0 would become -0. */
    if (from > 32 || (o->from == T_U32 && in->control > 2)) return 0;
    if (from < held) x = cast(e, "trunc", held, x, from);
    if (from < 32) x = cast(e, extend, from, x, 32);
    else if (e->opaque) x = ptx_emit_unknown(e, 32, x);
    uint32_t r = ptx_emit_value(e, "%s <32 x i32> %%v%u to <32 x %s>", o->from == T_U32 ? "uitofp" : "sitofp",
                                x, float_of(to));
    return ptx_emit_value(e, "bitcast <32 x %s> %%v%u to <32 x i%u>", float_of(to), r, to);
  }
  if (!ptx_is_integer(o->type)) return 0;
  uint32_t to = ptx_type_bytes(o->type) * 8;
  if (from < held) x = cast(e, "trunc", held, x, from);
  if (from < to) x = cast(e, extend, from, x, to);
  else if (from > to) x = cast(e, "trunc", from, x, to);
  return to == 8 ? cast(e, ptx_is_signed(o->type) ? "sext" : "zext", 8, x, 16) : x;
}

bool ptx_emit_constant(const struct ptx_emit *e, uint32_t reference, uint32_t *value) {
  uint32_t source = ptx_plan_source(e->plan, reference);
  if ((source & 3) != REF_CONSTANT) return false;
  memcpy(value, e->constants + (source & ~3u), sizeof *value);
  return true;
}

bool ptx_emit_sum(struct ptx_emit *e, const struct ptx_instruction *in, struct ptx_sum *sum) {
  struct ptx_emit_operation o;
  uint32_t scalar, factor, other = PTX_NONE;
  if (!ptx_emit_identify(in, &o)) return false;
  switch (o.op) {
    case OP_NONE:
      if (!ptx_is_integer(o.type) || (o.from != T_U32 && o.from != T_S32) || (in->m & M_SAT) != 0)
        return false;
      *sum = (struct ptx_sum){.index = ptx_emit_read(e, in->a, 32), .is_signed = ptx_is_signed(o.from)};
      return true;
    case OP_MUL_WIDE:
    case OP_MAD_WIDE:
      if ((o.type != T_U32 && o.type != T_S32) || !ptx_emit_constant(e, in->b, &factor) || factor == 0 ||
          factor >> PTX_SUM_SHIFT > 1 || (factor & (factor - 1)) != 0)
        return false;
      *sum = (struct ptx_sum){.index = ptx_emit_read(e, in->a, 32),
                              .shift = (uint32_t)__builtin_ctz(factor),
                              .is_signed = ptx_is_signed(o.type)};
      if (o.op == OP_MUL_WIDE) return true;
      other = in->c;
      break;
    case OP_SHL:
      *sum = ptx_emit_sum_of(e, in->a);
      if (sum->index == 0 || sum->base != 0 || !ptx_emit_constant(e, in->b, &factor) ||
          factor > PTX_SUM_SHIFT - sum->shift)
        return false;
      sum->shift += factor;
      return true;
    case OP_ADD:
      *sum = ptx_emit_sum_of(e, in->a);
      other = sum->index != 0 ? in->b : in->a;
      if (sum->index == 0) *sum = ptx_emit_sum_of(e, in->b);
      break;
    default:
      return false;
  }
  if (sum->index == 0 || !ptx_is_integer(o.type) || (scalar = ptx_emit_scalar(e, other)) == 0) return false;
  sum->base = sum->base == 0 ? scalar : ptx_emit_value(e, "add i64 %%v%u, %%v%u", sum->base, scalar);
  return true;
}

uint32_t ptx_emit_native(struct ptx_emit *e, const struct ptx_instruction *in) {
  struct ptx_emit_operation o;
  if (!ptx_emit_identify(in, &o)) return 0;
  if (o.op == OP_NONE) return converted(e, in, &o);
  uint32_t r = plain_bits(e, in, &o);
  if (r != 0) return r;
  if (ptx_is_integer(o.type) || (o.op == OP_SHR && o.type <= T_B64)) return integer(e, in, &o);
  return o.type == T_F32 || o.type == T_F64 ? floating(e, in, &o) : 0;
}

uint32_t ptx_emit_native_compare(struct ptx_emit *e, const struct ptx_instruction *in) {
  static const char *const floats[] = {
      [C_EQ] = "oeq",  [C_NE] = "one",  [C_LT] = "olt",  [C_LE] = "ole",  [C_GT] = "ogt",
      [C_GE] = "oge",  [C_EQU] = "ueq", [C_NEU] = "une", [C_LTU] = "ult", [C_LEU] = "ule",
      [C_GTU] = "ugt", [C_GEU] = "uge", [C_NUM] = "ord", [C_NAN] = "uno"};
  static const char *const integers[2][6] = {{"eq", "ne", "ult", "ule", "ugt", "uge"},
                                             {"eq", "ne", "slt", "sle", "sgt", "sge"}};
  const struct ptx_alu *alu = ptx_alu_best();
  for (uint32_t how = 0; how <= C_NAN; how++) {
    for (enum ptx_type type = 0; type < T_TYPES; type++) {
      if (alu->compare[how][type] != in->u.compare) continue;
      bool floating = type == T_F32 || type == T_F64;
      if (!floating && (how > C_GE || type == T_F16 || type == T_BF16)) return 0;
      uint32_t bits = ptx_type_bytes(type) * 8;
      uint32_t x = ptx_emit_read(e, in->a, bits), y = ptx_emit_read(e, in->b, bits);
      if (!floating) return compare(e, integers[ptx_is_signed(type)][how], bits, x, y);
      uint32_t fx = to_float(e, bits, x), fy = to_float(e, bits, y);
      return ptx_emit_value(e, "fcmp %s <32 x %s> %%v%u, %%v%u", floats[how], float_of(bits), fx, fy);
    }
  }
  return 0;
}
