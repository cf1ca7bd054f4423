#include "host/backend/software/ptx/run/region.h"

#include <stdlib.h>
#include <string.h>

#include "host/backend/software/ptx/compile/emit.h"

/*
 * How often a warp goes through a function before it is compiled. LLVM takes 0.6 to 3 ms for an instruction,
 * the interpreter about 30 ns, so this is when a quarter of the time to compile it has been spent in it.
 */
#define HOT_PASSES 15000u
/*
 * The most blocks of a function that LLVM compiles thoroughly. llama.cpp's mat-vecs have 105 to 349 blocks:
 * LLVM takes 1.1 to 1.9 times as long for them as in the quick way, and a token takes 8 to 13 % less time.
 */
#define MOST_THOROUGH 400u
#define MOST_THOROUGH_TEXT (1280u << 10) /* bytes: a block of 1,000 accesses takes as long */
#define LOOK_EVERY 64u  /* counts between two looks for the compiler's answer, which are system calls */
#define ALWAYS_MS 60000 /* how long a launch waits for its code with `always` */

_Static_assert(sizeof(struct ptx_region) == 32, "the text of compiled code has these offsets");

/* ---- compiling ------------------------------------------------------------ */

static void free_compiled(struct ptx_compiled *compiled) {
  if (compiled == NULL) return;
  ptx_plan_free(&compiled->plan);
  free(compiled);
}

/*
 * Sends a function to the compiler, once for each value of `rows`. The caller holds the lock, and no other
 * function is being compiled.
 */
static void ask(struct ptx_compiler *compiler, struct ptx_module *module, struct ptx_function *f, bool rows) {
  struct ptx_plan plan;
  __atomic_store_n(&f->asked[rows], true, __ATOMIC_RELAXED);
  if (!ptx_plan_make(&plan, f, f->code)) return;
  struct ptx_emit e = {.text = {.bytes = compiler->box->text, .room = sizeof compiler->box->text},
                       .plan = &plan,
                       .constants = module->constants,
                       .rows = rows};
  if (ptx_emit_function(&e)) compiler->compiled = malloc(sizeof *compiler->compiled);
  if (compiler->compiled == NULL) {
    ptx_plan_free(&plan);
    return;
  }
  *compiler->compiled = (struct ptx_compiled){.rows = rows, .plan = plan};
  compiler->function = f;
  module->compiler = compiler;
  bool quick = plan.block_count > MOST_THOROUGH || e.text.used > MOST_THOROUGH_TEXT;
  if (ptx_compiler_ask(compiler, e.text.used, quick)) {
    __atomic_store_n(&compiler->asking, module, __ATOMIC_RELAXED);
    compiler->counts.asked++;
    return;
  }
  free_compiled(compiler->compiled);
  compiler->compiled = NULL;
}

/*
 * Takes the compiler's answer, if it comes within `milliseconds`. The function's entries then lead to the
 * code.
 */
static void take(struct ptx_compiler *compiler, int milliseconds) {
  ptx_region_code *run = NULL;
  enum ptx_answer answer = ptx_compiler_answer(compiler, milliseconds, &run);
  if (answer == PTX_ANSWER_NONE) return;
  struct ptx_compiled *compiled = compiler->compiled;
  struct ptx_function *f = compiler->function;
  compiler->compiled = NULL;
  compiler->function = NULL;
  __atomic_store_n(&compiler->asking, NULL, __ATOMIC_RELAXED);
  if (answer == PTX_ANSWER_REFUSED || f == NULL) {
    free_compiled(compiled);
    compiler->counts.refused++;
    return;
  }
  compiled->run = run;
  compiler->counts.compiled++;
  __atomic_store_n(&f->compiled[compiled->rows], compiled, __ATOMIC_RELEASE);
  for (uint32_t pc = 0; pc < f->code_count; pc++) {
    if (compiled->plan.entry[pc] != PTX_NO_PC)
      __atomic_store_n(&f->code[pc].dispatch, K_REGION, __ATOMIC_RELEASE);
  }
}

