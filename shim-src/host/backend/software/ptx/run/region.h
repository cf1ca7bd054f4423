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

/* Writes what is the same for all warps of a block. */
void ptx_region_prepare_call(struct ptx_region_call *call, const struct block *block,
                             const struct ptx_compiled *compiled);
/*
 * Runs compiled code from the place on, for the lanes of `mask`. call->turns and call->seen are the counts of
 * ptx_run_warp. Returns the pc where the interpreter continues; PTX_REGION_FAULT: a fault was raised.
 */
uint32_t ptx_region_run(const struct place *at, const struct ptx_compiled *compiled, uint32_t mask,
                        struct ptx_region_call *call);

/* Whether compiled code may run: checks are the interpreter's. */
static inline bool ptx_compiles(const struct launch_state *l) {
  return l->launch->compiler != NULL && l->launch->checks == 0;
}

/* The code of a launch's kernel; NULL: it is not compiled yet, or may not run. */
static inline const struct ptx_compiled *ptx_kernel_code(const struct launch_state *l) {
  return ptx_compiles(l) ? __atomic_load_n(&l->module->functions[l->function]->compiled, __ATOMIC_ACQUIRE)
                         : NULL;
}

/*
 * Runs the kernel's code for a warp that has not begun, in a free frame. RUN_DONE: the warp has ended.
 * RUN_YIELD: it continues at first->pc, with the registers of the frame.
 */
enum run ptx_region_begin(struct warp *warp, struct split *first, const struct ptx_compiled *compiled,
                          struct ptx_region_call *call);

/*
 * Runs a warp of one leaf without the interpreter: the kernel's code, barriers and its end. RUN_YIELD: the
 * interpreter continues at the leaf's pc.
 */
enum run ptx_region_warp(struct warp *warp, const struct ptx_compiled *compiled,
                         struct ptx_region_call *call);

/* Runs one instruction after which the next one follows, for the lanes of `mask`. False: a fault. */
bool ptx_step(const struct place *at, uint32_t mask);

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
