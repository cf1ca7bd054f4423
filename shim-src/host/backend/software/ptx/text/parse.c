#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/ptx/text/parse.h"

#define MAX_TEXT ((size_t)256 << 20)

void ptx_skip_section(struct parser *p) {
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

bool ptx_begins_statement(struct word word) {
  static const char *const words[] = {".extern", ".visible", ".weak",    ".common", ".version", ".target",
                                      ".func",   ".entry",   ".global",  ".const",  ".shared",  ".local",
                                      ".reg",    ".tex",     ".section", ".file",   ".loc",     ".alias"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (ptx_word_is(word, words[i])) return true;
  }
  return false;
}

struct ptx_target ptx_target(struct parser *p) {
  struct word word = ptx_need_word(p, "a target");
  struct ptx_target target = {0};
  uint32_t at = 3;
  if (word.length > 3 && memcmp(word.text, "sm_", 3) == 0) {
    for (; at < word.length && at < 6 && word.text[at] >= '0' && word.text[at] <= '9'; at++)
      target.architecture = target.architecture * 10 + (uint32_t)(word.text[at] - '0');
    if (at + 1 == word.length && (word.text[at] == 'a' || word.text[at] == 'f'))
      target.suffix[0] = word.text[at++];
  }
  if (target.architecture == 0 || at != word.length)
    ptx_fail(p, PTX_UNSUPPORTED, "the target '%.*s'", (int)word.length, word.text);
  while (ptx_accept(p, ',')) ptx_need_word(p, "an option of the target");
  return target;
}

bool ptx_target_fits(struct ptx_target target, uint32_t device) {
  if (target.suffix[0] == 'a') return target.architecture == device;
  if (target.suffix[0] == 'f' && target.architecture / 10 != device / 10) return false;
  return target.architecture <= device;
}

static void target(struct parser *p) {
  struct ptx_target target = ptx_target(p);
  p->module->target = target.architecture;
  if (p->module->device > 0 && !ptx_target_fits(target, p->module->device)) {
    ptx_fail(p, PTX_UNSUPPORTED, "the module is for sm_%u%s, this device is sm_%u", target.architecture,
             target.suffix, p->module->device);
  }
}

static void version(struct parser *p) {
  struct operand number = {0};
  if (!ptx_literal(p, &number)) ptx_fail(p, PTX_INVALID, "a version expected");
  double value = (double)number.value;
  if (number.kind == O_FLOAT) memcpy(&value, &number.value, sizeof value);
  /* The last minor version of each major one; 9.5 is that of CUDA 13.5. */
  static const uint8_t last[] = {0, 5, 3, 2, 3, 1, 5, 8, 8, 5};
  uint32_t version = value >= 1.0 && value < 100.0 ? (uint32_t)(value * 10.0 + 0.5) : 0;
  if (version < 10 || version / 10 >= sizeof last || version % 10 > last[version / 10])
    ptx_fail(p, PTX_UNKNOWN_VERSION, "there is no .version %g, the newest is 9.5", value);
  p->module->version = version;
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
    ptx_function(p, false);
  } else if (ptx_word_is(word, ".entry")) {
    ptx_function(p, true);
  } else if (ptx_word_is(word, ".global")) {
    ptx_global_variable(p, false);
  } else if (ptx_word_is(word, ".const")) {
    ptx_global_variable(p, true);
  } else if (ptx_word_is(word, ".shared")) {
    ptx_shared_variable(p, external);
  } else if (ptx_word_is(word, ".local")) {
    ptx_module_local(p);
  } else if (ptx_word_is(word, ".reg")) {
    ptx_module_registers(p);
  } else if (ptx_word_is(word, ".tex")) {
    ptx_texture_variable(p);
  } else if (ptx_word_is(word, ".file") || ptx_word_is(word, ".loc")) {
    ptx_skip_line(p);
  } else if (ptx_word_is(word, ".section")) {
    ptx_skip_section(p);
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

static void module(struct parser *p, void *unused) {
  (void)unused;
  for (;;) {
    ptx_skip(p);
    if (p->at >= p->end) break;
    if (*p->at == '@') ptx_skip_line(p);
    else top_level(p);
  }
  if (p->module->version == 0) ptx_fail(p, PTX_INVALID, "no .version: this is not PTX");
  if (p->module->target == 0) ptx_fail(p, PTX_INVALID, "no .target");
  ptx_finish_module(p);
}

bool ptx_guarded(struct parser *p, void reading(struct parser *p, void *user), void *user) {
  /* Calls may be nested: a body that is refused does not change the module. */
  jmp_buf outer;
  memcpy(&outer, &p->failed, sizeof outer);
  bool good = setjmp(p->failed) == 0;
  if (good) reading(p, user);
  memcpy(&p->failed, &outer, sizeof outer);
  return good;
}

static void forget_parser(struct ptx_module *m) {
  if (m->parser == NULL) return;
  ptx_arena_free(&m->parser->scratch);
  free(m->parser);
  m->parser = NULL;
}

/* Writes why kernels are refused, a line each, as many as fit. */
static void tell_refused(const struct ptx_module *m, char *log, size_t log_size) {
  size_t used = 0;
  if (log == NULL || log_size == 0) return;
  log[0] = 0;
  for (uint32_t i = 0; i < m->kernel_count; i++) {
    const struct ptx_function *f = m->functions[m->kernel_function[i]];
    if (f->state != BODY_REFUSED) continue;
    int length = snprintf(log + used, log_size - used, "%s%s, so the kernel %s cannot run",
                          used == 0 ? "" : "\n", f->refused, f->name);
    if (length < 0 || (size_t)length >= log_size - used) return;
    used += (size_t)length;
  }
}

static enum ptx_status decode_kernels(struct ptx_module *m, char *log, size_t log_size) {
  for (uint32_t i = 0; i < m->kernel_count; i++) {
    const struct ptx_function *f = m->functions[m->kernel_function[i]];
    if (ptx_need_kernel(m->parser, i) || f->status == PTX_UNSUPPORTED) continue;
    if (log != NULL && log_size > 0) snprintf(log, log_size, "%s", f->refused);
    return f->status;
  }
  forget_parser(m);
  tell_refused(m, log, log_size);
  return PTX_OK;
}

static enum ptx_status load(const char *text, size_t length, uint32_t device, bool lazy,
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
  p->lazy = lazy;
  p->module = m;
  m->parser = p;
  /* Decoded code is about as large as its text. */
  m->arena.limit = ((size_t)1 << 30) + 16 * length;
  p->scratch.limit = ((size_t)1 << 30) + 16 * length;
  m->device = device;
  bool good = ptx_guarded(p, module, NULL);
  enum ptx_status status = good ? PTX_OK : p->status;
  if (!good && log != NULL && log_size > 0) snprintf(log, log_size, "line %u: %s", p->line, p->why);
  ptx_arena_free(&p->scratch);
  if (good && !lazy) status = decode_kernels(m, log, log_size);
  if (status != PTX_OK) {
    ptx_module_free(m);
    return status;
  }
  *module_out = m;
  return PTX_OK;
}

uint64_t ptx_module_bytes(const struct ptx_module *module) {
  return sizeof *module + module->arena.total + (module->parser == NULL ? 0 : sizeof *module->parser);
}

enum ptx_status ptx_module_load(const char *text, size_t length, uint32_t device,
                                struct ptx_module **module_out, char *log, size_t log_size) {
  return load(text, length, device, false, module_out, log, log_size);
}

enum ptx_status ptx_module_load_lazily(const char *text, size_t length, uint32_t device,
                                       struct ptx_module **module_out, char *log, size_t log_size) {
  return load(text, length, device, true, module_out, log, log_size);
}

const char *ptx_module_prepare(struct ptx_module *module, uint32_t kernel, enum ptx_status *status) {
  const struct ptx_function *f = module->functions[module->kernel_function[kernel]];
  if (module->parser != NULL) ptx_need_kernel(module->parser, kernel);
  *status = f->state == BODY_REFUSED ? f->status : PTX_OK;
  return f->state == BODY_REFUSED ? f->refused : NULL;
}

void ptx_module_free(struct ptx_module *module) {
  if (module == NULL) return;
  ptx_compiler_forget(module);
  forget_parser(module);
  ptx_arena_free(&module->arena);
  free(module);
}
