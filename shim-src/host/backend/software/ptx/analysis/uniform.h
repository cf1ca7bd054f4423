/* Values that are equal in all threads of a launch. */
#ifndef VGPU_PTX_ANALYSIS_UNIFORM_H
#define VGPU_PTX_ANALYSIS_UNIFORM_H

#include "host/backend/software/ptx/analysis/live.h"

/*
 * Moves the instructions of a kernel that compute such values to the front of its code, in their order, and
 * sets `settles` to their count. A frame keeps these registers for the next warp that uses it (settle.c).
 *
 * A value is moved if its register is written once, by an instruction without effects on anything else, from
 * parameters, the launch's sizes, constants and other such values, and if no path reads the register before.
 * `of` are the intervals of ptx_live; they are changed accordingly.
 */
void ptx_move_uniform(struct parser *p, struct ptx_interval *of);

#endif
