#include "host/backend/software/ptx/decode/decode.h"
#include "host/backend/software/ptx/alu/fpu.h"
#include "host/backend/software/ptx/special.h"

_Noreturn void ptx_refuse(struct parser *p, const char *why) {
  p->line = p->mnemonic_line;
  ptx_fail(p, PTX_UNSUPPORTED, "%.*s is not supported%s%s", (int)p->mnemonic_length, p->mnemonic,
           why == NULL ? "" : ": ", why == NULL ? "" : why);
}

_Noreturn void ptx_wrong(struct parser *p, const char *why) {
  p->line = p->mnemonic_line;
  ptx_fail(p, PTX_INVALID, "%.*s is no PTX: %s", (int)p->mnemonic_length, p->mnemonic, why);
}

void ptx_need(struct parser *p, uint32_t least, uint32_t most) {
  if (p->operand_count >= least && p->operand_count <= most) return;
  p->line = p->mnemonic_line;
  ptx_fail(p, PTX_INVALID, "%.*s takes %u operands, not %u", (int)p->mnemonic_length, p->mnemonic, least,
           p->operand_count);
}

bool ptx_part(struct parser *p, uint32_t index, const char *text) {
  return index < p->part_count && ptx_word_is(p->parts[index], text);
}

bool ptx_has(struct parser *p, const char *part) {
  for (uint32_t i = 1; i < p->part_count; i++) {
    if (ptx_word_is(p->parts[i], part)) return true;
  }
  return false;
}

enum ptx_type ptx_last_type(struct parser *p) {
  for (uint32_t i = p->part_count; i > 1; i--) {
    enum ptx_type type = ptx_type_of(p->parts[i - 1]);
    if (type != T_NONE) return type;
  }
  ptx_refuse(p, "no type");
}

struct ptx_instruction *ptx_emit(struct parser *p, enum ptx_kind kind) {
  if (p->code_count >= MAX_INSTRUCTIONS)
    ptx_fail(p, PTX_UNSUPPORTED, "more than %d instructions", MAX_INSTRUCTIONS);
  p->code = ptx_room(p, p->code, p->code_count, &p->code_room, sizeof *p->code);
  struct ptx_instruction *in = &p->code[p->code_count++];
  *in = (struct ptx_instruction){.kind = (uint8_t)kind,
                                 .line = p->mnemonic_line,
                                 .d = PTX_NONE,
                                 .a = PTX_NONE,
                                 .b = PTX_NONE,
                                 .c = PTX_NONE,
                                 .guard = p->guard};
  return in;
}

uint32_t ptx_extra(struct parser *p, uint32_t value) {
  p->x = ptx_room(p, p->x, p->x_count, &p->x_room, sizeof *p->x);
  p->x[p->x_count] = value;
  return p->x_count++;
}

uint32_t ptx_temporary(struct parser *p, uint32_t bytes) {
  return ptx_new_register(p, (uint8_t)bytes) << 2 | REF_FRAME;
}

struct ptx_instruction *ptx_emit_alu(struct parser *p, enum ptx_operation op, enum ptx_type type,
                                     uint32_t bytes, uint32_t d, uint32_t a, uint32_t b, uint32_t c,
                                     uint32_t m) {
  ptx_lanes *lanes = ptx_alu_best()->operation[op][type];
  if (lanes == NULL) ptx_refuse(p, "this type");
  struct ptx_instruction *in = ptx_emit(p, K_ALU);
  in->u.lanes = lanes;
  in->size = (uint8_t)bytes;
  in->d = d;
  in->a = a;
  in->b = b;
  in->c = c;
  in->m = m;
  in->type = (uint8_t)type;
  return in;
}

uint32_t ptx_emit_two(struct parser *p, enum ptx_operation op, enum ptx_type type, uint32_t a, uint32_t b) {
  uint32_t bytes = ptx_type_bytes(type), d = ptx_temporary(p, bytes);
  ptx_emit_alu(p, op, type, bytes, d, a, b, PTX_NONE, 0);
  return d;
}

