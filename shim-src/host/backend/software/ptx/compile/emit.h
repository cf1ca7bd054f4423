/* The text of a function for LLVM. */
#ifndef VGPU_PTX_EMIT_H
#define VGPU_PTX_EMIT_H

#include <stdio.h>

#include "host/backend/software/ptx/compile/region.h"

/* A text that grows up to a limit. */
struct ptx_text {
  char *bytes;
  size_t used, room;
  bool full; /* something did not fit */
};
__attribute__((format(printf, 2, 3))) void ptx_say(struct ptx_text *text, const char *format, ...);

#define PTX_REGION_SYMBOL "region"

#define PTX_FLOATS 64u
#define PTX_FETCHED 64u
#define PTX_FETCHED_TOGETHER 16u /* most of a group, so that loads of others do not drive it out */
#define PTX_FETCHED_ELEMENTS 4u
#define PTX_NEVER UINT32_MAX
/* A load whose address was checked, or whose values were read, by an earlier instruction of its block. */
struct ptx_fetched {
  uint32_t pc, slow; /* an i1 that is true if `step` must be called; PTX_NEVER: it never must; 0: no load */
  uint32_t place[2]; /* pointers of both halves of a line, if it is not yet read; 0: it is */
  bool same;         /* the lanes of a half read the same place */
  uint32_t value[PTX_FETCHED_ELEMENTS];
};

#define PTX_WRITTEN 8u /* most registers that an instruction with a fast way writes */
_Static_assert(PTX_FETCHED_ELEMENTS <= PTX_WRITTEN, "a fetched load has a fast way");
/*
 * Most addresses: base + (index << shift), with an index of 32 bits for each lane. The index can be a line
 * (emit_affine.c): in each half of the warp, lane k has the number of lane 0 + k * step. A 32-bit register
 * that is a line is also kept as a sum, without shift and base.
 */
struct ptx_sum {
  uint32_t index; /* number of a <32 x i32> value, extended to 64 bits; 0: not computed */
  uint32_t shift;
  uint32_t base; /* value of i64; 0: none */
  bool is_signed;
  bool line, based; /* based: it has a base, even if `base` is not emitted */
  bool whole;       /* a line of step 1 that starts at a multiple of 16 in each half */
  int32_t step;
  uint32_t low, high; /* values of i32 of a line: lane 0 of each half */
};
#define PTX_SUM_SHIFT 8u /* largest */

/* A register within straight instructions. */
struct ptx_held {
  uint32_t value; /* 0: not computed; if there is no sum, the register is in the frame only */
  bool dirty;     /* the frame has another value */
  struct ptx_sum sum;
};

struct ptx_emit {
  struct ptx_text text;
  const struct ptx_plan *plan;
  const unsigned char *constants;
  bool rows;                 /* each row of the block has a multiple of 16 threads */
  struct ptx_affine *affine; /* by pc */
  uint32_t scope;            /* number of the present straight instructions */
  uint32_t next;             /* number of the next value */
  bool opaque;     /* the present instruction rounds or flushes in another way than LLVM's own arithmetic */
  uint32_t guard;  /* value of the present instruction's guard, as <32 x i1>; 0: none */
  uint32_t guards; /* the same as i32 */
  uint32_t part;   /* lanes, as i32, for which an arm of a branch is carried out; 0: all that are active */
  const uint64_t *kept[2]; /* sets of places that other lanes than those of `part` still need */
  bool own;                /* the present instruction has a guard of its own */
  uint32_t end;            /* pc behind the present straight instructions */
  uint32_t rest;           /* label at `end` to which ptx_emit_rest goes; 0: it must not be called */
  bool rests;              /* it was called */
  uint32_t flushed;        /* registers that were held at its calls, in the whole function */
  uint32_t stored;         /* pc behind the stores of which the text has been written */
  struct ptx_fetched fetched[PTX_FETCHED];
  uint32_t fetched_count;
  struct ptx_held *held;            /* by place / 64 */
  uint32_t *holding, holding_count; /* places that have a value */
  bool aside; /* in a part that not each path takes: what is read or written there is not held behind it */
  /* Functions to emit, as sets: element width in bits for places of 64 bits, width << 4 for those of 32. */
  uint32_t gathers, scatters;
  /* f32 results, by value number: `bits` has a GPU's NaN, `raw` the processor's. */
  struct {
    uint32_t bits, raw;
  } floats[PTX_FLOATS];
};

