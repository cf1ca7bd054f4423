#include <string.h>

#include "host/backend/software/ptx/decode/decode.h"
#include "host/backend/software/ptx/special.h"

static const struct {
  const char *name;
  uint8_t number;
} specials[] = {
    {"%tid.x", SR_TID_X},
    {"%tid.y", SR_TID_Y},
    {"%tid.z", SR_TID_Z},
    {"%tid.w", SR_ZERO},
    {"%ntid.x", SR_NTID_X},
    {"%ntid.y", SR_NTID_Y},
    {"%ntid.z", SR_NTID_Z},
    {"%ntid.w", SR_ZERO},
    {"%ctaid.x", SR_CTAID_X},
    {"%ctaid.y", SR_CTAID_Y},
    {"%ctaid.z", SR_CTAID_Z},
    {"%ctaid.w", SR_ZERO},
    {"%nctaid.x", SR_NCTAID_X},
    {"%nctaid.y", SR_NCTAID_Y},
    {"%nctaid.z", SR_NCTAID_Z},
    {"%nctaid.w", SR_ZERO},
    {"%laneid", SR_LANEID},
    {"%warpid", SR_WARPID},
    {"%nwarpid", SR_NWARPID},
    {"%smid", SR_SMID},
    {"%nsmid", SR_NSMID},
    {"%gridid", SR_GRIDID},
    {"%lanemask_eq", SR_LANEMASK_EQ},
    {"%lanemask_le", SR_LANEMASK_LE},
    {"%lanemask_lt", SR_LANEMASK_LT},
    {"%lanemask_ge", SR_LANEMASK_GE},
    {"%lanemask_gt", SR_LANEMASK_GT},
    {"%clock", SR_CLOCK},
    {"%clock_hi", SR_CLOCK_HI},
    {"%clock64", SR_CLOCK64},
    {"%globaltimer", SR_GLOBALTIMER},
    {"%globaltimer_lo", SR_GLOBALTIMER_LO},
    {"%globaltimer_hi", SR_GLOBALTIMER_HI},
    {"%dynamic_smem_size", SR_DYNAMIC_SMEM_SIZE},
    {"%total_smem_size", SR_TOTAL_SMEM_SIZE},
    {"%aggr_smem_size", SR_AGGREGATE_SMEM_SIZE},
    {"%reserved_smem_offset_begin", SR_RESERVED_BEGIN},
    {"%reserved_smem_offset_end", SR_RESERVED_END},
    {"%reserved_smem_offset_cap", SR_RESERVED_SIZE},
    {"%reserved_smem_offset_0", SR_RESERVED_BEGIN},
    {"%reserved_smem_offset_1", SR_RESERVED_OFFSET_1},
    {"%clusterid.x", SR_CLUSTERID_X},
    {"%clusterid.y", SR_CLUSTERID_Y},
    {"%clusterid.z", SR_CLUSTERID_Z},
    {"%clusterid.w", SR_ZERO},
    {"%nclusterid.x", SR_NCLUSTERID_X},
    {"%nclusterid.y", SR_NCLUSTERID_Y},
    {"%nclusterid.z", SR_NCLUSTERID_Z},
    {"%nclusterid.w", SR_ZERO},
    {"%cluster_ctaid.x", SR_CLUSTER_CTAID_X},
    {"%cluster_ctaid.y", SR_CLUSTER_CTAID_Y},
    {"%cluster_ctaid.z", SR_CLUSTER_CTAID_Z},
    {"%cluster_ctaid.w", SR_ZERO},
    {"%cluster_nctaid.x", SR_CLUSTER_NCTAID_X},
    {"%cluster_nctaid.y", SR_CLUSTER_NCTAID_Y},
    {"%cluster_nctaid.z", SR_CLUSTER_NCTAID_Z},
    {"%cluster_nctaid.w", SR_ZERO},
    {"%cluster_ctarank", SR_CLUSTER_CTARANK},
    {"%cluster_nctarank", SR_CLUSTER_NCTARANK},
    {"%is_explicit_cluster", SR_IS_EXPLICIT_CLUSTER},
    {"%envreg1", SR_ENVREG1},
    {"%envreg2", SR_ENVREG2},
    {"%current_graph_exec", SR_CURRENT_GRAPH_EXEC},
};

uint32_t ptx_special_register(struct word name) {
  for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
    if (ptx_word_is(name, specials[i].name)) return specials[i].number;
  }
  if (name.length > 7 && memcmp(name.text, "%envreg", 7) == 0) return SR_ENVREG;
  if (name.length >= 4 && memcmp(name.text, "%pm", 3) == 0 && name.text[3] >= '0' && name.text[3] <= '7') {
    if (name.length == 4) return SR_PM;
    if (name.length == 7 && memcmp(name.text + 4, "_64", 3) == 0) return SR_PM_64;
  }
  return SR_NONE;
}