struct ptx_instruction *ptx_emit_compare(struct parser *p, enum ptx_comparison how, enum ptx_type type,
                                         uint32_t d, uint32_t a, uint32_t b) {
  ptx_compare *compare = ptx_alu_best()->compare[how][type];
  if (compare == NULL) ptx_refuse(p, "this type");
  struct ptx_instruction *in = ptx_emit(p, K_SETP);
  in->u.compare = compare;
  in->d = d;
  in->a = a;
  in->b = b;
  return in;
}

struct ptx_instruction *ptx_emit_convert(struct parser *p, enum ptx_type to, enum ptx_type from, uint32_t d,
                                         uint32_t a, uint32_t m) {
  ptx_lanes *lanes = ptx_alu_best()->convert[to][from];
  if (lanes == NULL) ptx_refuse(p, "these types");
  if (to == T_S32 && from == T_F32 && (m & (M_ROUND | M_SAT | M_FTZ)) == M_RZ) {
    lanes = ptx_alu_best()->convert[T_S32][T_TF32];
  }
  struct ptx_instruction *in = ptx_emit(p, K_ALU);
  in->u.lanes = lanes;
  uint32_t bytes = ptx_type_bytes(to);
  in->size = (uint8_t)(bytes == 1 ? 2 : bytes);
  in->d = d;
  in->a = a;
  in->m = m;
  in->type = (uint8_t)to;
  return in;
}

static enum ptx_type integer_of(uint32_t bytes, bool is_signed) {
  switch (bytes) {
    case 1:
      return is_signed ? T_S8 : T_U8;
    case 2:
      return is_signed ? T_S16 : T_U16;
    case 4:
      return is_signed ? T_S32 : T_U32;
    default:
      return is_signed ? T_S64 : T_U64;
  }
}

static uint32_t special(struct parser *p, uint32_t number, uint32_t bytes) {
  if (number >= SR_AGGREGATE_SMEM_SIZE && number <= SR_RESERVED_OFFSET_1) p->function->reserves = true;
  uint32_t d = ptx_temporary(p, bytes);
  uint32_t guard = p->guard;
  p->guard = 0;
  struct ptx_instruction *in = ptx_emit(p, K_SPECIAL);
  p->guard = guard;
  in->d = d;
  in->m = number;
  in->size = (uint8_t)bytes;
  return d;
}

static void use_shared(struct parser *p, const struct symbol *s) {
  if (s->offset + s->size > p->function->shared_end)
    p->function->shared_end = (uint32_t)(s->offset + s->size);
  if (s->offset >= p->module_shared) return; /* only variables of the function itself */
  for (uint32_t i = 0; i < p->shared_use_count; i++) {
    if (p->shared_uses[i].offset == s->offset) return;
  }
  p->shared_uses =
      ptx_room(p, p->shared_uses, p->shared_use_count, &p->shared_use_room, sizeof *p->shared_uses);
  p->shared_uses[p->shared_use_count++] = (struct ptx_shared_use){(uint32_t)s->offset, (uint32_t)s->size};
}

