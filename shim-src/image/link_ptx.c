/*
 * Joins PTX texts by statements: declarations of functions first, then variables, then functions, so that
 * each name is declared before it is used. A name that belongs to one text only, but that another has, too,
 * gets the text's number appended. Statements for debuggers (.file, .loc, .section) are left out: their
 * numbers are valid for one text only.
 */
#include "image/link_ptx.h"

#include <stdlib.h>

#include "image/link_text.h"

static bool defines(const struct statement *statement) {
  return (statement->kind == FUNCTION || statement->kind == VARIABLE) && statement->linkage != EXTERNAL;
}

const struct statement *vgpu_link_definition(const struct linker *linker, const struct statement *of) {
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

/*
 * True for names that need no definition in the texts: every driver provides them, or libcudadevrt.a. The
 * driver reports a missing one.
 */
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
    return vgpu_link_fail(linker, "error   : Multiple definition of '%.*s' in '%s', first defined in '%s'",
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
    bool found = vgpu_link_definition(linker, statement) != NULL;
    if (statement->shared) { /* dynamic shared memory: the same for all */
      for (size_t j = 0; j < i; j++) {
        const struct statement *before = &linker->statements[j];
        if (before->shared && same(before->name, statement->name)) statement->left_out = true;
      }
    } else if (!found && !is_given(statement->name)) {
      return vgpu_link_fail(linker, "error   : Undefined reference to '%.*s' in '%s'",
                            (int)statement->name.length, statement->name.at, name_of(linker, statement));
    }
    if (found && statement->kind == VARIABLE) statement->left_out = true;
  }
  return true;
}

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

static bool find_renamed(struct linker *linker, size_t count) {
  linker->renamed = calloc(count, sizeof *linker->renamed);
  for (size_t i = 0; linker->renamed != NULL && i < count; i++) {
    struct names *names = &linker->renamed[i];
    names->list = malloc((linker->count + 1) * sizeof *names->list);
    if (names->list == NULL) return vgpu_link_fail(linker, "no memory");
    names->count = renamed_names(linker, i, names->list);
  }
  return linker->renamed != NULL || vgpu_link_fail(linker, "no memory");
}

char *vgpu_ptx_link(const struct vgpu_ptx_text *texts, size_t count, size_t *size, char *why,
                    size_t why_size) {
  struct linker linker = {.texts = texts, .why = why, .why_size = why_size};
  bool good = true;
  for (size_t i = 0; good && i < count; i++) good = vgpu_link_read(&linker, i);
  good = good && resolve(&linker) && find_renamed(&linker, count) &&
         vgpu_link_put_header(&linker, ".version") && vgpu_link_put_header(&linker, ".target") &&
         vgpu_link_put_header(&linker, ".address_size");
  static const enum kind order[] = {DECLARATION, VARIABLE, OTHER, FUNCTION};
  for (size_t i = 0; good && i < sizeof order / sizeof *order; i++) {
    good = vgpu_link_put_kind(&linker, order[i]);
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
