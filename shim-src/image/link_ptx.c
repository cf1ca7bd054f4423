/*
 * A text is cut in its statements; which of them stay, and in which order, follows from the names they
 * define: declarations of functions first, then variables, then functions, so that all is declared before it
 * is used. Names that a text has for itself and another has too get the text's number behind them. What
 * debuggers read (.file, .loc, .section) is left out: its numbers hold for one text only.
 */
#include "image/link_ptx.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct piece {
  const char *at;
  size_t length;
};

enum linkage { OF_TEXT, EXTERNAL, VISIBLE, WEAK };
enum kind { HEADER, DEBUG, DECLARATION, VARIABLE, FUNCTION, OTHER };

struct statement {
  struct piece all;
  struct piece name; /* of what it declares or defines */
  size_t text;
  enum kind kind;
  enum linkage linkage;
  bool shared; /* a variable that is memory of a block */
  bool left_out;
};

struct names {
  struct piece *list;
  size_t count;
};

struct linker {
  const struct vgpu_ptx_text *texts;
  struct names *renamed; /* of each text: its own names that another text has, too */
  struct statement *statements;
  size_t count;
  char *out;
  size_t length, room;
  char *why;
  size_t why_size;
};

__attribute__((format(printf, 2, 3))) static bool fail(struct linker *linker, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(linker->why, linker->why_size, format, arguments);
  va_end(arguments);
  return false;
}

static bool same(struct piece a, struct piece b) {
  return a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}

static bool is(struct piece piece, const char *word) {
  return same(piece, (struct piece){word, strlen(word)});
}

