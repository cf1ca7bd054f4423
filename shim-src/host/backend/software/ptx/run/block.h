#ifndef VGPU_HOST_PTX_BLOCK_H
#define VGPU_HOST_PTX_BLOCK_H

#include "host/backend/software/ptx/run/warp.h"

/* Makes the memory of one block of this launch, which is used again for the next block. NULL: no memory. */
struct block *ptx_block_new(struct worker *worker);
void ptx_block_free(struct block *block);

/* Begins the block with this rank of a cluster. Without clusters a cluster is one block. */
void ptx_block_begin(struct block *block, uint64_t cluster, uint32_t rank);

/*
 * Runs every warp for a turn. RUN_YIELD: there is more to do. RUN_BLOCKED: other blocks of the cluster must
 * run first.
 */
enum run ptx_block_run(struct block *block);

/* Gives a warp a frame for its kernel. False: a fault was raised. */
bool ptx_begin_warp(struct warp *warp);
/* Gives a warp that has a frame its first split. NULL: as above. */
struct split *ptx_split_warp(struct warp *warp, uint32_t pc);

bool ptx_block_has(const struct block *block, enum split_state state);

void ptx_block_raise(struct block *block, enum ptx_status status, const char *text);

bool ptx_is_late(const struct launch_state *l, uint64_t now);

#endif
