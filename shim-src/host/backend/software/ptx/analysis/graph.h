/* The blocks of a function's code, and the edges between them. */
#ifndef VGPU_PTX_ANALYSIS_GRAPH_H
#define VGPU_PTX_ANALYSIS_GRAPH_H

#include "host/backend/software/ptx/text/parser.h"

struct ptx_graph {
  uint32_t count;     /* of blocks; the exit has number `count` */
  uint32_t *first;    /* first pc of each, and the end */
  uint32_t *block_of; /* block that begins at a pc */
};

/* Makes the blocks of the present code, in the scratch arena. They begin at targets and after branches. */
struct ptx_graph ptx_graph_make(struct parser *p);

typedef void ptx_edge_visitor(void *data, uint32_t from, uint32_t to);
/* Calls `visit` for each successor of a block; for exit instructions only if `exit_returns`. */
void ptx_successors(const struct parser *p, const struct ptx_graph *g, bool exit_returns, uint32_t block,
                    ptx_edge_visitor *visit, void *data);
/*
 * Replaces the function's code with `code`, its instructions in a new order. A target or join at `pc` becomes
 * now[pc].
 */
void ptx_move_targets(struct parser *p, struct ptx_instruction *code, uint32_t count, const uint32_t *now);
/* True if a block ends with an instruction of this kind. */
bool ptx_ends_block(uint8_t kind);

#endif
