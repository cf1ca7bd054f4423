/* Between frames all values go through .param space, as in the ISA's ABI. */
#include "host/backend/software/ptx/decode/decode.h"
#include "host/backend/software/ptx/modes.h"

/* A predicate is passed as a word that is 1 or 0. */
static void move_predicate(struct parser *p, uint8_t kind, uint32_t reference, uint32_t offset,
                           uint32_t size) {
  uint32_t word = ptx_temporary(p, 4), zero = ptx_constant(p, 4, 0);
  if (kind == K_STORE_PARAM) {
    ptx_emit_alu(p, OP_SELP, T_U32, 4, word, ptx_constant(p, 4, 1), zero, reference, 0);
    ptx_move_parameter(p, kind, (struct ptx_held){word, 4, 1}, offset, size);
    return;
  }
  ptx_move_parameter(p, kind, (struct ptx_held){word, 4, 1}, offset, size);
  ptx_emit_compare(p, C_NE, T_U32, reference, word, zero);
}

void ptx_move_parameter(struct parser *p, uint8_t kind, struct ptx_held held, uint32_t offset,
                        uint32_t size) {
  uint8_t bytes = held.bytes;
  if (bytes == 0) {
    move_predicate(p, kind, held.reference, offset, size);
    return;
  }
  uint32_t x = p->x_count;
  for (uint32_t i = 0; i < held.count; i++)
    ptx_extra(p, (held.reference + (i << 2)) | (kind == K_LOAD_PARAM ? PTX_DEFINED : 0));
  struct ptx_instruction *in = ptx_emit(p, kind);
  in->u.offset = offset;
  in->target = size;
  in->space = S_PARAM;
  in->type = (uint8_t)(bytes == 2 ? T_B16 : bytes == 4 ? T_B32 : T_B64);
  in->size = bytes;
  in->m = (uint32_t)bytes << 4;
  in->x = x;
  in->x_count = held.count;
}

void ptx_store_results(struct parser *p) {
  for (uint32_t i = 0; i < p->returned_count; i++)
    ptx_move_parameter(p, K_STORE_PARAM, p->returned[i].held, p->returned[i].offset, PTX_SLOT);
}

uint32_t ptx_parameter_address(struct parser *p, const struct symbol *s, uint64_t addend) {
  uint32_t i = 0;
  while (i < p->addressed_count && p->addressed[i].place != s->offset) i++;
  if (i == p->addressed_count) {
    uint64_t from = (p->local_bytes + 15) / 16 * 16;
    if (from + s->size > PTX_LOCAL_MOST) ptx_refuse(p, "more than 512 KiB of local memory a thread");
    p->local_bytes = (uint32_t)(from + s->size);
    p->addressed = ptx_room(p, p->addressed, i, &p->addressed_room, sizeof *p->addressed);
    p->addressed[p->addressed_count++] =
        (struct ptx_addressed){(uint32_t)s->offset, (uint32_t)s->size, (uint32_t)from};
  }
  uint32_t to = ptx_temporary(p, 8);
  struct ptx_instruction *in = ptx_emit(p, K_LOCAL_ADDRESS);
  in->d = to;
  in->size = 8;
  in->u.offset = p->addressed[i].local + addend;
  return to;
}

static uint32_t new_slot(struct parser *p) {
  uint64_t size = PTX_SLOT;
  return ptx_frame_room(p, &size);
}

/* Gives the registers of an operand of a call. False: the operand has no registers. */
static bool held_by(struct parser *p, const struct operand *o, struct ptx_held *held) {
  bool vector = o->kind == O_SYMBOL && o->symbol->kind == SYM_VECTOR;
  if (!vector && (o->kind != O_REGISTER || o->lane_part != PART_NONE)) return false;
  uint32_t first = vector ? o->symbol->number : o->number;
  *held =
      (struct ptx_held){first << 2 | REF_FRAME, p->registers[first], vector ? (uint8_t)o->symbol->count : 1};
  return true;
}

