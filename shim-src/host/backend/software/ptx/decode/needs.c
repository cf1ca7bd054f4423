/* Decodes a kernel and all functions that it calls, and adds up their memory. */
#include <stdio.h>
#include <string.h>

#include "host/backend/software/ptx/special.h"
#include "host/backend/software/ptx/text/parse.h"

/*
 * Adds up local and shared memory of a function and its callees, depth first, with an explicit stack. A cycle
 * has no limit.
 */
static void total(struct parser *p, uint32_t root) {
  struct ptx_module *m = p->module;
  uint32_t *stack = ptx_scratch(p, (m->function_count + 1) * sizeof *stack);
  uint32_t *at = ptx_scratch(p, (m->function_count + 1) * sizeof *at);
  uint32_t depth = 0;
  stack[depth++] = root;
  m->functions[root]->visit = 1;
  while (depth > 0) {
    uint32_t number = stack[depth - 1];
    struct ptx_function *f = m->functions[number];
    if (at[number] == 0) {
      f->local_total = f->local_bytes;
      f->shared_total = f->shared_end;
    }
    if (at[number] < f->call_count) {
      uint32_t to = f->calls[at[number]++];
      struct ptx_function *callee = m->functions[to];
      if (callee->visit == 0) {
        callee->visit = 1;
        stack[depth++] = to;
      } else if (callee->visit == 1) {
        f->recursive = callee->recursive = true;
      }
      continue;
    }
    f->visit = 2;
    for (uint32_t i = 0; i < f->call_count; i++) {
      const struct ptx_function *callee = m->functions[f->calls[i]];
      if (callee->recursive) f->recursive = true;
      if (callee->grows) f->grows = true;
      uint32_t local = f->local_bytes + callee->local_total;
      if (local > PTX_LOCAL_MOST) local = PTX_LOCAL_MOST + 1; /* too much, but no overflow */
      if (local > f->local_total) f->local_total = local;
      if (callee->shared_total > f->shared_total) f->shared_total = callee->shared_total;
    }
    depth--;
  }
}

struct reach {
  uint32_t *list;
  const struct ptx_function **by; /* caller of each */
  bool *known;
  uint32_t count;
  bool pointers; /* calls through pointers may reach any function */
};

static void add(struct reach *r, uint32_t number, const struct ptx_function *by) {
  if (r->known[number]) return;
  r->known[number] = true;
  r->by[r->count] = by;
  r->list[r->count++] = number;
}

/* Refuses the kernel because of `why`, which was found in the function `in`. */
static void refuse(struct parser *p, struct ptx_function *kernel, const struct ptx_function *in,
                   const char *why, uint8_t status) {
  char text[512];
  int length = in == kernel ? snprintf(text, sizeof text, "%s", why)
                            : snprintf(text, sizeof text, "%s (in the function %.100s)", why, in->name);
  struct word word = {text, length < (int)sizeof text ? (uint32_t)length : sizeof text - 1};
  kernel->state = BODY_REFUSED;
  kernel->status = status;
  kernel->refused = ptx_intern(p, word);
}

/* False: the kernel is refused. */
static bool decode_all(struct parser *p, struct ptx_function *kernel, struct reach *r) {
  struct ptx_module *m = p->module;
  for (uint32_t i = 0; i < r->count; i++) {
    struct ptx_function *f = m->functions[r->list[i]];
    if (f->builtin) continue;
    if (!f->defined) {
      char text[300];
      snprintf(text, sizeof text, "line %u: unresolved extern function '%.100s', which '%.100s' calls",
               kernel->line, f->name, r->by[i]->name);
      refuse(p, kernel, kernel, text, PTX_INVALID);
      return false;
    }
    if (!ptx_decode_body(p, f)) {
      if (f != kernel) refuse(p, kernel, f, f->refused, f->status);
      return false;
    }
    for (uint32_t k = 0; k < f->call_count; k++) add(r, f->calls[k], f);
    r->pointers |= f->recursive;
  }
  /* A function that cannot be decoded cannot be called through a pointer: see calls.c. */
  for (uint32_t i = 0; r->pointers && i < m->function_count; i++) {
    struct ptx_function *f = m->functions[i];
    if (f->entry || !f->defined || r->known[i] || !ptx_decode_body(p, f)) continue;
    add(r, i, f);
    bool whole = true;
    for (uint32_t k = 0; k < f->call_count; k++) {
      const struct ptx_function *callee = m->functions[f->calls[k]];
      if (!callee->defined && !callee->builtin) whole = false;
    }
    if (!whole) f->state = BODY_REFUSED;
  }
  return true;
}