static struct operand *element(struct parser *p) {
  if (p->element_count >= MAX_ELEMENTS) ptx_fail(p, PTX_INVALID, "too many operands");
  struct operand *to = &p->elements[p->element_count++];
  memset(to, 0, sizeof *to);
  return to;
}

/* Reads the suffix of a register: .b2, .h0, or the parts of a SIMD video operand, such as .b7610 and .h32. */
static void part(struct parser *p, struct operand *to) {
  p->at++;
  struct word word = ptx_need_word(p, "a part of a register");
  bool bytes = *word.text == 'b';
  bool good = (bytes || *word.text == 'h') && word.length >= 2 && word.length <= (bytes ? 5u : 3u);
  for (uint32_t i = 1; good && i < word.length; i++) {
    uint32_t digit = (uint32_t)(word.text[i] - '0');
    good = digit < (bytes ? 8u : 4u);
    to->selectors = (uint16_t)(to->selectors << 4 | digit);
  }
  if (!good) {
    ptx_fail(p, PTX_UNSUPPORTED, "%.*s is not supported: '.%.*s' of a register", (int)p->mnemonic_length,
             p->mnemonic, (int)word.length, word.text);
  }
  if (word.length == 2 && to->selectors < (bytes ? 4u : 2u))
    to->lane_part = (uint8_t)((bytes ? PART_B0 : PART_H0) + to->selectors);
  else to->lane_part = bytes ? PART_BYTES : PART_HALVES;
}

static void vector_element(struct parser *p, const struct symbol *s, struct operand *to) {
  static const char letters[2][4] = {{'x', 'y', 'z', 'w'}, {'r', 'g', 'b', 'a'}};
  p->at++;
  struct word word = ptx_need_word(p, "an element of a vector");
  for (uint32_t i = 0; i < s->count && s->type != T_B128 && word.length == 1; i++) {
    if (*word.text != letters[0][i] && *word.text != letters[1][i]) continue;
    *to = (struct operand){.kind = O_REGISTER, .type = s->type, .number = s->number + i};
    return;
  }
  ptx_fail(p, PTX_INVALID, "'%.*s' has no element '%.*s'", (int)s->length, s->name, (int)word.length,
           word.text);
}

static void vector(struct parser *p, struct operand *to) {
  const struct symbol *s = to->symbol;
  uint8_t type = s->type == T_B128 ? T_B64 : s->type;
  to->kind = O_VECTOR;
  to->type = s->type;
  to->first = p->element_count;
  to->count = s->count;
  for (uint32_t i = 0; i < s->count; i++)
    *element(p) = (struct operand){.kind = O_REGISTER, .type = type, .number = s->number + i};
}

static bool is_vector(const struct operand *o) {
  return o->kind == O_SYMBOL && o->symbol->kind == SYM_VECTOR;
}

static void name(struct parser *p, struct operand *to) {
  struct word word = ptx_need_word(p, "an operand");
  if (ptx_word_is(word, "_")) {
    to->kind = O_SINK;
    return;
  }
  /* %tid.x is one word with its dot, whether or not %tid is declared */
  if (*word.text == '%' && p->at < p->end && *p->at == '.' && p->end - p->at > 1) {
    struct word longer = {word.text, word.length + 2};
    uint32_t number = ptx_special_register(longer);
    if (number != SR_NONE) {
      p->at += 2;
      to->kind = O_SPECIAL;
      to->number = number;
      return;
    }
  }
  if (ptx_find_register(p, word, to)) {
    if (p->at < p->end && *p->at == '.') part(p, to);
    return;
  }
  struct symbol *s = ptx_find(p, word);
  if (s == NULL) {
    uint32_t number = ptx_special_register(word);
    if (number != SR_NONE) {
      to->kind = O_SPECIAL;
      to->number = number;
      return;
    }
    /* %r99 beside %r<9> is a mistake; %new_thing may be a register of a newer GPU */
    if (word.text[0] == '%' && !ptx_names_range(p, word)) {
      ptx_fail(p, PTX_UNSUPPORTED, "%.*s is not supported: the special register '%.*s'",
               (int)p->mnemonic_length, p->mnemonic, (int)word.length, word.text);
    }
    ptx_fail(p, PTX_INVALID, "'%.*s' is not defined, in %.*s", (int)word.length, word.text,
             (int)p->mnemonic_length, p->mnemonic);
  }
  if (s->kind == SYM_VECTOR && p->at < p->end && *p->at == '.') {
    vector_element(p, s, to);
    return;
  }
  to->kind = O_SYMBOL;
  to->symbol = s;
}

static void scalar(struct parser *p, struct operand *to) {
  if (ptx_number(p, to)) return;
  while (ptx_accept(p, '-') || ptx_accept(p, '!')) to->negated = true;
  name(p, to);
}

/* Reads one entry of a list. Entries are consecutive, so an entry cannot have entries itself. */
static void listed(struct parser *p) {
  struct operand *to = element(p);
  scalar(p, to);
  if (is_vector(to))
    ptx_fail(p, PTX_UNSUPPORTED, "%.*s is not supported: a vector in a list", (int)p->mnemonic_length,
             p->mnemonic);
}