static struct passed pass(struct parser *p, const struct operand *o, bool result) {
  if (o->kind == O_SYMBOL && o->symbol->kind == SYM_PARAM)
    return (struct passed){(uint32_t)o->symbol->offset, (uint32_t)o->symbol->size};
  if (o->kind == O_SINK && result) return (struct passed){new_slot(p), PTX_SLOT};
  if (o->kind == O_REGISTER && o->type == T_PRED && o->negated) ptx_refuse(p, "a negated predicate");
  struct ptx_held held;
  if (held_by(p, o, &held)) {
    uint32_t offset = new_slot(p);
    if (!result) ptx_move_parameter(p, K_STORE_PARAM, held, offset, PTX_SLOT);
    return (struct passed){offset, PTX_SLOT};
  }
  bool number = o->kind == O_INTEGER || o->kind == O_FLOAT;
  if (!number || result) ptx_refuse(p, "only .param variables, registers and numbers are passed");
  /* An integer has all its bits; the callee reads as many as its parameter has. */
  uint8_t bytes = o->kind == O_FLOAT && o->type == T_F32 ? 4 : 8;
  uint32_t value = ptx_temporary(p, bytes), offset = new_slot(p);
  enum ptx_type type = o->kind == O_INTEGER ? T_B64 : (enum ptx_type)o->type;
  ptx_emit_alu(p, OP_MOV, bytes == 4 ? T_B32 : T_B64, bytes, value, ptx_source(p, o, type), PTX_NONE,
               PTX_NONE, 0);
  ptx_move_parameter(p, K_STORE_PARAM, (struct ptx_held){value, bytes, 1}, offset, PTX_SLOT);
  return (struct passed){offset, PTX_SLOT};
}

/*
 * Passes all operands of one list. The instruction's list of places is written after all registers have been
 * stored.
 */
static uint32_t pass_list(struct parser *p, const struct operand *list, struct passed *to, bool result) {
  uint32_t count = list == NULL ? 0 : list->count;
  for (uint32_t i = 0; i < count; i++) to[i] = pass(p, &p->elements[list->first + i], result);
  return count;
}

static void write_places(struct parser *p, const struct passed *places, uint32_t count) {
  ptx_extra(p, count);
  for (uint32_t i = 0; i < count; i++) {
    ptx_extra(p, places[i].offset);
    ptx_extra(p, places[i].size);
  }
}

/* Checks that a call has the number and sizes of the function's parameters, so that copies need no checks. */
static void check_callee(struct parser *p, const struct ptx_function *f, const struct passed *places,
                         uint32_t returns, uint32_t arguments) {
  if (f->entry) ptx_refuse(p, "a kernel is not called");
  if (f->unreadable) return; /* needs.c refuses the kernel */
  if (f->parameter_count != returns + arguments || f->return_count != returns)
    ptx_refuse(p, "another number of parameters than the function has");
  for (uint32_t i = 0; i < returns + arguments; i++) {
    if (places[i].size != f->parameters[i].size)
      ptx_refuse(p, "a parameter of another size than the function has");
  }
}

static void take_results(struct parser *p, const struct operand *returns, const struct passed *places) {
  for (uint32_t i = 0; returns != NULL && i < returns->count; i++) {
    struct ptx_held held;
    if (held_by(p, &p->elements[returns->first + i], &held))
      ptx_move_parameter(p, K_LOAD_PARAM, held, places[i].offset, PTX_SLOT);
  }
}

void ptx_decode_call(struct parser *p) {
  uint32_t at = 0;
  const struct operand *returns = NULL, *arguments = NULL;
  if (at < p->operand_count && p->operands[at].listed) returns = &p->operands[at++];
  if (at >= p->operand_count) ptx_refuse(p, "a function expected");
  const struct operand *callee = &p->operands[at++];
  if (at < p->operand_count && p->operands[at].listed) arguments = &p->operands[at++];
  struct passed places[2 * MAX_ELEMENTS];
  uint32_t return_count = pass_list(p, returns, places, true);
  uint32_t argument_count = pass_list(p, arguments, places + return_count, false);
  bool direct = callee->kind == O_SYMBOL && callee->symbol->kind == SYM_FUNCTION;
  uint32_t number = direct ? callee->symbol->number : 0, a = PTX_NONE;
  if (direct) check_callee(p, p->module->functions[number], places, return_count, argument_count);
  else a = ptx_source(p, callee, T_B64);
  uint32_t x = p->x_count;
  write_places(p, places, return_count);
  write_places(p, places + return_count, argument_count);
  struct ptx_instruction *in = ptx_emit(p, direct ? K_CALL : K_CALL_INDIRECT);
  in->a = a;
  in->x = x;
  in->target = number;
  if (direct) {
    p->calls = ptx_room(p, p->calls, p->call_count, &p->call_room, sizeof *p->calls);
    p->calls[p->call_count++] = number;
  } else {
    p->function->recursive = true;
  }
  take_results(p, returns, places);
}
