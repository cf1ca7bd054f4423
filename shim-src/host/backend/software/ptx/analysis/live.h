/* Where registers are live: from a definition to its last use, over all paths. */
#ifndef VGPU_PTX_ANALYSIS_LIVE_H
#define VGPU_PTX_ANALYSIS_LIVE_H

#include "host/backend/software/ptx/text/parser.h"

/* `define`: the instruction writes it. */
typedef void ptx_reference_visitor(void *data, uint32_t *reference, bool define);
/* Visits every register of an instruction but the guard: reads, then writes. */
void ptx_each_reference(struct parser *p, struct ptx_instruction *in, ptx_reference_visitor *visit,
                        void *data);

/* Instructions between which a register may hold a value; from > to: nothing names it. */
struct ptx_interval {
  uint32_t from, to;
};
/*
 * Returns, in the scratch arena, an interval for each virtual register that covers every instruction where it
 * is live. A register that may be read before it is written gets the whole function. If the analysis would
 * exceed its limits, so does each register that a block reads before it writes it.
 *
 * Each lane is a thread with its own path, and instructions write only the lanes that execute them. So
 * intervals that are correct for each thread are also correct for a warp whose lanes have diverged.
 */
struct ptx_interval *ptx_live(struct parser *p);

#endif