/* Writes the text of the planned function. False: it did not fit. */
bool ptx_emit_function(struct ptx_emit *e);

/* emit_alu.c: what a K_ALU computes. */
struct ptx_emit_operation {
  uint32_t op; /* of the interpreter's table; OP_NONE: a conversion, `type` from `from` */
  enum ptx_type type, from;
};
/* False: the operand is no constant of 32 bits. */
bool ptx_emit_constant(const struct ptx_emit *e, uint32_t reference, uint32_t *value);
bool ptx_emit_identify(const struct ptx_instruction *in, struct ptx_emit_operation *o);
/* The value of a K_ALU as <32 x iN>; 0: the interpreter's function must be called. */
uint32_t ptx_emit_native(struct ptx_emit *e, const struct ptx_instruction *in);
/* Whether a K_ALU of 64 bits computes a sum. */
bool ptx_emit_sum(struct ptx_emit *e, const struct ptx_instruction *in, struct ptx_sum *sum);
/* The value of a K_SETP as <32 x i1>; 0: as above. */
uint32_t ptx_emit_native_compare(struct ptx_emit *e, const struct ptx_instruction *in);

/* Writes "%vN = ..." and returns N. */
__attribute__((format(printf, 2, 3))) uint32_t ptx_emit_value(struct ptx_emit *e, const char *format, ...);
/* A vector with this number in each lane. */
uint32_t ptx_emit_splat(struct ptx_emit *e, uint32_t bits, uint64_t value);
/* An operand as <32 x i`bits`>. */
uint32_t ptx_emit_read(struct ptx_emit *e, uint32_t reference, uint32_t bits);
/* True if an operand is equal in all lanes of a launch. */
bool ptx_emit_is_scalar(const struct ptx_emit *e, uint32_t reference);
/* Such an operand of 64 bits as i64; 0: it is none. */
uint32_t ptx_emit_scalar(struct ptx_emit *e, uint32_t reference);
/* The operand's sum with its index computed. The index is 0 if the operand has no sum. */
struct ptx_sum ptx_emit_sum_of(struct ptx_emit *e, uint32_t reference);
/* A predicate as i32. */
uint32_t ptx_emit_predicate(struct ptx_emit *e, uint32_t reference);
/* i32 as <32 x i1>. */
uint32_t ptx_emit_lanes(struct ptx_emit *e, uint32_t value);

/* Selects `count` elements of x, then y, two vectors of `lanes` elements each, by the indices in from[]. */
uint32_t ptx_emit_shuffle(struct ptx_emit *e, uint32_t bits, uint32_t lanes, uint32_t x, uint32_t y,
                          uint32_t count, const uint32_t *from);
/* The same for `count` consecutive elements from index `from` on. */
uint32_t ptx_emit_piece(struct ptx_emit *e, uint32_t bits, uint32_t lanes, uint32_t x, uint32_t y,
                        uint32_t from, uint32_t count);
/* Adds k * step to lane k of each half of 16 lanes. */
uint32_t ptx_emit_ramp(struct ptx_emit *e, uint32_t bits, uint32_t value, uint32_t step);

/* A scalar value in each lane. */
uint32_t ptx_emit_spread(struct ptx_emit *e, uint32_t bits, uint32_t value);
uint32_t ptx_emit_inverse(struct ptx_emit *e, uint32_t value);
bool ptx_emit_has_avx512(void);
/* `yes` in the lanes of `lanes` (<32 x i1>), else `no`. */
uint32_t ptx_emit_select(struct ptx_emit *e, uint32_t bits, uint32_t lanes, uint32_t yes, uint32_t no);
/* Returns the same value, hidden from LLVM's analyses: a float, or an integer of 32 or 64 bits. */
uint32_t ptx_emit_unknown_float(struct ptx_emit *e, uint32_t bits, uint32_t raw);
uint32_t ptx_emit_unknown(struct ptx_emit *e, uint32_t bits, uint32_t value);
/*
 * The same, where LLVM's fault with AVX-512 requires it. For the kept operand of a select whose new value is
 * computed from it.
 */
