#include "host/backend/software/ptx/analysis/graph.h"

bool ptx_ends_block(uint8_t kind) {
  return kind == K_BRA || kind == K_BRX || kind == K_RET || kind == K_EXIT || kind == K_TRAP;
}

void ptx_successors(const struct parser *p, const struct ptx_graph *g, bool exit_returns, uint32_t block,
                    ptx_edge_visitor *visit, void *data) {
  uint32_t last = g->first[block + 1] - 1;
  const struct ptx_instruction *in = &p->code[last];
  uint32_t next = block + 1 < g->count ? block + 1 : g->count;
  switch (in->kind) {
    case K_BRA:
      visit(data, block, g->block_of[in->target]);
      break;
    case K_BRX:
      for (uint32_t i = 0; i < in->x_count; i++) visit(data, block, g->block_of[p->x[in->x + i]]);
      break;
    case K_RET:
      visit(data, block, g->count);
      break;
    case K_EXIT:
      if (exit_returns) visit(data, block, g->count);
      break;
    case K_TRAP:
      break;
    default:
      visit(data, block, next);
      return;
  }
  if (in->guard != 0) visit(data, block, next);
}

struct ptx_graph ptx_graph_make(struct parser *p) {
  struct ptx_graph g = {0};
  bool *leads = ptx_scratch(p, p->code_count + 1);
  leads[0] = true;
  for (uint32_t i = 0; i < p->code_count; i++) {
    const struct ptx_instruction *in = &p->code[i];
    if (in->kind == K_LABEL) leads[i] = true;
    if (ptx_ends_block(in->kind)) leads[i + 1] = true;
    if (in->kind == K_BRA) leads[in->target] = true;
    if (in->kind == K_BRX) {
      for (uint32_t k = 0; k < in->x_count; k++) leads[p->x[in->x + k]] = true;
    }
  }
  g.first = ptx_scratch(p, (p->code_count + 1) * sizeof *g.first);
  g.block_of = ptx_scratch(p, (p->code_count + 1) * sizeof *g.block_of);
  for (uint32_t i = 0; i < p->code_count; i++) {
    if (!leads[i]) continue;
    g.block_of[i] = g.count;
    g.first[g.count++] = i;
  }
  g.first[g.count] = p->code_count;
  return g;
}

void ptx_move_targets(struct parser *p, struct ptx_instruction *code, uint32_t count, const uint32_t *now) {
  bool *moved = ptx_scratch(p, p->x_count + 1);
  for (uint32_t i = 0; i < count; i++) {
    struct ptx_instruction *in = &code[i];
    if (in->kind == K_BRA) in->target = now[in->target];
    if (in->join != PTX_NO_PC) in->join = now[in->join];
    if (in->kind == K_BRX) {
      for (uint32_t k = in->x; k < in->x + in->x_count; k++) {
        if (!moved[k]) p->x[k] = now[p->x[k]];
        moved[k] = true;
      }
    }
  }
  p->code = code;
  p->code_count = count;
}
