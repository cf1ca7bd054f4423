/*
 * Where the paths of a branch meet: its block's immediate post-dominator, by Cooper, Harvey and Kennedy ("A
 * Simple, Fast Dominance Algorithm") on the reversed graph, without recursion.
 */
#include <string.h>

#include "host/backend/software/ptx/analysis/graph.h"

#define NOWHERE UINT32_MAX

struct graph {
  struct ptx_graph blocks;
  uint32_t *from_start, *from; /* predecessors, stored like a sparse matrix */
};

static void count_edge(void *data, uint32_t from, uint32_t to) {
  (void)from;
  ((struct graph *)data)->from_start[to + 1]++;
}

struct filling {
  struct graph *graph;
  uint32_t *at;
};
static void add_edge(void *data, uint32_t from, uint32_t to) {
  struct filling *filling = data;
  filling->graph->from[filling->at[to]++] = from;
}

struct meeting {
  const uint32_t *order, *join;
  uint32_t result;
};
static void meet(void *data, uint32_t from, uint32_t to) {
  (void)from;
  struct meeting *m = data;
  if (m->order[to] == NOWHERE || m->join[to] == NOWHERE) return;
  if (m->result == NOWHERE) {
    m->result = to;
    return;
  }
  uint32_t a = m->result, b = to;
  while (a != b) {
    while (m->order[a] < m->order[b]) a = m->join[a];
    while (m->order[b] < m->order[a]) b = m->join[b];
  }
  m->result = a;
}

/* Numbers blocks in postorder of the reversed graph from the exit, which has the highest number. */
static uint32_t *number(struct parser *p, const struct graph *g, uint32_t **by_order, uint32_t *reached) {
  uint32_t nodes = g->blocks.count + 1;
  uint32_t *order = ptx_scratch(p, nodes * sizeof *order);
  uint32_t *stack = ptx_scratch(p, nodes * sizeof *stack);
  uint32_t *at = ptx_scratch(p, nodes * sizeof *at);
  bool *seen = ptx_scratch(p, nodes);
  *by_order = ptx_scratch(p, nodes * sizeof **by_order);
  for (uint32_t i = 0; i < nodes; i++) order[i] = NOWHERE;
  uint32_t depth = 0, next = 0;
  stack[depth++] = g->blocks.count;
  seen[g->blocks.count] = true;
  at[g->blocks.count] = g->from_start[g->blocks.count];
  while (depth > 0) {
    uint32_t node = stack[depth - 1];
    if (at[node] < g->from_start[node + 1]) {
      uint32_t before = g->from[at[node]++];
      if (seen[before]) continue;
      seen[before] = true;
      at[before] = g->from_start[before];
      stack[depth++] = before;
    } else {
      order[node] = next;
      (*by_order)[next++] = node;
      depth--;
    }
  }
  *reached = next;
  return order;
}

static void drop_labels(struct parser *p) {
  bool *wanted = ptx_scratch(p, p->code_count + 1);
  for (uint32_t i = 0; i < p->code_count; i++) {
    const struct ptx_instruction *in = &p->code[i];
    if ((in->kind == K_BRA || in->kind == K_BRX) && in->join != PTX_NO_PC) wanted[in->join] = true;
    if ((in->kind == K_RET || in->kind == K_EXIT) && in->guard != 0 && in->join != PTX_NO_PC)
      wanted[in->join] = true;
  }
  uint32_t *now = ptx_scratch(p, (p->code_count + 1) * sizeof *now);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < p->code_count; i++) {
    now[i] = kept;
    if (p->code[i].kind != K_LABEL || wanted[i]) p->code[kept++] = p->code[i];
  }
  ptx_move_targets(p, p->code, kept, now);
}

void ptx_find_joins(struct parser *p) {
  struct graph g = {.blocks = ptx_graph_make(p)};
  const struct ptx_graph *blocks = &g.blocks;
  bool returns = false;
  for (uint32_t i = 0; i + 1 < p->code_count; i++) {
    if (p->code[i].kind == K_RET) returns = true;
  }
  /* A kernel may end only by exit. */
  bool exit_returns = !returns;
  uint32_t nodes = blocks->count + 1;
  g.from_start = ptx_scratch(p, (nodes + 1) * sizeof *g.from_start);
  for (uint32_t b = 0; b < blocks->count; b++) ptx_successors(p, blocks, exit_returns, b, count_edge, &g);
  for (uint32_t b = 0; b < nodes; b++) g.from_start[b + 1] += g.from_start[b];
  g.from = ptx_scratch(p, (g.from_start[nodes] + 1) * sizeof *g.from);
  struct filling filling = {&g, ptx_scratch(p, nodes * sizeof *filling.at)};
  memcpy(filling.at, g.from_start, nodes * sizeof *filling.at);
  for (uint32_t b = 0; b < blocks->count; b++) ptx_successors(p, blocks, exit_returns, b, add_edge, &filling);

  uint32_t *by_order, reached;
  uint32_t *order = number(p, &g, &by_order, &reached);
  uint32_t *join = ptx_scratch(p, nodes * sizeof *join);
  for (uint32_t i = 0; i < nodes; i++) join[i] = NOWHERE;
  join[blocks->count] = blocks->count;
  /* Limits a hostile graph. Branches that are left have no join, or a late one: slower, never wrong. */
  bool changed = true;
  for (uint32_t round = 0; changed && round < 64; round++) {
    changed = false;
    for (uint32_t i = reached - 1; i > 0; i--) {
      uint32_t node = by_order[i - 1];
      struct meeting m = {order, join, NOWHERE};
      ptx_successors(p, blocks, exit_returns, node, meet, &m);
      if (m.result != NOWHERE && join[node] != m.result) {
        join[node] = m.result;
        changed = true;
      }
    }
  }
  for (uint32_t b = 0; b < blocks->count; b++) {
    struct ptx_instruction *in = &p->code[blocks->first[b + 1] - 1];
    uint32_t to = changed ? NOWHERE : join[b];
    if (!ptx_ends_block(in->kind)) continue;
    in->join = to == NOWHERE || to == blocks->count ? PTX_NO_PC : blocks->first[to];
    /*
     * Lanes wait at labels: of the text, or after a loop's last branch, where statement.c added one. After a
     * guarded ret, exit or trap only one path continues.
     */
    if (in->join != PTX_NO_PC && p->code[in->join].kind != K_LABEL) in->join = PTX_NO_PC;
  }
  drop_labels(p);
}
