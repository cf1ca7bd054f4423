#include <string.h>

#include "host/backend/software/ptx/text/parser.h"

static uint32_t hash_of(struct word name) {
  uint32_t hash = 2166136261u;
  for (uint32_t i = 0; i < name.length; i++) hash = (hash ^ (unsigned char)name.text[i]) * 16777619u;
  return hash;
}

static struct symbol *next_named(struct symbol *s, struct word name, uint32_t hash) {
  while (s != NULL &&
         (s->hash != hash || s->length != name.length || memcmp(s->name, name.text, name.length) != 0))
    s = s->chain;
  return s;
}

/* Ranges have names of their own: %p<4> declares %p0 to %p3, but not %p. */
static struct symbol *find_kind(struct parser *p, struct word name, bool range) {
  uint32_t hash = hash_of(name);
  struct symbol *s = next_named(p->buckets[hash % BUCKETS], name, hash);
  while (s != NULL && (s->kind == SYM_REGISTERS) != range) s = next_named(s->chain, name, hash);
  return s;
}

struct symbol *ptx_find(struct parser *p, struct word name) {
  return find_kind(p, name, false);
}

/* Finds the innermost range that has the number. A shorter range in an inner scope does not hide it. */
static struct symbol *find_range(struct parser *p, struct word name, uint32_t number) {
  uint32_t hash = hash_of(name);
  struct symbol *s = next_named(p->buckets[hash % BUCKETS], name, hash);
  while (s != NULL && (s->kind != SYM_REGISTERS || number >= s->count)) s = next_named(s->chain, name, hash);
  return s;
}

static bool digit(char c) {
  return c >= '0' && c <= '9';
}

/* True for a symbol that may hide a register of a range: a name such as %p1, declared by itself. */
static bool may_hide(const struct symbol *s) {
  return s->kind != SYM_REGISTERS && digit(s->name[s->length - 1]) &&
         (s->kind == SYM_REGISTER || s->name[0] == '%');
}

bool ptx_find_register(struct parser *p, struct word name, struct operand *to) {
  uint32_t digits = name.length, number = 0;
  while (digits > 1 && digit(name.text[digits - 1])) digits--;
  struct symbol *range = NULL, *single = NULL;
  bool counts = digits < name.length && name.length - digits <= 9 &&
                (name.text[digits] != '0' || name.length - digits == 1);
  if (counts) {
    for (uint32_t i = digits; i < name.length; i++) number = number * 10 + (uint32_t)(name.text[i] - '0');
    range = find_range(p, (struct word){name.text, digits}, number);
  }
  /* Most names are of ranges, and most functions declare no name that could hide one. */
  if (range == NULL || p->hiding > 0 || name.text[0] != '%') single = ptx_find(p, name);
  if (range != NULL && (single == NULL || single->scope <= range->scope)) {
    to->kind = O_REGISTER;
    to->type = range->type;
    to->number = range->number + number;
    return true;
  }
  if (single == NULL || single->kind != SYM_REGISTER) return false;
  to->kind = O_REGISTER;
  to->type = single->type;
  to->number = single->number;
  return true;
}

bool ptx_names_range(struct parser *p, struct word name) {
  while (name.length > 1 && digit(name.text[name.length - 1])) name.length--;
  return find_kind(p, name, true) != NULL;
}

struct symbol *ptx_define(struct parser *p, struct word name, enum symbol_kind kind) {
  struct symbol *before = find_kind(p, name, kind == SYM_REGISTERS);
  if (before != NULL && before->scope == p->scope) {
    ptx_fail(p, PTX_INVALID, "'%.*s' is already defined", (int)name.length, name.text);
  }
  struct symbol *s = p->scope == 0 ? ptx_take(p, sizeof *s) : ptx_scratch(p, sizeof *s);
  s->name = name.text;
  s->length = name.length;
  s->hash = hash_of(name);
  s->kind = (uint8_t)kind;
  s->scope = (uint8_t)p->scope;
  s->chain = p->buckets[s->hash % BUCKETS];
  p->buckets[s->hash % BUCKETS] = s;
  s->older = p->youngest[p->scope];
  p->youngest[p->scope] = s;
  if (may_hide(s)) p->hiding++;
  return s;
}

void ptx_open_scope(struct parser *p) {
  if (p->scope + 1 >= MAX_SCOPES) ptx_fail(p, PTX_INVALID, "braces are nested deeper than %d", MAX_SCOPES);
  p->scope++;
  p->youngest[p->scope] = NULL;
}

/* Resolves branches to labels of this scope. Other branches may go to labels of outer scopes. */
static void settle(struct parser *p) {
  struct fixup **link = &p->fixups;
  while (*link != NULL) {
    struct fixup *fixup = *link;
    if (fixup->scope != p->scope) {
      link = &fixup->next;
      continue;
    }
    struct symbol *label = ptx_find(p, fixup->name);
    if (label != NULL && label->kind == SYM_LABEL) {
      if (fixup->x > 0) p->x[fixup->x - 1] = label->number;
      else p->code[fixup->instruction].target = label->number;
      *link = fixup->next;
    } else if (p->scope <= 1) {
      p->line = fixup->line;
      ptx_fail(p, PTX_INVALID, "no label '%.*s'", (int)fixup->name.length, fixup->name.text);
    } else {
      fixup->scope--;
      link = &fixup->next;
    }
  }
}

static void forget(struct parser *p) {
  /* Youngest first: each is then the head of its chain. */
  for (struct symbol *s = p->youngest[p->scope]; s != NULL; s = s->older) {
    p->buckets[s->hash % BUCKETS] = s->chain;
    if (may_hide(s)) p->hiding--;
  }
  p->scope--;
}

void ptx_close_scope(struct parser *p) {
  settle(p);
  forget(p);
}

void ptx_drop_scopes(struct parser *p) {
  while (p->scope > 0) forget(p);
  p->fixups = NULL;
}

uint32_t ptx_new_register(struct parser *p, uint8_t bytes) {
  if (p->register_count >= MAX_REGISTERS) {
    ptx_fail(p, PTX_UNSUPPORTED, "more than %d registers in a function", MAX_REGISTERS);
  }
  p->registers = ptx_room(p, p->registers, p->register_count, &p->register_room, 1);
  p->registers[p->register_count] = bytes;
  return p->register_count++;
}

const char *ptx_intern(struct parser *p, struct word word) {
  char *copy = ptx_take(p, word.length + 1);
  memcpy(copy, word.text, word.length);
  return copy;
}
