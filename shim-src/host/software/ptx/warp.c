/* One warp: instructions in order, lanes that part and meet. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/software/ptx/fpu.h"
#include "host/software/ptx/warp.h"

#define MAX_FRAME_BYTES ((uint64_t)256 << 20) /* of one worker */

struct frame *ptx_new_frame(struct worker *worker, uint32_t number) {
  const struct ptx_function *function = worker->launch->module->functions[number];
  struct frame *frame = worker->free_frames[number];
  if (frame != NULL) {
    worker->free_frames[number] = frame->next;
  } else {
    uint64_t bytes = (sizeof *frame + function->frame_bytes + 63) / 64 * 64;
    if (bytes > MAX_FRAME_BYTES - worker->frame_bytes) return NULL;
    void *memory = NULL;
    if (posix_memalign(&memory, 64, bytes) != 0) return NULL;
    memset(memory, 0, bytes);
    worker->frame_bytes += bytes;
    frame = memory;
    frame->made = worker->made;
    worker->made = frame;
  }
  frame->number = number;
  frame->function = function;
  frame->users = 0;
  frame->next = NULL;
  frame->depth = 0;
  frame->local_base = 0;
  return frame;
}

void ptx_leave_frame(struct worker *worker, struct frame *frame) {
  if (--frame->users > 0) return;
  frame->next = worker->free_frames[frame->number];
  worker->free_frames[frame->number] = frame;
}

struct split *ptx_new_split(struct warp *warp, struct frame *frame) {
  struct split *split = warp->free_splits;
  if (split != NULL) {
    warp->free_splits = split->parent;
  } else {
    if (warp->split_count >= MAX_DEPTH) return NULL;
    split = malloc(sizeof *split);
    if (split == NULL) return NULL;
    warp->split_count++;
    split->made = warp->made;
    warp->made = split;
  }
  *split =
      (struct split){.made = split->made, .frame = frame, .state = SPLIT_READY, .reconvergence = PTX_NO_PC};
  frame->users++;
  return split;
}

static void free_split(struct warp *warp, struct split *split) {
  ptx_leave_frame(warp->block->worker, split->frame);
  split->parent = warp->free_splits;
  warp->free_splits = split;
}

enum run ptx_raise(const struct place *at, enum ptx_status status, uint32_t lane, uint64_t address,
                   const char *text) {
  struct launch_state *l = at->worker->launch;
  pthread_mutex_lock(&l->lock);
  if (l->fault.status == PTX_OK) {
    l->fault.status = status;
    l->fault.address = address;
    l->fault.line = at->in == NULL ? 0 : at->in->line;
    memcpy(l->fault.block, at->warp->block->id, sizeof l->fault.block);
    for (int k = 0; k < 3; k++) l->fault.thread[k] = at->warp->tid[k][lane & 31];
    snprintf(l->fault.text, sizeof l->fault.text, "%s", text);
  }
  __atomic_store_n(&l->stop, 1, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&l->lock);
  return RUN_FAULT;
}

static void remove_leaf(struct warp *warp, const struct split *split) {
  for (uint32_t i = 0; i < warp->leaf_count; i++) {
    if (warp->leaves[i] != split) continue;
    warp->leaves[i] = warp->leaves[--warp->leaf_count];
    return;
  }
}

/* A split has no lanes any more: its parent waits for one less, and goes on when it was the last. */
static void end_split(struct warp *warp, struct split *split) {
  remove_leaf(warp, split);
  while (split != NULL) {
    struct split *parent = split->parent;
    free_split(warp, split);
    if (parent == NULL || --parent->children > 0) return;
    parent->mask = parent->arrived & ~warp->exited;
    parent->arrived = 0;
    if (parent->mask != 0) {
      parent->state = SPLIT_READY;
      warp->leaves[warp->leaf_count++] = parent;
      return;
    }
    split = parent;
  }
}

/* Lanes of a split have come to where it meets its siblings. */
static void arrive(struct split *split, uint32_t lanes) {
  split->parent->arrived |= lanes;
  split->mask &= ~lanes;
}

static void leave(struct warp *warp, struct split *split, uint32_t lanes) {
  warp->exited |= lanes;
  warp->block->live -= (uint32_t)__builtin_popcount(lanes);
  split->mask &= ~lanes;
}