void ptx_compiler_forget(struct ptx_module *module) {
  struct ptx_compiler *compiler = module->compiler;
  if (compiler != NULL) {
    pthread_mutex_lock(&compiler->lock);
    if (compiler->asking == module) compiler->function = NULL; /* the answer is still to come */
    pthread_mutex_unlock(&compiler->lock);
  }
  for (uint32_t i = 0; i < module->function_count; i++) {
    for (uint32_t rows = 0; module->functions[i] != NULL && rows < 2; rows++)
      free_compiled(module->functions[i]->compiled[rows]);
  }
}

/* The parts of a function between branches; a pass through it is as many branches. */
static uint32_t parts_of(const struct ptx_function *f) {
  uint32_t parts = 1;
  for (uint32_t pc = 0; pc < f->code_count; pc++) parts += f->code[pc].kind == K_BRA;
  return parts;
}

void ptx_region_heat(const struct launch_state *l, uint32_t number, uint32_t warps, uint32_t branches) {
  struct ptx_compiler *compiler = l->launch->compiler;
  if (!ptx_compiles(l) || compiler->mode != PTX_COMPILE_AUTO) return;
  struct ptx_function *f = l->module->functions[number];
  if (!__atomic_load_n(&f->asked[l->rows], __ATOMIC_RELAXED)) {
    uint32_t hot = __atomic_load_n(&f->hot, __ATOMIC_RELAXED);
    if (hot == 0) __atomic_store_n(&f->hot, hot = parts_of(f), __ATOMIC_RELAXED);
    /* Threads count at once, and some counts are lost. */
    uint64_t heat = __atomic_load_n(&f->heat, __ATOMIC_RELAXED) + (uint64_t)warps * hot + branches;
    const uint64_t most = (uint64_t)hot * HOT_PASSES;
    __atomic_store_n(&f->heat, (uint32_t)(heat < most ? heat : most), __ATOMIC_RELAXED);
    if (heat >= most && pthread_mutex_trylock(&compiler->lock) == 0) {
      if (compiler->asking == NULL && !f->asked[l->rows] && compiler->socket >= 0) {
        ask(compiler, (struct ptx_module *)l->module, f, l->rows);
        __atomic_store_n(&f->heat, 0, __ATOMIC_RELAXED);
      }
      pthread_mutex_unlock(&compiler->lock);
    }
  }
  if (__atomic_load_n(&compiler->asking, __ATOMIC_RELAXED) == NULL ||
      __atomic_fetch_add(&compiler->looks, 1, __ATOMIC_RELAXED) % LOOK_EVERY != 0 ||
      pthread_mutex_trylock(&compiler->lock) != 0)
    return;
  if (compiler->asking != NULL) take(compiler, 0);
  pthread_mutex_unlock(&compiler->lock);
}

static void compile_now(struct ptx_compiler *compiler, struct ptx_module *module, uint32_t number,
                        bool rows) {
  struct ptx_function *f = module->functions[number];
  /* An answer that has not come in time still belongs to the function that was sent before. */
  if (f->asked[rows] || f->state != BODY_DECODED || compiler->asking != NULL) return;
  ask(compiler, module, f, rows);
  if (compiler->asking != NULL) take(compiler, ALWAYS_MS);
  for (uint32_t i = 0; i < f->call_count; i++) compile_now(compiler, module, f->calls[i], rows);
}

void ptx_region_prepare(struct launch_state *l) {
  struct ptx_compiler *compiler = l->launch->compiler;
  if (!ptx_compiles(l) || compiler->mode < PTX_COMPILE_ALWAYS) return;
  pthread_mutex_lock(&compiler->lock);
  if (compiler->asking != NULL) take(compiler, ALWAYS_MS);
  if (compiler->asking == NULL) compile_now(compiler, (struct ptx_module *)l->module, l->function, l->rows);
  pthread_mutex_unlock(&compiler->lock);
}

/* ---- running -------------------------------------------------------------- */