/*
 * [tensor, {coordinates}], [texture, sampler, {coordinates}] and similar; callers check `count`. A single
 * coordinate needs no braces, so the next token tells whether it is a sampler.
 */
static void coordinates(struct parser *p, struct operand *to) {
  if (to->count > 1 || to->sampled) ptx_fail(p, PTX_INVALID, "an address with too many parts");
  to->sampled = to->count == 1;
  to->first = p->element_count;
  if (ptx_accept(p, '{')) {
    do listed(p);
    while (ptx_accept(p, ','));
    ptx_expect(p, '}');
  } else {
    listed(p);
  }
  to->count = p->element_count - to->first;
}

static void address(struct parser *p, struct operand *to) {
  to->kind = O_ADDRESS;
  struct operand base = {0};
  if (ptx_number(p, &base)) {
    if (base.kind != O_INTEGER) ptx_fail(p, PTX_INVALID, "an address cannot be a float");
    to->value = base.value;
  } else {
    name(p, &base);
    if (base.kind == O_REGISTER) {
      to->has_base = true;
      to->number = base.number;
      to->type = base.type;
    } else if (base.kind == O_SYMBOL && !is_vector(&base)) {
      to->symbol = base.symbol;
    } else {
      ptx_fail(p, PTX_INVALID, "an address begins with a register or a name");
    }
  }
  while (!ptx_accept(p, ']')) {
    if (ptx_accept(p, ',')) {
      coordinates(p, to);
      continue;
    }
    if (!ptx_addend(p, &to->value)) ptx_expect(p, '+');
  }
}

static void sequence(struct parser *p, struct operand *to, char end) {
  to->kind = O_VECTOR;
  to->first = p->element_count;
  if (!ptx_accept(p, end)) {
    do listed(p);
    while (ptx_accept(p, ','));
    ptx_expect(p, end);
  }
  to->count = p->element_count - to->first;
}

static struct operand *next(struct parser *p) {
  if (p->operand_count >= MAX_OPERANDS) ptx_fail(p, PTX_INVALID, "too many operands");
  struct operand *to = &p->operands[p->operand_count++];
  memset(to, 0, sizeof *to);
  return to;
}

/* The lists of a call have more than 16 entries, so each entry is an operand. */
static void call_list(struct parser *p) {
  struct operand *head = next(p);
  head->kind = O_VECTOR;
  head->listed = true;
  head->first = p->element_count;
  if (!ptx_accept(p, ')')) {
    do scalar(p, element(p));
    while (ptx_accept(p, ','));
    ptx_expect(p, ')');
  }
  head->count = p->element_count - head->first;
}

/* %r1+4 is a sum, which the ISA does not say; ptxas treats it as an add before the instruction. */
static void add_constant(struct parser *p, struct operand *to) {
  int64_t value = 0;
  ptx_addend(p, &value);
  uint32_t bytes = p->registers[to->number], guard = p->guard;
  if (ptx_is_float((enum ptx_type)to->type) || to->type == T_PRED || to->lane_part != PART_NONE ||
      to->negated)
    ptx_refuse(p, "a constant added to this operand");
  enum ptx_type type = bytes == 2 ? T_U16 : bytes == 4 ? T_U32 : T_U64;
  p->guard = 0;
  uint32_t sum = ptx_sum(p, type, to->number << 2 | REF_FRAME, (uint64_t)value);
  p->guard = guard;
  to->number = sum >> 2;
  to->sum = true;
}

void ptx_parse_operands(struct parser *p) {
  p->operand_count = 0;
  p->element_count = 0;
  if (ptx_accept(p, ';')) return;
  for (;;) {
    if (ptx_word_is(p->parts[0], "call") && ptx_accept(p, '(')) {
      call_list(p);
    } else {
      struct operand *to = next(p);
      if (ptx_accept(p, '[')) address(p, to);
      else if (ptx_accept(p, '{')) sequence(p, to, '}');
      else scalar(p, to);
      if (is_vector(to)) vector(p, to);
      ptx_skip(p);
      if (to->kind == O_REGISTER && p->at < p->end && *p->at == '+') add_constant(p, to);
      if (to->kind == O_SYMBOL) {
        /* name[2]: the address of an element; name+4 */
        if (ptx_accept(p, '[')) {
          if (to->symbol->count == 0)
            ptx_fail(p, PTX_INVALID, "'%.*s' has no elements", (int)to->symbol->length, to->symbol->name);
          to->value = (int64_t)((uint64_t)ptx_integer(p) * to->symbol->count);
          ptx_expect(p, ']');
        }
        ptx_addend(p, &to->value);
      }
      if (ptx_accept(p, '|')) {
        to->paired = true;
        continue;
      }
    }
    if (ptx_accept(p, ';')) return;
    ptx_expect(p, ',');
  }
}
