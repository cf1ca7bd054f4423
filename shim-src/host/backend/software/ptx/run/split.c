#include <stdlib.h>
#include <string.h>

#include "host/backend/software/ptx/run/check.h"
#include "host/backend/software/ptx/run/warp.h"

struct frame *ptx_new_frame(struct worker *worker, uint32_t number) {
  struct frame *frame = worker->free_frames[number];
  if (frame != NULL) {
    worker->free_frames[number] = frame->next;
  } else {
    const struct ptx_function *function = worker->launch->module->functions[number];
    uint64_t bytes = (sizeof *frame + function->frame_bytes + 63) / 64 * 64;
    if (worker->frame_bytes + bytes > worker->launch->frame_limit) return NULL;
    void *memory = NULL;
    if (posix_memalign(&memory, 64, bytes) != 0) return NULL;
    memset(memory, 0, bytes);
    worker->frame_bytes += bytes;
    frame = memory;
    frame->made = worker->made;
    worker->made = frame;
    frame->number = number;
    frame->function = function;
  }
  frame->depth = 0;
  frame->local_base = 0;
  frame->grows = false;
  return frame;
}

struct split *ptx_new_split(struct warp *warp, struct frame *frame) {
  struct split *split = warp->free_splits;
  if (split != NULL) {
    warp->free_splits = split->parent;
  } else {
    if (warp->split_count >= MAX_DEPTH) return NULL;
    split = malloc(sizeof *split);
    if (split == NULL) return NULL;
    warp->split_count++;
    split->made = warp->made;
    warp->made = split;
  }
  *split =
      (struct split){.made = split->made, .frame = frame, .state = SPLIT_READY, .reconvergence = PTX_NO_PC};
  frame->users++;
  return split;
}

static void free_split(struct warp *warp, struct split *split) {
  if (--split->frame->users == 0) ptx_free_frame(warp->block->worker, split->frame);
  split->parent = warp->free_splits;
  warp->free_splits = split;
}

void ptx_remove_leaf(struct warp *warp, const struct split *split) {
  for (uint32_t i = 0; i < warp->leaf_count; i++) {
    if (warp->leaves[i] != split) continue;
    warp->leaves[i] = warp->leaves[--warp->leaf_count];
    return;
  }
}

/*
 * Ends a split that has no lanes left. Its parent waits for one split less, and continues if it was the last.
 */
void ptx_end_split(struct warp *warp, struct split *split) {
  ptx_remove_leaf(warp, split);
  while (split != NULL) {
    struct split *parent = split->parent;
    free_split(warp, split);
    if (parent == NULL || --parent->children > 0) return;
    parent->mask = parent->arrived & ~warp->exited;
    parent->arrived = 0;
    if (parent->mask != 0) {
      parent->state = SPLIT_READY;
      warp->leaves[warp->leaf_count++] = parent;
      return;
    }
    split = parent;
  }
}

void ptx_arrive(struct split *split, uint32_t lanes) {
  split->parent->arrived |= lanes;
  split->mask &= ~lanes;
}

void ptx_leave(struct warp *warp, struct split *split, uint32_t lanes) {
  if (warp->block->check != NULL) ptx_check_gone(warp);
  if (warp->at_cluster != 0) ptx_cluster_leave(warp, lanes);
  warp->exited |= lanes;
  warp->block->live -= ptx_count(lanes);
  split->mask &= ~lanes;
}

struct split *ptx_new_leaf(struct warp *warp, struct split *parent, struct frame *frame, uint32_t mask,
                           uint32_t pc, uint32_t reconvergence) {
  struct split *split = ptx_new_split(warp, frame);
  if (split == NULL) return NULL;
  split->parent = parent;
  split->mask = mask;
  split->pc = pc;
  split->reconvergence = reconvergence;
  if (parent != NULL) parent->children++;
  warp->leaves[warp->leaf_count++] = split;
  return split;
}

/*
 * Lanes that wait at a join for this leaf continue without it, because it may be waiting for them: for
 * example, a lane that left a loop holds the lock that the others try to take in the loop, and frees it only
 * after the loop. Every GPU since Volta continues there. The lanes meet again at an outer join. True: there
 * were such lanes.
 */
bool ptx_release(struct warp *warp, const struct split *leaf) {
  bool any = false;
  for (struct split *waits = leaf->parent; waits != NULL; waits = waits->parent) {
    uint32_t lanes = waits->arrived & ~warp->exited;
    if (lanes == 0) continue;
    if (ptx_new_leaf(warp, waits->parent, waits->frame, lanes, waits->pc, waits->reconvergence) == NULL)
      return any;
    waits->arrived = 0;
    any = true;
  }
  return any;
}

/* Releases leaves that wait at a barrier or for lanes of their warp. */
bool ptx_release_waiting(struct block *block) {
  bool any = false;
  for (uint32_t n = 0; n < block->warp_count; n++) {
    struct warp *warp = &block->warps[n];
    for (uint32_t i = 0; i < warp->leaf_count; i++) {
      if (warp->leaves[i]->state != SPLIT_READY) any |= ptx_release(warp, warp->leaves[i]);
    }
  }
  return any;
}

/*
 * Lanes of a warp that came to a barrier apart continue together: ptx_release() can have parted them, and the
 * next instructions can need the whole warp. True: the leaf is gone, and another has its lanes.
 */
bool ptx_unite(struct warp *warp, struct split *split) {
  for (uint32_t i = 0; i < warp->leaf_count; i++) {
    struct split *other = warp->leaves[i];
    if (other == split || other->state != SPLIT_READY || other->frame != split->frame ||
        other->pc != split->pc || other->parent != split->parent ||
        other->reconvergence != split->reconvergence)
      continue;
    other->mask |= split->mask;
    ptx_remove_leaf(warp, split);
    if (split->parent != NULL) split->parent->children--;
    split->state = SPLIT_JOIN; /* the caller may still look at it */
    free_split(warp, split);
    return true;
  }
  return false;
}

/* Lets some lanes of a leaf continue after its present instruction, as a separate leaf. False: too deep. */
bool ptx_part_lanes(struct warp *warp, struct split *split, uint32_t lanes) {
  if (ptx_new_leaf(warp, split->parent, split->frame, lanes, split->pc + 1, split->reconvergence) == NULL)
    return false;
  split->mask &= ~lanes;
  return true;
}

/*
 * `taken` continue at `target`, the others at `next`; they meet at `join`. warp->leaves[at] is the leaf to
 * continue with. False: too deep.
 */
bool ptx_diverge(struct warp *warp, struct split *split, uint32_t taken, uint32_t target, uint32_t next,
                 uint32_t join) {
  uint32_t rest = split->mask & ~taken;
  if (join != split->reconvergence || split->parent == NULL) {
    /* this split waits at the join for both */
    struct split *first = ptx_new_split(warp, split->frame);
    if (first == NULL) return false;
    first->parent = split;
    first->mask = split->mask;
    first->reconvergence = join;
    split->state = SPLIT_JOIN;
    split->pc = join;
    split->children = 1;
    split->arrived = 0;
    for (uint32_t i = 0; i < warp->leaf_count; i++) {
      if (warp->leaves[i] == split) warp->leaves[i] = first;
    }
    split = first;
  }
  if (join != PTX_NO_PC && target == join) {
    ptx_arrive(split, taken);
    split->pc = next;
    return true;
  }
  if (join != PTX_NO_PC && next == join) {
    ptx_arrive(split, rest);
    split->pc = target;
    return true;
  }
  split->mask = rest;
  split->pc = next;
  return ptx_new_leaf(warp, split->parent, split->frame, taken, target, join) != NULL;
}
