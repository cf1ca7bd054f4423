#include <stdio.h>
#include <string.h>

#include "host/backend/software/ptx/text/parse.h"

void ptx_dimensions(struct parser *p, uint32_t to[3]) {
  for (int i = 0; i < 3; i++) to[i] = 1;
  for (int i = 0; i < 3; i++) {
    int64_t value = ptx_integer(p);
    if (value < 0 || value > 1 << 30) ptx_fail(p, PTX_INVALID, "a dimension of %lld", (long long)value);
    to[i] = (uint32_t)value;
    if (!ptx_accept(p, ',')) return;
  }
}

static struct ptx_source here(const struct parser *p) {
  return (struct ptx_source){p->at, p->line};
}

static void go_to(struct parser *p, struct ptx_source to) {
  p->at = to.at;
  p->line = to.line;
}

/* This function cannot run, but the rest of the module can: skips to its body. */
static void give_up(struct parser *p, struct ptx_function *f, const char *what, struct word word) {
  char text[200];
  int length = snprintf(text, sizeof text, "line %u: %s '%.*s' is not supported", p->line, what,
                        word.length < 60 ? (int)word.length : 60, word.text);
  f->state = BODY_REFUSED;
  f->status = PTX_UNSUPPORTED;
  f->refused = ptx_intern(p, (struct word){text, (uint32_t)length});
  for (ptx_skip(p); p->at < p->end && *p->at != '{' && *p->at != ';'; ptx_skip(p)) p->at++;
}

static void function_directives(struct parser *p, struct ptx_function *f) {
  struct word word;
  bool counts_clusters = false;
  struct ptx_source before = here(p);
  for (; ptx_directive(p, &word); before = here(p)) {
    uint32_t sizes[3];
    /* Before PTX 3.0 a prototype needed no semicolon. */
    if (ptx_begins_statement(word)) {
      go_to(p, before);
      break;
    }
    if (ptx_word_is(word, ".maxntid")) {
      ptx_dimensions(p, sizes);
      uint64_t threads = (uint64_t)sizes[0] * sizes[1] * sizes[2];
      if (threads > 0 && threads < f->max_threads) f->max_threads = (uint16_t)threads;
    } else if (ptx_word_is(word, ".reqntid")) {
      ptx_dimensions(p, f->reqntid);
    } else if (ptx_word_is(word, ".reqnctapercluster")) {
      ptx_dimensions(p, f->cluster);
      for (int i = 0; i < 3; i++) {
        if (f->cluster[i] == 0 || f->cluster[i] > 64)
          ptx_fail(p, PTX_INVALID, "a cluster of %u blocks", f->cluster[i]);
      }
    } else if (ptx_word_is(word, ".minnctapersm") || ptx_word_is(word, ".maxnctapersm") ||
               ptx_word_is(word, ".maxnreg") || ptx_word_is(word, ".maxclusterrank")) {
      ptx_integer(p);
    } else if (ptx_word_is(word, ".pragma")) {
      ptx_string(p);
      ptx_expect(p, ';');
    } else if (ptx_word_is(word, ".blocksareclusters")) {
      counts_clusters = true;
    } else if (!ptx_word_is(word, ".noreturn") && !ptx_word_is(word, ".explicitcluster")) {
      give_up(p, f, "the directive", word);
    }
  }
  if (counts_clusters && f->cluster[0] * f->cluster[1] * f->cluster[2] > 1)
    give_up(p, f, "the directive", (struct word){".blocksareclusters", 18});
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
  m->functions = ptx_module_room(p, m->functions, m->function_count, &m->function_room, sizeof *m->functions);
  m->functions[m->function_count++] = f;
  return f;
}

static void skip_list(struct parser *p) {
  for (ptx_skip(p); p->at < p->end && *p->at != ')'; ptx_skip(p)) p->at++;
  ptx_expect(p, ')');
}

/* Reads parameters, return values first. With `define`, they become names of the function that is decoded. */
static void read_parameters(struct parser *p, struct ptx_function *f, bool define) {
  struct ptx_source back = here(p);
  f->parameter_count = f->return_count = f->parameter_bytes = 0;
  if (f->returns_text.at != NULL) {
    go_to(p, f->returns_text);
    ptx_parameter_list(p, f, define, true);
    f->return_count = f->parameter_count;
  }
  if (f->parameters_text.at != NULL) {
    go_to(p, f->parameters_text);
    ptx_parameter_list(p, f, define, false);
  }
  go_to(p, back);
}