static uint32_t symbol_value(struct parser *p, const struct operand *o, uint32_t bytes) {
  const struct symbol *s = o->symbol;
  uint64_t addend = (uint64_t)o->value;
  switch (s->kind) {
    case SYM_GLOBAL: {
      if (bytes != 8) ptx_refuse(p, "an address has 64 bits");
      return ptx_address_constant(p, s->offset + addend);
    }
    case SYM_SHARED:
      use_shared(p, s);
      return ptx_constant(p, bytes, s->offset + addend);
    case SYM_SHARED_EXTERN: {
      if (s->size > p->function->dynamic_align) p->function->dynamic_align = (uint32_t)s->size;
      uint32_t base = special(p, SR_DYNAMIC_SHARED, bytes);
      if (addend == 0) return base;
      return ptx_emit_two(p, OP_ADD, bytes == 8 ? T_U64 : T_U32, base, ptx_constant(p, bytes, addend));
    }
    case SYM_LOCAL: {
      uint32_t d = ptx_temporary(p, bytes);
      struct ptx_instruction *in = ptx_emit(p, K_LOCAL_ADDRESS);
      in->d = d;
      in->size = (uint8_t)bytes;
      in->u.offset = s->offset + addend;
      in->m = s->scope == 0 ? 1 : 0;
      return d;
    }
    case SYM_FUNCTION: {
      /* The function may be called through this pointer. A kernel can only be launched. */
      if (!p->module->functions[s->number]->entry) p->function->recursive = true;
      return ptx_constant(p, bytes, PTX_FUNCTION_WINDOW + (uint64_t)s->number * 16);
    }
    case SYM_PARAM:
      if (s->constant == 0 || bytes != 8) ptx_refuse(p, "the address of a parameter of a call");
      return ptx_parameter_address(p, s, addend);
    case SYM_OPAQUE:
      if (bytes != 8) ptx_refuse(p, "an object has 64 bits");
      return ptx_texture_reference(p, s);
    case SYM_KERNEL_PARAM:
      return ptx_constant(p, bytes, s->offset + addend);
    default:
      p->line = p->mnemonic_line;
      ptx_fail(p, PTX_UNSUPPORTED, "%.*s is not supported: the address of '%.*s'", (int)p->mnemonic_length,
               p->mnemonic, (int)s->length, s->name);
  }
}

uint32_t ptx_source(struct parser *p, const struct operand *o, enum ptx_type type) {
  uint32_t bytes = ptx_type_bytes(type);
  uint32_t held = bytes == 1 ? 2 : bytes; /* 8-bit values lie in 16 bits */
  switch (o->kind) {
    case O_INTEGER:
    case O_FLOAT: {
      bool floats = type == T_F32 || type == T_F64 || type == T_F16 || type == T_BF16 || type == T_TF32;
      uint64_t value = (uint64_t)o->value;
      if (o->kind == O_FLOAT)
        value = floats || ptx_type_bytes(o->type) != bytes ? ptx_float_bits(p, o, type) : value;
      else if (floats) value = ptx_float_bits(p, o, type);
      if (bytes == 1) value = type == T_S8 ? (uint64_t)(int64_t)(int8_t)value : value & 0xff;
      return ptx_constant(p, held, value);
    }
    case O_SPECIAL: {
      uint32_t natural = o->number == SR_CLOCK64 || o->number == SR_GLOBALTIMER || o->number == SR_GRIDID ||
                                 o->number == SR_PM_64 || o->number == SR_CURRENT_GRAPH_EXEC
                             ? 8
                             : 4;
      if (natural == held) return special(p, o->number, held);
      uint32_t d = ptx_temporary(p, held);
      ptx_emit_convert(p, integer_of(held, false), integer_of(natural, false), d,
                       special(p, o->number, natural), 0);
      return d;
    }
    case O_SYMBOL:
      return symbol_value(p, o, bytes);
    case O_REGISTER: {
      if (o->type == T_PRED || type == T_PRED) ptx_refuse(p, "a predicate among values");
      if (o->lane_part != 0) ptx_refuse(p, "parts of registers");
      uint32_t have = p->registers[o->number];
      uint32_t ref = o->number << 2 | REF_FRAME;
      if (have == held) {
        if (bytes != 1) return ref;
        /* only the low byte counts */
        uint32_t low = ptx_temporary(p, 2);
        ptx_emit_convert(p, type == T_S8 ? T_S8 : T_U8, type == T_S8 ? T_S8 : T_U8, low, ref, 0);
        return low;
      }
      if (have < bytes) ptx_refuse(p, "a register that is too narrow");
      uint32_t d = ptx_temporary(p, held);
      ptx_emit_convert(p, integer_of(bytes, ptx_is_signed(type)), integer_of(have, false), d, ref, 0);
      return d;
    }
    default:
      ptx_refuse(p, "an operand of the wrong kind");
  }
}

