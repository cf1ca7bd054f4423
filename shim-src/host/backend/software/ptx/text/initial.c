#include <string.h>

#include "host/backend/software/ptx/text/parse.h"

static uint64_t scalar(const struct operand *value, enum ptx_type type) {
  uint64_t bits = (uint64_t)value->value;
  if (value->kind == O_FLOAT && type == T_F32 && value->type == T_F64) {
    double wide;
    memcpy(&wide, &bits, 8);
    float narrow = (float)wide;
    uint32_t word;
    memcpy(&word, &narrow, 4);
    bits = word;
  } else if (value->kind == O_FLOAT && type == T_F64 && value->type == T_F32) {
    float narrow;
    uint32_t word = (uint32_t)bits;
    memcpy(&narrow, &word, 4);
    double wide = narrow;
    memcpy(&bits, &wide, 8);
  } else if (value->kind == O_INTEGER && (type == T_F32 || type == T_F64)) {
    double wide = (double)value->value;
    float narrow = (float)wide;
    if (type == T_F64) memcpy(&bits, &wide, 8);
    else memcpy(&bits, &narrow, 4);
  }
  return bits;
}

/* Reads name, name+4, generic(name) or generic(name)+4. With `closing`, a parenthesis is open before it. */
static void address(struct parser *p, bool closing, struct ptx_address *a) {
  int depth = closing ? 1 : 0;
  a->name = ptx_need_word(p, "an initial value");
  if (ptx_word_is(a->name, "generic")) {
    ptx_expect(p, '(');
    depth++;
    a->name = ptx_need_word(p, "a name");
  }
  for (; depth > 0 && ptx_accept(p, ')'); depth--) {
  }
  ptx_addend(p, &a->addend);
  for (; depth > 0; depth--) ptx_expect(p, ')');
}

struct values {
  uint64_t at, size;
  enum ptx_type type;
  uint32_t bytes;
  const struct ptx_initial *to;
};

static void initial_value(struct parser *p, struct values *v) {
  if (v->bytes == 0 || v->size - v->at < v->bytes)
    ptx_fail(p, PTX_INVALID, "more initial values than elements");
  uint64_t at = v->at;
  v->at += v->bytes;
  struct operand value = {0};
  struct ptx_address a = {0};
  bool number = ptx_number(p, &value), masked = number && ptx_accept(p, '(');
  if (number && !masked) {
    uint64_t bits = scalar(&value, v->type);
    if (v->to->number != NULL) v->to->number(p, v->to->user, at, bits, v->bytes);
    return;
  }
  while (masked && a.shift < 56 && ((uint64_t)value.value >> a.shift & 0xff) == 0)
    a.shift = (uint8_t)(a.shift + 8);
  address(p, masked, &a);
  if (v->to->address != NULL) v->to->address(p, v->to->user, at, &a, v->bytes);
}

static void values(struct parser *p, struct values *v, int depth) {
  if (depth > 8) ptx_fail(p, PTX_INVALID, "an initialiser is nested too deep");
  if (!ptx_accept(p, '{')) {
    initial_value(p, v);
    return;
  }
  if (ptx_accept(p, '}')) return;
  do values(p, v, depth + 1);
  while (ptx_accept(p, ','));
  ptx_expect(p, '}');
}

void ptx_initial_values(struct parser *p, uint64_t size, enum ptx_type type, const struct ptx_initial *to) {
  struct values v = {.size = size, .type = type, .bytes = ptx_type_bytes(type), .to = to};
  if (v.bytes > 8) ptx_fail(p, PTX_UNSUPPORTED, "initial values of %u bytes", v.bytes);
  values(p, &v, 0);
}

void ptx_close_dimension(struct parser *p, struct ptx_declaration *d) {
  const char *at = p->at;
  uint32_t line = p->line;
  static const struct ptx_initial nobody = {0};
  struct values v = {.size = UINT64_MAX, .type = d->type, .bytes = ptx_type_bytes(d->type), .to = &nobody};
  values(p, &v, 0);
  p->at = at;
  p->line = line;
  d->open = false;
  uint64_t row = ptx_declared_bytes(d);
  if (row == 0) ptx_fail(p, PTX_INVALID, "'%.*s' has no size", (int)d->name.length, d->name.text);
  d->count *= (v.at + row - 1) / row;
  if (d->count > (uint64_t)1 << 40)
    ptx_fail(p, PTX_INVALID, "'%.*s' is too large", (int)d->name.length, d->name.text);
}