static struct split *new_leaf(struct warp *warp, struct split *parent, struct frame *frame, uint32_t mask,
                              uint32_t pc, uint32_t reconvergence) {
  struct split *split = ptx_new_split(warp, frame);
  if (split == NULL) return NULL;
  split->parent = parent;
  split->mask = mask;
  split->pc = pc;
  split->reconvergence = reconvergence;
  parent->children++;
  warp->leaves[warp->leaf_count++] = split;
  return split;
}

/*
 * The split's lanes go two ways, `taken` to `target` and the others to `next`, to meet at `join`. Afterwards
 * the leaf to go on with is warp->leaves[at]; false: too deep.
 */
static bool diverge(struct warp *warp, struct split *split, uint32_t taken, uint32_t target, uint32_t next,
                    uint32_t join) {
  uint32_t rest = split->mask & ~taken;
  if (join != split->reconvergence || split->parent == NULL) {
    /* this split waits at the join for both */
    struct split *first = ptx_new_split(warp, split->frame);
    if (first == NULL) return false;
    *first = (struct split){.made = first->made,
                            .parent = split,
                            .frame = split->frame,
                            .mask = split->mask,
                            .state = SPLIT_READY,
                            .reconvergence = join};
    split->state = SPLIT_JOIN;
    split->pc = join;
    split->children = 1;
    split->arrived = 0;
    for (uint32_t i = 0; i < warp->leaf_count; i++) {
      if (warp->leaves[i] == split) warp->leaves[i] = first;
    }
    split = first;
  }
  if (join != PTX_NO_PC && target == join) {
    arrive(split, taken);
    split->pc = next;
    return true;
  }
  if (join != PTX_NO_PC && next == join) {
    arrive(split, rest);
    split->pc = target;
    return true;
  }
  split->mask = rest;
  split->pc = next;
  return new_leaf(warp, split->parent, split->frame, taken, target, join) != NULL;
}

static inline uint32_t predicate(const struct place *at, uint32_t reference) {
  uint32_t value;
  memcpy(&value, ptx_operand(at, reference), 4);
  return value;
}

static inline void set_predicate(const struct place *at, uint32_t reference, uint32_t value, uint32_t mask) {
  unsigned char *to = at->registers + (reference & ~3u);
  uint32_t old;
  memcpy(&old, to, 4);
  old = (old & ~mask) | (value & mask);
  memcpy(to, &old, 4);
}

static inline uint32_t combined(const struct place *at, uint32_t t) {
  const struct ptx_instruction *in = at->in;
  uint32_t how = in->m & 3;
  if (how == 0) return t;
  uint32_t c = predicate(at, in->c);
  if ((in->m & 4) != 0) c = ~c;
  return how == 1 ? t & c : how == 2 ? t | c : t ^ c;
}

static void set_lanes(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  uint32_t t = combined(at, in->u.compare(ptx_operand(at, in->a), ptx_operand(at, in->b)));
  static const uint32_t truths[4] = {0xffffffffu, 0x3f800000u, 0x3c00u, 0x3f80u};
  uint32_t yes = truths[in->m >> 3 & 3];
  unsigned char *d = at->registers + (in->d & ~3u);
  for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
    if ((mask >> lane & 1) == 0) continue;
    uint64_t value = (t >> lane & 1) != 0 ? yes : 0;
    if (value == 0xffffffffu) value = ~0ull;
    memcpy(d + lane * in->size, &value, in->size);
  }
}

/* m: 1 subtract, 2 with the carry, 4 sets it. The carry is a predicate; of a subtraction it is the borrow. */
static void carry(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const uint32_t *x = at->split->frame->function->x + in->x;
  uint32_t before = (in->m & 2) != 0 ? predicate(at, x[0]) : 0, after = 0;
  const unsigned char *a = ptx_operand(at, in->a), *b = ptx_operand(at, in->b);
  unsigned char *d = at->registers + (in->d & ~3u);
  for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
    if ((mask >> lane & 1) == 0) continue;
    uint64_t p = 0, q = 0;
    memcpy(&p, a + lane * in->size, in->size);
    memcpy(&q, b + lane * in->size, in->size);
    unsigned __int128 wide = (in->m & 1) != 0 ? (unsigned __int128)p - q - (before >> lane & 1)
                                              : (unsigned __int128)p + q + (before >> lane & 1);
    after |= ((uint32_t)(wide >> (in->size * 8)) & 1) << lane;
    uint64_t value = (uint64_t)wide;
    memcpy(d + lane * in->size, &value, in->size);
  }
  if ((in->m & 4) != 0) set_predicate(at, x[1] & ~PTX_DEFINED, after, mask);
}

