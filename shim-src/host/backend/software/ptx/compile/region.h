/*
 * Compiled functions: the contract between the interpreter, the code, and the process that compiles it. See
 * docs/explanation/simulated-gpu.md.
 */
#ifndef VGPU_PTX_REGION_H
#define VGPU_PTX_REGION_H

#include "host/backend/software/ptx/compile/plan.h"

struct place;
struct ptx_alu;

/* The state that compiled code uses. The text of emit.c has the offsets of these fields. */
struct ptx_region_call {
  const unsigned char *parameters;
  unsigned char *shared;
  uint64_t shared_bytes;
  struct ptx_region *regions; /* of the worker: PTX_REGION_CACHE */
  /* Carries out the instruction at pc by the interpreter's functions, for the lanes of `mask`. 0: a fault. */
  uint32_t (*step)(struct ptx_region_call *call, unsigned char *registers, uint32_t pc, uint32_t mask);
  /* The same for the instructions from pc to `to`, each for the lanes of call->mask that its guard names. */
  uint32_t (*rest)(struct ptx_region_call *call, unsigned char *registers, uint32_t pc, uint32_t to);
  uint32_t mask, entry;
  uint32_t turns, seen, spun, rounds; /* as in ptx_run_warp; `rounds`: a loop was repeated */
  uint32_t reconvergence;
  uint32_t living; /* lanes of the warp that run */
  const struct ptx_alu *alu;
  const uint32_t *tid, *block; /* of the warp's lanes, x before y before z; of the block */
  const struct ptx_instruction *code;
  const unsigned char *settled; /* the warp's frame, read for registers that are equal in a launch */
  const struct place *at;
  bool compares; /* region_check.c */
};

#define PTX_REGION_FAULT 0x80000000u /* the result if a fault was raised; otherwise it is a pc */
typedef uint32_t ptx_region_code(struct ptx_region_call *call, unsigned char *registers,
                                 const unsigned char *constants);

/* A function with compiled code. It stays until its module is freed. */
struct ptx_compiled {
  ptx_region_code *run;
  bool rows; /* it may only run if each row of the block has a multiple of 16 threads */
  struct ptx_plan plan;
};

#endif
