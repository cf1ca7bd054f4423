/* Names, with the scopes that braces make. */
#include <string.h>

#include "host/software/ptx/parser.h"

static uint32_t hash_of(struct word name) {
  uint32_t hash = 2166136261u;
  for (uint32_t i = 0; i < name.length; i++) hash = (hash ^ (unsigned char)name.text[i]) * 16777619u;
  return hash;
}

struct symbol *ptx_find(struct parser *p, struct word name) {
  uint32_t hash = hash_of(name);
  for (struct symbol *s = p->buckets[hash % BUCKETS]; s != NULL; s = s->chain) {
    if (s->hash == hash && s->length == name.length && memcmp(s->name, name.text, name.length) == 0) return s;
  }
  return NULL;
}

struct symbol *ptx_define(struct parser *p, struct word name, enum symbol_kind kind) {
  struct symbol *before = ptx_find(p, name);
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
  return s;
}

void ptx_open_scope(struct parser *p) {
  if (p->scope + 1 >= MAX_SCOPES) ptx_fail(p, PTX_INVALID, "braces are nested deeper than %d", MAX_SCOPES);
  p->scope++;
  p->youngest[p->scope] = NULL;
}

/* Branches to labels of this scope are known now; the others may go to labels further out. */
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

void ptx_close_scope(struct parser *p) {
  settle(p);
  /* Youngest first: each is then the head of its chain. */
  for (struct symbol *s = p->youngest[p->scope]; s != NULL; s = s->older) {
    p->buckets[s->hash % BUCKETS] = s->chain;
  }
  p->scope--;
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