static void predicates(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  uint32_t a = predicate(at, in->a), r;
  switch (in->m) {
    case P_AND:
      r = a & predicate(at, in->b);
      break;
    case P_OR:
      r = a | predicate(at, in->b);
      break;
    case P_XOR:
      r = a ^ predicate(at, in->b);
      break;
    case P_NOT:
      r = ~a;
      break;
    default:
      r = a;
  }
  set_predicate(at, in->d, r, mask);
}

static void kernel_parameter(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const uint32_t *x = at->split->frame->function->x + in->x;
  const unsigned char *from = (const unsigned char *)at->worker->launch->launch->parameters + in->u.offset;
  uint32_t held = ML_REGISTER(in->m);
  for (uint32_t k = 0; k < in->x_count; k++, from += in->size) {
    uint64_t value = 0;
    memcpy(&value, from, in->size);
    if ((in->m & ML_SIGNED) != 0 && in->size < 8) {
      uint32_t shift = 64 - in->size * 8u;
      value = (uint64_t)((int64_t)(value << shift) >> shift);
    }
    unsigned char *d = at->registers + (x[k] & ~3u);
    if (mask == FULL && held == 8) {
      for (uint32_t i = 0; i < PTX_LANES; i++) memcpy(d + i * 8, &value, 8);
    } else if (mask == FULL && held == 4) {
      for (uint32_t i = 0; i < PTX_LANES; i++) memcpy(d + i * 4, &value, 4);
    } else {
      for (uint32_t i = 0; i < PTX_LANES; i++) {
        if ((mask >> i & 1) != 0) memcpy(d + i * held, &value, held);
      }
    }
  }
}

/* Parameters of calls: lane-major, each lane's `target` bytes apart. */
static void call_parameter(const struct place *at, uint32_t mask, bool load) {
  const struct ptx_instruction *in = at->in;
  const uint32_t *x = at->split->frame->function->x + in->x;
  uint32_t held = ML_REGISTER(in->m);
  for (uint32_t k = 0; k < in->x_count; k++) {
    for (uint32_t left = mask; left != 0; left &= left - 1) {
      uint32_t lane = (uint32_t)__builtin_ctz(left);
      unsigned char *memory = at->registers + in->u.offset + lane * in->target + k * in->size;
      if (!load) {
        memcpy(memory, ptx_operand(at, x[k]) + lane * held, in->size);
        continue;
      }
      uint64_t value = 0;
      memcpy(&value, memory, in->size);
      if ((in->m & ML_SIGNED) != 0 && in->size < 8) {
        uint32_t shift = 64 - in->size * 8u;
        value = (uint64_t)((int64_t)(value << shift) >> shift);
      }
      memcpy(at->registers + (x[k] & ~3u) + lane * held, &value, held);
    }
  }
}

static void window(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const uint64_t *a = (const void *)ptx_operand(at, in->a);
  uint32_t r = 0;
  for (uint32_t i = 0; i < PTX_LANES; i++) {
    bool shared = a[i] - PTX_SHARED_WINDOW < PTX_WINDOW_SIZE,
         local = a[i] - PTX_LOCAL_WINDOW < PTX_WINDOW_SIZE;
    bool param = a[i] - PTX_PARAM_WINDOW < PTX_WINDOW_SIZE;
    bool is = in->space == S_SHARED   ? shared
              : in->space == S_LOCAL  ? local
              : in->space == S_PARAM  ? param
              : in->space == S_GLOBAL ? !shared && !local && !param
                                      : false;
    r |= (uint32_t)is << i;
  }
  set_predicate(at, in->d, r, mask);
}

/* Copies `lanes` of parameters from one frame to another; both lists are (offset, size). */
static void copy_parameters(unsigned char *to, const uint32_t *to_places, const unsigned char *from,
                            const uint32_t *from_list, uint32_t count, uint32_t lanes, bool back) {
  for (uint32_t i = 0; i < count; i++) {
    uint32_t offset = from_list[i * 2], size = from_list[i * 2 + 1], place = to_places[i];
    for (uint32_t left = lanes; left != 0; left &= left - 1) {
      uint32_t lane = (uint32_t)__builtin_ctz(left);
      if (back) memcpy(to + offset + lane * size, from + place + lane * size, size);
      else memcpy(to + place + lane * size, from + offset + lane * size, size);
    }
  }
}

