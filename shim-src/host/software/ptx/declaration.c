/* What a declaration says: type, alignment and attributes, then name and dimensions. */
#include "host/software/ptx/parse.h"

static uint64_t power_of_two(struct parser *p, int64_t value) {
  if (value <= 0 || value > 65536 || (value & (value - 1)) != 0) {
    ptx_fail(p, PTX_INVALID, "an alignment of %lld", (long long)value);
  }
  return (uint64_t)value;
}

void ptx_read_type(struct parser *p, struct ptx_declaration *d) {
  *d = (struct ptx_declaration){.vector = 1};
  struct word word;
  while (ptx_directive(p, &word)) {
    enum ptx_type type = ptx_type_of(word);
    if (type != T_NONE) d->type = type;
    else if (ptx_word_is(word, ".align")) d->alignment = power_of_two(p, ptx_integer(p));
    else if (ptx_word_is(word, ".v2")) d->vector = 2;
    else if (ptx_word_is(word, ".v4")) d->vector = 4;
    else if (ptx_word_is(word, ".texref") || ptx_word_is(word, ".surfref") ||
             ptx_word_is(word, ".samplerref")) {
      d->opaque = true;
      d->type = T_B64;
    } else if (ptx_word_is(word, ".attribute")) {
      ptx_expect(p, '(');
      while (!ptx_accept(p, ')')) {
        if (p->at >= p->end) ptx_fail(p, PTX_INVALID, "the text ends in an attribute");
        p->at++;
      }
    } else if (!ptx_word_is(word, ".ptr") && !ptx_word_is(word, ".global") && !ptx_word_is(word, ".shared") &&
               !ptx_word_is(word, ".const") && !ptx_word_is(word, ".local")) {
      ptx_fail(p, PTX_UNSUPPORTED, "'%.*s' in a declaration", (int)word.length, word.text);
    }
  }
  if (d->type == T_NONE)
    ptx_fail(p, PTX_INVALID, "a type expected before '%.*s'", ptx_some(p, p->at, 12), p->at);
}

void ptx_read_name(struct parser *p, struct ptx_declaration *d) {
  d->name = ptx_need_word(p, "a name");
  d->count = 1;
  d->range = false;
  if (ptx_accept(p, '<')) {
    int64_t count = ptx_integer(p);
    if (count < 0 || count > MAX_REGISTERS) ptx_fail(p, PTX_UNSUPPORTED, "%lld registers", (long long)count);
    d->range = true;
    d->range_count = (uint32_t)count;
    ptx_expect(p, '>');
  }
  bool first = true;
  while (ptx_accept(p, '[')) {
    if (ptx_accept(p, ']')) {
      if (!first) ptx_fail(p, PTX_INVALID, "only the first dimension may be left open");
      d->count = 0;
    } else {
      int64_t count = ptx_integer(p);
      if (count < 0 || __builtin_mul_overflow(d->count, (uint64_t)count, &d->count) || d->count > MAX_DATA) {
        ptx_fail(p, PTX_INVALID, "'%.*s' is too large", (int)d->name.length, d->name.text);
      }
      ptx_expect(p, ']');
      if (d->count == 0 && count == 0) d->count = 0;
    }
    first = false;
  }
}

uint64_t ptx_declared_bytes(const struct ptx_declaration *d) {
  return d->count * d->vector * ptx_type_bytes(d->type);
}

uint64_t ptx_declared_alignment(const struct ptx_declaration *d) {
  uint64_t natural = d->vector * ptx_type_bytes(d->type);
  if (natural == 0) natural = 1;
  return d->alignment > 0 ? d->alignment : natural;
}
