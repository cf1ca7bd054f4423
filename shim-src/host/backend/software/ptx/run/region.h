#ifndef VGPU_PTX_RUN_REGION_H
#define VGPU_PTX_RUN_REGION_H

#include "host/backend/software/ptx/alu/fpu.h"
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

static inline void ptx_use_control(struct worker *worker, uint32_t control) {
  if (control == 0 || control == worker->control) return;
  worker->control = control;
  ptx_fpu_set(control);
}

/* Whether compiled code may run: checks are the interpreter's. */
static inline bool ptx_compiles(const struct launch_state *l) {
  return l->launch->compiler != NULL && l->launch->checks == 0;
}

/* The code of a function for a launch; NULL: it is not compiled yet, or may not run. */
static inline const struct ptx_compiled *ptx_code_of(const struct launch_state *l,
                                                     const struct ptx_function *f) {
  if (!ptx_compiles(l)) return NULL;
  const struct ptx_compiled *code = l->rows ? __atomic_load_n(&f->compiled[1], __ATOMIC_ACQUIRE) : NULL;
  return code != NULL ? code : __atomic_load_n(&f->compiled[0], __ATOMIC_ACQUIRE);
}

/*
 * together.c: runs all warps of a block from block->together (not PTX_NO_PC) to the next barrier of the whole
 * block or to their ends. RUN_DONE: all have ended. RUN_YIELD: those that have not ended have passed the
 * barrier. RUN_BLOCKED: block->together is PTX_NO_PC now; the caller runs each warp by itself.
 */
enum run ptx_region_block(struct block *block, const struct ptx_compiled *compiled,
                          struct ptx_region_call *call);

/*
 * Runs a warp of one leaf without the interpreter: the kernel's code, barriers and its end. RUN_YIELD: the
 * interpreter continues at the leaf's pc.
 */
enum run ptx_region_warp(struct warp *warp, const struct ptx_compiled *compiled,
                         struct ptx_region_call *call);

/* Runs one instruction after which the next one follows, for the lanes of `mask`. False: a fault. */
bool ptx_step(const struct place *at, uint32_t mask);

/* The same; what waiting loops count is added to call->seen. */
bool ptx_region_step(const struct place *at, uint32_t mask, struct ptx_region_call *call);

/* Writes to `set` the places in this frame that the warp's other splits still need where they wait. */
void ptx_region_waiting(const struct place *at, const struct ptx_compiled *compiled, uint64_t *set);

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