static void skip_body(struct parser *p, const struct ptx_function *f) {
  static const bool stops[256] = {['{'] = true, ['}'] = true, ['/'] = true, ['"'] = true, ['\n'] = true};
  for (uint32_t depth = 1; depth > 0;) {
    while (p->at < p->end && !stops[(unsigned char)*p->at]) p->at++;
    if (p->at >= p->end) ptx_fail(p, PTX_INVALID, "the text ends within %s", f->name);
    switch (*p->at) {
      case '{':
        depth++;
        p->at++;
        break;
      case '}':
        depth--;
        p->at++;
        break;
      case '"':
        ptx_string(p);
        break;
      case '/': {
        const char *before = p->at;
        ptx_skip(p);
        if (p->at == before) p->at++;
        break;
      }
      default:
        p->line++;
        p->at++;
    }
  }
}

/* True if the body declares variables of the module, which are placed when the module is loaded. */
static bool declares_globals(const char *from, const char *to) {
  static const char *const spaces[] = {".global", ".const"};
  for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
    const char *at = from;
    size_t length = strlen(spaces[i]);
    while ((at = memmem(at, (size_t)(to - at), spaces[i], length)) != NULL) {
      if (at == from || strchr(" \t\r\n;{}/", at[-1]) != NULL) return true;
      at += length;
    }
  }
  return false;
}

static void read_names(struct parser *p, void *function) {
  ptx_open_scope(p);
  read_parameters(p, function, false);
  ptx_close_scope(p);
}

static void refuse(struct parser *p, struct ptx_function *f) {
  char text[sizeof p->why + 32];
  int length = snprintf(text, sizeof text, "line %u: %s", p->line, p->why);
  ptx_drop_scopes(p);
  p->mnemonic = NULL;
  p->function = NULL;
  p->guard = 0;
  p->later_count = 0;
  f->state = BODY_REFUSED;
  f->status = (uint8_t)p->status;
  /* no memory for the reason is the reason */
  char *copy = ptx_arena_take(&p->module->arena, (size_t)length + 1);
  if (copy != NULL) memcpy(copy, text, (size_t)length);
  f->refused = copy == NULL ? "the module takes too much memory" : copy;
}

static _Noreturn void fail_as(struct parser *p, const struct ptx_function *f) {
  p->status = f->status;
  longjmp(p->failed, 1);
}

void ptx_function(struct parser *p, bool entry) {
  struct ptx_source returns = {0}, parameters = {0}, before = here(p);
  struct word word;
  if (!entry && ptx_directive(p, &word)) {
    if (ptx_word_is(word, ".attribute")) ptx_attribute(p);
    else go_to(p, before);
  }
  /* The return values come before the name. */
  if (!entry && ptx_accept(p, '(')) {
    returns = here(p);
    skip_list(p);
  }
  struct ptx_function *f = function_named(p, ptx_need_name(p, "a name"), entry);
  f->line = p->line;
  if (ptx_accept(p, '(')) {
    parameters = here(p);
    skip_list(p);
  }
  if (!f->defined) f->state = BODY_UNREAD; /* a prototype may have had what the function itself has not */
  function_directives(p, f);
  bool prototype_only = ptx_accept(p, ';');
  if (!prototype_only) {
    ptx_skip(p);
    prototype_only = !entry && (p->at >= p->end || *p->at != '{');
  }
  if (!prototype_only) ptx_expect(p, '{');
  if (f->defined && !prototype_only) ptx_fail(p, PTX_INVALID, "'%s' is defined twice", f->name);
  if (f->defined) return;
  f->returns_text = returns;
  f->parameters_text = parameters;
  struct ptx_source behind = here(p);
  f->unreadable = !ptx_guarded(p, read_names, f);
  if (f->unreadable) refuse(p, f);
  if (f->unreadable && f->status != PTX_UNSUPPORTED) fail_as(p, f);
  go_to(p, behind);
  if (prototype_only) return;
  f->defined = true;
  f->body_text = here(p);
  skip_body(p, f);
  if (!p->lazy || declares_globals(f->body_text.at, p->at)) {
    behind = here(p);
    if (!ptx_decode_body(p, f) && f->status != PTX_UNSUPPORTED) fail_as(p, f);
    go_to(p, behind);
  }
}

static void decode_body(struct parser *p, void *function) {
  struct ptx_function *f = function;
  ptx_begin_function(p, f);
  ptx_own_registers(p, f);
  go_to(p, f->body_text);
  read_parameters(p, f, true);
  ptx_body(p, f);
  ptx_finish_function(p);
  f->state = BODY_DECODED;
}

bool ptx_decode_body(struct parser *p, struct ptx_function *f) {
  if (f->state != BODY_UNREAD) return f->state == BODY_DECODED;
  bool good = ptx_guarded(p, decode_body, f);
  if (!good) refuse(p, f);
  ptx_arena_free(&p->scratch);
  return good;
}
