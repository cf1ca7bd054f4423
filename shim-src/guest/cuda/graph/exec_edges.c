/*
 * The dependencies between the frames of a segment. The host runs the frames in their order, but a graph of
 * its driver has the branches of the program's graph.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_calls.h"
#include "guest/cuda/graph/graph_exec.h"

#define MOST (VGPU_BULK_MAX / sizeof(uint32_t))
#define NONE SIZE_MAX

/* Frames of the segment, in no order. */
struct frames {
  uint32_t *list;
  size_t count;
};

/* Entries [first, end) of an executable's list. */
struct range {
  const struct vgpu_exec *exec;
  size_t first, end;
  size_t *outer;   /* place of the child graph's entry that an entry belongs to; NONE: it is in no child */
  bool *is_needed; /* by another entry of the same graph */
  struct frames *after; /* for each entry: the frames whose end is its end */
  uint32_t *pairs;      /* what is sent: a frame, and a later one that depends on it */
  size_t pair_count;
};

static bool add(struct frames *to, uint32_t frame) {
  for (size_t i = 0; i < to->count; i++)
    if (to->list[i] == frame) return true;
  if ((to->count & (to->count - 1)) == 0) {
    uint32_t *list = realloc(to->list, (to->count == 0 ? 1 : to->count * 2) * sizeof *list);
    if (list == NULL) return false;
    to->list = list;
  }
  to->list[to->count++] = frame;
  return to->count < MOST;
}

static bool join(const struct range *range, struct frames *to, size_t entry) {
  if (entry < range->first) return true; /* the entry is in an earlier segment */
  const struct frames *more = &range->after[entry - range->first];
  bool enough = true;
  for (size_t i = 0; enough && i < more->count; i++) enough = add(to, more->list[i]);
  return enough;
}

/* The first entries of a child graph wait for what its node waits for. */
static bool find_before(const struct range *range, size_t entry, struct frames *before) {
  const struct vgpu_exec_node *node = &range->exec->nodes[entry];
  while (node->before_count == 0 && range->outer[entry - range->first] != NONE) {
    entry = range->outer[entry - range->first];
    node = &range->exec->nodes[entry];
  }
  bool enough = true;
  for (size_t i = 0; enough && i < node->before_count; i++) enough = join(range, before, node->before[i]);
  return enough;
}

/* The node of a child graph ends when the last entries of that graph end: those that no other entry needs. */
static bool join_child(const struct range *range, size_t entry, struct frames *after) {
  const size_t children = range->exec->nodes[entry].children;
  bool enough = true;
  for (size_t i = entry - children; enough && i < entry; i++) {
    if (i < range->first || range->outer[i - range->first] != entry) continue;
    if (!range->is_needed[i - range->first]) enough = join(range, after, i);
  }
  return enough;
}

static bool send_pair(struct range *range, uint32_t from, uint32_t to) {
  if (range->pair_count + 2 > MOST) return false;
  range->pairs[range->pair_count++] = from;
  range->pairs[range->pair_count++] = to;
  return true;
}

static bool find_edges(struct range *range) {
  bool enough = true;
  for (size_t i = range->first; enough && i < range->end; i++) {
    const struct vgpu_exec_node *node = &range->exec->nodes[i];
    struct frames *after = &range->after[i - range->first];
    struct frames before = {0};
    if (node->work.step != VGPU_STEP_FRAME) {
      enough = node->children > 0 ? join_child(range, i, after) : true;
      if (enough && after->count == 0) enough = find_before(range, i, after);
      continue;
    }
    const uint32_t last = node->index + node->work.frames - 1;
    enough = find_before(range, i, &before);
    for (size_t j = 0; enough && j < before.count; j++)
      enough = send_pair(range, before.list[j], node->index);
    for (uint32_t at = node->index; enough && at < last; at++) enough = send_pair(range, at, at + 1);
    enough = enough && add(after, last);
    free(before.list);
  }
  return enough;
}

static void find_outer(const struct range *range) {
  for (size_t i = range->first; i < range->end; i++) range->outer[i - range->first] = NONE;
  for (size_t i = range->first; i < range->end; i++) {
    const struct vgpu_exec_node *node = &range->exec->nodes[i];
    for (size_t j = i - node->children; j < i; j++)
      if (j >= range->first && range->outer[j - range->first] == NONE) range->outer[j - range->first] = i;
    for (size_t j = 0; j < node->before_count; j++)
      if (node->before[j] >= range->first) range->is_needed[node->before[j] - range->first] = true;
  }
}

/* True if each frame depends on the one before it, which the host assumes without edges. */
static bool is_chain(const struct range *range, uint32_t frames) {
  bool chain = range->pair_count == 2 * (size_t)(frames - 1);
  for (size_t i = 0; chain && i < range->pair_count; i += 2)
    chain = range->pairs[i] == i / 2 && range->pairs[i + 1] == i / 2 + 1;
  return chain;
}

int vgpu_exec_send_edges(const struct vgpu_exec *exec, uint64_t segment, size_t first, size_t end,
                         uint32_t frames) {
  const size_t count = end - first;
  if (frames < 2) return CUDA_SUCCESS;
  struct range range = {.exec = exec,
                        .first = first,
                        .end = end,
                        .outer = calloc(count, sizeof *range.outer),
                        .is_needed = calloc(count, sizeof *range.is_needed),
                        .after = calloc(count, sizeof *range.after),
                        .pairs = malloc(VGPU_BULK_MAX)};
  bool found = range.outer != NULL && range.is_needed != NULL && range.after != NULL && range.pairs != NULL;
  if (found) {
    find_outer(&range);
    found = find_edges(&range);
  }
  int result = CUDA_SUCCESS;
  /* Too many edges: the frames run one after the other. */
  if (found && !is_chain(&range, frames)) {
    const struct vgpu_send_graph_edges send = {.exec = segment};
    result = vgpu_cuda_post(VGPU_OP_graph_edges, &send, sizeof send, range.pairs,
                            (uint32_t)(range.pair_count * sizeof *range.pairs));
  }
  for (size_t i = 0; range.after != NULL && i < count; i++) free(range.after[i].list);
  free(range.outer);
  free(range.is_needed);
  free(range.after);
  free(range.pairs);
  return result;
}