/* Where the caller's lists of a call lie: returns, then arguments. */
struct call_lists {
  const uint32_t *returns, *arguments;
  uint32_t return_count, argument_count;
};
static struct call_lists lists_of(const struct ptx_function *f, const struct ptx_instruction *in) {
  struct call_lists l;
  const uint32_t *x = f->x + in->x;
  l.return_count = x[0];
  l.returns = x + 1;
  x += 1 + 2 * l.return_count;
  l.argument_count = x[0];
  l.arguments = x + 1;
  return l;
}

/* A child of `waiting` that begins the function with some lanes. */
static bool enter(const struct place *at, struct split *waiting, uint32_t number, uint32_t lanes) {
  struct warp *warp = at->warp;
  struct frame *caller = waiting->frame;
  const struct ptx_function *callee = at->worker->launch->module->functions[number];
  uint32_t base = caller->local_base + caller->function->local_bytes;
  if (caller->depth >= MAX_DEPTH / 2 || callee->local_bytes > at->worker->launch->local_bytes ||
      base > at->worker->launch->local_bytes - callee->local_bytes) {
    ptx_raise(at, PTX_STACK_OVERFLOW, (uint32_t)__builtin_ctz(lanes), 0,
              "calls are nested too deep for the stack");
    return false;
  }
  struct frame *frame = ptx_new_frame(at->worker, number);
  if (frame == NULL || new_leaf(warp, waiting, frame, lanes, 0, PTX_NO_PC) == NULL) {
    ptx_raise(at, PTX_STACK_OVERFLOW, (uint32_t)__builtin_ctz(lanes), 0, "calls are nested too deep");
    return false;
  }
  frame->depth = caller->depth + 1;
  frame->local_base = base;
  struct call_lists l = lists_of(caller->function, at->in);
  copy_parameters(frame->registers, callee->parameter_place + callee->return_count, caller->registers,
                  l.arguments, l.argument_count, lanes, false);
  return true;
}

/* The callee's parameters are as many and as large as the call's. */
static bool fits(const struct ptx_function *callee, struct call_lists l) {
  if (callee->entry || !callee->defined || callee->return_count != l.return_count ||
      callee->parameter_count != l.return_count + l.argument_count) {
    return false;
  }
  for (uint32_t i = 0; i < callee->parameter_count; i++) {
    uint32_t size = i < l.return_count ? l.returns[i * 2 + 1] : l.arguments[(i - l.return_count) * 2 + 1];
    if (callee->parameters[i].size != size) return false;
  }
  return true;
}

/* The split that calls waits after the call for all that return. Lanes that the guard holds back are there.
 */
static bool call(const struct place *at, struct split *split, uint32_t mask, uint32_t next) {
  struct warp *warp = at->warp;
  const struct ptx_module *module = at->worker->launch->module;
  uint64_t address[PTX_LANES];
  if (at->in->kind == K_CALL_INDIRECT) {
    struct call_lists l = lists_of(split->frame->function, at->in);
    memcpy(address, ptx_operand(at, at->in->a), sizeof address);
    for (uint32_t left = mask; left != 0; left &= left - 1) {
      uint32_t lane = (uint32_t)__builtin_ctz(left);
      uint64_t number = (address[lane] - PTX_FUNCTION_WINDOW) / 16;
      if (address[lane] % 16 != 0 || number >= module->function_count ||
          !fits(module->functions[number], l)) {
        ptx_raise(at, PTX_INVALID_CALL, lane, address[lane], "a call of what is no such function");
        return false;
      }
    }
  }
  remove_leaf(warp, split);
  split->state = SPLIT_JOIN;
  split->arrived = split->mask & ~mask;
  split->children = 0;
  split->pc = next;
  if (at->in->kind == K_CALL) return enter(at, split, at->in->target, mask);
  for (uint32_t left = mask; left != 0;) {
    uint32_t lane = (uint32_t)__builtin_ctz(left), same = 0;
    for (uint32_t others = left; others != 0; others &= others - 1) {
      uint32_t other = (uint32_t)__builtin_ctz(others);
      if (address[other] == address[lane]) same |= 1u << other;
    }
    left &= ~same;
    if (!enter(at, split, (uint32_t)((address[lane] - PTX_FUNCTION_WINDOW) / 16), same)) return false;
  }
  return true;
}

