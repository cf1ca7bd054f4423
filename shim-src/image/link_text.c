#include "image/link_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((format(printf, 2, 3))) bool vgpu_link_fail(struct linker *linker, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(linker->why, linker->why_size, format, arguments);
  va_end(arguments);
  return false;
}

struct piece vgpu_link_token(const char **at, const char *end) {
  while (*at < end && isspace((unsigned char)**at)) (*at)++;
  const char *start = *at, *to = start;
  if (to == end) return (struct piece){to, 0};
  if (end - to >= 2 && to[0] == '/' && to[1] == '/') {
    while (to < end && *to != '\n') to++;
  } else if (end - to >= 2 && to[0] == '/' && to[1] == '*') {
    to += 2;
    while (to < end && !(to[-1] == '*' && to[0] == '/' && to - start >= 3)) to++;
    to += to < end;
  } else if (*to == '"') {
    for (to++; to < end && *to != '"'; to++) to += *to == '\\' && to + 1 < end;
    to += to < end;
  } else {
    to++;
    while ((*start == '.' || is_name_byte(*start)) && to < end && is_name_byte(*to)) to++;
  }
  *at = to;
  return (struct piece){start, (size_t)(to - start)};
}

struct piece vgpu_link_rest_of_line(const char *start, const char **at, const char *end) {
  while (*at < end && **at != '\n') (*at)++;
  return (struct piece){start, (size_t)(*at - start)};
}

static void take_word(struct statement *statement, struct piece word) {
  if (is(word, ".extern")) statement->linkage = EXTERNAL;
  if (is(word, ".visible")) statement->linkage = VISIBLE;
  if (is(word, ".weak") || is(word, ".common")) statement->linkage = WEAK;
  if (is(word, ".func") || is(word, ".entry")) statement->kind = DECLARATION;
  if (is(word, ".entry") && statement->linkage == OF_TEXT) statement->linkage = VISIBLE; /* found by name */
  if (is(word, ".shared")) statement->shared = true;
  if (is(word, ".global") || is(word, ".const") || is(word, ".shared") || is(word, ".local")) {
    statement->kind = VARIABLE;
  }
}

/*
 * Reads a statement that is not a line: up to its semicolon, or to the end of a function's body. Its name is
 * the first word outside parentheses that is not a word of PTX.
 */
static bool read_statement(struct linker *linker, struct statement *statement, const char **at,
                           const char *end) {
  int round = 0, curly = 0;
  for (struct piece token = vgpu_link_token(at, end); token.length > 0; token = vgpu_link_token(at, end)) {
    char first = token.at[0];
    if (is_comment(token)) continue;
    if (first == '(') round++;
    if (first == ')') round--;
    if (first == '{') curly++;
    if (first == '}') curly--;
    if (first == '{' && curly == 1 && statement->kind == DECLARATION) statement->kind = FUNCTION;
    if (first == ',' && round == 0 && curly == 0 && statement->kind == VARIABLE &&
        statement->name.length > 0) {
      return vgpu_link_fail(linker, "several variables in one statement, at '%.*s'",
                            (int)statement->name.length, statement->name.at);
    }
    if (curly == 0 && round == 0 && first == '.') take_word(statement, token);
    if (curly == 0 && round == 0 && statement->kind == DECLARATION && is(token, ".pragma")) {
      /* The semicolon of a .pragma does not end the function: the body follows. */
      while (token.length > 0 && !is(token, ";")) token = vgpu_link_token(at, end);
      continue;
    }
    bool name = is_name_byte(first) && !isdigit((unsigned char)first);
    if (name && curly == 0 && round == 0 && statement->name.length == 0) statement->name = token;
    bool ends = curly == 0 && round == 0 && (first == ';' || (first == '}' && statement->kind == FUNCTION));
    if (!ends) continue;
    statement->all.length = (size_t)(*at - statement->all.at);
    return true;
  }
  return vgpu_link_fail(linker, "the text ends inside of a statement");
}

static bool add_statement(struct linker *linker, const struct statement *statement) {
  if ((linker->count & (linker->count - 1)) == 0) {
    size_t room = linker->count == 0 ? 1 : linker->count * 2;
    struct statement *grown = realloc(linker->statements, room * sizeof *grown);
    if (grown == NULL) return vgpu_link_fail(linker, "no memory");
    linker->statements = grown;
  }
  linker->statements[linker->count++] = *statement;
  return true;
}

bool vgpu_link_read(struct linker *linker, size_t index) {
  const char *at = linker->texts[index].text, *end = at + linker->texts[index].size;
  while (end > at && end[-1] == '\0') end--;
  for (;;) {
    struct piece first = vgpu_link_token(&at, end);
    if (first.length == 0) return true;
    if (is_comment(first) || is(first, ";")) continue;
    struct statement statement = {.all = first, .text = index, .kind = OTHER};
    bool line = true;
    if (is(first, ".version") || is(first, ".target") || is(first, ".address_size")) statement.kind = HEADER;
    else if (is(first, ".file") || is(first, ".loc") || is(first, "@")) statement.kind = DEBUG;
    else line = false;
    if (is(first, ".section")) {
      statement.kind = DEBUG;
      while (at < end && *at != '}') at++;
      at += at < end;
    } else if (line) {
      statement.all = vgpu_link_rest_of_line(first.at, &at, end);
    } else {
      at = first.at;
      if (!read_statement(linker, &statement, &at, end)) return false;
    }
    if (!add_statement(linker, &statement)) return false;
  }
}