static bool is_name_byte(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

/* The next token from `*at` on: a comment, a string, a word (with its leading dot), or one byte. */
static struct piece next(const char **at, const char *end) {
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

static bool is_comment(struct piece piece) {
  return piece.length >= 2 && piece.at[0] == '/' && (piece.at[1] == '/' || piece.at[1] == '*');
}

static struct piece rest_of_line(const char *start, const char **at, const char *end) {
  while (*at < end && **at != '\n') (*at)++;
  return (struct piece){start, (size_t)(*at - start)};
}

/* What a word says of the statement it stands in. */
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
 * A statement that is no line: up to its semicolon, or the end of a function's body. Its name is the first
 * word outside of parentheses that is none of the language's.
 */
static bool read_statement(struct linker *linker, struct statement *statement, const char **at,
                           const char *end) {
  int round = 0, curly = 0;
  for (struct piece token = next(at, end); token.length > 0; token = next(at, end)) {
    char first = token.at[0];
    if (is_comment(token)) continue;
    if (first == '(') round++;
    if (first == ')') round--;
    if (first == '{') curly++;
    if (first == '}') curly--;
    if (first == '{' && curly == 1 && statement->kind == DECLARATION) statement->kind = FUNCTION;
    if (first == ',' && round == 0 && curly == 0 && statement->kind == VARIABLE &&
        statement->name.length > 0) {
      return fail(linker, "several variables in one statement, at '%.*s'", (int)statement->name.length,
                  statement->name.at);
    }
    if (curly == 0 && round == 0 && first == '.') take_word(statement, token);
    if (curly == 0 && round == 0 && statement->kind == DECLARATION && is(token, ".pragma")) {
      /* Its semicolon does not end the function that it stands before the body of. */
      while (token.length > 0 && !is(token, ";")) token = next(at, end);
      continue;
    }
    bool name = is_name_byte(first) && !isdigit((unsigned char)first);
    if (name && curly == 0 && round == 0 && statement->name.length == 0) statement->name = token;
    bool ends = curly == 0 && round == 0 && (first == ';' || (first == '}' && statement->kind == FUNCTION));
    if (!ends) continue;
    statement->all.length = (size_t)(*at - statement->all.at);
    return true;
  }
  return fail(linker, "the text ends inside of a statement");
}

static bool add_statement(struct linker *linker, const struct statement *statement) {
  if ((linker->count & (linker->count - 1)) == 0) {
    size_t room = linker->count == 0 ? 1 : linker->count * 2;
    struct statement *grown = realloc(linker->statements, room * sizeof *grown);
    if (grown == NULL) return fail(linker, "no memory");
    linker->statements = grown;
  }
  linker->statements[linker->count++] = *statement;
  return true;
}

static bool read_text(struct linker *linker, size_t index) {
  const char *at = linker->texts[index].text, *end = at + linker->texts[index].size;
  while (end > at && end[-1] == '\0') end--;
  for (;;) {
    struct piece first = next(&at, end);
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
      statement.all = rest_of_line(first.at, &at, end);
    } else {
      at = first.at;
      if (!read_statement(linker, &statement, &at, end)) return false;
    }
    if (!add_statement(linker, &statement)) return false;
  }
}

/* ---- what stays ---------------------------------------------------------- */

static bool defines(const struct statement *statement) {
  return (statement->kind == FUNCTION || statement->kind == VARIABLE) && statement->linkage != EXTERNAL;
}

/* The definition that a name of a text means: its own, or another's that is not that text's alone. */
static const struct statement *definition(const struct linker *linker, const struct statement *of) {
  const struct statement *weak = NULL;
  for (size_t i = 0; i < linker->count; i++) {
    const struct statement *other = &linker->statements[i];
    if (!defines(other) || other->left_out || !same(other->name, of->name)) continue;
    if (other->text != of->text && other->linkage == OF_TEXT) continue;
    if (other->linkage != WEAK) return other;
    if (weak == NULL) weak = other;
  }
  return weak;
}

/* What device code finds in every driver, and what libcudadevrt.a brings: a text is loaded with both or
 * says so. */
static bool is_given(struct piece name) {
  static const char runtime[] = "__cudaCDP2";
  if (name.length >= sizeof runtime && memcmp(name.at, runtime, sizeof runtime - 1) == 0) return true;
  return is(name, "cudaGraphSetConditional") || is(name, "vprintf") || is(name, "malloc") ||
         is(name, "free") || is(name, "__assertfail");
}

static const char *name_of(const struct linker *linker, const struct statement *statement) {
  return linker->texts[statement->text].name;
}

static bool check_twice(struct linker *linker, struct statement *a, struct statement *b) {
  if (!defines(a) || !defines(b) || a->linkage == OF_TEXT || b->linkage == OF_TEXT ||
      !same(a->name, b->name)) {
    return true;
  }
  if (b->linkage == WEAK) b->left_out = true;
  else if (a->linkage == WEAK) a->left_out = true;
  else
    return fail(linker, "error   : Multiple definition of '%.*s' in '%s', first defined in '%s'",
                (int)a->name.length, a->name.at, name_of(linker, b), name_of(linker, a));
  return true;
}

static bool resolve(struct linker *linker) {
  for (size_t i = 0; i < linker->count; i++) {
    struct statement *a = &linker->statements[i];
    for (size_t j = i + 1; j < linker->count && !a->left_out; j++) {
      if (!check_twice(linker, a, &linker->statements[j])) return false;
    }
  }
  for (size_t i = 0; i < linker->count; i++) {
    struct statement *statement = &linker->statements[i];
    if (statement->linkage != EXTERNAL || (statement->kind != VARIABLE && statement->kind != DECLARATION))
      continue;
    bool found = definition(linker, statement) != NULL;
    if (statement->shared) { /* memory that a launch brings: the same for all */
      for (size_t j = 0; j < i; j++) {
        const struct statement *before = &linker->statements[j];
        if (before->shared && same(before->name, statement->name)) statement->left_out = true;
      }
    } else if (!found && !is_given(statement->name)) {
      return fail(linker, "error   : Undefined reference to '%.*s' in '%s'", (int)statement->name.length,
                  statement->name.at, name_of(linker, statement));
    }
    if (found && statement->kind == VARIABLE) statement->left_out = true;
  }
  return true;
}

static bool has_name(const struct names *names, struct piece name) {
  for (size_t i = 0; i < names->count; i++) {
    if (same(names->list[i], name)) return true;
  }
  return false;
}

/* The names of one text that get its number behind them; `list` has room for all. */
static size_t renamed_names(const struct linker *linker, size_t text, struct piece *list) {
  size_t count = 0;
  for (size_t i = 0; i < linker->count; i++) {
    const struct statement *own = &linker->statements[i];
    bool other = false;
    if (own->text != text || own->linkage != OF_TEXT || own->name.length == 0) continue;
    for (size_t j = 0; !other && j < linker->count; j++) {
      const struct statement *that = &linker->statements[j];
      other = that->text != text && that->name.length > 0 && same(that->name, own->name);
    }
    if (other) list[count++] = own->name;
  }
  return count;
}

/* ---- writing ------------------------------------------------------------- */

static bool put(struct linker *linker, struct piece piece) {
  if (linker->length + piece.length + 1 > linker->room) {
    size_t room = (linker->length + piece.length + 1) * 2;
    char *grown = realloc(linker->out, room);
    if (grown == NULL) return fail(linker, "no memory");
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

/* Token by token, with the spaces between them; a resolved declaration is not external any more. */
static bool put_statement(struct linker *linker, const struct statement *statement) {
  const char *at = statement->all.at, *end = at + statement->all.length, *done = at;
  bool resolved = statement->linkage == EXTERNAL && definition(linker, statement) != NULL;
  bool good = true;
  while (good && at < end) {
    struct piece token = next(&at, end);
    if (token.length == 0) break;
    good = put(linker, (struct piece){done, (size_t)(token.at - done)});
    done = at;
    if (is(token, ".loc")) {
      rest_of_line(token.at, &at, end);
      done = at;
    } else if (resolved && is(token, ".extern")) {
      good = good && put_text(linker, definition(linker, statement)->linkage == WEAK ? ".weak" : ".visible");
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

/* A variable on the path to what is written next, and how far its text has been looked through. */
struct step {
  size_t statement;
  const char *at;
};

/* The next variable that the step's initialiser names and that has not been seen; linker->count: none. */
static size_t next_named(const struct linker *linker, struct step *step, const unsigned char *states) {
  const struct statement *statement = &linker->statements[step->statement];
  const char *end = statement->all.at + statement->all.length;
  while (step->at < end) {
    const char *behind = step->at;
    struct piece token = next(&behind, end);
    if (token.length == 0) break;
    if (is_name_byte(token.at[0]) && !isdigit((unsigned char)token.at[0])) {
      for (size_t i = 0; i < linker->count; i++) {
        const struct statement *other = &linker->statements[i];
        /* The token is looked at again: other texts may have variables of that name. */
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
 * Variables in an order in which what an initialiser names stands before it: GCC's texts name a variable that
 * a later text defines. Where variables name each other in a ring, one of them comes before what it names.
 */
static bool put_variables(struct linker *linker) {
  unsigned char *states = calloc(linker->count + 1, sizeof *states);
  struct step *path = calloc(linker->count + 1, sizeof *path);
  bool good = states != NULL && path != NULL;
  if (!good) fail(linker, "no memory");
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

static bool put_kind(struct linker *linker, enum kind kind) {
  for (size_t i = 0; i < linker->count; i++) {
    const struct statement *statement = &linker->statements[i];
    if (statement->kind != kind || statement->left_out) continue;
    if (!put_statement(linker, statement)) return false;
  }
  return true;
}

/* "7.8" as 708, "sm_90a" as 90: the largest number behind `word` wins. */
static bool put_header(struct linker *linker, const char *word) {
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

static bool find_renamed(struct linker *linker, size_t count) {
  linker->renamed = calloc(count, sizeof *linker->renamed);
  for (size_t i = 0; linker->renamed != NULL && i < count; i++) {
    struct names *names = &linker->renamed[i];
    names->list = malloc((linker->count + 1) * sizeof *names->list);
    if (names->list == NULL) return fail(linker, "no memory");
    names->count = renamed_names(linker, i, names->list);
  }
  return linker->renamed != NULL || fail(linker, "no memory");
}

char *vgpu_ptx_link(const struct vgpu_ptx_text *texts, size_t count, size_t *size, char *why,
                    size_t why_size) {
  struct linker linker = {.texts = texts, .why = why, .why_size = why_size};
  bool good = true;
  for (size_t i = 0; good && i < count; i++) good = read_text(&linker, i);
  good = good && resolve(&linker) && find_renamed(&linker, count) && put_header(&linker, ".version") &&
         put_header(&linker, ".target") && put_header(&linker, ".address_size");
  static const enum kind order[] = {DECLARATION, VARIABLE, OTHER, FUNCTION};
  for (size_t i = 0; good && i < sizeof order / sizeof *order; i++) {
    good = order[i] == VARIABLE ? put_variables(&linker) : put_kind(&linker, order[i]);
  }
  for (size_t i = 0; linker.renamed != NULL && i < count; i++) free(linker.renamed[i].list);
  free(linker.renamed);
  free(linker.statements);
  if (!good) {
    free(linker.out);
    return NULL;
  }
  *size = linker.length + 1;
  return linker.out;
}