static void give_back(struct split *split, uint32_t lanes) {
  struct split *waiting = split->parent;
  if (waiting == NULL || waiting->frame == split->frame) return;
  const struct ptx_function *callee = split->frame->function, *caller = waiting->frame->function;
  if (callee->return_count == 0) return;
  struct call_lists l = lists_of(caller, &caller->code[waiting->pc - 1]);
  copy_parameters(waiting->frame->registers, callee->parameter_place, split->frame->registers, l.returns,
                  l.return_count, lanes, true);
}

/* Threads that came to a barrier may all be there now. */
static void settle_barrier(struct block *block, uint32_t number) {
  struct barrier *barrier = &block->barriers[number];
  uint32_t expected = barrier->expected > 0 ? barrier->expected : block->live;
  if (barrier->arrived == 0 || barrier->arrived < expected) return;
  for (uint32_t i = 0; i < block->warp_count; i++) {
    struct warp *warp = &block->warps[i];
    for (uint32_t k = 0; k < warp->leaf_count; k++) {
      struct split *split = warp->leaves[k];
      if (split->state != SPLIT_BARRIER) continue;
      const struct ptx_instruction *in = &split->frame->function->code[split->pc];
      struct place at = {.warp = warp,
                         .split = split,
                         .registers = split->frame->registers,
                         .constants = block->launch->module->constants,
                         .in = in};
      uint32_t id;
      memcpy(&id, ptx_operand(&at, in->a) + 4 * (uint32_t)__builtin_ctz(split->mask), 4);
      if (id != number) continue;
      uint32_t mask = split->mask;
      switch (in->m & 7) {
        case BAR_POPC: {
          uint32_t r[PTX_LANES];
          for (int n = 0; n < PTX_LANES; n++) r[n] = barrier->count;
          ptx_blend(at.registers + (in->d & ~3u), r, mask, 4);
          break;
        }
        case BAR_AND:
          set_predicate(&at, in->d, barrier->count == barrier->asked ? FULL : 0, mask);
          break;
        case BAR_OR:
          set_predicate(&at, in->d, barrier->count > 0 ? FULL : 0, mask);
          break;
        default:
          break;
      }
      split->state = SPLIT_READY;
      split->pc++;
    }
  }
  *barrier = (struct barrier){0};
}

void ptx_settle_barriers(struct block *block) {
  for (uint32_t i = 0; i < PTX_BARRIERS; i++) {
    if (block->barriers[i].arrived > 0) settle_barrier(block, i);
  }
}

static enum run barrier(const struct place *at, struct split *split, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  struct warp *warp = at->warp;
  uint32_t lane = (uint32_t)__builtin_ctz(mask), id, expected = 0;
  memcpy(&id, ptx_operand(at, in->a) + lane * 4, 4);
  if (in->b != PTX_NONE) memcpy(&expected, ptx_operand(at, in->b) + lane * 4, 4);
  if (id >= PTX_BARRIERS || (id == CLUSTER_BARRIER && (in->a & 3) != REF_CONSTANT)) {
    return ptx_raise(at, PTX_TRAP, lane, 0, "a barrier beyond 15");
  }
  struct barrier *b = &warp->block->barriers[id];
  uint32_t came = (uint32_t)__builtin_popcount(mask);
  /* Counts are of whole warps: lanes that do not exist or have ended count with the last that come. */
  if (expected > 0 && (mask | warp->exited | ~warp->exists) == FULL) came = PTX_LANES;
  b->expected = expected;
  b->arrived += came;
  if ((in->m & 7) >= BAR_POPC) {
    uint32_t p = predicate(at, in->c);
    if ((in->m & MB_NEGATED) != 0) p = ~p;
    b->count += (uint32_t)__builtin_popcount(p & mask);
    b->asked += (uint32_t)__builtin_popcount(mask);
  }
  if ((in->m & 7) == BAR_ARRIVE) split->pc = at->pc + 1;
  else {
    split->state = SPLIT_BARRIER;
    split->pc = at->pc;
  }
  settle_barrier(warp->block, id);
  return RUN_DONE;
}

