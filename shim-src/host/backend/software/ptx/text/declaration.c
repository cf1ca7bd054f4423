/*
 * Type, alignment and attributes, then name and dimensions. Used by the parser and by code/ptx_text.c: both
 * must compute the same offset for each parameter.
 */
#include <string.h>

#include "host/backend/software/ptx/text/parse.h"

#define MAX_BYTES ((uint64_t)1 << 40) /* more than any device has; sums of them stay far below 64 bits */
#define MAX_VECTOR 16u
#define MAX_PARAMETERS 32764u

static uint64_t power_of_two(struct parser *p, int64_t value) {
  if (value <= 0 || value > 65536 || (value & (value - 1)) != 0) {
    ptx_fail(p, PTX_INVALID, "an alignment of %lld", (long long)value);
  }
  return (uint64_t)value;
}

/*
 * Skips .ptr{.space}{.align N}, which describes the memory behind a pointer, not the parameter's own place.
 */
static void pointed_to(struct parser *p) {
  for (;;) {
    const char *before = p->at;
    uint32_t line = p->line;
    struct word word;
    if (!ptx_directive(p, &word)) return;
    if (ptx_word_is(word, ".align")) power_of_two(p, ptx_integer(p));
    else if (!ptx_word_is(word, ".global") && !ptx_word_is(word, ".shared") && !ptx_word_is(word, ".const") &&
             !ptx_word_is(word, ".local")) {
      p->at = before;
      p->line = line;
      return;
    }
  }
}

bool ptx_attribute(struct parser *p) {
  ptx_expect(p, '(');
  static const char managed[] = ".managed";
  bool found = false;
  for (int depth = 1; depth > 0; p->at++) {
    ptx_skip(p);
    if (p->at >= p->end) ptx_fail(p, PTX_INVALID, "the text ends in an attribute");
    depth += (*p->at == '(') - (*p->at == ')');
    size_t rest = (size_t)(p->end - p->at);
    found = found || (rest >= sizeof managed - 1 && memcmp(p->at, managed, sizeof managed - 1) == 0);
  }
  return found;
}

void ptx_read_attributes(struct parser *p, struct ptx_declaration *d) {
  *d = (struct ptx_declaration){.vector = 1};
  struct word word;
  while (ptx_directive(p, &word)) {
    enum ptx_type type = ptx_type_of(word);
    if (type != T_NONE) d->type = type;
    else if (ptx_word_is(word, ".align")) d->alignment = power_of_two(p, ptx_integer(p));
    else if (ptx_word_is(word, ".v2")) d->vector = 2;
    else if (ptx_word_is(word, ".v4")) d->vector = 4;
    else if (ptx_word_is(word, ".v8")) d->vector = 8;
    else if (ptx_word_is(word, ".ptr")) pointed_to(p);
    else if (ptx_word_is(word, ".attribute")) d->managed = ptx_attribute(p) || d->managed;
    else if (ptx_word_is(word, ".texref") || ptx_word_is(word, ".surfref") ||
             ptx_word_is(word, ".samplerref")) {
      d->opaque = true;
      d->surface = ptx_word_is(word, ".surfref");
      d->type = T_B64;
    } else if (d->unknown.length == 0) d->unknown = word;
  }
  if (d->type == T_NONE)
    ptx_fail(p, PTX_INVALID, "a declaration without a type before '%.*s'", ptx_some(p, p->at, 12), p->at);
  /* Vectors of eight exist only in loads and stores. */
  if (d->vector == 8 || d->vector * ptx_type_bytes(d->type) > MAX_VECTOR)
    ptx_fail(p, PTX_INVALID, "a variable that is a vector of more than 128 bits");
}

void ptx_read_type(struct parser *p, struct ptx_declaration *d) {
  ptx_read_attributes(p, d);
  if (d->unknown.length > 0) {
    ptx_fail(p, PTX_UNSUPPORTED, "'%.*s' in a declaration", (int)d->unknown.length, d->unknown.text);
  }
}

static void range(struct parser *p, struct ptx_declaration *d) {
  struct operand literal = {0}; /* not an expression: > would be an operator */
  if (!ptx_literal(p, &literal) || literal.kind != O_INTEGER)
    ptx_fail(p, PTX_INVALID, "a count of registers expected before '%.*s'", ptx_some(p, p->at, 12), p->at);
  int64_t count = literal.value;
  if (count < 0 || count > MAX_REGISTERS) ptx_fail(p, PTX_UNSUPPORTED, "%lld registers", (long long)count);
  d->range = true;
  d->range_count = (uint32_t)count;
  ptx_expect(p, '>');
}

void ptx_read_name(struct parser *p, struct ptx_declaration *d) {
  d->name = ptx_need_name(p, "a name");
  d->count = 1;
  d->range = d->open = false;
  uint64_t element = ptx_declared_bytes(d);
  if (ptx_accept(p, '<')) range(p, d);
  for (bool first = true; ptx_accept(p, '['); first = false) {
    if (ptx_accept(p, ']')) {
      if (!first) ptx_fail(p, PTX_INVALID, "only the first dimension may be left open");
      d->open = true;
      continue;
    }
    int64_t count = ptx_integer(p);
    uint64_t bytes;
    if (count < 0 || __builtin_mul_overflow(d->count, (uint64_t)count, &d->count) ||
        __builtin_mul_overflow(d->count, element, &bytes) || bytes > MAX_BYTES || d->count > MAX_BYTES) {
      ptx_fail(p, PTX_INVALID, "'%.*s' is too large", (int)d->name.length, d->name.text);
    }
    ptx_expect(p, ']');
  }
}

uint64_t ptx_declared_bytes(const struct ptx_declaration *d) {
  return d->open ? 0 : d->count * d->vector * ptx_type_bytes(d->type);
}

uint32_t ptx_element_bytes(const struct ptx_declaration *d) {
  return d->vector * ptx_type_bytes(d->type);
}

uint64_t ptx_declared_alignment(const struct ptx_declaration *d) {
  uint64_t natural = d->vector * ptx_type_bytes(d->type);
  if (natural == 0) natural = 1;
  return d->alignment > 0 ? d->alignment : natural;
}

void ptx_need_param(struct parser *p) {
  struct word space = ptx_need_word(p, ".param");
  if (!ptx_word_is(space, ".param")) {
    ptx_fail(p, PTX_UNSUPPORTED, "a parameter in '%.*s'", (int)space.length, space.text);
  }
}

struct ptx_parameter ptx_place_parameter(struct parser *p, const struct ptx_declaration *d, uint32_t *end) {
  uint64_t size = ptx_declared_bytes(d), alignment = ptx_declared_alignment(d);
  uint64_t offset = (*end + alignment - 1) / alignment * alignment;
  if (size == 0) {
    ptx_fail(p, PTX_INVALID, "the parameter '%.*s' has no size", (int)d->name.length, d->name.text);
  }
  if (size > MAX_PARAMETERS || offset + size > MAX_PARAMETERS) {
    ptx_fail(p, PTX_UNSUPPORTED, "more than %u bytes of parameters", MAX_PARAMETERS);
  }
  *end = (uint32_t)(offset + size);
  return (struct ptx_parameter){(uint32_t)offset, (uint32_t)size};
}
