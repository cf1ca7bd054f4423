/* Which instructions of a function are compiled, where the code is entered, and which registers it keeps. */
#ifndef VGPU_PTX_PLAN_H
#define VGPU_PTX_PLAN_H

#include "host/backend/software/ptx/program.h"

#define PTX_PLAN_INSTRUCTIONS 4000u /* most of a function */
#define PTX_PLAN_WORDS 64u          /* most of a set of places */
#define PTX_UNIFORM 2u

struct ptx_plan_block {
  uint32_t from, to; /* pcs; `to` is the first one behind it */
  bool compiled;     /* false: one instruction that the interpreter carries out */
  bool entered;      /* the interpreter can enter it, behind its label */
  bool meets;        /* it begins with an operation of the warp's lanes, for which some can be missing */
  uint32_t next[3];  /* blocks that can follow; PTX_NO_PC: none */
  /*
   * If lanes disagree at the branch at its end: the blocks that are carried out with a mask, for the lanes
   * that go on and for those that branch, before all continue at next[2]. PTX_NO_PC: none.
   */
  uint32_t arm[2];
  bool loops; /* it is a short loop: while lanes disagree at its end, it is repeated for those that branch */
};

/*
 * live, live_end, written: sets of places in a frame, `words` of 64 bits each; bit n stands for places[n].
 * live, live_end and written have one set for each block: the places whose values are needed at its start,
 * those whose values are needed at its end, and those that its instructions write.
 */
struct ptx_plan {
  const struct ptx_function *function;
  const struct ptx_instruction *code;
  struct ptx_plan_block *blocks;
  uint32_t block_count;
  uint32_t *block_of; /* by pc */
  uint32_t *entry;    /* by pc: the block that is entered there; PTX_NO_PC: none */
  uint32_t control;   /* of all float instructions that are compiled; 0: there are none */
  uint32_t *places;   /* offsets in the frame */
  uint32_t *number;   /* of a place, by offset / 64 */
  /* By offset / 64: the place's constant; PTX_UNIFORM: equal in all lanes of a launch; else PTX_NONE. */
  uint32_t *constant;
  uint32_t place_count, words;
  uint64_t *live, *live_end, *written;
};

/* False: the function is too large, has nothing to compile, or there is no memory. */
bool ptx_plan_make(struct ptx_plan *plan, const struct ptx_function *f, const struct ptx_instruction *code);
void ptx_plan_free(struct ptx_plan *plan);

/* Visits the places that an instruction reads or writes, its guard included. */
typedef void ptx_place_visitor(void *data, uint32_t place, bool write);
void ptx_plan_visit(const struct ptx_function *f, const struct ptx_instruction *in, ptx_place_visitor *visit,
                    void *data);

/*
 * The set of places whose values are needed at a pc: the start of a block, the instruction behind its label,
 * or the branch at its end.
 */
const uint64_t *ptx_plan_live(const struct ptx_plan *plan, uint32_t pc);

/*
 * Stores in `set` the places that compiled code can write if it is entered at `block` and leaves at
 * `reconvergence` at the latest.
 */
void ptx_plan_written(const struct ptx_plan *plan, uint32_t block, uint32_t reconvergence, uint64_t *set);

/* The constant that a register is set to once and for all, else the reference itself. */
uint32_t ptx_plan_source(const struct ptx_plan *plan, uint32_t reference);
/* An operation of the warp's lanes, which must all come. */
bool ptx_plan_meets(const struct ptx_instruction *in);
/* The lanes that must come to an operation of the warp: a reference. */
uint32_t ptx_plan_members(const struct ptx_plan *plan, const struct ptx_instruction *in);

/* An instruction that compiled code carries out through `step`. */
bool ptx_plan_steps(const struct ptx_plan *plan, const struct ptx_instruction *in);

#endif