uint32_t ptx_destination(struct parser *p, const struct operand *o, enum ptx_type type) {
  uint32_t bytes = ptx_type_bytes(type);
  uint32_t held = bytes == 1 ? 2 : bytes;
  if (o->kind == O_SINK) return ptx_temporary(p, held);
  if (o->kind != O_REGISTER || o->type == T_PRED || o->lane_part != 0 || o->sum)
    ptx_refuse(p, "a register expected");
  uint32_t have = p->registers[o->number];
  uint32_t ref = o->number << 2 | REF_FRAME;
  if (have == held) return ref;
  if (have < bytes) ptx_refuse(p, "a register that is too narrow");
  uint32_t d = ptx_temporary(p, held);
  p->later[p->later_count].from = d;
  p->later[p->later_count].to = ref;
  p->later[p->later_count].type = integer_of(bytes, ptx_is_signed(type));
  p->later[p->later_count++].bytes = (uint8_t)have;
  return d;
}

void ptx_finish(struct parser *p) {
  for (uint32_t i = 0; i < p->later_count; i++) {
    enum ptx_type from = p->later[i].type;
    ptx_emit_convert(p, integer_of(p->later[i].bytes, ptx_is_signed(from)), from, p->later[i].to,
                     p->later[i].from, 0);
  }
  p->later_count = 0;
}

uint32_t ptx_predicate(struct parser *p, const struct operand *o) {
  if (o->kind == O_SPECIAL && o->number == SR_IS_EXPLICIT_CLUSTER) {
    uint32_t value = special(p, o->number, 4), d = ptx_temporary(p, 0);
    ptx_emit_compare(p, C_NE, T_U32, d, value, ptx_constant(p, 4, 0));
    return d;
  }
  if (o->kind == O_INTEGER) return ptx_constant(p, 4, o->value != 0 ? 0xffffffffu : 0);
  if (o->kind != O_REGISTER || o->type != T_PRED) ptx_refuse(p, "a predicate expected");
  return o->number << 2 | REF_FRAME;
}

uint32_t ptx_predicate_out(struct parser *p, const struct operand *o) {
  if (o->kind == O_SINK) return ptx_temporary(p, 0);
  if (o->kind != O_REGISTER || o->type != T_PRED) ptx_refuse(p, "a predicate expected");
  return o->number << 2 | REF_FRAME;
}

uint32_t ptx_rounding(struct parser *p) {
  for (uint32_t i = 1; i < p->part_count; i++) {
    const struct word *w = &p->parts[i];
    if (w->length < 2 || w->length > 3 || w->text[0] != 'r') continue;
    if (ptx_word_is(*w, "rna")) return M_RNA;
    if (w->length == 3 && w->text[2] != 'i') continue;
    switch (w->text[1]) {
      case 'n':
        return M_RN;
      case 'z':
        return M_RZ;
      case 'm':
        return M_RM;
      case 'p':
        return M_RP;
      default:
        break;
    }
  }
  return 0;
}

/* Every float operation sets its control: the processor still has the last operation's mode. */
uint32_t ptx_control(struct parser *p) {
  static const uint8_t modes[8] = {0, 0, 1, 2, 3, 0, 0, 0};
  return PTX_CONTROL(modes[ptx_rounding(p)], ptx_has(p, "ftz"));
}