uint32_t ptx_emit_hidden(struct ptx_emit *e, uint32_t bits, uint32_t value);
/* Writes a register, for the lanes of the guard. */
void ptx_emit_write(struct ptx_emit *e, uint32_t reference, uint32_t bits, uint32_t value);
void ptx_emit_write_predicate(struct ptx_emit *e, uint32_t reference, uint32_t value);
/* Calls the interpreter for the instruction. */
void ptx_emit_step(struct ptx_emit *e, const struct ptx_instruction *in, uint32_t pc);
/* The same if the i1 `slow` is true, else `fast` writes the registers, without branches. */
typedef void ptx_emit_fast(struct ptx_emit *e, const struct ptx_instruction *in, const void *data);
void ptx_emit_either(struct ptx_emit *e, const struct ptx_instruction *in, uint32_t pc, uint32_t slow,
                     ptx_emit_fast *fast, const void *data);

/* emit_affine.c: finds what computes each operand. False: there is no memory. */
bool ptx_affine_find(struct ptx_emit *e);
/* The result of the instruction at pc; the address that the instruction at pc uses. False: it is no line. */
bool ptx_emit_line(struct ptx_emit *e, uint32_t pc, struct ptx_sum *r);
bool ptx_emit_address_line(struct ptx_emit *e, uint32_t pc, struct ptx_sum *r);
/* The index of a sum as <32 x i32>. */
uint32_t ptx_emit_index(struct ptx_emit *e, const struct ptx_sum *sum);

/* emit_lanes.c: false: only `step` can do it. */
bool ptx_emit_special(struct ptx_emit *e, const struct ptx_instruction *in);
/* An operation of the warp's lanes, which are all here. */
void ptx_emit_meeting(struct ptx_emit *e, const struct ptx_instruction *in, uint32_t pc);

/*
 * The interpreter carries out the instructions from pc to the end of the block if the i1 `refused` is true.
 * False: nothing was emitted, because it would not pay, or is not possible here.
 */
bool ptx_emit_rest(struct ptx_emit *e, uint32_t pc, uint32_t refused);

/* The lanes that carry out the present instruction, as i32. */
uint32_t ptx_emit_active(struct ptx_emit *e);

/* emit_memory.c: NULL or 0: only `step` can carry out the access. */
const struct ptx_fetched *ptx_emit_load(struct ptx_emit *e, const struct ptx_instruction *in, uint32_t pc);
/* The values of such a load, at its own place. */
void ptx_emit_fetched(struct ptx_emit *e, const struct ptx_instruction *in, const struct ptx_fetched *f,
                      uint32_t value[PTX_FETCHED_ELEMENTS]);
/*
 * Emits a store and those that follow it immediately with the same address register. Returns how many. The
 * text goes on behind the label `done`; at the label `slow`, `step` must be called for each.
 */
uint32_t ptx_emit_stores(struct ptx_emit *e, const struct ptx_instruction *in, uint32_t pc, uint32_t *slow,
                         uint32_t *done);
/* The old values, unless the i1 `slow` is true. 0: as above. */
uint32_t ptx_emit_atomic(struct ptx_emit *e, const struct ptx_instruction *in, uint32_t pc, uint32_t *slow);

/* emit_prelude.c: the functions that the text calls. `small`: LLVM must not copy them to each access. */
void ptx_emit_prelude(struct ptx_text *text, bool small);
/* Functions that read or write 32 elements anywhere, for each width and size of places in a set. */
void ptx_emit_anywhere(struct ptx_text *text, uint32_t set, bool store);

#endif
