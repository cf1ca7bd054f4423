#include <string.h>

#include "host/backend/software/ptx/run/check.h"
#include "host/backend/software/ptx/run/warp.h"

/* Copies `lanes` of parameters from one frame to another. Both lists are (offset, size). */
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

static void place_addressed(const struct place *at, const struct frame *frame, uint32_t lanes) {
  const struct ptx_function *f = frame->function;
  const struct block *block = at->warp->block;
  for (uint32_t i = 0; i < f->addressed_count; i++) {
    const struct ptx_addressed *a = &f->addressed[i];
    for (uint32_t left = lanes; left != 0; left &= left - 1) {
      uint32_t lane = (uint32_t)__builtin_ctz(left);
      uint64_t thread = (uint64_t)at->warp->number * PTX_LANES + lane;
      uint64_t offset = thread * at->worker->launch->local_bytes + frame->local_base + a->local;
      memcpy(block->local + offset, frame->registers + a->place + lane * a->size, a->size);
      if (block->check != NULL) ptx_check_filled(block, offset, a->size);
    }
  }
}

static bool enter(const struct place *at, struct split *waiting, uint32_t number, uint32_t lanes) {
  struct warp *warp = at->warp;
  struct frame *caller = waiting->frame;
  const struct ptx_function *callee = at->worker->launch->module->functions[number];
  uint32_t base = ptx_stack_top(caller, lanes);
  if (caller->depth >= MAX_DEPTH / 2 || callee->local_bytes > at->worker->launch->local_bytes ||
      base > at->worker->launch->local_bytes - callee->local_bytes) {
    ptx_raise(at, PTX_STACK_OVERFLOW, (uint32_t)__builtin_ctz(lanes), 0,
              "calls are nested too deep for the stack");
    return false;
  }
  struct frame *frame = ptx_new_frame(at->worker, number);
  if (frame == NULL || ptx_new_leaf(warp, waiting, frame, lanes, 0, PTX_NO_PC) == NULL) {
    ptx_raise(at, PTX_STACK_OVERFLOW, (uint32_t)__builtin_ctz(lanes), 0, "calls are nested too deep");
    return false;
  }
  frame->depth = caller->depth + 1;
  frame->local_base = base;
  struct call_lists l = lists_of(caller->function, at->in);
  copy_parameters(frame->registers, callee->parameter_place + callee->return_count, caller->registers,
                  l.arguments, l.argument_count, lanes, false);
  if (callee->addressed_count > 0) place_addressed(at, frame, lanes);
  return true;
}

/* True if the callee's parameters have the number and sizes of the call's. */
static bool fits(const struct ptx_function *callee, struct call_lists l) {
  if (callee->entry || callee->state != BODY_DECODED || callee->return_count != l.return_count ||
      callee->parameter_count != l.return_count + l.argument_count) {
    return false;
  }
  for (uint32_t i = 0; i < callee->parameter_count; i++) {
    uint32_t size = i < l.return_count ? l.returns[i * 2 + 1] : l.arguments[(i - l.return_count) * 2 + 1];
    if (callee->parameters[i].size != size) return false;
  }
  return true;
}

/* The calling split waits for all lanes that return. Lanes that the guard excludes are there already. */
bool ptx_call(const struct place *at, struct split *split, uint32_t mask, uint32_t next) {
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
  ptx_remove_leaf(warp, split);
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

void ptx_give_back(struct split *split, uint32_t lanes) {
  struct split *waiting = split->parent;
  if (waiting == NULL || waiting->frame == split->frame) return;
  const struct ptx_function *callee = split->frame->function, *caller = waiting->frame->function;
  if (callee->return_count == 0) return;
  struct call_lists l = lists_of(caller, &caller->code[waiting->pc - 1]);
  copy_parameters(waiting->frame->registers, callee->parameter_place, split->frame->registers, l.returns,
                  l.return_count, lanes, true);
}