bool ptx_step(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  struct worker *worker = at->worker;
  unsigned char *d = at->registers + (in->d & ~3u);
  /* Registers of lanes that do not run may be written. */
  uint32_t all = (mask | ~at->warp->exists | at->warp->exited) == FULL ? FULL : mask;
  ptx_use_control(worker, in->control);
  switch (in->kind) {
    case K_ALU:
      in->u.lanes(worker->scratch, ptx_operand(at, in->a), ptx_operand(at, in->b), ptx_operand(at, in->c),
                  in->m);
      ptx_blend(worker, d, worker->scratch, mask, in->size);
      return true;
    case K_SETP:
      ptx_compare_lanes(at, mask);
      return true;
    case K_SETP_PAIR: {
      uint64_t t = in->u.compare_pair(ptx_operand(at, in->a), ptx_operand(at, in->b));
      uint32_t first = ptx_combined(at, (uint32_t)t), second = ptx_combined(at, (uint32_t)(t >> 32));
      ptx_set_predicate(at, in->d, first, mask);
      ptx_set_predicate(at, at->split->frame->function->x[in->x], second, mask);
      return true;
    }
    case K_SET:
    case K_SET_PAIR:
      ptx_set_lanes(at, all);
      return true;
    case K_CARRY:
      ptx_carry(at, mask);
      return true;
    case K_PRED:
      ptx_predicates(at, mask);
      return true;
    case K_SPECIAL:
      ptx_special(at);
      ptx_blend(worker, d, worker->scratch, mask, in->size);
      return true;
    case K_LOAD:
      return ptx_load(at, mask);
    case K_STORE:
      return ptx_store(at, mask);
    case K_LOAD_KERNEL_PARAM:
      ptx_kernel_parameter(at, all);
      return true;
    case K_ATOM:
      return ptx_atomic(at, mask);
    case K_CP_ASYNC:
      return ptx_copy_async(at, mask);
    case K_ISSPACEP:
      ptx_window(at, mask);
      return true;
    case K_LOCAL_ADDRESS: {
      uint64_t value = (in->m != 0 ? 0 : at->split->frame->local_base) + in->u.offset;
      for (uint32_t i = 0; i < PTX_LANES; i++) {
        if ((mask >> i & 1) != 0) memcpy(d + i * in->size, &value, in->size);
      }
      return true;
    }
    case K_SHFL:
    case K_VOTE:
    case K_MATCH:
    case K_REDUX:
    case K_ELECT:
    case K_WARP_BARRIER:
      ptx_alone(at, mask);
      return true;
    case K_LDMATRIX:
    case K_STMATRIX:
    case K_MOVMATRIX:
    case K_MMA:
    case K_WMMA_LOAD:
    case K_WMMA_STORE:
      return ptx_matrix(at, mask);
    default:
      ptx_raise(at, PTX_UNSUPPORTED, 0, 0, "an instruction that compiled code must not contain");
      return false;
  }
}

bool ptx_region_step(const struct place *at, uint32_t mask, struct ptx_region_call *call) {
  if (!ptx_step(at, mask)) return false;
  if (at->in->kind == K_LOAD) call->seen |= (at->in->m & ML_VOLATILE) != 0 ? SPIN_ORDERED : SPIN_LOAD;
  if (at->in->kind == K_ATOM) call->seen |= SPIN_ORDERED;
  return true;
}

static uint32_t step(struct ptx_region_call *call, unsigned char *registers, uint32_t pc, uint32_t mask) {
  struct place at = *call->at;
  at.registers = registers;
  at.pc = pc;
  at.in = &call->code[pc];
  at.worker->stepped++;
  uint32_t control = at.worker->control;
  bool done = ptx_step(&at, mask);
  ptx_use_control(at.worker, control);
  return done ? 1 : 0;
}

static uint32_t rest(struct ptx_region_call *call, unsigned char *registers, uint32_t pc, uint32_t to) {
  struct place at = *call->at;
  uint32_t control = at.worker->control;
  bool done = true;
  at.registers = registers;
  at.worker->stepped++;
  for (; pc < to && done; pc++) {
    at.in = &call->code[pc];
    at.pc = pc;
    uint32_t mask = ptx_guarded(&at, call->mask);
    if (mask != 0 && at.in->kind != K_LABEL) done = ptx_region_step(&at, mask, call);
  }
  ptx_use_control(at.worker, control);
  return done ? 1 : 0;
}

/* Copies all lanes. With a variable size, gcc uses `rep movs`, which takes longer to begin than these copies.
 */