/* Returns the bytes of all shared variables that these functions can name, each counted once. */
static uint32_t shared_bytes(struct parser *p, const struct reach *r) {
  struct ptx_shared_use *seen = NULL;
  uint32_t count = 0, room = 0;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < r->count; i++) {
    const struct ptx_function *f = p->module->functions[r->list[i]];
    for (uint32_t k = 0; k < f->shared_use_count; k++) {
      uint32_t at = 0;
      while (at < count && seen[at].offset != f->shared_uses[k].offset) at++;
      if (at < count) continue;
      seen = ptx_room(p, seen, count, &room, sizeof *seen);
      seen[count++] = f->shared_uses[k];
      bytes = (bytes + 15) / 16 * 16 + f->shared_uses[k].size;
    }
    if (f->shared_own > 0) bytes = (bytes + 15) / 16 * 16 + f->shared_own;
  }
  return bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
}

/* A matrix descriptor can only have addresses below 256 KiB. */
static bool descriptors_reach(struct parser *p, const struct reach *r, uint32_t extent) {
  for (uint32_t i = 0; extent > 256u << 10 && i < r->count; i++) {
    const struct ptx_function *f = p->module->functions[r->list[i]];
    for (uint32_t pc = 0; pc < f->code_count; pc++) {
      if (f->code[pc].kind == K_WGMMA) return false;
    }
  }
  return true;
}

static void need(struct parser *p, void *number) {
  struct ptx_module *m = p->module;
  uint32_t kernel = *(uint32_t *)number, own = m->kernel_function[kernel];
  struct ptx_function *f = m->functions[own];
  /* Not the scratch arena, which is empty after each body. */
  struct reach r = {.list = ptx_take(p, m->function_count * sizeof *r.list),
                    .by = ptx_take(p, m->function_count * sizeof *r.by),
                    .known = ptx_take(p, m->function_count)};
  add(&r, own, f);
  if (!decode_all(p, f, &r)) return;
  uint32_t any_shared = 0, align = 0;
  bool reserves = false;
  for (uint32_t i = 0; i < r.count; i++) {
    if (m->functions[r.list[i]]->visit == 0) total(p, r.list[i]);
    uint32_t shared = m->functions[r.list[i]]->shared_total;
    if (shared > any_shared) any_shared = shared;
    if (m->functions[r.list[i]]->reserves) reserves = true;
    if (m->functions[r.list[i]]->dynamic_align > align) align = m->functions[r.list[i]]->dynamic_align;
  }
  /* A function that calls through pointers may use the shared variables of any function. */
  if (f->recursive) f->shared_total = any_shared;
  if (f->local_total > PTX_LOCAL_MOST) {
    refuse(p, f, f, "more than 512 KiB of local memory a thread, with the functions that are called",
           PTX_UNSUPPORTED);
    return;
  }
  if (!descriptors_reach(p, &r, f->shared_total)) {
    refuse(p, f, f, "wgmma in a module with more than 256 KiB of shared variables", PTX_UNSUPPORTED);
    return;
  }
  /* As ptxas counts: the gap before the dynamic shared memory is static. */
  uint64_t fixed = shared_bytes(p, &r);
  uint64_t multiple = align < 16 ? 16 : align;
  if (align > 0) fixed = (fixed + multiple - 1) / multiple * multiple;
  m->kernels[kernel].static_shared = fixed < UINT32_MAX ? (uint32_t)fixed : UINT32_MAX;
  m->kernels[kernel].shared_extent = f->shared_total;
  m->kernels[kernel].dynamic_align = (uint32_t)multiple;
  m->kernels[kernel].reserved_shared = reserves ? PTX_RESERVED_SHARED : 0;
  m->kernels[kernel].local_bytes = f->local_total;
  m->kernels[kernel].registers = f->registers;
}

bool ptx_need_kernel(struct parser *p, uint32_t kernel) {
  struct ptx_function *f = p->module->functions[p->module->kernel_function[kernel]];
  if (f->state == BODY_REFUSED) return false;
  if (f->ready) return true;
  bool good = ptx_guarded(p, need, &kernel);
  if (!good && f->state != BODY_REFUSED) {
    f->state = BODY_REFUSED;
    f->status = (uint8_t)p->status;
    f->refused = "the module takes too much memory";
  }
  ptx_arena_free(&p->scratch);
  f->ready = f->state == BODY_DECODED;
  return f->ready;
}