uint32_t ptx_type_mode(struct parser *p) {
  uint32_t m = 0;
  if (ptx_has(p, "sat") || ptx_has(p, "satfinite")) m |= M_SAT;
  if (ptx_has(p, "ftz")) m |= M_FTZ;
  if (ptx_has(p, "relu")) m |= M_RELU;
  if (ptx_has(p, "NaN")) m |= M_NAN;
  if (ptx_has(p, "xorsign")) m |= M_XORSIGN;
  if (ptx_has(p, "wrap")) m |= M_WRAP;
  if (ptx_has(p, "shiftamt")) m |= M_SHIFTAMT;
  return m;
}

/* Reads [register + n], [name + n] or [n]: the part that is added at run time, and the constant part. */
uint32_t ptx_address(struct parser *p, const struct operand *o, enum ptx_space space, uint64_t *offset,
                     enum ptx_type *width) {
  if (o->kind != O_ADDRESS) ptx_refuse(p, "an address expected");
  if (o->count > 0) ptx_refuse(p, "an address without coordinates expected");
  *offset = (uint64_t)o->value;
  if (o->has_base) {
    uint32_t bytes = p->registers[o->number];
    if (bytes != 4 && bytes != 8) ptx_refuse(p, "an address has 32 or 64 bits");
    *width = bytes == 4 ? T_B32 : T_B64;
    return o->number << 2 | REF_FRAME;
  }
  if (o->symbol == NULL) {
    *width = T_B64;
    return ptx_constant(p, 8, 0);
  }
  struct operand name = {.kind = O_SYMBOL, .symbol = o->symbol};
  bool narrow =
      o->symbol->kind == SYM_SHARED || o->symbol->kind == SYM_SHARED_EXTERN || o->symbol->kind == SYM_LOCAL;
  *width = narrow ? T_B32 : T_B64;
  /* a shared variable that is named as a generic address: its window */
  if (space == S_GENERIC && (o->symbol->kind == SYM_SHARED || o->symbol->kind == SYM_SHARED_EXTERN)) {
    *offset += PTX_SHARED_WINDOW;
  } else if (space == S_GENERIC && o->symbol->kind == SYM_LOCAL) {
    *offset += PTX_LOCAL_WINDOW;
  }
  return ptx_source(p, &name, *width);
}

static const struct ptx_mnemonic *find(const struct ptx_mnemonic *list, struct word word) {
  for (; list->name != NULL; list++) {
    if (list->name[0] == word.text[0] && ptx_word_is(word, list->name)) return list;
  }
  return NULL;
}

static const struct ptx_mnemonic *look_up(struct word word) {
  static const struct ptx_mnemonic *const lists[] = {
      ptx_convert_mnemonics, ptx_arithmetic_mnemonics, ptx_logic_mnemonics,  ptx_compare_mnemonics,
      ptx_memory_mnemonics,  ptx_control_mnemonics,    ptx_matrix_mnemonics, ptx_bulk_mnemonics,
      ptx_cluster_mnemonics, ptx_wgmma_mnemonics,      ptx_video_mnemonics,  ptx_texture_mnemonics};
  const struct ptx_mnemonic *known = NULL;
  for (size_t i = 0; known == NULL && i < sizeof lists / sizeof *lists; i++) known = find(lists[i], word);
  return known;
}

/* A module has few mnemonics and uses each many times: the last ones are searched first. */
static const struct ptx_mnemonic *mnemonic(struct parser *p) {
  struct word word = p->parts[0];
  if (word.length == 0) return NULL;
  unsigned char first = (unsigned char)word.text[0], last = (unsigned char)word.text[word.length - 1];
  const struct ptx_mnemonic **met = &p->met[(first * 7u + last * 3u + word.length) % MET];
  if (*met == NULL || !ptx_word_is(word, (*met)->name)) *met = look_up(word);
  return *met;
}

void ptx_decode(struct parser *p) {
  const struct ptx_mnemonic *known = mnemonic(p);
  if (known == NULL) ptx_refuse(p, NULL);
  ptx_check_modifiers(p, known->modifiers);
  p->later_count = 0;
  known->decode(p);
  ptx_finish(p);
}