static void together(const struct place *at, uint32_t mask) {
  switch (at->in->kind) {
    case K_SHFL:
      ptx_shuffle(at, mask);
      break;
    case K_VOTE:
      ptx_vote(at, mask);
      break;
    case K_MATCH:
      ptx_match(at, mask);
      break;
    case K_REDUX:
      ptx_reduce(at, mask);
      break;
    case K_ELECT:
      ptx_elect(at, mask);
      break;
    default:
      break;
  }
}

/*
 * An operation with a member mask: when all members that still run are here, or wait at the same place in
 * other splits, it is done for all of them. Otherwise this split waits. With `force`, whoever is here does
 * it.
 */
static bool meet(const struct place *at, struct split *split, uint32_t mask, bool force) {
  struct warp *warp = at->warp;
  const struct ptx_instruction *in = at->in;
  uint32_t reference = in->kind == K_WARP_BARRIER ? in->a : split->frame->function->x[in->x];
  uint32_t members;
  memcpy(&members, ptx_operand(at, reference) + 4 * (uint32_t)__builtin_ctz(mask), 4);
  uint32_t needed = members & warp->exists & ~warp->exited;
  if ((needed & ~mask) == 0) {
    together(at, mask);
    return true;
  }
  uint32_t present = mask;
  for (uint32_t i = 0; i < warp->leaf_count; i++) {
    const struct split *other = warp->leaves[i];
    if (other == split || other->state != SPLIT_WARP) continue;
    const struct ptx_instruction *its = &other->frame->function->code[other->pc];
    bool here = other->frame == split->frame && other->pc == at->pc;
    if (here || (in->kind == K_WARP_BARRIER && its->kind == K_WARP_BARRIER)) present |= other->mask;
  }
  if ((needed & ~present) != 0 && !force) {
    split->state = SPLIT_WARP;
    return false;
  }
  for (uint32_t i = 0; i < warp->leaf_count; i++) {
    struct split *other = warp->leaves[i];
    if (other == split || other->state != SPLIT_WARP) continue;
    const struct ptx_instruction *its = &other->frame->function->code[other->pc];
    bool here = other->frame == split->frame && other->pc == at->pc;
    if (!here && !(in->kind == K_WARP_BARRIER && its->kind == K_WARP_BARRIER)) continue;
    other->state = SPLIT_READY;
    other->pc++;
  }
  together(at, present);
  return true;
}

/* The next leaf that can go on; NULL: none. Those that wait within the warp for lanes that cannot come any
 * more (they wait elsewhere) go on without them, as nothing else ever will. */
static struct split *ready(struct warp *warp, bool *forced) {
  *forced = false;
  for (uint32_t i = 0; i < warp->leaf_count; i++) {
    uint32_t k = (warp->at + i) % warp->leaf_count;
    if (warp->leaves[k]->state == SPLIT_READY) {
      warp->at = k;
      return warp->leaves[k];
    }
  }
  for (uint32_t k = 0; k < warp->leaf_count; k++) {
    if (warp->leaves[k]->state != SPLIT_WARP) continue;
    for (uint32_t i = 0; i < warp->leaf_count; i++) {
      /* lanes at a block's barrier may still come, once it opens */
      if (warp->leaves[i]->state == SPLIT_BARRIER) return NULL;
    }
    warp->at = k;
    *forced = true;
    return warp->leaves[k];
  }
  return NULL;
}

#define BUDGET_OF_SPLIT 2000

enum run ptx_run_warp(struct warp *warp, uint32_t budget) {
  struct worker *worker = warp->block->worker;
  struct place at = {.warp = warp, .worker = worker, .constants = worker->launch->module->constants};
  if (warp->leaf_count == 0) return RUN_DONE;
  /* Whatever it is that a loop of the guest's does, it comes by here or branches. */
  uint32_t turns = BUDGET_OF_SPLIT;
again:
  if (warp->leaf_count == 0) return RUN_DONE;
  if (--turns == 0) goto next_split;
  if (warp->at >= warp->leaf_count) warp->at = 0;
  bool forced;
  struct split *split = ready(warp, &forced);
  if (split == NULL) return RUN_BLOCKED;
  split->state = SPLIT_READY;
  const struct ptx_instruction *code = split->frame->function->code;
  at.split = split;
  at.registers = split->frame->registers;
  uint32_t pc = split->pc, all = split->mask;
  uint32_t idle = ~warp->exists | warp->exited;