static void copy_lanes(unsigned char *to, const unsigned char *from, uint32_t bytes) {
  switch (bytes) {
    case 2:
      memcpy(to, from, (size_t)2 * PTX_LANES);
      break;
    case 4:
      memcpy(to, from, (size_t)4 * PTX_LANES);
      break;
    case 8:
      memcpy(to, from, (size_t)8 * PTX_LANES);
      break;
    default:
      memcpy(to, from, (size_t)bytes * PTX_LANES);
  }
}

/* Copies the registers of a set from frame to frame, for the lanes of `mask`. */
static void copy(struct worker *worker, const struct ptx_plan *plan, uint32_t word, uint64_t set,
                 unsigned char *to, const unsigned char *from, uint32_t mask) {
  for (; set != 0; set &= set - 1) {
    uint32_t place = plan->places[word * 64 + (uint32_t)__builtin_ctzll(set)];
    uint32_t bytes = plan->function->widths[place / 64], old, new;
    if (bytes != 0) {
      if (mask == FULL) copy_lanes(to + place, from + place, bytes);
      else ptx_blend(worker, to + place, from + place, mask, bytes);
      continue;
    }
    memcpy(&old, to + place, 4);
    memcpy(&new, from + place, 4);
    new = (old & ~mask) | (new &mask);
    memcpy(to + place, &new, 4);
  }
}

void ptx_region_waiting(const struct place *at, const struct ptx_compiled *compiled, uint64_t *set) {
  const struct ptx_plan *plan = &compiled->plan;
  memset(set, 0, plan->words * sizeof *set);
  const uint64_t look = ++at->worker->looks;
  for (uint32_t i = 0; i < at->warp->leaf_count; i++) {
    /* Leaves share parents. */
    for (struct split *s = at->warp->leaves[i]; s != NULL && s->look != look; s = s->parent) {
      s->look = look;
      /* Behind the end of a function nothing is needed. */
      if (s == at->split || s->frame != at->split->frame || s->pc >= plan->function->code_count) continue;
      const uint64_t *live = ptx_plan_live(plan, s->pc);
      for (uint32_t n = 0; n < plan->words; n++) set[n] |= live[n];
    }
  }
}

/* The last result of ptx_plan_written() for an entry, and the reconvergence point that it is for. */
struct ptx_written {
  bool known;
  uint32_t reconvergence;
  uint64_t set[PTX_PLAN_WORDS];
};
/* NULL: no memory. */
static const uint64_t *written_from(const struct place *at, const struct ptx_compiled *compiled,
                                    const struct ptx_region_call *call) {
  struct worker *worker = at->worker;
  if (worker->written == NULL)
    worker->written = calloc(worker->launch->module->function_count, sizeof *worker->written);
  if (worker->written == NULL) return NULL;
  struct ptx_written **of = &worker->written[at->split->frame->number];
  if (*of == NULL) *of = calloc(compiled->plan.block_count, sizeof **of);
  if (*of == NULL) return NULL;
  struct ptx_written *written = &(*of)[call->entry];
  if (!written->known || written->reconvergence != call->reconvergence) {
    written->known = true;
    written->reconvergence = call->reconvergence;
    ptx_plan_written(&compiled->plan, call->entry, call->reconvergence, written->set);
  }
  return written->set;
}

/*
 * Compiled code writes all 32 lanes. So this saves the registers that lanes of other splits still need and
 * that the code writes, runs the code, and restores them in the lanes that did not run.
 */
static __attribute__((noinline)) uint32_t
run_apart(const struct place *at, const struct ptx_compiled *compiled, struct ptx_region_call *call) {
  const struct ptx_plan *plan = &compiled->plan;
  struct worker *worker = at->worker;
  const size_t bytes = plan->function->frame_bytes;
  if (worker->apart_bytes < bytes) {
    free(worker->apart);
    worker->apart = aligned_alloc(64, (bytes + 63) / 64 * 64);
    worker->apart_bytes = bytes;
    if (worker->apart == NULL) {
      worker->apart_bytes = 0;
      ptx_raise(at, PTX_OUT_OF_MEMORY, 0, 0, "no memory for the registers of a warp");
      return PTX_REGION_FAULT;
    }
  }
  const uint64_t *written = written_from(at, compiled, call);
  if (written == NULL) {
    ptx_raise(at, PTX_OUT_OF_MEMORY, 0, 0, "no memory for the registers of a warp");
    return PTX_REGION_FAULT;
  }
  uint64_t kept[PTX_PLAN_WORDS];
  ptx_region_waiting(at, compiled, kept);
  for (uint32_t i = 0; i < plan->words; i++) {
    kept[i] &= written[i];
    worker->saved += (uint64_t)__builtin_popcountll(kept[i]);
    copy(worker, plan, i, kept[i], worker->apart, at->registers, FULL);
  }
  const uint32_t pc = compiled->run(call, at->registers, at->constants);
  for (uint32_t i = 0; i < plan->words; i++)
    copy(worker, plan, i, kept[i], at->registers, worker->apart, ~call->mask);
  return pc;
}

