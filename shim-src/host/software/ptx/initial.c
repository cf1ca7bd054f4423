/* First values of variables. */
#include <string.h>

#include "host/software/ptx/parse.h"

static void put_scalar(struct parser *p, uint64_t at, enum ptx_type type, const struct operand *value) {
  uint32_t bytes = ptx_type_bytes(type);
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
  memcpy(p->module->data + at, &bits, bytes);
}

/* One value of an initialiser: a number, the address of a variable or function, generic() or mask() of one.
 */
static void initial_value(struct parser *p, uint64_t at, uint64_t end, enum ptx_type type) {
  uint32_t bytes = ptx_type_bytes(type);
  if (end - at < bytes) ptx_fail(p, PTX_INVALID, "more initial values than elements");
  struct operand value = {0};
  uint8_t shift = 0;
  if (ptx_number(p, &value)) {
    if (ptx_accept(p, '(')) {
      /* 0xFF(name): one byte of an address */
      uint64_t mask = (uint64_t)value.value;
      while (shift < 56 && (mask >> shift & 0xff) == 0) shift = (uint8_t)(shift + 8);
    } else {
      put_scalar(p, at, type, &value);
      return;
    }
  }
  struct word word = ptx_need_word(p, "an initial value");
  bool closing = shift > 0 || value.kind == O_INTEGER;
  int depth = closing ? 1 : 0;
  if (ptx_word_is(word, "generic")) {
    ptx_expect(p, '(');
    depth++;
    word = ptx_need_word(p, "a name");
  }
  struct symbol *s = ptx_find(p, word);
  if (s == NULL) ptx_fail(p, PTX_INVALID, "'%.*s' is not defined", (int)word.length, word.text);
  int64_t addend = 0;
  for (; depth > 0 && ptx_accept(p, ')'); depth--) {
  }
  ptx_skip(p);
  if (p->at < p->end && (*p->at == '+' || *p->at == '-')) {
    bool minus = *p->at++ == '-';
    addend = ptx_integer(p);
    if (minus) addend = (int64_t)(0 - (uint64_t)addend);
  }
  for (; depth > 0; depth--) ptx_expect(p, ')');
  if (s->kind == SYM_FUNCTION) {
    uint64_t address = PTX_FUNCTION_WINDOW + (uint64_t)s->number * 16;
    address >>= shift;
    memcpy(p->module->data + at, &address, bytes);
  } else if (s->kind == SYM_GLOBAL) {
    struct ptx_module *m = p->module;
    m->relocations =
        ptx_module_room(p, m->relocations, m->relocation_count, &m->relocation_room, sizeof *m->relocations);
    m->relocations[m->relocation_count++] = (struct ptx_data){
        .offset = at, .addend = s->offset + (uint64_t)addend, .bytes = (uint8_t)bytes, .shift = shift};
  } else {
    ptx_fail(p, PTX_UNSUPPORTED, "the address of '%.*s' as an initial value", (int)word.length, word.text);
  }
}

static uint64_t values(struct parser *p, uint64_t at, uint64_t end, enum ptx_type type, int depth) {
  if (depth > 8) ptx_fail(p, PTX_INVALID, "an initialiser is nested too deep");
  uint32_t bytes = ptx_type_bytes(type);
  if (!ptx_accept(p, '{')) {
    initial_value(p, at, end, type);
    return at + bytes;
  }
  if (ptx_accept(p, '}')) return at;
  do at = values(p, at, end, type, depth + 1);
  while (ptx_accept(p, ','));
  ptx_expect(p, '}');
  return at;
}

void ptx_initial_values(struct parser *p, uint64_t at, uint64_t end, enum ptx_type type) {
  values(p, at, end, type, 0);
}

uint64_t ptx_count_initial(struct parser *p) {
  uint64_t count = 1;
  for (const char *at = p->at; at < p->end && *at != ';'; at++) {
    if (*at == ',') count++;
  }
  return count;
}
