#include "host/backend/software/ptx/text/parse.h"

void ptx_skip_line(struct parser *p) {
  while (p->at < p->end && *p->at != '\n') p->at++;
}

static void prototype(struct parser *p, struct word name) {
  /* The callee itself has what a prototype says. */
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

/* Blanks and comments may stand before the dot of a modifier, but not behind it. */
static bool modifier_follows(struct parser *p) {
  ptx_skip(p);
  if (p->end - p->at < 2 || p->at[0] != '.') return false;
  char c = p->at[1];
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static void parts_of_mnemonic(struct parser *p) {
  ptx_skip(p);
  const char *from = p->at;
  p->mnemonic = from;
  p->mnemonic_line = p->line;
  p->mnemonic_length = 0;
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
    if (c != '.') {
      /* Messages quote the mnemonic up to the first blank. */
      if (p->mnemonic_length == 0) p->mnemonic_length = (uint32_t)(p->at - from);
      if (p->at == from || !modifier_follows(p)) break;
    }
    start = p->at + 1;
  }
  if (p->mnemonic_length == 0)
    ptx_fail(p, PTX_INVALID, "an instruction expected before '%.*s'", ptx_some(p, from, 12), from);
}

static void place_label(struct parser *p) {
  p->code = ptx_room(p, p->code, p->code_count, &p->code_room, sizeof *p->code);
  p->code[p->code_count++] = (struct ptx_instruction){
      .kind = K_LABEL, .line = p->line, .d = PTX_NONE, .a = PTX_NONE, .b = PTX_NONE, .c = PTX_NONE};
}

/* Lanes may meet right after a guarded branch without a label in the text. flow.c removes unused labels. */
static void label_after_branch(struct parser *p) {
  if (p->code_count == 0) return;
  const struct ptx_instruction *last = &p->code[p->code_count - 1];
  if (last->guard != 0 && (last->kind == K_BRA || last->kind == K_BRX)) place_label(p);
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
    if (!ptx_find_register(p, word, &guard) || guard.type != T_PRED)
      ptx_fail(p, PTX_INVALID, "'%.*s' is no predicate", (int)word.length, word.text);
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
  label_after_branch(p);
  p->mnemonic = NULL;
}

static void directive(struct parser *p, struct word word) {
  if (ptx_function_variable(p, word)) return;
  if (ptx_word_is(word, ".shared")) ptx_shared_variable(p, false);
  else if (ptx_word_is(word, ".global")) ptx_global_variable(p, false);
  else if (ptx_word_is(word, ".const")) ptx_global_variable(p, true);
  else if (ptx_word_is(word, ".loc")) ptx_skip_line(p);
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
    ptx_skip_line(p);
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
        place_label(p);
      }
      return;
    }
    p->at = before;
  }
  instruction(p);
}

void ptx_body(struct parser *p, const struct ptx_function *f) {
  uint32_t depth = 1;
  while (depth > 0) {
    ptx_skip(p);
    if (p->at >= p->end) ptx_fail(p, PTX_INVALID, "the text ends within %s", f->name);
    statement(p, &depth);
  }
}
