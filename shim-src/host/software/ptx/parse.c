/* Modules: directives, variables, functions, statements. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/software/ptx/parser.h"

#define MAX_TEXT ((size_t)256 << 20)
#define MAX_DATA ((uint64_t)256 << 20)
#define MAX_SHARED (228u << 10)
#define MAX_PARAMETERS 32764u

struct declaration {
  enum ptx_type type;
  uint32_t vector; /* 1, 2, 4 */
  uint64_t alignment;
  struct word name;
  uint64_t count; /* elements; 0: open array */
  bool opaque, range;
  uint32_t range_count;
};

static uint64_t power_of_two(struct parser *p, int64_t value) {
  if (value <= 0 || value > 65536 || (value & (value - 1)) != 0) {
    ptx_fail(p, PTX_INVALID, "an alignment of %lld", (long long)value);
  }
  return (uint64_t)value;
}

/* Type and attributes, up to the name. */
static void type_of_declaration(struct parser *p, struct declaration *d) {
  *d = (struct declaration){.vector = 1};
  for (;;) {
    ptx_skip(p);
    const char *before = p->at;
    struct word word = ptx_word(p);
    if (word.length == 0 || word.text[0] != '.') {
      p->at = before;
      break;
    }
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

static void name_of_declaration(struct parser *p, struct declaration *d) {
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

static uint64_t bytes_of(const struct declaration *d) {
  return d->count * d->vector * ptx_type_bytes(d->type);
}

static uint64_t alignment_of(const struct declaration *d) {
  uint64_t natural = d->vector * ptx_type_bytes(d->type);
  if (natural == 0) natural = 1;
  return d->alignment > 0 ? d->alignment : natural;
}

static void grow_data(struct parser *p, uint64_t end) {
  struct ptx_module *m = p->module;
  if (end > MAX_DATA)
    ptx_fail(p, PTX_UNSUPPORTED, "variables of more than %llu bytes", (unsigned long long)MAX_DATA);
  if (end > m->data_room) {
    uint64_t room = m->data_room == 0 ? 4096 : m->data_room;
    while (room < end) room *= 2;
    unsigned char *larger = ptx_take(p, room);
    if (m->data_bytes > 0) memcpy(larger, m->data, m->data_bytes);
    m->data = larger;
    m->data_room = room;
  }
  if (end > m->data_bytes) m->data_bytes = end;
}

static void *module_room(struct parser *p, void *array, uint32_t count, uint32_t *room, size_t size) {
  if (count < *room) return array;
  uint32_t more = *room == 0 ? 16 : *room * 2;
  void *larger = ptx_take(p, more * size);
  if (count > 0) memcpy(larger, array, count * size);
  *room = more;
  return larger;
}

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
        module_room(p, m->relocations, m->relocation_count, &m->relocation_room, sizeof *m->relocations);
    m->relocations[m->relocation_count++] = (struct ptx_data){
        .offset = at, .addend = s->offset + (uint64_t)addend, .bytes = (uint8_t)bytes, .shift = shift};
  } else {
    ptx_fail(p, PTX_UNSUPPORTED, "the address of '%.*s' as an initial value", (int)word.length, word.text);
  }
}

static uint64_t initial_values(struct parser *p, uint64_t at, uint64_t end, enum ptx_type type, int depth) {
  if (depth > 8) ptx_fail(p, PTX_INVALID, "an initialiser is nested too deep");
  uint32_t bytes = ptx_type_bytes(type);
  if (!ptx_accept(p, '{')) {
    initial_value(p, at, end, type);
    return at + bytes;
  }
  if (ptx_accept(p, '}')) return at;
  do at = initial_values(p, at, end, type, depth + 1);
  while (ptx_accept(p, ','));
  ptx_expect(p, '}');
  return at;
}

/* Elements of an initialiser, for arrays whose size is left open. */
static uint64_t count_initial(struct parser *p) {
  uint64_t count = 1;
  for (const char *at = p->at; at < p->end && *at != ';'; at++) {
    if (*at == ',') count++;
  }
  return count;
}

static void global_variable(struct parser *p, bool external, bool constant) {
  struct declaration d;
  type_of_declaration(p, &d);
  struct ptx_module *m = p->module;
  do {
    name_of_declaration(p, &d);
    bool initialised = ptx_accept(p, '=');
    if (d.opaque) {
      ptx_define(p, d.name, SYM_OPAQUE);
      while (p->at < p->end && *p->at != ';') p->at++;
      break;
    }
    if (d.count == 0 && initialised) d.count = (count_initial(p) + d.vector - 1) / d.vector;
    uint64_t alignment = alignment_of(&d), size = bytes_of(&d);
    struct symbol *s = ptx_find(p, d.name);
    if (s == NULL || s->kind != SYM_GLOBAL || s->scope != p->scope) {
      s = ptx_define(p, d.name, SYM_GLOBAL);
      s->constant = constant;
      s->number = m->global_count;
      s->offset = (m->data_bytes + alignment - 1) / alignment * alignment;
      s->size = size;
      grow_data(p, s->offset + size);
      m->globals = module_room(p, m->globals, m->global_count, &m->global_room, sizeof *m->globals);
      m->globals[m->global_count++] =
          (struct ptx_global_info){.name = ptx_intern(p, d.name), .offset = s->offset, .size = size};
    } else if (size > s->size) {
      ptx_fail(p, PTX_INVALID, "'%.*s' is declared twice with different sizes", (int)d.name.length,
               d.name.text);
    }
    if (initialised) initial_values(p, s->offset, s->offset + s->size, d.type, 0);
    (void)external;
  } while (ptx_accept(p, ','));
  ptx_expect(p, ';');
}

static void shared_variable(struct parser *p, bool external) {
  struct declaration d;
  type_of_declaration(p, &d);
  do {
    name_of_declaration(p, &d);
    if (external || d.count == 0) {
      if (ptx_find(p, d.name) == NULL) ptx_define(p, d.name, SYM_SHARED_EXTERN)->size = alignment_of(&d);
      continue;
    }
    uint64_t alignment = alignment_of(&d), size = bytes_of(&d);
    uint64_t from = p->function == NULL ? p->module_shared : p->shared_bytes;
    from = (from + alignment - 1) / alignment * alignment;
    if (size > MAX_SHARED ||
        from + size > (p->function == NULL ? 64u << 20 : MAX_SHARED + p->module_shared)) {
      ptx_fail(p, PTX_UNSUPPORTED, "shared variables of more than %u bytes", MAX_SHARED);
    }
    struct symbol *s = ptx_define(p, d.name, SYM_SHARED);
    s->offset = from;
    s->size = size;
    if (p->function == NULL) p->module_shared = (uint32_t)(from + size);
    else p->shared_bytes = (uint32_t)(from + size);
  } while (ptx_accept(p, ','));
  ptx_expect(p, ';');
}

static void local_variable(struct parser *p) {
  struct declaration d;
  type_of_declaration(p, &d);
  do {
    name_of_declaration(p, &d);
    uint64_t alignment = alignment_of(&d), size = bytes_of(&d);
    uint64_t from = (p->local_bytes + alignment - 1) / alignment * alignment;
    if (from + size > (512u << 10))
      ptx_fail(p, PTX_UNSUPPORTED, "more than 512 KiB of local memory a thread");
    struct symbol *s = ptx_define(p, d.name, SYM_LOCAL);
    s->offset = from;
    s->size = size;
    p->local_bytes = (uint32_t)(from + size);
  } while (ptx_accept(p, ','));
  ptx_expect(p, ';');
}

static void registers(struct parser *p) {
  struct declaration d;
  type_of_declaration(p, &d);
  if (d.vector != 1 || d.type == T_B128) ptx_fail(p, PTX_UNSUPPORTED, "vector and 128-bit registers");
  uint8_t bytes = (uint8_t)ptx_type_bytes(d.type);
  if (bytes == 1) bytes = 2;
  do {
    name_of_declaration(p, &d);
    uint32_t count = d.range ? d.range_count : 1;
    if (p->register_count + count > MAX_REGISTERS) {
      ptx_fail(p, PTX_UNSUPPORTED, "more than %d registers in a function", MAX_REGISTERS);
    }
    struct symbol *s = ptx_define(p, d.name, d.range ? SYM_REGISTERS : SYM_REGISTER);
    s->type = (uint8_t)d.type;
    s->number = p->register_count;
    s->count = count;
    for (uint32_t i = 0; i < count; i++) ptx_new_register(p, bytes);
  } while (ptx_accept(p, ','));
  ptx_expect(p, ';');
}

/* A .param of a call sequence, or of a function: lane-major in the frame. */
static struct symbol *frame_parameter(struct parser *p, const struct declaration *d) {
  uint64_t size = bytes_of(d);
  if (size > MAX_PARAMETERS)
    ptx_fail(p, PTX_UNSUPPORTED, "a parameter of %llu bytes", (unsigned long long)size);
  size = (size + 15) / 16 * 16;
  if (p->frame_params + size * PTX_LANES > (16u << 20))
    ptx_fail(p, PTX_UNSUPPORTED, "too many parameters in a function");
  struct symbol *s = ptx_define(p, d->name, SYM_PARAM);
  s->type = (uint8_t)d->type;
  s->offset = p->frame_params;
  s->size = size;
  p->frame_params += (uint32_t)(size * PTX_LANES);
  return s;
}

static void parameter_variable(struct parser *p) {
  struct declaration d;
  type_of_declaration(p, &d);
  do {
    name_of_declaration(p, &d);
    frame_parameter(p, &d);
  } while (ptx_accept(p, ','));
  ptx_expect(p, ';');
}

/* Parameters of a function or kernel, in parentheses. With `define`, their names are made known. */
static void parameter_list(struct parser *p, struct ptx_function *f, bool define) {
  struct ptx_parameter *list = NULL;
  uint32_t room = 0, count = 0;
  uint32_t *place = NULL, place_room = 0;
  if (f->parameter_count > 0) {
    /* the return values, read before */
    for (count = 0; count < f->parameter_count; count++) {
      list = ptx_room(p, list, count, &room, sizeof *list);
      list[count] = f->parameters[count];
      place = ptx_room(p, place, count, &place_room, sizeof *place);
      place[count] = f->parameter_place[count];
    }
  }
  if (!ptx_accept(p, ')')) {
    do {
      struct word space = ptx_need_word(p, ".param");
      if (!ptx_word_is(space, ".param")) {
        ptx_fail(p, PTX_UNSUPPORTED, "a parameter in '%.*s'", (int)space.length, space.text);
      }
      struct declaration d;
      type_of_declaration(p, &d);
      name_of_declaration(p, &d);
      list = ptx_room(p, list, count, &room, sizeof *list);
      place = ptx_room(p, place, count, &place_room, sizeof *place);
      uint64_t size = bytes_of(&d);
      if (f->entry) {
        uint64_t alignment = alignment_of(&d);
        uint64_t offset = (f->parameter_bytes + alignment - 1) / alignment * alignment;
        if (size > MAX_PARAMETERS || offset + size > MAX_PARAMETERS) {
          ptx_fail(p, PTX_UNSUPPORTED, "more than %u bytes of parameters", MAX_PARAMETERS);
        }
        list[count] = (struct ptx_parameter){(uint32_t)offset, (uint32_t)size};
        place[count] = 0;
        f->parameter_bytes = (uint32_t)(offset + size);
        if (define) {
          struct symbol *s = ptx_define(p, d.name, SYM_KERNEL_PARAM);
          s->offset = offset;
          s->size = size;
        }
      } else if (define) {
        struct symbol *s = frame_parameter(p, &d);
        list[count] = (struct ptx_parameter){0, (uint32_t)s->size};
        place[count] = (uint32_t)s->offset;
      } else {
        if (size > MAX_PARAMETERS)
          ptx_fail(p, PTX_UNSUPPORTED, "a parameter of %llu bytes", (unsigned long long)size);
        list[count] = (struct ptx_parameter){0, (uint32_t)((size + 15) / 16 * 16)};
        place[count] = 0;
      }
      count++;
      ptx_accept(p, ' ');
    } while (ptx_accept(p, ','));
    ptx_expect(p, ')');
  }
  f->parameters = ptx_take(p, count * sizeof *list);
  f->parameter_place = ptx_take(p, count * sizeof *place);
  for (uint32_t i = 0; i < count; i++) {
    f->parameters[i] = list[i];
    f->parameter_place[i] = place[i];
  }
  f->parameter_count = count;
}

static void three(struct parser *p, uint32_t to[3]) {
  for (int i = 0; i < 3; i++) to[i] = 1;
  for (int i = 0; i < 3; i++) {
    int64_t value = ptx_integer(p);
    if (value < 0 || value > 1 << 30) ptx_fail(p, PTX_INVALID, "a dimension of %lld", (long long)value);
    to[i] = (uint32_t)value;
    if (!ptx_accept(p, ',')) return;
  }
}

static void function_directives(struct parser *p, struct ptx_function *f) {
  for (;;) {
    ptx_skip(p);
    const char *before = p->at;
    struct word word = ptx_word(p);
    if (word.length == 0 || word.text[0] != '.') {
      p->at = before;
      return;
    }
    uint32_t sizes[3];
    if (ptx_word_is(word, ".maxntid")) {
      three(p, sizes);
      uint64_t threads = (uint64_t)sizes[0] * sizes[1] * sizes[2];
      if (threads > 0 && threads < f->max_threads) f->max_threads = (uint16_t)threads;
    } else if (ptx_word_is(word, ".reqntid")) {
      three(p, f->reqntid);
    } else if (ptx_word_is(word, ".reqnctapercluster")) {
      three(p, sizes);
      if (sizes[0] * sizes[1] * sizes[2] != 1)
        ptx_fail(p, PTX_UNSUPPORTED, "clusters of more than one block");
    } else if (ptx_word_is(word, ".minnctapersm") || ptx_word_is(word, ".maxnctapersm") ||
               ptx_word_is(word, ".maxnreg") || ptx_word_is(word, ".maxclusterrank")) {
      ptx_integer(p);
    } else if (ptx_word_is(word, ".pragma")) {
      ptx_string(p);
      ptx_expect(p, ';');
    } else if (!ptx_word_is(word, ".noreturn") && !ptx_word_is(word, ".explicitcluster") &&
               !ptx_word_is(word, ".blocksareclusters")) {
      ptx_fail(p, PTX_UNSUPPORTED, "'%.*s' of a function", (int)word.length, word.text);
    }
  }
}

static void location(struct parser *p) {
  while (p->at < p->end && *p->at != '\n') p->at++;
}

static void prototype(struct parser *p, struct word name) {
  /* name: .callprototype (returns) _ (parameters): the callee itself says it all. */
  ptx_define(p, name, SYM_PROTOTYPE);
  while (p->at < p->end && *p->at != ';') {
    if (*p->at == '\n') p->line++;
    p->at++;
  }
  ptx_expect(p, ';');
}

static void label_list(struct parser *p, struct word name, bool functions) {
  struct symbol *s = ptx_define(p, name, functions ? SYM_PROTOTYPE : SYM_TARGETS);
  s->number = p->x_count;
  do {
    struct word label = ptx_need_word(p, "a label");
    if (functions) continue;
    p->x = ptx_room(p, p->x, p->x_count, &p->x_room, sizeof *p->x);
    struct fixup *fixup = ptx_scratch(p, sizeof *fixup);
    *fixup = (struct fixup){
        .next = p->fixups, .name = label, .line = p->line, .x = p->x_count + 1, .scope = (uint8_t)p->scope};
    p->fixups = fixup;
    p->x_count++;
    s->count++;
  } while (ptx_accept(p, ','));
  ptx_expect(p, ';');
}

static void parts_of_mnemonic(struct parser *p) {
  ptx_skip(p);
  const char *from = p->at;
  p->mnemonic = from;
  p->mnemonic_line = p->line;
  p->part_count = 0;
  const char *start = from;
  for (;; p->at++) {
    char c = p->at < p->end ? *p->at : 0;
    bool word =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':';
    if (word) continue;
    if (p->part_count >= MAX_PARTS)
      ptx_fail(p, PTX_INVALID, "'%.*s' has too many modifiers", ptx_some(p, from, 40), from);
    p->parts[p->part_count++] = (struct word){start, (uint32_t)(p->at - start)};
    if (c != '.') break;
    start = p->at + 1;
  }
  p->mnemonic_length = (uint32_t)(p->at - from);
  if (p->mnemonic_length == 0)
    ptx_fail(p, PTX_INVALID, "an instruction expected before '%.*s'", ptx_some(p, from, 12), from);
}

static void instruction(struct parser *p) {
  p->guard = 0;
  if (ptx_accept(p, '@')) {
    bool negated = ptx_accept(p, '!');
    p->mnemonic = "a guard";
    p->mnemonic_length = 7;
    struct operand guard = {0};
    p->operand_count = 0;
    struct word word = ptx_need_word(p, "a predicate");
    struct symbol *s = ptx_find(p, word);
    uint32_t digits = word.length;
    while (digits > 1 && word.text[digits - 1] >= '0' && word.text[digits - 1] <= '9') digits--;
    if (s != NULL && s->kind == SYM_REGISTER) {
      guard.number = s->number;
      guard.type = s->type;
    } else {
      s = ptx_find(p, (struct word){word.text, digits});
      uint32_t number = 0;
      if (word.length - digits > 7) s = NULL;
      for (uint32_t i = digits; s != NULL && i < word.length; i++)
        number = number * 10 + (uint32_t)(word.text[i] - '0');
      if (s == NULL || s->kind != SYM_REGISTERS || number >= s->count || digits == word.length) {
        ptx_fail(p, PTX_INVALID, "'%.*s' is no predicate", (int)word.length, word.text);
      }
      guard.number = s->number + number;
      guard.type = s->type;
    }
    if (guard.type != T_PRED) ptx_fail(p, PTX_INVALID, "'%.*s' is no predicate", (int)word.length, word.text);
    p->guard = guard.number << 2 | (negated ? 2u : 0u) | 1u;
  }
  parts_of_mnemonic(p);
  if (ptx_word_is(p->parts[0], "bra")) {
    /* its label may come later */
    ptx_branch(p, ptx_need_word(p, "a label"));
    ptx_expect(p, ';');
  } else {
    ptx_parse_operands(p);
    ptx_decode(p);
  }
  p->mnemonic = NULL;
}

static void directive(struct parser *p, struct word word) {
  if (ptx_word_is(word, ".reg")) registers(p);
  else if (ptx_word_is(word, ".local")) local_variable(p);
  else if (ptx_word_is(word, ".shared")) shared_variable(p, false);
  else if (ptx_word_is(word, ".param")) parameter_variable(p);
  else if (ptx_word_is(word, ".global")) global_variable(p, false, false);
  else if (ptx_word_is(word, ".const")) global_variable(p, false, true);
  else if (ptx_word_is(word, ".loc")) location(p);
  else if (ptx_word_is(word, ".pragma")) {
    ptx_string(p);
    ptx_expect(p, ';');
  } else {
    ptx_fail(p, PTX_UNSUPPORTED, "'%.*s' in a function", (int)word.length, word.text);
  }
}

static void statement(struct parser *p, uint32_t *depth) {
  if (ptx_accept(p, '{')) {
    ptx_open_scope(p);
    ++*depth;
    return;
  }
  if (ptx_accept(p, '}')) {
    if (*depth > 1) ptx_close_scope(p);
    --*depth;
    return;
  }
  if (ptx_accept(p, ';')) return;
  ptx_skip(p);
  if (p->at < p->end && *p->at == '@' && p->end - p->at > 1 && p->at[1] == '@') {
    location(p);
    return;
  }
  const char *before = p->at;
  if (p->at < p->end && *p->at != '@') {
    struct word word = ptx_word(p);
    if (word.length > 0 && word.text[0] == '.') {
      directive(p, word);
      return;
    }
    ptx_skip(p);
    if (word.length > 0 && p->at < p->end && *p->at == ':' && !(p->end - p->at > 1 && p->at[1] == ':')) {
      p->at++;
      ptx_skip(p);
      const char *after = p->at;
      struct word next = ptx_word(p);
      if (ptx_word_is(next, ".callprototype")) prototype(p, word);
      else if (ptx_word_is(next, ".branchtargets")) label_list(p, word, false);
      else if (ptx_word_is(next, ".calltargets")) label_list(p, word, true);
      else {
        p->at = after;
        struct symbol *s = ptx_define(p, word, SYM_LABEL);
        s->number = p->code_count;
        p->code = ptx_room(p, p->code, p->code_count, &p->code_room, sizeof *p->code);
        p->code[p->code_count++] = (struct ptx_instruction){
            .kind = K_LABEL, .line = p->line, .d = PTX_NONE, .a = PTX_NONE, .b = PTX_NONE, .c = PTX_NONE};
      }
      return;
    }
    p->at = before;
  }
  instruction(p);
}

static void body(struct parser *p, struct ptx_function *f) {
  uint32_t depth = 1;
  while (depth > 0) {
    ptx_skip(p);
    if (p->at >= p->end) ptx_fail(p, PTX_INVALID, "the text ends within %s", f->name);
    statement(p, &depth);
  }
}

static struct ptx_function *function_named(struct parser *p, struct word name, bool entry) {
  struct ptx_module *m = p->module;
  struct symbol *s = ptx_find(p, name);
  if (s != NULL) {
    if (s->kind != SYM_FUNCTION)
      ptx_fail(p, PTX_INVALID, "'%.*s' is no function", (int)name.length, name.text);
    return m->functions[s->number];
  }
  s = ptx_define(p, name, SYM_FUNCTION);
  s->number = m->function_count;
  struct ptx_function *f = ptx_take(p, sizeof *f);
  f->name = ptx_intern(p, name);
  f->entry = entry;
  f->max_threads = 1024;
  m->functions = module_room(p, m->functions, m->function_count, &m->function_room, sizeof *m->functions);
  m->functions[m->function_count++] = f;
  return f;
}

static void function(struct parser *p, bool entry, bool external) {
  /* The return values come before the name: where they lie in the frame is known when there is a body. */
  const char *returns = NULL;
  uint32_t returns_line = 0;
  if (!entry && ptx_accept(p, '(')) {
    returns = p->at;
    returns_line = p->line;
    while (p->at < p->end && *p->at != ')') {
      if (*p->at == '\n') p->line++;
      p->at++;
    }
    ptx_expect(p, ')');
  }
  struct ptx_function *f = function_named(p, ptx_need_word(p, "a name"), entry);
  f->line = p->line;
  const char *parameters = NULL;
  uint32_t parameters_line = p->line;
  if (ptx_accept(p, '(')) {
    parameters = p->at;
    parameters_line = p->line;
    while (p->at < p->end && *p->at != ')') {
      if (*p->at == '\n') p->line++;
      p->at++;
    }
    ptx_expect(p, ')');
  }
  function_directives(p, f);
  bool prototype_only = ptx_accept(p, ';');
  (void)external;
  if (!prototype_only) ptx_expect(p, '{');
  if (f->defined && !prototype_only) ptx_fail(p, PTX_INVALID, "'%s' is defined twice", f->name);
  if (f->defined) return;
  const char *resume = p->at;
  uint32_t resume_line = p->line;
  if (!prototype_only) {
    f->defined = true;
    ptx_begin_function(p, f);
  } else {
    ptx_open_scope(p);
  }
  f->parameter_count = f->return_count = f->parameter_bytes = 0;
  if (returns != NULL) {
    p->at = returns;
    p->line = returns_line;
    parameter_list(p, f, !prototype_only);
    f->return_count = f->parameter_count;
  }
  if (parameters != NULL) {
    p->at = parameters;
    p->line = parameters_line;
    parameter_list(p, f, !prototype_only);
  }
  p->at = resume;
  p->line = resume_line;
  if (prototype_only) {
    ptx_close_scope(p);
    return;
  }
  body(p, f);
  ptx_finish_function(p);
}

static void skip_section(struct parser *p) {
  ptx_word(p);
  ptx_skip(p);
  while (p->at < p->end && *p->at != '{') p->at++;
  ptx_expect(p, '{');
  uint32_t depth = 1;
  while (depth > 0 && p->at < p->end) {
    char c = *p->at++;
    if (c == '\n') p->line++;
    else if (c == '{') depth++;
    else if (c == '}') depth--;
  }
}

static void target(struct parser *p) {
  struct word word = ptx_need_word(p, "a target");
  if (word.length < 4 || memcmp(word.text, "sm_", 3) != 0) {
    ptx_fail(p, PTX_UNSUPPORTED, "the target '%.*s'", (int)word.length, word.text);
  }
  uint32_t number = 0;
  for (uint32_t i = 3; i < word.length && i < 7; i++) {
    if (word.text[i] >= '0' && word.text[i] <= '9') number = number * 10 + (uint32_t)(word.text[i] - '0');
  }
  p->module->target = number;
  while (ptx_accept(p, ',')) ptx_need_word(p, "an option of the target");
  if (p->module->device > 0 && number > p->module->device) {
    ptx_fail(p, PTX_UNSUPPORTED, "the module is for sm_%u, this device is sm_%u", number, p->module->device);
  }
}

static void version(struct parser *p) {
  struct operand number = {0};
  if (!ptx_number(p, &number)) ptx_fail(p, PTX_INVALID, "a version expected");
  double value = (double)number.value;
  if (number.kind == O_FLOAT) memcpy(&value, &number.value, sizeof value);
  if (!(value >= 1.0 && value < 10.0)) ptx_fail(p, PTX_UNSUPPORTED, "PTX version %g", value);
  p->module->version = (uint32_t)(value * 10.0 + 0.5);
}

static void top_level(struct parser *p) {
  struct word word = ptx_need_word(p, "a directive");
  bool external = false;
  while (ptx_word_is(word, ".extern") || ptx_word_is(word, ".visible") || ptx_word_is(word, ".weak") ||
         ptx_word_is(word, ".common")) {
    if (ptx_word_is(word, ".extern")) external = true;
    word = ptx_need_word(p, "a directive");
  }
  if (ptx_word_is(word, ".version")) version(p);
  else if (ptx_word_is(word, ".target")) target(p);
  else if (ptx_word_is(word, ".address_size")) {
    if (ptx_integer(p) != 64) ptx_fail(p, PTX_UNSUPPORTED, "addresses of 32 bits");
  } else if (ptx_word_is(word, ".func")) {
    function(p, false, external);
  } else if (ptx_word_is(word, ".entry")) {
    function(p, true, external);
  } else if (ptx_word_is(word, ".global")) {
    global_variable(p, external, false);
  } else if (ptx_word_is(word, ".const")) {
    global_variable(p, external, true);
  } else if (ptx_word_is(word, ".shared")) {
    shared_variable(p, external);
  } else if (ptx_word_is(word, ".file") || ptx_word_is(word, ".loc")) {
    location(p);
  } else if (ptx_word_is(word, ".section")) {
    skip_section(p);
  } else if (ptx_word_is(word, ".pragma")) {
    ptx_string(p);
    ptx_expect(p, ';');
  } else if (ptx_word_is(word, ".alias")) {
    struct word alias = ptx_need_word(p, "a name");
    ptx_expect(p, ',');
    struct word name = ptx_need_word(p, "a name");
    ptx_expect(p, ';');
    struct symbol *s = ptx_find(p, name), *known = ptx_find(p, alias);
    if (s == NULL || s->kind != SYM_FUNCTION)
      ptx_fail(p, PTX_INVALID, "'%.*s' is no function", (int)name.length, name.text);
    if (known == NULL) ptx_define(p, alias, SYM_FUNCTION)->number = s->number;
    else known->number = s->number;
  } else {
    ptx_fail(p, PTX_UNSUPPORTED, "'%.*s' in a module", (int)word.length, word.text);
  }
}

static void module(struct parser *p) {
  for (;;) {
    ptx_skip(p);
    if (p->at >= p->end) break;
    if (*p->at == '@') location(p);
    else top_level(p);
  }
  if (p->module->version == 0) ptx_fail(p, PTX_INVALID, "no .version: this is not PTX");
  if (p->module->target == 0) ptx_fail(p, PTX_INVALID, "no .target");
  ptx_finish_module(p);
}

static bool guarded(struct parser *p) {
  if (setjmp(p->failed) != 0) return false;
  module(p);
  return true;
}

enum ptx_status ptx_module_load(const char *text, size_t length, uint32_t device,
                                struct ptx_module **module_out, char *log, size_t log_size) {
  *module_out = NULL;
  if (log != NULL && log_size > 0) log[0] = 0;
  if (length > MAX_TEXT) return PTX_OUT_OF_MEMORY;
  struct parser *p = calloc(1, sizeof *p);
  struct ptx_module *m = calloc(1, sizeof *m);
  if (p == NULL || m == NULL) {
    free(p);
    free(m);
    return PTX_OUT_OF_MEMORY;
  }
  const char *nul = memchr(text, 0, length);
  p->start = p->at = text;
  p->end = nul == NULL ? text + length : nul;
  p->line = 1;
  p->module = m;
  p->log = log;
  p->log_size = log_size;
  /* Decoded code is about as large as its text; a small text must not ask for much. */
  m->arena.limit = ((size_t)1 << 30) + 16 * length;
  p->scratch.limit = ((size_t)1 << 30) + 16 * length;
  m->device = device;
  bool good = guarded(p);
  enum ptx_status status = good ? PTX_OK : p->status;
  ptx_arena_free(&p->scratch);
  free(p);
  if (!good) {
    ptx_module_free(m);
    return status;
  }
  *module_out = m;
  return PTX_OK;
}

void ptx_module_free(struct ptx_module *module) {
  if (module == NULL) return;
  ptx_arena_free(&module->arena);
  free(module);
}
