/* Functions and kernels: parameters, directives, bodies. */
#include "host/software/ptx/parse.h"

void ptx_dimensions(struct parser *p, uint32_t to[3]) {
  for (int i = 0; i < 3; i++) to[i] = 1;
  for (int i = 0; i < 3; i++) {
    int64_t value = ptx_integer(p);
    if (value < 0 || value > 1 << 30) ptx_fail(p, PTX_INVALID, "a dimension of %lld", (long long)value);
    to[i] = (uint32_t)value;
    if (!ptx_accept(p, ',')) return;
  }
}

static void function_directives(struct parser *p, struct ptx_function *f) {
  struct word word;
  while (ptx_directive(p, &word)) {
    uint32_t sizes[3];
    if (ptx_word_is(word, ".maxntid")) {
      ptx_dimensions(p, sizes);
      uint64_t threads = (uint64_t)sizes[0] * sizes[1] * sizes[2];
      if (threads > 0 && threads < f->max_threads) f->max_threads = (uint16_t)threads;
    } else if (ptx_word_is(word, ".reqntid")) {
      ptx_dimensions(p, f->reqntid);
    } else if (ptx_word_is(word, ".reqnctapercluster")) {
      ptx_dimensions(p, sizes);
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

/* To behind the parenthesis that closes a list of parameters. */
static void skip_list(struct parser *p) {
  for (ptx_skip(p); p->at < p->end && *p->at != ')'; ptx_skip(p)) p->at++;
  ptx_expect(p, ')');
}

void ptx_function(struct parser *p, bool entry) {
  /* The return values come before the name: where they lie in the frame is known when there is a body. */
  const char *returns = NULL;
  uint32_t returns_line = 0;
  if (!entry && ptx_accept(p, '(')) {
    returns = p->at;
    returns_line = p->line;
    skip_list(p);
  }
  struct ptx_function *f = function_named(p, ptx_need_name(p, "a name"), entry);
  f->line = p->line;
  const char *parameters = NULL;
  uint32_t parameters_line = p->line;
  if (ptx_accept(p, '(')) {
    parameters = p->at;
    parameters_line = p->line;
    skip_list(p);
  }
  function_directives(p, f);
  bool prototype_only = ptx_accept(p, ';');
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
    ptx_parameter_list(p, f, !prototype_only);
    f->return_count = f->parameter_count;
  }
  if (parameters != NULL) {
    p->at = parameters;
    p->line = parameters_line;
    ptx_parameter_list(p, f, !prototype_only);
  }
  p->at = resume;
  p->line = resume_line;
  if (prototype_only) {
    ptx_close_scope(p);
    return;
  }
  ptx_body(p, f);
  ptx_finish_function(p);
}