uint32_t ptx_region_code_run(const struct place *at, const struct ptx_compiled *compiled,
                             struct ptx_region_call *call) {
  ptx_use_control(at->worker, compiled->plan.control);
  return (call->mask | ~call->living) == FULL ? compiled->run(call, at->registers, at->constants)
                                              : run_apart(at, compiled, call);
}

void ptx_region_prepare_call(struct ptx_region_call *call, const struct block *block,
                             const struct ptx_compiled *compiled) {
  const struct launch_state *l = block->launch;
  struct worker *worker = block->worker;
  call->parameters = l->launch->parameters;
  call->shared = block->shared;
  call->shared_bytes = l->shared_bytes;
  call->regions = worker->regions;
  call->step = step;
  call->rest = rest;
  call->alu = worker->alu;
  call->block = block->id;
  call->code = compiled->plan.code;
  call->compares = l->launch->compiler->mode == PTX_COMPILE_CHECK;
}

uint32_t ptx_region_run(const struct place *at, const struct ptx_compiled *compiled, uint32_t mask,
                        struct ptx_region_call *call) {
  struct split *split = at->split;
  call->mask = mask;
  call->entry = compiled->plan.entry[at->pc];
  call->spun = split->spun;
  call->rounds = 0;
  call->reconvergence = split->parent == NULL ? PTX_NO_PC : split->reconvergence;
  call->living = at->warp->exists & ~at->warp->exited;
  call->tid = at->warp->tid[0];
  call->settled = at->registers;
  call->at = at;
  uint32_t pc =
      call->compares ? ptx_region_compare(at, compiled, call) : ptx_region_code_run(at, compiled, call);
  split->spun = call->spun;
  if (call->rounds != 0) split->timed = false;
  return pc;
}

static struct place place_of(struct warp *warp, struct split *split) {
  struct worker *worker = warp->block->worker;
  return (struct place){.warp = warp,
                        .split = split,
                        .worker = worker,
                        .registers = split->frame->registers,
                        .constants = worker->constants};
}

enum run ptx_region_warp(struct warp *warp, const struct ptx_compiled *compiled,
                         struct ptx_region_call *call) {
  struct split *split = warp->leaves[0];
  if (split->parent != NULL || split->state != SPLIT_READY) return RUN_YIELD;
  struct place at = place_of(warp, split);
  for (;;) {
    at.pc = split->pc;
    at.in = &compiled->plan.code[at.pc];
    if (compiled->plan.entry[at.pc] != PTX_NO_PC) {
      split->pc = ptx_region_run(&at, compiled, split->mask, call);
      if (split->pc == PTX_REGION_FAULT) return RUN_FAULT;
      continue;
    }
    uint32_t lanes = ptx_guarded(&at, split->mask);
    if (lanes == 0) {
      split->pc++;
      continue;
    }
    if (lanes != split->mask) return RUN_YIELD;
    switch (at.in->kind) {
      case K_LABEL:
        split->pc++;
        continue;
      case K_BRA:
        if (at.in->target <= at.pc || call->turns == 1) return RUN_YIELD;
        call->turns--;
        split->pc = at.in->target;
        continue;
      case K_BARRIER:
        if (ptx_barrier(&at, split, split->mask) == RUN_FAULT) return RUN_FAULT;
        if (split->state != SPLIT_READY) return RUN_BLOCKED;
        continue;
      case K_RET:
      case K_EXIT:
        ptx_leave(warp, split, split->mask);
        ptx_end_split(warp, split);
        ptx_settle_barriers(warp->block);
        return RUN_DONE;
      default:
        return RUN_YIELD;
    }
  }
}
