/* Where registers are live: from a definition to its last use, over all paths. */
#ifndef VGPU_PTX_ANALYSIS_LIVE_H
#define VGPU_PTX_ANALYSIS_LIVE_H

#include "host/backend/software/ptx/text/parser.h"

/* `define`: the instruction writes it. */
typedef void ptx_reference_visitor(void *data, uint32_t *reference, bool define);
/* Visits every reference of an instruction but the guard: reads, then writes. */
void ptx_each_reference(struct parser *p, struct ptx_instruction *in, ptx_reference_visitor *visit,
                        void *data);

/* Instructions between which a register may hold a value; from > to: nothing names it. */
struct ptx_interval {
  uint32_t from, to;
};
/*
 * Gives each virtual register an interval that covers every place where it is live, in the scratch arena. A
 * register that may be read before it is written, or that an analysis of limited size cannot tell from such a
 * register, gets the whole function.
 *
 * Each lane is a thread with a path of its own, and instructions write only the lanes that execute them. So
 * an interval of threads' paths is right for warps too, wherever the warp's other lanes are.
 */
struct ptx_interval *ptx_live(struct parser *p);

#endif