  for (;;) {
    const struct ptx_instruction *in = &code[pc];
    uint32_t mask = all;
    at.in = in;
    at.pc = pc;
    if (in->guard != 0) {
      uint32_t p;
      memcpy(&p, at.registers + (in->guard & ~3u), 4);
      mask &= (in->guard & 2) != 0 ? ~p : p;
      if (mask == 0) {
        pc++;
        continue;
      }
    }
    if (in->control != 0 && in->control != worker->control) {
      worker->control = in->control;
      ptx_fpu_set(in->control);
    }
    switch (in->kind) {
      case K_ALU: {
        unsigned char *d = at.registers + (in->d & ~3u);
        if ((mask | idle) == FULL) {
          in->u.lanes(d, ptx_operand(&at, in->a), ptx_operand(&at, in->b), ptx_operand(&at, in->c), in->m);
        } else {
          in->u.lanes(worker->scratch, ptx_operand(&at, in->a), ptx_operand(&at, in->b),
                      ptx_operand(&at, in->c), in->m);
          ptx_blend(d, worker->scratch, mask, in->size);
        }
        pc++;
        continue;
      }
      case K_SETP: {
        uint32_t t = in->u.compare(ptx_operand(&at, in->a), ptx_operand(&at, in->b));
        uint32_t first = combined(&at, t);
        if (in->x_count > 0) {
          uint32_t second = combined(&at, ~t);
          set_predicate(&at, split->frame->function->x[in->x] & ~PTX_DEFINED, second, mask);
        }
        set_predicate(&at, in->d, first, mask);
        pc++;
        continue;
      }
      case K_SET:
        set_lanes(&at, mask);
        pc++;
        continue;
      case K_CARRY:
        carry(&at, mask);
        pc++;
        continue;
      case K_PRED:
        predicates(&at, mask);
        pc++;
        continue;
      case K_SPECIAL:
        ptx_special(&at);
        ptx_blend(at.registers + (in->d & ~3u), worker->scratch, mask, in->size);
        pc++;
        continue;
      case K_LABEL:
        if (pc == split->reconvergence && split->parent != NULL) {
          arrive(split, all);
          end_split(warp, split);
          goto again;
        }
        pc++;
        continue;
      case K_BRA:
        if (--turns == 0) {
          split->pc = pc;
          goto next_split;
        }
        if (mask == all) {
          pc = in->target;
          continue;
        }
        split->pc = pc;
        if (!diverge(warp, split, mask, in->target, pc + 1, in->join)) {
          return ptx_raise(&at, PTX_STACK_OVERFLOW, 0, 0, "branches are nested too deep");
        }
        goto again;
      case K_BRX: {
        if (--turns == 0) {
          split->pc = pc;
          goto next_split;
        }
        /* the lanes of the first target leave; the others look at this instruction again */
        const uint32_t *index = (const void *)ptx_operand(&at, in->a);
        uint32_t lane = (uint32_t)__builtin_ctz(mask), taken = 0;
        if (in->x_count == 0 || index[lane] >= in->x_count) {
          return ptx_raise(&at, PTX_TRAP, lane, 0, "an index beyond the list of targets");
        }
        for (uint32_t left = mask; left != 0; left &= left - 1) {
          uint32_t other = (uint32_t)__builtin_ctz(left);
          if (index[other] == index[lane]) taken |= 1u << other;
        }
        uint32_t target = split->frame->function->x[in->x + index[lane]];
        if (taken == all) {
          pc = target;
          continue;
        }
        split->pc = pc;
        uint32_t rest = mask & ~taken;
        if (!diverge(warp, split, taken, target, rest != 0 ? pc : pc + 1, in->join)) {
          return ptx_raise(&at, PTX_STACK_OVERFLOW, 0, 0, "branches are nested too deep");
        }
        goto again;
      }
      case K_CALL:
      case K_CALL_INDIRECT: {
        const struct ptx_function *callee =
            in->kind == K_CALL ? worker->launch->module->functions[in->target] : NULL;
        if (callee != NULL && callee->builtin) {
          if (!ptx_builtin(&at, mask, callee)) return RUN_FAULT;
          pc++;
          continue;
        }
        split->pc = pc;
        if (!call(&at, split, mask, pc + 1)) return RUN_FAULT;
        goto again;
      }
      case K_RET:
        /* A split that meets its siblings elsewhere cannot come here; the root's return ends its lanes. */
        split->pc = pc + 1;
        if (split->parent == NULL) leave(warp, split, mask);
        else {
          struct split *up = split;
          /* up to whoever waits for the function: parents in the same frame wait for joins that never come */
          while (up->parent != NULL && up->parent->frame == split->frame) up = up->parent;
          if (up->parent == NULL) {
            leave(warp, split, mask);
          } else {
            struct split bridge = {.parent = up->parent, .frame = split->frame};
            give_back(&bridge, mask);
            up->parent->arrived |= mask;
            split->mask &= ~mask;
          }
        }
        if (split->mask == 0) {
          end_split(warp, split);
          ptx_settle_barriers(warp->block);
        }
        goto again;
      case K_EXIT:
        split->pc = pc + 1;
        leave(warp, split, mask);
        if (split->mask == 0) end_split(warp, split);
        ptx_settle_barriers(warp->block);
        goto again;
      case K_TRAP:
        return ptx_raise(&at, PTX_TRAP, (uint32_t)__builtin_ctz(mask), 0, "a trap instruction");
      case K_LOAD:
        if (!ptx_load(&at, mask)) return RUN_FAULT;
        pc++;
        continue;
      case K_STORE:
        if (!ptx_store(&at, mask)) return RUN_FAULT;
        pc++;
        continue;
      case K_LOAD_KERNEL_PARAM:
        kernel_parameter(&at, (mask | idle) == FULL ? FULL : mask);
        pc++;
        continue;
      case K_LOAD_PARAM:
        call_parameter(&at, mask, true);
        pc++;
        continue;
      case K_STORE_PARAM:
        call_parameter(&at, mask, false);
        pc++;
        continue;
      case K_ATOM:
        if (!ptx_atomic(&at, mask)) return RUN_FAULT;
        pc++;
        continue;
      case K_CP_ASYNC:
        if (!ptx_copy_async(&at, mask)) return RUN_FAULT;
        pc++;
        continue;
      case K_ISSPACEP:
        window(&at, mask);
        pc++;
        continue;
      case K_LOCAL_ADDRESS: {
        uint64_t value = split->frame->local_base + in->u.offset;
        unsigned char *d = at.registers + (in->d & ~3u);
        for (uint32_t i = 0; i < PTX_LANES; i++) {
          if ((mask >> i & 1) != 0) memcpy(d + i * in->size, &value, in->size);
        }
        pc++;
        continue;
      }
      case K_ACTIVEMASK: {
        uint32_t r[PTX_LANES];
        for (int i = 0; i < PTX_LANES; i++) r[i] = mask;
        ptx_blend(at.registers + (in->d & ~3u), r, mask, 4);
        pc++;
        continue;
      }
      case K_BARRIER: {
        split->pc = pc;
        if (barrier(&at, split, mask) == RUN_FAULT) return RUN_FAULT;
        if (split->state == SPLIT_READY) {
          pc = split->pc;
          continue;
        }
        goto again;
      }
      case K_SHFL:
      case K_VOTE:
      case K_MATCH:
      case K_REDUX:
      case K_ELECT:
      case K_WARP_BARRIER:
        if ((in->m & MW_SYNC) == 0) {
          together(&at, mask);
        } else if (!meet(&at, split, mask, forced)) {
          split->pc = pc;
          goto again;
        }
        forced = false;
        pc++;
        continue;
      case K_LDMATRIX:
      case K_STMATRIX:
      case K_MOVMATRIX:
      case K_MMA:
      case K_WMMA_LOAD:
      case K_WMMA_STORE:
        if (!ptx_matrix(&at, mask)) return RUN_FAULT;
        pc++;
        continue;
      case K_NANOSLEEP:
        split->pc = pc + 1;
        goto next_split;
      default:
        return ptx_raise(&at, PTX_UNSUPPORTED, 0, 0, "an instruction without execution");
    }
  }

next_split:
  /* Others get a turn: of the warp, then of the block. */
  turns = BUDGET_OF_SPLIT;
  warp->at = (warp->at + 1) % warp->leaf_count;
  if (__atomic_load_n(&worker->launch->stop, __ATOMIC_RELAXED) != 0) return RUN_FAULT;
  if (--budget == 0) return RUN_YIELD;
  goto again;
}
