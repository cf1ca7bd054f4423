#include "host/backend/software/ptx/run/check.h"
#include "host/backend/software/ptx/run/warp.h"

struct block *ptx_shared_block(const struct place *at, uint64_t *offset) {
  struct block *block = at->warp->block;
  uint64_t rank = *offset >> PTX_RANK_SHIFT;
  if (rank == 0) return block;
  *offset &= (1u << PTX_RANK_SHIFT) - 1;
  return rank <= block->cluster->count ? block->cluster->blocks[rank - 1] : NULL;
}

uint32_t ptx_cluster_rank(const struct block *block) {
  uint32_t rank = 0;
  while (rank + 1 < block->cluster->count && block->cluster->blocks[rank] != block) rank++;
  return rank;
}

void ptx_cluster_settle(struct block *block) {
  struct cluster *cluster = block->cluster;
  uint32_t live = 0;
  for (uint32_t i = 0; i < cluster->count; i++) live += cluster->blocks[i]->live;
  if (cluster->arrived == 0 || cluster->arrived < live) return;
  cluster->arrived = 0;
  for (uint32_t i = 0; i < cluster->count; i++) {
    struct block *other = cluster->blocks[i];
    for (uint32_t w = 0; w < other->warp_count; w++) {
      struct warp *warp = &other->warps[w];
      warp->at_cluster = 0;
      /* checks do not cover the shared memory of other blocks */
      if (other->check != NULL) ptx_check_pass(warp, CLUSTER_BARRIER, true);
      for (uint32_t k = 0; k < warp->leaf_count; k++) {
        if (warp->leaves[k]->state == SPLIT_EVENT) warp->leaves[k]->state = SPLIT_READY;
      }
    }
    if (other->check != NULL) ptx_check_open(other, CLUSTER_BARRIER);
  }
}

void ptx_cluster_arrive(struct warp *warp, uint32_t lanes) {
  lanes &= ~warp->at_cluster;
  warp->at_cluster |= lanes;
  warp->block->cluster->arrived += (uint32_t)__builtin_popcount(lanes);
  if (warp->block->check != NULL) ptx_check_arrive(warp, CLUSTER_BARRIER);
  ptx_cluster_settle(warp->block);
}

/* The barrier does not wait for lanes that end, whether they had arrived or not. */
void ptx_cluster_leave(struct warp *warp, uint32_t lanes) {
  warp->block->cluster->arrived -= (uint32_t)__builtin_popcount(lanes & warp->at_cluster);
  warp->at_cluster &= ~lanes;
}
