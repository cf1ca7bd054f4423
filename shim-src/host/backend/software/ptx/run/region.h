#ifndef VGPU_PTX_RUN_REGION_H
#define VGPU_PTX_RUN_REGION_H

#include "host/backend/software/ptx/compile/compiler.h"
#include "host/backend/software/ptx/run/warp.h"

/*
 * Called before a launch: with the modes `always` and `check`, compiles the kernel and the functions that it
 * calls.
 */
void ptx_region_prepare(struct launch_state *l);

/*
 * Counts what a function has run: warps that began it, and branches. Sends a hot one to the compiler, and
 * takes the compiler's answer.
 */
void ptx_region_heat(const struct launch_state *l, uint32_t function, uint32_t warps, uint32_t branches);

/* The counts of ptx_run_warp, which compiled code continues. */
struct region_counts {
  uint32_t turns, seen;
};
/*
 * Runs compiled code from the place on, for the lanes of `mask`. Returns the pc where the interpreter
 * continues; PTX_REGION_FAULT: a fault was raised.
 */
uint32_t ptx_region_run(const struct place *at, const struct ptx_compiled *compiled, uint32_t mask,
                        struct region_counts *counts);

/* Runs one instruction that compiled code can contain, except branches and labels. False: a fault. */
bool ptx_region_step(const struct place *at, uint32_t mask);

/* Runs the code itself. */
uint32_t ptx_region_code_run(const struct place *at, const struct ptx_compiled *compiled,
                             struct ptx_region_call *call);

/*
 * region_check.c: runs compiled code, but first the interpreter runs the same instructions one by one, and
 * the registers and stored bytes of both are compared. A difference is a fault.
 */
uint32_t ptx_region_compare(const struct place *at, const struct ptx_compiled *compiled,
                            struct ptx_region_call *call);

#endif
