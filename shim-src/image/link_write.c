#include "image/link_text.h"

#include <stdio.h>
#include <stdlib.h>

static bool has_name(const struct names *names, struct piece name) {
  for (size_t i = 0; i < names->count; i++) {
    if (same(names->list[i], name)) return true;
  }
  return false;
}

static bool put(struct linker *linker, struct piece piece) {
  if (linker->length + piece.length + 1 > linker->room) {
    size_t room = (linker->length + piece.length + 1) * 2;
    char *grown = realloc(linker->out, room);
    if (grown == NULL) return vgpu_link_fail(linker, "no memory");
    linker->out = grown;
    linker->room = room;
  }
  memcpy(linker->out + linker->length, piece.at, piece.length);
  linker->length += piece.length;
  linker->out[linker->length] = '\0';
  return true;
}

static bool put_text(struct linker *linker, const char *text) {
  return put(linker, (struct piece){text, strlen(text)});
}

/*
 * Writes a statement token by token, with the spaces between them. A declaration whose definition is among
 * the texts is no longer external.
 */
static bool put_statement(struct linker *linker, const struct statement *statement) {
  const char *at = statement->all.at, *end = at + statement->all.length, *done = at;
  bool resolved = statement->linkage == EXTERNAL && vgpu_link_definition(linker, statement) != NULL;
  bool good = true;
  while (good && at < end) {
    struct piece token = vgpu_link_token(&at, end);
    if (token.length == 0) break;
    good = put(linker, (struct piece){done, (size_t)(token.at - done)});
    done = at;
    if (is(token, ".loc")) {
      vgpu_link_rest_of_line(token.at, &at, end);
      done = at;
    } else if (resolved && is(token, ".extern")) {
      good = good && put_text(linker, vgpu_link_definition(linker, statement)->linkage == WEAK ? ".weak"
                                                                                               : ".visible");
    } else {
      good = good && put(linker, token);
      if (good && is_name_byte(token.at[0]) && has_name(&linker->renamed[statement->text], token)) {
        char suffix[32];
        snprintf(suffix, sizeof suffix, "__text%zu", statement->text);
        good = put_text(linker, suffix);
      }
    }
  }
  return good && put_text(linker, "\n");
}

enum { NOT_SEEN, ON_PATH, WRITTEN };

/* A variable on the path to the next one to write, and how far its text was searched. */
struct step {
  size_t statement;
  const char *at;
};

/*
 * Returns the next variable that the step's initialiser names and that was not visited; linker->count: none.
 */
static size_t next_named(const struct linker *linker, struct step *step, const unsigned char *states) {
  const struct statement *statement = &linker->statements[step->statement];
  const char *end = statement->all.at + statement->all.length;
  while (step->at < end) {
    const char *behind = step->at;
    struct piece token = vgpu_link_token(&behind, end);
    if (token.length == 0) break;
    if (is_name_byte(token.at[0]) && !isdigit((unsigned char)token.at[0])) {
      for (size_t i = 0; i < linker->count; i++) {
        const struct statement *other = &linker->statements[i];
        /* The same token again: other texts may have variables of that name. */
        if (states[i] == NOT_SEEN && other->kind == VARIABLE && !other->left_out && same(other->name, token))
          return i;
      }
    }
    step->at = behind;
  }
  return linker->count;
}

static struct step begin_step(const struct linker *linker, size_t statement, unsigned char *states) {
  const struct piece *all = &linker->statements[statement].all;
  const char *equals = memchr(all->at, '=', all->length);
  states[statement] = ON_PATH;
  return (struct step){.statement = statement, .at = equals == NULL ? all->at + all->length : equals};
}

/*
 * Writes each variable after those that its initialiser names, because GCC's texts name variables that a
 * later text defines. If variables name each other in a circle, one of them comes before a variable that it
 * names.
 */
static bool put_variables(struct linker *linker) {
  unsigned char *states = calloc(linker->count + 1, sizeof *states);
  struct step *path = calloc(linker->count + 1, sizeof *path);
  bool good = states != NULL && path != NULL;
  if (!good) vgpu_link_fail(linker, "no memory");
  for (size_t first = 0; good && first < linker->count; first++) {
    const struct statement *statement = &linker->statements[first];
    if (statement->kind != VARIABLE || statement->left_out || states[first] != NOT_SEEN) continue;
    size_t length = 0;
    path[length++] = begin_step(linker, first, states);
    while (good && length > 0) {
      struct step *step = &path[length - 1];
      size_t named = next_named(linker, step, states);
      if (named < linker->count) {
        path[length++] = begin_step(linker, named, states);
        continue;
      }
      good = put_statement(linker, &linker->statements[step->statement]);
      states[step->statement] = WRITTEN;
      length--;
    }
  }
  free(states);
  free(path);
  return good;
}

bool vgpu_link_put_kind(struct linker *linker, enum kind kind) {
  if (kind == VARIABLE) return put_variables(linker);
  for (size_t i = 0; i < linker->count; i++) {
    const struct statement *statement = &linker->statements[i];
    if (statement->kind != kind || statement->left_out) continue;
    if (!put_statement(linker, statement)) return false;
  }
  return true;
}

/* The line with the largest number after `word`: "7.8" counts as 708, "sm_90a" as 90. */
bool vgpu_link_put_header(struct linker *linker, const char *word) {
  const struct statement *best = NULL;
  unsigned most = 0;
  for (size_t i = 0; i < linker->count; i++) {
    const struct statement *statement = &linker->statements[i];
    size_t length = strlen(word);
    if (statement->kind != HEADER || statement->all.length <= length ||
        memcmp(statement->all.at, word, length) != 0) {
      continue;
    }
    unsigned value = 0, part = 0;
    for (size_t j = length; j < statement->all.length && statement->all.at[j] != ','; j++) {
      char c = statement->all.at[j];
      if (isdigit((unsigned char)c) && part < 10000) part = part * 10 + (unsigned)(c - '0');
      if (c != '.') continue;
      value = part * 100;
      part = 0;
    }
    value += part;
    if (best != NULL && value <= most) continue;
    best = statement;
    most = value;
  }
  return best == NULL || put_statement(linker, best);
}
